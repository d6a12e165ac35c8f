"""LegacyHost: the chat host of the demo and of the tests, a raw-socket HTTP/1.1 server with the legacy hosts' habits.

    POST /api/chatbot/chat/stream   the event stream; head at once, silence, then all frames in a burst
    POST /api/chatbot/chat          its JSON twin: the same answer, whole
    POST /api/chatbot/agui/stream   the AG-UI stream, a right one
    GET  /api/chatbot/status, /examples, /skills
    GET  /, /demo/info              the demo's page and what it needs to know
    GET  /demo/reader.js            the reader module of the page's right-hand pane

Behind the path base `/chatbot`, or with `?host=gachatbot`, it is GaChatbot.Api: the correct writer and
`X-Accel-Buffering: no`. The knobs of the POST routes are described in `knobs`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from sse_proxy.demo.agui import agui_frames, question_of, run_error
from sse_proxy.demo.body import Script, perform
from sse_proxy.demo.connection import ClientGone, Connection
from sse_proxy.demo.knobs import TWIN_FAILS, Fail, Knobs, UnknownKnob, read_knobs
from sse_proxy.demo.library import ANSWERS, answer_for, examples
from sse_proxy.demo.messages import BadRequest, Headers, Request, problem
from sse_proxy.demo.wire import SPLITTERS, WRITERS, compact, error_object, frames, routing_object

__all__ = ["Exchange", "LegacyHost"]

_log = logging.getLogger(__name__)

EMPTY_MESSAGE = "Message cannot be empty."
GACHATBOT_BASE = "/chatbot"
COOKIE = "ga_chat_session"
JSON_TYPE: Headers = [("Content-Type", "application/json; charset=utf-8")]
STREAM_HEADERS: Headers = [("Content-Type", "text/event-stream"), ("Cache-Control", "no-cache")]
# Everything the page uses is in the page itself or in the reader module beside it; it talks to its own origin and, for
# comparison, to the host's.
PAGE_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'self' 'unsafe-inline'; img-src data:; "
    "connect-src http: https:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


@dataclass(slots=True)
class Exchange:
    """One request the host has seen.

    Attributes:
        request: as it came.
        outcome: `open` while it is answered, then `done`, or `client gone` when the client left before the end.
    """

    request: Request
    outcome: str = "open"


class LegacyHost:
    """The embedded legacy host: `port = await host.start()`, later `await host.stop()`.

    Attributes:
        exchanges: the last 1000 requests, oldest first; for tests and for the curious.
    """

    def __init__(self) -> None:
        self.exchanges: deque[Exchange] = deque(maxlen=1000)
        self._connections: set[Connection] = set()
        self._serving = False
        self._server: asyncio.Server | None = None
        self._url = ""
        get, post = ("GET", "HEAD"), ("POST",)
        self._routes: dict[str, tuple[tuple[str, ...], _Handler]] = {
            "/api/chatbot/chat/stream": (post, self._chat_stream),
            "/api/chatbot/chat": (post, self._chat),
            "/api/chatbot/agui/stream": (post, self._agui_stream),
            "/api/chatbot/status": (get, self._status),
            "/api/chatbot/examples": (get, self._examples),
            "/api/chatbot/skills": (get, self._skills),
            "/": (get, self._page),
            "/demo/info": (get, self._info),
            "/demo/reader.js": (get, self._reader),
        }

    @property
    def url(self) -> str:
        """The host's own address, without trailing slash; empty before `start()`."""
        return self._url

    @property
    def open_connections(self) -> int:
        """How many clients are connected."""
        return len(self._connections)

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> int:
        """Listen; return the port, a free one where 0 was asked for.

        Raises:
            OSError: the address cannot be used.
            RuntimeError: it is running already.
        """
        if self._server is not None:
            raise RuntimeError("the host is running already: stop() it first")
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Connection(self._serve, self._connections), host, port)
        self._serving = True
        bound = int(self._server.sockets[0].getsockname()[1])
        self._url = f"http://[{host}]:{bound}" if ":" in host else f"http://{host}:{bound}"
        return bound

    async def stop(self) -> None:
        """Stop listening and end every connection, streams that stall included. Does nothing when not running."""
        if self._server is None:
            return
        self._serving = False
        self._server.close()
        while self._connections:
            for connection in self._connections:
                connection.abort()
            # Whatever a connection waits for, its loss ends the wait.
            tasks = [connection.task for connection in self._connections if connection.task is not None]
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.sleep(0)  # the loop tells a connection of its loss in its next turn
        await self._server.wait_closed()
        self._server, self._url = None, ""

    async def _serve(self, connection: Connection) -> None:
        if not self._serving:  # accepted in the very moment of stop()
            connection.abort()
            return
        try:
            await self._serve_requests(connection)
            await connection.close()
        except ClientGone:
            connection.abort()
        except BaseException:
            connection.abort()
            raise

    async def _serve_requests(self, connection: Connection) -> None:
        while True:
            try:
                request = await connection.read_request()
            except BadRequest as error:
                await connection.respond(None, error.status, *problem(error.status, error.detail))
                return
            if request is None:
                return
            exchange = Exchange(request)
            self.exchanges.append(exchange)
            try:
                keep = await self._answer(connection, request)
            except ClientGone:
                exchange.outcome = "client gone"
                raise
            except Exception:
                _log.exception("the demo host failed on %s %.80s", request.method, request.target)
                keep = False
            exchange.outcome = "done"
            if not keep:
                return

    async def _answer(self, connection: Connection, request: Request) -> bool:
        call = _Call(connection, request, _cors(request))
        path = request.path
        host = "gaapi"
        if path == GACHATBOT_BASE or path.startswith(GACHATBOT_BASE + "/"):
            path, host = path.removeprefix(GACHATBOT_BASE), "gachatbot"
        if request.method == "OPTIONS":
            return await call.respond(204, [("Allow", "GET, HEAD, POST, OPTIONS"), *_preflight(request)], b"")
        if path not in self._routes:
            return await call.respond(404, *problem(404, "no such route"))
        methods, handler = self._routes[path]
        if request.method not in methods:
            headers, body = problem(405, f"this route takes {' or '.join(methods)}")
            return await call.respond(405, [("Allow", ", ".join((*methods, "OPTIONS"))), *headers], body)
        try:
            return await handler(call, host)
        except (_Refused, UnknownKnob) as error:
            return await call.respond(400, *problem(400, str(error)))

    # -- the chat routes

    async def _chat_stream(self, call: _Call, host: str) -> bool:
        knobs = read_knobs(call.request.query, host=host)
        message = _message(call.body_object())
        if not message.strip():
            # As the hosts do it: framed like a stream, but with no content type to say so.
            return await call.respond(400, [], f"data: {compact(error_object(EMPTY_MESSAGE))}\n\n".encode())
        answer = answer_for(message)
        script = Script(
            headers=[*STREAM_HEADERS, *([("X-Accel-Buffering", "no")] if knobs.host == "gachatbot" else [])],
            frames=frames(answer.text, routing_object(answer.agent_id), knobs.host, knobs.chunks),
            error=WRITERS[knobs.host]([compact(error_object())])[0],
            after=WRITERS[knobs.host](["And another thing. ", "Goodbye."]),
        )
        return await perform(call.connection, call.request, script, knobs, [*call.cors, *_cookie(call.request)])

    async def _chat(self, call: _Call, host: str) -> bool:
        knobs = read_knobs(call.request.query, host=host, fails=TWIN_FAILS)
        message = _message(call.body_object())
        if not message.strip():
            return await call.respond(400, JSON_TYPE, compact(error_object(EMPTY_MESSAGE)).encode())
        script = Script(JSON_TYPE, [_twin_body(message, knobs)], silent_head=False)
        return await perform(call.connection, call.request, script, knobs, [*call.cors, *_cookie(call.request)])

    async def _agui_stream(self, call: _Call, host: str) -> bool:
        knobs = read_knobs(call.request.query, host=host)
        body = call.body_object()
        question = question_of(body)
        if not question.strip():
            return await call.respond(400, JSON_TYPE, compact(error_object(EMPTY_MESSAGE)).encode())
        answer = answer_for(question)
        ids = [str(body.get(key) or default) for key, default in (("threadId", "thread-1"), ("runId", "run-1"))]
        events = agui_frames(answer.text, answer.agent_id, thread_id=ids[0], run_id=ids[1], chunks=knobs.chunks)
        script = Script(STREAM_HEADERS, events, error=run_error(), after=events[5:7])
        return await perform(call.connection, call.request, script, knobs, [*call.cors, *_cookie(call.request)])

    # -- plain routes

    async def _status(self, call: _Call, host: str) -> bool:
        return await call.json({"isAvailable": True, "message": "The demo host is ready.", "host": host})

    async def _examples(self, call: _Call, host: str) -> bool:
        return await call.json(examples())

    async def _skills(self, call: _Call, host: str) -> bool:
        agents = dict.fromkeys(answer.agent_id for answer in ANSWERS)
        return await call.json([{"agentId": agent} for agent in agents])

    async def _page(self, call: _Call, host: str) -> bool:
        page = (files("sse_proxy.demo") / "page.html").read_bytes()
        headers = [("Content-Type", "text/html; charset=utf-8"), ("Cache-Control", "no-cache")]
        headers += [("Content-Security-Policy", PAGE_POLICY), ("X-Content-Type-Options", "nosniff")]
        return await call.respond(200, headers, page)

    async def _reader(self, call: _Call, host: str) -> bool:
        # A file of the package, not of the server's code: from the root, so that no module of the server is imported.
        reader = files("sse_proxy").joinpath("server", "inspector", "reader.js").read_bytes()
        headers = [("Content-Type", "text/javascript; charset=utf-8"), ("Cache-Control", "no-cache")]
        return await call.respond(200, [*headers, ("X-Content-Type-Options", "nosniff")], reader)

    async def _info(self, call: _Call, host: str) -> bool:
        return await call.json(
            {
                "direct": self._url,
                "examples": examples(),
                "hosts": list(WRITERS),
                "chunks": list(SPLITTERS),
                "fails": [{"kind": str(fail), "about": fail.about} for fail in Fail],
            }
        )


class _Refused(ValueError):
    """A chat request whose body is not what the route takes (400)."""


@dataclass(frozen=True, slots=True)
class _Call:
    """One request with the connection to answer it on."""

    connection: Connection
    request: Request
    cors: Headers

    async def respond(self, status: int, headers: Headers, body: bytes) -> bool:
        return await self.connection.respond(self.request, status, [*headers, *self.cors], body)

    async def json(self, value: object) -> bool:
        return await self.respond(200, [*JSON_TYPE, ("Cache-Control", "no-cache")], json.dumps(value).encode())

    def body_object(self) -> dict[str, Any]:
        """Return the JSON object of the body.

        Raises:
            _Refused: it is none.
        """
        try:
            value = json.loads(self.request.body)
        except (ValueError, RecursionError) as error:
            raise _Refused("the body is not JSON") from error
        if not isinstance(value, dict):
            raise _Refused("the body is not a JSON object")
        return value


_Handler = Callable[[_Call, str], Awaitable[bool]]


def _message(body: dict[str, Any]) -> str:
    message = body.get("message")
    if message is None:
        return ""
    if not isinstance(message, str):
        raise _Refused("message is not a string")
    return message


def _twin_body(message: str, knobs: Knobs) -> bytes:
    answer = answer_for(message)
    routing = routing_object(answer.agent_id)
    return compact(
        {
            "naturalLanguageAnswer": answer.text,
            **{key: routing[key] for key in ("agentId", "confidence", "routingMethod", "grounding")},
            "elapsedMs": 3 + round(knobs.delay_s * 1000),
            "traceId": secrets.token_hex(16),
            "trace": routing["trace"],
        }
    ).encode()


def _cookie(request: Request) -> Headers:
    if f"{COOKIE}=" in (request.header("cookie") or ""):
        return []
    return [("Set-Cookie", f"{COOKIE}={secrets.token_hex(16)}; path=/api/chatbot; samesite=lax; httponly")]


def _cors(request: Request) -> Headers:
    """Let a page of any origin read the answer, without credentials (Fetch standard, HTTP CORS protocol)."""
    origin = request.header("origin")
    return [] if origin is None else [("Access-Control-Allow-Origin", origin), ("Vary", "Origin")]


def _preflight(request: Request) -> Headers:
    if request.header("access-control-request-method") is None:
        return []
    headers = [
        ("Access-Control-Allow-Methods", "GET, HEAD, POST"),
        ("Access-Control-Allow-Headers", request.header("access-control-request-headers") or "content-type"),
        ("Access-Control-Max-Age", "600"),
    ]
    if request.header("access-control-request-private-network") == "true":
        headers.append(("Access-Control-Allow-Private-Network", "true"))
    return headers
