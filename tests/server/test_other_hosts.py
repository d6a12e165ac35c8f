"""Hosts that are not GaApi behind a running proxy: NDJSON, plain text, OpenAI's and AG-UI's events."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.fakes import ScriptedUpstream, Trickle, chunk, head, last_chunk
from tests.server.proxied import Answer, ask, post, running

PATH = "/generate"


async def answer_of(body: bytes, media_type: str, settings: dict[str, Any], *, size: int | None = None) -> Answer:
    """Ask a proxy, in front of a host that sends `body`, on a route with `settings`."""
    headers = [("Content-Type", media_type), ("Transfer-Encoding", "chunked")]
    pieces: list[Any] = [chunk(body)] if size is None else [Trickle(b"".join(map(chunk, cut(body, size))), 64)]
    script = (head(200, headers=headers), *pieces, last_chunk)
    routes = [{"path": PATH, "methods": ["POST"], "stream": settings}]
    async with (
        ScriptedUpstream(script) as upstream,
        running(f"http://127.0.0.1:{upstream.port}", preset="none", routes=routes) as proxy,
    ):
        return await ask(proxy, post(PATH, b'{"prompt":"hi"}'))


def cut(body: bytes, size: int) -> list[bytes]:
    return [body[at : at + size] for at in range(0, len(body), size)]


NDJSON = b"".join(json.dumps(value).encode() + b"\n" for value in [{"response": "Hel"}, {"response": "lo\n"}])
LINES: dict[str, Any] = {
    "dialect": "lines",
    "payload": "json",
    "done": False,
    "end_types": ["end"],
    "error_types": ["error"],
    "require_done": True,
}


@pytest.mark.parametrize("media_type", ["application/x-ndjson", "application/jsonl", "text/plain; charset=utf-8"])
@pytest.mark.parametrize("size", [None, 1, 7])
async def test_ndjson_becomes_one_event_a_line(media_type: str, size: int | None) -> None:
    body = NDJSON + b'{"type":"end"}'  # the last line without its end
    answer = await answer_of(body, media_type, LINES, size=size)
    assert answer.get("Content-Type") == "text/event-stream; charset=utf-8"
    assert [data for _, data in answer.events] == [line.decode() for line in body.split(b"\n")]
    assert answer.whole


async def test_ndjson_that_stops_early_or_tells_an_error_does_not_look_complete() -> None:
    cut_short = await answer_of(NDJSON, "application/x-ndjson", LINES)
    assert cut_short.error["code"] == "upstream_incomplete"
    assert [data for _, data in cut_short.events[:2]] == [line.decode() for line in NDJSON.splitlines()]
    failed = await answer_of(NDJSON + b'{"error":"out of memory"}\n', "application/x-ndjson", LINES)
    assert failed.events[-1] == ("message", '{"error":"out of memory"}')
    assert failed.errors == []
    assert failed.whole


RAW: dict[str, Any] = {"dialect": "raw", "payload": "text", "split": "sentence"}
PLAIN = "Première phrase. Deuxième:\n\n- data: x\n- [DONE]\n\nFin. Voilà"


@pytest.mark.parametrize("media_type", ["text/plain", "text/markdown; charset=utf-8"])
@pytest.mark.parametrize("size", [None, 1, 7])
async def test_plain_text_is_framed_and_cut_at_sentences(media_type: str, size: int | None) -> None:
    answer = await answer_of(PLAIN.encode(), media_type, RAW, size=size)
    chunks = [data for _, data in answer.events]
    assert "".join(chunks) == PLAIN
    if size is None:
        assert chunks == ["Première phrase. ", "Deuxième:\n\n- data: x\n- [DONE]\n\nFin. ", "Voilà"]
    assert answer.errors == []


async def test_html_is_no_plain_text() -> None:
    answer = await answer_of(b"<html>Sign in</html>", "text/html", RAW)
    assert answer.error["code"] == "upstream_not_event_stream"
    assert b"Sign in" not in answer.body


async def test_json_spread_over_lines_comes_out_as_one_event() -> None:
    settings: dict[str, Any] = {"dialect": "auto", "payload": "json", "split": "none", "done": "[DONE]"}
    value = json.dumps({"choices": [{"delta": {"content": "hi"}}]}, indent=2)
    answer = await answer_of(f"data: {value}\n\ndata: [DONE]\n\n".encode(), "text/event-stream", settings)
    [first, second] = [data for _, data in answer.events]
    assert json.loads(first) == json.loads(value)
    assert second == "[DONE]"
    assert answer.done == 1


async def test_an_openai_stream_passes_one_to_one_and_an_error_in_it_ends_it() -> None:
    settings: dict[str, Any] = {"dialect": "standard", "payload": "json", "split": "none", "done": "[DONE]"}
    token = 'data: {"choices":[{"delta":{"content":" chord"}}]}\n\n'
    good = f"{token * 3}data: [DONE]\n\n".encode()
    answer = await answer_of(good, "text/event-stream", settings)
    assert answer.body.endswith(good)
    broken = f'{token}data: {{"error":{{"message":"quota exceeded"}}}}\n\ndata: [DONE]\n\n'.encode()
    answer = await answer_of(broken, "text/event-stream", settings)
    assert [data for _, data in answer.events][-1] == '{"error":{"message":"quota exceeded"}}'
    assert (answer.done, answer.errors) == (0, [])


async def test_an_agui_run_that_is_cut_ends_in_an_event_its_client_knows() -> None:
    settings: dict[str, Any] = {
        "dialect": "standard",
        "payload": "json",
        "split": "none",
        "done": False,
        "end_types": ["RUN_FINISHED"],
        "error_types": ["RUN_ERROR"],
    }
    run = 'data: {"type":"RUN_STARTED"}\n\ndata: {"type":"TEXT_MESSAGE_CONTENT","delta":"Hi"}\n\n'
    answer = await answer_of(f'{run}data: {{"type":"RUN_FINISHED"}}\n\n'.encode(), "text/event-stream", settings)
    assert answer.events[-1] == ("message", '{"type":"RUN_FINISHED"}')
    assert answer.done == 0
    answer = await answer_of(run.encode(), "text/event-stream", settings)
    assert answer.error["type"] == "RUN_ERROR"
    assert answer.error["message"] == answer.error["error"]
