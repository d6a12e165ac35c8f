"""What an upstream's head means on a stream route: a stream, a failure, or an answer to pass on (design section 6)."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from enum import Enum

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


_WINDOW = 4096
_PIECE = 256 * 1024


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


class Inflate:
    """Undo one content coding, as its bytes arrive.

    Attributes:
        eof: the coding's own end was reached: nothing is missing.
    """

    def __init__(self) -> None:
        self._decoder = zlib.decompressobj(zlib.MAX_WBITS | 16)

    def _next(self, data: bytes) -> bytes:
        """Return what stands behind a member's end: empty, or the beginning of another one."""
        return data

    @property
    def eof(self) -> bool:
        return self._decoder.eof

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """Yield what `data` completes, at most 256 KiB at a time, so that a little of it cannot fill the memory.

        Raises:
            zlib.error: the bytes are not of that coding; all that came out before was yielded.
        """
        # In small windows: each end of a member copies what follows it.
        for start in range(0, len(data), _WINDOW):
            window = data[start : start + _WINDOW]
            while window:
                if self._decoder.eof:
                    window = self._next(window)
                    if not window:
                        break
                    self._decoder = zlib.decompressobj(zlib.MAX_WBITS | 16)
                out = self._decoder.decompress(window, _PIECE)
                window = self._decoder.unused_data if self._decoder.eof else self._decoder.unconsumed_tail
                while out:
                    yield out
                    # A full piece may have left more inside, though all of the window is taken.
                    more = len(out) == _PIECE and not window and not self._decoder.eof
                    out = self._decoder.decompress(b"", _PIECE) if more else b""

    def decompress(self, data: bytes, most: int) -> bytes:
        """Return what `data` completes, `most` bytes of it at most; the rest is lost.

        Raises:
            zlib.error: the bytes are not of that coding.
        """
        out = bytearray()
        for piece in self.pieces(data):
            out += piece
            if len(out) >= most:
                break
        return bytes(out[:most])


class _Gunzip(Inflate):
    """gzip, that may come as several members one behind the other (RFC 1952 2.2)."""

    def _next(self, data: bytes) -> bytes:
        return data.lstrip(b"\0")  # padding is allowed (gzip(1))


class _Deflate(Inflate):
    """deflate: the zlib format (RFC 9110 8.4.1.2), or the bare one that some servers send."""

    def __init__(self) -> None:
        super().__init__()
        self._first: bytes | None = b""

    def _next(self, data: bytes) -> bytes:
        return b""  # there is one only

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """Yield what `data` completes; its first two bytes tell the format."""
        if self._first is not None:
            self._first += data
            if len(self._first) < 2:
                return
            data, self._first = self._first, None
            # RFC 1950 2.2: the compression method, and a check over both bytes.
            zlib_format = data[0] & 0x0F == 8 and int.from_bytes(data[:2], "big") % 31 == 0
            self._decoder = zlib.decompressobj(zlib.MAX_WBITS if zlib_format else -zlib.MAX_WBITS)
        yield from super().pieces(data)


def inflate_for(head: ResponseHead) -> tuple[bool, Inflate | None]:
    """Return whether a body's content coding can be read, and what undoes it; None where there is none.

    Identity was asked for; a host that compresses all the same mostly uses gzip.
    """
    codings = [coding for coding in header_values(head.raw_headers, "content-encoding") if coding != "identity"]
    if not codings:
        return True, None
    if codings in (["gzip"], ["x-gzip"]):
        return True, _Gunzip()
    if codings == ["deflate"]:
        return True, _Deflate()
    return False, None
