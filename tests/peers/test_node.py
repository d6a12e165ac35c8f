"""npm's eventsource-parser and eventsource, and the inspector's reader.js in node."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.peers.wires import CASES, FAILED_CASES, TWIN_CASES, Case, differences

NODE = shutil.which("node")
JS = Path(__file__).parents[1] / "js"
MODULES = JS / "node_modules"

pytestmark = [
    pytest.mark.node,
    pytest.mark.skipif(NODE is None, reason="node is not installed"),
]
needs_modules = pytest.mark.skipif(
    not (MODULES / "eventsource").is_dir() or not (MODULES / "eventsource-parser").is_dir(),
    reason="tests/js/node_modules is not there: npm install --prefix tests/js",
)


async def read(reader: str, proxy: str, method: str, cases: Iterable[Case]) -> list[dict[str, Any]]:
    """Let a script of tests/js/readers read all cases in one node process."""
    assert NODE is not None
    requests = [case.request(method) for case in cases]
    stdin = json.dumps([{"url": proxy + request["path"], "init": request["init"]} for request in requests])
    process = await asyncio.create_subprocess_exec(
        NODE,
        str(JS / "readers" / f"{reader}.mjs"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, errors = await asyncio.wait_for(process.communicate(stdin.encode()), 90)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, errors.decode()
    results: list[dict[str, Any]] = json.loads(out)
    return results


async def check(reader: str, proxy: str, method: str, cases: list[Case]) -> None:
    results = await read(reader, proxy, method, cases)
    assert [line for case, result in zip(cases, results, strict=True) for line in differences(case, result)] == []


@needs_modules
@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("reader", ["eventsource-parser", "eventsource"])
async def test_every_wire_through_the_proxy(reader: str, method: str, proxy: str) -> None:
    await check(reader, proxy, method, [*CASES, *FAILED_CASES])


@needs_modules
@pytest.mark.parametrize("reader", ["eventsource-parser", "eventsource"])
async def test_every_answer_from_the_json_twin(reader: str, proxy: str) -> None:
    await check(reader, proxy, "POST", TWIN_CASES)


async def test_reader_js_reads_every_wire(proxy: str) -> None:
    await check("reader-js", proxy, "POST", [*CASES, *FAILED_CASES, *TWIN_CASES])
