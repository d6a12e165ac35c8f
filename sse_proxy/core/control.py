"""Control events: what in an answer's stream is not answer text (design section 4).

The done marker, the routing object (the first event) and the error object (the last one). The dialects ask the same
questions of a frame that is still arriving, so every answer here is stable: a beginning of a control event is always
`may_become()`, and what once was not stays text.
"""

from __future__ import annotations

import json
import re
from enum import Enum
from typing import Any, NoReturn

__all__ = ["Control", "ControlWords", "is_json", "json_object", "json_prefix"]

# Longest routing object, and longest error object or marker with the spaces round it, in characters: what may be held
# at a frame's head to find out. A host's message is one line; its trace may be long.
MAX_ROUTING = 1024 * 1024
MAX_CONTROL = 4096

_WS = r"[ \t\r\n]*"
_ERROR_OBJECT = re.compile(rf'{_WS}\{{{_WS}"error"{_WS}:{_WS}"(?:[^"\\\x00-\x1f]|\\.)*+"{_WS}\}}{_WS}')


def _beginning_of_error_object() -> re.Pattern[str]:
    """The expression that matches every beginning of what `_ERROR_OBJECT` matches."""
    steps = [_WS, r"\{", _WS, *'"error"', _WS, ":", _WS, '"', r'(?:[^"\\\x00-\x1f]|\\.)*+\\?', '"', _WS, r"\}", _WS]
    pattern = ""
    for step in reversed(steps):
        pattern = f"(?:{step}{pattern})?" if not step.endswith(("*", "?")) else f"{step}{pattern}"
    return re.compile(pattern)


_ERROR_BEGINNING = _beginning_of_error_object()
_ROUTING_BEGINNING = re.compile(rf'{_WS}(?:\{{{_WS}(?:"|\Z)|\Z)')


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


# A number's value never matters here, and int() raises past 4,300 digits: `float` takes any length.
_DECODER = json.JSONDecoder(parse_int=float, parse_constant=_refuse_constant, strict=True)


def json_object(text: str) -> dict[str, Any] | None:
    """Return `text` as a JSON object (RFC 8259), or None where it is anything else; never raises."""
    stripped = text.strip(" \t\r\n")
    if not stripped.startswith("{") or not stripped.endswith("}"):
        return None
    try:
        value = _DECODER.decode(stripped)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def is_json(text: str) -> bool:
    """Whether `text` is one whole JSON value; never raises."""
    try:
        _DECODER.decode(text.strip(" \t\r\n"))
    except (ValueError, RecursionError):
        return False
    return True


def json_prefix(text: str) -> dict[str, Any] | None:
    """Return the JSON object that `text` begins with, whatever follows it; None where there is none; never raises."""
    try:
        value, _ = _DECODER.raw_decode(text.lstrip(" \t\r\n"))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


class Control(Enum):
    """What the data of one whole event is."""

    TEXT = "text"
    DONE = "done"
    ROUTING = "routing"
    ERROR = "error"


class ControlWords:
    """Tell control events from text.

    Args:
        done: the done markers.
        objects: whether routing and error objects are looked for (`payload: text`).
    """

    def __init__(self, done: tuple[str, ...], *, objects: bool) -> None:
        self.done = done
        self._objects = objects

    def marker(self, data: str) -> str | None:
        """Return the done marker that `data` is, spaces at its ends apart; else None."""
        if not self.done or len(data) > MAX_CONTROL:
            return None
        trimmed = data.strip(" ")
        return trimmed if trimmed in self.done else None

    def error_message(self, data: str) -> str | None:
        """Return the message of an error object (its only key is "error", a string); else None."""
        if len(data) > MAX_CONTROL or not self._objects or not _ERROR_OBJECT.fullmatch(data):
            return None
        parsed = json_object(data)
        return None if parsed is None else str(parsed["error"])

    def classify(self, data: str, *, first: bool) -> Control:
        """Say what a whole event's data is; `first`: it is the first event of the stream."""
        if self.marker(data) is not None:
            return Control.DONE
        if not self._objects:
            return Control.TEXT
        if first and len(data) <= MAX_ROUTING and "type" in (json_object(data) or ()):
            return Control.ROUTING
        return Control.ERROR if self.error_message(data) is not None else Control.TEXT

    def bare_marker_tail(self) -> re.Pattern[str]:
        """The expression for a line at a text's end, from the LF before it, that is or may become a bare marker.

        A group matches when the marker is whole. At most eight spaces stand on either side: what is held is bounded.
        """
        beginnings = []
        for marker in self.done:
            pattern = rf"({re.escape(marker[-1])} {{0,8}}\n{{0,2}})?"
            for char in reversed(marker[:-1]):
                pattern = f"(?:{re.escape(char)}{pattern})?"
            beginnings.append(pattern)
        return re.compile(rf"\n{{1,2}} {{0,8}}(?:{'|'.join(beginnings)})\Z") if beginnings else re.compile(r"(?!)")

    def may_become(self, beginning: str, *, first: bool) -> bool:
        """Whether an event whose data begins so may still turn out to be a control event.

        Where `classify()` calls an event one of control, every beginning of it may become one.
        """
        if first and self._objects and len(beginning) <= MAX_ROUTING and _ROUTING_BEGINNING.match(beginning):
            return True
        if len(beginning) > MAX_CONTROL:
            return False
        rest = beginning.lstrip(" ")
        for marker in self.done:
            if marker.startswith(rest) or (rest.startswith(marker) and not rest[len(marker) :].strip(" ")):
                return True
        return self._objects and _ERROR_BEGINNING.fullmatch(beginning) is not None
