"""The one writer of a stream's response: whole events, keep-alives, the end.

Bytes go straight to the connection's transport, one write for each call, and nothing is awaited: when the client reads
slowly the writer says so (`paused`), and whoever feeds it pauses the upstream.
"""

from __future__ import annotations

import asyncio
import select
import socket
import struct
import sys
from collections.abc import Callable

from aiohttp import web

from sse_proxy.server.exact import ExactResponse, HeadWriter
from sse_proxy.server.http import FrontConnection

if sys.platform == "linux":
    import fcntl
    import termios

__all__ = ["StreamWriter", "has_left"]

_FLUSH_S = 5.0


def _in_kernel(sock: socket.socket | None) -> int:
    """Return how many bytes the peer's kernel has not acknowledged; 0 where that is not told.

    The kernel takes megabytes, and lets a transport write again when a third of that is free: without this, a reader
    that takes a little all the time would seem to take nothing.
    """
    if sys.platform != "linux" or sock is None or sock.fileno() < 0:
        return 0
    try:
        return int(struct.unpack("i", fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, b"\0\0\0\0"))[0])
    except OSError:
        return 0


def has_left(transport: asyncio.BaseTransport) -> bool:
    """Tell whether the peer has closed at least its side, while nothing is read from it; False where that is not told.

    The kernel knows of a FIN even when data stand before it.
    """
    sock = transport.get_extra_info("socket")
    if sock is None or sock.fileno() < 0 or not hasattr(select, "POLLRDHUP"):
        return False
    poll = select.poll()
    poll.register(sock.fileno(), select.POLLRDHUP)
    return bool(poll.poll(0))


class StreamWriter:
    """Write one response, piece by piece, without waiting.

    What is written before `start()` waits for the head and leaves with it.

    Args:
        on_writable: called when a client that was slow takes bytes again.
    """

    def __init__(self, request: web.BaseRequest, on_writable: Callable[[], None]) -> None:
        protocol = request.protocol
        if not isinstance(protocol, FrontConnection):
            raise TypeError("StreamWriter needs a request that FrontServer took")
        self._request = request
        self._protocol = protocol
        self._on_writable = on_writable
        self._response: ExactResponse | None = None
        self._waiting: list[bytes] = []
        self._chunked = False

    @property
    def started(self) -> bool:
        """Whether the head is out."""
        return self._response is not None

    @property
    def paused(self) -> bool:
        """Whether the client takes less than is written."""
        return self._protocol.writing_paused

    @property
    def unsent(self) -> int:
        """How many bytes wait for the client, those in the kernel too where that tells."""
        transport = self._protocol.transport
        if transport is None:
            return 0
        return transport.get_write_buffer_size() + _in_kernel(transport.get_extra_info("socket"))

    @property
    def gone(self) -> bool:
        """Whether the client has left."""
        transport = self._protocol.transport
        return transport is None or transport.is_closing()

    async def start(self, response: ExactResponse) -> None:
        """Write the head, with what waits for it.

        Args:
            response: made with `send_at_once=False`.

        Raises:
            BadHead: the head cannot be written; nothing was.
        """
        await response.prepare(self._request)
        writer = self._request.writer
        assert isinstance(writer, HeadWriter)
        self._response = response
        self._chunked = bool(writer.chunked)
        self._protocol.on_writable = self._on_writable
        first = b"".join(self._waiting)
        self._waiting.clear()
        if first:
            await writer.write(first, drain=False)
        else:
            writer.send_headers()

    def write(self, data: bytes) -> None:
        """Write `data` now, or keep it for the head to come. To a client that has left nothing is written."""
        if not data:
            return
        if self._response is None:
            self._waiting.append(data)
            return
        transport = self._protocol.transport
        if transport is not None and not transport.is_closing():
            transport.write(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)

    async def end(self) -> web.StreamResponse:
        """End the response properly: with its final chunk, or as its length says."""
        assert self._response is not None
        if not self.gone:
            await self._response.write_eof()
        self._protocol.on_writable = None
        return self._response

    def abandon(self) -> web.StreamResponse:
        """End the connection: the answer cannot be completed and must not look complete."""
        assert self._response is not None
        self._protocol.on_writable = None
        transport = self._protocol.transport
        self._response.abandon(self._request)
        if transport is not None and transport.get_write_buffer_size():
            # It closes when what was written is taken. A client that takes nothing must not keep it for ever.
            asyncio.get_running_loop().call_later(_FLUSH_S, transport.abort)
        return self._response

    def drop(self) -> None:
        """Cut the connection to a client that takes nothing; what waits for it is lost."""
        transport = self._protocol.transport
        if transport is not None:
            transport.abort()
