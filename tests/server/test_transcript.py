"""The transcript: one whole line for each complete exchange, and none for any other."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from sse_proxy.server.transcript import Transcript
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
from tests.server.proxied import CHAT, QUESTION, answer_text, ask, make_config, post, running, wire

WHOLE: Script = [stream_head(), chunk(wire("improvisation")), last_chunk]


def lines(path: Path) -> list[dict[str, Any]]:
    data = path.read_bytes()
    assert not data or data.endswith(b"\n")
    return [json.loads(line) for line in data.splitlines()]


async def run(script: Script, path: Path, data: bytes | None = None, **settings: Any) -> list[dict[str, Any]]:
    async with (
        ScriptedUpstream(script) as upstream,
        running(make_config(upstream.url, top={"transcript": str(path)}, **settings)) as proxy,
    ):
        await ask(proxy, data)
        await proxy.last()
    return lines(path)


async def test_a_complete_exchange_is_one_line(tmp_path: Path) -> None:
    (line,) = await run(WHOLE, tmp_path / "t", post(CHAT, QUESTION, "X-Request-ID: r-1"))
    assert line["requestId"] == "r-1"
    assert line["upstream"] == "host"
    assert line["route"] == CHAT
    assert line["request"] == json.loads(QUESTION)
    assert line["answer"] == answer_text("improvisation")
    assert line["meta"]["type"] == "routing"
    assert line["ledger"]["outcome"] == "complete"
    assert line["time"].endswith("+00:00")


async def test_the_twins_answer_is_in_it_too(tmp_path: Path) -> None:
    body = json.dumps({"naturalLanguageAnswer": "One. Two.", "agentId": "x"}).encode()
    script: Script = [head(200, [("Content-Type", "application/json")], length=len(body)), body]
    (line,) = await run(script, tmp_path / "t", source="json")
    assert (line["answer"], line["meta"]) == ("One. Two.", {"type": "routing", "agentId": "x"})


HALF = wire("improvisation")[:400]
BROKEN: dict[str, Script] = {
    "cut": [stream_head(), chunk(HALF), End()],
    "reset": [stream_head(), chunk(HALF), Reset()],
    "clean end": [stream_head(), chunk(HALF), last_chunk],
    "stall": [stream_head(), chunk(HALF), Stall()],
    "error object": [stream_head(), chunk(b'data: One. \n\ndata: {"error":"x"}\n\n'), last_chunk],
    "refused": [head(400, length=0)],
    "500": [head(500, length=0)],
    "json": [head(200, [("Content-Type", "application/json")], length=2), b"{}"],
}


@pytest.mark.parametrize("name", BROKEN)
async def test_a_failed_exchange_leaves_none(name: str, tmp_path: Path) -> None:
    assert await run(BROKEN[name], tmp_path / "t", idle_timeout="100ms") == []


async def test_a_stream_that_breaks_partway_between_two_whole_ones_leaves_the_file_clean(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_text('{"old":1}\n')

    def script(request: Request) -> Script:
        return [stream_head(), chunk(HALF), Reset()] if request.body == b"2" else WHOLE

    async with (
        ScriptedUpstream(script) as upstream,
        running(make_config(upstream.url, top={"transcript": str(path)})) as proxy,
    ):
        for body in (b"1", b"2", b"3"):
            await ask(proxy, post(CHAT, body))
        await proxy.last()
    assert [line.get("request") for line in lines(path)] == [None, 1, 3]


async def test_a_client_that_leaves_leaves_none(tmp_path: Path) -> None:
    async with (
        ScriptedUpstream([stream_head(), chunk(HALF), Stall()]) as upstream,
        running(make_config(upstream.url, top={"transcript": str(tmp_path / "t")})) as proxy,
    ):
        async with Client.open(proxy.port, post()) as client:
            await client.until(b"\r\n\r\n")
        await proxy.last()
    assert lines(tmp_path / "t") == []


async def test_many_at_once_are_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "t"
    async with (
        ScriptedUpstream(WHOLE) as upstream,
        running(make_config(upstream.url, top={"transcript": str(path)})) as proxy,
    ):
        await asyncio.gather(*(ask(proxy, post(CHAT, b"%d" % n)) for n in range(50)))
        await proxy.last()
    assert sorted(line["request"] for line in lines(path)) == list(range(50))


async def test_what_is_no_json_is_kept_as_text_and_what_is_large_not_at_all(tmp_path: Path) -> None:
    assert (await run(WHOLE, tmp_path / "a", post(CHAT, b"caf\xe9")))[0]["request"] == "caf\ufffd"
    assert (await run(WHOLE, tmp_path / "b", post(CHAT, b"x" * 1_100_000)))[0]["request"] == ""
    assert (await run(WHOLE, tmp_path / "c", post(CHAT, b"[" * 100_000)))[0]["request"] == "[" * 100_000


async def test_a_request_as_deep_as_json_allows_breaks_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await run(WHOLE, tmp_path / "t", post(CHAT, b"[" * 900 + b"]" * 900))
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_a_wrong_path_shows_at_once(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        Transcript(tmp_path / "none" / "t").check()


async def test_a_line_that_does_not_fit_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "t"
    real = os.write
    room = [30]

    def write(descriptor: int, data: bytes) -> int:
        if not room[0]:
            raise OSError(28, "No space left on device")
        written = real(descriptor, data[: room[0]])
        room[0] -= written
        return written

    monkeypatch.setattr("sse_proxy.server.transcript.os.write", write)
    transcript = Transcript(path)
    transcript.add({"n": 1})
    transcript.add({"n": "x" * 100})
    await transcript.close()
    room[0] = 1000
    transcript.add({"n": 3})
    await transcript.close()
    assert lines(path) == [{"n": 1}, {"n": 3}]
    assert "an exchange was not written: No space left on device" in caplog.text


async def test_a_pause_of_the_disk_does_not_hold_the_stream(tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        async with ScriptedUpstream(WHOLE) as upstream, running(make_config(upstream.url)) as proxy:
            proxy.proxy.services.transcript = transcript = Transcript(path)
            answer = await ask(proxy)
            assert answer.done == 1
            await transcript.close()
        await eventually(lambda: True)
    finally:
        os.close(reader)
