"""The head of a request, as bytes that can mean only one request."""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["request_head"]

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")  # RFC 9110 5.6.2
_TARGET = re.compile(r"[^\x00-\x20\x7f]+")
_BAD_VALUE = re.compile(rb"[\r\n\x00]")


def request_head(
    method: str, target: str, headers: Sequence[tuple[str, str | bytes]], authority: str, chunked: bool
) -> bytes:
    """Return the head's bytes (RFC 9112 section 3), blank line included.

    Args:
        target: path and query as they go on the line.
        headers: end-to-end headers in order; text goes out as Latin-1, bytes as they are.
        authority: for a `Host` header, where `headers` has none.
        chunked: adds `Transfer-Encoding: chunked`.

    Raises:
        ValueError: line ends, NUL, or what else would make another request of it than was meant.
    """
    if not _TOKEN.fullmatch(method):
        raise ValueError(f"not a method: {method[:80]!r}")
    if not _TARGET.fullmatch(target):
        raise ValueError("white space or control characters in a request target, or none at all")
    lines = [f"{method} {target} HTTP/1.1".encode("latin-1")]
    count = {"host": 0, "content-length": 0, "transfer-encoding": 0}
    for name, value in headers:
        if not _TOKEN.fullmatch(name):
            raise ValueError(f"not a header name: {name[:80]!r}")
        raw = value.encode("latin-1") if isinstance(value, str) else value
        if _BAD_VALUE.search(raw):
            raise ValueError(f"CR, LF or NUL in the value of {name}")
        if (key := name.lower()) in count:
            count[key] += 1
        lines.append(b"%b: %b" % (name.encode("latin-1"), raw))
    if count["transfer-encoding"] or count["content-length"] > (0 if chunked else 1):
        raise ValueError("the framing of the request is said twice (RFC 9112 6.1)")
    if count["host"] > 1:
        raise ValueError("two Host headers")
    if not count["host"]:
        lines.insert(1, b"Host: " + authority.encode("latin-1"))
    if chunked:
        lines.append(b"Transfer-Encoding: chunked")
    return b"\r\n".join([*lines, b"", b""])
