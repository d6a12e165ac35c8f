"""The proxy: which request goes where, what all requests share, and how it starts, reloads and drains."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import hdrs, web

from sse_proxy import __version__
from sse_proxy.config import Config, Upstream
from sse_proxy.core.ledger import Outcome, RepairKind
from sse_proxy.errors import AdmissionRefused, UpstreamError
from sse_proxy.metrics import NO_UPSTREAM, UNDECLARED, Metrics
from sse_proxy.server.admission import Admission
from sse_proxy.server.ask import Ask
from sse_proxy.server.headers import request_id as request_id_of
from sse_proxy.server.http import HAS_A_LINE
from sse_proxy.server.passthrough import Passthrough
from sse_proxy.server.problem import RequestRefused, problem
from sse_proxy.server.pull import PulledResponse
from sse_proxy.server.refuse import refuse_stream
from sse_proxy.server.registry import StreamRegistry
from sse_proxy.server.services import Services, StreamRoute
from sse_proxy.server.stream import StreamRun
from sse_proxy.server.target import request_host, request_path
from sse_proxy.server.transcript import Transcript
from sse_proxy.server.upstream import UpstreamAddress
from sse_proxy.server.websocket import is_upgrade
from sse_proxy.server.wheel import TimerWheel

__all__ = ["Proxy"]

logger = logging.getLogger(__name__)

_CLIENT_CLOSED = 499  # as nginx logs it
_NO_STREAM = frozenset({hdrs.METH_HEAD, hdrs.METH_OPTIONS})
_IS_STREAM = web.RequestKey("is_stream", bool)
_DRAIN_GRACE_S = 1.0  # for the last bytes of streams that were ended by the shutdown


class _Place:
    """One upstream of the running configuration: its routes, its client for plain requests, its address."""

    def __init__(self, proxy: Proxy, upstream: Upstream, address: UpstreamAddress, config: Config) -> None:
        self.upstream = upstream
        self._undeclared = StreamRoute(upstream, address, None)
        self._routes = {
            id(route): StreamRoute(upstream, address, route) for route in upstream.routes if route.stream is not None
        }
        self._proxy = proxy
        self.plain = Passthrough(
            upstream,
            trusted_proxies=config.trusted_proxies,
            max_header=config.max_header,
            body_timeout=config.body_timeout,
            on_event_stream=None if upstream.mode == "observe" else self._event_stream,
        )
        self.in_use = 0
        self.retired = False

    async def __call__(self, request: web.BaseRequest, path: str, request_id: str) -> web.StreamResponse:
        self.in_use += 1
        try:
            route = self.upstream.route_for(request.method, path)
            byte_exact = route is not None and route.stream is None
            plain = route is None or byte_exact or request.method in _NO_STREAM or is_upgrade(request)
            if not plain:
                return await self._stream(request, self._routes[id(route)], request_id)
            return await self.plain(request, request_id=request_id, byte_exact=byte_exact)
        finally:
            self.in_use -= 1
            if self.retired and not self.in_use:
                await self.plain.close()

    async def _stream(self, request: web.BaseRequest, route: StreamRoute, request_id: str) -> web.StreamResponse:
        services = self._proxy.services
        ask = Ask(request, route, services)
        try:
            lease = services.admission.acquire()
        except AdmissionRefused as refusal:
            return await refuse_stream(request, route, services, request_id, refusal)
        with lease:
            request[_IS_STREAM] = True
            return await StreamRun(request, route, services, request_id).run(ask)

    async def _event_stream(
        self, request: web.BaseRequest, response: aiohttp.ClientResponse, request_id: str
    ) -> web.StreamResponse:
        """An event stream on a route that is not declared."""
        services = self._proxy.services
        try:
            lease = services.admission.acquire()
        except AdmissionRefused as refusal:
            return await refuse_stream(request, self._undeclared, services, request_id, refusal)
        with lease:
            request[_IS_STREAM] = True
            run = StreamRun(request, self._undeclared, services, request_id)
            return await run.run(PulledResponse(response))

    async def retire(self) -> None:
        """Another configuration has taken over: close once the last request is through."""
        self.retired = True
        if not self.in_use:
            await self.plain.close()


class Proxy:
    """Everything behind the listeners. The state the admin listener shows.

    Args:
        config: checked, and frozen; `reload` takes another.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.metrics = Metrics()
        self.registry = StreamRegistry(config.capture)
        self.version = __version__
        self.services = Services(
            wheel=TimerWheel(asyncio.get_running_loop()),
            metrics=self.metrics,
            registry=self.registry,
            admission=Admission(config.max_streams),
            account=self._account,
        )
        self.metrics.watch_active(lambda: self.services.admission.active)
        self._places: dict[str, _Place] = {}
        self._transcripts: dict[Path, Transcript] = {}  # a stream writes to that of its own configuration
        self._install(config)

    # What the admin listener asks ----------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether new requests are welcome."""
        return not self.services.admission.draining

    @property
    def reason(self) -> str | None:
        """Why not, in a word."""
        return None if self.ready else "draining"

    # Requests ------------------------------------------------------------------------------------------------------

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request; the handler of the front.

        Raises:
            RequestRefused, UpstreamError, AdmissionRefused: the front answers for them.
        """
        request_id = request_id_of(request)
        started = time.monotonic()
        status, name, why = 500, NO_UPSTREAM, ""
        try:
            path = request_path(request)
            upstream = self.config.upstream_for(path, request_host(request))
            if upstream is None:
                status = 404
                return await self._no_upstream(request, request_id)
            name = upstream.name
            response = await self._places[name](request, path, request_id)
            status = response.status
            return response
        except asyncio.CancelledError:
            status = _CLIENT_CLOSED
            raise
        except RequestRefused as refused:
            status, why = refused.status, refused.detail
            raise
        except UpstreamError as error:
            status, why = error.code.http_status, f"{error.code}: {error}"
            raise
        except AdmissionRefused as refused:
            status, why = refused.code.http_status, str(refused.code)
            raise
        finally:
            self.metrics.observe_request(name, status)
            request[HAS_A_LINE] = True
            if _IS_STREAM not in request:  # a stream writes its own line, with its ledger
                self._log_request(request, request_id, name, status, time.monotonic() - started, why)

    async def _no_upstream(self, request: web.BaseRequest, request_id: str) -> web.StreamResponse:
        response = problem(404, "No server is configured for this address.", request_id=request_id)
        await response.prepare(request)
        await response.write_eof()
        return response

    def _log_request(
        self, request: web.BaseRequest, request_id: str, name: str, status: int, seconds: float, why: str
    ) -> None:
        path = request.raw_path.partition("?")[0]
        fields: dict[str, Any] = {
            "request_id": request_id,
            "method": request.method,
            "path": path,
            "status": status,
            "upstream": name,
            "duration_s": round(seconds, 6),
        }
        words = [request_id, request.method, path, str(status), f"{seconds:.3f}s"]
        if why:
            fields["detail"] = why
            words.append(why)
        level = logging.WARNING if status in (500, 502, 504) and why else logging.INFO
        logger.log(level, "request %s", " ".join(words), extra={"fields": fields})

    def _account(self, run: StreamRun) -> None:
        """A stream is over: count it, and write its line."""
        ledger = run.pipeline.ledger
        self.metrics.observe_stream(run.route.upstream.name, run.route.name, ledger)
        fields: dict[str, Any] = {
            "request_id": run.request_id,
            "method": run.request.method,
            "path": run.request.raw_path.partition("?")[0],
            "status": run.status or _CLIENT_CLOSED,
            "upstream": run.route.upstream.name,
            "route": run.route.name,
            "ledger": ledger.as_dict(),
        }
        if ledger.log_detail:
            fields["detail"] = ledger.log_detail
        empty = ledger.outcome is Outcome.COMPLETE and not ledger.pieces and run.expects_text
        lost = run.route.name == UNDECLARED and RepairKind.UNKNOWN_FIELD in ledger.repairs
        if lost:
            fields["hint"] = "no route names this path, so the stream was not repaired"
        level = logging.WARNING if ledger.outcome is Outcome.FAILED or empty or lost else logging.INFO
        logger.log(level, "stream %s", _told(fields), extra={"fields": fields})

    # Start, reload, stop -------------------------------------------------------------------------------------------

    def _install(self, config: Config) -> dict[str, _Place]:
        """Take a configuration into use; return what served before.

        Raises:
            OSError: a file it names cannot be read or written; nothing has changed.
        """
        transcript = self._transcript(config)
        addresses = {upstream.name: UpstreamAddress.from_config(upstream) for upstream in config.upstreams}
        # Nothing fails from here on: what is opened now has an owner.
        places = {each.name: _Place(self, each, addresses[each.name], config) for each in config.upstreams}
        for upstream in config.upstreams:
            names = [route.path for route in upstream.routes if route.stream is not None]
            self.metrics.declare(upstream.name, [*names, UNDECLARED])
        before, self._places = self._places, places
        self.config = config
        services = self.services
        services.transcript = transcript
        services.trusted_proxies = config.trusted_proxies
        services.max_header = config.max_header
        services.body_timeout = config.body_timeout
        services.admission.resize(config.max_streams)
        self.registry.capture = config.capture
        return before

    def _transcript(self, config: Config) -> Transcript | None:
        """Return the transcript of a configuration; the one that is open where its file is the same.

        Raises:
            OSError: it cannot be written.
        """
        if config.transcript is None:
            return None
        transcript = self._transcripts.get(config.transcript) or Transcript(config.transcript)
        transcript.check()
        return self._transcripts.setdefault(config.transcript, transcript)

    async def reload(self, config: Config) -> None:
        """Serve by another configuration from the next request on; running ones keep theirs.

        Raises:
            OSError: a file it names cannot be read or written; the old configuration stays.
        """
        for place in self._install(config).values():
            await place.retire()

    async def drain(self, timeout_s: float) -> None:
        """Take no new streams; let those that run finish for so long, then end them with `proxy_draining`."""
        self.services.admission.drain()
        if not await self.services.admission.wait_empty(timeout_s):
            logger.warning("%d streams did not finish within %g s", self.services.admission.active, timeout_s)
            for run in list(self.services.runs):
                run.drain_now()
            await self.services.admission.wait_empty(_DRAIN_GRACE_S)

    async def close(self) -> None:
        """Let go of everything; the listeners are closed."""
        for run in list(self.services.runs):
            run.drain_now()
        self.services.wheel.close()
        for place in self._places.values():
            with contextlib.suppress(Exception):
                await place.plain.close()
        for transcript in self._transcripts.values():
            await transcript.close()


def _told(fields: dict[str, Any]) -> str:
    """Return a stream's account as one line for a person; what is zero or nothing is left out."""
    ledger = fields["ledger"]
    words = [fields["request_id"], fields["method"], fields["path"], str(fields["status"]), str(ledger["outcome"])]
    for key in ("code", "dialect", "pieces", "text_chars", "events_out", "keepalives", "dropped_bytes", "duration_s"):
        if ledger[key]:
            words.append(f"{key}={ledger[key]}")
    words += [f"{kind}={count}" for kind, count in ledger["repairs"].items()]
    if detail := fields.get("detail"):
        words.append(f"detail={detail!r}")
    if hint := fields.get("hint"):
        words.append(f"({hint})")
    return " ".join(words)
