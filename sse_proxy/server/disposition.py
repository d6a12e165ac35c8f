"""What an upstream's head means on a stream route: a stream, a failure, or an answer to pass on (design section 6)."""

from __future__ import annotations

import zlib
from enum import Enum
from typing import Protocol

from sse_proxy.core.options import Dialect
from sse_proxy.server.headers import Headers, header_values
from sse_proxy.server.upstream import ResponseHead

__all__ = ["Disposition", "Inflate", "disposition", "inflate_for", "stream_headers"]

# Bodies that carry no type, or one that hosts give a stream by mistake: the bytes themselves tell.
_MAYBE_STREAM = frozenset({"", "text/plain", "application/octet-stream"})
_LINES = frozenset({"application/x-ndjson", "application/ndjson", "application/jsonl", "application/stream+json"})
_NO_STREAM = frozenset({"text/html", "application/xhtml+xml"})

# What describes the upstream's body, and not ours; and what we set ourselves.
_NOT_KEPT = frozenset(
    {
        "accept-ranges",
        "cache-control",
        "content-encoding",
        "content-length",
        "content-md5",
        "content-range",
        "content-type",
        "content-digest",
        "digest",
        "etag",
        "expires",
        "last-modified",
        "pragma",
        "repr-digest",
        "x-accel-buffering",
    }
)


class Disposition(Enum):
    """What to do with a response."""

    STREAM = "stream"
    PASS_ON = "pass on"
    HTTP_ERROR = "http error"
    JSON = "json"  # an error, or an answer that is no stream: the body tells
    NOT_A_STREAM = "not a stream"


def media_type(head: ResponseHead) -> str:
    """Return the media type in lower case, without parameters; empty where there is none."""
    return (head.get("content-type") or "").partition(";")[0].strip().lower()


def disposition(head: ResponseHead, dialect: Dialect) -> Disposition:
    """Judge a response to a stream route, before our own head is out."""
    if head.status >= 500:
        return Disposition.HTTP_ERROR
    if head.status != 200:
        return Disposition.PASS_ON
    kind = media_type(head)
    if kind == "text/event-stream" or kind in _MAYBE_STREAM:
        return Disposition.STREAM
    if dialect is Dialect.LINES and (kind in _LINES or kind == "application/json"):
        return Disposition.STREAM
    if dialect is Dialect.RAW and kind.startswith("text/") and kind not in _NO_STREAM:
        return Disposition.STREAM
    if kind == "application/json" or kind.endswith("+json"):
        return Disposition.JSON
    return Disposition.NOT_A_STREAM


def stream_headers(kept: Headers) -> Headers:
    """Return the headers of a repaired stream: ours, and of the upstream's what does not describe its body."""
    return [
        ("Content-Type", "text/event-stream; charset=utf-8"),
        ("Cache-Control", "no-cache, no-transform"),
        ("X-Accel-Buffering", "no"),
        *(pair for pair in kept if pair[0].lower() not in _NOT_KEPT),
    ]


class Inflate(Protocol):
    """Undo one content coding, as its bytes arrive."""

    def decompress(self, data: bytes, /) -> bytes:
        """Return what `data` completes.

        Raises:
            zlib.error: the bytes are not of that coding.
        """
        ...


def inflate_for(head: ResponseHead) -> tuple[bool, Inflate | None]:
    """Return whether a stream's content coding can be read, and what undoes it; None where there is none.

    Identity was asked for; a host that compresses all the same mostly uses gzip.
    """
    codings = [coding for coding in header_values(head.raw_headers, "content-encoding") if coding != "identity"]
    if not codings:
        return True, None
    if codings in (["gzip"], ["x-gzip"]):
        return True, zlib.decompressobj(zlib.MAX_WBITS | 16)
    if codings == ["deflate"]:
        return True, zlib.decompressobj()
    return False, None
