"""StreamHead: is what begins here an event stream at all? (design section 3, last bullets)"""

from __future__ import annotations

from typing import Any

from sse_proxy.core.control import MAX_ROUTING, json_prefix
from sse_proxy.core.events import Comment, Failure, Item
from sse_proxy.errors import FailureCode

__all__ = ["StreamHead", "host_message"]

_STARTS = ("data", "event", "id", "retry")
_DETAIL = 2048
_TRIES = 1000


def host_message(value: dict[str, Any]) -> str | None:
    """Return what a JSON object with a top-level "error" says: a string, or an object's `message`; None without one."""
    if "error" not in value or value["error"] in (None, False):
        return None
    error = value["error"]
    if isinstance(error, dict):
        error = error.get("message", "")
    return error if isinstance(error, str) else ""


class StreamHead:
    """Hold the beginning of a stream until it is known to be one.

    Comments and blank lines are taken off and returned as items. A JSON object with an error is `upstream_error`,
    anything else that no field starts is `upstream_not_event_stream`.

    Args:
        lenient: pass everything on and judge at the end alone (`standard`: an unknown field may come first, 9.2.6).
    """

    def __init__(self, *, lenient: bool) -> None:
        self._lenient = lenient
        self._held = ""
        self._tries = 0
        self._seen = ""  # the head of a stream that is passed on leniently
        self.decided = False
        self.first_line_ended_in_cr: bool | None = None

    def feed(self, text: str) -> tuple[list[Item], str]:
        """Return items (comments; a failure, last) and the text that is for the dialect."""
        if self.decided:
            return [], text
        if self._lenient:
            self._seen += text[: _DETAIL - len(self._seen)]
            return [], text
        held = self._held + text
        items: list[Item] = []
        while held and held[0] in ":\r\n":
            end = min((i for i in (held.find("\n"), held.find("\r")) if i >= 0), default=-1)
            if end < 0:
                break
            if self.first_line_ended_in_cr is None and end:
                self.first_line_ended_in_cr = held[end] == "\r"
            if held[0] == ":":
                items.append(Comment(held[1:end]))
            held = held[end + 1 :]
        self._held = held
        if not held or held[0] == ":":
            return items, ""
        if held.startswith(_STARTS):
            return items, self._decide()
        if any(word.startswith(held) for word in _STARTS):
            return items, ""
        failure = self._judge(new=text)
        return ([*items, failure] if failure else items), ""

    def _decide(self) -> str:
        self.decided = True
        held, self._held = self._held, ""
        return held

    def _judge(self, new: str) -> Failure | None:
        held = self._held
        if held.lstrip().startswith("{") and len(held) <= MAX_ROUTING:
            # Tried when a brace has come, and not for ever: bytes that come one at a time would make it quadratic.
            # What is not found now is found by close(), so only the moment changes.
            value = None
            if "}" in new and self._tries < _TRIES:
                self._tries += 1
                value = json_prefix(held)
            return None if value is None else _failure_of(value, held)
        return _failure_of(None, held)

    def close(self, *, nothing_came: bool) -> list[Item]:
        """The stream ended; `nothing_came`: it had no event at all."""
        seen = self._seen if self._lenient else self._held
        self._held = ""
        if self.decided or not nothing_came or not seen.strip("\r\n"):
            return []
        if seen.startswith(":") or any(word.startswith(seen) for word in _STARTS) or seen.startswith(_STARTS):
            return []
        return [_failure_of(json_prefix(seen), seen)]


def _failure_of(value: dict[str, Any] | None, head: str) -> Failure:
    message = host_message(value) if value is not None else None
    if message is None:
        return Failure(FailureCode.UPSTREAM_NOT_EVENT_STREAM, detail=head[:_DETAIL])
    return Failure(FailureCode.UPSTREAM_ERROR, message, head[:_DETAIL])
