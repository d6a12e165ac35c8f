"""An event stream on an undeclared route: it came by aiohttp's client, and is pushed on from there."""

from __future__ import annotations

import asyncio

import aiohttp

from sse_proxy.errors import UpstreamTruncated
from sse_proxy.server.stream import StreamRun
from sse_proxy.server.upstream import ResponseHead

__all__ = ["PulledResponse"]


class PulledResponse:
    """Read a response whose head is there, and push it into a run; a `Source` of it."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        # Asked now: at its end the response lets go of the connection, and with that of how it ended.
        self._protocol = response.connection.protocol if response.connection is not None else None
        self._open = asyncio.Event()
        self._open.set()
        self._closed = False

    async def __call__(self, run: StreamRun) -> None:
        """Push head, body and end.

        Raises:
            UpstreamTruncated: the body was cut.
        """
        run.opened(self)
        raw = self._response.raw_headers
        run.on_head(
            ResponseHead(
                self._response.status,
                self._response.reason or "",
                tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in raw),
                "1.1",
            )
        )
        content = self._response.content
        try:
            while data := await content.readany():
                await self._open.wait()
                if self._closed:
                    return
                run.on_body(data)
        except (aiohttp.ClientError, OSError) as error:
            raise UpstreamTruncated(f"{type(error).__name__}: {error}") from error
        reset = self._protocol.exception() if self._protocol is not None else None
        delimited = any(name.lower() in (b"content-length", b"transfer-encoding") for name, _ in raw)
        if not delimited and isinstance(reset, aiohttp.ClientOSError):
            # aiohttp takes a reset for the end of a body that nothing else delimits.
            raise UpstreamTruncated(f"reset: {reset}")
        run.on_end(None)

    def pause_reading(self) -> None:
        """Let nothing more come; aiohttp's buffer fills, and then the upstream feels it."""
        self._open.clear()

    def resume_reading(self) -> None:
        """Go on."""
        self._open.set()

    def close(self) -> None:
        """Break off at once."""
        self._closed = True
        self._open.set()
        self._response.close()
