"""Dialect `auto`: decide from evidence, stream by stream, whether the host frames rightly (design section 3).

Until it is decided the stream is read as a right one, but only what both readings agree on is passed on. What they
differ about is held: a frame of several lines, and a frame boundary where no sentence ends ("weak"). Proof of the
broken writer hands what is held, as it came, to the single-prefix reading; four weak boundaries without proof, or a CR
at the first line's end, hand it to the standard's.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum

from sse_proxy.core.control import MAX_CONTROL, MAX_ROUTING, Control, is_json
from sse_proxy.core.dialects.base import CONTROL_WAIT_S, UNDECIDED_WAIT_S, DialectParser, FrameRules
from sse_proxy.core.dialects.single_prefix import SinglePrefixParser, last_visible
from sse_proxy.core.dialects.standard import StandardParser, with_field
from sse_proxy.core.events import Comment, Event, FrameEnd, Item, LastEventId, ReconnectionTime, Text
from sse_proxy.core.ledger import RepairKind
from sse_proxy.core.options import Dialect, Payload
from sse_proxy.core.sentences import MARKS

__all__ = ["AutoParser"]

_PREFIX = "data: "
_DATA = "data:"
_STARTS = ("data:", "event:", "id:", "retry:", ":")
_MARKS = frozenset(MARKS)
_WEAK_BOUNDARIES = 4
_NO_FIELDS = Event("")


class _Place(Enum):
    """Where the line that arrives now stands, read as a right stream."""

    BETWEEN = "between"  # no frame is open
    FIELDS = "fields"  # behind event, id or retry, before any data
    FIRST = "first"  # it is the frame's first data line
    MORE = "more"  # behind a whole data line


class _Line(Enum):
    """What the line that arrives now is."""

    UNKNOWN = "unknown"  # too short to tell, or blank
    FIRST = "first"  # a frame's first data line
    MORE = "more"  # a further data line of it
    FIELD = "field"
    COMMENT = "comment"


def _may_start(beginning: str, words: tuple[str, ...]) -> bool:
    return any(word.startswith(beginning) for word in words)


class AutoParser:
    """Read a stream as right or as single-prefix, whichever its bytes prove.

    The text comes out the same at any cuts; without `flush()` so does every event.

    Args:
        first_line_ended_in_cr: what a comment before the first frame told; None where none came.
    """

    def __init__(self, rules: FrameRules, *, first_line_ended_in_cr: bool | None = None) -> None:
        self._rules = rules
        self._control = rules.control
        self._text = rules.payload is Payload.TEXT
        self._decided: DialectParser | None = None
        self._first_line_over = first_line_ended_in_cr is not None
        self._first = True  # no frame has ended yet
        self._last = ""  # the last visible character of the frame that is open or ended last
        # The line that arrives now
        self._kind = _Line.UNKNOWN
        self._line: list[str] = []  # its text, but for what was passed on
        self._line_size = 0
        # The frame it stands in, read as right
        self._place = _Place.BETWEEN
        self._after_frame = False  # between frames: a blank line ended one
        self._after_control = False  # and it was a control event, or whole for another reason
        self._after_comment = False  # a comment line came since: its own blank line may follow
        self._with_space = True  # its first data line has the space behind the colon
        self._data: list[str] = []  # its data lines that were not passed on
        self._passed = False  # a beginning of its first data line was passed on
        self._fields = _NO_FIELDS
        # What is held since both readings parted: as it came, and as items of the right reading
        self._holding = True
        self._raw: list[str] = []
        self._size = 0
        self._items: list[Item] = []
        self._held_first = True
        self._held_last: str | None = None  # None: held from between frames; else from inside one that ends so
        self._weak_held = False
        self._weak_start = 0, 0  # what of _items and of _raw stands before the first weak boundary that is held
        self._weak = 0
        self._line_mark = 0  # where in _raw the current line begins
        self._frame_mark = 0  # where in _raw the open frame begins
        self._first_end = 0, ""  # where in _raw its first data line ends, and the last visible character there
        if first_line_ended_in_cr:
            self._to_standard([], "")

    @property
    def hold_s(self) -> float | None:
        """200 ms for what is undecided between frames, a second where it may be the stream's last control event."""
        if self._decided is not None:
            return self._decided.hold_s
        if self._weak_held or (self._place is _Place.BETWEEN and self._holds_data()):
            return CONTROL_WAIT_S if self._ends_in_control() else UNDECIDED_WAIT_S
        return UNDECIDED_WAIT_S if self._holds_first_line() else None

    def _holds_first_line(self) -> bool:
        """Whether text of the stream's first line is held for its line end alone."""
        if self._first_line_over or not self._text or self._kind is not _Line.FIRST or self._passed:
            return False
        bare = self._without_prefix("".join(self._line))
        plain = self._fields is _NO_FIELDS and self._line_size <= MAX_CONTROL
        return bool(bare) and plain and not self._control.may_become(bare, first=self._first)

    def _holds_data(self) -> bool:
        return any(isinstance(item, Text | Event) for item in self._items)

    def _ends_in_control(self) -> bool:
        """Whether the last thing held is a whole control event."""
        if self._place is not _Place.BETWEEN or not self._items or self._line:
            return False
        last = self._items[-1]
        if not isinstance(last, Event):
            return False
        return last.type == "error" or self._control.classify(last.data, first=False) is not Control.TEXT

    def _holds_end(self) -> bool:
        """Whether what is held, read as frames, ends the stream: in the marker, or in an error object."""
        events = (item for item in self._items if isinstance(item, Event))
        return self._ends_in_control() or any(self._control.marker(event.data) is not None for event in events)

    # Text in -------------------------------------------------------------------------------------------------------

    @property
    def held(self) -> int:
        """What both readings do not agree on yet, and a frame's head that may be a control event."""
        if self._decided is not None:
            return self._decided.held
        return self._size if self._holding else self._line_size

    def feed(self, text: str) -> list[Item]:
        """Take the next text; return the items it completes."""
        items: list[Item] = []
        if not text:
            return items
        if self._decided is not None:
            return self._decided.feed(text)
        cr = text.find("\r")
        rest = self._take_lines(text if cr < 0 else text[:cr], items)
        if cr >= 0:
            if self._decided is None:
                # A CR ends the first line of a right stream; behind a first line that ended in LF it is text.
                if self._first_line_over:
                    self._to_single_prefix(items)
                else:
                    # Where time has let text of the line go, the rest of its event follows an empty first line.
                    self._to_standard(items, _PREFIX if self._passed else "".join(self._raw))
            rest += text[cr:]
        if self._decided is not None:
            items += self._decided.feed(rest)
        return items

    def _take_lines(self, text: str, items: list[Item]) -> str:
        """Take text without CR; once the dialect is decided, return what is left for it."""
        start = 0
        while True:
            end = text.find("\n", start)
            part = text[start : end if end >= 0 else len(text)]
            if part:
                self._take_part(part, items)
                if self._decided is not None:
                    return text[start + len(part) :]
            if end < 0:
                return ""
            self._end_line(items)
            if self._decided is not None:
                return text[end + 1 :]
            start = end + 1

    def _take_part(self, part: str, items: list[Item]) -> None:
        """Take more of the current line."""
        if self._holding:
            self._raw.append(part)
            self._size += len(part)
        if self._kind is _Line.FIRST:
            self._first_data(part, items)
            return
        self._line.append(part)
        self._line_size += len(part)
        if self._kind is _Line.UNKNOWN:
            self._start_line("".join(self._line), items)

    def _start_line(self, line: str, items: list[Item], *, whole: bool = False) -> None:
        """Tell what the line is from its beginning; `whole`: it is over."""
        if self._place is _Place.MORE:
            json = self._rules.payload is Payload.JSON  # no line of a JSON value looks like a field
            if line.startswith(_PREFIX) or ((json or not self._with_space) and line.startswith(_DATA)):
                self._kind = _Line.MORE
            elif json and line.startswith(_STARTS):
                self._kind = _Line.COMMENT if line[0] == ":" else _Line.FIELD
            elif whole or not _may_start(line, _STARTS if json else (_PREFIX,)):
                self._to_single_prefix(items)
            return
        if line.startswith(_DATA):
            if len(line) == len(_DATA) and not whole:
                return
            self._boundary(line, items, single_prefix=line.startswith(_PREFIX))
            if self._decided is None:
                self._open_data(line, items)
        elif line.startswith(_STARTS):
            if line[0] == ":":
                self._kind = _Line.COMMENT
                if self._after_frame and self._weak_end():
                    self._hold_weak()
            else:
                self._boundary(line, items, single_prefix=False)
                self._kind = _Line.FIELD
        elif whole or not _may_start(line, _STARTS):
            self._to_single_prefix(items)

    def _open_data(self, line: str, items: list[Item]) -> None:
        """The first data line of a frame begins."""
        self._with_space = line.startswith(_PREFIX)
        content = line[len(_PREFIX) :] if self._with_space else line[len(_DATA) :]
        self._kind, self._place = _Line.FIRST, _Place.FIRST
        self._clear_line()
        self._last, self._passed = "", False
        if content:
            self._first_data(content, items)

    def _first_data(self, part: str, items: list[Item]) -> None:
        """Take more of a frame's first data line: passed on, unless it may be a control event or fields came."""
        if self._passed:
            self._pass_text(part, items)
            return
        before = self._line_size
        self._line.append(part)
        self._line_size += len(part)
        # Beyond MAX_CONTROL only the routing object goes on: asked again when it gets too long for that as well.
        asked = before <= MAX_CONTROL or before <= MAX_ROUTING < self._line_size
        if asked and self._text and self._first_line_over and self._fields is _NO_FIELDS:
            self._leave_head(items)

    def _leave_head(self, items: list[Item]) -> None:
        """Pass the head of a text frame on once it cannot be a control event."""
        content = "".join(self._line)
        if self._rules.strip_double_prefix and _PREFIX.startswith(content):
            return
        bare = self._without_prefix(content)
        if bare and not self._control.may_become(bare, first=self._first):
            self._count_prefix(content, bare)
            self._clear_line()
            self._passed = True
            self._pass_text(bare, items)

    def _without_prefix(self, content: str) -> str:
        return content.removeprefix(_PREFIX) if self._rules.strip_double_prefix else content

    def _count_prefix(self, content: str, bare: str) -> None:
        self._rules.ledger.repair(RepairKind.DOUBLE_PREFIX, len(content) != len(bare))

    def _pass_text(self, text: str, items: list[Item]) -> None:
        self._last = last_visible(text, self._last)
        if self._weak_held:
            self._items.append(Text(text))
            return
        self._hold_nothing()  # both readings agree up to here
        items.append(Text(text))

    # Line ends -----------------------------------------------------------------------------------------------------

    def _end_line(self, items: list[Item]) -> None:
        """A LF ends the current line."""
        if self._kind is _Line.UNKNOWN and self._line:
            self._start_line("".join(self._line), items, whole=True)
            if self._decided is not None:
                items += self._decided.feed("\n")
                return
        kind, blank = self._kind, self._kind is _Line.UNKNOWN
        self._first_line_over = True
        if kind is _Line.FIRST:
            self._end_first(items)
        elif not blank:
            self._end_other(kind, "".join(self._line), items)
        if self._holding:
            self._raw.append("\n")
            self._size += 1
        self._kind = _Line.UNKNOWN
        self._clear_line()
        if blank:
            self._blank_line(items)
        self._line_mark = len(self._raw)

    def _end_first(self, items: list[Item]) -> None:
        if self._text and not self._passed and self._fields is _NO_FIELDS:
            self._leave_head(items)  # it may have been held for its length, or as the stream's first line
        if not self._passed:
            content = "".join(self._line)
            data = self._without_prefix(content)
            self._count_prefix(content, data)
            self._data.append(data)
            self._last = last_visible(data, self._last)
        elif not self._holding:
            self._hold(self._last)
        self._first_end = len(self._raw), self._last
        self._place = _Place.MORE

    def _end_other(self, kind: _Line, line: str, items: list[Item]) -> None:
        if kind is _Line.MORE:
            value = line[len(_DATA) :].removeprefix(" ")
            self._data.append(value)
            self._last = last_visible(value, self._last)
        elif kind is _Line.FIELD:
            self._fields = with_field(self._fields, line, self._rules)
            if self._place is _Place.BETWEEN:
                self._place = _Place.FIELDS
        else:
            (self._items if self._items or self._weak_held else items).append(Comment(line[1:]))
            self._after_comment = True

    def _clear_line(self) -> None:
        self._line.clear()
        self._line_size = 0

    def _blank_line(self, items: list[Item]) -> None:
        if self._place is _Place.BETWEEN:
            if self._after_comment or not self._after_frame:
                self._after_comment = False
            elif self._rules.payload is Payload.JSON:
                self._rules.ledger.repair(RepairKind.EXCESS_BLANK_LINE)
            else:
                self._to_single_prefix(items)
            return
        if self._place is _Place.FIELDS:
            if self._fields.id is not None:
                self._items.append(LastEventId(self._fields.id))
            if self._fields.retry is not None:
                self._items.append(ReconnectionTime(self._fields.retry))
            self._rules.drop(self._fields.type, None)
            whole = True
        else:
            whole = self._frame_over()
        self._place, self._fields = _Place.BETWEEN, _NO_FIELDS
        self._after_frame, self._after_control, self._after_comment = True, whole, False
        if whole and not self._weak_held:
            self._release(items)
            if self._rules.payload is Payload.OPAQUE:
                # What follows without prefix belongs to the text before it, and so does the blank line.
                self._hold("")
                self._raw.append("\n\n")

    def _frame_over(self) -> bool:
        """Put the open frame's items to those held; True: it is whole for certain and may leave."""
        if self._passed:
            if self._data:
                self._items.append(Text("\n" + "\n".join(self._data)))
            self._items.append(FrameEnd())
            whole = False
        else:
            data = "\n".join(self._data)
            kind = self._control.classify(data, first=self._first)
            self._items.append(replace(self._fields, data=data))
            if self._text:
                whole = kind in (Control.DONE, Control.ROUTING) or self._fields is not _NO_FIELDS
            else:
                whole = kind is Control.DONE or self._rules.payload is Payload.OPAQUE or is_json(data)
        self._data.clear()
        self._first = self._passed = False
        return whole

    # Decisions -----------------------------------------------------------------------------------------------------

    def _weak_end(self) -> bool:
        """Whether the frame before this place ended where no sentence ends."""
        return self._rules.sentences and not self._after_control and self._last not in _MARKS

    def _boundary(self, line: str, items: list[Item], *, single_prefix: bool) -> None:
        """A new frame begins with `line`: both readings agree on that, or they part here."""
        self._frame_mark = self._line_mark
        if self._place is not _Place.BETWEEN or not self._after_frame:
            return
        if self._weak_end():
            self._weak += 1
            self._hold_weak()
            if self._weak == _WEAK_BOUNDARIES:
                self._release(items)
                self._to_standard(items, line)
        elif not self._weak_held and single_prefix:
            self._release(items)
            self._raw.append(line)
            self._size = len(line)
        self._after_frame = self._after_control = self._after_comment = False

    def _hold_weak(self) -> None:
        if not self._weak_held:
            self._weak_held = True
            self._weak_start = len(self._items), self._line_mark

    def _drop_weak(self) -> list[Item]:
        """Return what stands before the first weak boundary that is held, and drop what follows it."""
        items, raw = self._weak_start
        self._rules.drop("".join(self._raw[raw:]))
        return self._items[:items]

    def _hold(self, last: str | None) -> None:
        """Hold from here on: inside a frame whose text ends in `last`; None: from between frames."""
        self._hold_nothing()
        self._holding = True
        self._held_first, self._held_last = self._first, last

    def _hold_nothing(self) -> None:
        self._holding = False
        self._raw.clear()
        self._size = self._line_mark = self._frame_mark = 0

    def _release(self, items: list[Item]) -> None:
        """What is held was frames: let it go, and hold what comes, from between frames on."""
        items += self._items
        self._items.clear()
        self._weak_held = False
        self._hold(None)

    def _to_single_prefix(self, items: list[Item]) -> None:
        """Proof: what is held was text of the frame it began in."""
        parser = SinglePrefixParser(self._rules)
        if not self._holding:
            parser.resume(first=self._first, last=self._last)
        elif self._held_last is not None:
            parser.resume(first=self._held_first, last=self._held_last)
        elif not self._held_first:
            parser.resume_between()
        self._decide(parser, Dialect.SINGLE_PREFIX)
        items += parser.feed("".join(self._raw))

    def _to_standard(self, items: list[Item], text: str) -> None:
        """The stream is a right one: `text` is what is not passed on yet."""
        parser = StandardParser(self._rules, deliver_unterminated=True)
        self._decide(parser, Dialect.STANDARD)
        items += parser.feed(text)

    def _decide(self, parser: DialectParser, dialect: Dialect) -> None:
        self._decided = parser
        self._rules.ledger.dialect = dialect

    # Ends ----------------------------------------------------------------------------------------------------------

    def flush(self) -> list[Item]:
        """No proof came in time: what is held between frames was frames. The frame that is open stays undecided."""
        if self._decided is not None:
            return self._decided.flush()
        items: list[Item] = []
        if self._holds_first_line():
            self._leave_head(items)
            return items
        raw, (first_end, last) = list(self._raw), self._first_end
        frame, line = self._frame_mark, self._line_mark
        self._release(items)
        if self._place is _Place.FIRST and self._passed:
            self._hold_nothing()
            return items
        if self._place is _Place.MORE and self._passed:
            self._hold(last)
            keep = first_end
        else:
            keep = line if self._place is _Place.BETWEEN else frame
        self._raw.extend(raw[keep:])
        self._size = sum(map(len, self._raw))
        self._line_mark = max(0, line - keep)
        self._frame_mark = max(0, frame - keep)
        self._first_end = max(0, first_end - keep), last
        if self._place is _Place.BETWEEN:
            self._after_control = True  # that boundary is settled
        return items

    def close(self) -> list[Item]:
        """The upstream ended cleanly: what is held was frames, unless the answer is not whole."""
        if self._decided is not None:
            return self._decided.close()
        items: list[Item] = []
        if self._is_half():
            items = self.abort()
            if self._passed or any(isinstance(item, Text) for item in items):
                items.append(FrameEnd())
            return items
        if self._kind is _Line.UNKNOWN and self._line:
            if not self._rules.require_done:
                self._to_single_prefix(items)  # a line that has no prefix
                return items + (self._decided.close() if self._decided else [])
            self._rules.drop("".join(self._line))
            self._clear_line()
        elif self._kind is not _Line.UNKNOWN:
            self._end_line(items)
        if self._place is not _Place.BETWEEN:
            done = not self._passed and self._control.marker("\n".join(self._data)) is not None
            self._rules.ledger.repair(RepairKind.BARE_MARKER if done else RepairKind.UNTERMINATED_EVENT)
            self._blank_line(items)
        if self._weak_held and self._text and self._rules.require_done and not self._holds_end():
            items += self._drop_weak()
        else:
            items += self._items
        self._items.clear()
        return items

    def _is_half(self) -> bool:
        """Whether the frame that is open is not whole, or may not be."""
        if self._place in (_Place.BETWEEN, _Place.FIELDS):
            return False
        if self._passed:
            return self._rules.is_half("", first=False)
        lines = [*self._data]
        if self._kind is _Line.FIRST:
            lines.append(self._without_prefix("".join(self._line)))
        elif self._kind is _Line.MORE:
            lines.append("".join(self._line)[len(_DATA) :].removeprefix(" "))
        return self._rules.is_half("\n".join(lines), first=self._first)

    def abort(self) -> list[Item]:
        """The stream failed: what both readings, or the right one of an open frame, hold for text is passed on."""
        if self._decided is not None:
            return self._decided.abort()
        if self._weak_held:
            return self._drop_weak()
        items = list(self._items)
        line = "".join(self._line)
        if self._kind is _Line.MORE:
            self._data.append(line[len(_DATA) :].removeprefix(" "))
        elif self._kind is _Line.FIRST and line and not (self._rules.strip_double_prefix and _PREFIX.startswith(line)):
            self._data.append(self._without_prefix(line))
        else:
            self._rules.drop(line)
        text = "\n".join(["", *self._data] if self._passed and self._data else self._data)
        if text and self._text and (self._passed or not self._control.may_become(text, first=self._first)):
            items.append(Text(text))
        else:
            self._rules.drop(text)
        return items
