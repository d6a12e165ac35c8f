"""The history guard: failures that a page stored as answers do not go back to the host."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sse_proxy.server.history import SCRUB_LIMIT, scrub_history
from tests.fakes import ScriptedUpstream, chunk, last_chunk, stream_head
from tests.server.proxied import CHAT, ask, post, running

FAILED = {"role": "assistant", "content": '{"error":"Failed to process message. Please try again."}'}
ASKED = {"role": "user", "content": "which scale"}
GOOD = {"role": "assistant", "content": "A minor."}


def body_of(*turns: Any, **more: Any) -> bytes:
    return json.dumps({"message": "é", "conversationHistory": list(turns), **more}).encode()


def test_failures_are_removed_and_the_rest_stays_in_order() -> None:
    scrubbed = json.loads(scrub_history(body_of(ASKED, FAILED, ASKED, GOOD, useSemanticSearch=True)))
    assert scrubbed == {"message": "é", "conversationHistory": [ASKED, ASKED, GOOD], "useSemanticSearch": True}


@pytest.mark.parametrize(
    "content",
    [
        '{"error":"x","code":"upstream_stalled","status":504,"retryable":true,"requestId":"1"}',  # our own event's data
        ' {"error" : "x"}\n',
    ],
)
def test_every_form_of_a_failure_is_known(content: str) -> None:
    scrubbed = json.loads(scrub_history(body_of({"role": "assistant", "content": content})))
    assert scrubbed["conversationHistory"] == []


def test_all_other_bytes_stay_as_they_came() -> None:
    failed = json.dumps(FAILED)
    body = (
        '\ufeff{ "a": 1e999, "a":1.0E+2,\n "conversationHistory" : [ null , '
        f'{failed} ,\t{{"role":"user","content":"\\ud83d","n":0.1234567890123456789012345}}, {failed}] , "b":"é"}}'
    )
    left = body.replace(f"{failed} ,\t", "").replace(f", {failed}]", "]").replace("null , ", "null,")
    assert scrub_history(body.encode()).decode() == left


OURS = '{"error":"x {","code":"upstream_truncated","status":502,"retryable":true,"requestId":"1"}'


@pytest.mark.parametrize(("before", "left"), [("Half an answer. ", ["Half an answer. "]), (" \n", [])])
def test_an_error_of_ours_is_cut_off_the_text_before_it(before: str, left: list[str]) -> None:
    turn = {"role": "assistant", "content": before + OURS, "id": 7}
    scrubbed = json.loads(scrub_history(body_of(ASKED, turn)))["conversationHistory"]
    assert scrubbed == [ASKED, *({**turn, "content": text} for text in left)]


@pytest.mark.parametrize(
    "body",
    [
        body_of(ASKED, GOOD),
        body_of({"role": "assistant", "content": "It said " + OURS + " and more"}),
        body_of({"role": "assistant", "content": "It said " + OURS.replace("upstream_truncated", "E42")}),
        body_of({"role": "user", "content": FAILED["content"]}),
        body_of({"role": "assistant", "content": "The reply was " + FAILED["content"]}),
        body_of({"role": "assistant", "content": '{"error":7}'}),
        body_of({"role": "assistant", "content": '{"error":"x"} and more'}),
        body_of({"role": "assistant", "content": ["x"]}, "turn", None),
        b'{"conversationHistory": "none", "message":"\xc3\xa9"}',
        b'{"conversationHistory": [',
        b'[{"conversationHistory": []}]',
        b"conversationHistory=1",
        b'{"conversationHistory":' + b"[" * 100_000,
        b"\xff\xfe conversationHistory",
        b"",
    ],
)
def test_what_is_no_failure_stays_byte_for_byte(body: bytes) -> None:
    assert scrub_history(body) == body


def test_a_lone_surrogate_does_not_break_it() -> None:
    body = body_of(FAILED).replace(b'"\\u00e9"', b'"\\ud800"')
    assert b"error" not in scrub_history(body)


async def sent(body: bytes, *headers: str, **settings: Any) -> tuple[bytes, str | None]:
    """Return what the host is sent, and its length header."""
    async with (
        ScriptedUpstream([stream_head(), chunk(b"data: [DONE]\n\n"), last_chunk]) as upstream,
        running(upstream.url, **settings) as proxy,
    ):
        data = (
            post(CHAT, body, *headers)
            if not any("chunked" in header for header in headers)
            else (post(CHAT, b"", *headers, "Content-Type: application/json") + chunk(body) + last_chunk)
        )
        assert (await ask(proxy, data)).done == 1
        request = await upstream.request()
        assert request.get("Transfer-Encoding") is None or request.get("Content-Length") is None
        return request.body, request.get("Content-Length")


@pytest.mark.parametrize("headers", [(), ("Transfer-Encoding: chunked",)])
async def test_the_host_gets_the_scrubbed_request_with_its_length(headers: tuple[str, ...]) -> None:
    body, length = await sent(body_of(FAILED, GOOD), *headers)
    assert json.loads(body)["conversationHistory"] == [GOOD]
    assert length == str(len(body))


async def test_off_means_untouched() -> None:
    body = body_of(FAILED, GOOD)
    assert (await sent(body, scrub_history=False))[0] == body


async def test_observe_means_untouched() -> None:
    async with (
        ScriptedUpstream([stream_head(), last_chunk]) as upstream,
        running(upstream.url, mode="observe") as proxy,
    ):
        await ask(proxy, post(CHAT, body_of(FAILED)))
        assert (await upstream.request()).body == body_of(FAILED)


async def test_other_types_and_codings_are_untouched() -> None:
    body = body_of(FAILED)
    data = post(CHAT, b"", "Content-Type: text/plain", f"Content-Length: {len(body)}") + body
    coded = data.replace(b"Content-Type: text/plain", b"Content-Type: application/json\r\nContent-Encoding: x")
    async with (
        ScriptedUpstream([stream_head(), chunk(b"data: [DONE]\n\n"), last_chunk]) as upstream,
        running(upstream.url) as proxy,
    ):
        for each in (data, coded):
            await ask(proxy, each)
    assert [request.body for request in upstream.requests] == [body, body]


@pytest.mark.parametrize("headers", [(), ("Transfer-Encoding: chunked",)])
async def test_a_large_body_passes_untouched(headers: tuple[str, ...]) -> None:
    body = body_of(FAILED, {"role": "user", "content": "x" * SCRUB_LIMIT})
    assert (await sent(body, *headers))[0] == body
