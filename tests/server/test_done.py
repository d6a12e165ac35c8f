"""The done marker: sent once and last, and the response ends with it, whatever the upstream does then."""

from __future__ import annotations

import asyncio

import pytest

from sse_proxy.core.ledger import Outcome, RepairKind
from tests.fakes import (
    End,
    Reset,
    Script,
    ScriptedUpstream,
    Stall,
    Step,
    Wait,
    chunk,
    eventually,
    last_chunk,
    stream_head,
)
from tests.server.front import Client
from tests.server.proxied import ask, post, running

ANSWER = b'data: {"type":"routing"}\n\ndata: One. \n\ndata: Two.\n\n'
DONE = chunk(b"data: [DONE]\n\n")


@pytest.mark.parametrize(
    "rest",
    [
        [last_chunk],
        [End()],
        [Reset()],
        [Stall()],
        [DONE, last_chunk],
        [chunk(b"data: more\n\ndata: [DONE]\n\n"), Stall()],
        [b"no chunk at all\r\n"],
    ],
    ids=["last chunk", "fin", "rst", "stall", "twice", "more", "garbage"],
)
async def test_once_and_last(rest: list[Step]) -> None:
    async with (
        ScriptedUpstream([stream_head(), chunk(ANSWER), DONE, *rest]) as upstream,
        running(upstream.url) as proxy,
    ):
        answer = await ask(proxy)
        entry = await proxy.last()
    assert answer.whole
    assert [data for _, data in answer.events] == ['{"type":"routing"}', "One. ", "Two.", "[DONE]"]
    assert entry.ledger.outcome is Outcome.COMPLETE
    assert entry.ledger.code is None


async def test_the_response_ends_at_once_and_the_upstream_within_a_second() -> None:
    async with (
        ScriptedUpstream([stream_head(), chunk(ANSWER), DONE, Stall()]) as upstream,
        running(upstream.url) as proxy,
        Client.open(proxy.port, post(last=False)) as client,
    ):
        await client.until(b"data: [DONE]\n\n\r\n0\r\n\r\n", 0.5)
        assert upstream.open_connections == 1
        assert len(proxy.proxy.services.runs) == 1  # drained, while the response is over
        assert proxy.proxy.services.admission.active == 0
        client.send(post())  # and the connection serves the next request meanwhile
        await client.until(b"data: [DONE]\n\n\r\n0\r\n\r\n", 0.5)
        await upstream.client_closed(0, timeout=1.5)


async def test_an_upstream_that_goes_on_is_cut_off() -> None:
    more: Script = [chunk(b"data: " + b"x" * 1000 + b"\n\n")] * 10_000
    async with (
        ScriptedUpstream([stream_head(), chunk(ANSWER), DONE, *more, Stall()]) as upstream,
        running(upstream.url) as proxy,
    ):
        answer = await ask(proxy)
        entry = await proxy.last()
        await upstream.client_closed(timeout=1.0)
    assert answer.done == 1
    assert entry.ledger.repairs[RepairKind.AFTER_MARKER] == 1
    assert 64 * 1024 < entry.ledger.dropped_bytes < 1024 * 1024


async def test_what_follows_is_counted_and_what_ends_properly_is_not_cut_off() -> None:
    go = asyncio.Event()
    tail: Script = [Wait(go), chunk(b"data: more\n\n"), last_chunk]
    async with (
        ScriptedUpstream([stream_head(), chunk(ANSWER), DONE, *tail]) as upstream,
        running(upstream.url) as proxy,
    ):
        answer = await ask(proxy)
        assert proxy.proxy.services.runs
        go.set()
        entry = await proxy.last()
    assert b"more" not in answer.body
    assert entry.ledger.repairs == {RepairKind.AFTER_MARKER: 1}
    assert entry.ledger.dropped_bytes == len(b"data: more\n\n")


async def test_a_client_that_leaves_behind_the_marker_had_a_complete_answer() -> None:
    async with (
        ScriptedUpstream([stream_head(), chunk(ANSWER), DONE, Stall()]) as upstream,
        running(upstream.url) as proxy,
    ):
        async with Client.open(proxy.port, post(last=False)) as client:
            await client.until(b"0\r\n\r\n")
        entry = await proxy.last()
    assert entry.ledger.outcome is Outcome.COMPLETE


async def test_nothing_of_an_ended_stream_waits_for_a_clock() -> None:
    """Its idle clock would keep it, and all it holds, for another five minutes."""
    script: Script = [stream_head(), chunk(ANSWER), DONE, last_chunk]
    async with ScriptedUpstream(script) as upstream, running(upstream.url) as proxy:
        await ask(proxy)
        await proxy.last()
        assert not any(proxy.proxy.services.wheel._slots.values())


async def test_the_marker_is_found_in_pieces() -> None:
    wire = ANSWER + b"data: [DONE]\n\n"
    steps = [chunk(wire[at : at + 1]) for at in range(len(wire))]
    async with ScriptedUpstream([stream_head(), *steps, Stall()]) as upstream, running(upstream.url) as proxy:
        answer = await ask(proxy)
    assert (answer.text, answer.done) == ("One. Two.", 1)


async def test_a_shutdown_does_not_wait_for_what_is_drained() -> None:
    async with ScriptedUpstream([stream_head(), chunk(ANSWER), DONE, Stall()]) as upstream:
        async with running(upstream.url) as proxy:
            await ask(proxy)
            async with asyncio.timeout(0.5):
                await proxy.proxy.drain(10.0)
            assert proxy.proxy.services.runs
        assert not proxy.proxy.services.runs
        assert proxy.proxy.registry.recent()[0].ledger.outcome is Outcome.COMPLETE
        await eventually(lambda: not upstream.open_connections)
