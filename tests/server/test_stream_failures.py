"""Every row of the failures table: before our head and behind it, as an event and as a status (design section 6)."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from sse_proxy.core.ledger import Outcome
from sse_proxy.core.pipeline import Pipeline
from sse_proxy.errors import FailureCode
from sse_proxy.server.treatment import StreamTreatment
from tests.fakes import (
    End,
    Reset,
    Script,
    ScriptedUpstream,
    Stall,
    Wait,
    chunk,
    eventually,
    free_port,
    head,
    last_chunk,
    stream_head,
)
from tests.server.front import Client
from tests.server.proxied import CHAT, Answer, Running, ask, post, running

DEFAULT_MESSAGE = "The chat service failed. Please try again."
BUSY = "Service is busy"
SECRET = "db-7.internal.example"
HTML = f"<html><h1>NullReferenceException at {SECRET} /srv/app/Chat.cs:line 7</h1></html>".encode()
EVENTS = [{"path": "/events", "methods": ["GET"], "stream": {}}]


@dataclass
class Case:
    """One way to fail.

    Attributes:
        script: what the upstream does behind its head or in place of it.
        headless: there is no stream's head: the failure comes before our own.
    """

    script: Script
    code: FailureCode
    status: int
    retryable: bool
    headless: bool = True
    message: str = DEFAULT_MESSAGE
    settings: dict[str, Any] = field(default_factory=dict)


def _json(value: Any) -> Script:
    body = json.dumps(value).encode()
    return [head(200, [("Content-Type", "application/json; charset=utf-8")], length=len(body)), body]


def _html(status: int) -> Script:
    return [head(status, [("Content-Type", "text/html")], length=len(HTML)), HTML]


def _stream(*steps: Any) -> Script:
    return [stream_head(), *steps]


C = FailureCode
TEXT = chunk(b"data: One. \n\ndata: Two")
CASES: dict[str, Case] = {
    "closed": Case([End()], C.UPSTREAM_BAD_RESPONSE, 502, True),
    "reset": Case([Reset()], C.UPSTREAM_BAD_RESPONSE, 502, True),
    "garbage": Case([b"SSH-2.0-OpenSSH\r\n", End()], C.UPSTREAM_BAD_RESPONSE, 502, True),
    "half a head": Case([b"HTTP/1.1 200 OK\r\nContent-Ty", End()], C.UPSTREAM_BAD_RESPONSE, 502, True),
    "two lengths": Case(
        [b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"], C.UPSTREAM_BAD_RESPONSE, 502, True
    ),
    "500": Case(_html(500), C.UPSTREAM_HTTP_ERROR, 500, True),
    "502": Case(_html(502), C.UPSTREAM_HTTP_ERROR, 502, True),
    "503": Case(
        [head(503, [("Content-Type", "application/json")], chunked=True), chunk(b'{"error":"' + BUSY.encode() + b'"}'),
         last_chunk],
        C.UPSTREAM_HTTP_ERROR, 503, True, message=BUSY,
    ),
    "500 that breaks off": Case(
        [head(500, [("Content-Type", "text/html")], length=9999), HTML, Reset()], C.UPSTREAM_HTTP_ERROR, 500, True
    ),
    "500 that never ends": Case(
        [head(500, [("Content-Type", "text/html")], length=9999), HTML, Stall()], C.UPSTREAM_HTTP_ERROR, 500, True
    ),
    "500 that is large": Case(
        [head(500, [("Content-Type", "text/html")], chunked=True), chunk(HTML * 2000), Stall()],
        C.UPSTREAM_HTTP_ERROR, 500, True,
    ),
    "html": Case(_html(200), C.UPSTREAM_NOT_EVENT_STREAM, 502, False),
    "image": Case(
        [head(200, [("Content-Type", "image/png")], length=4), b"\x89PNG"], C.UPSTREAM_NOT_EVENT_STREAM, 502, False
    ),
    "json error": Case(_json({"error": "No model"}), C.UPSTREAM_ERROR, 502, True, message="No model"),
    "json error of a host that tells too much": Case(
        _json({"error": f"cannot connect to {SECRET}:5432"}), C.UPSTREAM_ERROR, 502, True
    ),
    "json error object": Case(
        _json({"error": {"message": "Quota is used up", "code": 7}}), C.UPSTREAM_ERROR, 502, True,
        message="Quota is used up",
    ),
    "json that breaks off": Case(
        [head(200, [("Content-Type", "application/json")], length=999), b'{"error"', End()],
        C.UPSTREAM_TRUNCATED, 502, True,
    ),
    "no head": Case([Stall()], C.UPSTREAM_STALLED, 504, True, settings={"idle_timeout": "100ms"}),
    "no head in all": Case([Stall()], C.TIMED_OUT, 504, True, settings={"total_timeout": "100ms"}),
    # From here on our head has left with the upstream's.
    "html in a stream": Case(_stream(chunk(HTML), last_chunk), C.UPSTREAM_NOT_EVENT_STREAM, 502, False, False),
    "error object": Case(
        _stream(TEXT, chunk(b'\n\ndata: {"error":"Failed to process message. Please try again."}\n\n'), last_chunk),
        C.UPSTREAM_ERROR, 502, True, False, "Failed to process message. Please try again.",
    ),
    "error event": Case(
        _stream(chunk(b"data: One. \n\nevent: error\ndata: Out of tokens\n\n"), last_chunk),
        C.UPSTREAM_ERROR, 502, True, False, "Out of tokens",
    ),
    "idle": Case(_stream(TEXT, Stall()), C.UPSTREAM_STALLED, 504, True, False, settings={"idle_timeout": "100ms"}),
    "stall": Case(_stream(TEXT, Stall()), C.UPSTREAM_STALLED, 504, True, False, settings={"stall_timeout": "100ms"}),
    "cut chunk": Case(_stream(TEXT, b"ff\r\nabc", End()), C.UPSTREAM_TRUNCATED, 502, True, False),
    "no last chunk": Case(_stream(TEXT, End()), C.UPSTREAM_TRUNCATED, 502, True, False),
    "rst": Case(_stream(TEXT, Reset()), C.UPSTREAM_TRUNCATED, 502, True, False),
    "broken chunk": Case(_stream(TEXT, b"zz\r\n"), C.UPSTREAM_TRUNCATED, 502, True, False),
    "short length": Case(
        [head(200, [("Content-Type", "text/event-stream")], length=999), b"data: One. \n\n", End()],
        C.UPSTREAM_TRUNCATED, 502, True, False,
    ),
    "no marker": Case(_stream(TEXT, last_chunk), C.UPSTREAM_INCOMPLETE, 502, True, False),
    "no marker, closed": Case(
        [stream_head(chunked=False), b"data: One. \n\n", End()], C.UPSTREAM_INCOMPLETE, 502, True, False
    ),
    "empty": Case(_stream(last_chunk), C.UPSTREAM_EMPTY, 502, True, False),
    "comments only": Case(_stream(chunk(b": a\n\n: b\n\n"), last_chunk), C.UPSTREAM_EMPTY, 502, True, False),
    "no bytes": Case(
        [head(200, [("Content-Type", "text/event-stream")], length=0)], C.UPSTREAM_EMPTY, 502, True, False
    ),
    "too large": Case(
        _stream(chunk(b"event: x\ndata: " + b"y" * 300_000), Stall()), C.EVENT_TOO_LARGE, 502, False, False,
        settings={"max_event": "128KiB", "dialect": "standard", "payload": "json", "split": "none"},
    ),
    "total": Case(_stream(TEXT, Stall()), C.TIMED_OUT, 504, True, False, settings={"total_timeout": "100ms"}),
    "gzip cut": Case(
        [stream_head([("Content-Encoding", "gzip")]), chunk(b"\x1f\x8b\x08\x00\x00\x00"), last_chunk],
        C.UPSTREAM_TRUNCATED, 502, True, False,
    ),
    "no gzip": Case(
        [stream_head([("Content-Encoding", "gzip")]), chunk(b"data: plain\n\n"), last_chunk],
        C.UPSTREAM_TRUNCATED, 502, True, False,
    ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def no_traceback(caplog: pytest.LogCaptureFixture) -> Any:
    """No failure of an upstream is worth a traceback."""
    with caplog.at_level(logging.INFO):
        yield
        assert not [record for record in caplog.get_records("call") if record.exc_info]
        assert not [record for record in caplog.get_records("call") if record.levelno >= logging.ERROR]


def check(answer: Answer, case: Case, *, status: int = 200) -> dict[str, Any]:
    """The answer is this failure, told in the one way; return the event's data."""
    assert answer.status == status
    error = answer.error
    assert error.pop("requestId")
    assert error == {
        "error": case.message,
        "code": str(case.code),
        "status": case.status,
        "retryable": case.retryable,
    }
    assert b"id:" not in answer.body
    for secret in (SECRET.encode(), b"127.0.0.1", b"Exception", b"Traceback", b"<h1>", b"Errno"):
        assert secret not in answer.body
    if not case.headless:
        assert answer.text in ("One. Twoabc", "One. Two", "One. ", "")
    return error


async def fail(case: Case, data: bytes | None = None, **settings: Any) -> Answer:
    async with (
        ScriptedUpstream(case.script) as upstream,
        running(upstream.url, **{**case.settings, **settings}) as proxy,
    ):
        answer = await ask(proxy, data)
        entry = await proxy.last()
        assert entry.ledger.outcome is Outcome.FAILED
        assert entry.ledger.code is case.code
        assert len(entry.ledger.log_detail) <= 2048
        failures = proxy.proxy.metrics.render()[0].decode()
        assert f'sse_proxy_failures_total{{code="{case.code}",upstream="host"}} 1.0' in failures
        return answer


@pytest.mark.parametrize("name", CASES)
async def test_a_failure_is_an_event_at_the_end(name: str) -> None:
    check(await fail(CASES[name]), CASES[name])


@pytest.mark.parametrize("name", CASES)
async def test_with_errors_status_it_is_the_status_where_our_head_can_still_say_it(name: str) -> None:
    case = CASES[name]
    answer = await fail(case, errors="status")
    check(answer, case, status=case.status if case.headless else 200)
    assert answer.body.startswith(b"event: error\n" if case.headless else b": keep-alive\n\n")
    assert answer.get("Content-Type") == "text/event-stream; charset=utf-8"


async def test_a_status_that_is_known_is_not_lost_to_a_head_that_was_due() -> None:
    case = CASES["500 that never ends"]
    answer = await fail(case, errors="status", commit_after="100ms", keepalive="100ms")
    check(answer, case, status=500)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.headless])
async def test_behind_an_early_head_it_is_the_same_event(name: str) -> None:
    """`commit_after` has let our head go; with `errors: status` too it can only be the event."""
    case = CASES[name]
    settings = {**case.settings, "commit_after": "1ms", "errors": "status"}
    async with early(case.script, settings) as (proxy, client):
        body = await client.rest()
        entry = await proxy.last()
    assert body.endswith(b"0\r\n\r\n")
    payload = [line for line in body.split(b"\n") if line.startswith(b'data: {"error"')]
    assert len(payload) == 1
    error = json.loads(payload[0][6:])
    assert (error["code"], error["status"], error["retryable"]) == (str(case.code), case.status, case.retryable)
    assert error["error"] == case.message
    assert entry.ledger.code is case.code


@asynccontextmanager
async def early(script: Script, settings: dict[str, Any]) -> AsyncIterator[tuple[Running, Client]]:
    """A stream whose 200 head and first comment are out before the upstream says anything."""
    go = asyncio.Event()
    async with (
        ScriptedUpstream([Wait(go), *script]) as upstream,
        running(upstream.url, **settings) as proxy,
        Client.open(proxy.port, post()) as client,
    ):
        assert b" 200 " in await client.until(b"\r\n\r\n")
        await client.until(b": keep-alive\n\n\r\n")
        go.set()
        yield proxy, client


LATE: dict[str, tuple[Script, FailureCode, int, bool]] = {
    "400": ([head(400, [("Content-Type", "application/json")], length=13), b'{"error":"x"}'],
            C.UPSTREAM_HTTP_ERROR, 400, False),
    "400 as event": ([head(400, length=18), b'data: {"error":1}\n'], C.UPSTREAM_HTTP_ERROR, 400, False),
    "429": ([head(429, length=0)], C.UPSTREAM_HTTP_ERROR, 429, False),
    "302": ([head(302, [("Location", f"http://{SECRET}/login")], length=0)], C.UPSTREAM_HTTP_ERROR, 302, False),
    "304": ([head(304)], C.UPSTREAM_HTTP_ERROR, 304, False),
    "204": ([head(204)], C.UPSTREAM_EMPTY, 502, True),
    "206": ([head(206, length=2), b"ab"], C.UPSTREAM_NOT_EVENT_STREAM, 502, False),
    "json": (_json({"answer": "no stream"}), C.UPSTREAM_NOT_EVENT_STREAM, 502, False),
    "br": ([stream_head([("Content-Encoding", "br")]), chunk(b"\x0b"), last_chunk],
           C.UPSTREAM_NOT_EVENT_STREAM, 502, False),
}  # fmt: skip


@pytest.mark.parametrize("name", LATE)
async def test_what_comes_too_late_to_pass_on_is_a_failure(name: str) -> None:
    script, code, status, retryable = LATE[name]
    async with early(script, {"commit_after": "1ms"}) as (_, client):
        body = await client.rest()
    error = json.loads(next(line for line in body.split(b"\n") if line.startswith(b'data: {"error"'))[6:])
    assert (error["code"], error["status"], error["retryable"]) == (str(code), status, retryable)
    assert SECRET.encode() not in body
    assert body.endswith(b"0\r\n\r\n")


async def test_a_stream_behind_an_early_head_is_whole() -> None:
    script: Script = [stream_head(), chunk(b"data: hi\n\ndata: [DONE]\n\n"), last_chunk]
    async with early(script, {"commit_after": "1ms"}) as (_, client):
        body = await client.rest()
    assert b"data: hi\n\n" in body
    assert body.count(b"[DONE]") == 1


async def test_a_json_that_is_held_while_our_head_leaves_is_a_failure() -> None:
    script: Script = [head(200, [("Content-Type", "application/json")], length=5), b"[1", Stall()]
    async with (
        ScriptedUpstream(script) as upstream,
        running(upstream.url, commit_after="100ms", idle_timeout="400ms") as proxy,
    ):
        answer = await ask(proxy)
    assert answer.error["code"] == "upstream_stalled"


# --- no connection ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("errors", ["event", "status"])
async def test_nobody_listens(errors: str) -> None:
    async with running(f"http://127.0.0.1:{free_port()}", connect_timeout="100ms", errors=errors) as proxy:
        answer = await ask(proxy)
    case = Case([], C.UPSTREAM_UNREACHABLE, 502, True)
    check(answer, case, status=200 if errors == "event" else 502)


async def test_a_name_that_is_not_found() -> None:
    async with running("http://no-such-host.invalid:1", connect_timeout="500ms") as proxy:
        answer = await ask(proxy)
    check(answer, Case([], C.UPSTREAM_UNREACHABLE, 502, True))
    assert b"no-such-host" not in answer.body


async def test_no_tls_where_tls_was_expected() -> None:
    async with (
        ScriptedUpstream([b"HTTP/1.1 400 Bad\r\n\r\n", End()]) as upstream,
        running(upstream.url.replace("http:", "https:"), connect_timeout="500ms") as proxy,
    ):
        answer = await ask(proxy)
    check(answer, Case([], C.UPSTREAM_UNREACHABLE, 502, True))


async def test_a_connection_that_never_comes_about() -> None:
    with socket.socket() as full:  # its queue is full: what connects further is not answered
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        waiting = []
        for _ in range(4):
            other = socket.socket()
            other.setblocking(False)
            other.connect_ex(("127.0.0.1", port))
            waiting.append(other)
        try:
            async with running(f"http://127.0.0.1:{port}", connect_timeout="200ms") as proxy:
                answer = await ask(proxy)
        finally:
            for other in waiting:
                other.close()
    check(answer, Case([], C.UPSTREAM_UNREACHABLE, 502, True))


# --- the event's form ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["closed", "rst"])
async def test_a_page_that_reconnects_does_so_slowly(name: str) -> None:
    answer = await fail(CASES[name], post("/events", b"", method="GET"), routes=EVENTS, done="[DONE]")
    assert answer.body.count(b"retry: 5000\n") == 1
    assert b"id:" not in answer.body


async def test_a_post_is_told_no_reconnection_time() -> None:
    assert b"retry:" not in (await fail(CASES["closed"])).body


@pytest.mark.parametrize("event", ["failure", False])
async def test_the_events_name_is_a_setting(event: str | bool) -> None:
    answer = await fail(CASES["closed"], error_event=event)
    kind, data = answer.events[-1]
    assert kind == (event or "message")
    assert json.loads(data)["code"] == "upstream_bad_response"


async def test_it_carries_the_requests_id_and_the_settings_message() -> None:
    answer = await fail(CASES["500"], post(CHAT, b"{}", "X-Request-ID: abc-1"), error_message="Später noch einmal.")
    assert answer.error["requestId"] == "abc-1"
    assert answer.error["error"] == "Später noch einmal."


async def test_the_log_has_what_the_reader_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    await fail(CASES["500"], post(CHAT, b"{}", "X-Request-ID: abc-1"))
    lines = [record for record in caplog.records if SECRET in record.getMessage()]
    assert len(lines) == 1
    assert "abc-1" in lines[0].getMessage()


async def test_the_log_gets_two_kibibytes_of_it_at_most(caplog: pytest.LogCaptureFixture) -> None:
    await fail(CASES["500 that is large"])
    line = next(record for record in caplog.records if record.getMessage().startswith("stream "))
    assert len(line.getMessage()) < 3000


# --- faults of our own --------------------------------------------------------------------------------------------


def _raise(*_: Any, **__: Any) -> Any:
    raise RuntimeError(f"a bug, with {SECRET} in it")


@pytest.fixture
def bug(caplog: pytest.LogCaptureFixture) -> Callable[[], None]:
    def check_log() -> None:
        faults = [record for record in caplog.records if record.levelno >= logging.ERROR]
        assert len(faults) == 1
        assert "a fault of the proxy: RuntimeError" in faults[0].getMessage()
        assert not faults[0].exc_info
        caplog.clear()

    return check_log


@pytest.mark.parametrize("method", ["feed", "close", "tick"])
async def test_a_bug_in_the_repair_is_an_internal_failure(
    method: str, monkeypatch: pytest.MonkeyPatch, bug: Callable[[], None]
) -> None:
    monkeypatch.setattr(Pipeline, method, _raise)
    script = _stream(TEXT, last_chunk) if method != "tick" else _stream(TEXT, Stall())
    check(await fail(Case(script, C.INTERNAL, 500, True, False)), Case([], C.INTERNAL, 500, True, False))
    bug()


async def test_a_bug_that_leaves_no_pipeline_to_tell_it(
    monkeypatch: pytest.MonkeyPatch, bug: Callable[[], None]
) -> None:
    def feed(self: Pipeline, *_: Any) -> bytes:
        self.fail = _raise  # type: ignore[method-assign]
        raise RuntimeError("a bug")

    monkeypatch.setattr(Pipeline, "feed", feed)
    case = Case(_stream(TEXT, Stall()), C.INTERNAL, 500, True, False)
    check(await fail(case), case)
    bug()


@pytest.mark.parametrize("errors", ["event", "status"])
async def test_a_bug_before_the_head(errors: str, monkeypatch: pytest.MonkeyPatch, bug: Callable[[], None]) -> None:
    monkeypatch.setattr(StreamTreatment, "take_head", _raise)
    case = Case(_stream(TEXT, Stall()), C.INTERNAL, 500, True)
    check(await fail(case, errors=errors), case, status=200 if errors == "event" else 500)
    bug()


async def test_a_bug_while_asking(monkeypatch: pytest.MonkeyPatch, bug: Callable[[], None]) -> None:
    monkeypatch.setattr("sse_proxy.server.ask.connect", _raise)
    check(await fail(Case([], C.INTERNAL, 500, True)), Case([], C.INTERNAL, 500, True))
    bug()


# --- what breaks off while it is passed on --------------------------------------------------------------------------


@pytest.mark.parametrize("end", [End(), Reset()])
@pytest.mark.parametrize("chunked", [True, False])
async def test_an_answer_that_is_passed_on_and_cut_does_not_look_whole(end: End | Reset, chunked: bool) -> None:
    go = asyncio.Event()
    body = b'{"answer":"' + b"x" * 2_000_000 + b" mark"
    reply = head(200, [("Content-Type", "application/json")], chunked=chunked, length=None if chunked else 9_000_000)
    script: Script = [reply, chunk(body) if chunked else body, Wait(go), end]
    async with ScriptedUpstream(script) as upstream, running(upstream.url) as proxy:
        async with Client.open(proxy.port, post()) as client:
            await client.until(b"\r\n\r\n")
            await client.exactly(2_000_000)
            await client.until(b" mark")
            go.set()
            assert await client.rest() == (b"\r\n" if chunked else b"")
        entry = await proxy.last()
    assert entry.ledger.code is C.UPSTREAM_TRUNCATED


# --- the request's own faults ---------------------------------------------------------------------------------------


async def test_a_broken_request_body_is_the_clients_fault(caplog: pytest.LogCaptureFixture) -> None:
    async with ScriptedUpstream([stream_head()]) as upstream, running(upstream.url) as proxy:
        async with Client.open(proxy.port, post(CHAT, b"", "Transfer-Encoding: chunked")) as client:
            await eventually(lambda: upstream.connections)
            client.send(b"zz\r\nno chunk\r\n")
            assert b" 400 " in await client.until(b"\r\n\r\n")
        entry = await proxy.last()
    assert entry.ledger.outcome is Outcome.CLIENT_GONE
    assert [record for record in caplog.records if " 400 client_gone" in record.getMessage()]


async def test_a_request_body_that_stops_coming_is_no_stalled_upstream() -> None:
    async with ScriptedUpstream([stream_head()]) as upstream:
        top = {"body_timeout": "400ms"}
        async with running(upstream.url, top=top, idle_timeout="100ms") as proxy:
            async with Client.open(proxy.port, post(CHAT, b"", "Content-Length: 99") + b"{") as client:
                assert b" 408 " in await client.until(b"\r\n\r\n")
            await eventually(lambda: proxy.idle)
