"""CORS headers for answers of our own: a page of another origin must be able to read our early heads and errors."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Literal

from sse_proxy.server.headers import Headers

__all__ = ["CorsMemory", "cors_headers"]

_ORIGINS = 256  # remembered a route; a client may send any Origin it likes


def cors_headers(headers: Sequence[tuple[str, str]]) -> Headers:
    """Return the CORS headers among an upstream's (Fetch standard, 3.3.3), and a Vary that names Origin."""
    kept = [pair for pair in headers if pair[0].lower().startswith("access-control-")]
    vary = [value for name, value in headers if name.lower() == "vary" and "origin" in value.lower()]
    return [*kept, *(("Vary", value) for value in vary[:1] if kept)]


class CorsMemory:
    """What a route answers to an Origin where the upstream has not answered yet, or never will.

    Args:
        setting: `upstream` repeats what the upstream last answered; or the origins that may read us; None for nothing.
    """

    def __init__(self, setting: Literal["upstream"] | tuple[str, ...] | None) -> None:
        self._setting = setting
        self._known: OrderedDict[str, Headers] = OrderedDict()

    def learn(self, origin: str, status: int, headers: Sequence[tuple[str, str]]) -> None:
        """Remember what the upstream answered to a page of `origin`.

        A 5xx without CORS headers says nothing: many hosts lose them on the way through their error page, and just
        then ours is the answer that the page has to be able to read.
        """
        if self._setting != "upstream" or not origin:
            return
        found = cors_headers(headers)
        if not found and status >= 500:
            return
        self._known[origin] = found
        self._known.move_to_end(origin)
        if len(self._known) > _ORIGINS:
            self._known.popitem(last=False)

    def own(self, origin: str) -> Headers:
        """Return the CORS headers of an answer of our own to a page of `origin`; empty without an Origin."""
        if not origin or self._setting is None:
            return []
        if self._setting == "upstream":
            return list(self._known.get(origin, ()))
        if origin in self._setting or "*" in self._setting:
            exact = origin in self._setting
            allow = [("Access-Control-Allow-Origin", origin if exact else "*")]
            credentials = [("Access-Control-Allow-Credentials", "true")] if exact else []
            return [*allow, *credentials, ("Vary", "Origin")]
        return [("Vary", "Origin")]

    def of_stream(self, origin: str, upstream: Headers) -> Headers:
        """Return an upstream's headers with the CORS ones the setting asks for."""
        if not isinstance(self._setting, tuple):
            return upstream
        own = self.own(origin)
        kept = [pair for pair in upstream if not pair[0].lower().startswith("access-control-")]
        return [*kept, *own]
