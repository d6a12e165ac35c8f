"""Dialect `single-prefix`: `data: ` + chunk + LF LF, whatever the chunk holds (GaApi's writer).

Only `data: ` at the start of a frame is framing and only LF LF can end one; all else is text. Under `chunker: sentence`
a `LF LF data: ` ends its frame only where the host's splitter can have cut: behind a sentence mark, behind the routing
object, or before the control event that ends the stream. With that the broken wire is uniquely decodable.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum

from sse_proxy.core.control import MAX_CONTROL, MAX_ROUTING, Control, is_json
from sse_proxy.core.dialects.base import CONTROL_WAIT_S, UNDECIDED_WAIT_S, FrameRules
from sse_proxy.core.dialects.standard import with_field
from sse_proxy.core.events import Event, FrameEnd, Item, LastEventId, ReconnectionTime, Text
from sse_proxy.core.ledger import RepairKind
from sse_proxy.core.options import Payload
from sse_proxy.core.sentences import MARKS
from sse_proxy.core.unicode import DOTNET_SPACE

__all__ = ["SinglePrefixParser", "TextLines", "last_visible"]

_PREFIX = "data: "
_BOUNDARY = "\n\n" + _PREFIX
_MARKS = frozenset(MARKS)
_FIELDS = ("event:", "id:", "retry:")
_FIELD_LIKE = ("data:", "event:", "id:", "retry:", ":")


def last_visible(text: str, before: str) -> str:
    """Return the last character of `text` that is not white space, or `before` where it has none."""
    bare = text.rstrip(DOTNET_SPACE)
    return bare[-1] if bare else before


class TextLines:
    """Count what a writer that prefixes only the first line of a frame left without prefix."""

    def __init__(self, rules: FrameRules) -> None:
        self._ledger = rules.ledger
        self._line = ""  # the beginning of the current line, as much as tells a field from text
        self._first = True  # the frame's first line has its prefix

    def feed(self, text: str) -> None:
        """Take the next text of the frame."""
        if "\n" not in text:
            if len(self._line) < 8:
                self._line += text[:8]
            return
        first, *others = text.split("\n")
        self._line += first[:8]
        for line in others:
            self._count()
            self._first = False
            self._line = line[:8]

    def end(self) -> None:
        """The frame ends."""
        if self._line:
            self._count()
        elif not self._first:  # the frame ended in a LF of its own, in front of the writer's two
            self._ledger.repair(RepairKind.EXCESS_BLANK_LINE)
        self._line, self._first = "", True

    def _count(self) -> None:
        if self._first:
            return
        if not self._line:
            self._ledger.repair(RepairKind.BLANK_LINE_IN_TEXT)
        elif self._line.startswith(_FIELD_LIKE):
            self._ledger.repair(RepairKind.FIELD_LIKE_TEXT)
        else:
            self._ledger.repair(RepairKind.UNPREFIXED_LINE)


class _State(Enum):
    BETWEEN = "between"  # at the stream's head, or behind a control event: `data: ` is expected
    HEAD = "head"  # in a frame of which nothing was passed on: it may be a control event
    BODY = "body"  # in a frame of text


class SinglePrefixParser:
    """Turn single-prefix text into frames, passing text on as it arrives.

    Held are the last two LFs, a partial `data: ` behind them, a line that may be a bare marker at the stream's end,
    and at a frame's head (or behind a boundary where no sentence ends) a possible control event.
    """

    def __init__(self, rules: FrameRules) -> None:
        self._rules = rules
        self._control = rules.control
        self._bare_marker = rules.control.bare_marker_tail()
        self._state = _State.BETWEEN
        self._buf = ""  # not passed on yet, from _pos on
        self._pos = 0
        self._parts: list[str] = []  # behind _buf: what cannot change a held head
        self._parts_size = 0
        self._stripped = False  # this frame's redundant prefix was taken off
        self._first = True  # no frame has ended yet
        self._last = ""  # the last visible character of this frame
        self._lines = TextLines(rules)
        self._fields: list[str] = []  # event, id and retry lines at the stream's head
        self._fields_size = 0
        self._holds_control = False  # a whole control event waits for the stream's end

    def resume(self, *, first: bool, last: str) -> None:
        """Start inside a frame of text that was passed on and ended in `last`."""
        self._state, self._first, self._last = _State.BODY, first, last

    def resume_between(self) -> None:
        """Start between two frames."""
        self._first = False

    @property
    def hold_s(self) -> float | None:
        """One second for a control event that may be the last; 200 ms for a whole frame of another payload."""
        if self._holds_control:
            return CONTROL_WAIT_S
        whole = self._rules.payload is not Payload.TEXT and self._state is _State.BODY and self._buf == "\n\n"
        return UNDECIDED_WAIT_S if whole else None

    @property
    def held(self) -> int:
        """What is undecided, and the fields of the first frame."""
        return len(self._buf) + self._parts_size + self._fields_size

    def feed(self, text: str) -> list[Item]:
        """Take the next text; return the items it completes."""
        items: list[Item] = []
        if not text:
            return items
        if self._cannot_settle(text):
            self._parts.append(text)
            self._parts_size += len(text)
            return items
        self._buf = self._take() + text
        self._holds_control = False
        while self._pos < len(self._buf) and self._step(items):
            pass
        self._buf = self._buf[self._pos :]
        self._pos = 0
        return items

    def _cannot_settle(self, text: str) -> bool:
        """Whether a long head stays undecided with `text` behind it: joined when it matters, so that it costs O(n)."""
        if self._state is not _State.HEAD or self._holds_control or len(self._buf) <= MAX_CONTROL:
            return False
        edge = self._parts[-1] if self._parts else self._buf
        if "\n\n" in text or (text[0] == "\n" and edge[-1] == "\n"):
            return False
        return self._rules.payload is Payload.JSON or self.held + len(text) <= MAX_ROUTING

    def _step(self, items: list[Item]) -> bool:
        """Do what one state can do; True when another step may follow."""
        if self._state is _State.BODY:
            return self._body(items)
        return self._head(items) if self._state is _State.HEAD else self._between(items)

    # Between frames ------------------------------------------------------------------------------------------------

    def _between(self, items: list[Item]) -> bool:
        buf, pos = self._buf, self._pos
        if buf.startswith(_PREFIX, pos):
            self._open(pos + len(_PREFIX))
            return True
        if _PREFIX.startswith(buf[pos:]):
            return False
        if buf[pos] == "\n":
            if self._fields:
                self._fields_alone(items)
            else:
                self._rules.ledger.repair(RepairKind.EXCESS_BLANK_LINE)
            self._pos += 1
            return True
        if self._first and buf.startswith(_FIELDS, pos):
            end = buf.find("\n", pos)
            if end < 0:
                return False
            self._fields.append(buf[pos:end].partition("\r")[0])  # a CR would end the line for our own readers
            self._fields_size += end - pos
            self._pos = end + 1
            return True
        if self._first and any(field.startswith(buf[pos:]) for field in _FIELDS):
            return False
        # Text without any prefix: nothing may be lost.
        self._rules.ledger.repair(RepairKind.UNPREFIXED_LINE)
        self._open(pos)
        return True

    def _open(self, pos: int) -> None:
        self._state, self._pos, self._last, self._stripped = _State.HEAD, pos, "", False

    def _fields_alone(self, items: list[Item]) -> None:
        fields = self._take_fields()
        if fields.id is not None:
            items.append(LastEventId(fields.id))
        if fields.retry is not None:
            items.append(ReconnectionTime(fields.retry))

    def _take_fields(self) -> Event:
        event = Event("")
        for line in self._fields:
            event = with_field(event, line, self._rules)
        self._fields.clear()
        self._fields_size = 0
        return event

    # At a frame's head ---------------------------------------------------------------------------------------------

    def _head(self, items: list[Item]) -> bool:
        buf = self._buf
        if self._rules.strip_double_prefix and not self._stripped:
            if buf.startswith(_PREFIX, self._pos):
                self._rules.ledger.repair(RepairKind.DOUBLE_PREFIX)
                self._pos += len(_PREFIX)
                self._stripped = True
                if self._pos == len(buf):
                    return False
            elif _PREFIX.startswith(buf[self._pos :]):
                return False
        pos = self._pos
        end = buf.find("\n\n", pos)
        if end >= 0:
            data = buf[pos:end]
            kind = self._control.classify(data, first=self._first)
            if kind in (Control.DONE, Control.ROUTING) or (self._rules.payload is Payload.JSON and is_json(data)):
                self._event(items, data)
                self._pos = end + 2
                return True
            if kind is Control.ERROR and not buf[end:].strip("\n"):
                self._holds_control = True  # an error object if the stream ends here, text if anything follows
                return False
        elif self._rules.payload is Payload.JSON or self._may_become_control(buf[pos:]):
            return False
        self._state = _State.BODY
        return True

    def _may_become_control(self, beginning: str) -> bool:
        # The LF at the end may be the first of the frame's own two.
        return self._control.may_become(beginning, first=self._first) or (
            beginning.endswith("\n") and self._control.may_become(beginning[:-1], first=self._first)
        )

    def _event(self, items: list[Item], data: str) -> None:
        """Return a whole event: of control, or of a JSON payload."""
        if self._rules.payload is Payload.JSON and "\n" in data:
            self._rules.ledger.repair(RepairKind.SPLIT_JSON)
        items.append(replace(self._take_fields(), data=data))
        self._state, self._first, self._holds_control = _State.BETWEEN, False, False

    # In a frame of text --------------------------------------------------------------------------------------------

    def _body(self, items: list[Item]) -> bool:
        buf, pos = self._buf, self._pos
        scan = seen = pos
        last = self._last
        while (cut := buf.find(_BOUNDARY, scan)) >= 0:
            follows = cut + len(_BOUNDARY)
            last, seen = last_visible(buf[seen:cut], last), cut
            if not self._rules.sentences or last in _MARKS:
                self._text(items, buf[pos:cut])
                self._frame_end(items)
                self._open(follows)
                return follows < len(buf)
            held = self._may_end_stream(buf[follows : follows + MAX_CONTROL + 3])
            if held:
                self._text(items, buf[pos:cut])
                self._pos = cut
                self._holds_control = held == "whole"
                return False
            scan = follows
        keep = self._undecided_tail(buf, scan)
        self._text(items, buf[pos:keep])
        self._pos = keep
        return False

    def _may_end_stream(self, rest: str) -> str:
        """What stands behind a boundary where no sentence ends: the "whole" or a "part" of a last control event."""
        body = rest[:-1] if rest.endswith("\n") else rest
        body = body.removesuffix("\n")
        if self._control.classify(body, first=False) is not Control.TEXT:
            # Its clock runs once its own blank line is there: before that more of the line may come.
            return "whole" if rest.endswith("\n\n") else "part"
        return "part" if self._control.may_become(rest, first=False) else ""

    def _undecided_tail(self, buf: str, start: int) -> int:
        """Return where what must be held at the end of `buf` begins, not before `start`."""
        end = len(buf)
        for size in range(min(len(_BOUNDARY) - 1, end - start), 0, -1):
            if _BOUNDARY.startswith(buf[end - size :]):
                end -= size
                break
        line = buf.rfind("\n", start, len(buf.rstrip("\n")))  # the LF before the last line that holds anything
        if line >= 0:
            line -= line > start and buf[line - 1] == "\n"
            if self._bare_marker.match(buf, line):
                return min(end, line)
        return end

    def _text(self, items: list[Item], text: str) -> None:
        if text:
            self._last = last_visible(text, self._last)
            self._lines.feed(text)
            items.append(Text(text))

    def _frame_end(self, items: list[Item]) -> None:
        self._lines.end()
        items.append(FrameEnd())
        self._state, self._first = _State.BETWEEN, False

    # Ends ----------------------------------------------------------------------------------------------------------

    def flush(self) -> list[Item]:
        """What is held has waited long enough: a control event is the last one, a frame of another payload is whole."""
        items: list[Item] = []
        if self._holds_control:
            self._settle_control(items, self._take())
        elif self.hold_s is not None:
            self._take()
            self._frame_end(items)
        return items

    def _take(self) -> str:
        held = self._buf + "".join(self._parts) if self._parts else self._buf
        self._buf, self._pos, self._parts_size = "", 0, 0
        self._parts.clear()
        return held

    def _settle_control(self, items: list[Item], held: str) -> bool:
        """Return the control event that `held` is, at the stream's end; False where it is none."""
        in_body = self._state is _State.BODY
        if not in_body:
            data = held
        elif held.startswith(_BOUNDARY):
            data = held[len(_BOUNDARY) :]
        elif (found := self._bare_marker.match(held)) is not None and any(found.groups()):
            data = held.strip("\n")  # neither prefix nor blank line
        else:
            return False
        bare = data.rstrip("\n")
        kind = self._control.classify(bare, first=self._first and not in_body)
        if kind is Control.TEXT:
            return False
        if not data.endswith("\n\n"):
            done = kind is Control.DONE
            self._rules.ledger.repair(RepairKind.BARE_MARKER if done else RepairKind.UNTERMINATED_EVENT)
        if in_body:
            self._frame_end(items)
        self._event(items, bare)
        return True

    def close(self) -> list[Item]:
        """The upstream ended cleanly: what is held is the end of a frame, a last control event, or undecided."""
        items: list[Item] = []
        held = self._take()
        if self._state is _State.BETWEEN:
            self._fields_alone(items)
            self._rules.drop(held)
            return items
        if self._settle_control(items, held):
            return items
        text = held.removesuffix("\n")
        text = text.removesuffix("\n")
        if not held.endswith("\n\n"):
            self._rules.ledger.repair(RepairKind.UNTERMINATED_EVENT)
        if text and self._rules.require_done and self._rules.payload is Payload.TEXT:
            self._rules.drop(text)  # the answer is not whole: a part of the marker, or of framing
        elif self._state is _State.HEAD and self._rules.is_half(text, first=self._first):
            self._rules.drop(text, None)
            return items
        else:
            self._text(items, text)
        self._frame_end(items)
        return items

    def abort(self) -> list[Item]:
        """The stream failed: what is held is undecided, all other text was passed on."""
        held = self._take()
        if held.strip("\n"):
            self._rules.drop(held)
        return []
