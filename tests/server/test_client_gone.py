"""The client leaves: the upstream is closed within a second, wherever the stream stands, and nothing is left."""

from __future__ import annotations

import asyncio
import select
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from sse_proxy.core.ledger import Outcome
from tests.fakes import Early, Script, ScriptedUpstream, Stall, Wait, chunk, eventually, head, stream_head
from tests.server.front import Client
from tests.server.proxied import CHAT, Running, post, running

LIMIT_S = 1.0
Leave = Callable[[Client], None]


def fin(client: Client) -> None:
    client.writer.close()


def rst(client: Client) -> None:
    client.writer.transport.abort()


def half_close(client: Client) -> None:
    client.writer.write_eof()


WAYS = pytest.mark.parametrize("leave", [fin, rst, half_close])


@asynccontextmanager
async def proxy_and_upstream(script: Script, **settings: object) -> AsyncIterator[tuple[Running, ScriptedUpstream]]:
    async with ScriptedUpstream(script) as upstream, running(upstream.url, **settings) as proxy:
        tasks = len(asyncio.all_tasks())
        yield proxy, upstream
        entry = await proxy.last()
        assert entry.ledger.outcome is Outcome.CLIENT_GONE
        assert entry.ledger.code is None
        await eventually(lambda: len(asyncio.all_tasks()) <= tasks, what="tasks to end")


@WAYS
async def test_before_the_upstreams_head(leave: Leave) -> None:
    async with proxy_and_upstream([Stall()]) as (proxy, upstream), Client.open(proxy.port, post()) as client:
        await upstream.request()
        leave(client)
        await upstream.client_closed(timeout=LIMIT_S)


@WAYS
async def test_behind_an_early_head(leave: Leave) -> None:
    async with (
        proxy_and_upstream([Stall()], commit_after="1ms") as (proxy, upstream),
        Client.open(proxy.port, post()) as client,
    ):
        await client.until(b"\r\n\r\n")
        leave(client)
        await upstream.client_closed(timeout=LIMIT_S)


@WAYS
@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_in_the_middle(leave: Leave, version: str) -> None:
    async with (
        proxy_and_upstream([stream_head(), chunk(b"data: One. \n\n"), Stall()]) as (proxy, upstream),
        Client.open(proxy.port, post(version=version)) as client,
    ):
        await client.until(b"One. \n\n")
        leave(client)
        await upstream.client_closed(timeout=LIMIT_S)


@pytest.mark.parametrize("scrub", [True, False])
@WAYS
async def test_while_its_body_goes_up(leave: Leave, scrub: bool) -> None:
    async with (
        proxy_and_upstream([Early(), Stall()], scrub_history=scrub) as (proxy, upstream),
        Client.open(proxy.port, post(CHAT, b"", "Content-Length: 90000") + b"x" * 5000) as client,
    ):
        await eventually(lambda: upstream.connections)
        if not scrub:
            await eventually(lambda: upstream.requests)
        leave(client)
        await upstream.client_closed(timeout=LIMIT_S)


async def fill(client: Client) -> None:
    """Send until nothing is taken any more."""
    for _ in range(1000):
        client.send(b"x" * 65536)
        try:
            async with asyncio.timeout(0.3):
                await client.writer.drain()
        except TimeoutError:
            return
    raise AssertionError("64 MB were taken")


@pytest.mark.skipif(not hasattr(select, "POLLRDHUP"), reason="needs a kernel that tells")
async def test_while_the_upstream_takes_nothing_of_its_body() -> None:
    """Nothing is read from the client then, so that the loop cannot see it leave. (A FIN behind bytes that nobody takes
    does not even reach this machine.)"""
    async with (
        ScriptedUpstream([Early(read=False), Wait(asyncio.Event())]) as upstream,
        running(upstream.url, scrub_history=False) as proxy,
        Client.open(proxy.port, post(CHAT, b"", "Content-Length: 99000000")) as client,
    ):
        await fill(client)
        assert proxy.proxy.registry.active == 1
        sock: socket.socket = client.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.writer.transport.abort()
        await eventually(lambda: proxy.idle, timeout=2.0, what="the stream to be over")


async def test_while_connecting() -> None:
    with socket.socket() as full:  # its queue is full: connecting goes on and on
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        others = [socket.socket() for _ in range(4)]
        for other in others:
            other.setblocking(False)
            other.connect_ex(("127.0.0.1", port))
        async with (
            running(f"http://127.0.0.1:{port}", connect_timeout="30s") as proxy,
            Client.open(proxy.port, post()) as client,
        ):
            await eventually(lambda: proxy.proxy.registry.active)
            fin(client)
            await eventually(lambda: proxy.idle, timeout=LIMIT_S)
        for other in others:
            other.close()


async def test_while_a_refused_connection_is_tried_again() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        async with (
            running(f"http://127.0.0.1:{nobody.getsockname()[1]}", connect_timeout="30s") as proxy,
            Client.open(proxy.port, post()) as client,
        ):
            await eventually(lambda: proxy.proxy.registry.active)
            rst(client)
            await eventually(lambda: proxy.idle, timeout=LIMIT_S)


async def test_while_a_body_that_is_no_stream_is_held() -> None:
    script: Script = [head(200, [("Content-Type", "application/json")], length=99), b"{", Stall()]
    async with proxy_and_upstream(script) as (proxy, upstream), Client.open(proxy.port, post()) as client:
        await eventually(lambda: proxy.proxy.registry.live() and upstream.requests)
        fin(client)
        await upstream.client_closed(timeout=LIMIT_S)


async def test_it_is_an_info_line_and_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with proxy_and_upstream([stream_head(), Stall()]) as (proxy, upstream):
        async with Client.open(proxy.port, post()) as client:
            await client.until(b"\r\n\r\n")
            fin(client)
            await upstream.client_closed()
        await proxy.last()
        metrics = proxy.proxy.metrics.render()[0].decode()
    assert 'outcome="client_gone",route="/api/chatbot/chat/stream",upstream="host"} 1.0' in metrics
    assert 'sse_proxy_requests_total{status="499",upstream="host"} 1.0' in metrics
    lines = [record for record in caplog.records if "client_gone" in record.getMessage()]
    assert [record.levelname for record in lines] == ["INFO"]


@WAYS
@pytest.mark.parametrize("waiting", [15, 60])
async def test_behind_pipelined_requests(leave: Leave, waiting: int) -> None:
    script: Script = [stream_head(), chunk(b"data: One. \n\n"), Stall()]
    async with proxy_and_upstream(script) as (proxy, upstream), Client.open(proxy.port, post(last=False)) as client:
        await client.until(b"One. ")
        client.send(b"GET /status HTTP/1.1\r\nHost: proxy.example\r\n\r\n" * waiting)
        await client.writer.drain()
        leave(client)
        await upstream.client_closed(timeout=LIMIT_S)
