"""One plain request, start to end: what the client sent goes to the upstream, what comes back goes to the client.

Byte for byte both ways and with bounded memory: target, end-to-end headers, body, status, reason. Ours are the framing
of each hop, the forwarded headers, the limits, and the answers to failures.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import ssl
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import IPv4Network, IPv6Network
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from weakref import WeakSet

import aiohttp
from aiohttp import hdrs, web
from yarl import URL

from sse_proxy.config import Upstream
from sse_proxy.errors import UpstreamBadResponse, UpstreamStalled, UpstreamUnreachable
from sse_proxy.server import websocket
from sse_proxy.server.body import BodyFault, RequestBody, content_length, expects_continue_of
from sse_proxy.server.exact import BadHead, ExactResponse, HeadWriter
from sse_proxy.server.exact_client import ExactRequest, RequestHead, ResponseClock, WatchedResponse, hang_up
from sse_proxy.server.headers import (
    Headers,
    RawHeaders,
    end_to_end,
    forwarded_headers,
    header_values,
    peer_address,
)
from sse_proxy.server.problem import RequestRefused
from sse_proxy.server.target import request_host, split_target, upstream_target
from sse_proxy.server.watch import SocketWatch

if TYPE_CHECKING:
    from aiohttp.client_proto import ResponseHandler

__all__ = ["EventStreamHandler", "Passthrough"]

logger = logging.getLogger(__name__)

EventStreamHandler = Callable[[web.BaseRequest, aiohttp.ClientResponse, str], Awaitable[web.StreamResponse]]

# Below the shortest keep-alive in use by servers (Node's 5 s), so that a connection is given up here first.
POOL_KEEPALIVE_S = 4.0
MAX_HEADERS = 256
CONNECT_RETRY_S = 0.1
READ_BUFFER_BYTES = 64 * 1024
# Requests without an effect (RFC 9110 9.2.1). Only they may take a connection that carried others, and are sent once
# more should it turn out to be dead; any other request gets a connection of its own, as it must never be sent twice.
_SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})


class Passthrough:
    """Everything of one upstream that is not an event stream to be repaired.

    Args:
        upstream: where the requests go.
        trusted_proxies: peers whose X-Forwarded-* are believed.
        max_header: bytes of a response head's longest line.
        body_timeout: longest pause between two pieces of a request body, in seconds; None for no limit.
        on_event_stream: takes over a response to GET or POST that is an event stream (200, `text/event-stream`, no
            content coding), with the request and its id; None passes it on like any other.
    """

    def __init__(
        self,
        upstream: Upstream,
        *,
        trusted_proxies: Sequence[IPv4Network | IPv6Network] = (),
        max_header: int = 64 * 1024,
        body_timeout: float | None = 60.0,
        on_event_stream: EventStreamHandler | None = None,
    ) -> None:
        parts = urlsplit(upstream.url)
        self._upstream = upstream
        self._origin = URL(f"{parts.scheme}://{parts.netloc}/")
        self._authority = self._origin.host_port_subcomponent or parts.netloc
        self._trusted_proxies = tuple(trusted_proxies)
        self._max_header = max_header
        self._body_timeout_s = body_timeout
        self._on_event_stream = on_event_stream
        self._used: WeakSet[ResponseHandler] = WeakSet()
        self._shared = self._session(reuse=True)
        self._own = self._session(reuse=False)

    def _session(self, *, reuse: bool) -> aiohttp.ClientSession:
        tls = _client_context(self._upstream) if self._origin.scheme == "https" else True
        connector = (
            aiohttp.TCPConnector(limit=0, ssl=tls, keepalive_timeout=POOL_KEEPALIVE_S)
            if reuse
            else aiohttp.TCPConnector(limit=0, ssl=tls, force_close=True)
        )
        return aiohttp.ClientSession(
            connector=connector,
            request_class=ExactRequest,
            response_class=WatchedResponse,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            read_bufsize=READ_BUFFER_BYTES,
            max_line_size=self._max_header,
            max_field_size=self._max_header,
            max_headers=MAX_HEADERS,  # of max_header each: aiohttp knows no limit of the whole
        )

    async def close(self) -> None:
        """Close the connections that are idle. Call it when no request is running."""
        await self._shared.close()
        await self._own.close()

    async def __call__(
        self, request: web.BaseRequest, *, request_id: str, byte_exact: bool = False
    ) -> web.StreamResponse:
        """Answer one request.

        Args:
            byte_exact: pass an event stream on like any other body (`stream: off`).

        Raises:
            RequestRefused: the request cannot be passed on, or its body failed before the answer began.
            UpstreamError: the upstream failed before the answer began.
        """
        head, body = self._request_head(request)
        response = None
        try:
            response = await self._open(head)
            if response.status == 101:
                if head.upgrade is None:
                    raise UpstreamBadResponse("101 without having been asked to switch")
                return await websocket.tunnel(request, response)
            if not byte_exact and self._on_event_stream is not None and _is_event_stream(head.method, response):
                return await self._on_event_stream(request, response, request_id)
            return await self._relay(request, response, head, body)
        finally:
            # Whoever left early (a client that is gone above all) must not leave the upstream working.
            if response is not None and not response.closed:
                hang_up(response.connection)
                response.close()
            if head.pump is not None and not head.pump.done():
                head.pump.cancel()  # nobody else may read the client's body while it does
                await asyncio.wait([head.pump])

    def _request_head(self, request: web.BaseRequest) -> tuple[RequestHead, RequestBody | None]:
        _, target = split_target(request)
        raw = request.raw_headers
        host = request_host(request)
        expects_continue = expects_continue_of(request)
        body = RequestBody(request, self._body_timeout_s, expects_continue) if request.body_exists else None
        chunked = body is not None and bool(header_values(raw, "transfer-encoding"))
        length = None if chunked else content_length(raw)
        headers = end_to_end(raw, length=length)
        headers = [pair for pair in headers if pair[0].lower() != "expect"]  # met here
        keep_host = self._upstream.host_header == "client" and (host or hdrs.HOST in request.headers)
        headers = _with_host(headers, host if keep_host else self._authority)
        headers = forwarded_headers(
            headers,
            peer=peer_address(request),
            scheme="https" if request.secure else "http",
            host=host,
            trusted_proxies=self._trusted_proxies,
        )
        upgrade = websocket.PROTOCOL if body is None and websocket.is_upgrade(request) else None
        shared = body is None and upgrade is None and request.method in _SAFE
        head = RequestHead(
            method=request.method,
            target=upstream_target(target, self._upstream),
            headers=headers,
            body=None if body is None else body.pieces(),
            chunked=chunked,
            last=not shared,
            upgrade=upgrade,
            gone=bool if body is None else SocketWatch(request.transport, half_closed=True),
            used=self._used if shared else None,
        )
        return head, body

    async def _open(self, head: RequestHead) -> aiohttp.ClientResponse:
        """Send the request and return the response once its head is there.

        Raises:
            RequestRefused: the client's body failed.
            UpstreamError: no connection, no valid head, or none in time.
        """
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + self._upstream.connect_timeout
        patience = self._upstream.response_timeout

        async def attach(request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
            assert isinstance(request, ExactRequest)
            request.head = head
            return await send(request)

        shared = head.used is not None
        while True:
            session = self._shared if shared else self._own
            left = max(give_up_at - loop.time(), CONNECT_RETRY_S)  # for DNS, TCP and TLS
            limits = aiohttp.ClientTimeout(total=None, connect=left, sock_connect=left)
            try:
                async with asyncio.timeout(None) as clock:
                    head.clock = ResponseClock(clock, patience)
                    # The method is for aiohttp's eyes only: of a POST it expects a body and it never retries it.
                    return await session.request(
                        "POST", self._origin, allow_redirects=False, middlewares=(attach,), timeout=limits
                    )
            except BodyFault as fault:
                raise RequestRefused(fault.status, fault.detail, close=True) from fault
            except BadHead as error:
                raise RequestRefused(400, "The request's head cannot be passed on.") from error
            except aiohttp.ConnectionTimeoutError as error:
                raise UpstreamUnreachable(f"no connection within {self._upstream.connect_timeout:g} s") from error
            except aiohttp.ClientConnectorError as error:
                if not _may_come_up(error) or loop.time() + CONNECT_RETRY_S > give_up_at:
                    raise UpstreamUnreachable(_told(error)) from error
            except TimeoutError as error:
                raise UpstreamStalled(f"no response head within {patience} s") from error
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
                if not (shared and head.reused):
                    raise UpstreamBadResponse(_told(error)) from error
                # The pool's connection was closed at the other end while our request was on its way.
                shared, head.used = False, None
                continue
            except (aiohttp.ClientError, OSError) as error:
                raise UpstreamBadResponse(_told(error)) from error
            finally:
                head.clock = None
            await asyncio.sleep(CONNECT_RETRY_S)

    async def _relay(
        self, request: web.BaseRequest, response: aiohttp.ClientResponse, head: RequestHead, body: RequestBody | None
    ) -> web.StreamResponse:
        """Pass a response on, piece by piece.

        Raises:
            UpstreamBadResponse: the head cannot be passed on; nothing was.
        """
        raw = response.raw_headers
        codings = header_values(raw, "transfer-encoding")
        length = None if codings else content_length(raw)
        _check_framing(raw, codings)
        if response.status == 204 and length:
            length = None  # no body comes, and a reader that believes the length would wait for it
        out = ExactResponse(response.status, response.reason or "", end_to_end(raw, length=length), send_at_once=False)
        if body is not None and not body.complete:
            out.force_close()  # an early answer: where the next request begins is not known
        try:
            await out.prepare(request)
        except BadHead as error:
            raise UpstreamBadResponse(str(error)) from error
        if head.method == hdrs.METH_HEAD or response.status in (204, 304):
            await out.write_eof()
            return out
        writer = request.writer
        assert isinstance(writer, HeadWriter)
        content = response.content
        try:
            piece = content.read_nowait()
            if not piece and not content.at_eof():
                writer.send_headers()  # without a body to go with, the head does not wait for one
            while piece or (piece := await content.readany()):
                await out.write(piece)
                piece = b""
        except aiohttp.ClientConnectionResetError:
            out.abandon(request)  # the client is gone
            return out
        except (aiohttp.ClientError, OSError) as error:
            return _cut(request, out, error)
        reset = head.protocol.exception() if head.protocol is not None else None
        if length is None and not codings and isinstance(reset, aiohttp.ClientOSError):
            return _cut(request, out, reset)  # aiohttp takes a reset for the end of a body that has no other
        await out.write_eof()
        return out


def _check_framing(raw: RawHeaders, codings: list[str]) -> None:
    """Refuse a response that two readers could cut in two ways (RFC 9112 6.1), or that cannot be read here.

    Raises:
        UpstreamBadResponse: both framings, or a transfer coding other than chunked.
    """
    if codings and any(name.lower() == b"content-length" for name, _ in raw):
        raise UpstreamBadResponse("both Content-Length and Transfer-Encoding")
    if codings and codings != ["chunked"]:
        raise UpstreamBadResponse(f"Transfer-Encoding {', '.join(codings)[:40]!a}")


def _with_host(headers: Headers, host: str) -> Headers:
    """Return headers whose one Host is `host`, where the client's stood, or first."""
    if not any(name.lower() == "host" for name, _ in headers):
        return [("Host", host), *headers]
    return [(name, host if name.lower() == "host" else value) for name, value in headers]


def _is_event_stream(method: str, response: aiohttp.ClientResponse) -> bool:
    media_type = response.headers.get(hdrs.CONTENT_TYPE, "").partition(";")[0].strip(" \t").lower()
    codings = header_values(response.raw_headers, "content-encoding")
    return (
        method in (hdrs.METH_GET, hdrs.METH_POST)
        and response.status == 200
        and media_type == "text/event-stream"
        and codings in ([], ["identity"])
    )


def _cut(request: web.BaseRequest, out: ExactResponse, error: BaseException) -> ExactResponse:
    """End an answer that the upstream broke off: the client must see that it is not complete."""
    logger.warning("upstream broke off its answer to %s: %s", request.method, _told(error))
    out.abandon(request)
    return out


def _may_come_up(error: aiohttp.ClientConnectorError) -> bool:
    """Tell whether this is what a host looks like that is still starting: nobody listens, or its name is not known."""
    if isinstance(error, aiohttp.ClientSSLError):
        return False
    # Addresses that failed in different ways come as one error without a number.
    return isinstance(error, aiohttp.ClientConnectorDNSError) or error.errno in (errno.ECONNREFUSED, None)


def _client_context(upstream: Upstream) -> ssl.SSLContext:
    """Return how an https upstream is verified.

    Raises:
        OSError, ssl.SSLError: the CA file cannot be read, or holds no certificate.
    """
    context = ssl.create_default_context(cafile=upstream.tls.ca_file)
    if not upstream.tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _told(error: BaseException) -> str:
    """Return an exception in one short line for the log, without what the upstream wrote."""
    text = str(getattr(error, "message", None) or error).partition(":\n")[0]  # the parser quotes behind it
    return f"{type(error).__name__}: {text[:160]!a}"
