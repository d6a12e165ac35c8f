"""The admin listener: health, metrics, live streams, and the inspector page that shows them.

An application of its own on a port of its own, so that no path of it can collide with one of the upstream's. What it
tells is for the operator alone: the pages and the streams are answered only under a name that is certainly this
machine's, or else any web page could read them by pointing its own name at the loopback address (DNS rebinding). Probes
and metrics are not: a scraper comes under whatever name its network gives the proxy, and they tell no one's words.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Protocol

from aiohttp import web

from sse_proxy.metrics import Metrics
from sse_proxy.server.registry import Recording, StreamEntry, StreamRegistry

__all__ = ["AdminState", "create_admin_app"]

logger = logging.getLogger(__name__)

_INSPECTOR = Path(__file__).parent / "inspector"
_CONTENT_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
_DEFAULT_LIMIT = 200
_MAX_LIMIT = 1000

_ANY_HOST = frozenset({"/healthz", "/readyz", "/metrics"})
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Server": "sse-proxy",
}

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class AdminState(Protocol):
    """What the admin listener shows. Read anew for each request.

    Attributes:
        ready: whether new requests are welcome.
        reason: why not, in a word (`draining`); None while ready.
        metrics, registry: of the proxy.
        version: of the package.
    """

    @property
    def ready(self) -> bool: ...
    @property
    def reason(self) -> str | None: ...
    @property
    def metrics(self) -> Metrics: ...
    @property
    def registry(self) -> StreamRegistry: ...
    @property
    def version(self) -> str: ...


def create_admin_app(state: AdminState, *, host: str | None = None) -> web.Application:
    """Build the admin listener's application. Every route answers GET and HEAD.

    Args:
        state: what to show.
        host: the name it is configured to listen on, under which it may be asked besides `localhost` and addresses.
    """
    admin = _Admin(state, host)
    app = web.Application(middlewares=[admin.guard])
    app.on_response_prepare.append(_set_headers)
    app.router.add_get("/healthz", admin.healthz)
    app.router.add_get("/readyz", admin.readyz)
    app.router.add_get("/metrics", admin.metrics)
    app.router.add_get("/streams", admin.streams)
    app.router.add_get("/streams/{id}", admin.stream)
    app.router.add_get("/streams/{id}/{side:raw|repaired}", admin.captured)
    # Read once: the page works from memory, also where the files are replaced under a running proxy.
    for file in sorted(_INSPECTOR.iterdir()):
        if file.suffix in _CONTENT_TYPES:
            path = "/" if file.name == "index.html" else f"/{file.name}"
            app.router.add_get(path, _asset(file.read_bytes(), _CONTENT_TYPES[file.suffix]))
    return app


class _Admin:
    """The handlers."""

    def __init__(self, state: AdminState, host: str | None) -> None:
        self._state = state
        self._host = host.lower() if host else None

    @web.middleware
    async def guard(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Refuse a foreign Host; turn a fault of our own into a plain 500."""
        if request.path not in _ANY_HOST and not self._is_ours(request.headers.get("Host")):
            return web.Response(
                status=421,  # RFC 9110 15.5.20
                text="The admin listener answers under localhost, an IP address or its configured name only.\n",
            )
        try:
            return await handler(request)
        except web.HTTPException:
            raise
        except Exception as error:
            logger.error("admin: %s %s failed: %r", request.method, request.path, error)
            logger.debug("admin: where it failed", exc_info=True)
            return web.Response(status=500, text="500: Internal Server Error\n")

    async def healthz(self, _request: web.Request) -> web.Response:
        """Say that the event loop runs."""
        return web.Response(text="ok\n")

    async def readyz(self, _request: web.Request) -> web.Response:
        """Say whether new requests are welcome: 200, or 503 with the reason."""
        ready = self._state.ready
        detail = {
            "ready": ready,
            "reason": None if ready else self._state.reason or "not ready",
            "active": self._state.registry.active,
            "version": self._state.version,
        }
        return _json(detail, 200 if ready else 503)

    async def metrics(self, _request: web.Request) -> web.Response:
        """Render the metrics for a scrape."""
        body, content_type = self._state.metrics.render()
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def streams(self, request: web.Request) -> web.Response:
        """List the live and the recent streams, newest first; `limit` bounds either list."""
        limit = _limit(request.query.get("limit"))
        registry, now = self._state.registry, self._state.registry.monotonic()
        return _json(
            {
                "version": self._state.version,
                "ready": self._state.ready,
                "reason": None if self._state.ready else self._state.reason,
                "active": registry.active,
                "capture": registry.capture is not None,
                "live": [entry.as_dict(now) for entry in registry.live()[:limit]],
                "recent": [entry.as_dict(now) for entry in registry.recent()[:limit]],
            }
        )

    async def stream(self, request: web.Request) -> web.Response:
        """Show one stream, with what was captured of it."""
        entry = self._find(request.match_info)
        detail = entry.as_dict(self._state.registry.monotonic())
        detail["raw"] = entry.recorder and _recording(entry.recorder.raw)
        detail["repaired"] = entry.recorder and _recording(entry.recorder.repaired)
        return _json(detail)

    async def captured(self, request: web.Request) -> web.Response:
        """Give the captured bytes of one side as they are, ready for `sse-proxy fix`."""
        entry, side = self._find(request.match_info), request.match_info["side"]
        if entry.recorder is None:
            raise web.HTTPNotFound(text=f"Nothing was captured of stream {entry.id}.\n")
        recording = entry.recorder.raw if side == "raw" else entry.recorder.repaired
        return web.Response(
            body=bytes(recording.kept),
            content_type="application/octet-stream",
            headers={"Content-Disposition": f'attachment; filename="stream-{entry.id}.{side}.sse"'},
        )

    def _find(self, match: Mapping[str, str]) -> StreamEntry:
        """The stream of the path.

        Raises:
            HTTPNotFound: there is none.
        """
        number = match["id"]
        # int() takes other digits, signs and underscores too, and raises past 4,300 of them.
        plain = number.isascii() and number.isdigit() and len(number) < 19
        entry = self._state.registry.find(int(number)) if plain else None
        if entry is None:
            raise web.HTTPNotFound(text="There is no such stream, or it is forgotten already.\n")
        return entry

    def _is_ours(self, host: str | None) -> bool:
        """Whether a Host header names this machine for certain. A browser always sends one."""
        if host is None:
            return True
        host = host.strip().lower()
        name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0].removesuffix(".")
        if name == "localhost" or name.endswith(".localhost") or name == self._host:  # RFC 6761 6.3
            return True
        try:
            ip_address(name)
        except ValueError:
            return False
        return True


async def _set_headers(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_HEADERS)


def _asset(body: bytes, content_type: str) -> _Handler:
    async def handler(_request: web.Request) -> web.Response:
        return web.Response(body=body, headers={"Content-Type": content_type})

    return handler


def _limit(value: str | None) -> int:
    """Read the query's `limit`.

    Raises:
        HTTPBadRequest: it is not a number between 1 and 1000.
    """
    if value is None:
        return _DEFAULT_LIMIT
    if value.isascii() and value.isdigit() and len(value) < 5 and 1 <= int(value) <= _MAX_LIMIT:
        return int(value)
    raise web.HTTPBadRequest(text=f"limit is a number from 1 to {_MAX_LIMIT}.\n")


def _recording(recording: Recording) -> dict[str, Any]:
    """One captured side as text; a byte that is not UTF-8 shows as `\\xNN`."""
    return {
        "seen": recording.seen,
        "kept": len(recording.kept),
        "text": recording.kept.decode("utf-8", "backslashreplace"),
    }


def _json(value: object, status: int = 200) -> web.Response:
    # ASCII only: a header's stray byte is a lone surrogate here, which UTF-8 could not encode.
    return web.Response(body=json.dumps(value).encode("ascii") + b"\n", status=status, content_type="application/json")
