"""One exchange over real sockets: what the sink hears, when, and what it may do meanwhile."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import ssl
import struct
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast
from unittest import mock

import pytest

from sse_proxy.errors import UpstreamBadResponse, UpstreamError, UpstreamTruncated
from sse_proxy.server.upstream import UpstreamAddress, UpstreamExchange, connect
from tests.fakes import (
    Early,
    End,
    HalfClose,
    Request,
    Reset,
    Script,
    ScriptedUpstream,
    Send,
    Stall,
    Step,
    Trickle,
    Wait,
    WaitForBody,
    chunk,
    eventually,
    head,
    last_chunk,
    stream_head,
)
from tests.server.upstream.conftest import Certificate
from tests.server.upstream.recorder import Recorder


@asynccontextmanager
async def talking(
    *scripts: Script | Callable[[Request], Script],
    certificate: Certificate | None = None,
    early: bool = False,
    send: bool = True,
    method: str = "GET",
    max_head: int = 65536,
) -> AsyncIterator[tuple[ScriptedUpstream, UpstreamExchange, Recorder]]:
    """An upstream with a script, an exchange with it (its head sent unless `send` is off), and what its sink heard."""
    context = certificate.server if certificate else None
    async with ScriptedUpstream(*scripts, early=early, ssl_context=context) as upstream:
        address = UpstreamAddress.from_url(upstream.url, ca_file=certificate.ca_file if certificate else None)
        recorder = Recorder()
        exchange = await connect(address, recorder, connect_timeout=5, max_head=max_head)
        recorder.exchange = exchange
        if send:
            exchange.send_head(method, "/", [], chunked=False)
        try:
            yield upstream, exchange, recorder
        finally:
            exchange.close()
        await eventually(lambda: upstream.open_connections == 0, what="every connection to be closed")


@pytest.fixture
def faults() -> list[dict[str, Any]]:
    """What reaches the loop's exception handler; set up by `collect`."""
    return []


def collect(faults: list[dict[str, Any]]) -> None:
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: faults.append(context))


# --- the request -------------------------------------------------------------------------------------------------


async def test_a_request_with_a_body_of_known_length() -> None:
    async with talking([head(200, length=0)], send=False) as (upstream, exchange, recorder):
        headers = [("x-A", "1"), ("Content-Length", "7"), ("X-a", "é")]
        exchange.send_head("POST", "/p%2fq?x=%27", headers, chunked=False)
        exchange.write(b"")
        exchange.write(b"abc")
        await exchange.drain()
        exchange.write(b"defg")
        exchange.write_eof()
        assert await recorder.end() is None
        request = upstream.requests[0]
        assert (request.method, request.target, request.version) == ("POST", "/p%2fq?x=%27", "HTTP/1.1")
        assert request.headers == [("Host", f"127.0.0.1:{upstream.port}"), *headers]
        assert (request.body, request.complete) == (b"abcdefg", True)


async def test_a_request_with_a_chunked_body() -> None:
    async with talking([head(200, length=0)], send=False) as (upstream, exchange, recorder):
        exchange.send_head("POST", "/", [("Host", "theirs")], chunked=True)
        for piece in (b"abc", b"", b"d" * 20):
            exchange.write(piece)
        assert not recorder.ended
        exchange.write_eof()
        exchange.write_eof()
        assert await recorder.end() is None
        request = upstream.requests[0]
        assert request.headers == [("Host", "theirs"), ("Transfer-Encoding", "chunked")]
        assert (request.chunks, request.complete) == ([b"abc", b"d" * 20], True)


async def test_a_refused_head_sends_nothing() -> None:
    async with talking([head(200, length=0)], send=False) as (upstream, exchange, recorder):
        with pytest.raises(ValueError, match="CR, LF or NUL"):
            exchange.send_head("GET", "/", [("X", "a\r\nY: b")], chunked=False)
        exchange.send_head("GET", "/", [], chunked=False)
        assert await recorder.end() is None
        assert len(upstream.requests) == 1
        assert upstream.requests[0].get("Y") is None


async def test_misuse_is_said() -> None:
    async with talking([Stall()], send=False) as (_, exchange, _):
        with pytest.raises(RuntimeError, match="write"):
            exchange.write(b"x")
        exchange.send_head("POST", "/", [], chunked=True)
        with pytest.raises(RuntimeError, match="send_head"):
            exchange.send_head("POST", "/", [], chunked=True)
        exchange.write_eof()
        with pytest.raises(RuntimeError, match="write"):
            exchange.write(b"x")
        exchange.close()
        exchange.write(b"x")  # gone: nothing


async def test_the_connection_is_the_exchanges_own_and_closed_after_it() -> None:
    async with talking([head(200, length=2), b"ok"]) as (upstream, exchange, recorder):
        assert await recorder.end() is None
        await upstream.client_closed(0)
        assert exchange.closed
        assert upstream.requests[0].get("Connection") is None


async def test_drain_waits_for_the_upstream_and_not_for_one_that_has_gone() -> None:
    go = asyncio.Event()
    script: list[Step] = [Early(read=False), Wait(go), WaitForBody(), head(200, length=0)]
    async with talking(script, script, send=False) as (upstream, exchange, recorder):
        size = 16 * 1024 * 1024
        exchange.send_head("PUT", "/", [("Content-Length", str(size))], chunked=False)
        await exchange.drain()  # nothing to wait for yet
        exchange.write(bytes(size))
        draining = asyncio.ensure_future(exchange.drain())
        await eventually(lambda: upstream.requests)
        done, _ = await asyncio.wait([draining], timeout=0.05)
        assert not done
        go.set()
        await draining
        assert await recorder.end() is None
        assert upstream.requests[0].received == size


@pytest.mark.parametrize("how", ["close", "reset", "cancel"])
async def test_drain_ends_when_the_exchange_does(how: str) -> None:
    go = asyncio.Event()
    async with talking([Early(read=False), Wait(go), Reset()], send=False) as (upstream, exchange, recorder):
        exchange.send_head("PUT", "/", [], chunked=True)
        exchange.write(bytes(16 * 1024 * 1024))
        draining = [asyncio.ensure_future(exchange.drain()) for _ in range(2)]
        await eventually(lambda: upstream.requests)
        assert not draining[0].done()
        if how == "close":
            exchange.close()
        elif how == "reset":
            go.set()
        else:
            draining[0].cancel()
            with pytest.raises(asyncio.CancelledError):
                await draining[0]
            assert not draining[1].done()
            exchange.close()
        await asyncio.wait_for(draining[1], 5)
        await asyncio.wait_for(exchange.drain(), 5)
        if how == "reset":
            assert isinstance(await recorder.end(), UpstreamBadResponse)
        go.set()


# --- the response ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("secure", [False, True], ids=["http", "https"])
async def test_many_chunks_of_one_read_come_as_one(secure: bool, certificate: Certificate) -> None:
    chunks = b"".join(chunk(b"data: %d\n\n" % n) for n in range(500))
    script = [Send(stream_head() + chunks + last_chunk)]
    async with talking(script, certificate=certificate if secure else None) as (_, exchange, recorder):
        assert await recorder.end() is None
        assert recorder.calls == ["head", "body", "end"]
        assert recorder.body == b"".join(b"data: %d\n\n" % n for n in range(500))
        assert recorder.head is not None
        assert recorder.head.get("content-type") == "text/event-stream"
        assert exchange.bytes_received == len(stream_head() + chunks + last_chunk)


async def test_an_upstream_that_sends_as_fast_as_it_can_leaves_turns_to_the_others() -> None:
    loop = asyncio.get_running_loop()
    turns = 0
    seen: dict[int, int] = {}

    def turn() -> None:
        nonlocal turns
        turns += 1
        if not recorder.ended:
            loop.call_soon(turn)

    async with talking([stream_head(), chunk(bytes(4_000_000)), last_chunk]) as (_, _, recorder):
        take = recorder.on_body

        def on_body(data: bytes) -> None:
            seen[turns] = seen.get(turns, 0) + len(data)
            take(data)

        recorder.on_body = on_body  # type: ignore[method-assign]
        loop.call_soon(turn)
        assert await recorder.end() is None
    assert sum(seen.values()) == 4_000_000
    # One read more than the limit; asyncio's own loop reads 256 KiB at a time.
    assert max(seen.values()) <= 64 * 1024 + 256 * 1024


async def test_bytes_arrive_as_they_come() -> None:
    go = [asyncio.Event() for _ in range(3)]
    script: list[Step] = [
        stream_head(),
        Wait(go[0]),
        chunk(b"a")[:2],
        Wait(go[1]),
        chunk(b"a")[2:],
        Wait(go[2]),
        last_chunk,
    ]
    async with talking(script) as (_, _, recorder):
        await eventually(lambda: recorder.head)
        assert recorder.calls == ["head"]
        go[0].set()
        go[1].set()
        await eventually(lambda: recorder.pieces)
        assert recorder.pieces == [b"a"]
        assert not recorder.ended
        go[2].set()
        assert await recorder.end() is None


async def test_a_trickled_response() -> None:
    wire = head(100) + head(103) + stream_head() + chunk(b"hello ") + chunk(b"world") + last_chunk
    async with talking([Trickle(wire)]) as (_, _, recorder):
        assert await recorder.end() is None
        assert recorder.body == b"hello world"
        assert recorder.calls[0] == "head"
        assert recorder.calls.count("head") == 1


@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("GET", 204), ("GET", 304)])
async def test_responses_without_a_body(method: str, status: int) -> None:
    async with talking([head(status, length=10), Stall()], method=method) as (_, _, recorder):
        assert await recorder.end() is None
        assert recorder.calls == ["head", "end"]


async def test_what_follows_the_end_is_ignored() -> None:
    rest = head(200, length=3) + b"two" + b"garbage" * 1000
    async with talking([Send(head(200, length=3) + b"one" + rest), Stall()]) as (upstream, _, recorder):
        assert await recorder.end() is None
        assert recorder.body == b"one"
        await upstream.client_closed(0)


@pytest.mark.parametrize(
    ("script", "error", "says"),
    [
        ([End()], UpstreamBadResponse, "closed the connection before"),
        ([Reset()], UpstreamBadResponse, "Connection reset"),
        ([HalfClose(), Stall()], UpstreamBadResponse, "closed the connection before"),
        ([Send(b"SSH-2.0-x\r\n")], UpstreamBadResponse, "cannot be read"),
        ([head(101), Stall()], UpstreamBadResponse, "101"),
        ([head(200, [("X", "y" * 5000)]), Stall()], UpstreamBadResponse, "head of more than 4000 bytes"),
        ([head(200, [("Content-Length", "1")], chunked=True), Stall()], UpstreamBadResponse, "Content-Length"),
        ([stream_head(), chunk(b"a"), b"zz\r\n", Stall()], UpstreamTruncated, "chunked framing"),
        ([stream_head(), chunk(b"a"), End()], UpstreamTruncated, "closed the connection before the end"),
        ([stream_head(), chunk(b"a"), HalfClose(), Stall()], UpstreamTruncated, "closed the connection before the end"),
        ([head(200, length=9), b"a", End()], UpstreamTruncated, "closed the connection before the end"),
        ([head(200), b"a", Reset()], UpstreamTruncated, "Connection reset"),
        ([head(200), b"a", End()], None, ""),
        ([head(200), b"a", HalfClose(), Stall()], None, ""),
    ],
)
async def test_how_it_ends(script: list[Step], error: type[UpstreamError] | None, says: str) -> None:
    async with talking(script, max_head=4000) as (upstream, exchange, recorder):
        got = await recorder.end()
        assert (None if got is None else type(got)) is error
        assert got is None or says in str(got)
        assert got is None or str(got).startswith(f"127.0.0.1:{upstream.port} ")
        assert recorder.body == (b"a" if "head" in recorder.calls else b"")
        assert exchange.closed


BODY = b"hello\r\n0\r\n\r\n"
WIRES = {
    "chunked": head(200, [("A", "b")], chunked=True) + chunk(b"hello") + chunk(b"\r\n0\r\n\r\n") + last_chunk,
    "length": head(200, [("A", "b")], length=len(BODY)) + BODY,
    "close": head(200, [("A", "b")]) + BODY,
}


@pytest.mark.parametrize("secure", [False, True], ids=["http", "https"])
@pytest.mark.parametrize("last", [End(), Reset()], ids=["fin", "rst"])
@pytest.mark.parametrize("framing", WIRES)
async def test_a_cut_at_any_byte(framing: str, last: Step, secure: bool, certificate: Certificate) -> None:
    """Also over TLS: there End() closes with close_notify, and Reset() without one."""
    wire = WIRES[framing]
    head_ends = wire.index(b"\r\n\r\n") + 4
    cuts = range(0, len(wire) + 1, 3 if secure else 1)
    scripts: list[Script] = [[Send(wire[:cut]), last] for cut in (*cuts, len(wire))]
    context = certificate.server if secure else None
    async with ScriptedUpstream(*scripts, ssl_context=context) as upstream:
        address = UpstreamAddress.from_url(upstream.url, ca_file=certificate.ca_file)
        for cut in (*cuts, len(wire)):
            recorder = Recorder()
            exchange = await connect(address, recorder, connect_timeout=5)
            exchange.send_head("GET", "/", [], chunked=False)
            error = await recorder.end()
            expected: type[UpstreamError] | None = UpstreamTruncated
            if cut < head_ends:
                expected = UpstreamBadResponse
            elif last == End() if framing == "close" else cut == len(wire):
                expected = None
            assert (None if error is None else type(error)) is expected, (cut, wire[:cut], error)
            assert ("head" in recorder.calls) is (cut >= head_ends)
            assert BODY.startswith(recorder.body)
            if framing != "chunked" and cut >= head_ends and not secure:
                assert recorder.body == wire[head_ends:cut]  # all that came before it, RST or not
            assert recorder.body == BODY or expected is not None or framing == "close"


@pytest.mark.parametrize("framing", WIRES)
async def test_tls_that_ends_without_saying_so(framing: str, certificate: Certificate) -> None:
    """RFC 9112 9.8: only a close_notify ends a body without length; one with a length just has to be whole."""
    ended = asyncio.Event()

    class BareEnd(asyncio.Protocol):
        """TLS by hand, so that a FIN can come without a close_notify."""

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = cast(asyncio.Transport, transport)
            self.incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            self.outgoing = outgoing
            self.tls = certificate.server.wrap_bio(self.incoming, outgoing, server_side=True)

        def data_received(self, data: bytes) -> None:
            self.incoming.write(data)
            try:
                self.tls.do_handshake()
                self.tls.read(65536)
                self.tls.write(WIRES[framing])
                self.transport.write(self.outgoing.read())
                self.transport.close()
            except ssl.SSLWantReadError:
                self.transport.write(self.outgoing.read())

        def connection_lost(self, exc: Exception | None) -> None:
            ended.set()

    server = await asyncio.get_running_loop().create_server(BareEnd, "127.0.0.1", 0)
    recorder = Recorder()
    async with server:
        port = server.sockets[0].getsockname()[1]
        address = UpstreamAddress.from_url(f"https://localhost:{port}", ca_file=certificate.ca_file)
        exchange = await connect(address, recorder, connect_timeout=5)
        exchange.send_head("GET", "/", [], chunked=False)
        error = await recorder.end()
        await asyncio.wait_for(ended.wait(), 5)
    assert recorder.body == BODY
    if framing == "close":
        assert isinstance(error, UpstreamTruncated)
        assert "close_notify" in str(error)
    else:
        assert error is None


# --- early answers, late writes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("last", [End(), Reset(), Stall()], ids=["fin", "rst", "open"])
@pytest.mark.parametrize("secure", [False, True], ids=["http", "https"])
async def test_an_early_answer_to_an_upload(
    last: Step, secure: bool, certificate: Certificate, caplog: pytest.LogCaptureFixture, faults: list[dict[str, Any]]
) -> None:
    collect(faults)
    script: list[Step] = [Early(read=False), Send(head(413, length=9) + b"too large"), last]
    async with talking(script, certificate=certificate if secure else None, send=False) as (_, exchange, recorder):
        exchange.send_head("POST", "/", [], chunked=True)
        for _ in range(400):  # 25 MB, more than the kernel takes
            exchange.write(bytes(65536))
            await exchange.drain()
            if exchange.closed:
                break
        assert await recorder.end() is None
        assert exchange.closed
        assert recorder.head is not None
        assert (recorder.head.status, recorder.body) == (413, b"too large")
        for _ in range(20):
            exchange.write(b"x" * 1000)
            await exchange.drain()
        exchange.write_eof()
    assert not faults
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("secure", [False, True], ids=["http", "https"])
@pytest.mark.parametrize("whole", [True, False], ids=["whole", "cut"])
@pytest.mark.parametrize("paused", [True, False], ids=["paused", "reading"])
async def test_an_answer_is_read_even_after_a_write_that_failed(
    secure: bool, whole: bool, paused: bool, certificate: Certificate, caplog: pytest.LogCaptureFixture
) -> None:
    """413, RST: both wait in our kernel, and our next write fails before they are read."""
    answer = head(413, length=9) + (b"too large" if whole else b"too")
    script: list[Step] = [Early(), Send(answer), Reset()]
    async with talking(script, certificate=certificate if secure else None, send=False) as (
        upstream,
        exchange,
        recorder,
    ):
        exchange.send_head("POST", "/", [], chunked=True)
        exchange.pause_reading()
        await eventually(lambda: upstream.requests and upstream.open_connections == 0)
        for _ in range(10):
            exchange.write(b"x" * 1000)
        if paused:
            for _ in range(10):
                await asyncio.sleep(0)
                exchange.write(b"x" * 1000)
            assert recorder.calls == []
        exchange.resume_reading()
        assert recorder.calls == []
        error = await recorder.end()
        assert error is None if whole else isinstance(error, UpstreamTruncated)
        assert recorder.head is not None
        assert (recorder.head.status, recorder.body) == (413, answer[answer.index(b"too") :])
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_writing_to_an_upstream_that_has_gone_does_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async with talking([Early(), Reset()], send=False) as (_, exchange, recorder):
        exchange.send_head("POST", "/", [], chunked=True)
        assert isinstance(await recorder.end(), UpstreamBadResponse)
        for _ in range(20):
            exchange.write(b"x")
            await exchange.drain()
        exchange.write_eof()
        exchange.pause_reading()
        exchange.resume_reading()
        exchange.close()
        await asyncio.sleep(0)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@asynccontextmanager
async def greeting(data: bytes, then: Step) -> AsyncIterator[tuple[UpstreamExchange, Recorder, asyncio.Event]]:
    """An exchange with a server that sends `data` as soon as the connection is there; the event: it took all of it."""
    greeted = asyncio.Event()
    lost: list[asyncio.Event] = []

    class Greeter(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = cast(asyncio.Transport, transport)
            self.lost = asyncio.Event()
            lost.append(self.lost)
            self.transport.write(data)
            if then == End():
                self.transport.close()
            if not self.transport.get_write_buffer_size():
                greeted.set()

        def resume_writing(self) -> None:
            greeted.set()

        def data_received(self, data: bytes) -> None:
            if then == Reset():
                sock = self.transport.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.transport.abort()

        def connection_lost(self, exc: Exception | None) -> None:
            self.lost.set()

    server = await asyncio.get_running_loop().create_server(Greeter, "127.0.0.1", 0)
    recorder = Recorder()
    address = UpstreamAddress.from_url(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    exchange = await connect(address, recorder, connect_timeout=5)
    try:
        yield exchange, recorder, greeted
    finally:
        exchange.close()
        server.close()
        async with asyncio.timeout(5):
            for event in lost:
                await event.wait()
            await server.wait_closed()


@pytest.mark.parametrize("then", [Stall(), End(), Reset()], ids=["open", "fin", "rst"])
@pytest.mark.parametrize("turns", [0, 20])
async def test_an_upstream_that_speaks_before_it_is_asked(then: Step, turns: int) -> None:
    """A server that is full may say 503 at once, and hang up. The sink hears nothing before the request is sent."""
    cut = then == Reset()
    data = head(503, length=4) + (b"bu" if cut else b"busy")
    async with greeting(data, then) as (exchange, recorder, greeted):
        await greeted.wait()
        for _ in range(turns):
            await asyncio.sleep(0)
        assert recorder.calls == []
        exchange.send_head("GET", "/", [], chunked=False)
        assert recorder.calls == []
        error = await recorder.end()
        assert isinstance(error, UpstreamTruncated) if cut else error is None
        assert recorder.head is not None
        assert (recorder.head.status, recorder.body) == (503, b"bu" if cut else b"busy")


async def test_what_is_said_before_it_is_asked_is_not_heaped_up() -> None:
    size = 32 * 1024 * 1024
    async with greeting(head(503, length=size) + bytes(size), Stall()) as (exchange, recorder, greeted):
        for _ in range(500):
            await asyncio.sleep(0)
        assert not greeted.is_set()
        exchange.send_head("GET", "/", [], chunked=False)
        assert await recorder.end() is None
        assert len(recorder.body) == size
        assert greeted.is_set()


@pytest.mark.parametrize("turns", [0, 20])
async def test_an_upstream_that_hangs_up_before_it_is_asked(turns: int) -> None:
    async with greeting(b"", End()) as (exchange, recorder, greeted):
        await greeted.wait()
        for _ in range(turns):
            await asyncio.sleep(0)
        assert recorder.calls == []
        exchange.send_head("GET", "/", [], chunked=False)
        exchange.pause_reading()
        exchange.resume_reading()
        assert recorder.calls == []
        assert isinstance(await recorder.end(), UpstreamBadResponse)


# --- pausing -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("secure", [False, True], ids=["http", "https"])
async def test_paused_the_upstream_feels_it_and_nothing_is_lost(secure: bool, certificate: Certificate) -> None:
    body = bytes(range(256)) * 64 * 1024  # 16 MiB, more than the kernel holds
    script: list[Step] = [head(200), Send(body), End()]
    async with talking(script, certificate=certificate if secure else None) as (upstream, exchange, recorder):
        recorder.on["body"] = exchange.pause_reading
        await eventually(lambda: recorder.pieces)
        assert exchange.paused
        await asyncio.wait([asyncio.ensure_future(asyncio.sleep(0.05))])
        received = exchange.bytes_received
        assert recorder.calls == ["head", "body"]
        assert received < 2 * 1024 * 1024
        assert upstream.open_connections == 1
        del recorder.on["body"]
        exchange.resume_reading()
        assert not exchange.paused
        assert recorder.calls == ["head", "body"]  # never inside the call
        assert await recorder.end() is None
        assert recorder.body == body


@pytest.mark.parametrize("secure", [False, True], ids=["http", "https"])
@pytest.mark.parametrize("last", [End(), Reset(), b""], ids=["fin", "rst", "open"])
@pytest.mark.parametrize("pause_in", ["head", "body"])
async def test_an_end_that_comes_while_paused_waits(
    pause_in: str, last: Step, secure: bool, certificate: Certificate
) -> None:
    wire = stream_head() + chunk(b"a" * 50_000) + last_chunk
    script = [Send(wire), last]
    async with talking(script, certificate=certificate if secure else None) as (upstream, exchange, recorder):
        recorder.on[pause_in] = exchange.pause_reading
        seen = ["head"] if pause_in == "head" else ["head", "body"]
        await eventually(lambda: recorder.calls == seen)
        if last != b"":
            await eventually(lambda: upstream.open_connections == 0)
        for _ in range(20):
            await asyncio.sleep(0)
        assert recorder.calls == seen
        recorder.on.clear()
        for _ in range(3):  # a hesitant reader changes nothing
            exchange.resume_reading()
            exchange.pause_reading()
            await asyncio.sleep(0)
            assert recorder.calls == seen
        exchange.resume_reading()
        assert await recorder.end() is None
        assert recorder.body == b"a" * 50_000


async def test_paused_before_anything_was_sent() -> None:
    async with talking([head(200, length=2), b"ok"], send=False) as (upstream, exchange, recorder):
        exchange.pause_reading()
        exchange.resume_reading()
        exchange.pause_reading()
        exchange.send_head("GET", "/", [], chunked=False)
        await upstream.request(0)
        for _ in range(20):
            await asyncio.sleep(0)
        assert recorder.calls == []
        exchange.resume_reading()
        assert await recorder.end() is None
        assert recorder.body == b"ok"


async def test_pause_and_resume_inside_one_call() -> None:
    async with talking([head(200, length=4), b"ab", Trickle(b"cd")]) as (_, exchange, recorder):

        def flicker() -> None:
            exchange.pause_reading()
            exchange.resume_reading()

        recorder.on.update(head=flicker, body=flicker)
        assert await recorder.end() is None
        assert recorder.body == b"abcd"


# --- closing -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["head", "body", "end"])
@pytest.mark.parametrize("secure", [False, True], ids=["http", "https"])
async def test_closed_inside_a_call_the_sink_hears_nothing_more(
    call: str, secure: bool, certificate: Certificate
) -> None:
    script = [Send(stream_head() + chunk(b"a") + last_chunk)]
    async with talking(script, certificate=certificate if secure else None) as (upstream, exchange, recorder):
        states = []

        def close() -> None:
            states.append(exchange.closed)
            exchange.close()
            states.append(exchange.closed)

        recorder.on[call] = close
        calls = ["head", "body", "end"]
        seen = calls[: calls.index(call) + 1]
        await eventually(lambda: recorder.calls == seen)
        assert states == [call == "end", True]
        await upstream.client_closed(0)
        assert recorder.calls == seen


async def test_a_connection_that_comes_after_the_close_is_broken_off(certificate: Certificate) -> None:
    for url in ("http://x", "https://x"):
        exchange = UpstreamExchange(UpstreamAddress.from_url(url), Recorder(), 65536)
        exchange.close()
        transport = mock.Mock(asyncio.Transport)
        exchange.connection_made(transport)
        assert transport.mock_calls == [mock.call.abort()]


async def test_a_handshake_that_fails_while_nobody_waits_is_no_loose_end(faults: list[dict[str, Any]]) -> None:
    collect(faults)
    exchange = UpstreamExchange(UpstreamAddress.from_url("https://x"), Recorder(), 65536)
    exchange.connection_made(mock.Mock(asyncio.Transport))
    exchange.data_received(b"no TLS at all")
    exchange.close()
    del exchange
    gc.collect()
    assert not faults  # "Future exception was never retrieved"


async def test_close_is_at_once_and_any_number_of_times() -> None:
    async with talking([stream_head(), Stall()]) as (upstream, exchange, recorder):
        await eventually(lambda: recorder.head)
        exchange.close()
        exchange.close()
        assert exchange.closed
        await upstream.client_closed(0, timeout=1)
        exchange.close()
        assert recorder.calls == ["head"]


async def test_closed_before_the_request() -> None:
    async with talking([Stall()], send=False) as (upstream, exchange, recorder):
        exchange.close()
        exchange.send_head("POST", "/", [], chunked=True)
        exchange.write(b"x")
        exchange.write_eof()
        await exchange.drain()
        await upstream.client_closed(0)
        assert (upstream.requests, recorder.calls) == ([], [])


async def test_closed_while_a_resumption_is_under_way() -> None:
    async with talking([Send(head(200, length=3) + b"abc")]) as (_, exchange, recorder):
        recorder.on["head"] = exchange.pause_reading
        await eventually(lambda: recorder.head)
        exchange.resume_reading()
        exchange.close()
        for _ in range(20):
            await asyncio.sleep(0)
        assert recorder.calls == ["head"]


@pytest.mark.parametrize("call", ["head", "body", "end"])
async def test_a_sink_that_fails_is_reported_once_and_the_exchange_closed(
    call: str, faults: list[dict[str, Any]]
) -> None:
    collect(faults)
    fault = LookupError("sink")

    def fail() -> None:
        raise fault

    script: list[Step] = [Send(stream_head() + chunk(b"a")), chunk(b"b"), last_chunk]
    async with talking(script) as (upstream, exchange, recorder):
        recorder.on[call] = fail
        await eventually(lambda: faults)
        await upstream.client_closed(0)
        assert exchange.closed
        assert recorder.calls[-1] == call
        assert recorder.calls.count(call) == 1
    assert [context["exception"] for context in faults] == [fault]


# --- house-keeping -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "script",
    [
        [Send(stream_head() + chunk(b"a") + last_chunk)],
        [Send(stream_head() + chunk(b"a") + b"zz\r\n")],
        [Send(stream_head() + chunk(b"a")), Reset()],
        [Send(b"garbage"), Stall()],
        [Send(head(200)), End()],
    ],
    ids=["whole", "malformed", "reset", "garbage", "close"],
)
@pytest.mark.parametrize("secure", [False, True], ids=["http", "https"])
async def test_nothing_waits_for_the_garbage_collector(
    script: list[Step], secure: bool, certificate: Certificate
) -> None:
    async with ScriptedUpstream(script, ssl_context=certificate.server if secure else None) as upstream:
        address = UpstreamAddress.from_url(upstream.url, ca_file=certificate.ca_file)
        gc.collect()
        gc.disable()
        try:
            recorder = Recorder()
            exchange = await connect(address, recorder, connect_timeout=5)
            exchange.send_head("GET", "/", [], chunked=False)
            gone = weakref.ref(exchange)
            del exchange
            await recorder.end()
            await eventually(lambda: upstream.open_connections == 0)
            await eventually(lambda: gone() is None, 1, "the exchange to be freed")
        finally:
            gc.enable()


async def test_many_exchanges_at_once() -> None:
    async with ScriptedUpstream([stream_head(), Trickle(chunk(b"data: x\n\n") * 3, 7), last_chunk]) as upstream:
        address = UpstreamAddress.from_url(upstream.url)

        async def one() -> Recorder:
            recorder = Recorder()
            exchange = await connect(address, recorder, connect_timeout=30)
            exchange.send_head("GET", "/", [], chunked=False)
            return recorder

        recorders = await asyncio.gather(*(one() for _ in range(300)))
        for recorder in recorders:
            assert await recorder.end() is None
            assert recorder.body == b"data: x\n\n" * 3
