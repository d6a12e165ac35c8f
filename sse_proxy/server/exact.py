"""Heads, written byte for byte; and aiohttp's response, made to use them.

aiohttp adds Date, Server and Content-Type to a response, merges header names that differ in case, and drops every
byte that is not UTF-8. `ExactResponse` writes the head it is given and adds framing (RFC 9112 section 6) and nothing
else; bodies stay aiohttp's. `server.exact_client` is the same for requests to an upstream.
"""

from __future__ import annotations

import re
import socket
import struct
from http import HTTPStatus

from aiohttp import hdrs, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import HttpVersion11, StreamWriter

from sse_proxy.server.headers import Headers, encode_header

__all__ = ["BadHead", "ExactResponse", "HeadWriter", "abort", "write_head"]

_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


class BadHead(ValueError):
    """A head that cannot be written: a control character in it would begin another header, or another message."""


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


def _is_draining(request: web.BaseRequest) -> bool:
    return bool(getattr(request.protocol, "draining", False))


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""
