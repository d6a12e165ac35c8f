"""2,000 streams with random ends: tasks, file descriptors and memory are back where they started."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import random
import sys
from pathlib import Path

import pytest

from tests.fakes import (
    End,
    Request,
    Reset,
    Script,
    ScriptedUpstream,
    Stall,
    chunk,
    eventually,
    head,
    last_chunk,
    stream_head,
)
from tests.server.front import Client
from tests.server.proxied import Running, post, running, wire

BODY = wire("improvisation")
STREAMS = 2000
AT_ONCE = 100


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def resident_kib() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1])
    raise AssertionError("no VmRSS")


def script(request: Request) -> Script:
    rng = random.Random(request.target)
    cut = rng.randrange(len(BODY) + 1)
    part = [chunk(BODY[:cut])] if cut else []
    half = head(200, [("Content-Type", "application/json")], length=50)
    ways: list[Script] = [
        [stream_head(), chunk(BODY), last_chunk],
        [stream_head(), chunk(BODY), Stall()],
        [stream_head(), *part, End()],
        [stream_head(), *part, Reset()],
        [stream_head(), *part, last_chunk],
        [stream_head(), *part, Stall()],
        [stream_head(chunked=False), BODY[:cut], Reset()],
        [End()],
        [Reset()],
        [head(429, length=0)],
    ]
    if request.method == "GET":
        return rng.choice(ways)  # undeclared; what is no stream there has no clock, as any plain answer
    ways += [
        [Stall()],
        [head(500, [("Content-Type", "text/html")], length=4), b"<h1>"],
        [half, b'{"error":"x"', Stall()],
        [b"no http\r\n\r\n", End()],
    ]
    return rng.choice(ways)


async def one(proxy: Running, n: int) -> None:
    rng = random.Random(n)
    path = "/events" if n % 5 == 0 else "/api/chatbot/chat/stream"
    method = "GET" if n % 5 == 0 else "POST"
    data = post(f"{path}?n={n}", b"" if method == "GET" else b"{}", method=method, version=rng.choice(["1.0", "1.1"]))
    async with Client.open(proxy.port, data) as client:
        match rng.randrange(4):
            case 0:
                return  # gone at once
            case 1:
                with contextlib.suppress(asyncio.IncompleteReadError):
                    await client.exactly(rng.randrange(1, 400), 20)
            case _:
                await client.rest(30)


async def rounds(proxy: Running, first: int, count: int) -> None:
    gate = asyncio.Semaphore(AT_ONCE)

    async def gated(n: int) -> None:
        async with gate:
            await one(proxy, n)

    async with asyncio.TaskGroup() as group:
        for n in range(first, first + count):
            group.create_task(gated(n))


@pytest.mark.skipif(sys.platform != "linux", reason="counts by /proc")
@pytest.mark.timeout(170)
async def test_nothing_is_left_of_two_thousand_streams() -> None:
    async with (
        ScriptedUpstream(script) as upstream,
        running(upstream.url, idle_timeout="150ms", top={"max_streams": 1000, "capture": {"keep": 10}}) as proxy,
    ):
        await rounds(proxy, 0, 300)  # what is made once is made now
        await settled(proxy, upstream)
        tasks, files, memory = len(asyncio.all_tasks()), descriptors(), resident_kib()
        seen = upstream.connections
        await rounds(proxy, 300, STREAMS)
        await settled(proxy, upstream)
        assert upstream.connections >= seen + STREAMS // 2
        assert len(asyncio.all_tasks()) <= tasks
        assert descriptors() <= files + 2
        services = proxy.proxy.services
        assert not services.runs
        assert services.admission.active == 0
        assert not services.wheel._slots
        assert resident_kib() - memory < 40 * 1024, "the fakes and the log keep some of it; streams keep nothing"


async def settled(proxy: Running, upstream: ScriptedUpstream) -> None:
    """Wait until both sides have let go of everything; forget what the fake remembers of its clients."""
    await eventually(lambda: proxy.idle, 10)
    await eventually(lambda: not proxy.proxy.services.wheel._slots, 10, "the wheel to be empty")
    await eventually(lambda: not upstream.open_connections, 10, "the upstream's connections to close")
    await eventually(lambda: all(task.done() for task in upstream._tasks), 10)
    for connection in upstream._connections:  # a stall leaves its own half open
        connection.close()
    await eventually(lambda: all(connection.lost.is_set() for connection in upstream._connections), 10)
    upstream._tasks.clear()
    upstream.requests.clear()
    gc.collect()
