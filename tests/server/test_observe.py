"""`mode: observe`: every byte as it came, and a report of what the repair would have done."""

from __future__ import annotations

import gzip
import logging
from typing import Any

import pytest

from sse_proxy.core.ledger import Outcome, RepairKind
from sse_proxy.core.pipeline import Pipeline
from sse_proxy.errors import FailureCode
from tests.fakes import End, Script, ScriptedUpstream, Stall, chunk, head, last_chunk, stream_head
from tests.server.front import Client
from tests.server.proxied import CHAT, ask, post, running, wire

BODY = wire("improvisation")


async def observe(script: Script, *headers: str, **settings: Any) -> tuple[Any, Any, Any]:
    async with ScriptedUpstream(script) as upstream, running(upstream.url, mode="observe", **settings) as proxy:
        answer = await ask(proxy, post(CHAT, b"{}", *headers))
        return answer, await proxy.last(), await upstream.request()


async def test_bytes_and_headers_are_unchanged_and_the_repairs_told() -> None:
    script: Script = [stream_head([("ETag", '"1"'), ("Set-Cookie", "a=1")]), chunk(BODY), last_chunk]
    answer, entry, request = await observe(script, "Accept-Encoding: br")
    assert answer.body == BODY
    assert answer.get("ETag") == '"1"'
    assert answer.get("Cache-Control") == "no-cache"
    assert request.get("Accept-Encoding") == "br"
    assert entry.ledger.outcome is Outcome.PASSED_ON
    assert entry.ledger.code is None
    assert entry.ledger.repairs[RepairKind.UNPREFIXED_LINE] > 0
    assert entry.ledger.bytes_in == len(BODY)


async def test_what_would_have_failed_is_told() -> None:
    answer, entry, _ = await observe([stream_head(), chunk(BODY[:300]), last_chunk])
    assert answer.body == BODY[:300]
    assert (entry.ledger.outcome, entry.ledger.code) == (Outcome.PASSED_ON, FailureCode.UPSTREAM_INCOMPLETE)


async def test_what_follows_the_marker_passes() -> None:
    body = BODY + b"data: more\n\n"
    answer, entry, _ = await observe([stream_head(), chunk(body), last_chunk])
    assert answer.body == body
    assert RepairKind.AFTER_MARKER in entry.ledger.repairs


async def test_a_compressed_stream_is_looked_into() -> None:
    packed = gzip.compress(BODY)
    answer, entry, _ = await observe([stream_head([("Content-Encoding", "gzip")]), chunk(packed), last_chunk])
    assert (answer.body, answer.get("Content-Encoding")) == (packed, "gzip")
    assert entry.ledger.repairs[RepairKind.UNPREFIXED_LINE] > 0


@pytest.mark.parametrize(
    "script",
    [
        [head(400, length=9), b"data: no\n"],
        [head(200, [("Content-Type", "application/json")], length=13), b'{"error":"x"}'],
        [head(500, [("Content-Type", "text/html")], length=4), b"<h1>"],
        [head(200, [("Content-Type", "text/html")], length=4), b"<h1>"],
        [stream_head([("Content-Encoding", "br")]), chunk(b"\x0b"), last_chunk],
    ],
)
async def test_what_is_no_stream_is_none_of_its_business(script: Script) -> None:
    answer, entry, _ = await observe(script)
    assert answer.whole
    assert answer.body
    assert (entry.ledger.outcome, entry.ledger.code) == (Outcome.PASSED_ON, None)


async def test_a_cut_stays_a_cut() -> None:
    answer, entry, _ = await observe([stream_head(), chunk(BODY[:300]), End()])
    assert not answer.whole
    assert answer.body == BODY[:300]
    assert entry.ledger.code is FailureCode.UPSTREAM_TRUNCATED


async def test_no_head_is_a_plain_problem() -> None:
    answer, entry, _ = await observe([End()])
    assert (answer.status, answer.get("Content-Type")) == (502, "application/problem+json")
    assert entry.ledger.code is FailureCode.UPSTREAM_BAD_RESPONSE


async def test_nothing_of_ours_is_sent() -> None:
    script: Script = [stream_head(), chunk(b"data: half"), Stall()]
    async with (
        ScriptedUpstream(script) as upstream,
        running(upstream.url, mode="observe", keepalive="20ms", commit_after="1ms") as proxy,
        Client.open(proxy.port, post()) as client,
    ):
        await client.until(b"data: half\r\n")
        with pytest.raises(TimeoutError):
            await client.exactly(1, 0.3)


@pytest.mark.parametrize("method", ["feed", "close", "tick"])
async def test_a_bug_in_the_repair_does_not_touch_the_stream(
    method: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def bug(*_: Any) -> bytes:
        raise RuntimeError("a bug")

    monkeypatch.setattr(Pipeline, method, bug)
    answer, entry, _ = await observe([stream_head(), chunk(BODY[:300]), chunk(BODY[300:]), last_chunk])
    assert answer.body == BODY
    assert entry.ledger.outcome is Outcome.PASSED_ON
    errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(errors) == (method != "tick")
