"""The one writer of a stream's response: whole events, keep-alives, the end.

Bytes go straight to the connection's transport, one write for each call, and nothing is awaited: when the client reads
slowly the writer says so (`paused`), and whoever feeds it pauses the upstream.
"""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from sse_proxy.server.exact import ExactResponse, HeadWriter
from sse_proxy.server.http import FrontConnection

__all__ = ["StreamWriter"]


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
        self.bytes_out = 0

    @property
    def started(self) -> bool:
        """Whether the head is out."""
        return self._response is not None

    @property
    def paused(self) -> bool:
        """Whether the client takes less than is written."""
        return self._protocol.writing_paused

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
        self.bytes_out += len(data)
        if self._response is None:
            self._waiting.append(data)
            return
        transport = self._protocol.transport
        if transport is not None and not transport.is_closing():
            transport.write(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)

    async def end(self) -> web.StreamResponse:
        """End the response properly: with its final chunk, or as its length says."""
        assert self._response is not None
        self._protocol.on_writable = None
        if not self.gone:
            await self._response.write_eof()
        return self._response

    def abandon(self) -> web.StreamResponse:
        """End the connection: the answer cannot be completed and must not look complete."""
        assert self._response is not None
        self._protocol.on_writable = None
        self._response.abandon(self._request)
        return self._response
