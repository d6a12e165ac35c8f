"""aiohttp's client request, made to write the head it is given, byte for byte, and its response, watched.

aiohttp builds a request's head from a URL object and a header mapping: it re-encodes the target, adds Accept,
Accept-Encoding, User-Agent and Content-Length, merges header names that differ in case, and drops every byte that is
not UTF-8. `ExactRequest` writes a `RequestHead`, and its body as it comes. Connecting, pooling and reading are still
aiohttp's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError

from sse_proxy.server.body import BodyFault
from sse_proxy.server.exact import HeadWriter, write_head
from sse_proxy.server.headers import Headers
from sse_proxy.server.watch import SocketWatch, drained

if TYPE_CHECKING:
    from weakref import WeakSet

    from aiohttp.client_proto import ResponseHandler
    from aiohttp.connector import Connection

__all__ = ["ExactRequest", "RequestHead", "ResponseClock", "WatchedResponse", "hang_up"]

# Turns of the loop: the transport reads in the one after the next, and takes an answer and a reset one by one.
_READS_BEFORE_WRITE = 6


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
        gone: tells whether the client has left, while its body is not being read.
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
    gone: Callable[[], bool] = bool  # never
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
        answered = SocketWatch(transport, readable=True)
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
                await writer.write(piece, drain=False)
                if protocol.writing_paused and await drained(writer, head.gone):
                    raise BodyFault(400, "The client is gone.")
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
