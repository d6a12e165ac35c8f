"""The front under attack and in daily use: heads, limits, keep-alive, shutdown. Raw sockets throughout."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from pathlib import Path

import pytest
from aiohttp import web

from sse_proxy.config import Listen
from sse_proxy.errors import AdmissionRefused, FailureCode, UpstreamStalled
from sse_proxy.server.exact import ExactResponse
from sse_proxy.server.http import FrontServer, serve, server_context
from sse_proxy.server.problem import RequestRefused
from tests.fakes import eventually, parse_response, raw_request
from tests.server.front import Client, front, make_certificate

pytestmark = pytest.mark.filterwarnings("error")


async def hello(request: web.BaseRequest) -> web.StreamResponse:
    """Answer with the body that came, or with `hello`."""
    body = await request.content.read() or b"hello"
    return ExactResponse(200, "Fine", [("X-Len", str(len(body))), ("Content-Length", str(len(body)))], body=body)


def get(*lines: str, target: str = "/", method: str = "GET", version: str = "1.1", host: bool = True) -> bytes:
    head = [f"{method} {target} HTTP/{version}", *(["Host: shop"] if host else []), *lines, "", ""]
    return "\r\n".join(head).encode("latin-1")


def is_problem(data: bytes, status: int) -> dict[str, object]:
    """Check that `data` is one short, whole problem answer that ends its connection, and return the document."""
    assert data.startswith(b"HTTP/1.1 %d " % status), data[:200]
    got, headers, body, complete = parse_response(data)
    assert (got, complete) == (status, True)
    fields = {name.lower(): value for name, value in headers}
    assert fields["content-type"] == "application/problem+json"
    assert "server" not in fields
    document: dict[str, object] = json.loads(body)
    assert document["status"] == status
    assert document["requestId"]
    assert len(data) < 1000
    return document


# --- heads that are wrong -----------------------------------------------------------------------------------------

BAD_HEADS = {
    "no host": (get(host=False), 400),
    "two hosts": (get("Host: other"), 400),
    "bad host": (get("Host: a/b", host=False), 400),
    "both framings": (get("Content-Length: 3", "Transfer-Encoding: chunked", method="POST"), 400),
    "both framings, other order": (get("Transfer-Encoding: chunked", "Content-Length: 3", method="POST"), 400),
    "two lengths": (get("Content-Length: 3", "Content-Length: 4", method="POST"), 400),
    "a list of lengths": (get("Content-Length: 3, 3", method="POST"), 400),
    "signed length": (get("Content-Length: +3", method="POST"), 400),
    "negative length": (get("Content-Length: -3", method="POST"), 400),
    "hexadecimal length": (get("Content-Length: 0x3", method="POST"), 400),
    "huge length": (get("Content-Length: 99999999999999999999999", method="POST"), 400),
    "chunked is not last": (get("Transfer-Encoding: chunked, gzip", method="POST"), 400),
    "another coding": (get("Transfer-Encoding: gzip, chunked", method="POST"), 501),
    "chunked twice": (get("Transfer-Encoding: chunked, chunked", method="POST"), 400),
    "chunked in 1.0": (get("Transfer-Encoding: chunked", method="POST", version="1.0"), 400),
    "disguised coding": (get("Transfer-Encoding: xchunked", method="POST"), 400),
    "coding with a vertical tab": (get("Transfer-Encoding: \x0bchunked", method="POST"), 400),
    "space before the colon": (get("Content-Length : 3", method="POST"), 400),
    "a folded line": (get("A: 1\r\n  Content-Length: 3", method="POST"), 400),
    "a bare LF": (b"GET / HTTP/1.1\nHost: a\n\n", 400),
    "a bare CR": (get("A: b\rC: d"), 400),
    "a NUL": (get("A: b\0"), 400),
    "a control character": (get("A: b\x01"), 400),
    "a header without a colon": (get("nonsense"), 400),
    "an empty name": (get(": x"), 400),
    "a name that is no token": (get("A(b): x"), 400),
    "unknown method": (get(method="FOO"), 400),
    "lower-case method": (get(method="get"), 400),
    "raw bytes in the target": ("GET /é HTTP/1.1\r\nHost: a\r\n\r\n".encode("latin-1"), 400),
    "utf-8 in the target": ("GET /é HTTP/1.1\r\nHost: a\r\n\r\n".encode(), 400),
    "a space in the target": (get(target="/a b"), 400),
    "a control character in the target": (get(target="/a\x01"), 400),
    "a fragment": (get(target="/#a"), 400),
    "a relative target": (get(target="evil"), 400),
    "no target": (b"GET  HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "another scheme": (get(target="ftp://evil/"), 400),
    "an authority that is none": (get(target="http://a:b:c/"), 400),
    "a port that is none": (get(target="http://a:99999999/"), 400),
    "asterisk for GET": (get(target="*"), 400),
    "CONNECT": (get(target="evil:443", method="CONNECT"), 405),
    "HTTP/2": (get(version="2.0"), 505),
    "HTTP/0.9": (b"GET /\r\n\r\n", 505),
    "HTTP/9.9": (get(version="9.9"), 400),
    "TLS on a plain port": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    "an HTTP/2 preface": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    "noise": (bytes(range(256)), 400),
    "too long a header": (get("A: " + "x" * 70_000), 431),
    "too long a target": (get(target="/" + "x" * 70_000), 431),
    "too many headers": (get(*(f"A{n}: {'x' * 50}" for n in range(2000))), 431),
    "very many headers": (get(*("a:" for _ in range(30_000))), 431),
}


@pytest.mark.parametrize("name", BAD_HEADS)
async def test_a_bad_head_gets_a_short_plain_answer_and_one_log_line(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    data, status = BAD_HEADS[name]
    caplog.set_level(logging.INFO)
    async with front(hello) as site:
        received = await raw_request(site.port or 0, data)
    is_problem(received, status)
    assert b"Connection: close\r\n" in received
    lines = [record for record in caplog.records if record.name.startswith(("sse_proxy", "aiohttp"))]
    assert len(lines) == 1, lines
    assert lines[0].levelno == logging.INFO
    assert lines[0].exc_info is None
    assert "xxxxx" not in lines[0].getMessage()


async def test_a_bad_head_reaches_no_handler_and_ends_the_connection() -> None:
    seen: list[str] = []

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        seen.append(request.raw_path)
        return await hello(request)

    async with front(handler) as site:
        data = get(target="/1") + get("Content-Length: 1", "Transfer-Encoding: chunked", target="/2") + get(target="/3")
        received = await raw_request(site.port or 0, data)
    assert "/2" not in seen
    assert "/3" not in seen
    assert b" 400 Bad Request" in received


async def test_a_good_request_before_a_bad_one_is_answered_first() -> None:
    async with front(hello) as site, Client.open(site.port or 0, get()) as client:
        assert b"hello" in await client.until(b"hello")
        client.send(b"nonsense\r\n\r\n")
        is_problem(await client.rest(), 400)


@pytest.mark.parametrize(
    "body", [b"zz\r\nabc\r\n0\r\n\r\n", b"3;\x01\r\nabc\r\n0\r\n\r\n", b"3\r\nabcd\r\n0\r\n\r\n", b"-3\r\nabc\r\n",
             b"3\nabc\n0\n\n", b"ffffffffffffffffff\r\nabc\r\n"],
)  # fmt: skip
@pytest.mark.parametrize("together", [True, False])
async def test_broken_framing_in_a_body_wakes_its_reader(body: bytes, together: bool) -> None:
    read = asyncio.Event()

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        read.set()
        try:
            await request.content.read()
        except web.RequestPayloadError:
            raise RequestRefused(400, "broken", close=True) from None
        raise AssertionError("the body is not whole")

    head = get("Transfer-Encoding: chunked", method="POST")
    async with front(handler) as site, Client.open(site.port or 0, head + (body if together else b"")) as client:
        if not together:
            await read.wait()
            client.send(body)
        is_problem(await client.rest(), 400)


# --- limits -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        get("Cookie: " + "c" * 9000),
        get(target="/?" + "q" * 9000),
        get(*(f"X-{n}: {n}" for n in range(150))),
        get("A: " + "x" * 65_000),
    ],
    ids=["cookie", "url", "150 headers", "nearly all"],
)
async def test_a_large_head_passes_up_to_the_limit(data: bytes) -> None:
    """Case headers-07."""
    async with front(hello) as site:
        assert (await raw_request(site.port or 0, data, until_close=False)).startswith(b"HTTP/1.1 200 Fine")


@pytest.mark.parametrize("size", [1, 7, 1000])
async def test_the_limit_counts_the_head_as_a_whole_however_it_is_cut(size: int) -> None:
    data = get(*(f"A{n}: {'x' * 20}" for n in range(20)))
    for limit, status in [(len(data), 200), (len(data) - 1, 431)]:
        async with front(hello, max_header=limit) as site, Client.open(site.port or 0) as client:
            for at in range(0, len(data), size):
                client.send(data[at : at + size])
                await asyncio.sleep(0)
            answer = await client.until(b"\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 %d " % status)


async def test_a_refused_client_that_goes_on_sending_still_reads_its_answer() -> None:
    async with front(hello, max_header=4096) as site, Client.open(site.port or 0) as client:
        client.send(b"GET / HTTP/1.1\r\n")
        for _ in range(100):
            client.send(b"A: " + b"x" * 4000 + b"\r\n")
        is_problem(await client.rest(), 431)


async def test_a_refused_connection_is_closed_by_its_client_first() -> None:
    """Closing it at once would answer what the client still sends with a reset, which may overtake our answer."""
    async with front(hello) as site:
        async with Client.open(site.port or 0, b"nonsense\r\n\r\n") as client:
            is_problem(await client.rest(), 400)  # up to our FIN
            for _ in range(3):
                client.send(b"more" * 1000)
                await client.writer.drain()
            await asyncio.sleep(0.05)
            assert len(site._front.connections) == 1
            assert not client.writer.transport.is_closing()
        await eventually(lambda: not site._front.connections, 1)


async def test_a_head_that_is_not_whole_in_time_is_answered_408(caplog: pytest.LogCaptureFixture) -> None:
    async with front(hello, head_timeout=0.05) as site, Client.open(site.port or 0, b"GET / HT") as client:
        is_problem(await client.rest(), 408)
    assert not [r for r in caplog.records if r.levelno > logging.INFO]


async def test_a_byte_at_a_time_holds_no_connection_for_ever() -> None:
    async with front(hello, head_timeout=0.2) as site, Client.open(site.port or 0) as client:

        async def trickle() -> None:
            for byte in get(*(["A: b"] * 1000)):
                client.send(bytes([byte]))
                await asyncio.sleep(0.01)

        task = asyncio.create_task(trickle())
        try:
            is_problem(await client.rest(), 408)
        finally:
            task.cancel()
            await asyncio.wait([task])


async def test_the_clock_of_a_head_stops_with_it() -> None:
    done = asyncio.Event()

    async def slow(request: web.BaseRequest) -> web.StreamResponse:
        await done.wait()
        return await hello(request)

    async with front(slow, head_timeout=0.05) as site, Client.open(site.port or 0, b"GET / HTTP/1.1\r\n") as client:
        client.send(b"Host: a\r\n\r\n")
        with pytest.raises(TimeoutError):
            await client.until(b"\r\n\r\n", 0.2)
        done.set()
        assert (await client.until(b"hello")).startswith(b"HTTP/1.1 200")


async def test_a_slow_head_behind_a_slow_request_waits_for_it_then_gets_its_408() -> None:
    began, done = asyncio.Event(), asyncio.Event()

    async def slow(request: web.BaseRequest) -> web.StreamResponse:
        began.set()
        await done.wait()
        return await hello(request)

    async with front(slow, head_timeout=0.05) as site, Client.open(site.port or 0, get()) as client:
        await began.wait()
        client.send(b"GET /2 HT")
        with pytest.raises(TimeoutError):
            await client.until(b"\r\n\r\n", 0.2)
        done.set()
        assert (await client.until(b"hello")).startswith(b"HTTP/1.1 200")
        is_problem(await client.rest(), 408)


async def test_an_idle_connection_is_closed_quietly() -> None:
    async with front(hello, keepalive_timeout=0.05) as site:
        async with Client.open(site.port or 0) as client:
            assert await client.rest() == b""
        async with Client.open(site.port or 0, get()) as client:
            assert (await client.rest()).endswith(b"hello")


# --- versions and framing of answers ------------------------------------------------------------------------------


async def pieces(request: web.BaseRequest) -> web.StreamResponse:
    """Answer with a body of unknown length."""
    out = ExactResponse(200, None, [("A", "1")])
    await out.prepare(request)
    for piece in (b"one", b"two"):
        await out.write(piece)
    await out.write_eof()
    return out


async def test_nothing_is_added_to_an_answer() -> None:
    async with front(hello) as site:
        received = await raw_request(site.port or 0, get(), until_close=False)
        assert received == b"HTTP/1.1 200 Fine\r\nX-Len: 5\r\nContent-Length: 5\r\n\r\nhello"


async def test_an_unknown_length_is_chunked_for_1_1() -> None:
    async with front(pieces) as site:
        received = await raw_request(site.port or 0, get(), until_close=False)
    assert received == b"HTTP/1.1 200 OK\r\nA: 1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"


async def test_an_unknown_length_ends_with_the_connection_for_1_0() -> None:
    """Case headers-03."""
    async with front(pieces) as site:
        for more in ([], ["Connection: keep-alive"]):
            received = await raw_request(site.port or 0, get(*more, version="1.0"))
            assert received == b"HTTP/1.1 200 OK\r\nA: 1\r\nConnection: close\r\n\r\nonetwo"


async def test_a_1_0_client_without_a_host_may_keep_its_connection() -> None:
    async with front(hello) as site:
        head = get("Connection: keep-alive", version="1.0", host=False)
        async with Client.open(site.port or 0, head) as client:
            assert b"\r\nConnection: keep-alive\r\n" in await client.until(b"hello")
            client.send(get(version="1.0", host=False))
            assert (await client.rest()).endswith(b"\r\nConnection: close\r\n\r\nhello")


async def test_head_has_the_length_and_no_body() -> None:
    async with front(hello) as site, Client.open(site.port or 0, get(method="HEAD") + get()) as client:
        first = await client.until(b"\r\n\r\n")
        assert b"Content-Length: 5" in first
        assert (await client.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with front(hello) as site:
        data = b"".join(
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%b" % (len(b), b) for b in [b"1", b"22", b"333"]
        )
        async with Client.open(site.port or 0, data) as client:
            for body in [b"1", b"22", b"333"]:
                assert body == (await client.until(b"\r\n\r\n" + body))[-len(body) :]


# --- faults of ours -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (ValueError("secret"), 500, "internal"),
        (TimeoutError("secret"), 500, "internal"),
        (RequestRefused(404, "Nothing is served here."), 404, None),
        (UpstreamStalled("secret"), 504, "upstream_stalled"),
        (AdmissionRefused(FailureCode.PROXY_DRAINING, 7), 503, "proxy_draining"),
    ],
)
async def test_what_a_handler_raises_is_answered_without_its_text(
    error: Exception, status: int, code: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        raise error

    caplog.set_level(logging.INFO)
    async with front(handler) as site:
        received = await raw_request(site.port or 0, get("X-Request-ID: r-1"), until_close=False)
    document = is_problem(received, status)
    assert document["requestId"] == "r-1"
    assert document.get("code") == code
    assert b"secret" not in received
    assert (b"Retry-After: 7\r\n" in received) == (status == 503)
    (record,) = [r for r in caplog.records if r.name.startswith("sse_proxy")]
    assert record.exc_info is None
    if status >= 500 and status != 503:
        assert "r-1" in record.getMessage()


async def test_the_traceback_of_a_fault_is_there_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        raise ValueError("why")

    caplog.set_level(logging.DEBUG, "sse_proxy")
    async with front(handler) as site:
        await raw_request(site.port or 0, get(), until_close=False)
    assert any(record.exc_info and record.levelno == logging.ERROR for record in caplog.records)


@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_a_fault_after_the_head_never_looks_like_an_end(version: str) -> None:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        out = ExactResponse(200, None, [])
        await out.prepare(request)
        await out.write(b"begun")
        raise ValueError

    async with front(handler) as site, Client.open(site.port or 0, get(version=version)) as client:
        if version == "1.0":
            await client.until(b"\r\n\r\n")
            with pytest.raises(ConnectionResetError):  # nothing but a reset can say it
                await client.reader.read()
        else:
            received = await client.rest()
            assert not parse_response(received)[3]
            assert received.endswith(b"5\r\nbegun\r\n")


async def test_no_answer_at_all_is_a_fault_too() -> None:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        return None  # type: ignore[return-value]

    async with front(handler) as site:
        received = await raw_request(site.port or 0, get(), until_close=False)
    is_problem(received, 500)


@pytest.mark.parametrize("farewell", ["close", "abort", "half-close"])
async def test_a_client_that_goes_cancels_its_handler(farewell: str) -> None:
    """Case disconnect-03."""
    began, cancelled = asyncio.Event(), asyncio.Event()

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        raise AssertionError

    async with front(handler) as site, Client.open(site.port or 0, get()) as client:
        await began.wait()
        {"close": client.writer.close, "abort": client.writer.transport.abort, "half-close": client.writer.write_eof}[
            farewell
        ]()
        async with asyncio.timeout(1):
            await cancelled.wait()


async def test_an_answer_before_the_body_is_read_ends_the_connection() -> None:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        raise RequestRefused(413, "too much")

    head = get("Content-Length: 10", method="POST")
    async with front(handler, lingering_time=0.1) as site, Client.open(site.port or 0, head) as client:
        received = await client.rest()
        assert b"Connection: close" in received
        is_problem(received, 413)


# --- listening and stopping ---------------------------------------------------------------------------------------


async def test_empty_lines_between_requests_are_no_head() -> None:
    """RFC 9112 2.2: old clients send a line end behind a body."""
    async with front(hello, head_timeout=0.05) as site, Client.open(site.port or 0, get()) as client:
        await client.until(b"hello")
        client.send(b"\r\n")
        with pytest.raises(TimeoutError):
            await client.exactly(1, 0.2)
        client.send(get())
        assert (await client.until(b"hello")).startswith(b"HTTP/1.1 200")


async def test_a_client_that_is_gone_before_its_answer_is_no_fault(caplog: pytest.LogCaptureFixture) -> None:
    closed = asyncio.Event()

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.close()  # as if the client's reset had been seen right now
        closed.set()
        out = ExactResponse(200, None, [])
        await out.prepare(request)
        raise AssertionError("a head was written to nobody")

    async with front(handler) as site, Client.open(site.port or 0, get()) as client:
        assert await client.rest() == b""
        assert closed.is_set()
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_a_stop_lets_a_running_request_finish_and_closes_idle_connections_at_once() -> None:
    began, go = asyncio.Event(), asyncio.Event()

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        if request.raw_path == "/slow":
            began.set()
            await go.wait()
            assert await request.content.read() == b"ab"  # a body that is still coming is read
        return await hello(request)

    site = await serve(FrontServer(handler), Listen(host="127.0.0.1", port=0))
    port = site.port or 0
    slow_head = get("Content-Length: 2", target="/slow", method="POST")
    async with Client.open(port, slow_head + b"a") as slow, Client.open(port, get()) as idle:
        await began.wait()
        await idle.until(b"hello")
        stopping = asyncio.create_task(site.stop(5))
        assert await idle.rest() == b""
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
        assert not stopping.done()
        slow.send(b"b")
        go.set()
        received = await slow.rest()
        assert received.endswith(b"\r\nConnection: close\r\n\r\nhello")
        async with asyncio.timeout(2):
            await stopping


async def test_a_stop_cuts_what_does_not_finish() -> None:
    began, cancelled = asyncio.Event(), asyncio.Event()

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        raise AssertionError

    site = await serve(FrontServer(handler), Listen(host="127.0.0.1", port=0))
    async with Client.open(site.port or 0, get()) as client:
        await began.wait()
        async with asyncio.timeout(2):
            await site.stop(0.05)
        assert cancelled.is_set()
        assert await client.rest() == b""


async def test_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "front.sock"
    site = await serve(FrontServer(hello), Listen(path=str(path)))
    try:
        assert site.port is None
        reader, writer = await asyncio.open_unix_connection(str(path))
        writer.write(get("Connection: close"))
        async with asyncio.timeout(5):
            assert (await reader.read()).endswith(b"hello")
        writer.transport.abort()
    finally:
        await site.stop()
    assert not path.exists()


async def test_ipv6() -> None:
    try:
        site = await serve(FrontServer(hello), Listen(host="::1", port=0))
    except OSError:
        pytest.skip("no IPv6 on this machine")
    try:
        received = await raw_request(site.port or 0, get("Connection: close"), host="::1")
        assert received.endswith(b"hello")
    finally:
        await site.stop()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("tls"))


async def test_https(certificate: tuple[Path, Path]) -> None:
    client_context = ssl.create_default_context(cafile=certificate[0])
    client_context.check_hostname = False
    async with front(hello, tls=server_context(*certificate)) as site:
        received = await raw_request(site.port or 0, get("Connection: close"), ssl_context=client_context)
        assert received.endswith(b"hello")
        received = await raw_request(site.port or 0, b"nonsense\r\n\r\n", ssl_context=client_context)
        is_problem(received, 400)


async def test_a_tls_client_that_says_nothing_is_dropped(certificate: tuple[Path, Path]) -> None:
    context = server_context(*certificate)
    async with front(hello, tls=context, head_timeout=0.1) as site, Client.open(site.port or 0) as client:
        assert await client.rest() == b""


async def test_many_connections_at_once() -> None:
    together = asyncio.Barrier(400)

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        await together.wait()
        return await hello(request)

    async with front(handler) as site:
        answers = await asyncio.gather(*(raw_request(site.port or 0, get("Connection: close")) for _ in range(400)))
        assert all(answer.endswith(b"hello") for answer in answers)
        await eventually(lambda: not site._front.connections, 2)


async def test_trailers_are_not_read_for_ever() -> None:
    """aiohttp limits each of their lines and how many there are, and so lets them be a gigabyte."""
    seen: list[bytes] = []

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        try:
            while piece := await request.content.readany():
                seen.append(piece)
        except (web.RequestPayloadError, OSError):
            seen.append(b"broken")
        raise RequestRefused(400, "The request's body is broken.", close=True)

    start = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n"
    async with front(handler) as site:
        assert site.port is not None
        async with Client.open(site.port, start) as client:
            await eventually(lambda: seen == [b"hello"])
            for _ in range(20):
                client.send(b"x: " + b"a" * 60_000 + b"\r\n")
            await eventually(lambda: seen[-1] == b"broken")
