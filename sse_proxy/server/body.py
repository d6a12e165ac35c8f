"""The body of a client's request, on its way to an upstream."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator

from aiohttp import web
from aiohttp.http import HttpVersion11

from sse_proxy.errors import UpstreamBadResponse
from sse_proxy.server.exact import HeadWriter
from sse_proxy.server.headers import RawHeaders, decode_header, header_values
from sse_proxy.server.problem import RequestRefused

__all__ = ["BodyFault", "RequestBody", "content_length", "expects_continue_of"]

_DIGITS = re.compile(r"[0-9]+")
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class BodyFault(Exception):
    """The client's request body failed while it was sent on.

    Attributes:
        status: what the client is told: 400 for broken framing, 408 for a pause that was too long.
    """

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


class RequestBody:
    """The body of a client's request.

    Args:
        timeout_s: longest pause between two pieces; None for no limit.
        expects_continue: the client waits for a 100 before it sends (RFC 9110 10.1.1).

    Attributes:
        complete: all of it was read.
    """

    def __init__(self, request: web.BaseRequest, timeout_s: float | None, expects_continue: bool) -> None:
        self._request = request
        self._timeout_s = timeout_s
        self._expects_continue = expects_continue

    @property
    def complete(self) -> bool:
        return self._request.content.is_eof()

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """Yield the body as it comes.

        Raises:
            BodyFault: its framing is broken, it paused for too long, or the client is gone.
        """
        content = self._request.content
        if self._expects_continue:
            self._continue()
        try:
            while not content.at_eof():
                piece = content.read_nowait()
                if not piece:
                    async with asyncio.timeout(self._timeout_s):
                        piece = await content.readany()
                if piece:
                    yield piece
        except TimeoutError as error:
            raise BodyFault(408, "The request's body did not arrive in time.") from error
        except (web.RequestPayloadError, OSError) as error:
            raise BodyFault(400, "The request's body is broken.") from error

    def _continue(self) -> None:
        writer, transport = self._request.writer, self._request.transport
        # Not behind an early answer's head; and straight to the transport: it is no part of that answer.
        if transport is not None and not (isinstance(writer, HeadWriter) and writer.begun):
            transport.write(_CONTINUE)


def expects_continue_of(request: web.BaseRequest) -> bool:
    """Tell whether the client waits for a 100.

    Raises:
        RequestRefused: 417 for any other expectation.
    """
    expected = header_values(request.raw_headers, "expect")
    if not expected or request.version < HttpVersion11:
        return False
    if expected != ["100-continue"]:
        raise RequestRefused(417, "The only expectation known here is 100-continue.", close=True)
    return True


def content_length(raw: RawHeaders) -> int | None:
    """Return the length a head declares, None for none; aiohttp's parser has refused contradictions.

    Raises:
        UpstreamBadResponse: not a number.
    """
    for name, value in raw:
        if name.lower() == b"content-length":
            text = decode_header(value).strip(" \t")
            if not _DIGITS.fullmatch(text) or len(text) > 19:
                raise UpstreamBadResponse(f"Content-Length {text[:40]!a}")
            return int(text)
    return None
