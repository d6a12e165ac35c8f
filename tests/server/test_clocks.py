"""The clocks of a stream: early head, keep-alives, timeouts, and a reader that stops taking."""

from __future__ import annotations

import asyncio
import math
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sse_proxy.config import StreamSettings
from sse_proxy.core.ledger import Outcome
from sse_proxy.errors import FailureCode
from sse_proxy.server.clocks import StreamClocks
from sse_proxy.server.registry import StreamState
from tests.fakes import Script, ScriptedUpstream, Stall, Step, Wait, chunk, eventually, last_chunk, stream_head
from tests.server.front import Client
from tests.server.proxied import ask, post, running

COMMENT = b"e\r\n: keep-alive\n\n\r\n"


# --- the clocks alone ---------------------------------------------------------------------------------------------


def clocks(**settings: float | None) -> StreamClocks:
    return StreamClocks(StreamSettings.model_construct(**{**StreamSettings().__dict__, **settings}), 100.0)


def test_bytes_move_the_idle_clock_and_events_the_stall_clock() -> None:
    c = clocks(idle_timeout=10.0, stall_timeout=20.0)
    assert c.failure_due(streaming=True) == 110.0
    c.byte(115.0)
    assert c.failure_due(streaming=True) == 120.0
    assert c.failure_due(streaming=False) == 125.0
    c.event(115.0)
    assert c.failure(124.9, streaming=True) is None
    assert c.failure(125.0, streaming=True) == (FailureCode.UPSTREAM_STALLED, "no byte for 10 s")
    c.byte(134.0)
    assert c.failure(135.0, streaming=True) == (FailureCode.UPSTREAM_STALLED, "no event for 20 s")
    assert c.failure(135.0, streaming=False) is None


def test_what_is_off_is_never_due() -> None:
    c = clocks(idle_timeout=None, stall_timeout=None, total_timeout=None, commit_after=None, keepalive=None)
    assert c.failure_due(streaming=True) == c.commit_due() == c.keepalive_due() == c.reader_due() == math.inf
    assert c.failure(1e9, streaming=True) is None


def test_the_total_is_not_moved_by_anything() -> None:
    c = clocks(total_timeout=30.0, idle_timeout=None)
    c.byte(129.0)
    c.pause(129.0, 1)
    assert c.failure(130.0, streaming=True) == (FailureCode.TIMED_OUT, "total_timeout 30 s")


def test_while_the_upstream_is_paused_or_the_client_still_sends_it_is_not_idle() -> None:
    c = clocks(idle_timeout=10.0, stall_timeout=10.0, write_timeout=60.0)
    c.pause(101.0, 500)
    assert c.failure(150.0, streaming=True) is None
    assert c.failure_due(streaming=True) == math.inf
    c.resume(150.0)
    assert c.failure(159.0, streaming=True) is None
    assert c.failure(160.0, streaming=True) is not None
    c.client_sends = True
    assert c.failure(160.0, streaming=True) is None


def test_a_reader_is_stuck_only_when_it_took_nothing() -> None:
    c = clocks(write_timeout=60.0)
    assert not c.reader_is_stuck(1e9, 0)
    c.pause(100.0, 500)
    assert not c.reader_is_stuck(159.9, 500)
    assert not c.reader_is_stuck(160.0, 499)  # slow, but it takes
    assert c.reader_due() == 220.0
    c.wrote_more(100)
    assert not c.reader_is_stuck(220.0, 598)
    assert c.reader_is_stuck(280.0, 598)


# --- our head -----------------------------------------------------------------------------------------------------


async def test_our_head_leaves_after_commit_after_without_the_upstreams() -> None:
    async with (
        ScriptedUpstream([Stall()]) as upstream,
        running(upstream.url, commit_after="50ms") as proxy,
        Client.open(proxy.port, post()) as client,
    ):
        assert b" 200 " in await client.until(b"\r\n\r\n")
        assert await client.exactly(len(COMMENT)) == COMMENT
        assert proxy.proxy.registry.live()[0].state is StreamState.WAITING


async def test_a_keep_alive_that_is_due_commits_the_head() -> None:
    async with (
        ScriptedUpstream([Stall()]) as upstream,
        running(upstream.url, keepalive="50ms") as proxy,
        Client.open(proxy.port, post()) as client,
    ):
        assert b" 200 " in await client.until(b"\r\n\r\n")
        for _ in range(3):
            await client.until(COMMENT[3:])


async def test_with_commit_after_off_nothing_leaves_before_the_upstreams_head() -> None:
    go = asyncio.Event()
    script: Script = [Wait(go), stream_head(), Stall()]
    async with (
        ScriptedUpstream(script) as upstream,
        running(upstream.url, keepalive="20ms", commit_after=False, total_timeout="5s") as proxy,
        Client.open(proxy.port, post()) as client,
    ):
        await upstream.request()
        with pytest.raises(TimeoutError):
            await client.exactly(1, 0.2)
        go.set()
        await client.until(b"\r\n\r\n")
        for _ in range(3):  # and from then on there are keep-alives
            await client.until(COMMENT[3:])


async def test_without_keep_alives_the_head_still_leaves_early() -> None:
    async with (
        ScriptedUpstream([Stall()]) as upstream,
        running(upstream.url, commit_after="50ms", keepalive=False) as proxy,
        Client.open(proxy.port, post()) as client,
    ):
        assert b" 200 " in await client.until(b"\r\n\r\n")


# --- keep-alives --------------------------------------------------------------------------------------------------


async def test_keep_alives_fall_between_events_never_into_one() -> None:
    """An event whose end is awaited is held or sent whole; the comment has its own place."""
    script: Script = [stream_head(), chunk(b"id: 1\ndata: half an ev"), Stall()]
    async with (
        ScriptedUpstream(script) as upstream,
        running(upstream.url, keepalive="30ms") as proxy,
        Client.open(proxy.port, post()) as client,
    ):
        body = b""
        while body.count(COMMENT) < 4:
            body += await client.until(b"\n\n\r\n")
    assert b"half" not in body


async def test_keep_alives_are_counted_and_stop_with_the_stream() -> None:
    go = asyncio.Event()
    script: Script = [stream_head(), Wait(go), chunk(b"data: a\n\ndata: [DONE]\n\n"), last_chunk]
    async with ScriptedUpstream(script) as upstream, running(upstream.url, keepalive="30ms") as proxy:
        async with Client.open(proxy.port, post()) as client:
            for _ in range(3):
                await client.until(COMMENT[3:])
            go.set()
            rest = await client.rest()
        entry = await proxy.last()
    assert rest.rstrip().endswith(b"data: [DONE]\n\n\r\n0")
    assert entry.ledger.keepalives >= 2
    assert entry.ledger.events_out == 2


async def _pass(seconds: float) -> None:
    """Let time pass that nothing is to happen in."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(seconds):
            await asyncio.Event().wait()


async def test_what_is_written_puts_the_keep_alive_off() -> None:
    """Only silence is broken: a stream that speaks every 50 ms needs no comment every 500 ms."""
    beats = [asyncio.Event() for _ in range(16)]
    steps: list[Step] = [stream_head()]
    for event in beats:
        steps += [chunk(b"data: word. \n\n"), Wait(event)]
    async with (
        ScriptedUpstream([*steps, Stall()]) as upstream,
        running(upstream.url, keepalive="500ms") as proxy,
        Client.open(proxy.port, post()) as client,
    ):
        for event in beats:
            await client.until(b"word. \n\n")
            await _pass(0.05)
            event.set()
        assert proxy.proxy.registry.live()[0].ledger.keepalives == 0


# --- timeouts -----------------------------------------------------------------------------------------------------


async def trickle(data: bytes, beats: int, **settings: object) -> tuple[str, int]:
    """Send `data` every 30 ms; return the failure's code, and how often it could be sent before that."""
    beat = [asyncio.Event() for _ in range(beats)]
    steps: list[Step] = [stream_head()]
    for event in beat:
        steps += [chunk(data), Wait(event)]
    async with ScriptedUpstream([*steps, Stall()]) as upstream, running(upstream.url, **settings) as proxy:

        async def beating() -> None:
            for event in beat:
                await _pass(0.03)
                event.set()

        task = asyncio.create_task(beating())
        try:
            answer = await ask(proxy)
        finally:
            task.cancel()
        return answer.error["code"], sum(event.is_set() for event in beat)


async def test_comments_keep_the_connection_but_are_no_progress() -> None:
    code, sent = await trickle(b": ping\n\n", 60, stall_timeout="300ms", idle_timeout="200ms")
    assert code == "upstream_stalled"
    assert sent < 40


async def test_bytes_of_text_are_progress() -> None:
    code, sent = await trickle(b"data: word. \n\n", 20, stall_timeout="300ms", idle_timeout="300ms")
    assert code == "upstream_stalled"
    assert sent == 20


async def test_one_long_frame_is_progress_too() -> None:
    code, sent = await trickle(b"data: word " * 3, 20, stall_timeout="300ms", dialect="single-prefix", chunker="any")
    assert code == "upstream_stalled"
    assert sent == 20


async def test_the_total_ends_a_stream_that_is_lively() -> None:
    code, sent = await trickle(b"data: word. \n\n", 60, total_timeout="300ms")
    assert code == "timed_out"
    assert sent < 40


async def test_a_piece_of_a_sentence_is_held_no_longer_than_max_hold() -> None:
    script: Script = [stream_head(), chunk(b"data: One. \n\ndata: no sentence yet"), Stall()]
    async with (
        ScriptedUpstream(script) as upstream,
        running(upstream.url, max_hold="50ms") as proxy,
        Client.open(proxy.port, post()) as client,
    ):
        await client.until(b"data: no sentence yet\n\n")


# --- slow readers -------------------------------------------------------------------------------------------------

LINE = chunk(b"data: " + b"x" * 1000 + b". \n\n")
FLOOD: Script = [stream_head(), *[LINE * 100] * 100, Stall()]


@contextmanager
def small_window(port: int) -> Iterator[socket.socket]:
    """A client that takes little at a time, and nothing where it does not read."""
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", port))
        client.setblocking(False)
        yield client


async def read_some(client: socket.socket, size: int) -> int:
    loop = asyncio.get_running_loop()
    got = 0
    async with asyncio.timeout(5):
        while got < size and (data := await loop.sock_recv(client, min(65536, size - got))):
            got += len(data)
    return got


async def test_a_reader_that_takes_nothing_is_dropped_and_the_upstream_with_it() -> None:
    async with (
        ScriptedUpstream(FLOOD) as upstream,
        running(upstream.url, write_timeout="200ms", keepalive="50ms") as proxy,
    ):
        with small_window(proxy.port) as client:
            client.sendall(post())
            entry = await proxy.last()
            await upstream.client_closed()
    assert entry.ledger.outcome is Outcome.CLIENT_GONE


async def test_a_slow_reader_pauses_the_upstream_whose_idle_clock_stands_still() -> None:
    async with (
        ScriptedUpstream(FLOOD) as upstream,
        running(upstream.url, write_timeout="30s", idle_timeout="150ms", stall_timeout="150ms") as proxy,
    ):
        with small_window(proxy.port) as client:
            client.sendall(post())
            await eventually(lambda: [e for e in proxy.proxy.registry.live() if e.state is StreamState.PAUSED])
            entry = proxy.proxy.registry.live()[0]
            held = entry.ledger.bytes_in
            await _pass(0.5)
            assert entry.state is StreamState.PAUSED
            assert entry.ledger.bytes_in == held < 5_000_000
            await read_some(client, 11_000_000)  # to the end of what is sent, and the failure then is the upstream's
            entry = await proxy.last()
    assert entry.ledger.code is FailureCode.UPSTREAM_STALLED


async def test_a_slow_reader_that_takes_a_little_is_not_dropped() -> None:
    async with ScriptedUpstream(FLOOD) as upstream, running(upstream.url, write_timeout="200ms") as proxy:
        with small_window(proxy.port) as client:
            client.sendall(post())
            await eventually(lambda: [e for e in proxy.proxy.registry.live() if e.state is StreamState.PAUSED])
            for _ in range(10):
                await read_some(client, 3000)
                await _pass(0.08)
            assert proxy.proxy.registry.active == 1


async def test_a_reader_that_takes_nothing_of_the_end_is_dropped_too() -> None:
    """The upstream is done; what is left is the reader, that leaves with the marker unread."""
    body = chunk(b"data: " + b"x" * 6_000_000 + b". \n\ndata: [DONE]\n\n")
    async with (
        ScriptedUpstream([stream_head(), body, last_chunk]) as upstream,
        running(upstream.url, write_timeout="200ms") as proxy,
    ):
        with small_window(proxy.port) as client:
            client.sendall(post())
            entry = await proxy.last()
            await eventually(lambda: proxy.idle)
    assert entry.ledger.outcome is Outcome.CLIENT_GONE  # though the upstream was complete, the reader never had it


@pytest.mark.parametrize("request_", [post(), post("/events", b"", method="GET")], ids=["declared", "undeclared"])
async def test_the_clocks_go_on_after_a_pause(request_: bytes) -> None:
    """A pause's own deadline is far away; the idle clock's is not, once the reader has caught up."""
    script: Script = [stream_head(), LINE * 3000, Stall()]
    async with (
        ScriptedUpstream(script) as upstream,
        running(upstream.url, write_timeout="60s", idle_timeout="150ms") as proxy,
    ):
        with small_window(proxy.port) as client:
            client.sendall(request_)
            await eventually(lambda: [e for e in proxy.proxy.registry.live() if e.state is StreamState.PAUSED])
            await _pass(0.4)  # the idle clock's time comes and goes meanwhile
            await read_some(client, 4_000_000)
            entry = await proxy.last()
    assert entry.ledger.code is FailureCode.UPSTREAM_STALLED


async def test_a_failure_lets_the_upstream_go_before_a_slow_reader_has_read_of_it() -> None:
    async with (
        ScriptedUpstream(FLOOD) as upstream,
        running(upstream.url, write_timeout="30s", total_timeout="300ms") as proxy,
    ):
        with small_window(proxy.port) as client:
            client.sendall(post())
            await eventually(lambda: [e for e in proxy.proxy.registry.live() if e.state is StreamState.PAUSED])
            await upstream.client_closed(timeout=2.0)
            assert proxy.proxy.registry.active == 1
