"""`source: json`: the JSON twin's answer, written as a stream, exact for every version of the host."""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import Any

import pytest

from sse_proxy.config import JsonSource
from sse_proxy.core.ledger import Outcome
from sse_proxy.errors import FailureCode
from sse_proxy.server.json_source import TwinAnswer, TwinFailure, read_twin
from tests.fakes import End, Script, ScriptedUpstream, Stall, Wait, chunk, head
from tests.server.front import Client
from tests.server.proxied import CHAT, QUESTION, Answer, answer_text, ask, post, running

NAMES = ("improvisation", "voicings", "tables", "sse-lesson", "windows")
REPLY = {
    "naturalLanguageAnswer": "One. Two.",
    "agentId": "theory",
    "confidence": 0.9,
    "routingMethod": "semantic",
    "grounding": None,
    "elapsedMs": 12,
    "traceId": "abc",
    "trace": {"steps": []},
}
HTML = b"<html>Sign in at http://sso.internal.example</html>"


def reply(value: Any, status: int = 200, kind: str = "application/json", *headers: tuple[str, str]) -> Script:
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return [head(status, [("Content-Type", kind), *headers], length=len(body)), body]


async def stream(script: Script, **settings: Any) -> Answer:
    async with ScriptedUpstream(script) as upstream, running(upstream.url, source="json", **settings) as proxy:
        answer = await ask(proxy)
        await proxy.last()
        return answer


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("split", ["sentence", "line"])
async def test_the_answer_is_exact(name: str, split: str) -> None:
    answer = await stream(reply({**REPLY, "naturalLanguageAnswer": answer_text(name)}), split=split)
    assert answer.text == answer_text(name)
    assert (answer.status, answer.done, answer.errors) == (200, 1, [])
    assert len(answer.events) >= 3


async def test_a_windows_hosts_line_ends_become_line_feeds() -> None:
    answer = await stream(reply({**REPLY, "naturalLanguageAnswer": answer_text("windows").replace("\n", "\r\n")}))
    assert answer.text == answer_text("windows")


async def test_the_first_event_is_the_routing_object() -> None:
    answer = await stream(reply(REPLY))
    assert json.loads(answer.events[0][1]) == {
        "type": "routing",
        "agentId": "theory",
        "confidence": 0.9,
        "routingMethod": "semantic",
        "grounding": None,
        "trace": {"steps": []},
    }
    assert [data for _, data in answer.events[1:]] == ["One. ", "Two.", "[DONE]"]


async def test_the_twin_is_asked_the_clients_question() -> None:
    async with ScriptedUpstream(reply(REPLY)) as upstream, running(upstream.url + "/base", source="json") as proxy:
        sent = post(f"{CHAT}?lang=de", QUESTION, "Cookie: s=1", "Accept: text/event-stream", "Accept-Encoding: br")
        await ask(proxy, sent)
        request = await upstream.request()
    assert (request.method, request.target, request.body) == ("POST", "/base/api/chatbot/chat?lang=de", QUESTION)
    assert request.get("Cookie") == "s=1"
    assert [value for name, value in request.headers if name.lower() == "accept"] == ["application/json"]
    assert [value for name, value in request.headers if name.lower() == "accept-encoding"] == ["identity"]


async def test_the_twins_path_is_the_hosts_own() -> None:
    """It stands as the upstream sees it, so `strip_prefix` takes nothing off it."""
    async with ScriptedUpstream(reply(REPLY)) as upstream:
        settings = {"match": {"path": "/api"}, "strip_prefix": "/api"}
        async with running(upstream.url, source="json", **settings) as proxy:
            assert (await ask(proxy, post(f"/api{CHAT}"))).done == 1
            assert (await upstream.request()).target == "/api/chatbot/chat"


async def test_its_cookie_and_cors_headers_reach_the_page() -> None:
    extra = (("Set-Cookie", "ga=1"), ("Access-Control-Allow-Origin", "*"), ("ETag", '"1"'))
    answer = await stream(reply(REPLY, 200, "application/json", *extra))
    assert answer.get("Set-Cookie") == "ga=1"
    assert answer.get("Access-Control-Allow-Origin") == "*"
    assert answer.get("ETag") is None
    assert answer.get("Content-Type") == "text/event-stream; charset=utf-8"


async def test_keep_alives_while_the_host_computes() -> None:
    go = asyncio.Event()
    async with (
        ScriptedUpstream([Wait(go), *reply(REPLY)]) as upstream,
        running(upstream.url, source="json", keepalive="30ms") as proxy,
        Client.open(proxy.port, post()) as client,
    ):
        assert b" 200 " in await client.until(b"\r\n\r\n")
        for _ in range(3):
            await client.until(b": keep-alive\n\n\r\n")
        go.set()
        rest = await client.rest()
    assert rest.count(b"[DONE]") == 1
    assert b"data: Two.\n\n" in rest


async def test_keep_alives_while_the_reply_trickles() -> None:
    body = json.dumps(REPLY).encode()
    go = asyncio.Event()
    script: Script = [head(200, [("Content-Type", "application/json")], length=len(body)), body[:9], Wait(go), body[9:]]
    async with (
        ScriptedUpstream(script) as upstream,
        running(upstream.url, source="json", keepalive="30ms") as proxy,
        Client.open(proxy.port, post()) as client,
    ):
        for _ in range(3):
            await client.until(b": keep-alive\n\n\r\n")
        go.set()
        assert (await client.rest()).count(b"[DONE]") == 1


async def test_a_compressed_reply_is_read() -> None:
    body = gzip.compress(json.dumps(REPLY).encode())
    answer = await stream(reply(body, 200, "application/json", ("Content-Encoding", "gzip")))
    assert answer.text == "One. Two."


@pytest.mark.parametrize(
    ("script", "code", "status", "message"),
    [
        (reply({"error": "Service is busy"}, 503), "upstream_http_error", 503, "Service is busy"),
        (reply(HTML, 500, "text/html"), "upstream_http_error", 500, None),
        (reply({"error": "No model"}), "upstream_error", 502, "No model"),
        (reply(HTML, 200, "text/html"), "upstream_not_event_stream", 502, None),
        (reply(b'{"naturalLanguageAnswer": NaN}'), "upstream_not_event_stream", 502, None),
        (reply({"agentId": "x"}), "upstream_bad_response", 502, None),
        (reply({"naturalLanguageAnswer": 7}), "upstream_bad_response", 502, None),
        (reply([]), "upstream_bad_response", 502, None),
        ([head(200, length=99), b"{", End()], "upstream_truncated", 502, None),
        ([head(200, chunked=True), chunk(b"{"), End()], "upstream_truncated", 502, None),
        ([End()], "upstream_bad_response", 502, None),
        (reply(REPLY, 200, "application/json", ("Content-Encoding", "br")), "upstream_bad_response", 502, None),
        (reply(REPLY, 200, "application/json", ("Content-Encoding", "gzip")), "upstream_truncated", 502, None),
        (reply(gzip.compress(json.dumps(REPLY).encode())[:-9], 200, "", ("Content-Encoding", "gzip")),
         "upstream_truncated", 502, None),
    ],
    ids=["503", "500", "error", "html", "nan", "missing", "number", "list", "short", "cut", "closed", "br", "no gzip",
         "cut gzip"],
)  # fmt: skip
@pytest.mark.parametrize("early", [False, True])
async def test_no_answer_is_a_failure(script: Script, code: str, status: int, message: str | None, early: bool) -> None:
    answer = await stream(script, **({"commit_after": "1ms"} if early else {}))
    assert answer.status == 200
    assert (answer.error["code"], answer.error["status"]) == (code, status)
    assert answer.error["error"] == message or "The chat service failed. Please try again."
    assert b"internal.example" not in answer.body


@pytest.mark.parametrize("errors", ["event", "status"])
async def test_a_400_passes_on(errors: str) -> None:
    answer = await stream(reply({"error": "Message cannot be empty"}, 400), errors=errors)
    assert (answer.status, json.loads(answer.body)) == (400, {"error": "Message cannot be empty"})
    assert answer.get("Content-Type") == "application/json"


async def test_a_400_behind_an_early_head_is_a_failure() -> None:
    go = asyncio.Event()
    script: Script = [Wait(go), *reply({"error": "Message cannot be empty"}, 400)]
    async with (
        ScriptedUpstream(script) as upstream,
        running(upstream.url, source="json", commit_after="1ms") as proxy,
        Client.open(proxy.port, post()) as client,
    ):
        await client.until(b"\r\n\r\n")
        go.set()
        body = await client.rest()
    assert b'"error":"Message cannot be empty","code":"upstream_http_error","status":400,"retryable":false' in body


async def test_with_errors_status_a_503_is_a_503() -> None:
    answer = await stream(reply({"error": "Service is busy"}, 503), errors="status")
    assert answer.status == 503
    assert answer.error["error"] == "Service is busy"


async def test_a_silent_host_is_stalled() -> None:
    answer = await stream([Stall()], idle_timeout="100ms")
    assert answer.error["code"] == "upstream_stalled"


async def test_a_reply_beyond_max_event_is_too_large() -> None:
    body = json.dumps({"naturalLanguageAnswer": "x" * 200_000}).encode()
    assert (await stream(reply(body), max_event="128KiB", max_chunk="64KiB")).error["code"] == "event_too_large"
    bomb = reply(gzip.compress(body), 200, "application/json", ("Content-Encoding", "gzip"))
    assert (await stream(bomb, max_event="128KiB", max_chunk="64KiB")).error["code"] == "event_too_large"


async def test_a_reply_of_just_max_event_is_not() -> None:
    size = 128 * 1024
    empty = len(json.dumps({"naturalLanguageAnswer": ""}))
    body = json.dumps({"naturalLanguageAnswer": "x" * (size - empty)}).encode()
    assert len(body) == size
    assert (await stream(reply(body), max_event="128KiB", max_chunk="64KiB")).done == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("lone \\ud800 surrogate", "lone \ufffd surrogate"),
        ("pair \\ud83c\\udfb8 \U0001f3b8", "pair \U0001f3b8 \U0001f3b8"),
        ("[DONE]", "[DONE]"),
        ('{\\"error\\":\\"x\\"}', '{"error":"x"}'),
        ("a\\n\\ndata: b\\n\\nc", "a\n\ndata: b\n\nc"),
        ("", ""),
    ],
)
async def test_answers_that_look_like_something_else(text: str, expected: str) -> None:
    answer = await stream(reply(b'{"naturalLanguageAnswer":"' + text.encode() + b'"}'))
    assert answer.errors == []
    assert "".join(data for _, data in answer.events[1:-1]) == expected
    assert answer.events[-1] == ("message", "[DONE]")


async def test_the_outcome_is_complete() -> None:
    async with ScriptedUpstream(reply(REPLY)) as upstream, running(upstream.url, source="json") as proxy:
        await ask(proxy)
        ledger = (await proxy.last()).ledger
    assert (ledger.outcome, ledger.pieces, ledger.text_chars) == (Outcome.COMPLETE, 2, 9)
    assert ledger.bytes_in == len(json.dumps(REPLY))


# --- read_twin alone ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pointer", "value"),
    [("/a/b", {"a": {"b": "text"}}), ("/a/1", {"a": ["no", "text"]}), ("/x~1y~0", {"x/y~": "text"}), ("", "text")],
)
def test_the_pointer_finds_the_answer(pointer: str, value: Any) -> None:
    found = read_twin(json.dumps(value).encode(), JsonSource(path="/x", answer=pointer))
    assert isinstance(found, TwinAnswer)
    assert found.answer == "text"


@pytest.mark.parametrize("pointer", ["/a/9", "/a/-1", "/a/01", "/a/b", "/b/c/d"])
def test_a_pointer_to_nothing_is_told_as_such(pointer: str) -> None:
    found = read_twin(b'{"a":["text","text"],"b":"x"}', JsonSource(path="/x", answer=pointer))
    assert isinstance(found, TwinFailure)
    assert found.code is FailureCode.UPSTREAM_BAD_RESPONSE
    assert pointer in found.detail


def test_no_first_event_where_there_is_nothing_to_say() -> None:
    assert read_twin(b'{"a":"text"}', JsonSource(path="/x", answer="/a")) == TwinAnswer("", "text")


def test_deep_and_endless_replies_are_no_fault_of_ours() -> None:
    for body in (b"[" * 200_000, b"9" * 5000, b"\xff\xfe\x00", b""):
        found = read_twin(body, JsonSource(path="/x", answer="/a"))
        assert isinstance(found, TwinFailure)


async def test_a_number_beyond_json_does_not_reach_the_answer() -> None:
    twin = b'{"naturalLanguageAnswer":"Hi.","confidence":1e999,"agentId":"theory"}'
    script = [head(200, headers=[("Content-Type", "application/json"), ("Content-Length", str(len(twin)))]), twin]
    async with ScriptedUpstream(script) as upstream, running(upstream.url, source="json") as proxy:
        answer = await ask(proxy)
    assert [data for _, data in answer.events] == [
        '{"type":"routing","confidence":null,"agentId":"theory"}',
        "Hi.",
        "[DONE]",
    ]
