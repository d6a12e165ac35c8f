"""What passes untouched, and what happens when it cannot: raw sockets on both sides of the proxy."""

# ruff: noqa: SIM117  (a proxy stands in front of its upstream, a client in front of both: nesting shows it)

from __future__ import annotations

import asyncio
import gc
import gzip
import json
import logging
import ssl
import tracemalloc
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from aiohttp.client_proto import ResponseHandler

from sse_proxy.server.exact import ExactResponse
from sse_proxy.server.http import server_context
from tests.fakes import (
    Early,
    End,
    Request,
    Reset,
    Script,
    ScriptedUpstream,
    Send,
    Stall,
    Step,
    Wait,
    WaitForBody,
    chunk,
    eventually,
    free_port,
    head,
    last_chunk,
    parse_response,
    raw_request,
    stream_head,
)
from tests.server.front import Client, make_certificate, proxy, still

HUGE = 120_000_000  # more than all the buffers on the way hold
OK = [head(200, [("A", "1")], length=2, reason="Fine"), b"ok"]


def get(*lines: str, target: str = "/", method: str = "GET", version: str = "1.1", host: str = "shop") -> bytes:
    return "\r\n".join([f"{method} {target} HTTP/{version}", f"Host: {host}", *lines, "", ""]).encode("latin-1")


async def ask(port: int | None, data: bytes) -> tuple[int, list[tuple[str, str]], bytes, bool]:
    """Send one request, and return status, headers, body and whether that is whole."""
    received = await raw_request(port or 0, data, until_close=False)
    return parse_response(received, head_only=data.startswith(b"HEAD"))


def problem_of(received: bytes, status: int, code: str | None = None) -> dict[str, object]:
    got, headers, body, complete = parse_response(received)
    assert (got, complete) == (status, True), received
    assert dict(headers)["Content-Type"] == "application/problem+json"
    document: dict[str, object] = json.loads(body)
    assert document.get("code") == code
    assert document["requestId"]
    return document


OURS = {"x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "forwarded"}


def sent_headers(request: Request) -> list[tuple[str, str]]:
    """Return what the upstream was sent, without the forwarded headers."""
    return [pair for pair in request.headers if pair[0].lower() not in OURS]


# --- the request, as the upstream sees it -------------------------------------------------------------------------


async def test_the_upstream_sees_the_same_request_and_nothing_more() -> None:
    """Cases url-01, headers-09, resume-01."""
    lines = ["x-B: 2", "X-b: 3", 'Cookie: a=1; b="2"', "LAST-event-id: 42", "Authorization: Basic x", "Empty:"]
    async with ScriptedUpstream(OK) as upstream, proxy(upstream.url) as site:
        await ask(site.port, get(*lines, target="/a%2Fb/%7Eu/%41?sig=x%2Fy%2Bz%3D&q=a+b&n=%27q%27"))
        seen = upstream.requests[0]
    assert (seen.method, seen.target, seen.version) == (
        "GET",
        "/a%2Fb/%7Eu/%41?sig=x%2Fy%2Bz%3D&q=a+b&n=%27q%27",
        "HTTP/1.1",
    )
    pairs = [(n, v.strip()) for n, _, v in (line.partition(":") for line in lines)]
    assert seen.headers == [
        ("Host", f"127.0.0.1:{upstream.port}"),
        *pairs,
        ("X-Forwarded-For", "127.0.0.1"),
        ("X-Forwarded-Proto", "http"),
        ("X-Forwarded-Host", "shop"),
        ("Forwarded", "for=127.0.0.1;host=shop;proto=http"),
    ]


ATTACKS = ["//evil", "//evil:80/x", "/\\evil", "/../", "/x/../../y", "/%2f..%2f", "/%0d%0aEvil:1", "/@evil", "/:80",
           "/?", "/p?e=%25s3&t=100%25&u=%E4%BD%A0"]  # fmt: skip


@pytest.mark.parametrize("target", ATTACKS)
async def test_a_target_cannot_change_where_a_request_goes(target: str) -> None:
    """Case url-03, and the attacks on the upstream's authority."""
    async with ScriptedUpstream(OK) as upstream, proxy(upstream.url) as site:
        assert (await ask(site.port, get(target=target, host="evil")))[0] == 200
        assert upstream.requests[0].target == target
        assert upstream.requests[0].get("Host") == f"127.0.0.1:{upstream.port}"


async def test_an_absolute_target_goes_to_the_upstream_as_well() -> None:
    async with ScriptedUpstream(OK) as upstream, ScriptedUpstream(OK) as evil, proxy(upstream.url) as site:
        assert (await ask(site.port, get(target=f"{evil.url}/x?y")))[0] == 200
        assert upstream.requests[0].target == "/x?y"
        assert upstream.requests[0].get("X-Forwarded-Host") == f"127.0.0.1:{evil.port}"
        assert not evil.requests


@pytest.mark.parametrize("target", ["/a\r\nEvil: 1", "/a\nEvil: 1", "/a\rb", "/\xe9", "/a b", "http://a@evil/", "evil"])
async def test_a_target_that_is_none_never_reaches_an_upstream(target: str) -> None:
    async with ScriptedUpstream(OK) as upstream, proxy(upstream.url) as site:
        received = await raw_request(site.port or 0, get("Connection: close", target=target))
        if "\nEvil" in target:  # to a parser the request line ends there, without a version
            assert received.startswith((b"HTTP/1.1 400", b"HTTP/1.1 505"))
        else:
            problem_of(received, 400)
        assert not upstream.requests


@pytest.mark.parametrize("value", ["caf\xe9", "\xff\xfe", "na\u00efve".encode().decode("latin-1"), "a\tb"])
async def test_header_bytes_cross_unchanged_both_ways(value: str) -> None:
    async with ScriptedUpstream([head(200, [("B", value)], length=0)]) as upstream, proxy(upstream.url) as site:
        headers = (await ask(site.port, get(f"A: {value}")))[1]
        assert upstream.requests[0].get("A") == value
        assert ("B", value) in headers


async def test_hop_by_hop_headers_stay_behind_both_ways() -> None:
    """Case headers-01."""
    hop = [("Connection", "keep-alive, X-Hop"), ("Keep-Alive", "timeout=5"), ("X-Hop", "1"),
           ("Proxy-Authenticate", "x"), ("TE", "trailers"), ("Trailer", "X-T"), ("Upgrade", "h2c")]  # fmt: skip
    async with ScriptedUpstream([head(200, [*hop, ("B", "2")], length=0)]) as upstream, proxy(upstream.url) as site:
        headers = (await ask(site.port, get("A: 1", *(f"{n}: {v}" for n, v in hop))))[1]
        assert sent_headers(upstream.requests[0])[1:] == [("A", "1")]
    assert headers == [("B", "2"), ("Content-Length", "0")]


@pytest.mark.parametrize("named", ["Host", "Content-Length", "X-Forwarded-For, Forwarded"])
async def test_connection_cannot_take_away_what_keeps_requests_apart(named: str) -> None:
    data = get(f"Connection: {named}", "Content-Length: 2", method="POST") + b"ab"
    async with ScriptedUpstream(OK) as upstream, proxy(upstream.url) as site:
        await ask(site.port, data)
        seen = upstream.requests[0]
    assert seen.body == b"ab"
    assert seen.get("Host") == f"127.0.0.1:{upstream.port}"
    assert seen.get("X-Forwarded-For") == "127.0.0.1"


async def test_the_clients_host_is_passed_on_where_set() -> None:
    async with ScriptedUpstream(OK) as upstream, proxy(upstream.url, settings={"host_header": "client"}) as site:
        await ask(site.port, get(host="shop:81"))
        assert upstream.requests[0].get("Host") == "shop:81"


async def test_prefixes_of_the_path() -> None:
    settings = {"match": {"path": "/api"}, "strip_prefix": "/api"}
    async with ScriptedUpstream(OK) as upstream, proxy(upstream.url + "/base", settings=settings) as site:
        await ask(site.port, get(target="/api/x%2f?q"))
        assert upstream.requests[0].target == "/base/x%2f?q"
        problem_of(await raw_request(site.port or 0, get(target="/api/%2e./x"), until_close=False), 400)
        assert len(upstream.requests) == 1


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND", "TRACE", "MKCOL"])
async def test_a_method_passes_without_a_body_being_invented(method: str) -> None:
    async with ScriptedUpstream(OK) as upstream, proxy(upstream.url) as site:
        assert (await ask(site.port, get(method=method)))[0] == 200
        seen = upstream.requests[0]
    assert seen.method == method
    names = [name for name, _ in sent_headers(seen)]
    assert set(names) <= {"Host", "Connection"}


async def test_options_asterisk() -> None:
    async with ScriptedUpstream(OK) as upstream, proxy(upstream.url) as site:
        assert (await ask(site.port, get(method="OPTIONS", target="*")))[0] == 200
        assert upstream.requests[0].target == "*"


async def test_connect_is_refused() -> None:
    async with ScriptedUpstream(OK) as upstream, proxy(upstream.url) as site:
        problem_of(await raw_request(site.port or 0, get(method="CONNECT", target="evil:443")), 405)
        assert not upstream.requests


async def test_an_old_client_gets_a_1_1_request_upstream() -> None:
    async with ScriptedUpstream([head(200, chunked=True), chunk(b"a"), chunk(b"b"), last_chunk]) as upstream:
        async with proxy(upstream.url) as site:
            received = await raw_request(site.port or 0, get(version="1.0"))
            assert upstream.requests[0].version == "HTTP/1.1"
    assert received == b"HTTP/1.1 200 X\r\nConnection: close\r\n\r\nab"


# --- request bodies -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "GET", "OPTIONS"])
@pytest.mark.parametrize("body", [b"", b"x", bytes(range(256)) * 8000])
@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_passes_with_its_own_framing(method: str, body: bytes, chunked: bool) -> None:
    """Case request-body-01: no limit of our own (2 MB here)."""
    if chunked:
        framed = b"".join(chunk(body[at : at + 70_000]) for at in range(0, len(body), 70_000)) + last_chunk
        data = get("Transfer-Encoding: chunked", "A: 1", method=method) + framed
    else:
        data = get(f"Content-Length: {len(body)}", "A: 1", method=method) + body
    async with ScriptedUpstream(OK) as upstream, proxy(upstream.url) as site:
        assert (await ask(site.port, data))[0] == 200
        seen = upstream.requests[0]
    assert (seen.body, seen.complete) == (body, True)
    framing = [(n, v) for n, v in seen.headers if n.lower() in ("content-length", "transfer-encoding")]
    assert framing == ([("Transfer-Encoding", "chunked")] if chunked else [("Content-Length", str(len(body)))])


@pytest.mark.parametrize("coding", ["gzip", "br", "zstd", "gzip, gzip"])
async def test_a_coded_body_is_never_decoded(coding: str) -> None:
    """Cases compression-01 and compression-03."""
    body = gzip.compress(b"x" * 1000)
    answer = [head(200, [("Content-Encoding", coding)], length=len(body)), body]
    data = get(
        f"Content-Encoding: {coding}", "Accept-Encoding: gzip, br, zstd", f"Content-Length: {len(body)}", method="PUT"
    )
    async with ScriptedUpstream(answer) as upstream, proxy(upstream.url) as site:
        status, headers, received, _ = await ask(site.port, data + body)
        seen = upstream.requests[0]
    assert (status, received) == (200, body)
    assert headers == [("Content-Encoding", coding), ("Content-Length", str(len(body)))]
    assert (seen.body, seen.get("Accept-Encoding")) == (body, "gzip, br, zstd")


async def test_a_body_streams_while_it_comes() -> None:
    async with ScriptedUpstream([Early(), WaitForBody(), *OK]) as upstream, proxy(upstream.url) as site:
        async with Client.open(site.port or 0, get("Content-Length: 4", method="POST")) as client:
            await eventually(lambda: bool(upstream.requests))
            client.send(b"ab")
            await eventually(lambda: upstream.requests[0].received == 2)
            client.send(b"cd")
            await client.until(b"ok")


async def test_expect_100_continue_is_answered_here() -> None:
    """Case request-body-03."""
    data = get("Expect: 100-Continue", "Content-Length: 3", method="PUT")
    async with (
        ScriptedUpstream(OK) as upstream,
        proxy(upstream.url) as site,
        Client.open(site.port or 0, data) as client,
    ):
        assert await client.until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.send(b"abc")
        assert (await client.until(b"ok")).startswith(b"HTTP/1.1 200 Fine")
        assert upstream.requests[0].body == b"abc"
        assert upstream.requests[0].get("Expect") is None


async def test_no_100_is_sent_for_a_request_that_goes_nowhere() -> None:
    data = get("Expect: 100-continue", "Content-Length: 3", method="PUT")
    async with proxy(f"http://127.0.0.1:{free_port()}", settings={"connect_timeout": "100ms"}) as site:
        received = await raw_request(site.port or 0, data, until_close=False)
        assert received.startswith(b"HTTP/1.1 502 ")
        assert b"Connection: close" in received


async def test_an_old_clients_expectation_is_not_met_and_not_passed_on() -> None:
    data = get("Expect: 100-continue", "Content-Length: 3", method="PUT", version="1.0") + b"abc"
    async with ScriptedUpstream(OK) as upstream, proxy(upstream.url) as site:
        assert (await raw_request(site.port or 0, data)).startswith(b"HTTP/1.1 200 ")
        assert upstream.requests[0].get("Expect") is None


async def test_a_timeout_within_an_upload_ends_in_one_answer(caplog: pytest.LogCaptureFixture) -> None:
    """The upstream gives no answer while the client still sends."""
    async with ScriptedUpstream([Early(read=False), Wait(asyncio.Event())]) as upstream:
        limits = {"lingering_time": 0.05}
        async with proxy(upstream.url, settings={"response_timeout": "100ms"}, limits=limits) as site:
            async with Client.open(site.port or 0, get(f"Content-Length: {HUGE}", method="POST")) as client:
                client.send(bytes(HUGE - 1))
                problem_of(await client.rest(), 504, "upstream_stalled")
    assert len([r for r in caplog.records if r.levelno >= logging.WARNING]) == 1


async def test_another_expectation_is_refused() -> None:
    async with ScriptedUpstream(OK) as upstream, proxy(upstream.url) as site:
        data = get("Expect: a-miracle", "Content-Length: 0", method="PUT")
        problem_of(await raw_request(site.port or 0, data), 417)


@pytest.mark.parametrize("end", ["keep", "close", "reset"])
@pytest.mark.parametrize("size", [1_000, 3_000_000])
async def test_an_early_answer_to_an_upload_reaches_the_client(end: str, size: int) -> None:
    """413 while the body is still coming; also with a FIN or an RST right behind it."""
    answer = [head(413, [("Connection", "close")], length=8, reason="Too Large"), b"too much"]
    last: dict[str, Step] = {"keep": Stall(), "close": End(), "reset": Reset()}
    script: Script = [Early(read=False), *answer, last[end]]
    async with ScriptedUpstream(script) as upstream, proxy(upstream.url, limits={"lingering_time": 0.1}) as site:
        for _ in range(5):
            async with Client.open(
                site.port or 0, get(f"Content-Length: {size}", method="POST") + b"x" * (size - 1)
            ) as client:
                received = await client.until(b"too much")
                assert received.startswith(b"HTTP/1.1 413 Too Large\r\n")
                assert b"\r\nConnection: close\r\n" in received


async def test_an_answer_may_stream_while_its_request_does() -> None:
    go = asyncio.Event()
    script: Script = [
        Early(),
        head(200, chunked=True),
        chunk(b"one"),
        WaitForBody(),
        chunk(b"two"),
        last_chunk,
        Wait(go),
    ]
    async with ScriptedUpstream(script) as upstream, proxy(upstream.url) as site:
        async with Client.open(site.port or 0, get("Content-Length: 2", method="POST") + b"a") as client:
            await client.until(b"one\r\n")
            client.send(b"b")
            await client.until(b"two\r\n0\r\n\r\n")
            assert upstream.requests[0].body == b"ab"
            go.set()


async def test_a_body_that_pauses_too_long_is_answered_408() -> None:
    async with (
        ScriptedUpstream([Early(), WaitForBody(), *OK]) as upstream,
        proxy(upstream.url, body_timeout=0.1) as site,
    ):
        async with Client.open(site.port or 0, get("Content-Length: 4", method="POST") + b"ab") as client:
            problem_of(await client.rest(), 408)
            await upstream.client_closed(0, 1)
        assert not upstream.requests[0].complete


async def test_a_body_that_keeps_coming_may_take_longer_than_the_limit() -> None:
    async with ScriptedUpstream([Early(), WaitForBody(), *OK]) as upstream:
        async with proxy(upstream.url, body_timeout=0.3, settings={"response_timeout": "300ms"}) as site:
            async with Client.open(site.port or 0, get("Content-Length: 6", method="POST")) as client:
                await eventually(lambda: bool(upstream.requests))
                for _ in range(6):
                    client.send(b"x")
                    await asyncio.sleep(0.1)
                await client.until(b"ok")


@pytest.mark.parametrize("body", [b"zz\r\n", b"3\r\nabcd\r\n", b"-1\r\n"])
async def test_broken_chunks_are_answered_400_and_never_look_complete_upstream(body: bytes) -> None:
    async with ScriptedUpstream([Early(), WaitForBody(), *OK]) as upstream, proxy(upstream.url) as site:
        async with Client.open(site.port or 0, get("Transfer-Encoding: chunked", method="POST")) as client:
            await eventually(lambda: bool(upstream.requests))
            client.send(chunk(b"ok"))
            await eventually(lambda: upstream.requests[0].chunks == [b"ok"])
            client.send(body)
            problem_of(await client.rest(), 400)
            await upstream.client_closed(0, 1)
        assert not upstream.requests[0].complete


async def test_a_client_that_leaves_within_its_body_ends_the_upstream_request() -> None:
    async with ScriptedUpstream([Early(), WaitForBody(), *OK]) as upstream, proxy(upstream.url) as site:
        async with Client.open(site.port or 0, get("Content-Length: 4", method="POST")) as client:
            await eventually(lambda: bool(upstream.requests))
            client.send(b"ab")
            await eventually(lambda: upstream.requests[0].received == 2)
        await upstream.client_closed(0, 1)
        assert not upstream.requests[0].complete


def upstream_connections() -> list[asyncio.Transport]:
    """Return the transports of aiohttp's client that are not closed yet."""
    handlers = (each for each in gc.get_objects() if isinstance(each, ResponseHandler))
    return [handler.transport for handler in handlers if handler.transport is not None]


async def test_a_client_that_resets_while_the_upstream_does_not_read_frees_both_connections() -> None:
    """Its reading is paused then. An orderly end would stand behind the bytes that nobody takes, and wait there."""
    async with ScriptedUpstream([Early(read=False), Wait(asyncio.Event())]) as upstream, proxy(upstream.url) as site:
        data = get(f"Content-Length: {HUGE}", method="POST") + bytes(HUGE - 1)
        async with Client.open(site.port or 0, data) as client:
            await eventually(lambda: bool(upstream.requests))
            await client.stuck()
            client.reset()
        await eventually(lambda: not site._front.connections, 2)
        await eventually(lambda: not upstream_connections(), 2)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="counts this process's open files by /proc")
async def test_a_stop_in_a_stuck_upload_leaves_no_connection_behind() -> None:
    """A mere close() of the connection to the upstream would wait for it to take what is still buffered."""

    def open_files() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    async with ScriptedUpstream([Early(read=False), Wait(asyncio.Event())]) as upstream:
        before = open_files()
        data = get(f"Content-Length: {HUGE}", method="POST") + bytes(HUGE - 1)
        async with proxy(upstream.url) as site, Client.open(site.port or 0, data) as client:
            await eventually(lambda: bool(upstream.requests))
            await client.stuck()
            await site.stop(0.01)
        await eventually(lambda: open_files() == before + 1, what="one file: the upstream's own end")


# --- the answer, as the client sees it ----------------------------------------------------------------------------


async def test_the_client_sees_the_same_answer_and_nothing_more() -> None:
    """Case headers-05."""
    headers = [
        ("Server", "Kestrel"),
        ("Set-Cookie", "a=1"),
        ("x-B", "2"),
        ("Date", "Wed, 21 Oct 2015 07:28:00 GMT"),
        ("Set-Cookie", "b=2; Expires=Wed, 21 Oct 2026 07:28:00 GMT"),
        ("X-b", "3"),
        ("Set-Cookie", "c=3"),
        ("Location", "http://legacy.internal/%2f"),
        ("WWW-Authenticate", 'Basic realm="x", Bearer'),
    ]
    async with (
        ScriptedUpstream([head(302, headers, length=0, reason="Over There")]) as upstream,
        proxy(upstream.url) as site,
    ):
        received = await raw_request(site.port or 0, get(), until_close=False)
    lines = [f"{name}: {value}" for name, value in headers]
    assert received == "\r\n".join(["HTTP/1.1 302 Over There", *lines, "Content-Length: 0", "", ""]).encode()


@pytest.mark.parametrize("reason", ["", "Not Quite OK", "caf\xe9"])
async def test_the_reason_phrase_stays(reason: str) -> None:
    async with ScriptedUpstream([head(299, length=0, reason=reason)]) as upstream, proxy(upstream.url) as site:
        received = await raw_request(site.port or 0, get(), until_close=False)
    assert received.startswith(f"HTTP/1.1 299 {reason}\r\n".encode("latin-1"))


@pytest.mark.parametrize("framing", ["length", "chunked", "close"])
@pytest.mark.parametrize("size", [0, 1, 300_000])
async def test_a_body_comes_through_whatever_its_framing(framing: str, size: int) -> None:
    body = bytes(n % 251 for n in range(size))
    script: dict[str, Script] = {
        "length": [head(length=size), body],
        "chunked": [head(chunked=True), *([chunk(body)] if body else []), last_chunk],
        "close": [head(), body, End()],
    }
    async with ScriptedUpstream(script[framing]) as upstream, proxy(upstream.url) as site:
        status, headers, received, complete = await ask(site.port, get())
    assert (status, received, complete) == (200, body, True)
    assert headers == [("Content-Length", str(size)) if framing == "length" else ("Transfer-Encoding", "chunked")]


async def test_the_head_does_not_wait_for_the_body() -> None:
    go = asyncio.Event()
    async with ScriptedUpstream([head(length=2), Wait(go), b"ok"]) as upstream, proxy(upstream.url) as site:
        async with Client.open(site.port or 0, get()) as client:
            await client.until(b"\r\n\r\n")
            go.set()
            await client.until(b"ok")


@pytest.mark.parametrize("script", [[head(200, [("Content-Type", "text/event-stream")], length=5)],
                                    [head(200, [("Content-Type", "text/event-stream")], length=5), b"hello"],
                                    [stream_head(), chunk(b"data: a\n\n"), Stall()],
                                    [head(200), Stall()]])  # fmt: skip
async def test_head_ends_at_once(script: Script) -> None:
    """Case methods-status-01: also when the upstream sends a body, or never ends it."""
    async with ScriptedUpstream(script) as upstream, proxy(upstream.url) as site:
        async with Client.open(site.port or 0, get(method="HEAD") + get("Connection: close")) as client:
            received = await client.until(b"\r\n\r\n")
            assert received.startswith(b"HTTP/1.1 200 ")
            assert (b"Content-Length: 5\r\n" in received) == (b"Content-Length" in bytes(script[0]))  # type: ignore[arg-type]
            assert b"Transfer-Encoding" not in received
            assert (await client.exactly(12)) == b"HTTP/1.1 200"
        if b"hello" not in script:  # with its body there the connection is in step and may be used again
            await upstream.client_closed(0, 1)


@pytest.mark.parametrize("status", [204, 304])
async def test_answers_without_a_body(status: int) -> None:
    """Case methods-status-05: 204 stays 204."""
    script: Script = [head(status, [("ETag", '"x"')], length=7 if status == 304 else 0)]
    async with ScriptedUpstream(script) as upstream, proxy(upstream.url) as site:
        async with Client.open(site.port or 0, get("Last-Event-ID: 3", target="/events") * 2) as client:
            for _ in range(2):
                received = await client.until(b"\r\n\r\n")
                assert received.startswith(b"HTTP/1.1 %d X\r\nETag" % status)
                assert (b"Content-Length: 7" in received) == (status == 304)
                assert b"Transfer-Encoding" not in received


async def test_a_204_that_claims_a_body_does_not_pass_the_claim_on() -> None:
    async with ScriptedUpstream([head(204, length=5)]) as upstream, proxy(upstream.url) as site:
        received = await raw_request(site.port or 0, get("Connection: close"))
        assert b"Content-Length" not in received


async def test_a_part_of_a_file() -> None:
    """Case methods-status-03."""
    headers = [("Content-Range", "bytes 0-1/10"), ("Accept-Ranges", "bytes"), ("ETag", '"v1"')]
    async with ScriptedUpstream([head(206, headers, length=2), b"ab"]) as upstream, proxy(upstream.url) as site:
        answer = await ask(site.port, get("Range: bytes=0-1", 'If-Range: "v1"'))
        assert (upstream.requests[0].get("Range"), upstream.requests[0].get("If-Range")) == ("bytes=0-1", '"v1"')
    assert answer == (206, [*headers, ("Content-Length", "2")], b"ab", True)


async def test_interim_answers_are_not_taken_for_the_answer() -> None:
    script: Script = [b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", *OK]
    async with ScriptedUpstream(script) as upstream, proxy(upstream.url) as site:
        assert (await ask(site.port, get()))[0] == 200


async def test_large_headers_come_back() -> None:
    """Case headers-07, on the way back."""
    headers = [("Set-Cookie", "c" * 9000), *((f"X-{n}", str(n)) for n in range(150))]
    async with ScriptedUpstream([head(200, headers, length=0)]) as upstream, proxy(upstream.url) as site:
        assert (await ask(site.port, get()))[1] == [*headers, ("Content-Length", "0")]


async def test_users_share_no_cookies() -> None:
    """By name, as on a bare address aiohttp's jar would keep none anyway."""
    script: Script = [head(200, [("Set-Cookie", "session=A; Path=/")], length=0)]
    async with ScriptedUpstream(script) as upstream, proxy(f"http://localhost:{upstream.port}") as site:
        for _ in range(2):
            await ask(site.port, get())
            await ask(site.port, get("Content-Length: 0", method="POST"))
        assert [request.get("Cookie") for request in upstream.requests] == [None] * 4


async def test_a_redirect_is_the_clients_to_follow() -> None:
    async with (
        ScriptedUpstream([head(307, [("Location", "/other")], length=0)]) as upstream,
        proxy(upstream.url) as site,
    ):
        assert (await ask(site.port, get("Content-Length: 1", method="POST") + b"x"))[0] == 307
        assert len(upstream.requests) == 1


# --- failures of the upstream -------------------------------------------------------------------------------------

BAD_ANSWERS: dict[str, Script] = {
    "closed": [End()],
    "reset": [Reset()],
    "half a head": [b"HTTP/1.1 200 OK\r\nA: ", End()],
    "not HTTP": [b"220 mail.example ESMTP\r\n", End()],
    "both framings": [head(200, length=2, chunked=True), chunk(b"ok"), last_chunk],
    "two lengths": [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok"],
    "a signed length": [b"HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nok"],
    "another coding": [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nok", End()],
    "a coding before chunked": [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"],
    "a control character": [b"HTTP/1.1 200 OK\r\nA: b\x01c\r\nContent-Length: 0\r\n\r\n"],
    "a NUL": [b"HTTP/1.1 200 OK\r\nA: b\0c\r\nContent-Length: 0\r\n\r\n"],
    "too large a header": [b"HTTP/1.1 200 OK\r\nA: " + b"x" * 70_000 + b"\r\nContent-Length: 0\r\n\r\n"],
    "an uninvited switch": [b"HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", Stall()],
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_ANSWERS)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_an_answer_that_is_none_becomes_502(name: str, method: str, caplog: pytest.LogCaptureFixture) -> None:
    data = get("X-Request-ID: r-7", *(["Content-Length: 0"] if method == "POST" else []), method=method)
    async with ScriptedUpstream(BAD_ANSWERS[name]) as upstream, proxy(upstream.url) as site:
        received = await raw_request(site.port or 0, data, until_close=False)
        assert len(upstream.requests) == 1
    document = problem_of(received, 502, "upstream_bad_response")
    assert document["requestId"] == "r-7"
    assert str(upstream.port).encode() not in received
    (record,) = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert "r-7" in record.getMessage()
    assert record.exc_info is None


async def test_an_upstream_nobody_listens_at_is_told_after_the_connect_timeout() -> None:
    async with proxy(f"http://127.0.0.1:{free_port()}", settings={"connect_timeout": "250ms"}) as site:
        began = asyncio.get_running_loop().time()
        received = await raw_request(site.port or 0, get(), until_close=False)
        assert 0.1 < asyncio.get_running_loop().time() - began < 2
    problem_of(received, 502, "upstream_unreachable")


async def test_a_name_that_is_none() -> None:
    async with proxy("http://no-such-host.invalid", settings={"connect_timeout": "200ms"}) as site:
        problem_of(await raw_request(site.port or 0, get(), until_close=False), 502, "upstream_unreachable")


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_host_that_is_still_starting_is_waited_for(method: str) -> None:
    """A sidecar often starts before its host. Nothing was sent yet, so a POST may wait as well."""
    port = free_port()
    async with proxy(f"http://127.0.0.1:{port}", settings={"connect_timeout": "5s"}) as site:
        data = get("Content-Length: 2", method=method) + b"ab"
        asking = asyncio.create_task(ask(site.port, data))
        await asyncio.sleep(0.15)  # at least one attempt is refused
        assert not asking.done()
        async with ScriptedUpstream(OK, port=port) as upstream:
            assert (await asking)[0] == 200
            assert [request.body for request in upstream.requests] == [b"ab"]


async def test_a_head_that_does_not_come_in_time_becomes_504() -> None:
    async with ScriptedUpstream([Stall()]) as upstream:
        async with proxy(upstream.url, settings={"response_timeout": "100ms"}) as site:
            received = await raw_request(site.port or 0, get(), until_close=False)
            problem_of(received, 504, "upstream_stalled")
            await upstream.client_closed(0, 1)


async def test_the_clock_of_the_answer_stands_while_the_client_is_waited_for() -> None:
    async with ScriptedUpstream([Early(), WaitForBody(), *OK]) as upstream:
        async with proxy(upstream.url, settings={"response_timeout": "100ms"}) as site:
            async with Client.open(site.port or 0, get("Content-Length: 2", method="POST") + b"a") as client:
                await asyncio.sleep(0.3)
                client.send(b"b")
                await client.until(b"ok")


async def test_a_body_may_pause_longer_than_its_head_could() -> None:
    go = asyncio.Event()
    async with ScriptedUpstream([head(length=2), b"o", Wait(go), b"k"]) as upstream:
        async with proxy(upstream.url, settings={"response_timeout": "50ms"}) as site:
            async with Client.open(site.port or 0, get()) as client:
                await client.until(b"\r\n\r\no")
                await asyncio.sleep(0.2)
                go.set()
                assert await client.exactly(1) == b"k"


CUTS: dict[str, Script] = {
    "short length": [head(length=10), b"begun", End()],
    "short length, reset": [head(length=10), b"begun", Reset()],
    "no last chunk": [head(chunked=True), chunk(b"begun"), End()],
    "cut within a chunk": [head(chunked=True), b"9\r\nbegun", End()],
    "broken chunk": [head(chunked=True), chunk(b"begun"), b"zz\r\n", Stall()],
    "reset without a length": [head(), b"begun", Reset()],
}


@pytest.mark.parametrize("name", CUTS)
@pytest.mark.parametrize("version", ["1.1", "1.0"])
async def test_a_cut_body_never_looks_complete(name: str, version: str, caplog: pytest.LogCaptureFixture) -> None:
    go = asyncio.Event()
    first, *rest = CUTS[name]
    async with ScriptedUpstream([first, rest[0], Wait(go), *rest[1:]]) as upstream, proxy(upstream.url) as site:
        async with Client.open(site.port or 0, get(version=version)) as client:
            received = await client.until(b"begun")
            go.set()
            try:
                async with asyncio.timeout(5):
                    received += await client.reader.read()
                reset = False
            except ConnectionResetError:
                reset = True
    assert reset or not parse_response(received)[3] or (b"Content-Length: 10" in received)
    if b"Content-Length" not in received and version == "1.0":
        assert reset
    if not reset:
        assert parse_response(received)[2] == b"begun"
    assert [r.levelno for r in caplog.records if r.name.startswith("sse_proxy")] == [logging.WARNING]


@pytest.mark.parametrize("script", [[Stall()], [head(length=5), b"a", Stall()], [head(chunked=True), Stall()]])
@pytest.mark.parametrize("farewell", ["fin", "rst"])
async def test_a_client_that_goes_ends_the_upstream_request_within_a_second(script: Script, farewell: str) -> None:
    """Case disconnect-01: also before the upstream's head."""
    async with ScriptedUpstream(script) as upstream, proxy(upstream.url) as site:
        async with Client.open(site.port or 0, get()) as client:
            await eventually(lambda: bool(upstream.requests))
            if len(script) > 1:
                await client.until(b"\r\n\r\n")
            if farewell == "fin":
                client.writer.close()
            else:
                client.writer.transport.abort()
            await upstream.client_closed(0, 1)


# --- the pool -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
async def test_a_dead_pooled_connection_is_replaced_once_for_safe_methods(method: str) -> None:
    """Case pool-01: the second request meets a connection that closes instead of answering."""
    async with ScriptedUpstream(OK, [Reset()], OK) as upstream, proxy(upstream.url) as site:
        assert (await ask(site.port, get()))[0] == 200
        assert (await ask(site.port, get(method=method)))[0] == 200
        assert [request.connection for request in upstream.requests] == [0, 0, 1]


async def test_a_fresh_connection_that_fails_is_not_tried_again() -> None:
    async with ScriptedUpstream([Reset()]) as upstream, proxy(upstream.url) as site:
        assert (await ask(site.port, get()))[0] == 502
        assert len(upstream.requests) == 1


async def test_safe_requests_share_a_connection() -> None:
    async with ScriptedUpstream(OK) as upstream, proxy(upstream.url) as site:
        for _ in range(3):
            await ask(site.port, get())
        assert upstream.connections == 1


@pytest.mark.parametrize("method", ["POST", "PATCH", "PUT", "DELETE"])
async def test_a_request_with_an_effect_is_sent_once_on_a_connection_of_its_own(method: str) -> None:
    async with ScriptedUpstream(OK, [Reset()]) as upstream, proxy(upstream.url) as site:
        assert (await ask(site.port, get()))[0] == 200
        assert (await ask(site.port, get("Content-Length: 1", method=method) + b"x"))[0] == 502
        assert [request.connection for request in upstream.requests] == [0, 1]


async def test_open_answers_use_nothing_up() -> None:
    """Case pool-03: 150 answers that do not end, then one more request."""
    async with ScriptedUpstream(
        lambda r: OK if r.target == "/" else [head(chunked=True), chunk(b"a"), Stall()]
    ) as upstream:
        async with proxy(upstream.url) as site:
            clients = [await asyncio.open_connection("127.0.0.1", site.port) for _ in range(150)]
            try:
                for _, writer in clients:
                    writer.write(get(target="/slow"))
                await eventually(lambda: len(upstream.requests) == 150)
                assert (await ask(site.port, get()))[0] == 200
            finally:
                for _, writer in clients:
                    writer.transport.abort()


# --- memory and speed ---------------------------------------------------------------------------------------------

MIB = 1024 * 1024


async def test_a_large_body_passes_both_ways_in_little_memory() -> None:
    """64 MiB each way; what counts is that nothing grows with it."""
    size, piece = 64 * MIB, bytes(64 * 1024)
    received = sent_back = 0

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal received
        top = await reader.readuntil(b"\r\n\r\n")
        assert f"Content-Length: {size}".encode() in top
        while received < size:
            received += len(await reader.read(256 * 1024))
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n".encode())
        for _ in range(size // len(piece)):
            writer.write(piece)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    try:
        async with proxy(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}") as site:
            reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
            tracemalloc.start()
            try:
                writer.write(get(f"Content-Length: {size}", method="POST"))
                for _ in range(size // len(piece)):
                    writer.write(piece)
                    await writer.drain()
                await reader.readuntil(b"\r\n\r\n")
                while sent_back < size:
                    sent_back += len(await reader.read(256 * 1024))
                peak = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
                writer.transport.abort()
    finally:
        server.close()
        await server.wait_closed()
    assert (received, sent_back) == (size, size)
    assert peak < 8 * MIB, f"{peak / MIB:.1f} MiB"


@pytest.mark.parametrize("direction", ["down", "up"])
async def test_a_side_that_does_not_take_holds_the_other_back(direction: str) -> None:
    """Case backpressure-01."""
    stopped_at = 0

    async def offer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal stopped_at
        await reader.readuntil(b"\r\n\r\n")
        try:
            if direction == "up":
                await asyncio.Event().wait()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 200000000\r\n\r\n")
            while stopped_at < 200_000_000:
                writer.write(bytes(100_000))
                stopped_at += 100_000
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(offer, "127.0.0.1", 0)
    try:
        async with proxy(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}") as site:
            async with Client.open(site.port or 0) as client:
                client.reader._transport.pause_reading()  # type: ignore[attr-defined]
                if direction == "down":
                    client.send(get())
                else:
                    client.send(get("Content-Length: 200000000", method="POST"))

                    async def push() -> None:
                        nonlocal stopped_at
                        while stopped_at < 200_000_000:
                            client.send(bytes(100_000))
                            stopped_at += 100_000
                            await client.writer.drain()

                    pushing = asyncio.create_task(push())
                await still(lambda: stopped_at)
                if direction == "up":
                    pushing.cancel()
                    await asyncio.wait([pushing])
                assert 0 < stopped_at < 30_000_000  # sockets' buffers hold some megabytes by themselves
    finally:
        server.close()


# --- event streams that no route declares -------------------------------------------------------------------------


async def taken(request: web.BaseRequest, response: aiohttp.ClientResponse, request_id: str) -> web.StreamResponse:
    """Stand in for the stream's own handler."""
    body = b"taken " + (await response.content.read()) + request_id.encode()
    return ExactResponse(200, None, [("Content-Length", str(len(body)))], body=body)


STREAM = [stream_head(), chunk(b"data: a\n\n"), last_chunk]


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("media_type", ["text/event-stream", "Text/Event-Stream ; charset=utf-8"])
async def test_an_event_stream_is_handed_over(method: str, media_type: str) -> None:
    script: Script = [head(200, [("Content-Type", media_type)], chunked=True), chunk(b"data: a\n\n"), last_chunk]
    data = get(
        "X-Request-ID: r-1", "Accept-Encoding: br", *(["Content-Length: 0"] if method == "POST" else []), method=method
    )
    async with ScriptedUpstream(script) as upstream, proxy(upstream.url, on_event_stream=taken) as site:
        assert (await ask(site.port, data))[2] == b"taken data: a\n\nr-1"
        assert upstream.requests[0].get("Accept-Encoding") == "br"


@pytest.mark.parametrize(
    ("method", "script"),
    [
        ("PUT", STREAM),
        ("GET", [head(201, [("Content-Type", "text/event-stream")], length=1), b"x"]),
        ("GET", [head(200, [("Content-Type", "text/event-streams")], length=1), b"x"]),
        ("GET", [head(200, [("Content-Type", "text/event-stream"), ("Content-Encoding", "gzip")], length=1), b"x"]),
        ("GET", [head(200, length=1), b"x"]),
    ],
)
async def test_nothing_else_is(method: str, script: Script) -> None:
    async with ScriptedUpstream(script) as upstream, proxy(upstream.url, on_event_stream=taken) as site:
        assert not (await ask(site.port, get(method=method)))[2].startswith(b"taken")


async def test_a_stream_stays_byte_exact_where_set() -> None:
    """`stream: off`. Case resume-03's fields pass as they are."""
    body = b"event: message_start\nid: 1\nretry: 3000\ndata: {}\n\n\xef\xbb\xbfdata\r\r\n"
    script: Script = [stream_head(), chunk(body), last_chunk]
    async with ScriptedUpstream(script) as upstream:
        async with proxy(upstream.url, on_event_stream=taken, byte_exact=True) as site:
            assert (await ask(site.port, get()))[2] == body


async def test_an_event_stream_that_is_not_read_to_its_end_is_closed() -> None:
    async def leave(request: web.BaseRequest, response: aiohttp.ClientResponse, _: str) -> web.StreamResponse:
        return ExactResponse(200, None, [("Content-Length", "0")], body=b"")

    async with ScriptedUpstream([stream_head(), chunk(b"a"), Stall()]) as upstream:
        async with proxy(upstream.url, on_event_stream=leave) as site:
            assert (await ask(site.port, get()))[0] == 200
            await upstream.client_closed(0, 1)


# --- TLS ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.mark.parametrize("how", ["ca_file", "unverified", "system", "wrong name"])
async def test_tls_to_the_upstream(certificate: tuple[Path, Path], how: str) -> None:
    tls = {
        "ca_file": {"ca_file": str(certificate[0])},
        "unverified": {"verify": False},
        "system": {},
        "wrong name": {"ca_file": str(certificate[0])},
    }[how]
    host = "127.0.0.1" if how == "wrong name" else "localhost"
    async with ScriptedUpstream(OK, ssl_context=server_context(*certificate)) as upstream:
        async with proxy(f"https://{host}:{upstream.port}", settings={"tls": tls, "connect_timeout": "5s"}) as site:
            for data in (get(), get("Content-Length: 1", method="POST") + b"x"):
                status, _, body, _ = await ask(site.port, data)
                if how in ("ca_file", "unverified"):
                    assert (status, body) == (200, b"ok")
                    assert upstream.requests[-1].get("X-Forwarded-Proto") == "http"
                else:
                    assert status == 502
                    assert json.loads(body)["code"] == "upstream_unreachable"
                    assert not upstream.requests


async def test_tls_from_the_client(certificate: tuple[Path, Path]) -> None:
    context = ssl.create_default_context(cafile=certificate[0])
    context.check_hostname = False
    async with ScriptedUpstream(OK) as upstream, proxy(upstream.url, tls=server_context(*certificate)) as site:
        received = await raw_request(site.port or 0, get(), until_close=False, ssl_context=context)
        assert received.endswith(b"ok")
        assert upstream.requests[0].get("X-Forwarded-Proto") == "https"


async def test_one_write_for_a_small_answer() -> None:
    """Head and body of a small answer leave together, as they came."""
    async with ScriptedUpstream([Send(OK[0] + OK[1])]) as upstream, proxy(upstream.url) as site:
        async with Client.open(site.port or 0, get()) as client:
            async with asyncio.timeout(5):
                assert (await client.reader.read(65536)).endswith(b"\r\n\r\nok")
