"""One stream through a whole proxy: what a correct, a broken and an old host's stream becomes, and its surroundings."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import Any

import pytest

from sse_proxy.core.ledger import Outcome
from tests.fakes import (
    Early,
    End,
    Request,
    Script,
    ScriptedUpstream,
    Stall,
    WaitForBody,
    chunk,
    head,
    last_chunk,
    stream_head,
)
from tests.server.front import Client
from tests.server.proxied import CHAT, QUESTION, answer_text, ask, make_config, post, running, wire

NAMES = ("improvisation", "voicings", "tables", "sse-lesson", "windows")


@pytest.mark.parametrize("writer", ["gaapi", "gachatbot"])
@pytest.mark.parametrize("name", NAMES)
async def test_the_answer_arrives_exactly(name: str, writer: str) -> None:
    async with (
        ScriptedUpstream([stream_head(), chunk(wire(name, "743", writer)), last_chunk]) as upstream,
        running(upstream.url) as proxy,
    ):
        answer = await ask(proxy)
        entry = await proxy.last()
    assert answer.text == answer_text(name)
    assert answer.status == 200
    assert (answer.done, answer.errors, answer.events[-1]) == (1, [], ("message", "[DONE]"))
    assert json.loads(answer.events[0][1])["type"] == "routing"
    assert entry.ledger.outcome is Outcome.COMPLETE
    assert entry.ledger.duration_s is not None


async def test_the_old_splitters_answer_gets_its_white_space_back() -> None:
    body = wire("improvisation", "a826864")
    async with ScriptedUpstream([stream_head(), chunk(body), last_chunk]) as upstream, running(upstream.url) as proxy:
        answer = await ask(proxy)
    assert answer.text == answer_text("improvisation").rstrip("\n")


async def test_the_head_is_a_streams_head_and_keeps_what_is_the_hosts_to_say() -> None:
    sent = [
        ("Set-Cookie", "a=1"),
        ("Set-Cookie", "b=2"),
        ("Access-Control-Allow-Origin", "https://page.example"),
        ("X-Trace", "7"),
        ("ETag", '"x"'),
        ("Last-Modified", "yesterday"),
        ("Connection", "X-Hop"),
        ("X-Hop", "1"),
    ]
    async with (
        ScriptedUpstream([stream_head(sent), chunk(b"data: hi\n\ndata: [DONE]\n\n"), last_chunk]) as upstream,
        running(upstream.url) as proxy,
    ):
        answer = await ask(proxy)
    assert answer.get("Content-Type") == "text/event-stream; charset=utf-8"
    assert answer.get("Cache-Control") == "no-cache, no-transform"
    assert answer.get("X-Accel-Buffering") == "no"
    assert [value for name, value in answer.headers if name == "Set-Cookie"] == ["a=1", "b=2"]
    assert answer.get("Access-Control-Allow-Origin") == "https://page.example"
    assert answer.get("X-Trace") == "7"
    names = [name.lower() for name, _ in answer.headers]
    assert not {"etag", "last-modified", "content-length", "content-encoding", "x-hop"} & set(names)
    assert len([name for name in names if name == "cache-control"]) == 1


async def test_head_and_first_comment_leave_with_the_upstreams_head() -> None:
    async with (
        ScriptedUpstream([stream_head(), Stall()]) as upstream,
        running(upstream.url) as proxy,
        Client.open(proxy.port, post()) as client,
    ):
        assert b" 200 " in await client.until(b"\r\n\r\n")
        assert await client.until(b": keep-alive\n\n\r\n") == b"e\r\n: keep-alive\n\n\r\n"


async def test_without_keep_alives_the_head_leaves_alone() -> None:
    async with (
        ScriptedUpstream([stream_head(), Stall()]) as upstream,
        running(upstream.url, keepalive=False) as proxy,
        Client.open(proxy.port, post()) as client,
    ):
        assert b" 200 " in await client.until(b"\r\n\r\n")


async def test_an_sdk_that_chokes_on_comments_gets_one_line_feed() -> None:
    async with (
        ScriptedUpstream([stream_head(), chunk(b"data: a\n\ndata: [DONE]\n\n"), last_chunk]) as upstream,
        running(upstream.url, keepalive_blank_line=False) as proxy,
    ):
        answer = await ask(proxy)
    assert answer.body.startswith(b": keep-alive\ndata: a\n\n")


async def test_text_arrives_while_the_upstream_still_computes() -> None:
    first = chunk(b"data: One. \n\ndata: Two")
    async with (
        ScriptedUpstream([stream_head(), first, Stall()]) as upstream,
        running(upstream.url) as proxy,
        Client.open(proxy.port, post()) as client,
    ):
        await client.until(b"data: One. \n\n")
        await client.until(b"data: Two\n\n")  # after max_hold


@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_old_and_new_clients_can_read_it(version: str) -> None:
    async with (
        ScriptedUpstream([stream_head(), chunk(wire("voicings")), last_chunk]) as upstream,
        running(upstream.url) as proxy,
    ):
        answer = await ask(proxy, post(version=version))
    assert answer.text == answer_text("voicings")
    assert (answer.get("Transfer-Encoding") == "chunked") is (version == "1.1")


async def test_a_connection_carries_one_stream_after_the_other() -> None:
    async with (
        ScriptedUpstream([stream_head(), chunk(wire("voicings")), last_chunk]) as upstream,
        running(upstream.url) as proxy,
        Client.open(proxy.port, post(last=False) * 2) as client,
    ):
        for _ in range(2):
            assert (await client.until(b"0\r\n\r\n")).count(b"[DONE]") == 1
        await proxy.last()
    assert upstream.connections == 2  # a POST never takes a used connection


async def test_the_host_gets_the_request_and_nothing_else() -> None:
    sent = post(
        f"{CHAT}?a=1&b=%2F",
        QUESTION,
        "Accept-Encoding: gzip, br",
        "Last-Event-ID: 41",
        "Cookie: s=1",
        "X-Forwarded-For: 1.2.3.4",
        "Connection: X-Hop",
        "X-Hop: 1",
        last=False,
    )
    async with (
        ScriptedUpstream([stream_head(), chunk(b"data: [DONE]\n\n"), last_chunk]) as upstream,
        running(upstream.url) as proxy,
        Client.open(proxy.port, sent) as client,
    ):
        await client.until(b"0\r\n\r\n")
        request = await upstream.request()
    assert request.target == f"{CHAT}?a=1&b=%2F"
    assert request.body == QUESTION
    assert request.get("Content-Length") == str(len(QUESTION))
    assert request.get("Host") == upstream.url.removeprefix("http://")
    assert request.get("Accept-Encoding") == "identity"
    assert request.get("Last-Event-ID") == "41"
    assert request.get("Cookie") == "s=1"
    assert request.get("X-Forwarded-For") == "127.0.0.1"
    assert request.get("X-Hop") is None
    assert [name for name, _ in request.headers].count("Content-Length") == 1


async def test_a_client_that_waits_for_a_100_gets_it_and_the_host_does_not_hear_of_it() -> None:
    expecting = post(CHAT, b"", "Expect: 100-continue", f"Content-Length: {len(QUESTION)}")
    async with (
        ScriptedUpstream([stream_head(), chunk(b"data: [DONE]\n\n"), last_chunk]) as upstream,
        running(upstream.url) as proxy,
        Client.open(proxy.port, expecting) as client,
    ):
        assert await client.until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.send(QUESTION)
        assert b"[DONE]" in await client.rest()
        request = await upstream.request()
    assert (request.body, request.get("Expect")) == (QUESTION, None)


async def test_the_host_may_be_asked_under_the_clients_name() -> None:
    async with (
        ScriptedUpstream([stream_head(), chunk(b"data: [DONE]\n\n"), last_chunk]) as upstream,
        running(upstream.url, host_header="client") as proxy,
    ):
        await ask(proxy)
        assert (await upstream.request()).get("Host") == "proxy.example"


async def test_a_large_chunked_upload_streams_through() -> None:
    body = b"x" * 3_000_000
    data = post(CHAT, b"", "Transfer-Encoding: chunked") + b"".join(
        chunk(body[at : at + 100_000]) for at in range(0, len(body), 100_000)
    )
    async with (
        ScriptedUpstream([stream_head(), chunk(b"data: [DONE]\n\n"), last_chunk]) as upstream,
        running(upstream.url) as proxy,
    ):
        answer = await ask(proxy, data + last_chunk)
        request = await upstream.request()
    assert answer.done == 1
    assert request.body == body
    assert request.get("Transfer-Encoding") == "chunked"


async def test_an_early_answer_ends_the_upload() -> None:
    async with (
        ScriptedUpstream([Early(), head(413, length=3), b"big", Stall()]) as upstream,
        running(upstream.url, scrub_history=False) as proxy,
    ):
        data = post(CHAT, b"", "Content-Length: 9000000", last=False) + b"x" * 1000
        async with Client.open(proxy.port, data) as client:
            answer = await client.until(b"\r\n\r\n")
            assert b" 413 " in answer
            assert b"Connection: close\r\n" in answer
            assert await client.exactly(3) == b"big"
        await upstream.client_closed()


async def test_the_answer_may_begin_before_the_request_has_ended() -> None:
    answer = chunk(b"data: [DONE]\n\n")
    script: Script = [Early(), stream_head(), chunk(b"data: a\n\n"), WaitForBody(), answer, last_chunk]
    async with ScriptedUpstream(script) as upstream, running(upstream.url, scrub_history=False) as proxy:
        data = post(CHAT, b"", "Transfer-Encoding: chunked", last=False) + chunk(b"1")
        async with Client.open(proxy.port, data) as client:
            await client.until(b"data: a\n\n")
            client.send(last_chunk)
            await client.until(b"[DONE]\n\n")


# --- what is not a stream ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [400, 401, 404, 429])
async def test_a_refusal_passes_on(status: int) -> None:
    reply = head(status, [("Content-Type", "application/json"), ("X-Why", "so")], length=11, reason="No Way")
    async with ScriptedUpstream([reply, b'{"error":1}', End()]) as upstream, running(upstream.url) as proxy:
        answer = await ask(proxy)
        entry = await proxy.last()
    assert (answer.status, answer.body, answer.get("X-Why")) == (status, b'{"error":1}', "so")
    assert answer.get("Content-Type") == "application/json"
    assert answer.get("Content-Length") == "11"
    assert entry.ledger.outcome is Outcome.PASSED_ON


@pytest.mark.parametrize("headers", [[], [("Content-Type", "text/event-stream")]])
async def test_a_refusal_in_the_form_of_an_event_is_framed_rightly(headers: list[tuple[str, str]]) -> None:
    body = b'data: {"error":"Message cannot be empty"}\n\n'
    async with (
        ScriptedUpstream([head(400, headers, length=len(body)), body]) as upstream,
        running(upstream.url) as proxy,
    ):
        answer = await ask(proxy)
    assert (answer.status, answer.whole) == (400, True)
    assert answer.events == [("message", '{"error":"Message cannot be empty"}')]
    assert answer.get("Content-Type") == "text/event-stream; charset=utf-8"


async def test_a_refusal_without_type_that_is_no_event_passes_on_untouched() -> None:
    async with ScriptedUpstream([head(400, length=7), b"data no"]) as upstream, running(upstream.url) as proxy:
        answer = await ask(proxy)
    assert (answer.status, answer.body, answer.get("Content-Type")) == (400, b"data no", None)


@pytest.mark.parametrize(("status", "extra"), [(204, []), (304, [("ETag", '"a"')]), (302, [("Location", "/login")])])
async def test_what_has_no_body_passes_on(status: int, extra: list[tuple[str, str]]) -> None:
    reply = head(status, extra, length=0 if status == 302 else None)
    async with ScriptedUpstream([reply]) as upstream, running(upstream.url) as proxy:
        answer = await ask(proxy)
        assert (await proxy.last()).ledger.outcome is Outcome.PASSED_ON
    assert (answer.status, answer.body, answer.whole) == (status, b"", True)
    assert extra == [pair for pair in answer.headers if pair[0] in ("ETag", "Location")]


@pytest.mark.parametrize("chunked", [True, False])
async def test_a_json_answer_passes_on(chunked: bool) -> None:
    body = b'{"answer":"no stream today"}'
    reply = head(200, [("Content-Type", "application/json")], chunked=chunked, length=None if chunked else len(body))
    script = [reply, chunk(body), last_chunk] if chunked else [reply, body]
    async with ScriptedUpstream(script) as upstream, running(upstream.url) as proxy:
        answer = await ask(proxy)
    assert (answer.status, answer.body, answer.get("Content-Type")) == (200, body, "application/json")


async def test_a_large_json_answer_passes_on_without_being_held_whole() -> None:
    body = b'{"answer":"' + b"x" * 3_000_000 + b'"}'
    reply = head(200, [("Content-Type", "application/json")], length=len(body))
    async with ScriptedUpstream([reply, body]) as upstream, running(upstream.url) as proxy:
        answer = await ask(proxy)
    assert answer.body == body
    assert answer.whole


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS"])
async def test_questions_about_the_route_are_plain_requests(method: str) -> None:
    reply = head(200, [("Content-Type", "text/event-stream"), ("Allow", "POST")], length=0)
    async with ScriptedUpstream([reply]) as upstream:
        routes = [{"path": "/events", "stream": {}}]
        async with running(upstream.url, routes=routes) as proxy:
            answer = await ask(proxy, post("/events", b"", method=method))
            request = await upstream.request()
    assert (answer.status, answer.get("Allow"), answer.body) == (200, "POST", b"")
    assert request.method == method
    assert answer.get("X-Accel-Buffering") is None


async def test_an_upgrade_on_a_stream_route_is_a_tunnel() -> None:
    accept = head(101, [("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Accept", "x")])
    async with (
        ScriptedUpstream([accept, b"frames", End()]) as upstream,
        running(upstream.url, routes=[{"path": "/events", "stream": {}}]) as proxy,
    ):
        upgrade = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: k", "Sec-WebSocket-Version: 13")
        async with Client.open(proxy.port, post("/events", b"", *upgrade, method="GET", last=False)) as client:
            assert b" 101 " in await client.until(b"\r\n\r\n")
            assert await client.exactly(6) == b"frames"


# --- content codings ---------------------------------------------------------------------------------------------


def _deflate(data: bytes, bits: int) -> bytes:
    coder = zlib.compressobj(wbits=bits)
    return coder.compress(data) + coder.flush()


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip", gzip.compress(wire("tables"))),
        ("gzip", gzip.compress(wire("tables")[:500]) + gzip.compress(wire("tables")[500:])),
        ("deflate", _deflate(wire("tables"), 15)),
        ("deflate", _deflate(wire("tables"), -15)),
        ("identity", wire("tables")),
    ],
    ids=["gzip", "two gzip members", "deflate", "bare deflate", "identity"],
)
async def test_a_compressed_stream_is_read(coding: str, body: bytes) -> None:
    cut = [chunk(body[at : at + 7]) for at in range(0, len(body), 7)]
    async with (
        ScriptedUpstream([stream_head([("Content-Encoding", coding)]), *cut, last_chunk]) as upstream,
        running(upstream.url) as proxy,
    ):
        answer = await ask(proxy)
    assert answer.text == answer_text("tables")
    assert (answer.done, answer.get("Content-Encoding")) == (1, None)


async def test_a_coding_that_cannot_be_read_passes_on_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    async with (
        ScriptedUpstream([stream_head([("Content-Encoding", "br")]), chunk(b"\x0b\x02"), last_chunk]) as upstream,
        running(upstream.url) as proxy,
    ):
        answer = await ask(proxy)
    assert (answer.status, answer.body, answer.get("Content-Encoding")) == (200, b"\x0b\x02", "br")
    assert "content coding 'br' cannot be read" in caplog.text


# --- readers, dialects -------------------------------------------------------------------------------------------


async def test_ga_clients_reader_gets_one_line_an_event() -> None:
    async with (
        ScriptedUpstream([stream_head(), chunk(wire("improvisation")), last_chunk]) as upstream,
        running(upstream.url, reader="ga-client") as proxy,
    ):
        answer = await ask(proxy)
    blocks = [block for block in answer.body.split(b"\n\n") if block and not block.startswith(b":")]
    assert all(block.count(b"\n") == 0 and block.startswith(b"data: ") for block in blocks)
    assert b"".join(b[6:] for b in blocks[1:-1]).replace(b"\r", b"\n").decode() == answer_text("improvisation")


async def test_agui_ends_at_its_own_last_event() -> None:
    body = b'data: {"type":"RUN_STARTED"}\n\ndata: {"type":"RUN_FINISHED"}\n\n'
    async with ScriptedUpstream([stream_head(), chunk(body), Stall()]) as upstream, running(upstream.url) as proxy:
        answer = await ask(proxy, post("/api/chatbot/agui/stream"))
        assert (await proxy.last()).ledger.outcome is Outcome.COMPLETE
    assert [data for _, data in answer.events] == ['{"type":"RUN_STARTED"}', '{"type":"RUN_FINISHED"}']


async def test_a_stream_without_a_type_is_one_if_it_looks_like_one() -> None:
    async with (
        ScriptedUpstream([head(200, chunked=True), chunk(wire("voicings")), last_chunk]) as upstream,
        running(upstream.url) as proxy,
    ):
        answer = await ask(proxy)
    assert answer.text == answer_text("voicings")


async def test_a_complete_stream_without_text_is_worth_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    async with (
        ScriptedUpstream([stream_head(), chunk(b"data: [DONE]\n\n"), last_chunk]) as upstream,
        running(upstream.url) as proxy,
    ):
        assert (await ask(proxy)).done == 1
        await proxy.last()
    line = next(record for record in caplog.records if record.getMessage().startswith("stream "))
    assert line.levelname == "WARNING"


async def test_a_prefix_of_the_upstreams_url_and_a_stripped_one() -> None:
    def script(request: Request) -> list[Any]:
        return [stream_head(), chunk(f"data: {request.target}\n\ndata: [DONE]\n\n".encode()), last_chunk]

    async with ScriptedUpstream(script) as upstream:
        config = make_config(upstream.url + "/base", match={"path": "/ga"}, strip_prefix="/ga")
        async with running(config) as proxy:
            answer = await ask(proxy, post(f"/ga{CHAT}?q=1"))
    assert answer.text == f"/base{CHAT}?q=1"
