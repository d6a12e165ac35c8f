"""Send one stream request to the upstream: its head, its body, nothing in between (design section 7)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from urllib.parse import urlsplit

from aiohttp import web

from sse_proxy.server.body import BodyFault, RequestBody, content_length, expects_continue_of
from sse_proxy.server.downstream import has_left
from sse_proxy.server.headers import (
    Headers,
    encode_header,
    end_to_end,
    forwarded_headers,
    header_values,
    peer_address,
)
from sse_proxy.server.history import SCRUB_LIMIT, scrub_history
from sse_proxy.server.problem import RequestRefused
from sse_proxy.server.services import Services, StreamRoute
from sse_proxy.server.stream import StreamRun
from sse_proxy.server.target import request_host, split_target, upstream_target
from sse_proxy.server.upstream import UpstreamExchange, connect

__all__ = ["Ask"]

_LOOK_S = 0.5  # between two looks for a client that cannot be heard


class Ask:
    """What a stream's upstream is asked, made from the client's request.

    Raises:
        RequestRefused: the request cannot be passed on.
    """

    def __init__(self, request: web.BaseRequest, route: StreamRoute, services: Services) -> None:
        self._request = request
        self._route = route
        self._services = services
        settings = route.settings
        _, target = split_target(request)
        twin = route.twin
        if twin:
            # The twin's path is the upstream's own, so no prefix is taken off it.
            _, mark, query = target.partition("?")
            self._target = urlsplit(route.upstream.url).path + settings.json.path + mark + query
        else:
            self._target = upstream_target(target, route.upstream)
        raw = request.raw_headers
        waits = expects_continue_of(request)
        self._body = RequestBody(request, services.body_timeout, waits) if request.body_exists else None
        self._chunked = self._body is not None and bool(header_values(raw, "transfer-encoding"))
        self._length = None if self._chunked else content_length(raw)
        host = request_host(request)
        headers = [pair for pair in end_to_end(raw) if not self._ours(pair[0].lower())]
        if not route.observe:
            # A stream cannot be repaired under a content coding.
            headers.append(("Accept-Encoding", "identity"))
            if twin:
                headers.append(("Accept", "application/json"))
        if route.upstream.host_header == "client" and host:
            headers.insert(0, ("Host", host))
        self._headers = forwarded_headers(
            headers,
            peer=peer_address(request),
            scheme="https" if request.secure else "http",
            host=host,
            trusted_proxies=services.trusted_proxies,
        )

    def _ours(self, name: str) -> bool:
        """Whether a header of the client is replaced by one of ours."""
        if name == "accept-encoding":
            return not self._route.observe
        return name in ("host", "expect") or (self._route.twin and name == "accept")

    async def __call__(self, run: StreamRun) -> None:
        """Connect, and send the request.

        Raises:
            UpstreamError: no connection.
            RequestRefused: the request's body failed.
        """
        exchange = await connect(
            self._route.address,
            run,
            connect_timeout=self._route.upstream.connect_timeout,
            max_head=self._services.max_header,
        )
        run.opened(exchange)
        if self._body is None:
            exchange.send_head(self._request.method, self._target, self._framed(self._length), chunked=False)
            return
        run.client_sends(True)
        try:
            async with aclosing(self._body.pieces()) as pieces:
                await self._send(exchange, pieces, run)
        except BodyFault as fault:
            raise RequestRefused(fault.status, fault.detail, close=True) from fault
        finally:
            run.client_sends(False)

    async def _send(self, exchange: UpstreamExchange, pieces: AsyncIterator[bytes], run: StreamRun) -> None:
        first, whole = await self._first(pieces, run)
        if whole:
            if self._route.settings.scrub_history and not self._route.observe and self._is_json():
                first = scrub_history(first)
            exchange.send_head(self._request.method, self._target, self._framed(len(first)), chunked=False)
            exchange.write(first)
            return
        exchange.send_head(self._request.method, self._target, self._framed(self._length), chunked=self._chunked)
        exchange.write(first)
        async for piece in pieces:
            run.client_sends(False)
            await self._room(exchange)
            exchange.write(piece)
            run.client_sends(True)
        exchange.write_eof()

    async def _room(self, exchange: UpstreamExchange) -> None:
        """Wait until the upstream takes more.

        Nothing is read from the client meanwhile, so the loop does not see it leave: that has to be looked for.
        """
        while True:
            try:
                async with asyncio.timeout(_LOOK_S):
                    await exchange.drain()
                return
            except TimeoutError:
                transport = self._request.transport
                if transport is not None and has_left(transport):
                    transport.abort()  # which ends this request

    async def _first(self, pieces: AsyncIterator[bytes], run: StreamRun) -> tuple[bytes, bool]:
        """Read the body up to a limit where it is wanted whole; return it, and whether that was all."""
        scrub = self._route.settings.scrub_history and not self._route.observe
        if not (scrub or self._services.transcript is not None):
            return b"", False
        if self._length is not None and self._length > SCRUB_LIMIT:
            return b"", False
        held = bytearray()
        async for piece in pieces:
            held += piece
            if len(held) > SCRUB_LIMIT:
                return bytes(held), False
        run.request_body = bytes(held)
        return bytes(held), True

    def _framed(self, length: int | None) -> list[tuple[str, str | bytes]]:
        headers: Headers = list(self._headers)
        if length is not None:
            headers.append(("Content-Length", str(length)))
        return [(name, encode_header(value)) for name, value in headers]

    def _is_json(self) -> bool:
        raw = self._request.raw_headers
        if header_values(raw, "content-encoding"):
            return False
        kind = self._request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        return kind in ("", "application/json") or kind.endswith("+json")
