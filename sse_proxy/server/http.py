"""The front: takes connections and request heads, and answers what is not a request in plain words.

aiohttp parses; this module mends what it does badly for a server that faces browsers and scanners: a bad head gets a
short HTTP/1.1 answer and one log line, a head has a size as a whole and must be whole in time, a body with broken
framing wakes its reader, a shutdown lets requests finish, and a fault of ours shows no traceback to anybody.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import aiohttp
from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.helpers import DEFAULT_CHUNK_SIZE
from aiohttp.http import HttpVersion10, HttpVersion11, RawRequestMessage
from aiohttp.http_exceptions import BadHttpMethod, InvalidURLError, LineTooLong
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader
from aiohttp.web_protocol import RequestHandler, RequestPayloadError, _ErrInfo
from yarl import URL

from sse_proxy.errors import AdmissionRefused, FailureCode, UpstreamError
from sse_proxy.server.exact import ExactResponse, HeadWriter, abort
from sse_proxy.server.headers import header_values, request_id
from sse_proxy.server.problem import RequestRefused, problem, upstream_problem
from sse_proxy.server.target import request_host

__all__ = ["FrontConnection", "FrontServer", "Handler", "Site", "serve", "server_context"]

logger = logging.getLogger(__name__)

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

BACKLOG = 1024
KEEPALIVE_TIMEOUT_S = 75.0  # as nginx keepalive_timeout
# How long a refused client may go on sending before the connection is cut. Closing at once would answer what it still
# sends with a reset, and the reset would destroy our answer before it was read (RFC 9112 9.6).
LINGER_S = 2.0
READ_BUFFER_BYTES = 64 * 1024


class ListenAddress(Protocol):
    """Where to listen: `config.Listen` is one."""

    @property
    def host(self) -> str | None: ...
    @property
    def port(self) -> int | None: ...
    @property
    def path(self) -> str | None: ...


class FrontConnection(RequestHandler):
    """One client connection.

    Attributes:
        draining: the server is shutting down: answers carry `Connection: close`.
        on_writable: called when a client that read slowly takes bytes again; of the response that is being written.
    """

    def __init__(self, manager: FrontServer, *, max_header: int, head_timeout: float | None, **kwargs: Any) -> None:
        super().__init__(manager, **kwargs)
        self._front = manager
        self._max_header = max_header
        self._head_timeout = head_timeout
        self._head_timer: asyncio.TimerHandle | None = None
        self._head_bytes = 0  # of a head that is not whole yet
        self._last_payload: StreamReader | None = None  # body of the last request that was read
        self._refused = False
        self.on_writable: Callable[[], None] | None = None

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.on_writable is not None:
            self.on_writable()

    @property
    def draining(self) -> bool:
        return self._front.draining

    @property
    def idle(self) -> bool:
        """Whether no request is running, waiting or on its way."""
        waiting = self._waiter is not None and not self._waiter.done()
        return waiting and not self._messages and self._head_bytes == 0

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return  # what a refused client still sends is thrown away
        # Where a body ends and the next head begins inside one packet, that head's clock starts with its next packet.
        in_body = self._last_payload is not None and not self._last_payload.is_eof()
        before = self._request_count
        super().data_received(data)
        taken = self._request_count - before
        if taken:
            self._end_head()
            self._take(list(self._messages)[-taken:], in_body, self._head_bytes + len(data))
            self._head_bytes = 0
        elif data and not in_body and not self._upgraded and not self._close and not self._force_close:
            if not self._head_bytes and not data.strip(b"\r\n"):
                return  # empty lines before a request line are no part of it (RFC 9112 2.2)
            self._head_bytes += len(data)
            if self._head_bytes > self._max_header:
                self._refuse_head(431, "The request's head is too large.")
            elif self._head_timer is None and self._head_timeout is not None:
                self._head_timer = self._loop.call_later(self._head_timeout, self._head_is_late)

    def _take(self, messages: list[tuple[Any, StreamReader]], in_body: bool, size: int) -> None:
        """Look at what aiohttp's parser has just made of the bytes: requests, or the error that ends them."""
        message, payload = messages[-1]
        if isinstance(message, RawRequestMessage):
            self._last_payload = payload
            if size > self._max_header and any(_head_size(each) > self._max_header for each, _ in messages):
                self._messages.clear()
                self._refuse_head(431, "The request's head is too large.")
            return
        self._refused = True
        if in_body and self._last_payload is not None and not self._last_payload.is_eof():
            # Broken framing in the body of a request that is being answered. aiohttp would leave its reader waiting.
            self._messages.pop()
            self._last_payload.set_exception(RequestPayloadError(str(message.exc)))
            self.close()

    def _head_is_late(self) -> None:
        self._head_timer = None
        if self._messages or self._request_in_progress:
            # Earlier requests of the connection are still being answered: its head may wait as long.
            assert self._head_timeout is not None
            self._head_timer = self._loop.call_later(self._head_timeout, self._head_is_late)
            return
        self._refuse_head(408, "The request's head did not arrive in time.")

    def _end_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _refuse_head(self, status: int, detail: str) -> None:
        """Answer in the head's place, after the requests before it; nothing more is read."""
        self._end_head()
        self._refused = True
        self._messages.append((_ErrInfo(status, RequestRefused(status, detail), detail), EMPTY_PAYLOAD))
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _make_error_handler(self, err_info: _ErrInfo) -> Handler:
        async def refuse(request: web.BaseRequest) -> web.StreamResponse:
            status, detail = _explain(err_info)
            logger.info("request head from %s refused: %d %s", request.remote, status, _excerpt(err_info.exc))
            response = problem(status, detail, request_id=request_id(request), close=True)
            return await self.answer_last(request, response)

        return refuse

    async def answer_last(self, request: web.BaseRequest, response: ExactResponse) -> web.StreamResponse:
        """Send a whole response and end the connection behind it, throwing away what the client still sends."""
        self._refused = True
        response.force_close()
        await response.prepare(request)
        await response.write_eof()
        transport = self.transport
        if transport is not None and not transport.is_closing():
            if transport.can_write_eof():
                transport.write_eof()
            transport.resume_reading()
            await asyncio.sleep(LINGER_S)  # the client's end cancels this
        self.force_close()
        return response

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer for an exception that no one caught; never with its text."""
        logger.error("fault while answering %s: %s", request.method, type(exc).__name__, exc_info=_traceback(exc))
        if request.writer.output_size > 0:
            abort(request)
            raise ConnectionResetError("the answer had begun")
        return problem(
            status, "The proxy failed.", request_id=request_id(request), code=str(FailureCode.INTERNAL), close=True
        )

    def log_exception(self, *args: Any, **kw: Any) -> None:
        exc = kw.get("exc_info")
        logger.error("fault on a connection: %s", type(exc).__name__, exc_info=_traceback(exc))

    def connection_lost(self, exc: BaseException | None) -> None:
        self._end_head()
        super().connection_lost(exc)


class FrontServer(web.Server):
    """Serves a handler over HTTP/1.0 and 1.1; an asyncio protocol factory.

    The handler may raise `RequestRefused`, `UpstreamError` or `AdmissionRefused`: they become problem documents, as
    anything else becomes a 500 with one line in the log. It is cancelled when its client goes.

    Args:
        max_header: bytes of a request's head as a whole; beyond: 431.
        head_timeout: seconds from a head's first byte to its last, None for no limit; beyond: 408.
        keepalive_timeout: seconds without a request after which a connection is closed.
    """

    def __init__(
        self,
        handler: Handler,
        *,
        max_header: int = 64 * 1024,
        head_timeout: float | None = 10.0,
        keepalive_timeout: float = KEEPALIVE_TIMEOUT_S,
        lingering_time: float = 10.0,
    ) -> None:
        super().__init__(self._guarded, request_factory=_make_request, handler_cancellation=True)
        self._handler = handler
        self.max_header = max_header
        self.head_timeout = head_timeout
        self.draining = False
        self._connection_kwargs: dict[str, Any] = {
            "max_header": max_header,
            "head_timeout": head_timeout,
            "keepalive_timeout": keepalive_timeout,
            "lingering_time": lingering_time,
            # aiohttp limits each line and their number; the whole is what this module limits.
            "max_line_size": max_header,
            "max_field_size": max_header,
            "max_headers": max_header // 4,
            "auto_decompress": False,
            "read_bufsize": min(READ_BUFFER_BYTES, DEFAULT_CHUNK_SIZE),
            "access_log": None,
            "logger": logger,
        }

    def __call__(self) -> FrontConnection:
        return FrontConnection(self, loop=self._loop, **self._connection_kwargs)

    async def drain(self, timeout_s: float) -> None:
        """Let running requests finish, closing each connection behind its last one; then cut what is left.

        Args:
            timeout_s: how long to wait.
        """
        self.draining = True
        deadline = self._loop.time() + timeout_s
        while True:
            for connection in self.connections:
                if isinstance(connection, FrontConnection) and connection.idle:
                    connection.force_close()
            # A connection leaves the list one turn of the loop after it was closed.
            await asyncio.sleep(0)
            if not self.connections or self._loop.time() >= deadline:
                break
            await asyncio.sleep(0.02)
        await self.shutdown(0.1)

    async def _guarded(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            _check(request)
            response = await self._handler(request)
            if not isinstance(response, web.StreamResponse):
                raise TypeError(f"the handler answered with {type(response).__name__}")
            return response
        except web.HTTPException:
            raise
        except aiohttp.ClientConnectionResetError as error:  # aiohttp's writers say it, at either end
            if request.transport is not None and not request.transport.is_closing():
                failed = self._fault(request, error)
            else:
                gone = ExactResponse(499, None, [])  # nobody is there to read an answer
                gone.abandon(request)
                return gone
        except RequestRefused as refusal:
            logger.info("%s from %s refused: %s", request.method, request.remote, refusal)
            failed = problem(
                refusal.status,
                refusal.detail,
                request_id=request_id(request),
                headers=refusal.headers,
            )
            if refusal.close and request.writer.output_size == 0 and isinstance(request.protocol, FrontConnection):
                return await request.protocol.answer_last(request, failed)
        except AdmissionRefused as refusal:
            logger.info("request %s not admitted: %s", request_id(request), refusal.code)
            failed = problem(
                refusal.code.http_status,
                "The proxy cannot take this request now.",
                request_id=request_id(request),
                code=str(refusal.code),
                headers=[("Retry-After", str(refusal.retry_after_s))],
            )
        except UpstreamError as error:
            logger.warning("upstream failed for request %s: %s: %s", request_id(request), error.code, error)
            failed = upstream_problem(error, request_id=request_id(request))
        except Exception as error:
            failed = self._fault(request, error)
        if request.writer.output_size > 0:
            failed.abandon(request)  # its head is out: the only way left to say so
        elif request.body_exists and not request.content.is_eof():  # where the next request begins is not certain
            failed.force_close()
        return failed

    def _fault(self, request: web.BaseRequest, error: Exception) -> ExactResponse:
        identity = request_id(request)
        logger.error("fault while answering request %s: %s", identity, type(error).__name__, exc_info=_traceback(error))
        return problem(500, "The proxy failed.", request_id=identity, code=str(FailureCode.INTERNAL))


class Site:
    """A listening server.

    Attributes:
        port: the TCP port, None on a unix socket.
        path: the unix socket's path, None on TCP.
    """

    def __init__(self, front: FrontServer, server: asyncio.Server, path: str | None) -> None:
        self._front = front
        self._server = server
        self.path = path
        self.port: int | None = None if path is not None else server.sockets[0].getsockname()[1]

    def stop_listening(self) -> None:
        """Take no new connection; those open go on."""
        self._server.close()

    async def stop(self, drain_timeout: float = 0.0) -> None:
        """Stop listening, let running requests finish for `drain_timeout` seconds, then end them."""
        self.stop_listening()
        await self._front.drain(drain_timeout)
        await self._server.wait_closed()
        if self.path is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path)


async def serve(
    front: FrontServer, listen: ListenAddress, *, tls: ssl.SSLContext | None = None, backlog: int = BACKLOG
) -> Site:
    """Listen at an address (TCP over IPv4 or IPv6, or a unix socket) and serve every connection.

    Args:
        tls: serve https with this context, see `server_context`.

    Raises:
        OSError: the address cannot be listened at.
    """
    loop = asyncio.get_running_loop()
    options: dict[str, Any] = {"backlog": backlog, "ssl": tls}
    if tls is not None and front.head_timeout is not None:
        options["ssl_handshake_timeout"] = front.head_timeout
    if listen.path is not None:
        server = await loop.create_unix_server(front, listen.path, **options)
    else:
        server = await loop.create_server(front, listen.host, listen.port, **options)
    return Site(front, server, listen.path)


def server_context(cert: os.PathLike[str] | str, key: os.PathLike[str] | str) -> ssl.SSLContext:
    """Return the TLS context for serving https: HTTP/1.1 only.

    Raises:
        OSError: a file cannot be read.
        ssl.SSLError: certificate and key are no pair.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)
    context.set_alpn_protocols(["http/1.1"])
    return context


def _make_request(
    message: RawRequestMessage,
    payload: StreamReader,
    protocol: RequestHandler,
    writer: AbstractStreamWriter,
    task: asyncio.Task[None],
) -> web.BaseRequest:
    loop = asyncio.get_running_loop()
    head_writer = HeadWriter(protocol, loop)
    try:
        return web.BaseRequest(message, payload, protocol, head_writer, task, loop)
    except ValueError:
        # A target that yarl cannot take apart; nobody here looks at this URL, `split_target` judges the raw one.
        return web.BaseRequest(message._replace(url=URL("/")), payload, protocol, head_writer, task, loop)


def _check(request: web.BaseRequest) -> None:
    """Refuse what aiohttp's parser lets through and two servers could read in two ways.

    Raises:
        RequestRefused: with the status to answer.
    """
    if request.version not in (HttpVersion10, HttpVersion11):
        raise RequestRefused(505, "This server speaks HTTP/1.1.", close=True)
    codings = header_values(request._message.raw_headers, "transfer-encoding")
    if codings and request.version == HttpVersion10:
        raise RequestRefused(400, "Transfer-Encoding needs HTTP/1.1.", close=True)  # RFC 9112 6.1
    if codings and codings != ["chunked"]:
        raise RequestRefused(501, "The only transfer coding known here is chunked.", close=True)
    request_host(request)


def _head_size(message: RawRequestMessage) -> int:
    lines = sum(len(name) + len(value) + 4 for name, value in message.raw_headers)
    return len(message.method) + len(message.path) + len(" HTTP/1.1\r\n\r\n") + 1 + lines


def _explain(err_info: _ErrInfo) -> tuple[int, str]:
    if isinstance(err_info.exc, RequestRefused):
        return err_info.status, err_info.message
    if isinstance(err_info.exc, LineTooLong) or "Too many headers" in str(err_info.exc):
        return 431, "The request's head is too large."
    if isinstance(err_info.exc, BadHttpMethod):
        return 400, "The request's method is not known here."
    return 400, "The request's head is not valid HTTP."


def _excerpt(exc: BaseException) -> str:
    """Return an exception in one short line, without what the client wrote."""
    if isinstance(exc, InvalidURLError):
        return "InvalidURLError"
    text = str(getattr(exc, "message", "") or exc).partition(":")[0]
    return f"{type(exc).__name__}: {text[:80]!a}"


def _traceback(exc: object) -> BaseException | None:
    return exc if isinstance(exc, BaseException) and logger.isEnabledFor(logging.DEBUG) else None
