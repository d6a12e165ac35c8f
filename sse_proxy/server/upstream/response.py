"""Read one HTTP/1.1 response: bytes in; a head, pieces of its body, and the verdict on its end.

A layer over llhttp that is strict where a proxy must be (RFC 9112 section 6.3 on length, 9.8 on cut bodies) and
indulgent in two places where hosts are sloppy and nothing is at stake, because one connection carries one response:
a head with bare LF line ends, and blanks behind a chunk's size. No sockets and no clocks here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import httptools

from sse_proxy.errors import UpstreamBadResponse, UpstreamError, UpstreamTruncated

__all__ = ["ResponseHead", "ResponseReader", "excerpt"]

_BODILESS = frozenset({204, 304})
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_EXCERPT_CHARS = 80


def excerpt(data: bytes) -> str:
    """Return what a log may show of a peer's bytes: at most 80 characters, control bytes escaped."""
    return repr(data[:_EXCERPT_CHARS])[1:][:_EXCERPT_CHARS]


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """The head of a final response.

    Attributes:
        reason: the reason phrase, often empty.
        headers: order, case and duplicates as sent; values decoded as Latin-1, one character a byte.
        http_version: `1.1` or `1.0`.
    """

    status: int
    reason: str
    headers: tuple[tuple[str, str], ...]
    http_version: str

    def get(self, name: str) -> str | None:
        """Return the first value of a header, None when it is missing."""
        name = name.lower()
        return next((value for key, value in self.headers if key.lower() == name), None)

    def get_all(self, name: str) -> list[str]:
        """Return every value of a header, in order."""
        name = name.lower()
        return [value for key, value in self.headers if key.lower() == name]

    @property
    def raw_headers(self) -> tuple[tuple[bytes, bytes], ...]:
        """The headers as the bytes that came."""
        return tuple((name.encode("latin-1"), value.encode("latin-1")) for name, value in self.headers)


class _Stop(Exception):
    """Raised in a callback to stop the parser: what it would read next is not this response's."""


class ResponseReader:
    """Take one response apart. What `feed` has read before it raises is still there.

    Attributes:
        head: None until the final head is whole; interim ones (100, 102, 103) are skipped.
        chunks: pieces of the body, in order, chunked framing removed; for the caller to take and clear.
        complete: the response is whole; `feed` ignores what follows.
    """

    __slots__ = (
        "__weakref__",
        "_fault",
        "_feed",
        "_framed",
        "_head_only",
        "_head_size",
        "_headers",
        "_max_head",
        "_parser",
        "_reason",
        "_where",
        "_without_body",
        "chunks",
        "complete",
        "head",
        "on_body",
    )

    def __init__(self, where: str, *, max_head: int, head_only: bool = False) -> None:
        """
        Args:
            where: host:port, for messages.
            max_head: most bytes of heads before the body, and of chunk framing and trailers without a byte of body.
            head_only: the answer to a HEAD request, whose headers speak of a body that does not come.
        """
        self.head: ResponseHead | None = None
        self.chunks: list[bytes] = []
        self.complete = False
        # llhttp calls this for every HTTP chunk. In a burst that is the hottest call of all, so it is a C function.
        self.on_body = self.chunks.append
        self._where, self._max_head, self._head_only = where, max_head, head_only
        self._reason = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._head_size = self._without_body = 0
        self._framed = False
        self._fault: UpstreamError | None = None
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)
        self._parser.set_dangerous_leniencies(lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True)
        self._feed: Callable[[bytes], None] = self._parser.feed_data

    def feed(self, data: bytes) -> None:
        """Read what one read of the socket returned.

        Raises:
            UpstreamBadResponse: what came is no response, or its head says two things of its length.
            UpstreamTruncated: the framing of the body is broken.
        """
        if self.complete:
            return
        self._without_body += len(data)
        fault = None
        try:
            self._feed(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as exc:
            if not self.complete:
                fault = self._translate(exc, data)
        if fault is not None:  # raised out here: as the other's context it would hold these frames
            raise fault
        if self.chunks:
            self._without_body = 0
        elif self._without_body > self._max_head and not self.complete:
            raise self._too_large()

    def eof(self, cause: Exception | None) -> UpstreamError | None:
        """Say what the end of the connection means; None: the response is complete.

        Args:
            cause: why the connection broke; None for an orderly end, the only one that can end a body without length.
        """
        how = "closed the connection" if cause is None else f"broke the connection ({_describe(cause)})"
        if self.complete:
            return None
        if self.head is None:
            return UpstreamBadResponse(f"{self._where} {how} before its response head was whole")
        if self._framed or cause is not None:
            return UpstreamTruncated(f"{self._where} {how} before the end of its response")
        self.complete = True
        return None

    def close(self) -> None:
        """Drop what was read, and the parser, which refers back to this object."""
        self.complete = True
        self._parser, self._feed = None, _ignore
        self.chunks.clear()

    # Called by llhttp -------------------------------------------------------------------------------------------

    def on_status(self, data: bytes) -> None:
        self._reason += data
        self._grow(len(data))

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.head is None:  # else it is a trailer: a proxy may drop it (RFC 9110 6.5.1)
            self._headers.append((name, value.strip(b" \t")))  # llhttp leaves blanks at the end (RFC 9110 5.5)
            self._grow(len(name) + len(value) + 4)

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        version, status = self._parser.get_http_version(), self._parser.get_status_code()
        reason, headers = self._reason, self._headers
        self._reason, self._headers = b"", []
        self._grow(17)  # status line without reason, blank line
        if version not in ("1.1", "1.0"):
            self._refuse(f"answers in HTTP/{version}")
        if status == 101:
            self._refuse("switches protocols (101) unasked")
        if status < 100 or _CONTROL.search(reason):
            self._refuse(f"sends a status line that is none: {status} {excerpt(reason)}")
        if status < 200:
            return
        bodiless = self._head_only or status in _BODILESS
        codings = b",".join(value for name, value in headers if name.lower() == b"transfer-encoding")
        if codings and not bodiless and codings.strip().lower() != b"chunked":
            self._refuse(f"sends a transfer coding nobody asked for: {excerpt(codings)}")
        self._framed = bool(codings) or any(name.lower() == b"content-length" for name, _ in headers)
        self.head = ResponseHead(
            status,
            reason.decode("latin-1"),
            tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in headers),
            version,
        )
        self._without_body = 0
        if bodiless:
            self.complete = True
            raise _Stop

    def on_message_complete(self) -> None:
        if self.head is not None:  # else an interim response ended
            self.complete = True
            raise _Stop

    # ------------------------------------------------------------------------------------------------------------

    def _grow(self, size: int) -> None:
        self._head_size += size
        if self._head_size > self._max_head:
            self._fault = self._too_large()
            raise _Stop

    def _refuse(self, what: str) -> None:
        self._fault = UpstreamBadResponse(f"{self._where} {what}")
        raise _Stop

    def _too_large(self) -> UpstreamError:
        if self.head is None:
            return UpstreamBadResponse(f"{self._where} sends a response head of more than {self._max_head} bytes")
        return UpstreamTruncated(
            f"{self._where} sends more than {self._max_head} bytes of chunk framing without a body"
        )

    def _translate(self, exc: Exception, data: bytes) -> UpstreamError:
        """Turn the parser's exception into ours."""
        if self._fault is not None:
            return self._fault
        if self.head is not None:
            return UpstreamTruncated(f"{self._where} breaks the chunked framing of its response: {exc}")
        begun = self._head_size > 0  # then `data` may begin inside a header, and headers carry secrets
        shown = "" if begun else f": {excerpt(data.splitlines()[0])}"
        return UpstreamBadResponse(f"{self._where} sends a response head that cannot be read ({exc}){shown}")


def _describe(exc: Exception) -> str:
    return getattr(exc, "strerror", None) or str(exc) or type(exc).__name__


def _ignore(data: bytes) -> None:
    """What is fed to a closed reader."""
