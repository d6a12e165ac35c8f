"""Requests as the demo's host takes them and responses as it writes them: values and bytes (RFC 9112)."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus
from urllib.parse import unquote

__all__ = ["BadRequest", "Headers", "Request", "head", "parse_head", "problem"]

MAX_FIELDS = 100

Headers = list[tuple[str, str]]

_REQUEST_LINE = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}) ([!-~]+) HTTP/(\d)\.(\d)")
_FIELD = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00\r\n]*?)[ \t]*")


class BadRequest(Exception):
    """A request that gets an error response and the end of its connection.

    Attributes:
        status: the response's status.
        detail: what was wrong, for the response body.
    """

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Request:
    """One request, whole.

    Attributes:
        method: as sent; methods are case-sensitive.
        target: the request target as sent.
        path: its path, percent-decoded; `query` is what followed the first `?`, as sent.
        minor: 0 for HTTP/1.0, 1 for anything later.
        headers: name in lower case and value, in order.
    """

    method: str
    target: str
    path: str
    query: str
    minor: int
    headers: tuple[tuple[str, str], ...]
    body: bytes = b""

    def header(self, name: str) -> str | None:
        """Return the values of a header joined with commas, or None (RFC 9110 5.3)."""
        values = [value for key, value in self.headers if key == name]
        return ", ".join(values) if values else None

    @property
    def keep_alive(self) -> bool:
        """Whether the connection may serve another request (RFC 9112 9.3)."""
        options = {option.strip().lower() for option in (self.header("connection") or "").split(",")}
        return "close" not in options and (self.minor >= 1 or "keep-alive" in options)


def head(status: int, headers: Headers) -> bytes:
    """Return a response head, with Date and Server added."""
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", f"Date: {formatdate(usegmt=True)}", "Server: demo"]
    lines += [f"{name}: {value}" for name, value in headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")


def problem(status: int, detail: str) -> tuple[Headers, bytes]:
    """Return headers and body of an error as `application/problem+json` (RFC 9457)."""
    body = {"title": HTTPStatus(status).phrase, "status": status, "detail": detail}
    return [("Content-Type", "application/problem+json")], json.dumps(body).encode()


def parse_head(raw: bytes) -> Request:
    """Return the request whose head this is, its empty line left off; the body is still to be read.

    Raises:
        BadRequest: not a head we take.
    """
    line, *rest = raw.decode("latin-1").split("\r\n")
    match = _REQUEST_LINE.fullmatch(line)
    if match is None:
        raise BadRequest(400, "not an HTTP request line")
    method, target, major, minor = match.groups()
    if major != "1":
        raise BadRequest(505, "this host speaks HTTP/1.1 and HTTP/1.0")
    if len(rest) > MAX_FIELDS:
        raise BadRequest(431, f"a request may have {MAX_FIELDS} headers")
    headers = []
    for field in rest:
        parts = _FIELD.fullmatch(field)
        if parts is None:
            raise BadRequest(400, "not a header line")
        headers.append((parts[1].lower(), parts[2]))
    names = [name for name, _ in headers]
    if names.count("host") > 1 or (minor != "0" and "host" not in names):
        raise BadRequest(400, "exactly one Host header is needed")
    path, _, query = re.sub(r"^https?://[^/?]*", "", target, count=1, flags=re.IGNORECASE).partition("?")
    return Request(method, target, unquote(path) or "/", query, int(minor != "0"), tuple(headers))
