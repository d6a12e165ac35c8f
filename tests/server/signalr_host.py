"""A SignalR host, as small as its JSON protocol allows: negotiate, WebSockets, server-sent events, long polling.

After the "SignalR Hub Protocol" and "Transport Protocols" documents of ASP.NET Core: messages are JSON objects, each
ended by U+001E; an invocation is type 1, a stream item 2, a completion 3, a stream invocation 4, a ping 6, a close 7.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from typing import Any

from aiohttp import WSMsgType, web

__all__ = ["SignalRHost"]

_END = "\x1e"


class SignalRHost:
    """The hub behind `/hubs/chat`.

    Attributes:
        transports: offered by negotiate.
        requests: method and target of each request, oldest first.
        sent: what went out over server-sent events, to the byte.
    """

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.sent = bytearray()
        self._queues: defaultdict[str, asyncio.Queue[str | None]] = defaultdict(asyncio.Queue)
        self._polled: set[str] = set()
        self._greeted: set[str] = set()
        self._ids = iter(range(1, 1000))

    def app(self) -> web.Application:
        app = web.Application(client_max_size=16 * 1024 * 1024)
        app.router.add_post("/hubs/chat/negotiate", self._negotiate)
        app.router.add_get("/hubs/chat", self._get)
        app.router.add_post("/hubs/chat", self._post)
        app.router.add_delete("/hubs/chat", self._delete)
        return app

    def _note(self, request: web.Request) -> str:
        self.requests.append(f"{request.method} {request.raw_path}")
        return request.query.get("id", "")

    async def _negotiate(self, request: web.Request) -> web.Response:
        self._note(request)
        token = f"token-{next(self._ids)}"
        offered = [
            ("WebSockets", ["Text", "Binary"]),
            ("ServerSentEvents", ["Text"]),
            ("LongPolling", ["Text", "Binary"]),
        ]
        transports = [{"transport": name, "transferFormats": formats} for name, formats in offered]
        answer = {
            "negotiateVersion": 1,
            "connectionId": "c",
            "connectionToken": token,
            "availableTransports": transports,
        }
        return web.json_response(answer)

    async def _get(self, request: web.Request) -> web.StreamResponse:
        token = self._note(request)
        if request.headers.get("Upgrade", "").lower() == "websocket":
            return await self._socket(request, token or "ws")
        if request.headers.get("Accept") == "text/event-stream":
            return await self._events(request, token)
        return await self._poll(token)

    async def _socket(self, request: web.Request, token: str) -> web.StreamResponse:
        socket = web.WebSocketResponse(max_msg_size=0)
        await socket.prepare(request)
        queue = self._queues[token]

        async def pump() -> None:
            while (message := await queue.get()) is not None:
                await socket.send_str(message)

        sending = asyncio.create_task(pump())
        try:
            async for message in socket:
                if message.type is WSMsgType.TEXT:
                    self._received(token, message.data)
        finally:
            sending.cancel()
            await asyncio.wait([sending])
        return socket

    async def _events(self, request: web.Request, token: str) -> web.StreamResponse:
        out = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
        await out.prepare(request)
        await self._write(out, ":\r\n\r\n")
        while (message := await self._queues[token].get()) is not None:
            await self._write(out, "".join(f"data: {line}\r\n" for line in message.split("\n")) + "\r\n")
        return out

    async def _write(self, out: web.StreamResponse, text: str) -> None:
        self.sent += text.encode()
        await out.write(text.encode())

    async def _poll(self, token: str) -> web.Response:
        if token not in self._polled:  # the first poll only shows that the way is open
            self._polled.add(token)
            return web.Response(content_type="application/octet-stream")
        message = await self._queues[token].get()
        if message is None:
            return web.Response(status=204)
        while not self._queues[token].empty():
            more = self._queues[token].get_nowait()
            if more is None:
                self._queues[token].put_nowait(None)
                break
            message += more
        return web.Response(text=message)

    async def _post(self, request: web.Request) -> web.Response:
        token = self._note(request)
        self._received(token, await request.text())
        return web.Response()

    async def _delete(self, request: web.Request) -> web.Response:
        self._queues[self._note(request)].put_nowait(None)
        return web.Response(status=202)

    def _received(self, token: str, data: str) -> None:
        for text in data.split(_END)[:-1]:
            message = json.loads(text)
            if token not in self._greeted:  # the handshake: which protocol
                assert message == {"protocol": "json", "version": message["version"]}
                self._greeted.add(token)
                self._send(token, {})
            else:
                self._serve(token, message)

    def _serve(self, token: str, message: dict[str, Any]) -> None:
        target, arguments = message.get("target"), message.get("arguments", [])
        answer = {"invocationId": message.get("invocationId")}
        match message["type"], target:
            case 1, "Echo":
                self._send(token, {"type": 3, **answer, "result": arguments[0]})
            case 1, "Tell":
                self._send(token, {"type": 1, "target": "tell", "arguments": arguments})
            case 1, "Fail":
                self._send(token, {"type": 3, **answer, "error": "as was asked"})
            case 4, "Count":
                for n in range(arguments[0]):
                    self._send(token, {"type": 2, **answer, "item": n})
                self._send(token, {"type": 3, **answer})
            case 6, _:
                self._send(token, {"type": 6})
            case 7, _:
                self._queues[token].put_nowait(None)
            case _:
                raise AssertionError(message)

    def _send(self, token: str, message: dict[str, Any]) -> None:
        self._queues[token].put_nowait(json.dumps(message) + _END)
