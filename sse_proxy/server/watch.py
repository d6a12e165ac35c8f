"""Seeing that a peer has left while nothing is read from it.

A transport whose reading is paused, because the other side is slow, tells neither a reset nor an end. The socket does.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable

from aiohttp.abc import AbstractStreamWriter

__all__ = ["SocketWatch", "drained"]

_LOOK_S = 0.5


class SocketWatch:
    """Look at a transport's socket without reading from it; for a transport whose reading is paused above all.

    Args:
        readable: also tell of bytes that can be read.
        half_closed: also tell of a peer that will send no more.
    """

    def __init__(
        self, transport: asyncio.BaseTransport | None, *, readable: bool = False, half_closed: bool = False
    ) -> None:
        self._transport = transport
        self._poll = None
        sock = None if transport is None else transport.get_extra_info("socket")
        if sock is not None and sock.fileno() >= 0 and hasattr(select, "poll"):
            events = (select.POLLIN if readable else 0) | (getattr(select, "POLLRDHUP", 0) if half_closed else 0)
            self._poll = select.poll()
            self._poll.register(sock.fileno(), events)  # errors and a full close are always told

    def __call__(self) -> bool:
        if self._poll is None or self._transport is None or self._transport.is_closing():
            return False
        return bool(self._poll.poll(0))


async def drained(writer: AbstractStreamWriter, gone: Callable[[], bool]) -> bool:
    """Wait until a peer has taken what was written; return whether `gone` became true before.

    For the time in which the other side's reading is paused, and its leaving cannot be seen by reading.
    """
    waiting = asyncio.ensure_future(writer.drain())
    try:
        while not waiting.done():
            await asyncio.wait([waiting], timeout=_LOOK_S)
            if not waiting.done() and gone():
                return True
        waiting.result()
        return False
    finally:
        waiting.cancel()
