"""StreamHead: is what begins here an event stream at all? (design section 3, last bullets)"""

from __future__ import annotations

import re
from typing import Any

from sse_proxy.core.control import MAX_ROUTING, json_prefix
from sse_proxy.core.events import Comment, Failure, Item
from sse_proxy.errors import FailureCode

__all__ = ["StreamHead", "host_message"]

_STARTS = ("data", "event", "id", "retry")
_DETAIL = 2048
_JSON_SPACE = " \t\r\n"
_BUDGET = 8 * MAX_ROUTING  # characters that are parsed in search of a whole object
_LINE_END = re.compile("[\r\n]")


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
        self._parts: list[str] = []  # behind _held: what settles nothing
        self._size = 0
        self._begins_json = False
        self._budget = _BUDGET
        self._seen = ""  # the head of a stream that is passed on leniently
        self.decided = False
        self.first_line_ended_in_cr: bool | None = None

    @property
    def held(self) -> int:
        """How many characters are held now."""
        return self._size

    def feed(self, text: str) -> tuple[list[Item], str]:
        """Return items (comments; a failure, last) and the text that is for the dialect."""
        if self.decided:
            return [], text
        if self._lenient:
            self._seen += text[: _DETAIL - len(self._seen)]
            return [], text
        self._parts.append(text)
        self._size += len(text)
        if self._cannot_settle(text):
            return [], ""
        held = self.take()
        items: list[Item] = []
        start = 0
        while start < len(held) and held[start] in ":\r\n":
            found = _LINE_END.search(held, start)
            if found is None:
                break
            end = found.start()
            if self.first_line_ended_in_cr is None and end > start:
                self.first_line_ended_in_cr = held[end] == "\r"
            if held[start] == ":":
                items.append(Comment(held[start + 1 : end]))
            start = end + 1
        held = self._held = held[start:]
        self._size = len(held)
        if not held or held[0] == ":":
            return items, ""
        if held.startswith(_STARTS):
            return items, self._decide()
        if any(word.startswith(held) for word in _STARTS):
            return items, ""
        if held.strip(_JSON_SPACE):
            self._begins_json = held.lstrip(_JSON_SPACE).startswith("{")
            if failure := self._judge(held):
                items.append(failure)
        return items, ""

    def _cannot_settle(self, text: str) -> bool:
        """Whether what is held stays undecided: joined when it matters, so that one long line costs O(n)."""
        if self._begins_json:
            return "}" not in text and self._size <= MAX_ROUTING
        if self._held.startswith(":"):
            return _LINE_END.search(text) is None
        return self._held.startswith((" ", "\t")) and not text.strip(_JSON_SPACE)

    def take(self) -> str:
        """Return what is held, and hold it no longer."""
        held = self._held + "".join(self._parts)
        self._held = ""
        self._parts.clear()
        self._size = 0
        return held

    def _decide(self) -> str:
        self.decided = True
        return self.take()

    def _judge(self, held: str) -> Failure | None:
        if not self._begins_json:
            return _failure_of(None, held)
        # Not parsed for ever: braces that come one at a time would make it quadratic. What is not found now is found
        # by close(), so only the moment changes.
        value = None
        if self._budget > 0 and "}" in held:
            self._budget -= min(len(held), MAX_ROUTING)
            value = json_prefix(held[:MAX_ROUTING])
        return None if value is None and len(held) <= MAX_ROUTING else _failure_of(value, held)

    def close(self, *, nothing_came: bool) -> list[Item]:
        """The stream ended; `nothing_came`: it had no event at all. What is held stays, to be taken."""
        self._held = self.take()
        seen = self._seen if self._lenient else self._held
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
