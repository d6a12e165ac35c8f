"""The head of a request: exact bytes, and nothing that could mean two requests."""

from __future__ import annotations

import pytest

from sse_proxy.server.upstream.request import request_head

HOST = "host.example:81"


def make(
    method: str = "POST",
    target: str = "/",
    headers: list[tuple[str, str | bytes]] | None = None,
    *,
    chunked: bool = False,
) -> bytes:
    return request_head(method, target, headers or [], HOST, chunked)


def test_target_and_headers_go_out_as_they_are() -> None:
    headers: list[tuple[str, str | bytes]] = [
        ("x-Case", "1"), ("X-CASE", "2"), ("Cookie", "a=b; c=é"), ("X-Bytes", b"\xc3\xa9\xff"), ("X-Empty", ""),
        ("X-Tab", "a\tb"),
    ]  # fmt: skip
    assert make("PATCH", "/a%2fb//../c?x=%27&y#é", headers) == (
        b"PATCH /a%2fb//../c?x=%27&y#\xe9 HTTP/1.1\r\nHost: host.example:81\r\n"
        b"x-Case: 1\r\nX-CASE: 2\r\nCookie: a=b; c=\xe9\r\nX-Bytes: \xc3\xa9\xff\r\nX-Empty: \r\nX-Tab: a\tb\r\n\r\n"
    )


def test_a_host_of_the_callers_stays_where_it_is() -> None:
    assert make("GET", "/", [("A", "1"), ("hOST", "other")]) == b"GET / HTTP/1.1\r\nA: 1\r\nhOST: other\r\n\r\n"


def test_framing() -> None:
    assert make(chunked=True).endswith(b"\r\nTransfer-Encoding: chunked\r\n\r\n")
    assert make(headers=[("Content-Length", "5")]).endswith(b"\r\nContent-Length: 5\r\n\r\n")
    assert b"ncoding" not in make()


@pytest.mark.parametrize("bad", ["\r", "\n", "\0", "\r\nX: y", "a\rb"])
def test_line_ends_and_nul_are_refused_everywhere(bad: str) -> None:
    for method, target, name, value in (
        (f"GET{bad}", "/", "X", "1"),
        ("GET", f"/{bad}", "X", "1"),
        ("GET", "/", f"X{bad}", "1"),
        ("GET", "/", "X", f"1{bad}"),
        ("GET", "/", "X", f"{bad}1"),
        ("GET", "/", "X", f"1{bad}".encode()),
    ):
        with pytest.raises(ValueError, match=r"CR, LF or NUL|not a|control"):
            make(method, target, [(name, value)])


@pytest.mark.parametrize(
    ("method", "target", "headers", "chunked"),
    [
        ("", "/", [], False),
        ("GET /x", "/", [], False),
        ("GÉT", "/", [], False),
        ("GET", "", [], False),
        ("GET", "/a b", [], False),
        ("GET", "/a\x7f", [], False),
        ("GET", "/\u20ac", [], False),  # not Latin-1
        ("GET", "/", [("", "1")], False),
        ("GET", "/", [("X Y", "1")], False),
        ("GET", "/", [("X:", "1")], False),
        ("GET", "/", [("X", "\u20ac")], False),
        ("GET", "/", [("X", "\udcff")], False),  # a surrogate is no byte
        ("GET", "/", [("Host", "a"), ("host", "b")], False),
        ("POST", "/", [("Transfer-Encoding", "chunked")], False),
        ("POST", "/", [("transfer-encoding", "chunked")], True),
        ("POST", "/", [("Content-Length", "1")], True),
        ("POST", "/", [("Content-Length", "1"), ("content-length", "1")], False),
    ],
)
def test_what_could_mean_another_request_is_refused(
    method: str, target: str, headers: list[tuple[str, str | bytes]], chunked: bool
) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        make(method, target, headers, chunked=chunked)


def test_a_refusal_shows_little_of_what_it_refuses() -> None:
    with pytest.raises(ValueError, match="in the value of Authorization") as caught:
        make(headers=[("Authorization", "secret\n")])
    assert "secret" not in str(caught.value)
    with pytest.raises(ValueError, match="not a header name") as caught:
        make(headers=[("x " * 500, "1")])
    assert len(str(caught.value)) < 120
