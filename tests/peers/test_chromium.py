"""Real Chromium, from a page that comes through the proxy as well: EventSource on GET, fetch on POST."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.chromium import CHROMIUM, FLAGS
from tests.peers.wires import CASES, FAILED_CASES, TWIN_CASES, PeerHost, differences

JS = Path(__file__).parents[1] / "js"
PARSER = JS / "node_modules" / "eventsource-parser" / "dist" / "index.js"
READER_JS = Path(__file__).parents[2] / "sse_proxy" / "server" / "inspector" / "reader.js"

PAGE = (
    b'<!doctype html><meta charset="utf-8"><title>peers</title><script type="module" src="/peers/browser.js"></script>'
)

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: apt-get install chromium"),
    pytest.mark.skipif(
        not PARSER.is_file(), reason="tests/js/node_modules is not there: npm install --prefix tests/js"
    ),
]


@asynccontextmanager
async def chromium(url: str, profile: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """Open a page in a headless browser with an empty profile; end the browser, and all it started, on leaving."""
    assert CHROMIUM is not None
    process = await asyncio.create_subprocess_exec(
        CHROMIUM,
        *FLAGS,
        f"--user-data-dir={profile}",
        url,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def test_chromium_reads_every_wire(host: PeerHost, proxy: str, tmp_path: Path) -> None:
    asked = {"GET": [*CASES, *FAILED_CASES], "POST": [*CASES, *FAILED_CASES, *TWIN_CASES]}
    requests = {
        method: [{"url": (request := case.request(method))["path"], "init": request["init"]} for case in cases]
        for method, cases in asked.items()
    }
    script = "text/javascript; charset=utf-8"
    host.pages = {
        "/peers/": ("text/html; charset=utf-8", PAGE),
        "/peers/browser.js": (script, (JS / "readers" / "browser.mjs").read_bytes()),
        "/peers/both.js": (script, (JS / "readers" / "both.mjs").read_bytes()),
        "/peers/eventsource-parser.js": (script, PARSER.read_bytes()),
        "/peers/reader.js": (script, READER_JS.read_bytes()),
        "/peers/cases": ("application/json", json.dumps(requests).encode()),
    }
    posted: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    host.posted = posted.set_result
    async with chromium(f"{proxy}/peers/", tmp_path / "profile"):
        results: dict[str, Any] = json.loads(await asyncio.wait_for(posted, 100))
    assert "failed" not in results, results
    assert "Chrom" in results["agent"]
    for reader, method in {"EventSource": "GET", "fetch": "POST", "reader.js": "POST"}.items():
        found = [
            line
            for case, result in zip(asked[method], results[reader], strict=True)
            for line in differences(case, result)
        ]
        assert found == [], reader
