"""The request target: what the client asked for, and what the upstream is asked for.

The upstream's authority is never made from a request: a connection is opened to the configured URL alone, and only
path and query, byte for byte, are written on it. So `//evil`, `http://evil/` or a lying Host reach the configured
upstream like any other path.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from aiohttp import hdrs, web

from sse_proxy.config import Upstream
from sse_proxy.server.problem import RequestRefused

__all__ = ["request_host", "request_path", "split_target", "upstream_target"]

# Visible ASCII without `#`: a fragment is never sent (RFC 9112 3.2), anything else must come percent-encoded.
_TARGET = re.compile(r"[!\"$-~]+")
_ABSOLUTE = re.compile(r"https?://([^/?]*)(.*)", re.IGNORECASE | re.DOTALL)
_HOST = re.compile(r"(?:\[[0-9A-Fa-f:.]+(?:%25[0-9A-Za-z.\-_~]+)?\]|[0-9A-Za-z.\-_~!$&'()*+,;=%]*)(?::[0-9]*)?")
_SEPARATOR = re.compile(r"/|\\|%2f|%5c", re.IGNORECASE)
_DOT = re.compile(r"%2e", re.IGNORECASE)


def split_target(request: web.BaseRequest) -> tuple[str | None, str]:
    """Return the authority an absolute-form target names (else None), and the target without it.

    Raises:
        RequestRefused: 405 for CONNECT; 400 for a target that is not one (raw non-ASCII bytes, a fragment, ...).
    """
    raw = request.raw_path
    if request.method == hdrs.METH_CONNECT:
        raise RequestRefused(
            405, "This server opens no tunnels.", headers=[("Allow", "GET, HEAD, POST, OPTIONS")], close=True
        )
    if not _TARGET.fullmatch(raw):
        raise RequestRefused(400, "The request target holds a character that must be percent-encoded.", close=True)
    if raw.startswith("/"):
        return None, raw
    if raw == "*" and request.method == hdrs.METH_OPTIONS:
        return None, raw
    absolute = _ABSOLUTE.fullmatch(raw)
    if absolute is None or not absolute[1] or not _HOST.fullmatch(absolute[1]):
        raise RequestRefused(400, "The request target is neither a path nor an http URL.", close=True)
    rest = absolute[2]
    return absolute[1], rest if rest.startswith("/") else "/" + rest


def request_host(request: web.BaseRequest) -> str:
    """Return the authority the client meant: the absolute-form target's (RFC 9112 3.2.2), else its Host; may be "".

    Raises:
        RequestRefused: 400 for a Host that is no authority; as `split_target`.
    """
    authority, _ = split_target(request)
    host = request.headers.get(hdrs.HOST, "")
    if not _HOST.fullmatch(host):
        raise RequestRefused(400, "The Host header is not valid.", close=True)
    return host if authority is None else authority


def request_path(request: web.BaseRequest) -> str:
    """Return the raw path, still percent-encoded and without its query, for finding upstream and route.

    Raises:
        RequestRefused: as `split_target`.
    """
    path = split_target(request)[1].partition("?")[0]
    return "/" if path == "*" else path


def upstream_target(target: str, upstream: Upstream) -> str:
    """Return what the request line to the upstream says: path and query, not a byte changed but the prefixes.

    Args:
        target: origin-form, as `split_target` gives it, or `*`.

    Raises:
        RequestRefused: 400 for a path whose dot segments, should the upstream resolve them, climb out of the part
            that `match.path`, `strip_prefix` or the URL's own path fence in. Without a fence they pass as they are.
    """
    prefix = urlsplit(upstream.url).path
    if target == "*":
        if prefix or upstream.strip_prefix:
            raise RequestRefused(400, "OPTIONS * cannot be mapped below a path prefix.")
        return target
    path, mark, query = target.partition("?")
    stripped = upstream.stripped(path)
    fence = upstream.match.path.rstrip("/")
    climbs = (fence != "" and _climbs(path.removeprefix(fence))) or (
        (prefix != "" or stripped != path) and _climbs(stripped)
    )
    if climbs:
        raise RequestRefused(400, "The path leaves the part of the server that is served here.")
    return prefix + stripped + mark + query


def _climbs(path: str) -> bool:
    """Tell whether dot segments, in any spelling a server may decode, lead above the path's start."""
    depth = 0
    for segment in _SEPARATOR.split(path):
        plain = _DOT.sub(".", segment.partition(";")[0])  # `..;x` is `..` to some servers
        if plain == "..":
            depth -= 1
            if depth < 0:
                return True
        elif plain not in ("", "."):
            depth += 1
    return False
