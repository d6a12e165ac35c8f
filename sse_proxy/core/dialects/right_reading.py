"""A stream read as a right one, line by line, before it is known to be one: the lines and the open frame of `auto`."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum

from sse_proxy.core.control import MAX_CONTROL, MAX_ROUTING, Control, is_json
from sse_proxy.core.dialects.base import FrameRules
from sse_proxy.core.dialects.single_prefix import last_visible
from sse_proxy.core.dialects.standard import with_field
from sse_proxy.core.events import Event, FrameEnd, Item, LastEventId, ReconnectionTime, Text
from sse_proxy.core.ledger import RepairKind
from sse_proxy.core.options import Payload

__all__ = ["PREFIX", "Line", "Place", "RightReading"]

PREFIX = "data: "
_DATA = "data:"
_STARTS = ("data:", "event:", "id:", "retry:", ":")
_NO_FIELDS = Event("")


class Place(Enum):
    """Where the line that arrives now stands."""

    BETWEEN = "between"  # no frame is open
    FIELDS = "fields"  # behind event, id or retry, before any data
    FIRST = "first"  # it is the frame's first data line
    MORE = "more"  # behind a whole data line


class Line(Enum):
    """What the line that arrives now is."""

    UNKNOWN = "unknown"  # too short to tell, or blank
    FIRST = "first"  # a frame's first data line
    MORE = "more"  # a further data line of it
    FIELD = "field"
    COMMENT = "comment"
    WRONG = "wrong"  # no line that a right writer sends at this place


class RightReading:
    """Follow the lines of a stream whose writer is taken to be right; LF is its only line end.

    Of a frame's first data line a beginning may be passed on early, once it cannot be a control event; all else comes
    out when the frame ends.

    Attributes:
        place, kind: of the line that arrives now.
        line_size: characters of that line which were not passed on.
        first: no frame has ended yet.
        first_line_over: the stream's first line has ended, and so told its line end.
        last: the last visible character of the frame that is open or ended last.
        passed: a beginning of the open frame's first data line was passed on.
    """

    def __init__(self, rules: FrameRules, *, first_line_over: bool) -> None:
        self._rules = rules
        self._control = rules.control
        self._text = rules.payload is Payload.TEXT
        self._json = rules.payload is Payload.JSON
        self.first = True
        self.first_line_over = first_line_over
        self.last = ""
        # The line that arrives now
        self.kind = Line.UNKNOWN
        self._line: list[str] = []  # its text, but for what was passed on; of a first data line its value alone
        self.line_size = 0
        # The frame it stands in
        self.place = Place.BETWEEN
        self._with_space = True  # its first data line has the space behind the colon
        self._data: list[str] = []  # its data lines that were not passed on
        self.passed = False
        self._fields = _NO_FIELDS

    # A line arrives ------------------------------------------------------------------------------------------------

    @property
    def line(self) -> str:
        """The line that arrives now, but for what was passed on."""
        return "".join(self._line)

    def take(self, part: str) -> None:
        """Take more of the current line."""
        self._line.append(part)
        self.line_size += len(part)

    def kind_of(self, line: str, *, whole: bool) -> Line:
        """Tell what the line is from its beginning; `whole`: it is over."""
        starts: tuple[str, ...] = _STARTS
        if self.place is Place.MORE:
            if line.startswith(PREFIX) or ((self._json or not self._with_space) and line.startswith(_DATA)):
                return Line.MORE
            if not self._json:  # no line of a JSON value looks like a field, but one of text may
                starts = (PREFIX,)
        elif line.startswith(_DATA):
            return Line.UNKNOWN if len(line) == len(_DATA) and not whole else Line.FIRST
        if line.startswith(starts):
            return Line.COMMENT if line[0] == ":" else Line.FIELD
        if not whole and any(start.startswith(line) for start in starts):
            return Line.UNKNOWN
        return Line.WRONG

    def open_data(self, line: str) -> str:
        """The first data line of a frame begins with `line`; return what of it may be passed on."""
        self._with_space = line.startswith(PREFIX)
        content = line[len(PREFIX) :] if self._with_space else line[len(_DATA) :]
        self._line.clear()  # what is held of it from here on is its value
        self.line_size = 0
        self.kind, self.place = Line.FIRST, Place.FIRST
        self.last, self.passed = "", False
        return self.first_data(content) if content else ""

    def first_data(self, part: str) -> str:
        """Take more of a frame's first data line; return what may be passed on, often all of it."""
        if self.passed:
            self.last = last_visible(part, self.last)
            return part
        before = self.line_size
        self.take(part)
        # Beyond MAX_CONTROL only the routing object goes on: asked again when it gets too long for that as well.
        asked = before <= MAX_CONTROL or before <= MAX_ROUTING < self.line_size
        # And so long a first line of the stream does not wait for its end.
        over = self.first_line_over or self.line_size > MAX_CONTROL
        if asked and self._text and over and self._fields is _NO_FIELDS:
            return self.leave_head()
        return ""

    def leave_head(self) -> str:
        """Return the head of a text frame once it cannot be a control event, to be passed on; "" before that."""
        content = "".join(self._line)
        if self._rules.strip_double_prefix and PREFIX.startswith(content):
            return ""
        bare = self._without_prefix(content)
        if not bare or self._control.may_become(bare, first=self.first):
            return ""
        self._count_prefix(content, bare)
        self._line.clear()
        self.line_size = 0
        self.passed = True
        self.last = last_visible(bare, self.last)
        return bare

    def holds_first_line(self) -> bool:
        """Whether text of the stream's first line is held for its line end alone."""
        if self.first_line_over or not self._text or self.kind is not Line.FIRST or self.passed:
            return False
        if self._fields is not _NO_FIELDS or self.line_size > MAX_CONTROL:
            return False
        bare = self._without_prefix(self.line)
        return bool(bare) and not self._control.may_become(bare, first=self.first)

    def _without_prefix(self, content: str) -> str:
        return content.removeprefix(PREFIX) if self._rules.strip_double_prefix else content

    def _count_prefix(self, content: str, bare: str) -> None:
        self._rules.ledger.repair(RepairKind.DOUBLE_PREFIX, len(content) != len(bare))

    # Its end -------------------------------------------------------------------------------------------------------

    def end_first(self) -> str:
        """End a frame's first data line; return what may be passed on only now."""
        text = ""
        if self._text and not self.passed and self._fields is _NO_FIELDS:
            text = self.leave_head()  # it may have been held for its length, or as the stream's first line
        if not self.passed:
            content = self.line
            data = self._without_prefix(content)
            self._count_prefix(content, data)
            self._data.append(data)
            self.last = last_visible(data, self.last)
        self.place = Place.MORE
        return text

    def end_more(self) -> None:
        """End a further data line."""
        value = self._more_value()
        self._data.append(value)
        self.last = last_visible(value, self.last)

    def end_field(self) -> None:
        """End a line of event, id or retry."""
        self._fields = with_field(self._fields, self.line, self._rules)
        if self.place is Place.BETWEEN:
            self.place = Place.FIELDS

    def end_line(self) -> None:
        """Another line follows."""
        self.kind = Line.UNKNOWN
        self._line.clear()
        self.line_size = 0

    def _more_value(self) -> str:
        return "".join(self._line)[len(_DATA) :].removeprefix(" ")

    # The frame's end -----------------------------------------------------------------------------------------------

    def end_frame(self) -> tuple[list[Item], bool]:
        """A blank line ends the open frame: return its items, and whether it is whole for certain and may leave."""
        items, whole = self._end_fields() if self.place is Place.FIELDS else self._end_data()
        self.place, self._fields = Place.BETWEEN, _NO_FIELDS
        return items, whole

    def _end_fields(self) -> tuple[list[Item], bool]:
        items: list[Item] = []
        if self._fields.id is not None:
            items.append(LastEventId(self._fields.id))
        if self._fields.retry is not None:
            items.append(ReconnectionTime(self._fields.retry))
        self._rules.drop(self._fields.type, None)
        return items, True

    def _end_data(self) -> tuple[list[Item], bool]:
        items: list[Item] = []
        if self.passed:
            if self._data:
                items.append(Text("\n" + "\n".join(self._data)))
            items.append(FrameEnd())
            whole = False
        else:
            data = "\n".join(self._data)
            kind = self._control.classify(data, first=self.first)
            items.append(replace(self._fields, data=data))
            if self._text:
                whole = kind in (Control.DONE, Control.ROUTING) or self._fields is not _NO_FIELDS
            else:
                whole = kind is Control.DONE or self._rules.payload is Payload.OPAQUE or is_json(data)
        self._data.clear()
        self.first = self.passed = False
        return items, whole

    # The stream's end ----------------------------------------------------------------------------------------------

    def is_marker(self) -> bool:
        """Whether the open frame is the done marker."""
        return not self.passed and self._control.marker("\n".join(self._data)) is not None

    def is_half(self) -> bool:
        """Whether the frame that is open is not whole, or may not be."""
        if self.place in (Place.BETWEEN, Place.FIELDS):
            return False
        if self.passed:
            return self._rules.is_half("", first=False)
        lines = [*self._data]
        if self.kind is Line.FIRST:
            lines.append(self._without_prefix(self.line))
        elif self.kind is Line.MORE:
            lines.append(self._more_value())
        return self._rules.is_half("\n".join(lines), first=self.first)

    def abort(self) -> str:
        """The stream failed: return the open frame's text that is certain; drop and count what is undecided."""
        line = self.line
        if self.kind is Line.MORE:
            self._data.append(self._more_value())
        elif self.kind is Line.FIRST and line and not (self._rules.strip_double_prefix and PREFIX.startswith(line)):
            self._data.append(self._without_prefix(line))
        else:
            self._rules.drop(line)
        text = "\n".join(["", *self._data] if self.passed and self._data else self._data)
        if self._text and (self.passed or not self._control.may_become(text, first=self.first)):
            return text
        self._rules.drop(text)
        return ""
