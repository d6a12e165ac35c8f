"""The WebSocket tunnel: once the upstream has switched protocols, bytes pass, whatever they mean.

A tunnel of bytes instead of two WebSocket ends: subprotocol and extensions are what the two real ends agree on, close
codes, pings and fragments are theirs, and no message is too large, as none is put together here. The handshake is a
plain request (`server.passthrough`), so the upstream is asked first and its refusal passes on like any answer.
"""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
from aiohttp import hdrs, web
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import HttpVersion11, StreamWriter
from aiohttp.streams import EMPTY_PAYLOAD

from sse_proxy.errors import UpstreamBadResponse
from sse_proxy.server.exact import BadHead, ExactResponse
from sse_proxy.server.headers import end_to_end, header_values
from sse_proxy.server.watch import SocketWatch, drained

__all__ = ["PROTOCOL", "is_upgrade", "tunnel"]

# The one protocol switched to. Others (h2c above all) would carry requests that nothing here looks at; a server may
# ignore an Upgrade (RFC 9110 7.8), so they are answered as the plain requests they also are.
PROTOCOL = "websocket"
# How long the upstream may take to read what a departed client still sent.
FLUSH_S = 5.0


def is_upgrade(request: web.BaseRequest) -> bool:
    """Tell whether the client asks for a WebSocket (RFC 6455 4.1)."""
    raw = request.raw_headers
    return (
        request.method == hdrs.METH_GET
        and request.version == HttpVersion11
        and header_values(raw, "upgrade") == [PROTOCOL]
        and "upgrade" in header_values(raw, "connection")
    )


async def tunnel(request: web.BaseRequest, response: aiohttp.ClientResponse) -> web.StreamResponse:
    """Pass the upstream's 101 on, then bytes both ways until one side ends; then end the other.

    Raises:
        UpstreamBadResponse: the upstream switched to another protocol; nothing was passed on.
    """
    raw = response.raw_headers
    if header_values(raw, "upgrade") != [PROTOCOL]:
        raise UpstreamBadResponse("101 for another protocol than the one asked for")
    connection = response.connection
    upstream = connection.protocol if connection is not None else None
    if connection is None or upstream is None or upstream.transport is None:
        raise UpstreamBadResponse("closed with its 101")
    out = ExactResponse(101, response.reason or "", end_to_end(raw), upgrade=response.headers[hdrs.UPGRADE])
    try:
        await out.prepare(request)
    except BadHead as error:
        raise UpstreamBadResponse(str(error)) from error

    client, transport = request.protocol, upstream.transport
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    down = _Pipe(upstream, client, ended)
    up = _Pipe(client, upstream, ended)
    valves = [loop.create_task(pipe.valve()) for pipe in (down, up)]
    try:
        # aiohttp gives what arrives on an upgraded connection to a parser, its tail from behind the head first.
        upstream.set_parser(down, EMPTY_PAYLOAD)
        client.set_parser(_as_parser(up))
        await ended.wait()
    finally:
        for valve in valves:
            valve.cancel()
        await asyncio.gather(*valves, return_exceptions=True)
        # Both are closed behind what was written to them: a close frame, or the end of a message.
        connection.close()
        loop.call_later(FLUSH_S, transport.abort)
        client.force_close()
    await out.write_eof()
    return out


class _Pipe:
    """One direction: what one connection receives is written to the other, and no faster than that takes it."""

    def __init__(self, source: BaseProtocol, sink: BaseProtocol, ended: asyncio.Event) -> None:
        self._source = source
        self._sink = sink
        self._ended = ended
        self._full = asyncio.Event()
        self._writer = StreamWriter(sink, asyncio.get_running_loop())

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """Take what arrived; aiohttp's interface of a parser (finished, rest)."""
        sink = self._sink.transport
        if sink is None or sink.is_closing():
            self._ended.set()
            return False, b""
        sink.write(data)
        source = self._source.transport
        if self._sink.writing_paused and source is not None and not source.is_closing():
            source.pause_reading()
            self._full.set()
        return False, b""

    def feed_eof(self) -> None:
        """The source's connection is gone."""
        self._ended.set()

    async def valve(self) -> None:
        """Let the source go on whenever the sink has taken what was written."""
        # A source that half-closed may have more on its way to us; only one that was reset has not.
        gone = SocketWatch(self._source.transport)
        while True:
            await self._full.wait()
            self._full.clear()
            if await drained(self._writer, gone):
                self._ended.set()
            source = self._source.transport
            if source is not None and not source.is_closing():
                source.resume_reading()


def _as_parser(pipe: _Pipe) -> Any:
    """Return the pipe as what `RequestHandler.set_parser` is declared to take; it calls nothing but the two feeds."""
    return pipe
