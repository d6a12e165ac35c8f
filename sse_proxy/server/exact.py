"""aiohttp's request and response, made to write heads byte for byte.

aiohttp builds heads from a URL object and a header mapping: it re-encodes the target, adds Date, Server, Content-Type,
Accept and User-Agent, merges names that differ in case, and drops every byte that is not UTF-8. These classes write
the head they are given and add framing (RFC 9112 section 6) and nothing else. Reading, pooling and bodies
stay aiohttp's.
"""

from __future__ import annotations

import asyncio
import re
import select
import socket
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

import aiohttp
from aiohttp import hdrs, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import HttpVersion11, StreamWriter
from aiohttp.http_exceptions import HttpProcessingError

from sse_proxy.server.headers import Headers, encode_header

if TYPE_CHECKING:
    from weakref import WeakSet

    from aiohttp.client_proto import ResponseHandler
    from aiohttp.connector import Connection

__all__ = [
    "BadHead",
    "BodyFault",
    "ExactRequest",
    "ExactResponse",
    "HeadWriter",
    "RequestHead",
    "ResponseClock",
    "WatchedResponse",
    "abort",
    "hang_up",
    "write_head",
]

_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
# Turns of the loop: the transport reads in the one after the next, and takes an answer and a reset one by one.
_READS_BEFORE_WRITE = 6
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


class BadHead(ValueError):
    """A head that cannot be written: a control character in it would begin another header, or another message."""


class BodyFault(Exception):
    """The client's request body failed while it was sent on.

    Attributes:
        status: what the client is told: 400 for broken framing, 408 for a pause that was too long.
    """

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


def write_head(start_line: str, headers: Headers) -> bytes:
    """Return a message head as bytes.

    Raises:
        BadHead: a control character, or a name that is no token (RFC 9110 5.6.2).
    """
    parts = [encode_header(start_line)]
    if _CONTROL.search(parts[0]):
        raise BadHead("control character in a start line")
    for name, value in headers:
        raw_name, raw_value = encode_header(name), encode_header(value)
        if not _NAME.fullmatch(raw_name) or _CONTROL.search(raw_value):
            raise BadHead(f"header that is not one: {name[:40]!r}")
        parts.append(raw_name + b": " + raw_value)
    return b"\r\n".join(parts) + b"\r\n\r\n"


class HeadWriter(StreamWriter):
    """aiohttp's writer, that also takes a head as bytes.

    Attributes:
        begun: a head was put; nothing may be written before it.
    """

    begun = False

    def put_head(self, head: bytes, *, length: int | None, chunked: bool) -> None:
        """Buffer a head; it leaves with the first piece of the body, or with `send_headers()`.

        Args:
            length: bytes of the body that may follow, None when unknown; more are not written.
            chunked: whether the body is framed in chunks.
        """
        self._headers_buf = head
        self._headers_written = False
        self.length = length
        self.chunked = chunked
        self.begun = True

    @property
    def delimited(self) -> bool:
        """Whether the reader can tell a complete body from a cut one by its framing."""
        return self.chunked or self.length is not None


def abort(request: web.BaseRequest) -> None:
    """End the client's connection now, so that an unfinished answer does not look finished.

    What was written before is still delivered. Only where nothing but the connection's end delimits the body, an
    orderly end would look like a complete one: there a reset tells the truth (RFC 9112 section 8).
    """
    transport = request.transport
    if transport is None:
        return
    if not (isinstance(request.writer, HeadWriter) and request.writer.delimited):
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family != getattr(socket, "AF_UNIX", None):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()
    request.protocol.force_close()


class ExactResponse(web.StreamResponse):
    """A response whose status line and headers are exactly those given, and the framing the client can read.

    A known length (a Content-Length among the headers) is kept; else the body goes in chunks to an HTTP/1.1 client
    and up to the connection's end to an older one. Only for requests that `server.http.FrontServer` took.

    Args:
        reason: the reason phrase; None for the usual one.
        headers: end-to-end headers, see `headers.end_to_end`.
        body: all of the body, when it is known; else it is written piece by piece.
        upgrade: the protocol switched to (status 101).
        send_at_once: send the head in `prepare()`; else with the first piece of the body.

    Attributes:
        abandoned: the body could not be completed, and the connection was ended in its place.
    """

    def __init__(
        self,
        status: int,
        reason: str | None,
        headers: Headers,
        *,
        body: bytes | None = None,
        upgrade: str | None = None,
        send_at_once: bool = True,
    ) -> None:
        super().__init__(status=status)
        if reason is None:
            reason = _phrase(status)
        self._exact_reason = reason
        self._exact_headers = headers
        self._content = body
        self._upgrade = upgrade
        self._send_at_once = send_at_once and body is None
        self._bodyless = False
        self.abandoned = False

    @property
    def reason(self) -> str:
        return self._exact_reason

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Write the head.

        Raises:
            BadHead: nothing was written.
        """
        if self._eof_sent or self._payload_writer is not None:
            return self._payload_writer
        writer = request.writer
        if not isinstance(writer, HeadWriter):
            raise TypeError("ExactResponse needs a request that FrontServer took")
        headers, length, chunked, keep_alive = self._frame(request)
        head = write_head(f"HTTP/1.1 {self.status} {self._exact_reason}", headers)
        self._keep_alive = keep_alive
        self._req = request
        self._payload_writer = writer
        writer.put_head(head, length=length, chunked=chunked)
        if self._send_at_once:
            writer.send_headers()
        return writer

    def _frame(self, request: web.BaseRequest) -> tuple[Headers, int | None, bool, bool]:
        """Return headers with framing, the body's length if known, whether in chunks, whether to keep alive."""
        headers = list(self._exact_headers)
        keep_alive = self._keep_alive is not False and request.keep_alive and not _is_draining(request)
        modern = request.version >= HttpVersion11
        length: int | None = None
        chunked = False
        if self._upgrade is not None:
            headers += [("Connection", "Upgrade"), ("Upgrade", self._upgrade)]
            return headers, None, False, False
        if request.method == hdrs.METH_HEAD or self.status in (204, 304) or 100 <= self.status < 200:
            self._bodyless = True
            length = 0
        else:
            length = next((int(value) for name, value in headers if name.lower() == "content-length"), None)
            if length is None and modern:
                chunked = True
                headers.append(("Transfer-Encoding", "chunked"))
            elif length is None:
                keep_alive = False
        if not keep_alive:
            headers.append(("Connection", "close"))
        elif not modern:
            headers.append(("Connection", "keep-alive"))
        return headers, length, chunked, keep_alive

    async def write_eof(self, data: bytes = b"") -> None:
        """End the body; all of it was written, or is given here."""
        await super().write_eof(b"" if self._bodyless else data or self._content or b"")

    def abandon(self, request: web.BaseRequest) -> None:
        """End the connection in place of a body that cannot be completed."""
        abort(request)
        self.abandoned = True
        self._keep_alive = False
        self._eof_sent = True
        self._req = self._payload_writer = None


class ResponseClock:
    """Limits how long a response head may take, counted while it is the upstream's turn.

    Args:
        timeout: an entered `asyncio.timeout(None)` around the wait.
        patience_s: None for no limit.
    """

    def __init__(self, timeout: asyncio.Timeout, patience_s: float | None) -> None:
        self._timeout = timeout
        self._patience_s = patience_s

    def start(self) -> None:
        """Count from now."""
        if self._patience_s is not None and not self._timeout.expired():
            self._timeout.reschedule(asyncio.get_running_loop().time() + self._patience_s)

    def stop(self) -> None:
        """Count no more: it is the client's turn."""
        if not self._timeout.expired():
            self._timeout.reschedule(None)


@dataclass(slots=True, eq=False)
class RequestHead:
    """What one request to the upstream says, and how it went.

    Attributes:
        method: written as it is; may be any token.
        target: see `target.upstream_target`.
        headers: end-to-end headers, with Host and, when known, Content-Length.
        body: pieces of the body, oldest first; None for none. It raises `BodyFault`.
        chunked: whether the body goes in chunks (its length is unknown).
        last: whether the connection ends with the answer.
        upgrade: the protocol to switch to.
        clock: runs while the upstream is waited for, stands while the client is; None once the head is there.
        used: connections that have carried a request, shared by all requests of a pool.
        reused: set when the connection had carried one.
        protocol: set to the connection's protocol.
        pump: set to the task that sends the body.
    """

    method: str
    target: str
    headers: Headers
    body: AsyncIterator[bytes] | None = None
    chunked: bool = False
    last: bool = False
    upgrade: str | None = None
    clock: ResponseClock | None = None
    used: WeakSet[ResponseHandler] | None = None
    reused: bool = False
    protocol: ResponseHandler | None = None
    pump: asyncio.Task[None] | None = None

    def encode(self) -> bytes:
        """Return the head's bytes.

        Raises:
            BadHead: see `write_head`.
        """
        headers = list(self.headers)
        if self.chunked:
            headers.append(("Transfer-Encoding", "chunked"))
        if self.upgrade is not None:
            headers += [("Connection", "Upgrade"), ("Upgrade", self.upgrade)]
        elif self.last:
            headers.append(("Connection", "close"))
        return write_head(f"{self.method} {self.target} HTTP/1.1", headers)


class WatchedResponse(aiohttp.ClientResponse):
    """aiohttp's client response, whose reader is told when the body's framing breaks.

    aiohttp tells the connection alone, and leaves the body's reader waiting for ever.
    """

    async def start(self, connection: Connection) -> aiohttp.ClientResponse:
        protocol = connection.protocol
        await super().start(connection)
        content = self.content
        if protocol is None or content.is_eof():
            return self

        def check(closed: asyncio.Future[None] | None = None) -> None:
            if closed is not None and not closed.cancelled():
                closed.exception()  # seen
            fault = protocol.exception()
            if isinstance(fault, HttpProcessingError) and not content.is_eof() and content.exception() is None:
                content.set_exception(aiohttp.ClientPayloadError(f"broken framing: {type(fault).__name__}"))

        closed = protocol.closed
        if closed is None:  # already
            check()
        else:
            closed.add_done_callback(check)

            def ended() -> None:
                closed.remove_done_callback(check)

            content.on_eof(ended)
        return self


class ExactRequest(aiohttp.ClientRequest):
    """aiohttp's client request, that writes the `RequestHead` a client middleware gives it instead of its own."""

    head: RequestHead | None = None
    response: aiohttp.ClientResponse | None = None  # type: ignore[assignment]

    async def send(self, conn: Connection) -> aiohttp.ClientResponse:
        """Write the head, start sending the body, and return the response that is yet to come."""
        head, protocol = self.head, conn.protocol
        assert head is not None
        assert protocol is not None
        head.protocol = protocol
        if head.used is not None:
            head.reused = protocol in head.used
            head.used.add(protocol)
        writer = HeadWriter(protocol, self.loop)
        length = next((int(value) for name, value in head.headers if name.lower() == "content-length"), None)
        writer.put_head(head.encode(), length=None if head.chunked else length or 0, chunked=head.chunked)
        if head.clock is not None:
            head.clock.start()
        if head.body is None:
            writer.set_eof()
        else:
            writer.send_headers()
            head.pump = self._writer = self.loop.create_task(self._pump(head.body, writer, conn))
        response = self.response = self.response_class(
            self.method,
            self.original_url,
            writer=head.pump,
            continue100=None,
            timer=self._timer,
            request_info=self.request_info,
            traces=[],
            loop=self.loop,
            session=self._session,
            stream_writer=writer,
        )
        return response

    async def _pump(self, body: AsyncIterator[bytes], writer: HeadWriter, conn: Connection) -> None:
        """Send the body. The connection is not used again when this ends early."""
        head, protocol = self.head, conn.protocol
        assert head is not None
        assert protocol is not None
        transport = protocol.transport
        answered = _Readable(transport)
        try:
            while True:
                if head.clock is not None:
                    head.clock.stop()
                piece = await anext(body, b"")
                if head.clock is not None:
                    head.clock.start()
                if not piece:
                    break
                # An upstream that answers an upload at once (413) may reset the connection behind its answer. A write
                # would then fail and take the unread answer with it, so what is there is read first.
                for _ in range(_READS_BEFORE_WRITE):
                    if not answered():
                        break
                    await asyncio.sleep(0)
                await writer.write(piece)
            await writer.write_eof()
        except asyncio.CancelledError:
            hang_up(conn, transport)
            raise
        except BodyFault as fault:
            # Whoever waits for the head gets the fault; whoever relays an early answer sees the connection's end.
            protocol.set_exception(fault)
            if self.response is not None:
                self.response.close()
            hang_up(conn, transport)
        except OSError:
            # The upstream stopped reading. It may have answered first (413, then a reset): the reading side,
            # which has seen those bytes or will see the connection's end, tells.
            pass


class _Readable:
    """Tell whether there is something to read on a transport's socket: bytes, an end or an error."""

    def __init__(self, transport: asyncio.Transport | None) -> None:
        self._poll = None
        sock = None if transport is None else transport.get_extra_info("socket")
        if sock is not None and hasattr(select, "poll"):
            self._poll = select.poll()
            self._poll.register(sock.fileno(), select.POLLIN)
        self._transport = transport

    def __call__(self) -> bool:
        if self._poll is None or self._transport is None or self._transport.is_closing():
            return False
        return bool(self._poll.poll(0))


def hang_up(conn: Connection | None, transport: asyncio.Transport | None = None) -> None:
    """Close a connection to the upstream, never to be used again, whatever it still has to send.

    Args:
        transport: the connection's, where the connection may have been closed and forgotten it.
    """
    if conn is None:
        return
    transport = transport or conn.transport
    conn.close()
    # With bytes in the buffer a mere close() would wait for an upstream that does not read, maybe for ever.
    if transport is not None and transport.get_write_buffer_size():
        transport.abort()


def _is_draining(request: web.BaseRequest) -> bool:
    return bool(getattr(request.protocol, "draining", False))


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""
