"""A real proxy in a process of its own, in front of a host that plays the recorded wires."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.fakes import ScriptedUpstream, eventually, free_port
from tests.peers.wires import CHAT, TWIN, PeerHost

_START_S = 30.0

# The chat route as the preset has it, and the same path for GET, which is all an EventSource can do.
CONFIG = f"""
listen: 127.0.0.1:PORT
admin: off
drain_timeout: 1s
upstreams:
  - name: host
    url: URL
    preset: gaapi
    routes:
      - {{path: {CHAT}, methods: [GET], stream: {{}}}}
  - name: twin
    url: URL
    preset: gaapi
    match: {{path: /twin}}
    strip_prefix: /twin
    routes:
      - {{path: {CHAT}, methods: [POST], stream: {{source: json}}}}
"""


@pytest.fixture
def host() -> PeerHost:
    return PeerHost()


@pytest.fixture
async def proxy(host: PeerHost, tmp_path: Path) -> AsyncIterator[str]:
    """The URL of a running proxy in front of `host`."""
    assert TWIN.startswith("/twin/")
    async with ScriptedUpstream(host) as upstream, serving(CONFIG.replace("URL", upstream.url), tmp_path) as url:
        yield url


@asynccontextmanager
async def serving(config: str, folder: Path) -> AsyncIterator[str]:
    """Run `sse-proxy serve` on a free port, its configuration and log in `folder`."""
    port = free_port()
    file, log = folder / "proxy.yaml", folder / "proxy.log"
    file.write_text(config.replace("PORT", str(port)), encoding="utf-8")
    with log.open("wb") as out:
        command = [sys.executable, "-m", "sse_proxy", "serve", "-c", str(file)]
        process = await asyncio.create_subprocess_exec(*command, stdout=out, stderr=out)
    try:
        await eventually(lambda: process.returncode is not None or accepts(port), _START_S, "the proxy to listen")
        assert process.returncode is None, log.read_text()
        yield f"http://127.0.0.1:{port}"
    finally:
        if process.returncode is None:
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), 10)
        except TimeoutError:
            process.kill()
            await process.wait()
    assert "Traceback" not in log.read_text()


def accepts(port: int) -> bool:
    """Whether somebody listens on that port of 127.0.0.1."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
