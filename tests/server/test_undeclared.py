"""Event streams on routes that nobody declared: read by the standard, kept alive, their cuts told, nothing more."""

from __future__ import annotations

import asyncio

import pytest

from sse_proxy.core.ledger import Outcome
from tests.fakes import (
    End,
    Reset,
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
from tests.server.proxied import answer_text, ask, post, running, wire
from tests.server.test_clocks import FLOOD, small_window

GET = post("/events", b"", method="GET")
EVENTS = b"event: a\nid: 1\ndata: one\ndata: two\n\n: note\n\nretry: 9\n\ndata: [DONE]\n\ndata: more\n\n"


async def test_events_pass_one_to_one_the_marker_is_data() -> None:
    async with ScriptedUpstream([stream_head(), chunk(EVENTS), last_chunk]) as upstream, running(upstream.url) as proxy:
        answer = await ask(proxy, GET)
        entry = await proxy.last()
    assert answer.body == b": keep-alive\n\n" + EVENTS
    assert (entry.route, entry.ledger.outcome) == ("undeclared", Outcome.COMPLETE)


async def test_the_log_warns_where_a_broken_stream_has_no_route(caplog: pytest.LogCaptureFixture) -> None:
    body = wire("voicings")
    async with ScriptedUpstream([stream_head(), chunk(body), last_chunk]) as upstream, running(upstream.url) as proxy:
        await ask(proxy, post("/other"))
        await proxy.last()
    [told] = [record for record in caplog.records if record.name.startswith("sse_proxy")]
    assert told.levelname == "WARNING"
    assert "no route names this path" in told.getMessage()


async def test_text_is_not_cut_again() -> None:
    body = wire("tables", "743", "gachatbot")
    async with ScriptedUpstream([stream_head(), chunk(body), last_chunk]) as upstream, running(upstream.url) as proxy:
        answer = await ask(proxy, post("/other"))
    assert answer.text == answer_text("tables")
    assert answer.body == b": keep-alive\n\n" + body


async def test_keep_alives() -> None:
    async with (
        ScriptedUpstream([stream_head(), Stall()]) as upstream,
        running(upstream.url, keepalive="30ms") as proxy,
        Client.open(proxy.port, GET) as client,
    ):
        for _ in range(3):
            await client.until(b": keep-alive\n\n\r\n")


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ([stream_head(), chunk(b"data: a\n\ndata: b"), End()], "upstream_truncated"),
        ([stream_head(), chunk(b"data: a\n\ndata: b"), Reset()], "upstream_truncated"),
        ([head(200, [("Content-Type", "text/event-stream")], length=99), b"data: a\n\n", End()], "upstream_truncated"),
        ([stream_head(), chunk(b"data: a\n\n"), Stall()], "upstream_stalled"),
    ],
    ids=["fin", "rst", "short", "stall"],
)
async def test_a_cut_is_told(script: Script, code: str) -> None:
    async with ScriptedUpstream(script) as upstream, running(upstream.url, idle_timeout="300ms") as proxy:
        answer = await ask(proxy, GET)
    assert answer.error["code"] == code
    assert answer.events[0] == ("message", "a")
    assert b"data: b" not in answer.body
    assert answer.body.count(b"retry: 5000\n") == 1


async def test_broken_framing_is_told() -> None:
    go = asyncio.Event()
    async with (
        ScriptedUpstream([stream_head(), chunk(b"data: a\n\n"), Wait(go), b"zz\r\n", Stall()]) as upstream,
        running(upstream.url) as proxy,
        Client.open(proxy.port, GET) as client,
    ):
        await client.until(b"data: a\n\n")
        go.set()
        assert b'"code":"upstream_truncated"' in await client.rest()


async def test_a_reset_of_a_body_without_length_is_a_cut_and_a_fin_is_its_end() -> None:
    go = asyncio.Event()
    scripts: list[Script] = [
        [stream_head(chunked=False), b"data: a\n\n", Wait(go), Reset()],
        [stream_head(chunked=False), b"data: a\n\n", End()],
    ]
    async with ScriptedUpstream(*scripts) as upstream, running(upstream.url) as proxy:
        async with Client.open(proxy.port, GET) as client:
            await client.until(b"data: a\n\n")
            go.set()
            assert b'"code":"upstream_truncated"' in await client.rest()
        answer = await ask(proxy, GET)
    assert (answer.events, answer.errors, answer.whole) == ([("message", "a")], [], True)


@pytest.mark.parametrize("body", [b"", b": nothing\n\n"])
async def test_an_empty_stream_is_a_stream(body: bytes) -> None:
    script: Script = [stream_head(), *([chunk(body)] if body else []), last_chunk]
    async with ScriptedUpstream(script) as upstream, running(upstream.url) as proxy:
        answer = await ask(proxy, GET)
        assert (await proxy.last()).ledger.outcome is Outcome.COMPLETE
    assert (answer.status, answer.events, answer.whole) == (200, [], True)


@pytest.mark.parametrize("path", ["/hubs/chat", "/off"])
async def test_stream_off_is_byte_exact(path: str) -> None:
    body = b"event: x\r\ndata:no space\r\n\r\ndata: unfinished"
    script: Script = [stream_head([("ETag", '"1"')]), chunk(body), last_chunk]
    async with (
        ScriptedUpstream(script) as upstream,
        running(upstream.url, routes=[{"path": "/off", "stream": False}], keepalive="20ms") as proxy,
    ):
        answer = await ask(proxy, post(path, b"", method="GET"))
        assert not proxy.proxy.registry.recent()
    assert (answer.body, answer.get("ETag"), answer.get("Cache-Control")) == (body, '"1"', "no-cache")


async def test_a_client_that_leaves_closes_the_upstream() -> None:
    async with (
        ScriptedUpstream([stream_head(), chunk(b"data: a\n\n"), Stall()]) as upstream,
        running(upstream.url) as proxy,
    ):
        async with Client.open(proxy.port, GET) as client:
            await client.until(b"data: a\n\n")
        await upstream.client_closed(timeout=1.0)
        assert (await proxy.last()).ledger.outcome is Outcome.CLIENT_GONE


async def test_too_many_are_refused_and_the_upstream_let_go() -> None:
    async with (
        ScriptedUpstream([stream_head(), Stall()]) as upstream,
        running(upstream.url, top={"max_streams": 1}) as proxy,
        Client.open(proxy.port, GET) as client,
    ):
        await client.until(b"keep-alive")
        answer = await ask(proxy, GET)
        assert (answer.status, answer.error["code"]) == (503, "overloaded")
        await upstream.client_closed(1, timeout=1.0)


async def test_a_slow_reader_holds_the_upstream_back() -> None:
    async with ScriptedUpstream(FLOOD) as upstream, running(upstream.url, write_timeout="30s") as proxy:
        with small_window(proxy.port) as client:
            client.sendall(GET)
            await eventually(lambda: [e for e in proxy.proxy.registry.live() if e.state == "paused"])
            entry = proxy.proxy.registry.live()[0]
            assert entry.ledger.bytes_in < 5_000_000


async def test_a_failure_before_the_head_is_a_plain_problem() -> None:
    async with ScriptedUpstream([End()]) as upstream, running(upstream.url) as proxy:
        answer = await ask(proxy, GET)
    assert (answer.status, answer.get("Content-Type")) == (502, "application/problem+json")
