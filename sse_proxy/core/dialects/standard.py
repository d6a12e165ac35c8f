"""Dialect `standard`: the HTML standard, section 9.2, to the letter."""

from __future__ import annotations

import re
from dataclasses import replace

from sse_proxy.core.dialects.base import FrameRules
from sse_proxy.core.events import Block, Comment, Event, FrameEnd, Item, LastEventId, ReconnectionTime, Text
from sse_proxy.core.ledger import RepairKind
from sse_proxy.core.options import Payload

__all__ = ["LineEndNormaliser", "StandardParser", "with_field"]

_DIGITS = frozenset("0123456789")  # isdigit() accepts more
_NO_FIELDS = Event("")
_BLOCK = re.compile(r"(?:(?:data: [^\n]*+\n)++\n)++")
_FIELD_FAULTS = {"id": RepairKind.NUL_ID, "retry": RepairKind.BAD_RETRY}


class LineEndNormaliser:
    """Make LF of CR, LF and CRLF, wherever the text is cut.

    A line is complete at its CR; the LF that may follow is swallowed, in the next text too. Waiting for it would
    delay an event.
    """

    def __init__(self) -> None:
        self._after_cr = False
        self.changed = 0  # how many line ends were not LF

    def feed(self, text: str) -> str:
        """Return `text` with LF line ends."""
        if self._after_cr and text:
            self._after_cr = False
            if text[0] == "\n":
                text = text[1:]
        if "\r" in text:
            self._after_cr = text[-1] == "\r"
            self.changed += text.count("\r")
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        return text


def with_field(event: Event, line: str, rules: FrameRules) -> Event:
    """Return `event` with the field of one line set (HTML 9.2.6 "process the field"); data is not its business.

    An id with NUL and a retry that is not ASCII digits are ignored and counted, an unknown field is dropped.
    """
    name, _, value = line.partition(":")
    value = value.removeprefix(" ")
    if name == "event":
        return replace(event, type=value)
    if name == "id" and "\0" not in value:
        return replace(event, id=value)
    if name == "retry" and value and _DIGITS.issuperset(value):
        return replace(event, retry=value)
    rules.drop(line, _FIELD_FAULTS.get(name, RepairKind.UNKNOWN_FIELD))
    return event


class StandardParser:
    """Turn the text of one event stream into events (HTML 9.2.5 and 9.2.6, #event-stream-interpretation).

    Args:
        deliver_unterminated: pass on a last event without its blank line (not the standard's; `auto` asks for it).
        continues: the first event is the rest of a frame whose beginning was passed on as text.
    """

    hold_s = None

    def __init__(self, rules: FrameRules, *, deliver_unterminated: bool = False, continues: bool = False) -> None:
        self._rules = rules
        self._deliver_unterminated = deliver_unterminated
        self._continues = continues
        self._ends = LineEndNormaliser()
        self._line: list[str] = []  # the line that is not complete yet, in parts
        self._line_size = 0
        self._data: list[str] = []  # the data buffer, one element a data field
        self._data_size = 0
        self._one_to_one = rules.payload is not Payload.TEXT
        self._fields = _NO_FIELDS  # event, id and retry of the block; its data is not used

    @property
    def held(self) -> int:
        """The event and the line that are not complete yet."""
        return self._line_size + self._data_size

    def feed(self, text: str) -> list[Item]:
        """Take the next text; return the items it completes, oldest first, often none."""
        text = self._ends.feed(text)
        items: list[Item] = []
        if self._one_to_one:
            # As it is: most of a stream that is passed on one to one, at a tenth of the cost. An event that is open
            # ends first, line by line.
            open_event = self._line or self._data or self._fields is not _NO_FIELDS
            start = text.find("\n\n") + 2 if open_event else 0
            end = text.rfind("\n\n") + 2
            if start < end and _BLOCK.fullmatch(text, start, end):
                self._take_lines(text[:start], items)
                block = text[start:end]
                items.append(Block(block, block.count("\n\n")))
                text = text[end:]
        self._take_lines(text, items)
        return items

    def _take_lines(self, text: str, items: list[Item]) -> None:
        end = text.rfind("\n")
        if end < 0:
            if text:
                self._line.append(text)
                self._line_size += len(text)
            return
        lines = text[:end].split("\n")
        if self._line:
            self._line.append(lines[0])
            lines[0] = "".join(self._line)
            self._line.clear()
        rest = text[end + 1 :]
        if rest:
            self._line.append(rest)
        data = self._data
        for line in lines:
            if line.startswith("data: "):
                data.append(line[6:])
            elif not line:
                self._dispatch(items)
                continue
            else:
                self._field(line, items)
            self._data_size = self._data_size + len(line) if data else 0
        self._line_size = len(rest)

    def _field(self, line: str, items: list[Item]) -> None:
        if line.startswith("data:") or line == "data":
            self._data.append(line[5:].removeprefix(" "))
        elif line[0] == ":":
            items.append(Comment(line[1:]))
        else:
            self._fields = with_field(self._fields, line, self._rules)

    def _dispatch(self, items: list[Item]) -> None:
        if self._data:
            data = "\n".join(self._data)
            if self._continues:
                self._continues = False
                items += [Text(data), FrameEnd()] if data else [FrameEnd()]
            else:
                items.append(Event(data) if self._fields is _NO_FIELDS else replace(self._fields, data=data))
        elif self._fields is not _NO_FIELDS:
            # The standard dispatches nothing, but the last event ID and the reconnection time move.
            if self._fields.id is not None:
                items.append(LastEventId(self._fields.id))
            self._pass_retry(items)
            self._rules.drop(self._fields.type, None)
        self._data.clear()
        self._data_size = 0
        self._fields = _NO_FIELDS

    def _pass_retry(self, items: list[Item]) -> None:
        if self._fields.retry is not None:
            items.append(ReconnectionTime(self._fields.retry))
            self._fields = replace(self._fields, retry=None)

    def flush(self) -> list[Item]:
        """Nothing here waits for a clock."""
        return []

    def close(self) -> list[Item]:
        """End the stream: an event still open is discarded (9.2.6), its reconnection time is not."""
        items: list[Item] = []
        if self._deliver_unterminated:
            line = "".join(self._line)
            bare = self._rules.control.marker(line) is not None
            lines = [*self._data, line[5:].removeprefix(" ")] if line.startswith("data:") else self._data
            if lines and not bare and self._rules.is_half("\n".join(lines), first=self._rules.ledger.frames_in == 0):
                return self._close_half()
            self._line.clear()
            if line and not bare:
                if line.startswith("data:"):
                    self._field(line, items)
                else:
                    self._rules.drop(line)
            if self._data:
                marker = self._rules.control.marker("\n".join(self._data)) is not None
                self._rules.ledger.repair(RepairKind.BARE_MARKER if marker else RepairKind.UNTERMINATED_EVENT)
                self._dispatch(items)
            if bare:
                self._rules.ledger.repair(RepairKind.BARE_MARKER)
                items.append(Event(line))
            self._pass_retry(items)
            return items
        if self._rules.require_done:
            return self._close_half()
        self._pass_retry(items)
        self._discard()
        return items

    def _close_half(self) -> list[Item]:
        items = self.abort()
        if any(isinstance(item, Text) for item in items):
            items.append(FrameEnd())
        return items

    def abort(self) -> list[Item]:
        """The stream failed: an unfinished frame's answer text still counts; of another payload nothing does."""
        items: list[Item] = []
        if self._rules.payload is Payload.TEXT:
            line = "".join(self._line)
            lines = list(self._data)
            if line.startswith("data:"):
                value = line[5:]
                lines.append(value[1:] if value.startswith(" ") else value)
                self._line.clear()
            text = "\n".join(lines)
            first = self._rules.ledger.frames_in == 0
            if text and (self._continues or not self._rules.control.may_become(text, first=first)):
                items.append(Text(text))
                self._data.clear()
        self._pass_retry(items)
        self._discard()
        return items

    def _discard(self) -> None:
        if self._data:
            self._rules.drop("\n".join(self._data), RepairKind.UNTERMINATED_EVENT)
        self._rules.drop("".join(self._line), None)
        self._data.clear()
        self._line.clear()
