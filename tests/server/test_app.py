"""The proxy as a whole: which request goes where, and what the log says of it."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from sse_proxy.config import LogSettings, parse_config
from sse_proxy.server.log import JsonFormatter, set_up_logging
from tests.fakes import End, Request, Script, ScriptedUpstream, Stall, chunk, head, last_chunk, stream_head
from tests.server.front import Client
from tests.server.proxied import CHAT, ask, post, running

WHOLE: Script = [stream_head(), chunk(b'data: {"type":"routing"}\n\ndata: One. \n\ndata: [DONE]\n\n'), last_chunk]


def named(word: str) -> Any:
    def script(request: Request) -> Script:
        body = f"{word} {request.target}".encode()
        return [head(200, [("Content-Type", "text/plain")], length=len(body)), body]

    return script


async def test_requests_go_by_path_then_host() -> None:
    async with (
        ScriptedUpstream(named("root")) as root,
        ScriptedUpstream(named("api")) as api,
        ScriptedUpstream(named("hosted")) as hosted,
    ):
        entries = [
            {"name": "root", "url": root.url, "preset": "none", "match": {"path": "/here"}},
            {"name": "api", "url": api.url, "preset": "none", "match": {"path": "/here/api"}},
            {"name": "hosted", "url": hosted.url, "preset": "none", "match": {"path": "/here", "host": "b.example"}},
        ]
        config = parse_config(json.dumps({"admin": False, "upstreams": entries}), {})
        async with running(config) as proxy:

            async def get(path: str, host: str = "a.example") -> tuple[int, bytes]:
                request = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
                answer = await ask(proxy, request)
                return answer.status, answer.body

            assert await get("/here/x?y=1") == (200, b"root /here/x?y=1")
            assert await get("/here/api/x") == (200, b"api /here/api/x")
            assert await get("/here/apix") == (200, b"root /here/apix")
            assert await get("/here", "B.example:80") == (200, b"hosted /here")
            assert (await get("/elsewhere"))[0] == 404


async def test_nobodys_path_is_a_404_problem_with_the_requests_id() -> None:
    async with ScriptedUpstream([End()]) as upstream, running(upstream.url, match={"path": "/here"}) as proxy:
        answer = await ask(proxy, post("/", b"", "X-Request-ID: r-9", method="GET"))
        metrics = proxy.proxy.metrics.render()[0].decode()
    assert answer.status == 404
    assert answer.get("Content-Type") == "application/problem+json"
    assert json.loads(answer.body)["requestId"] == "r-9"
    assert 'sse_proxy_requests_total{status="404",upstream="none"} 1.0' in metrics


@pytest.mark.parametrize("method", ["GET", "PUT"])
async def test_another_method_on_a_stream_route_is_a_plain_request(method: str) -> None:
    async with ScriptedUpstream([head(405, [("Allow", "POST")], length=0)]) as upstream, running(upstream.url) as proxy:
        answer = await ask(proxy, post(CHAT, b"", method=method))
        assert not proxy.proxy.registry.recent()
    assert (answer.status, answer.get("Allow")) == (405, "POST")


# --- the log ------------------------------------------------------------------------------------------------------

REQUESTS: dict[str, tuple[Script, bytes, str, int, bool]] = {
    "stream": (WHOLE, post(), "complete", 200, True),
    "failed": ([End()], post(), "failed", 200, True),
    "refused": ([head(400, length=0)], post(), "passed_on", 400, True),
    "undeclared": ([stream_head(), chunk(b"data: a\n\n"), last_chunk], post("/events"), "complete", 200, True),
    "plain": ([head(200, length=0)], post("/plain?secret=1"), "", 200, False),
    "plain failed": ([End()], post("/plain"), "", 502, False),
}


@pytest.mark.parametrize("name", REQUESTS)
async def test_one_line_a_request_with_the_ledger_of_a_stream(name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    script, data, outcome, status, stream = REQUESTS[name]
    async with ScriptedUpstream(script) as upstream, running(upstream.url) as proxy:
        await ask(proxy, data)
        if stream:
            await proxy.last()
    told = [record for record in caplog.records if record.name.startswith("sse_proxy")]
    assert len(told) == 1
    fields = told[0].__dict__["fields"]
    if name == "plain failed":
        assert fields["detail"].startswith("upstream_bad_response: ")
        assert fields["detail"] in told[0].getMessage()
    assert fields["status"] == status
    assert fields["method"] == "POST"
    assert fields["upstream"] == "host"
    assert "secret" not in told[0].getMessage()
    if stream:
        assert fields["ledger"]["outcome"] == outcome
        assert set(fields["ledger"]) == {
            "dialect", "outcome", "code", "bytes_in", "bytes_out", "frames_in", "events_out", "pieces", "text_chars",
            "repairs", "dropped_bytes", "keepalives", "first_text_s", "duration_s",
        }  # fmt: skip
        assert told[0].getMessage().startswith(f"stream {fields['request_id']} POST ")
    else:
        assert "ledger" not in fields
    entry = json.loads(JsonFormatter().format(told[0]))
    assert entry["message"] == ("stream" if stream else "request")
    assert entry["request_id"] == fields["request_id"]
    assert entry["time"].endswith("Z")


async def test_the_ledger_adds_up() -> None:
    async with ScriptedUpstream(WHOLE) as upstream, running(upstream.url) as proxy:
        answer = await ask(proxy)
        ledger = (await proxy.last()).ledger
    assert ledger.bytes_in == len(b'data: {"type":"routing"}\n\ndata: One. \n\ndata: [DONE]\n\n')
    assert ledger.bytes_out == len(answer.body)
    assert (ledger.frames_in, ledger.events_out, ledger.pieces, ledger.text_chars) == (3, 3, 1, 5)
    assert ledger.first_text_s is not None
    assert ledger.duration_s is not None
    assert ledger.first_text_s <= ledger.duration_s + 1e-6  # which is rounded to microseconds


async def test_the_ledger_of_what_is_passed_on_adds_up_too() -> None:
    async with (
        ScriptedUpstream([head(404, [("Content-Type", "text/plain")], length=3), b"abc"]) as upstream,
        running(upstream.url) as proxy,
    ):
        await ask(proxy)
        ledger = (await proxy.last()).ledger
    assert (ledger.bytes_in, ledger.bytes_out, ledger.events_out) == (3, 3, 0)


async def test_metrics_of_a_stream() -> None:
    async with ScriptedUpstream(WHOLE) as upstream, running(upstream.url) as proxy:
        await ask(proxy)
        await proxy.last()
        text = proxy.proxy.metrics.render()[0].decode()
    assert f'sse_proxy_streams_total{{outcome="complete",route="{CHAT}",upstream="host"}} 1.0' in text
    assert 'sse_proxy_requests_total{status="200",upstream="host"} 1.0' in text
    assert "sse_proxy_streams_active 0.0" in text
    assert "sse_proxy_time_to_first_text_seconds_count 1.0" in text


async def test_the_gauge_counts_running_streams() -> None:
    async with (
        ScriptedUpstream([stream_head(), Stall()]) as upstream,
        running(upstream.url) as proxy,
        Client.open(proxy.port, post()) as client,
    ):
        await client.until(b"keep-alive")
        assert "sse_proxy_streams_active 1.0" in proxy.proxy.metrics.render()[0].decode()


async def test_both_sides_are_captured_when_that_is_on() -> None:
    async with ScriptedUpstream(WHOLE) as upstream, running(upstream.url, top={"capture": {"keep": 5}}) as proxy:
        answer = await ask(proxy)
        recorder = (await proxy.last()).recorder
    assert recorder is not None
    assert bytes(recorder.raw.kept).startswith(b'data: {"type":"routing"}')
    assert bytes(recorder.repaired.kept) == answer.body


def test_set_up_logging_writes_one_form(capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    try:
        set_up_logging(LogSettings(format="json"))
        logging.getLogger("sse_proxy.x").info("hello %s", "world")
        logging.getLogger("sse_proxy.x").debug("not this")
        set_up_logging(LogSettings(format="text", level="warning"))
        logging.getLogger("sse_proxy.x").info("nor this")
        logging.getLogger("sse_proxy.x").warning("but this")
    finally:
        root.handlers[:] = before
        root.setLevel(level)
    first, second = capsys.readouterr().err.splitlines()
    assert json.loads(first)["message"] == "hello world"
    assert second.endswith("WARNING but this")
