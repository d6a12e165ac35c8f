"""A small HTTP/1.1 server connection for a host that must be able to misbehave.

A web framework would not let go of the framing: this one can cut a chunk, lie about a length, reset, or say nothing.
What it reads is bounded in size and time all the same, and a client's fault is answered.
"""

from __future__ import annotations

import asyncio
import re
import socket
import struct
import sys
from collections.abc import Callable, Coroutine
from dataclasses import replace
from http import HTTPStatus
from typing import Any, cast

from sse_proxy.demo.messages import BadRequest, Headers, Request, head, parse_head

if sys.platform == "linux":
    import fcntl
    import termios

__all__ = ["MAX_BODY_BYTES", "MAX_HEAD_BYTES", "ClientGone", "Connection"]

MAX_HEAD_BYTES = 32 * 1024
MAX_BODY_BYTES = 1024 * 1024
HEAD_S = 10.0  # from a request's first byte to the end of its head
BODY_S = 30.0  # for the whole body
IDLE_S = 60.0  # between two requests of one connection
WRITE_S = 60.0  # for a client that takes nothing
LINGER_S = 1.0

_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n]*)?")


class ClientGone(Exception):
    """The client closed the connection, or its side of it, or took nothing for too long."""


class Connection(asyncio.Protocol):
    """One client's connection: requests are read from it one after the other, whatever is wanted is written to it.

    Args:
        serve: started as a task for the connection; it is to end the connection before it returns.
        connections: the set that this connection is in as long as it is open.
    """

    def __init__(self, serve: Callable[[Connection], Coroutine[Any, Any, None]], connections: set[Connection]) -> None:
        self._serve = serve
        self._connections = connections
        self._buffer = bytearray()
        self._news = asyncio.Event()  # bytes, the client's end, or the loss of the connection
        self._gone = asyncio.Event()  # the client closed at least its side
        self._writable = asyncio.Event()
        self._writable.set()
        self._lost = False
        self._reading = True
        self.task: asyncio.Task[None] | None = None

    # -- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._connections.add(self)
        self.task = asyncio.get_running_loop().create_task(self._serve(self))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._reading and len(self._buffer) > 2 * MAX_HEAD_BYTES:
            self._reading = False
            self._transport.pause_reading()
        self._news.set()

    def eof_received(self) -> bool:
        self._gone.set()
        self._news.set()
        return True  # our side stays open: the client may still read

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        self._lost = True
        self._gone.set()
        self._news.set()
        self._writable.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # -- reading

    async def read_request(self) -> Request | None:
        """Return the next request; None when the client closed, or sent nothing for `IDLE_S`.

        Raises:
            BadRequest: not a request we take; answer it and close.
            ClientGone: the client left in the middle of it.
        """
        try:
            async with asyncio.timeout(IDLE_S):
                while not self._skip_empty_lines():
                    if not await self._more():
                        return None
        except TimeoutError:
            return None
        try:
            async with asyncio.timeout(HEAD_S):
                request = parse_head(await self._until(b"\r\n\r\n", MAX_HEAD_BYTES, 431, "request head"))
            async with asyncio.timeout(BODY_S):
                body = await self._read_body(request)
        except TimeoutError as error:
            raise BadRequest(408, "the request took too long") from error
        return replace(request, body=body)

    def _skip_empty_lines(self) -> bool:
        # RFC 9112 2.2: at least one empty line before a request line is to be ignored.
        while self._buffer.startswith(b"\r\n"):
            del self._buffer[:2]
        return bool(self._buffer) and self._buffer != b"\r"

    async def _read_body(self, request: Request) -> bytes:
        coding = request.header("transfer-encoding")
        length = request.header("content-length")
        if coding is not None:
            if length is not None or request.minor == 0:
                raise BadRequest(400, "Transfer-Encoding beside Content-Length, or in HTTP/1.0")
            if coding.strip().lower() != "chunked":
                raise BadRequest(501, "the only transfer coding known here is chunked")
            await self._continue(request)
            return await self._read_chunks()
        if length is None:
            return b""
        if not (length.isascii() and length.isdigit() and len(length) <= 18):
            raise BadRequest(400, "Content-Length is not one whole number")
        if int(length) > MAX_BODY_BYTES:
            raise BadRequest(413, f"a body may have {MAX_BODY_BYTES} bytes")
        await self._continue(request)
        return await self._exactly(int(length))

    async def _continue(self, request: Request) -> None:
        # RFC 9110 10.1.1: only an HTTP/1.1 client that still holds its body back waits for this.
        if request.minor and (request.header("expect") or "").lower() == "100-continue" and not self._buffer:
            await self.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    async def _read_chunks(self) -> bytes:
        body = bytearray()
        while True:
            line = await self._until(b"\r\n", 256, 400, "chunk size line")
            match = _CHUNK_SIZE.fullmatch(line)
            if match is None:
                raise BadRequest(400, "a chunk size is not a hexadecimal number")
            size = int(match[1], 16)
            if len(body) + size > MAX_BODY_BYTES:
                raise BadRequest(413, f"a body may have {MAX_BODY_BYTES} bytes")
            if size == 0:
                break
            body += await self._exactly(size)
            if await self._exactly(2) != b"\r\n":
                raise BadRequest(400, "a chunk is longer than its size")
        trailer_bytes = 0
        while line := await self._until(b"\r\n", MAX_HEAD_BYTES, 431, "trailer"):
            trailer_bytes += len(line)
            if trailer_bytes > MAX_HEAD_BYTES:
                raise BadRequest(431, "the trailers are too long")
        return bytes(body)

    async def _until(self, end: bytes, most: int, status: int, what: str) -> bytes:
        searched = 0
        while (at := self._buffer.find(end, searched)) < 0:
            if len(self._buffer) > most:
                raise BadRequest(status, f"a {what} may have {most} bytes")
            searched = max(0, len(self._buffer) - len(end) + 1)
            if not await self._more():
                raise ClientGone
        if at > most:
            raise BadRequest(status, f"a {what} may have {most} bytes")
        taken = bytes(self._buffer[:at])
        del self._buffer[: at + len(end)]
        return taken

    async def _exactly(self, size: int) -> bytes:
        while len(self._buffer) < size:
            if not await self._more():
                raise ClientGone
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken

    async def _more(self) -> bool:
        """Wait for bytes; False when none can come any more."""
        if self._gone.is_set():
            return False
        self._news.clear()
        if not self._reading:
            self._reading = True
            self._transport.resume_reading()
        held = len(self._buffer)
        await self._news.wait()
        return len(self._buffer) > held

    # -- writing

    async def write(self, data: bytes) -> None:
        """Write `data` and wait while the client is slow.

        Raises:
            ClientGone: the connection is lost, or the client took nothing for `WRITE_S`.
        """
        if self._lost:
            raise ClientGone
        self._transport.write(data)
        try:
            async with asyncio.timeout(WRITE_S):
                await self._writable.wait()
        except TimeoutError as error:
            raise ClientGone from error

    async def respond(self, request: Request | None, status: int, headers: Headers, body: bytes) -> bool:
        """Write a whole response with its length; a HEAD request and a 204 get none of the body.

        Args:
            request: None where it could not be read: the connection then closes.

        Returns:
            Whether the connection may go on.
        """
        keep = request is not None and request.keep_alive
        headers = list(headers)
        if status != HTTPStatus.NO_CONTENT:
            headers.append(("Content-Length", str(len(body))))
        headers.append(("Connection", "keep-alive" if keep else "close"))
        if status == HTTPStatus.NO_CONTENT or (request is not None and request.method == "HEAD"):
            body = b""
        await self.write(head(status, headers) + body)
        return keep

    async def pause(self, seconds: float) -> None:
        """Be silent for a while.

        Raises:
            ClientGone: the client left in the meantime; its half-close counts.
        """
        if seconds <= 0:
            return
        if self._gone.is_set():
            raise ClientGone
        try:
            # Reading goes on so that a client's end is noticed; what a pipelining client sends meanwhile is kept.
            async with asyncio.timeout(seconds):
                await self._gone.wait()
        except TimeoutError:
            return
        raise ClientGone

    async def reset(self) -> None:
        """Let what was written arrive, then end the connection with an RST instead of a FIN."""
        sock: socket.socket = self._transport.get_extra_info("socket")
        # A reset throws away what the kernel has not sent: wait until the client's side has acknowledged all of it.
        for _ in range(200):
            if self._lost or not (self._transport.get_write_buffer_size() or _unsent_bytes(sock)):
                break
            await asyncio.sleep(0.005)
        if not self._lost:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.abort()

    async def close(self) -> None:
        """End the connection; drop what the client still sends for a moment, lest a reset overtake our last words."""
        if not self._gone.is_set() and self._transport.can_write_eof():
            self._transport.write_eof()
            try:
                async with asyncio.timeout(LINGER_S):
                    while not self._gone.is_set():
                        self._buffer.clear()
                        await self._more()
            except TimeoutError:
                pass
        self._transport.close()

    def abort(self) -> None:
        """End the connection now."""
        self._gone.set()
        self._transport.abort()


def _unsent_bytes(sock: socket.socket) -> int:
    if sys.platform == "linux":
        return int(struct.unpack("i", fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, b"\0\0\0\0"))[0])
    return 0
