"""One client connection: aiohttp's protocol, and what it does badly for a server that faces browsers and scanners.

A bad head gets a short HTTP/1.1 answer and one log line, a head has a size as a whole and must be whole in time, a body
with broken framing wakes its reader, and a fault of ours shows no traceback to anybody.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from aiohttp import web
from aiohttp.http import RawRequestMessage
from aiohttp.http_exceptions import BadHttpMethod, InvalidURLError, LineTooLong
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader
from aiohttp.web_protocol import RequestHandler, RequestPayloadError, _ErrInfo

from sse_proxy.errors import FailureCode
from sse_proxy.server.exact import ExactResponse, abort
from sse_proxy.server.headers import request_id
from sse_proxy.server.problem import RequestRefused, problem

if TYPE_CHECKING:
    from sse_proxy.server.http import FrontServer

__all__ = ["FrontConnection", "Handler", "traceback_of"]

logger = logging.getLogger(__name__)

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

# How long a refused client may go on sending before the connection is cut. Closing at once would answer what it still
# sends with a reset, and the reset would destroy our answer before it was read (RFC 9112 9.6).
_PIPELINED = 16  # requests that may wait behind one that is answered; beyond, the connection ends with that one
LINGER_S = 2.0


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
        self._idle_body_bytes = 0  # of a body's framing since the body itself last grew
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
        body_bytes = self._last_payload.total_bytes if in_body and self._last_payload is not None else 0
        super().data_received(data)
        taken = self._request_count - before
        if in_body and not taken and self._is_all_framing(body_bytes, len(data)):
            return
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

    def _is_all_framing(self, before: int, size: int) -> bool:
        """Break off a request whose trailers or chunk framing pass the limit of a head; True: it was."""
        payload = self._last_payload
        if payload is None or payload.is_eof() or payload.total_bytes != before:
            self._idle_body_bytes = 0
            return False
        self._idle_body_bytes += size
        if self._idle_body_bytes <= 2 * self._max_header:
            return False
        self._refused = True
        payload.set_exception(RequestPayloadError("the trailers are too large"))
        self.close()
        return True

    def _take(self, messages: list[tuple[Any, StreamReader]], in_body: bool, size: int) -> None:
        """Look at what aiohttp's parser has just made of the bytes: requests, or the error that ends them."""
        message, payload = messages[-1]
        if len(self._messages) > _PIPELINED:
            # aiohttp would stop reading at some more, and with that never see that the client has left.
            while len(self._messages) > _PIPELINED:
                self._messages.pop()
            self._refused = self._close = True
            if self._buffer_paused:
                self._resume_reading_for_buffer()
            return
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
        logger.error("fault while answering %s: %s", request.method, type(exc).__name__, exc_info=traceback_of(exc))
        if request.writer.output_size > 0:
            abort(request)
            raise ConnectionResetError("the answer had begun")
        return problem(
            status, "The proxy failed.", request_id=request_id(request), code=str(FailureCode.INTERNAL), close=True
        )

    def log_exception(self, *args: Any, **kw: Any) -> None:
        exc = kw.get("exc_info")
        logger.error("fault on a connection: %s", type(exc).__name__, exc_info=traceback_of(exc))

    def connection_lost(self, exc: BaseException | None) -> None:
        self._end_head()
        super().connection_lost(exc)


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


def traceback_of(exc: object) -> BaseException | None:
    """Return what to log as `exc_info`: the exception, when details are wanted."""
    return exc if isinstance(exc, BaseException) and logger.isEnabledFor(logging.DEBUG) else None
