"""Every exception of the package, in one tree, and the slugs of the failures table.

    SSEProxyError
    +-- ConfigError                  a setting is wrong; carries one problem per fault
    +-- StreamClosed                 misuse: feed() after close()
    +-- AdmissionRefused (503)       too many streams, or shutting down
    +-- UpstreamError                the upstream failed; one class per code below
        +-- UpstreamUnreachable      refused, DNS, TLS, connect timeout
        +-- UpstreamBadResponse      closed or garbage before a head
        +-- UpstreamStalled          no byte, or no head, for too long
        +-- UpstreamTruncated        the body was cut: RST, short length, missing final chunk

A failure *inside* a stream is a value, not an exception (`core.events.Failure`): raising would lose the text that
came before it. The codes are the same in the error event, the log line and the metric label.
"""

from __future__ import annotations

from enum import StrEnum

__all__ = [
    "AdmissionRefused",
    "ConfigError",
    "FailureCode",
    "SSEProxyError",
    "StreamClosed",
    "UpstreamBadResponse",
    "UpstreamError",
    "UpstreamStalled",
    "UpstreamTruncated",
    "UpstreamUnreachable",
]


class FailureCode(StrEnum):
    """Why a stream failed: the slug in the error event, the log and the metrics.

    Attributes:
        http_status: the status of the event, and of the response where `errors: status` is set.
        retryable: whether asking again may help.
    """

    http_status: int
    retryable: bool

    def __new__(cls, slug: str, http_status: int, retryable: bool) -> FailureCode:
        member = str.__new__(cls, slug)
        member._value_ = slug
        member.http_status = http_status
        member.retryable = retryable
        return member

    UPSTREAM_UNREACHABLE = ("upstream_unreachable", 502, True)
    UPSTREAM_BAD_RESPONSE = ("upstream_bad_response", 502, True)
    # The status of the event is the upstream's own; a 4xx after our head is not retryable (Failure overrides both).
    UPSTREAM_HTTP_ERROR = ("upstream_http_error", 502, True)
    UPSTREAM_NOT_EVENT_STREAM = ("upstream_not_event_stream", 502, False)
    UPSTREAM_ERROR = ("upstream_error", 502, True)
    UPSTREAM_STALLED = ("upstream_stalled", 504, True)
    UPSTREAM_TRUNCATED = ("upstream_truncated", 502, True)
    UPSTREAM_INCOMPLETE = ("upstream_incomplete", 502, True)
    UPSTREAM_EMPTY = ("upstream_empty", 502, True)
    EVENT_TOO_LARGE = ("event_too_large", 502, False)
    TIMED_OUT = ("timed_out", 504, True)
    OVERLOADED = ("overloaded", 503, True)
    PROXY_DRAINING = ("proxy_draining", 503, True)
    INTERNAL = ("internal", 500, True)


class SSEProxyError(Exception):
    """The root of the tree: everything this package raises on purpose."""


class ConfigError(SSEProxyError):
    """A configuration that cannot be used.

    Attributes:
        problems: one readable line per fault: path, what was found, what is allowed.
    """

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class StreamClosed(SSEProxyError):
    """`feed()` or `close()` was called on a stream that has ended."""


class AdmissionRefused(SSEProxyError):
    """No stream may start now (503 with Retry-After).

    Attributes:
        code: `overloaded` or `proxy_draining`.
        retry_after_s: what to write into Retry-After.
    """

    def __init__(self, code: FailureCode, retry_after_s: int = 1) -> None:
        super().__init__(f"{code}: ask again in {retry_after_s} s")
        self.code = code
        self.retry_after_s = retry_after_s


class UpstreamError(SSEProxyError):
    """The upstream failed. The message is for the log, never for the reader."""

    code = FailureCode.UPSTREAM_BAD_RESPONSE


class UpstreamUnreachable(UpstreamError):
    """No connection: refused, name not found, TLS refused, or `connect_timeout` passed."""

    code = FailureCode.UPSTREAM_UNREACHABLE


class UpstreamBadResponse(UpstreamError):
    """The connection closed, or what came was not HTTP, before a response head was whole."""

    code = FailureCode.UPSTREAM_BAD_RESPONSE


class UpstreamStalled(UpstreamError):
    """Nothing came for longer than the setting allows."""

    code = FailureCode.UPSTREAM_STALLED


class UpstreamTruncated(UpstreamError):
    """The body ended before its length or its final chunk, or by a reset (RFC 9112 section 8)."""

    code = FailureCode.UPSTREAM_TRUNCATED
