"""The clients people use, in node: the `ws` package, and SignalR's own client over each of its transports."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import WSMsgType, web
from aiohttp.test_utils import TestServer

from sse_proxy.config import config_for_upstream
from sse_proxy.server.app import Proxy
from tests.server.front import front
from tests.server.signalr_host import SignalRHost

NODE = shutil.which("node")
JS = Path(__file__).parents[1] / "js"
MODULES = JS / "node_modules"

pytestmark = [
    pytest.mark.node,
    pytest.mark.skipif(NODE is None, reason="node is not installed"),
    pytest.mark.skipif(
        not (MODULES / "ws").is_dir() or not (MODULES / "@microsoft" / "signalr").is_dir(),
        reason="tests/js/node_modules is not there: npm install --prefix tests/js",
    ),
]


async def run(script: str, *arguments: str) -> dict[str, Any]:
    """Run a script of tests/js/clients, and return the JSON object it prints."""
    assert NODE is not None
    process = await asyncio.create_subprocess_exec(
        NODE,
        str(JS / "clients" / script),
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, errors = await asyncio.wait_for(process.communicate(), 30)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, errors.decode()
    seen: dict[str, Any] = json.loads(out)
    return seen


@asynccontextmanager
async def proxied(app: web.Application) -> AsyncIterator[str]:
    """Serve an application behind the whole proxy, with the GaApi preset; yield host and port of the proxy."""
    server = TestServer(app)
    await server.start_server()
    try:
        whole = Proxy(config_for_upstream(f"http://127.0.0.1:{server.port}"))
        try:
            async with front(whole.handle) as site:
                yield f"127.0.0.1:{site.port}"
        finally:
            await whole.close()
    finally:
        await server.close()


async def test_ws() -> None:
    handshakes: list[web.Request] = []
    closes: list[int | None] = []

    async def echo(request: web.Request) -> web.StreamResponse:
        handshakes.append(request)
        end = web.WebSocketResponse(protocols=("json",), max_msg_size=0)
        await end.prepare(request)
        async for message in end:
            if message.type is WSMsgType.TEXT:
                await end.send_str(message.data)
                if len(message.data) > 100_000:
                    await end.ping(b"still there")
            elif message.type is WSMsgType.BINARY:
                await end.send_bytes(message.data)
        closes.append(end.close_code)
        return end

    async def close(request: web.Request) -> web.StreamResponse:
        end = web.WebSocketResponse()
        await end.prepare(request)
        await end.close(code=4002, message="спокойной ночи".encode())
        return end

    async def vanish(request: web.Request) -> web.StreamResponse:
        end = web.WebSocketResponse()
        await end.prepare(request)
        assert request.transport is not None
        request.transport.abort()
        return end

    async def refuse(request: web.Request) -> web.StreamResponse:
        return web.Response(status=403, reason="Not You", headers={"X-Why": "no"}, text="no socket here")

    app = web.Application()
    for path, handler in {"/echo": echo, "/close": close, "/vanish": vanish, "/refuse": refuse}.items():
        app.router.add_get(path, handler)
    async with proxied(app) as address:
        seen = await run("ws.mjs", f"ws://{address}")
    assert seen == {
        "protocol": "json",
        "extensions": "permessage-deflate",
        "text": True,
        "ping": "still there",
        "binary": True,
        "empty": True,
        "pieces": "in pieces",
        "pong": "are you there",
        "ourClose": [1000, ""],  # what aiohttp answers to any close; `closes` has what reached it
        "plain": ["", ""],
        "hello": "hello",
        "/close": [4002, "спокойной ночи"],
        "/vanish": [1006, ""],
        "refusal": [403, "Not You", "no", "no socket here"],
    }
    first, second = handshakes
    assert first.raw_path == "/echo?x=%2F"
    assert (first.headers["Cookie"], first.headers["Origin"]) == ("a=1", "http://page")
    assert "Sec-WebSocket-Protocol" not in second.headers
    assert "Sec-WebSocket-Extensions" not in second.headers
    assert closes[0] == 4001


@pytest.mark.parametrize("transport", ["WebSockets", "ServerSentEvents", "LongPolling"])
async def test_signalr(transport: str) -> None:
    """`stream: off` on /hubs/* (the preset's): SignalR's event stream is its own, and none of ours."""
    host = SignalRHost()
    async with proxied(host.app()) as address:
        seen = await run("signalr.mjs", f"http://{address}", transport)
    assert seen["echo"] is True
    assert seen["large"] == 300_000
    assert seen["items"] == [0, 1, 2, 3, 4]
    assert seen["told"] == ["one", "two"]
    assert "as was asked" in seen["error"]
    assert seen["state"] == "Disconnected"
    assert host.requests[0].startswith("POST /hubs/chat/negotiate?x=%2F")
    used = {request.split(" ")[0] for request in host.requests[1:]}
    methods = {"WebSockets": "GET", "ServerSentEvents": "GET POST", "LongPolling": "GET POST DELETE"}[transport]
    assert used == set(methods.split())
    assert bool(host.sent) == (transport == "ServerSentEvents")
