"""Headers and targets as pure values: what crosses, what cannot be smuggled, what is said of the client."""

from __future__ import annotations

from ipaddress import ip_network

import pytest
from aiohttp.test_utils import make_mocked_request
from hypothesis import given
from hypothesis import strategies as st

from sse_proxy.server.exact import BadHead, write_head
from sse_proxy.server.headers import (
    HOP_BY_HOP,
    decode_header,
    encode_header,
    end_to_end,
    forwarded_headers,
    header_values,
    is_trusted,
    request_id,
)
from sse_proxy.server.problem import RequestRefused
from sse_proxy.server.target import request_host, request_path, split_target, upstream_target
from tests.server.front import make_upstream

TRUSTED = (ip_network("10.0.0.0/8"), ip_network("fd00::/8"))


def raw(*lines: str) -> list[tuple[bytes, bytes]]:
    pairs = (line.partition(": ") for line in lines)
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, _, value in pairs]


def told(headers: list[tuple[str, str]]) -> dict[str, str]:
    return dict(headers)


# --- which headers cross ------------------------------------------------------------------------------------------


def test_hop_by_hop_headers_are_removed_whatever_their_case() -> None:
    """Case headers-01."""
    sent = raw("A: 1", *(f"{name.upper()}: x" for name in sorted(HOP_BY_HOP)), "B: 2")
    assert end_to_end(sent) == [("A", "1"), ("B", "2")]


def test_what_connection_names_is_removed_over_several_lines() -> None:
    sent = raw("Connection: close, X-One", "X-ONE: 1", "connection: x-two,,", "X-Two: 2", "X-Three: 3")
    assert end_to_end(sent) == [("X-Three", "3")]


@pytest.mark.parametrize("named", ["Host", "HOST", "Content-Length", "host, content-length"])
def test_connection_cannot_take_host_or_framing_away(named: str) -> None:
    sent = raw(f"Connection: {named}", "Host: a", "Content-Length: 5")
    assert end_to_end(sent, length=5) == [("Host", "a"), ("Content-Length", "5")]


def test_order_case_and_duplicates_stay() -> None:
    """Case headers-05: every Set-Cookie, in order, unjoined."""
    sent = raw("Set-Cookie: a=1", "x-B: 2", "Set-Cookie: b=2; Expires=Wed, 21 Oct 2026 07:28:00 GMT", "X-b: 3")
    assert end_to_end(sent) == [(n.decode(), v.decode()) for n, v in sent]


def test_framing_is_never_copied() -> None:
    sent = raw("Content-Length: 5", "Transfer-Encoding: chunked", "A: 1")
    assert end_to_end(sent) == [("A", "1")]


def test_a_known_length_stands_where_the_first_one_stood_once() -> None:
    sent = raw("content-length: 005", "A: 1", "Content-Length: 005")
    assert end_to_end(sent, length=5) == [("content-length", "5"), ("A", "1")]
    assert end_to_end(raw("A: 1"), length=0) == [("A", "1"), ("Content-Length", "0")]


@given(st.binary().filter(lambda value: not any(byte < 32 or byte == 127 for byte in value)))
def test_header_bytes_survive(value: bytes) -> None:
    assert encode_header(decode_header(value)) == value
    assert write_head("GET / HTTP/1.1", [("A", decode_header(value))]) == b"GET / HTTP/1.1\r\nA: " + value + b"\r\n\r\n"


@pytest.mark.parametrize("bad", ["a\r\nEvil: 1", "a\nb", "a\rb", "a\0b", "a\x0bb", "a\x7fb"])
def test_a_control_character_is_never_written(bad: str) -> None:
    for start, headers in [("HTTP/1.1 200 " + bad, []), ("HTTP/1.1 200 OK", [("A", bad)])]:
        with pytest.raises(BadHead):
            write_head(start, headers)


@pytest.mark.parametrize("bad", ["", "A B", "A:", "Ä", "A\r\nB"])
def test_a_name_that_is_no_token_is_never_written(bad: str) -> None:
    with pytest.raises(BadHead):
        write_head("HTTP/1.1 200 OK", [(bad, "1")])


def test_header_values_joins_lines_and_drops_empty_members() -> None:
    assert header_values(raw("TE: a , B", "te: ,c"), "Te") == ["a", "b", "c"]


# --- request id ---------------------------------------------------------------------------------------------------


def test_a_short_visible_request_id_is_kept() -> None:
    request = make_mocked_request("GET", "/", headers={"X-Request-ID": "abc-123"})
    assert request_id(request) == "abc-123"


@pytest.mark.parametrize("sent", ["", "a b", "x" * 129, "é", "a\tb"])
def test_any_other_request_id_is_replaced_once(sent: str) -> None:
    request = make_mocked_request("GET", "/", headers={"X-Request-ID": sent})
    made = request_id(request)
    assert made != sent
    assert len(made) == 32
    assert request_id(request) == made


# --- forwarded headers --------------------------------------------------------------------------------------------

LIES = [
    ("X-Forwarded-For", "6.6.6.6"),
    ("X-Forwarded-Host", "evil"),
    ("x-forwarded-proto", "gopher"),
    ("X-Forwarded-Prefix", "/evil"),
    ("X_Forwarded_For", "6.6.6.6"),
    ("Forwarded", "for=6.6.6.6"),
]


def test_what_an_untrusted_peer_says_of_itself_is_replaced() -> None:
    """Case headers-09."""
    out = forwarded_headers([("A", "1"), *LIES], peer="9.9.9.9", scheme="http", host="shop", trusted_proxies=TRUSTED)
    assert out == [
        ("A", "1"),
        ("X-Forwarded-For", "9.9.9.9"),
        ("X-Forwarded-Proto", "http"),
        ("X-Forwarded-Host", "shop"),
        ("Forwarded", "for=9.9.9.9;host=shop;proto=http"),
    ]


def test_a_trusted_peers_chain_is_extended() -> None:
    sent = [
        ("X-Forwarded-For", "1.1.1.1"),
        ("X-Forwarded-For", "2.2.2.2"),
        ("X-Forwarded-Proto", "https"),
        ("X-Forwarded-Host", "public"),
        ("X-Forwarded-Prefix", "/app"),
        ("Forwarded", "for=1.1.1.1"),
    ]
    out = told(forwarded_headers(sent, peer="10.1.2.3", scheme="http", host="inner:81", trusted_proxies=TRUSTED))
    assert out == {
        "X-Forwarded-Prefix": "/app",
        "X-Forwarded-For": "1.1.1.1, 2.2.2.2, 10.1.2.3",
        "X-Forwarded-Proto": "https",
        "X-Forwarded-Host": "public",
        "Forwarded": 'for=1.1.1.1, for=10.1.2.3;host="inner:81";proto=http',
    }


def test_a_trusted_peer_that_says_nothing_is_described_itself() -> None:
    out = told(forwarded_headers([], peer="10.1.2.3", scheme="https", host="a", trusted_proxies=TRUSTED))
    assert out["X-Forwarded-For"] == "10.1.2.3"
    assert out["X-Forwarded-Proto"] == "https"


def test_ipv6_is_bracketed_and_quoted_in_forwarded_only() -> None:
    out = told(forwarded_headers([], peer="2001:db8::1", scheme="https", host="[::1]:8080"))
    assert out["X-Forwarded-For"] == "2001:db8::1"
    assert out["Forwarded"] == 'for="[2001:db8::1]";host="[::1]:8080";proto=https'


def test_without_a_peer_and_a_host_nothing_is_invented() -> None:
    out = told(forwarded_headers([], peer=None, scheme="http", host=""))
    assert out == {"X-Forwarded-Proto": "http", "Forwarded": "for=unknown;proto=http"}


@pytest.mark.parametrize(
    ("peer", "trusted"),
    [("10.0.0.1", True), ("11.0.0.1", False), ("::ffff:10.0.0.1", True), ("fd00::5%eth0", True), ("x", False),
     (None, False), ("fe80::1", False)],
)  # fmt: skip
def test_trust_is_by_network(peer: str | None, trusted: bool) -> None:
    assert is_trusted(peer, TRUSTED) is trusted
    assert not is_trusted(peer, ())


def test_a_unix_socket_is_trusted_where_this_machine_is() -> None:
    here = (ip_network("127.0.0.0/8"),)
    assert is_trusted(None, here)
    out = told(forwarded_headers(LIES, peer=None, scheme="http", host="a", trusted_proxies=here))
    assert out["X-Forwarded-For"] == "6.6.6.6"
    assert out["Forwarded"] == "for=6.6.6.6, for=unknown;host=a;proto=http"


# --- targets ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "target",
    [
        "/",
        "/a%2Fb/%7Eu/%41?sig=x%2Fy%2Bz%3D&q=a+b&n=%27q%27",  # case url-01
        "/p?e=%25s3&t=100%25&u=%E4%BD%A0",  # case url-03
        "/p?",
        "/?",
        "/%",
        "/a//b/./c/../d",
        "//evil",
        "//evil/x",
        "/\\evil",
        "/x/../../y",
        "/%2f..%2f",
        "/;a=b/|{}^`\"'<>",
        "/a?b?c",
        "*",
    ],
)
def test_a_target_reaches_an_unfenced_upstream_byte_for_byte(target: str) -> None:
    request = make_mocked_request("OPTIONS", target)
    assert split_target(request) == (None, target)
    assert upstream_target(target, make_upstream("http://legacy.internal:8080")) == target


@pytest.mark.parametrize(
    ("sent", "host", "target"),
    [
        ("http://evil/x?y=1", "evil", "/x?y=1"),
        ("http://evil", "evil", "/"),
        ("http://evil?q", "evil", "/?q"),
        ("HTTPS://evil:81//z", "evil:81", "//z"),
    ],
)
def test_an_absolute_target_names_a_host_but_never_the_upstream(sent: str, host: str, target: str) -> None:
    request = make_mocked_request("GET", sent, headers={"Host": "shop"})
    assert split_target(request) == (host, target)
    assert request_host(request) == host


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [
        ("CONNECT", "evil:80", 405),
        ("GET", "*", 400),
        ("GET", "ftp://evil/", 400),
        ("GET", "http://", 400),
        ("GET", "http:///x", 400),
        ("GET", "http://user@evil/", 400),
        ("GET", "http://a b/", 400),
        ("GET", "evil", 400),
        ("GET", "evil:80", 400),
        ("GET", "@evil/", 400),
        ("GET", "/#frag", 400),
        ("GET", "/\xe9", 400),
        ("GET", "/a b", 400),
        ("GET", "/a\r\nX: 1", 400),
        ("GET", "/a\0", 400),
        ("GET", "/\x7f", 400),
        ("GET", "", 400),
    ],
)
def test_anything_else_is_refused(method: str, target: str, status: int) -> None:
    request = make_mocked_request(method, "/")
    request._message = request._message._replace(path=target)
    with pytest.raises(RequestRefused) as refusal:
        request_path(request)
    assert refusal.value.status == status


@pytest.mark.parametrize("host", ["a b", "a/b", "a@b", "a\\b", "a#b", "a:b", "a?b", "é", '"', "a:80:80"])
def test_a_host_that_is_no_authority_is_refused(host: str) -> None:
    with pytest.raises(RequestRefused):
        request_host(make_mocked_request("GET", "/", headers={"Host": host}))


@pytest.mark.parametrize("host", ["", "a", "a:80", "a:", "[::1]", "[::1]:80", "1.2.3.4", "xn--x_y.example."])
def test_a_host_that_is_one_is_kept(host: str) -> None:
    assert request_host(make_mocked_request("GET", "/", headers={"Host": host})) == host


PREFIXED = make_upstream("http://legacy.internal:8080/base")
STRIPPED = make_upstream("http://legacy.internal", match={"path": "/api"}, strip_prefix="/api")


@pytest.mark.parametrize(
    ("target", "expected"),
    [("/a%2fb?x=/../", "/base/a%2fb?x=/../"), ("/", "/base/"), ("//evil", "/base//evil"), ("/a/../b", "/base/a/../b"),
     ("/?", "/base/?")],
)  # fmt: skip
def test_a_path_prefix_is_put_before_the_untouched_target(target: str, expected: str) -> None:
    assert upstream_target(target, PREFIXED) == expected


@pytest.mark.parametrize(
    ("target", "expected"),
    [("/api/x%2F?q", "/x%2F?q"), ("/api", "/"), ("/api?q", "/?q"), ("/api//x", "//x"), ("/apix", "/apix")],
)
def test_a_stripped_prefix_is_a_whole_segment(target: str, expected: str) -> None:
    assert upstream_target(target, STRIPPED) == expected


@pytest.mark.parametrize(
    "climb",
    ["/..", "/../x", "/a/../../x", "/%2e%2e/x", "/.%2E/x", "/%2f..", "/..%2fx", "/a/..%2f..%2fx", "/\\..\\x", "/..\\x",
     "/..%5cx", "/./../x", "//../..", "/..;a=b/x", "/a/..;/../x"],
)  # fmt: skip
def test_dot_segments_cannot_climb_out_of_a_fence(climb: str) -> None:
    for upstream, target in [(PREFIXED, climb), (STRIPPED, "/api" + climb)]:
        with pytest.raises(RequestRefused) as refusal:
            upstream_target(target, upstream)
        assert refusal.value.status == 400


def test_the_query_may_hold_anything() -> None:
    assert upstream_target("/a?/../../x", PREFIXED) == "/base/a?/../../x"


def test_asterisk_cannot_be_mapped_below_a_prefix() -> None:
    with pytest.raises(RequestRefused):
        upstream_target("*", PREFIXED)
