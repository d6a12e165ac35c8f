"""How many streams may run, and how the last of them end when the proxy stops."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from sse_proxy.core.ledger import Outcome
from sse_proxy.errors import FailureCode
from tests.fakes import (
    Early,
    End,
    Script,
    ScriptedUpstream,
    Stall,
    Wait,
    chunk,
    eventually,
    head,
    last_chunk,
    stream_head,
)
from tests.server.front import Client
from tests.server.process import served
from tests.server.proxied import CHAT, ask, post, running

DONE: Script = [chunk(b"data: [DONE]\n\n"), last_chunk]


async def test_beyond_max_streams_it_is_a_503_with_the_event_as_body() -> None:
    go = asyncio.Event()
    async with (
        ScriptedUpstream([stream_head(), Wait(go), *DONE]) as upstream,
        running(upstream.url, top={"max_streams": 1}) as proxy,
    ):
        async with Client.open(proxy.port, post()) as client:
            await client.until(b"keep-alive")
            refused = await ask(proxy)
            assert refused.status == 503
            assert refused.get("Retry-After") == "1"
            assert refused.get("Content-Type") == "text/event-stream; charset=utf-8"
            error = refused.error
            assert (error["code"], error["status"], error["retryable"]) == ("overloaded", 503, True)
            assert upstream.connections == 1
            metrics = proxy.proxy.metrics.render()[0].decode()
            assert 'sse_proxy_failures_total{code="overloaded",upstream="host"} 1.0' in metrics
            go.set()
            await client.rest()
        assert (await ask(proxy)).done == 1


async def test_a_refused_upload_does_not_confuse_the_connection() -> None:
    async with (
        ScriptedUpstream([stream_head(), Stall()]) as upstream,
        running(upstream.url, top={"max_streams": 1}) as proxy,
        Client.open(proxy.port, post()) as client,
    ):
        await client.until(b"keep-alive")
        data = post(CHAT, b"", "Content-Length: 5000", last=False) + b"GET / HTTP/1.1\r\n\r\n"
        async with Client.open(proxy.port, data) as other:
            raw = await other.until(b"}\n\n")
        assert b" 503 " in raw
        assert b"Connection: close" in raw


@pytest.mark.parametrize(
    "script",
    [
        [stream_head(), *DONE],
        [End()],
        [head(404, length=0)],
        [head(200, [("Content-Type", "application/json")], length=2), b"{}"],
        [stream_head(), Stall()],
        [Stall()],
    ],
)
async def test_leases_come_back_on_every_path(script: Script) -> None:
    async with (
        ScriptedUpstream(script) as upstream,
        running(upstream.url, top={"max_streams": 1}, idle_timeout="50ms") as proxy,
    ):
        for _ in range(3):
            assert (await ask(proxy)).status in (200, 404)
        await proxy.last()
        assert proxy.proxy.services.admission.active == 0


async def test_leases_come_back_from_refused_requests_and_lost_clients() -> None:
    async with ScriptedUpstream([Early(), Stall()]) as upstream, running(upstream.url, top={"max_streams": 1}) as proxy:
        async with Client.open(proxy.port, post(CHAT, b"", "Transfer-Encoding: chunked")) as client:
            await eventually(lambda: upstream.connections)
            client.send(b"zz\r\n")
            assert b" 400 " in await client.until(b"\r\n\r\n")
        await proxy.last()
        async with Client.open(proxy.port, post()):
            await eventually(lambda: len(upstream.requests))
        await proxy.last()
        assert proxy.proxy.services.admission.active == 0


async def test_a_drain_lets_streams_finish_and_takes_no_new_ones() -> None:
    go = asyncio.Event()
    async with ScriptedUpstream([stream_head(), Wait(go), *DONE]) as upstream, running(upstream.url) as proxy:
        async with Client.open(proxy.port, post()) as client:
            await client.until(b"keep-alive")
            draining = asyncio.create_task(proxy.proxy.drain(10))
            await eventually(lambda: not proxy.proxy.ready)
            assert proxy.proxy.reason == "draining"
            refused = await ask(proxy)
            assert (refused.status, refused.error["code"], refused.get("Retry-After")) == (503, "proxy_draining", "5")
            go.set()
            assert b"[DONE]" in await client.rest()
            await draining
        assert (await proxy.last()).ledger.outcome is Outcome.COMPLETE


@pytest.mark.parametrize("early", [True, False])
async def test_what_does_not_finish_is_told_why(early: bool) -> None:
    script: Script = [stream_head(), chunk(b"data: One. \n\n"), Stall()] if early else [Stall()]
    async with ScriptedUpstream(script) as upstream, running(upstream.url) as proxy:
        asking = asyncio.create_task(ask(proxy))
        await eventually(lambda: proxy.proxy.registry.live() and upstream.requests)
        if early:
            await eventually(lambda: proxy.proxy.registry.live()[0].ledger.pieces)
        await proxy.proxy.drain(0.05)
        answer = await asking
        entry = await proxy.last()
    assert answer.error["code"] == "proxy_draining"
    assert answer.status == (200 if early else 503)
    assert (answer.get("Retry-After") is None) is early
    assert answer.text == ("One. " if early else "")
    assert entry.ledger.code is FailureCode.PROXY_DRAINING


async def test_an_answer_that_is_passed_on_is_cut_by_the_end() -> None:
    reply = head(200, [("Content-Type", "application/json")], length=9_000_000)
    async with ScriptedUpstream([reply, b"x" * 2_000_000, Stall()]) as upstream, running(upstream.url) as proxy:
        async with Client.open(proxy.port, post()) as client:
            await client.exactly(2_000_000)
            await proxy.proxy.drain(0.05)
            await client.rest()
        assert (await proxy.last()).ledger.code is FailureCode.PROXY_DRAINING


# --- as a process -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("uvloop", [True, False], ids=["uvloop", "asyncio"])
async def test_sigterm(uvloop: bool, tmp_path: Path) -> None:
    go = asyncio.Event()

    scripts: list[Script] = [[stream_head(), Wait(go), *DONE], [stream_head(), chunk(b"data: One. \n\n"), Stall()]]
    async with ScriptedUpstream(*scripts) as upstream:
        top = {"drain_timeout": "1s"}
        async with served(tmp_path / "c.yaml", upstream.url, uvloop=uvloop, top=top) as server:
            assert await server.readyz() == 200
            async with Client.open(server.port, post()) as one:
                await one.until(b"keep-alive")
                async with Client.open(server.port, post()) as two:
                    await two.until(b"One. ")
                    server.signal(signal.SIGTERM)
                    await eventually(lambda: "stopping" in server.log)
                    assert await server.readyz() == 503
                    async with Client.open(server.port, post()) as late:
                        refused = await late.rest()
                    assert b" 503 " in refused
                    assert b"proxy_draining" in refused
                    go.set()
                    rest = await one.rest()
                    assert rest.count(b"data: [DONE]\n\n") == 1
                    assert rest.endswith(b"0\r\n\r\n")
                    assert b'"code":"proxy_draining"' in await two.rest()
            assert await server.exit() == 0
        await eventually(lambda: not upstream.open_connections)
    assert server.lines[-1].rstrip().endswith("stopped")
    assert "Traceback" not in server.log
    assert "Unclosed" not in server.log
    assert len([line for line in server.lines if " failed code=proxy_draining" in line]) == 1


async def test_sigterm_with_nothing_running_ends_at_once(tmp_path: Path) -> None:
    async with (
        ScriptedUpstream([stream_head(), *DONE]) as upstream,
        served(tmp_path / "c.yaml", upstream.url) as server,
        Client.open(server.port, post(last=False)) as idle,
    ):  # a kept connection is no reason to wait
        await idle.until(b"0\r\n\r\n")
        server.signal(signal.SIGTERM)
        assert await server.exit(5.0) == 0


async def test_a_plain_request_may_finish_too(tmp_path: Path) -> None:
    go = asyncio.Event()
    async with (
        ScriptedUpstream([Wait(go), head(200, length=2), b"ok"]) as upstream,
        served(tmp_path / "c.yaml", upstream.url, top={"drain_timeout": "10s"}) as server,
    ):
        async with Client.open(server.port, post("/plain")) as client:
            await upstream.request()
            server.signal(signal.SIGTERM)
            await eventually(lambda: "stopping" in server.log)
            with pytest.raises(TimeoutError):
                await client.exactly(1, 1.5)
            go.set()
            assert (await client.rest()).endswith(b"ok")
        assert await server.exit() == 0
