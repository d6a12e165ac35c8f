"""The front: a server that takes connections, hands requests to a handler, and answers for what goes wrong.

aiohttp parses and writes; what it does badly for a server that faces browsers and scanners is mended here (what a
handler raises, a shutdown that lets requests finish, heads that two servers could read in two ways) and, for each
connection, in `server.connection`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import ssl
from typing import Any, Protocol

import aiohttp
from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.helpers import DEFAULT_CHUNK_SIZE
from aiohttp.http import HttpVersion10, HttpVersion11, RawRequestMessage
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler
from yarl import URL

from sse_proxy.errors import AdmissionRefused, FailureCode, UpstreamError
from sse_proxy.server.connection import FrontConnection, Handler, traceback_of
from sse_proxy.server.exact import ExactResponse, HeadWriter
from sse_proxy.server.headers import header_values, request_id
from sse_proxy.server.problem import RequestRefused, problem, upstream_problem
from sse_proxy.server.target import request_host

__all__ = ["HAS_A_LINE", "FrontConnection", "FrontServer", "Handler", "Site", "serve", "server_context"]

logger = logging.getLogger(__name__)

# Set by a handler that writes the log's line for a request itself, what it raises included.
HAS_A_LINE = web.RequestKey("has_a_line", bool)

BACKLOG = 1024
MAX_HEADERS = 1024  # lines of a head, or of trailers
KEEPALIVE_TIMEOUT_S = 75.0  # as nginx keepalive_timeout
READ_BUFFER_BYTES = 64 * 1024


class ListenAddress(Protocol):
    """Where to listen: `config.Listen` is one."""

    @property
    def host(self) -> str | None: ...
    @property
    def port(self) -> int | None: ...
    @property
    def path(self) -> str | None: ...


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
            "max_headers": MAX_HEADERS,
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
            if HAS_A_LINE not in request:
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
            if HAS_A_LINE not in request:
                logger.info("request %s not admitted: %s", request_id(request), refusal.code)
            failed = problem(
                refusal.code.http_status,
                "The proxy cannot take this request now.",
                request_id=request_id(request),
                code=str(refusal.code),
                headers=[("Retry-After", str(refusal.retry_after_s))],
            )
        except UpstreamError as error:
            if HAS_A_LINE not in request:
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
        logger.error(
            "fault while answering request %s: %s", identity, type(error).__name__, exc_info=traceback_of(error)
        )
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
