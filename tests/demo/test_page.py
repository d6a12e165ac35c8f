"""The demo as a user meets it: the command, its page in a real browser, and what the two panes say."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from sse_proxy.demo.library import ANSWERS
from tests.demo.browser import CHROMIUM, Page, open_page
from tests.fakes import free_port

QUESTION = "Which arpeggio fits Am F C G?"
(ANSWER,) = [answer.text for answer in ANSWERS if answer.example == QUESTION]

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: apt-get install chromium"),
]


@asynccontextmanager
async def demo(tmp_path: Path) -> AsyncIterator[dict[str, str]]:
    """Run `sse-proxy demo`; yield the addresses it prints, by name. It must end with status 0."""
    log = (tmp_path / "demo.log").open("wb")
    with log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "sse_proxy", "demo", "--listen", f"127.0.0.1:{free_port()}"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
        )
        assert process.stdout is not None
        try:
            printed = await asyncio.wait_for(process.stdout.readuntil(b"Ctrl-C"), 30)
            yield dict(re.findall(r"^(\w[\w ]*\w)\s{2,}(http://[^\s/]+)", printed.decode(), re.M))
            process.send_signal(signal.SIGINT)
            assert await asyncio.wait_for(process.wait(), 30) == 0
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()


async def ask(page: Page, wait: bool = True, **knobs: str) -> None:
    """Choose what goes wrong, and press the button."""
    for name, value in {"fail": "none", "delay": "0", **knobs}.items():
        await page.run(f"document.getElementById({name!r}).value = {value!r}")
        assert await page.run(f"document.getElementById({name!r}).value") == value
    await page.until("!document.getElementById('ask').disabled")
    await page.run("document.getElementById('ask').click()")
    if wait:
        await page.until("document.getElementById('stop').disabled")


async def pane(page: Page, name: str) -> dict[str, Any]:
    """Return what a pane shows: state, verdict, facts, text, failure (a dict, if one is shown), missing lines."""
    shown: dict[str, Any] = await page.run(
        f"""(() => {{
            const one = (selector) => document.querySelector("#{name} " + selector);
            const failure = one(".failure");
            const rows = [...failure.querySelectorAll("dt")].map((dt) => [dt.textContent, dt.nextSibling.textContent]);
            return {{
                state: one(".verdict").dataset.state, verdict: one(".verdict").textContent,
                facts: one(".facts").textContent, text: one(".text").textContent, raw: one(".raw").textContent,
                failure: failure.hidden ? null : Object.fromEntries(rows),
                missing: one("details").hidden ? [] : [...one(".lost").children].map((item) => item.textContent),
            }};
        }})()"""
    )
    return shown


async def test_the_page_of_the_running_demo(tmp_path: Path) -> None:
    async with demo(tmp_path) as at, open_page(f"{at['page']}/", tmp_path / "profile") as page:
        await page.until("document.querySelectorAll('#fail option').length > 15")
        assert await page.run("document.getElementById('question').value") == QUESTION

        # A broken stream: the plain reader loses text and does not know it, through the proxy all of it is there.
        await ask(page)
        left, right = await pane(page, "direct"), await pane(page, "proxy")
        assert (left["state"], left["verdict"]) == ("bad", "✗ 1 of 6 lines missing, 8 line breaks missing")
        assert len(left["missing"]) == 1
        assert left["missing"][0] in ANSWER.splitlines()
        assert left["missing"][0] not in left["text"]
        assert (right["state"], right["verdict"]) == ("good", "✓ exact")
        assert right["text"] == ANSWER
        assert (right["missing"], right["failure"]) == ([], None)
        assert right["facts"].startswith("agent improvisation · ")
        assert "data: [DONE]" in right["raw"]

        # A failure: half an answer, and the reader is told all it needs.
        await ask(page, fail="cut")
        left, right = await pane(page, "direct"), await pane(page, "proxy")
        assert left["state"] == "bad"
        assert left["verdict"].startswith("✗ Failed: connection broken")
        assert right["state"] == "told"
        assert "Failed, and the reader is told: “" in right["verdict"]
        failure = right["failure"]
        assert (failure["code"], failure["status"]) == ("upstream_truncated", "502")
        assert failure["ask again"].startswith("yes")
        assert f'"requestId":"{failure["request id"]}"' in right["raw"]
        assert ANSWER.startswith(right["text"])
        assert failure["text before it"].startswith(f"{len(right['text'])} characters")
        assert "[DONE]" not in right["raw"]

        # Refused with a status of the host's: the same error, from a response that is no stream.
        await ask(page, fail="404")
        right = await pane(page, "proxy")
        assert (right["state"], right["failure"]["code"], right["failure"]["status"]) == ("told", "http_404", "404")
        assert right["failure"]["ask again"].startswith("no")

        # Text is shown as it arrives; an exchange that is given up leaves nothing in the next one.
        await ask(page, wait=False, fail="stall")
        await page.until(
            "document.querySelector('#proxy .text').textContent && !document.getElementById('stop').disabled"
        )
        assert (await pane(page, "proxy"))["verdict"] == "Reading …"
        await ask(page, wait=False, fail="head-stall")
        await page.run("fetch('demo/info').then((response) => response.status)")  # by then the other is aborted
        for name in ("direct", "proxy"):
            assert (await pane(page, name))["verdict"] == "Waiting for the first text …"
        await ask(page, chunks="a826864")
        left, right = await pane(page, "direct"), await pane(page, "proxy")
        assert left["state"] == "bad"
        assert right["verdict"] == "≈ 1 line break missing, at the answer's very end"
        assert right["text"] == ANSWER.rstrip("\n")
        await page.run("document.getElementById('chunks').value = '743'")

        # Stopped by the user: no verdict of either, and the keyboard does not lose its place.
        await ask(page, wait=False, fail="stall")
        await page.until("document.querySelector('#proxy .text').textContent")
        await page.run("document.getElementById('stop').focus(), document.getElementById('stop').click()")
        await page.until("document.getElementById('stop').disabled")
        assert (await pane(page, "proxy"))["verdict"].startswith("Stopped by you: ")
        assert await page.run("document.activeElement.id") == "ask"

        # A small screen does not scroll sideways.
        await page.call("Emulation.setDeviceMetricsOverride", width=390, height=800, deviceScaleFactor=1, mobile=False)
        assert await page.run("document.documentElement.scrollWidth") <= 390
        assert page.faults == []

        # The inspector has both sides of what ran.
        async with aiohttp.ClientSession() as session, session.get(f"{at['inspector']}/streams") as response:
            streams = json.loads(await response.text())
        assert streams["capture"] is not None
        codes = {stream["ledger"]["code"] for stream in streams["recent"]}
        assert "upstream_truncated" in codes


async def test_the_reader_notices_by_itself_what_nobody_tells_it(tmp_path: Path) -> None:
    async with demo(tmp_path) as at, open_page(f"{at['legacy host']}/", tmp_path / "profile") as page:
        await page.until("!document.getElementById('ask').disabled")
        assert "both panes read it directly" in await page.run("document.getElementById('notice').textContent")
        await ask(page, fail="eof")
        left, right = await pane(page, "direct"), await pane(page, "proxy")
        assert left["verdict"].startswith("✗ Ended without the done marker, and the reader is not told: ")
        assert right["verdict"].endswith("Cut short, and the reader notices: the stream ended without its done marker")
        assert right["failure"]["code"] == "stream_truncated"
        await ask(page, fail="error")
        right = await pane(page, "proxy")
        assert right["failure"]["code"] == "upstream_error"
        assert "“Failed to process message. Please try again.”" in right["verdict"]
        assert page.faults == []
