"""One request and its response on one connection, pushed not pulled.

No task, queue, future or timer for what comes in, and one `on_body` for each read of the socket.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Protocol, cast

from sse_proxy.errors import UpstreamError, UpstreamUnreachable
from sse_proxy.server.upstream.address import UpstreamAddress
from sse_proxy.server.upstream.request import request_head
from sse_proxy.server.upstream.response import ResponseHead, ResponseReader
from sse_proxy.server.upstream.tls import TlsChannel

__all__ = ["UpstreamExchange", "UpstreamSink"]

_SALVAGE_READS, _SALVAGE_BYTES = 1024, 64 * 1024
# What one upstream may deliver in one turn of the loop. uvloop reads a ready socket many times in a turn, so one that
# sends as fast as it can would hold up everybody else's streams and clocks.
_TURN_BYTES = 64 * 1024


class UpstreamSink(Protocol):
    """Who hears what an upstream says. May call `close` and `pause_reading` from inside any of these."""

    def on_head(self, head: ResponseHead) -> None:
        """Take the head of the final response. What the same read held of the body follows at once."""

    def on_body(self, data: bytes) -> None:
        """Take the body bytes of one read, never empty."""

    def on_end(self, error: UpstreamError | None) -> None:
        """Take the end: once, and last. None: the response is complete, as far as its framing tells."""


class UpstreamExchange(asyncio.Protocol):
    """One request and its response. Made by `connect`; the methods of asyncio.Protocol are for the loop alone.

    Writing to an upstream that has gone does nothing: the sink hears of it. That is not before the sink is told, for
    an upstream may answer (413) and hang up while the request's body is still on its way.
    """

    __slots__ = (
        "__weakref__",
        "_body_open",
        "_bytes_received",
        "_cause",
        "_chunked",
        "_early",
        "_error",
        "_gated",
        "_handshake",
        "_head_given",
        "_hung_up",
        "_loop",
        "_max_head",
        "_over",
        "_paused",
        "_reader",
        "_sink",
        "_tls",
        "_transport",
        "_turn_bytes",
        "_turn_over",
        "_upstream",
        "_writable",
    )

    def __init__(self, upstream: UpstreamAddress, sink: UpstreamSink, max_head: int) -> None:
        self._upstream, self._max_head = upstream, max_head
        self._loop = asyncio.get_running_loop()
        self._sink: UpstreamSink | None = sink  # None: it hears no more
        self._transport: asyncio.Transport | None = None
        self._reader: ResponseReader | None = None  # there once the head is sent
        self._bytes_received = 0
        self._paused = self._head_given = self._chunked = self._body_open = False
        self._turn_bytes = 0  # delivered in this turn of the loop, at least
        self._turn_over = False  # reading stands until the next one
        self._over = False  # the verdict is known: no more comes
        self._error: UpstreamError | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        # An upstream may speak, or hang up, before it was asked. That waits until it is.
        self._gated, self._hung_up = True, False
        self._early: list[bytes] = []
        self._cause: Exception | None = None
        self._tls: TlsChannel | None = None
        self._handshake: asyncio.Future[None] | None = None
        if upstream.ssl_context is not None:
            self._tls = TlsChannel(upstream.ssl_context, upstream.server_hostname)
            self._handshake = self._loop.create_future()

    # --- for the owner --------------------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """The sink hears nothing more, and what is written goes nowhere."""
        return self._sink is None

    @property
    def paused(self) -> bool:
        return self._paused

    @property
    def bytes_received(self) -> int:
        """Bytes of the response so far, head and framing included, TLS not."""
        return self._bytes_received

    def send_head(self, method: str, target: str, headers: Sequence[tuple[str, str | bytes]], *, chunked: bool) -> None:
        """Send the request's head, a `Host` added where `headers` has none. Once.

        Args:
            target: path and query as they go on the line.
            headers: end-to-end headers in order; text goes out as Latin-1, bytes as they are.
            chunked: a body of unknown length follows; its `Transfer-Encoding` is added here. Without it the body is as
                long as the `Content-Length` in `headers` says, or empty.

        Raises:
            ValueError: something that would break the head's form; nothing was sent.
            RuntimeError: the head was sent before.
        """
        if self._reader is not None:
            raise RuntimeError("send_head() was called before: one exchange carries one request")
        data = request_head(method, target, headers, self._upstream.authority, chunked)
        if self._sink is None:  # closed meanwhile: there is nothing to read, and nobody would let go of the reader
            return
        self._reader = ResponseReader(self._upstream.where, max_head=self._max_head, head_only=method == "HEAD")
        self._chunked = self._body_open = chunked
        self._send(data)
        if self._early or self._hung_up:
            self._loop.call_soon(self._open_gate)
        else:
            self._gated = False

    def write(self, data: bytes) -> None:
        """Send a piece of the request's body; an empty one sends nothing.

        Raises:
            RuntimeError: before `send_head` or after `write_eof`.
        """
        if self._over:
            return
        if self._reader is None or (self._chunked and not self._body_open):
            raise RuntimeError("write() belongs between send_head() and write_eof()")
        if data:
            self._send(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)

    def write_eof(self) -> None:
        """End a chunked body; does nothing for another. The connection stays open both ways: servers take a half-close
        for a client that has left."""
        if self._body_open:
            self._body_open = False
            self._send(b"0\r\n\r\n")

    async def drain(self) -> None:
        """Wait while the upstream takes the request more slowly than it is written; not when it has gone."""
        await self._writable.wait()

    def pause_reading(self) -> None:
        """Let the sink hear nothing until `resume_reading`, and the upstream feel the back-pressure."""
        self._paused = True
        if self._transport is not None and not self._over:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Go on. What waits is told in the loop's next turn, never inside this call."""
        if not self._paused:
            return
        self._paused = False
        self._loop.call_soon(self._go_on)

    def close(self) -> None:
        """Break off at once. The sink hears nothing more. Any number of times, from anywhere."""
        self._sink = None
        self._finish(None)
        if self._reader is not None:
            self._reader.close()
        if self._handshake is not None:
            self._handshake.cancel()  # one that failed counts as looked at from here on

    async def established(self) -> None:
        """Wait for the TLS handshake, where there is one; `connect` has done it.

        Raises:
            UpstreamUnreachable: it did not come about.
        """
        if self._handshake is not None:
            await self._handshake

    # --- for the loop ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)  # uvloop's own class is none
        if self._over:  # closed while the connection came about
            transport.abort()
        elif self._tls is not None:
            self._tls.receive(b"")
            transport.write(self._tls.outgoing())

    def data_received(self, data: bytes) -> None:
        if self._tls is None:
            self._take(data)
        else:
            self._decipher(self._tls, data)
        self._deliver()
        self._turn_bytes += len(data)
        if self._turn_bytes >= _TURN_BYTES and not self._over and not self._turn_over and self._transport is not None:
            self._turn_over = True
            self._transport.pause_reading()
            self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._turn_bytes, self._turn_over = 0, False
        if not self._paused and not self._over and not self._gated and self._transport is not None:
            self._transport.resume_reading()

    def eof_received(self) -> None:
        self._end_of_stream(None)
        self._deliver()

    def connection_lost(self, exc: Exception | None) -> None:
        transport, self._transport = self._transport, None
        if not self._over and exc is not None and transport is not None:
            self._salvage(transport)
        self._end_of_stream(exc)
        self._writable.set()
        self._deliver()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # --- reading --------------------------------------------------------------------------------------------------

    def _decipher(self, tls: TlsChannel, data: bytes) -> None:
        plain = tls.receive(data)
        if (reply := tls.outgoing()) and self._transport is not None:
            self._transport.write(reply)
        if self._handshake is not None and tls.established and not self._handshake.done():
            self._handshake.set_result(None)
        if plain:
            self._take(plain)
        if tls.fault is not None:
            self._end_of_stream(tls.fault)
        elif tls.ended:
            self._end_of_stream(None)

    def _take(self, data: bytes) -> None:
        """Read what came; `_deliver` passes it on."""
        if self._gated:
            self._early.append(data)
            if self._transport is not None:
                self._transport.pause_reading()
            return
        reader = self._reader
        if reader is None or self._over:
            return
        self._bytes_received += len(data)
        try:
            reader.feed(data)
        except UpstreamError as exc:
            self._finish(exc.with_traceback(None))  # its frames would hold us, and we hold it
        else:
            if reader.complete:
                self._finish(None)

    def _refuse_tls(self, why: object) -> None:
        if self._handshake is not None and not self._handshake.done():
            self._handshake.set_exception(UpstreamUnreachable(f"{self._upstream.where}: no TLS connection: {why}"))

    def _end_of_stream(self, cause: Exception | None) -> None:
        """No more comes: judge what did. `cause`: None for an orderly end."""
        if self._over:
            return
        if self._tls is not None:
            self._refuse_tls(cause or "the connection was closed in the handshake")
            if cause is None and not self._tls.ended:
                cause = ConnectionAbortedError("TLS ended without a close_notify")
        if self._gated:
            self._hung_up, self._cause = True, self._cause or cause
        elif self._reader is not None:
            self._finish(self._reader.eof(cause))

    def _finish(self, error: UpstreamError | None) -> None:
        """Settle how it ends, and let go of the connection at once. `_deliver` tells the sink."""
        if self._over:
            return
        self._over, self._error = True, error
        self._early.clear()
        if self._transport is not None:
            self._transport.abort()

    def _deliver(self) -> None:
        """Tell the sink what is due, in order: head, body, end."""
        sink, reader = self._sink, self._reader
        if sink is None or reader is None or self._paused:
            return
        try:
            if not self._head_given and reader.head is not None:
                self._head_given = True
                sink.on_head(reader.head)
                if self._paused or self._sink is None:
                    return
            if chunks := reader.chunks:
                data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
                chunks.clear()
                sink.on_body(data)
                if self._paused or self._sink is None:
                    return
            if self._over:
                self._sink = None
                sink.on_end(self._error)
                self.close()
        except Exception as exc:
            self.close()
            self._loop.call_exception_handler(
                {
                    "message": "the sink of an upstream failed; its exchange is closed",
                    "exception": exc,
                    "protocol": self,
                }
            )

    def _open_gate(self) -> None:
        """The request is out: read what came before it."""
        self._gated = False
        early, self._early = b"".join(self._early), []
        if early:
            self._take(early)
        if self._hung_up:
            self._end_of_stream(self._cause)
        self._go_on()

    def _go_on(self) -> None:
        self._deliver()
        if not self._paused and not self._over and not self._turn_over and self._transport is not None:
            self._transport.resume_reading()

    def _salvage(self, transport: asyncio.Transport) -> None:
        """Read what the kernel still holds.

        An upstream that answers before it has read the request and then closes makes our next write fail (RST). The
        loop gives the connection up at that, the answer unread; at this point the socket is still open.
        """
        try:
            fd = transport.get_extra_info("socket").fileno()
            for _ in range(_SALVAGE_READS):
                data = os.read(fd, _SALVAGE_BYTES)
                if not data or self._over:
                    return
                if self._tls is None:
                    self._take(data)
                else:
                    self._decipher(self._tls, data)
        except OSError:
            return  # nothing left (EAGAIN), or the reset itself

    # --- writing --------------------------------------------------------------------------------------------------

    def _send(self, data: bytes) -> None:
        transport = self._transport
        # Writing to a transport that is closing makes asyncio warn at the fifth time.
        if transport is None or self._over or transport.is_closing():
            return
        transport.write(data if self._tls is None else self._tls.send(data))
