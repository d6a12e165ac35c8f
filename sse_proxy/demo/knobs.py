"""What a request asks to go wrong: the query of the host's stream routes, read and checked.

?host=gaapi|gachatbot  &chunks=743|a826864  &fail=KIND  &delay=MS  &pace=MS  &cut=BYTES  &packet=N
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import parse_qsl

from sse_proxy.demo.wire import SPLITTERS, WRITERS

__all__ = ["MAX_STALL_S", "TWIN_FAILS", "Fail", "Knobs", "UnknownKnob", "read_knobs"]

MAX_STALL_S = 600.0
"""A stall ends after ten minutes at most, so that a forgotten reader does not hold a connection for ever."""


class Fail(StrEnum):
    """How a response fails. `about` says it in one line, for the page."""

    about: str

    def __new__(cls, kind: str, about: str) -> Fail:
        member = str.__new__(cls, kind)
        member._value_ = kind
        member.about = about
        return member

    STATUS_500 = ("500", "status 500 before the stream")
    STATUS_503 = ("503", "status 503, the service is busy")
    STATUS_404 = ("404", "status 404, no such route")
    HTML = ("html", "200 with an HTML login page")
    JSON_ERROR = ("json-error", "200 with a JSON error object")
    ERROR = ("error", "the host's own error event after half the answer, then the end")
    ERROR_FIRST = ("error-first", "the host's own error event before any text")
    RST = ("rst", "the connection is reset after half the answer")
    CUT = ("cut", "closed after half the answer, without the final chunk")
    EOF = ("eof", "a clean end, but no done marker")
    EMPTY = ("empty", "a clean end without any event")
    STALL = ("stall", "silence after half the answer, the connection stays open")
    HEAD_STALL = ("head-stall", "not even a response head")
    CLOSE = ("close", "closed before the response head")
    GARBAGE = ("garbage", "an answer that is not HTTP")
    LENGTH = ("length", "a Content-Length longer than the body")
    GZIP = ("gzip", "a gzip body though nobody asked for one")
    AFTER_MARKER = ("after-marker", "goes on after the done marker")
    NO_HANGUP = ("no-hangup", "the done marker, then the connection stays open")
    COMMENT_ONLY = ("comment-only", "comments, then a clean end")


# The JSON twin is no stream: what is about events means nothing there.
TWIN_FAILS: tuple[Fail, ...] = tuple(
    fail
    for fail in Fail
    if fail not in {Fail.ERROR, Fail.ERROR_FIRST, Fail.EOF, Fail.AFTER_MARKER, Fail.NO_HANGUP, Fail.COMMENT_ONLY}
)


class UnknownKnob(ValueError):
    """A knob or a value that the host does not know; the message names the allowed ones."""


@dataclass(frozen=True, slots=True)
class Knobs:
    """One request's settings, checked.

    Attributes:
        host: the writer: gaapi or gachatbot.
        chunks: the splitter: 743 or a826864.
        fail: what goes wrong; None for nothing.
        delay_s: silence between the head and the first byte of the body, in seconds.
        pace_s: seconds between two frames; 0 sends them in one burst, as the real hosts do.
        cut: body bytes after which the failure happens; None for half the body. Without `fail` it is a `cut`.
        packet: bytes of one write, hence of one HTTP chunk; None for whole frames.
    """

    host: str = "gaapi"
    chunks: str = "743"
    fail: Fail | None = None
    delay_s: float = 0.0
    pace_s: float = 0.0
    cut: int | None = None
    packet: int | None = None


_NAMES = ("host", "chunks", "fail", "delay", "pace", "cut", "packet")


def read_knobs(query: str, *, host: str = "gaapi", fails: Collection[Fail] = tuple(Fail)) -> Knobs:
    """Read the knobs of a request.

    Args:
        query: the query of the target, without `?`; may be empty. The last value of a repeated knob counts.
        host: the writer where the query names none.
        fails: the kinds that the route can do.

    Raises:
        UnknownKnob: an unknown knob, a value outside what is allowed, or more than 50 knobs.
    """
    try:
        values = dict(parse_qsl(query, keep_blank_values=True, max_num_fields=50))
    except ValueError as error:
        raise UnknownKnob("more than 50 knobs") from error
    for name in values:
        if name not in _NAMES:
            raise UnknownKnob(f"unknown knob {_shown(name)}: allowed are {', '.join(_NAMES)}")
    fail = _choice(values, "fail", ["none", *map(str, fails)], "none")
    cut = _number(values, "cut", 0, 100_000_000)
    if fail == "none" and cut is not None:
        fail = str(Fail.CUT)
    return Knobs(
        host=_choice(values, "host", WRITERS, host),
        chunks=_choice(values, "chunks", SPLITTERS, "743"),
        fail=None if fail == "none" else next(kind for kind in Fail if kind == fail),
        delay_s=(_number(values, "delay", 0, int(MAX_STALL_S) * 1000) or 0) / 1000,
        pace_s=(_number(values, "pace", 0, 60_000) or 0) / 1000,
        cut=cut,
        packet=_number(values, "packet", 1, 1_000_000),
    )


def _choice(values: dict[str, str], name: str, allowed: Collection[str], default: str) -> str:
    value = values.get(name, default)
    if value not in allowed:
        raise UnknownKnob(f"{name}={_shown(value)}: allowed are {', '.join(map(str, allowed))}")
    return value


def _number(values: dict[str, str], name: str, least: int, most: int) -> int | None:
    value = values.get(name)
    if value is None:
        return None
    # int() alone would take +5, 1_000 and Arabic digits, and raise on very long ones.
    if not (value.isascii() and value.isdigit() and len(value) <= 12 and least <= int(value) <= most):
        raise UnknownKnob(f"{name}={_shown(value)}: allowed are whole numbers from {least} to {most}")
    return int(value)


def _shown(value: str) -> str:
    return repr(value[:80])
