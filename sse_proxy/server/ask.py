"""Send one stream request to the upstream: its head, its body, nothing in between (design section 7)."""

from __future__ import annotations

from collections.abc import AsyncIterator

from aiohttp import web

from sse_proxy.server.exact import BodyFault
from sse_proxy.server.headers import (
    Headers,
    encode_header,
    end_to_end,
    forwarded_headers,
    header_values,
    peer_address,
)
from sse_proxy.server.history import SCRUB_LIMIT, scrub_history
from sse_proxy.server.passthrough import RequestBody, content_length, expects_continue_of
from sse_proxy.server.problem import RequestRefused
from sse_proxy.server.stream import Services, StreamRoute, StreamRun
from sse_proxy.server.target import request_host, split_target, upstream_target
from sse_proxy.server.upstream import connect

__all__ = ["Ask"]


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
        twin = settings.source == "json"
        if twin:
            query = target.partition("?")
            target = settings.json.path + query[1] + query[2]
        self._target = upstream_target(target, route.upstream)
        raw = request.raw_headers
        waits = expects_continue_of(request)
        self._body = RequestBody(request, services.body_timeout, waits) if request.body_exists else None
        self._chunked = self._body is not None and bool(header_values(raw, "transfer-encoding"))
        self._length = None if self._chunked else content_length(raw)
        host = request_host(request)
        headers = [pair for pair in end_to_end(raw) if not self._ours(pair[0].lower(), twin=twin)]
        if route.observe:
            headers = [pair for pair in end_to_end(raw) if pair[0].lower() not in ("host", "expect")]
        else:
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

    @staticmethod
    def _ours(name: str, *, twin: bool) -> bool:
        return name in ("host", "expect", "accept-encoding") or (twin and name == "accept")

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
        try:
            pieces = self._body.pieces()
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
                await exchange.drain()
                exchange.write(piece)
                run.upload_moved()
            exchange.write_eof()
        except BodyFault as fault:
            raise RequestRefused(fault.status, fault.detail, close=True) from fault

    async def _first(self, pieces: AsyncIterator[bytes], run: StreamRun) -> tuple[bytes, bool]:
        """Read the body up to a limit where it is wanted whole; return it, and whether that was all."""
        if not (self._route.settings.scrub_history or self._services.transcript is not None):
            return b"", False
        if self._length is not None and self._length > SCRUB_LIMIT:
            return b"", False
        held = bytearray()
        async for piece in pieces:
            held += piece
            run.upload_moved()
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
