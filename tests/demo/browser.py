"""A page in headless Chromium, driven over the DevTools protocol: what a user does, and what the page then shows."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tests.chromium import CHROMIUM, FLAGS
from tests.fakes import eventually

__all__ = ["CHROMIUM", "Page", "open_page"]

_FLAGS = (*FLAGS, "--remote-debugging-port=0")
_START_S = 30.0
_WAIT_MS = 20_000


class Page:
    """One open page.

    Attributes:
        faults: exceptions of the page's own scripts that nobody caught, as text.
    """

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self.faults: list[str] = []

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command of the protocol; return its result."""
        number = next(self._numbers)
        await self._socket.send_json({"id": number, "method": method, "params": params})
        while True:
            message = await self._socket.receive_json(timeout=_START_S)
            if message.get("method") == "Runtime.exceptionThrown":
                details = message["params"]["exceptionDetails"]
                self.faults.append(str(details.get("exception", {}).get("description", details["text"])))
            if message.get("id") == number:
                assert "error" not in message, message
                result: dict[str, Any] = message["result"]
                return result

    async def run(self, script: str) -> Any:
        """Return the value of an expression of JavaScript, a promise awaited; it must be one that JSON can say."""
        answer = await self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def until(self, condition: str) -> None:
        """Wait until an expression of JavaScript is true.

        Raises:
            AssertionError: it is still false after 20 seconds.
        """
        script = f"""new Promise((resolve) => {{
            const end = performance.now() + {_WAIT_MS};
            const look = () => {{
                const so = Boolean({condition});
                if (so || performance.now() > end) resolve(so);
                else setTimeout(look, 10);
            }};
            look();
        }})"""
        assert await self.run(script), f"waited in vain for {condition}; faults of the page: {self.faults}"


@asynccontextmanager
async def open_page(url: str, profile: Path) -> AsyncIterator[Page]:
    """Open `url` in a browser of its own, with an empty profile; end the browser, and all it started, on leaving."""
    assert CHROMIUM is not None
    process = await asyncio.create_subprocess_exec(
        CHROMIUM,
        *_FLAGS,
        f"--user-data-dir={profile}",
        "about:blank",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        where = profile / "DevToolsActivePort"
        port = await eventually(lambda: _port(where), _START_S, "the browser's port")
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/json/list") as response:
                pages = [target for target in await response.json() if target["type"] == "page"]
            async with session.ws_connect(pages[0]["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                page = Page(socket)
                await page.call("Runtime.enable")
                await page.call("Page.enable")
                await page.call("Page.navigate", url=url)
                await page.until(f"location.href === {url!r} && document.readyState === 'complete'")
                yield page
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def _port(file: Path) -> str:
    """The first of the file's two lines, once the browser has written both; empty before."""
    lines = file.read_text(encoding="ascii").splitlines() if file.exists() else []
    return lines[0] if len(lines) == 2 else ""
