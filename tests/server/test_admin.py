"""The admin listener over real sockets, and the inspector page in a real browser where there is one."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import tempfile
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestClient, TestServer
from aiohttp.web import Application, Request
from pytest_aiohttp import AiohttpClient

from sse_proxy.core.ledger import Ledger, Outcome, RepairKind
from sse_proxy.errors import FailureCode
from sse_proxy.metrics import Metrics
from sse_proxy.server import admin
from sse_proxy.server.registry import StreamEntry, StreamRegistry, StreamState
from tests.chromium import CHROMIUM, FLAGS

INSPECTOR = Path(admin.__file__).parent / "inspector"
Client = TestClient[Request, Application]


@dataclass
class Capture:
    keep: int = 10
    max_bytes: int = 1000


@dataclass
class State:
    """A proxy as the admin listener sees it."""

    ready: bool = True
    reason: str | None = None
    metrics: Metrics = field(default_factory=Metrics)
    registry: StreamRegistry = field(default_factory=lambda: StreamRegistry(Capture()))
    version: str = "1.2.3"


@pytest.fixture
def state() -> State:
    return State()


@pytest.fixture
async def client(state: State, aiohttp_client: AiohttpClient) -> Client:
    return await aiohttp_client(admin.create_admin_app(state, host="proxy.internal.example"))


def stream(state: State, *, ended: Outcome | None = None, request_id: str = "req") -> StreamEntry:
    entry = state.registry.register(
        Ledger(), request_id=request_id, upstream="gaapi", route="/chat", peer="192.0.2.7", method="POST"
    )
    if ended:
        entry.ledger.outcome = ended
        entry.ledger.duration_s = 1.5
        state.registry.remove(entry)
    return entry


async def fetch(client: Client, path: str, host: str | None = None, method: str = "GET") -> aiohttp.ClientResponse:
    response = await client.request(method, path, headers={"Host": host} if host else None, allow_redirects=False)
    await response.read()
    return response


async def fetch_json(client: Client, path: str) -> Any:
    response = await fetch(client, path)
    assert response.status == 200
    assert response.content_type == "application/json"
    return await response.json()


# ---- health and readiness ----


async def test_health_is_ok_also_while_draining(client: Client, state: State) -> None:
    state.ready, state.reason = False, "draining"
    response = await fetch(client, "/healthz")
    assert (response.status, await response.text()) == (200, "ok\n")


async def test_readiness_follows_the_proxy_and_gives_the_reason(client: Client, state: State) -> None:
    stream(state)
    ready = await fetch(client, "/readyz")
    assert ready.status == 200
    assert await ready.json() == {"ready": True, "reason": None, "active": 1, "version": "1.2.3"}
    state.ready, state.reason = False, "draining"
    draining = await fetch(client, "/readyz")
    assert draining.status == 503
    assert (await draining.json())["reason"] == "draining"


async def test_metrics_are_rendered_with_their_content_type(client: Client, state: State) -> None:
    state.metrics.observe_request("none", 502)
    response = await fetch(client, "/metrics")
    assert response.headers["Content-Type"].startswith("text/plain; version=")
    assert 'sse_proxy_requests_total{status="502",upstream="none"} 1.0' in await response.text()


# ---- streams ----


async def test_streams_lists_the_live_and_the_recent_ones_newest_first(client: Client, state: State) -> None:
    stream(state)
    newest = stream(state)
    newest.state = StreamState.STREAMING
    done = stream(state, ended=Outcome.COMPLETE)
    listed = await fetch_json(client, "/streams")
    assert [entry["id"] for entry in listed["live"]] == [2, 1]
    assert [entry["id"] for entry in listed["recent"]] == [done.id]
    assert listed["live"][0]["state"] == "streaming"
    assert listed["recent"][0]["ledger"]["outcome"] == "complete"
    assert {key: listed[key] for key in ("version", "ready", "reason", "active", "capture")} == {
        "version": "1.2.3",
        "ready": True,
        "reason": None,
        "active": 2,
        "capture": True,
    }


async def test_limit_bounds_the_lists_and_nonsense_is_refused(client: Client, state: State) -> None:
    for _ in range(3):
        stream(state)
        stream(state, ended=Outcome.COMPLETE)
    listed = await fetch_json(client, "/streams?limit=2")
    assert (len(listed["live"]), len(listed["recent"]), listed["active"]) == (2, 2, 3)
    for limit in ("0", "-1", "1001", "x", "", "²", "9" * 5000):
        assert (await fetch(client, f"/streams?limit={limit}")).status == 400


async def test_a_stream_shows_what_was_captured(client: Client, state: State) -> None:
    entry = stream(state)
    recorder = state.registry.tap(entry)
    assert recorder is not None
    recorder.raw.add(b"data: a\r\nb\xff\n\n")
    recorder.repaired.add("data: a\ndata: é\n\n".encode())
    shown = await fetch_json(client, f"/streams/{entry.id}")
    assert shown["captured"] is True
    assert shown["raw"] == {"seen": 13, "kept": 13, "text": "data: a\r\nb\\xff\n\n"}
    assert shown["repaired"]["text"] == "data: a\ndata: é\n\n"


async def test_captured_bytes_can_be_downloaded_exactly(client: Client, state: State) -> None:
    entry = stream(state)
    recorder = state.registry.tap(entry)
    assert recorder is not None
    recorder.raw.add(bytes(range(256)))
    response = await fetch(client, f"/streams/{entry.id}/raw")
    assert await response.read() == bytes(range(256))
    assert response.content_type == "application/octet-stream"
    assert response.headers["Content-Disposition"] == 'attachment; filename="stream-1.raw.sse"'
    assert await (await fetch(client, f"/streams/{entry.id}/repaired")).read() == b""


async def test_a_stream_without_capture_says_so(client: Client, state: State) -> None:
    entry = stream(state)
    shown = await fetch_json(client, f"/streams/{entry.id}")
    assert (shown["captured"], shown["raw"], shown["repaired"]) == (False, None, None)
    assert (await fetch(client, f"/streams/{entry.id}/raw")).status == 404


@pytest.mark.parametrize("number", ["2", "0", "-1", "+1", "1_0", "x", "%D9%A1", "9" * 5000, "1/other"])
async def test_a_stream_that_is_not_there_is_a_plain_404(client: Client, state: State, number: str) -> None:
    stream(state)
    response = await fetch(client, f"/streams/{number}")
    assert response.status == 404
    assert response.content_type == "text/plain"


async def test_a_stray_byte_in_a_request_id_breaks_no_list(client: Client, state: State) -> None:
    stream(state, request_id="caf\udce9")  # as aiohttp reads a Latin-1 header
    assert len((await fetch_json(client, "/streams"))["live"]) == 1


# ---- pages ----


@pytest.mark.parametrize(
    ("path", "content_type"),
    [
        ("/", "text/html; charset=utf-8"),
        ("/inspector.js", "text/javascript; charset=utf-8"),
        ("/inspector.css", "text/css; charset=utf-8"),
        ("/reader.js", "text/javascript; charset=utf-8"),
        ("/icon.svg", "image/svg+xml"),
    ],
)
async def test_assets_have_their_content_types(client: Client, path: str, content_type: str) -> None:
    response = await fetch(client, path)
    assert response.status == 200
    assert response.headers["Content-Type"] == content_type
    file = INSPECTOR / ("index.html" if path == "/" else path[1:])
    assert await response.read() == file.read_bytes()


class References(HTMLParser):
    """Every address a page refers to, and every script or style written into it."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.inline: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("src", "href"):
                self.addresses.append(value or "")
            if name == "style" or name.startswith("on"):
                self.inline.append(name)
        if tag == "style" or (tag == "script" and "src" not in dict(attrs)):
            self.inline.append(tag)


async def test_the_page_refers_to_nothing_but_this_listener(client: Client) -> None:
    page = References()
    page.feed(await (await fetch(client, "/")).text())
    assert page.inline == []  # the content security policy would block it
    assert len(page.addresses) > 3
    for address in page.addresses:
        assert re.fullmatch(r"[\w.]+", address), address
        assert (await fetch(client, f"/{address}")).status == 200
    for file in INSPECTOR.iterdir():
        outside = re.findall(r"https?://[^\s\"'`)]+", file.read_text(encoding="utf-8"))
        assert set(outside) <= {"http://www.w3.org/2000/svg"} or file.name == "reader.js"


@pytest.mark.parametrize("slug", [*RepairKind, *FailureCode, *Outcome])
def test_the_page_explains_every_slug(slug: str) -> None:
    script = (INSPECTOR / "inspector.js").read_text(encoding="utf-8")
    assert re.search(rf'^  {slug}: ".+[.]",$', script, re.M)


# ---- headers, methods, hosts, faults ----


@pytest.mark.parametrize("path", ["/", "/healthz", "/readyz", "/metrics", "/streams", "/streams/7", "/nothing"])
async def test_every_answer_forbids_caching_sniffing_and_foreign_content(client: Client, path: str) -> None:
    headers = (await fetch(client, path)).headers
    assert headers["Cache-Control"] == "no-store"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Content-Security-Policy"].startswith("default-src 'self';")
    assert "aiohttp" not in headers["Server"]


@pytest.mark.parametrize("path", ["/", "/healthz", "/readyz", "/metrics", "/streams", "/inspector.css"])
async def test_head_is_get_without_the_body(client: Client, path: str) -> None:
    get, head = await fetch(client, path), await fetch(client, path, method="HEAD")
    assert (head.status, await head.read()) == (get.status, b"")
    assert head.headers["Content-Type"] == get.headers["Content-Type"]
    if path not in ("/streams",):  # ages differ
        assert head.headers["Content-Length"] == get.headers["Content-Length"]


@pytest.mark.parametrize("path", ["/", "/streams", "/metrics"])
@pytest.mark.parametrize("method", ["POST", "DELETE", "OPTIONS"])
async def test_another_method_is_a_405_that_names_the_allowed_ones(client: Client, path: str, method: str) -> None:
    response = await fetch(client, path, method=method)
    assert response.status == 405
    assert response.headers["Allow"] == "GET,HEAD"


@pytest.mark.parametrize("path", ["/nothing", "/inspector/", "/../admin.py", "/%2e%2e/admin.py", "/index.html"])
async def test_nothing_else_is_served(client: Client, path: str) -> None:
    assert (await fetch(client, path)).status == 404


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:9901",
        "localhost.:9901",
        "inspector.localhost",
        "127.0.0.1:9901",
        "10.1.2.3",
        "[::1]:9901",
        "[fe80::1]",
        "Proxy.Internal.Example:80",
    ],
)
async def test_a_name_of_this_machine_is_answered(client: Client, host: str) -> None:
    assert (await fetch(client, "/streams", host)).status == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:9901", "127.0.0.1.evil.example", "localhost.evil.example", "notlocalhost"]
)
async def test_a_foreign_name_sees_no_stream_and_no_page(client: Client, state: State, host: str) -> None:
    entry = stream(state, request_id="secret-id")
    for path in ("/", "/streams", f"/streams/{entry.id}", "/reader.js", "/nothing"):
        response = await fetch(client, path, host)
        assert response.status == 421
        assert "secret-id" not in await response.text()


async def test_probes_and_scrapes_come_under_any_name(client: Client) -> None:
    for path in ("/healthz", "/readyz", "/metrics"):
        assert (await fetch(client, path, "sse-proxy.chat.svc:9901")).status == 200


async def test_a_request_without_a_host_is_answered(client: Client) -> None:
    reader, writer = await asyncio.open_connection(client.server.host, client.server.port)
    writer.write(b"GET /streams HTTP/1.0\r\n\r\n")
    assert (await asyncio.wait_for(reader.readline(), 10)).split()[1] == b"200"
    writer.close()
    await writer.wait_closed()


async def test_a_fault_of_our_own_is_a_plain_500_and_one_line_in_the_log(
    client: Client, state: State, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> tuple[bytes, str]:
        raise RuntimeError("details of the machine")

    monkeypatch.setattr(state.metrics, "render", broken)
    with caplog.at_level(logging.INFO):
        response = await fetch(client, "/metrics")
    assert (response.status, await response.text()) == (500, "500: Internal Server Error\n")
    assert response.headers["Cache-Control"] == "no-store"
    [record] = [record for record in caplog.records if record.name == admin.__name__]
    assert "GET /metrics failed: RuntimeError('details of the machine')" in record.getMessage()
    assert record.exc_info is None


# ---- the page in a browser ----


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
async def test_the_page_shows_live_and_recent_streams_and_the_bytes_of_one(state: State) -> None:
    assert CHROMIUM is not None
    live = stream(state, request_id="<b>live</b>")
    live.ledger.bytes_in = 2048
    live.ledger.dialect = "single-prefix"
    failed = stream(state)
    recorder = state.registry.tap(failed)
    assert recorder is not None
    recorder.raw.add(b"data: One.\nlost line\n\n")
    recorder.repaired.add(b"data: One.\ndata: lost line\n\n")
    failed.ledger.outcome, failed.ledger.code = Outcome.FAILED, FailureCode.UPSTREAM_TRUNCATED
    failed.ledger.repair(RepairKind.UNPREFIXED_LINE, 7)
    state.registry.remove(failed)
    async with TestServer(admin.create_admin_app(state)) as server:
        with tempfile.TemporaryDirectory() as profile:
            process = await asyncio.create_subprocess_exec(
                CHROMIUM,
                *FLAGS,
                *(f"--user-data-dir={profile}", "--virtual-time-budget=1500", "--dump-dom"),
                f"http://127.0.0.1:{server.port}/#stream-{failed.id}",
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
            try:
                out, _ = await asyncio.wait_for(process.communicate(), 60)
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
    dom = out.decode()
    assert ">ready<" in dom
    assert "1.2.3 · 1 stream runs · capture is on" in dom
    assert "2.0 KiB" in dom
    assert "single-prefix" in dom
    assert "upstream_truncated" in dom
    assert "unprefixed_line ×7" in dom
    assert "The upstream's body was cut off." in dom
    assert '<span class="bare">lost line</span>' in dom
    assert '<span class="field">data: </span><span>lost line</span>' in dom
    assert "<b>live</b>" not in dom
    assert json.dumps(live.request_id) not in dom
