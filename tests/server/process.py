"""`sse-proxy` as a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.fakes import eventually, free_port, parse_response, raw_request

__all__ = ["Served", "served"]

_PLAIN_LOOP = "import sys; sys.modules['uvloop'] = None; from sse_proxy.cli import main; main()"


class Served:
    """A running `sse-proxy serve`.

    Attributes:
        lines: what it wrote to stderr so far.
    """

    def __init__(self, process: asyncio.subprocess.Process, port: int, admin: int) -> None:
        self.process = process
        self.port = port
        self.admin = admin
        self.lines: list[str] = []

    async def read(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            self.lines.append(line.decode())

    @property
    def log(self) -> str:
        return "".join(self.lines)

    async def readyz(self) -> int:
        raw = await raw_request(self.admin, b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        return parse_response(raw)[0]

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def exit(self, timeout_s: float = 10.0) -> int:
        async with asyncio.timeout(timeout_s):
            return await self.process.wait()


@asynccontextmanager
async def served(
    path: Path, url: str, *, uvloop: bool = True, top: dict[str, Any] | None = None, **upstream: Any
) -> AsyncIterator[Served]:
    """Serve by a file at `path`, in front of `url`; the process is killed in the end if it still runs.

    Args:
        top, upstream: as in `tests.server.proxied.make_config`.
    """
    port, admin = free_port(), free_port()
    write(path, url, port, admin, top=top, **upstream)
    start = [sys.executable, "-c", _PLAIN_LOOP] if not uvloop else [sys.executable, "-m", "sse_proxy"]
    process = await asyncio.create_subprocess_exec(
        *start, "serve", "-c", str(path), stderr=asyncio.subprocess.PIPE, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    )
    server = Served(process, port, admin)
    reading = asyncio.create_task(server.read())
    try:
        await eventually(lambda: "listening on" in server.log or process.returncode is not None, 20, "it to listen")
        assert process.returncode is None, server.log
        yield server
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await reading


def write(path: Path, url: str, port: int, admin: int, *, top: dict[str, Any] | None = None, **upstream: Any) -> None:
    """Write a configuration file."""
    value = {
        "listen": f"127.0.0.1:{port}",
        "admin": f"127.0.0.1:{admin}",
        **(top or {}),
        "upstreams": [{"name": "host", "url": url, "preset": "gaapi", **upstream}],
    }
    path.write_text(json.dumps(value))
