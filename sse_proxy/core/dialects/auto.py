"""Dialect `auto`: decide from evidence, stream by stream, whether the host frames rightly (design section 3).

Until it is decided the stream is read as a right one (`right_reading`), but only what both readings agree on is passed
on. What they differ about is held (`undecided`): a frame of several lines, and a frame boundary where no sentence ends
("weak"). Proof of the broken writer hands what is held, as it came, to the single-prefix reading; four weak boundaries
without proof, or a CR at the first line's end, hand it to the standard's.
"""

from __future__ import annotations

from sse_proxy.core.control import Control
from sse_proxy.core.dialects.base import CONTROL_WAIT_S, UNDECIDED_WAIT_S, DialectParser, FrameRules
from sse_proxy.core.dialects.right_reading import PREFIX, Line, Place, RightReading
from sse_proxy.core.dialects.standard import StandardParser
from sse_proxy.core.dialects.undecided import Undecided
from sse_proxy.core.events import Comment, Event, FrameEnd, Item, Text
from sse_proxy.core.ledger import RepairKind
from sse_proxy.core.options import Dialect, Payload
from sse_proxy.core.sentences import MARKS

__all__ = ["AutoParser"]

_MARKS = frozenset(MARKS)
_WEAK_BOUNDARIES = 4


class AutoParser:
    """Read a stream as right or as single-prefix, whichever its bytes prove.

    The text comes out the same at any cuts; without `flush()` so does every event.

    Args:
        first_line_ended_in_cr: what a comment before the first frame told; None where none came.
    """

    def __init__(self, rules: FrameRules, *, first_line_ended_in_cr: bool | None = None) -> None:
        self._rules = rules
        self._control = rules.control
        self._decided: DialectParser | None = None
        self._right = RightReading(rules, first_line_over=first_line_ended_in_cr is not None)
        self._undecided = Undecided()
        self._weak = 0  # weak boundaries so far
        # Between frames, what came since the last one
        self._after_frame = False  # a blank line ended one
        self._after_control = False  # and it was a control event, or whole for another reason
        self._after_comment = False  # a comment line came since: its own blank line may follow
        if first_line_ended_in_cr:
            self._to_standard([], "")

    @property
    def hold_s(self) -> float | None:
        """200 ms for what is undecided between frames, a second where it may be the stream's last control event."""
        if self._decided is not None:
            return self._decided.hold_s
        if self._undecided.weak or (self._right.place is Place.BETWEEN and self._holds_data()):
            return CONTROL_WAIT_S if self._ends_in_control() else UNDECIDED_WAIT_S
        return UNDECIDED_WAIT_S if self._right.holds_first_line() else None

    def _holds_data(self) -> bool:
        return any(isinstance(item, Text | Event | Comment) for item in self._undecided.items)

    def _ends_in_control(self) -> bool:
        """Whether the last thing held is a whole control event."""
        items = self._undecided.items
        if self._right.place is not Place.BETWEEN or not items or self._right.line_size:
            return False
        last = items[-1]
        if not isinstance(last, Event):
            return False
        return last.type == "error" or self._control.classify(last.data, first=False) is not Control.TEXT

    def _holds_end(self) -> bool:
        """Whether what is held, read as frames, ends the stream: in the marker, or in an error object."""
        events = (item for item in self._undecided.items if isinstance(item, Event))
        return self._ends_in_control() or any(self._control.marker(event.data) is not None for event in events)

    # Text in -------------------------------------------------------------------------------------------------------

    @property
    def held(self) -> int:
        """What both readings do not agree on yet, and a frame's head that may be a control event."""
        if self._decided is not None:
            return self._decided.held
        return self._undecided.size if self._undecided.holding else self._right.line_size

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
                if self._right.first_line_over:
                    self._to_single_prefix(items)
                else:
                    # Where text of the line has gone already, what follows it belongs to that frame.
                    passed = self._right.passed
                    self._to_standard(items, PREFIX if passed else self._undecided.text, continues=passed)
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
        right = self._right
        self._undecided.take(part)
        if right.kind is Line.FIRST:
            if text := right.first_data(part):
                self._pass_text(text, items)
            return
        right.take(part)
        if right.kind is Line.UNKNOWN:
            alone = right.line_size == len(part)  # as most lines come
            self._start_line(part if alone else right.line, items)

    def _start_line(self, line: str, items: list[Item], *, whole: bool = False) -> None:
        """Tell what the line is from its beginning; `whole`: it is over."""
        right = self._right
        kind = right.kind_of(line, whole=whole)
        if kind is Line.WRONG:
            self._to_single_prefix(items)
        elif kind is Line.FIRST:
            self._boundary(line, items)
            if self._decided is None and (text := right.open_data(line)):
                self._pass_text(text, items)
        else:
            right.kind = kind
            if right.place is Place.MORE:
                return
            if kind is Line.FIELD:
                self._boundary(line, items)
            elif kind is Line.COMMENT and self._after_frame and self._weak_end():
                self._undecided.mark_weak()

    def _pass_text(self, text: str, items: list[Item]) -> None:
        if self._undecided.weak:
            self._undecided.items.append(Text(text))
            return
        self._undecided.hold_nothing()  # both readings agree up to here
        items.append(Text(text))

    # Line ends -----------------------------------------------------------------------------------------------------

    def _end_line(self, items: list[Item]) -> None:
        """A LF ends the current line."""
        right = self._right
        if right.kind is Line.UNKNOWN and right.line_size:
            self._start_line(right.line, items, whole=True)
            if self._decided is not None:
                items += self._decided.feed("\n")
                return
        right.first_line_over = True
        if right.kind is Line.UNKNOWN:
            self._undecided.end_line()
            self._blank_line(items)
        else:
            comment = right.kind is Line.COMMENT
            self._end_content(items)
            self._undecided.end_line()
            right.end_line()
            if comment:
                self._settle_comment(items)

    def _end_content(self, items: list[Item]) -> None:
        """The current line, which is not blank, is over."""
        right, undecided = self._right, self._undecided
        if right.kind is Line.FIRST:
            if text := right.end_first():
                self._pass_text(text, items)
            if right.passed and not undecided.holding:
                undecided.hold(first=right.first, last=right.last)
            undecided.mark_first_end(right.last)
        elif right.kind is Line.MORE:
            right.end_more()
        elif right.kind is Line.FIELD:
            right.end_field()
        else:
            held = undecided.items or undecided.weak
            (undecided.items if held else items).append(Comment(right.line[1:]))
            self._after_comment = True

    def _settle_comment(self, items: list[Item]) -> None:
        """A comment line, or the blank one behind it, is over.

        Behind a sentence's end only a right writer has one, and no JSON value has such a line.
        """
        right_writer = self._rules.sentences or self._rules.payload is Payload.JSON
        if self._right.place is Place.BETWEEN and right_writer and not self._undecided.weak:
            self._release(items)

    def _blank_line(self, items: list[Item]) -> None:
        if self._right.place is Place.BETWEEN:
            if self._after_comment or not self._after_frame:
                self._after_comment = False
                self._settle_comment(items)
            elif self._rules.payload is Payload.JSON:
                self._rules.ledger.repair(RepairKind.EXCESS_BLANK_LINE)
            else:
                self._to_single_prefix(items)
            return
        frame, whole = self._right.end_frame()
        self._undecided.items += frame
        self._after_frame, self._after_control, self._after_comment = True, whole, False
        if whole and not self._undecided.weak:
            self._release(items)
            if self._rules.payload is Payload.OPAQUE:
                # What follows without prefix belongs to the text before it, and so does the blank line.
                self._undecided.hold(first=self._right.first, last="", before="\n\n")

    # Decisions -----------------------------------------------------------------------------------------------------

    def _weak_end(self) -> bool:
        """Whether the frame before this place ended where no sentence ends."""
        return self._rules.sentences and not self._after_control and self._right.last not in _MARKS

    def _boundary(self, line: str, items: list[Item]) -> None:
        """A new frame begins with `line`: both readings agree on that, or they part here."""
        self._undecided.mark_frame()
        if self._right.place is not Place.BETWEEN or not self._after_frame:
            return
        if self._weak_end():
            self._weak += 1
            self._undecided.mark_weak()
            if self._weak == _WEAK_BOUNDARIES:
                self._release(items)
                self._to_standard(items, line)
        elif not self._undecided.weak and line.startswith(PREFIX):
            self._release(items)
            self._undecided.take(line)
        self._after_frame = self._after_control = self._after_comment = False

    def _release(self, items: list[Item]) -> None:
        items += self._undecided.release(first=self._right.first)

    def _to_single_prefix(self, items: list[Item]) -> None:
        """Proof: what is held was text of the frame it began in."""
        parser = self._undecided.as_single_prefix(self._rules, first=self._right.first, last=self._right.last)
        self._decide(parser, Dialect.SINGLE_PREFIX)
        items += parser.feed(self._undecided.text)

    def _to_standard(self, items: list[Item], text: str, *, continues: bool = False) -> None:
        """The stream is a right one: `text` is what is not passed on yet; it `continues` a frame that was in part."""
        parser = StandardParser(self._rules, deliver_unterminated=True, continues=continues)
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
        right, undecided = self._right, self._undecided
        items: list[Item] = []
        if right.holds_first_line():
            if text := right.leave_head():
                self._pass_text(text, items)
            return items
        if right.passed and right.place is Place.FIRST:
            self._release(items)
            undecided.hold_nothing()
            return items
        if right.passed and right.place is Place.MORE:
            keep, last = undecided.first_end
            return undecided.release_before(keep, first=right.first, last=last)
        between = right.place is Place.BETWEEN
        if between:
            self._after_control = True  # that boundary is settled
        return undecided.release_before(undecided.line if between else undecided.frame, first=right.first)

    def close(self) -> list[Item]:
        """The upstream ended cleanly: what is held was frames, unless the answer is not whole."""
        if self._decided is not None:
            return self._decided.close()
        right, undecided = self._right, self._undecided
        items: list[Item] = []
        if right.is_half():
            items = self.abort()
            if right.passed or any(isinstance(item, Text) for item in items):
                items.append(FrameEnd())
            return items
        if right.kind is not Line.UNKNOWN:
            self._end_line(items)
        elif right.line_size:
            if not self._rules.require_done:
                self._to_single_prefix(items)  # a line that has no prefix
                return items + (self._decided.close() if self._decided else [])
            self._rules.drop(right.line)
            right.end_line()
        if right.place is not Place.BETWEEN:
            done = right.is_marker()
            self._rules.ledger.repair(RepairKind.BARE_MARKER if done else RepairKind.UNTERMINATED_EVENT)
            self._blank_line(items)
        answer = self._rules.payload is Payload.TEXT
        if undecided.weak and answer and self._rules.require_done and not self._holds_end():
            items += undecided.drop_weak(self._rules)
        else:
            items += undecided.items
        undecided.items.clear()
        return items

    def abort(self) -> list[Item]:
        """The stream failed: what both readings, or the right one of an open frame, hold for text is passed on."""
        if self._decided is not None:
            return self._decided.abort()
        if self._undecided.weak:
            return self._undecided.drop_weak(self._rules)
        text = self._right.abort()
        return [*self._undecided.items, Text(text)] if text else list(self._undecided.items)
