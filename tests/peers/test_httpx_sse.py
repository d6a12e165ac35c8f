"""PyPI's httpx-sse, by POST and by GET."""

from __future__ import annotations

from typing import Any

import httpx
import httpx_sse
import pytest

from tests.peers.wires import CASES, FAILED_CASES, TWIN_CASES, Case, differences


async def read(client: httpx.AsyncClient, method: str, case: Case) -> dict[str, Any]:
    request = case.request(method)
    init = request["init"]
    sending = {"headers": init["headers"], "content": init["body"]} if init else {}
    try:
        async with httpx_sse.aconnect_sse(client, method, request["path"], **sending) as source:
            events = [event async for event in source.aiter_sse()]
            reading: dict[str, Any] = {"data": [event.data for event in events if event.event == "message"]}
            if failed := [event.data for event in events if event.event == "error"]:
                [reading["failure"]] = failed
            return reading
    except (httpx.HTTPError, httpx_sse.SSEError) as error:
        return {"error": repr(error)}


async def check(proxy: str, method: str, cases: list[Case]) -> None:
    async with httpx.AsyncClient(base_url=proxy, timeout=10, trust_env=False) as client:
        found = [line for case in cases for line in differences(case, await read(client, method, case))]
    assert found == []


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_every_wire_through_the_proxy(method: str, proxy: str) -> None:
    await check(proxy, method, [*CASES, *FAILED_CASES])


async def test_every_answer_from_the_json_twin(proxy: str) -> None:
    await check(proxy, "POST", TWIN_CASES)
