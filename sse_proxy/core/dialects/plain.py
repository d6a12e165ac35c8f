"""Dialects `lines` and `raw`: hosts that do not frame their events, or frame nothing at all."""

from __future__ import annotations

from sse_proxy.core.dialects.base import FrameRules
from sse_proxy.core.dialects.standard import LineEndNormaliser
from sse_proxy.core.events import Comment, Event, Item, Text
from sse_proxy.core.ledger import RepairKind
from sse_proxy.core.options import Payload

__all__ = ["LinesParser", "RawParser"]


class LinesParser:
    """`lines`: every non-empty line is one event's data, its `data:` prefix optional (NDJSON, forgotten blank lines).

    A line that starts with a colon is a comment, but in `payload: text`, where it may be a line of an answer.
    """

    hold_s = None

    def __init__(self, rules: FrameRules) -> None:
        self._rules = rules
        self._ends = LineEndNormaliser()
        self._line: list[str] = []
        self._size = 0

    @property
    def held(self) -> int:
        """The line that is not complete yet."""
        return self._size

    def feed(self, text: str) -> list[Item]:
        """Take the next text; return one event for each line that is complete."""
        items: list[Item] = []
        first, *others = self._ends.feed(text).split("\n")
        self._line.append(first)
        self._size += len(first)
        for part in others:
            self._end_line(items)
            self._line = [part]
            self._size = len(part)
        return items

    def _end_line(self, items: list[Item]) -> None:
        line = "".join(self._line)
        self._line.clear()
        if line.startswith(":") and self._rules.payload is not Payload.TEXT:
            items.append(Comment(line[1:]))
            return
        if line.startswith("data:"):
            line = line[6:] if line.startswith("data: ") else line[5:]
            if self._rules.strip_double_prefix and line.startswith("data: "):
                self._rules.ledger.repair(RepairKind.DOUBLE_PREFIX)
                line = line[6:]
        if line:
            items.append(Event(line))

    def flush(self) -> list[Item]:
        """Nothing here waits for a clock."""
        return []

    def close(self) -> list[Item]:
        """The upstream ended cleanly: a last line without its end counts."""
        items: list[Item] = []
        if any(self._line):
            self._rules.ledger.repair(RepairKind.UNTERMINATED_EVENT)
            self._end_line(items)
        return items

    def abort(self) -> list[Item]:
        """The stream failed: of a text the half line still counts."""
        if self._rules.payload is Payload.TEXT:
            line = "".join(self._line)
            value = line[5:].removeprefix(" ") if line.startswith("data:") else line
            if (
                value
                and not "data: ".startswith(value)
                and not self._rules.control.may_become(value, first=self._rules.ledger.frames_in == 0)
            ):
                return [Text(value)]
        self._rules.drop("".join(self._line))
        return []


class RawParser:
    """`raw`: the body is plain text without any framing; all of it is answer text, a byte order mark too."""

    hold_s = None
    held = 0

    def __init__(self, rules: FrameRules) -> None:
        self._rules = rules

    def feed(self, text: str) -> list[Item]:
        """Return the text as it came."""
        return [Text(text)] if text else []

    def flush(self) -> list[Item]:
        """Nothing here waits for a clock."""
        return []

    def close(self) -> list[Item]:
        """Nothing is held."""
        return []

    def abort(self) -> list[Item]:
        """Nothing is held."""
        return []
