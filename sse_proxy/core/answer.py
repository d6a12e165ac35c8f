"""Answer: which items are control events and which are answer text; text is joined and re-split (design section 4).

Two classes with one interface: `TextAnswer` for `payload: text`, `OneToOne` for the others. Both take the dialect's
items and return items for the encoder; what ends the stream is told by `done` and `failure`.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Protocol

from sse_proxy.core.control import Control, ControlWords, json_object
from sse_proxy.core.cutter import Cutter, make_cutter
from sse_proxy.core.dialects.standard import LineEndNormaliser
from sse_proxy.core.events import Block, Event, Failure, FrameEnd, Item, LastEventId, ReconnectionTime, Text
from sse_proxy.core.head import host_message
from sse_proxy.core.ledger import Ledger, RepairKind
from sse_proxy.core.options import Chunker, Payload, StreamOptions
from sse_proxy.core.sentences import MARKS
from sse_proxy.core.unicode import DOTNET_SPACE, utf8_length
from sse_proxy.core.whitespace import WhitespaceGuesser
from sse_proxy.errors import FailureCode

__all__ = ["Answer", "OneToOne", "TextAnswer", "make_answer"]

_MARKS = frozenset(MARKS)
_SAMPLE = 64
_WORD = re.compile(r"[^\W\d_]{2}")
_NO_BEGINNING = frozenset(DOTNET_SPACE + ".!?,;:)]}")  # of what a sentence splitter cut off


class Answer(Protocol):
    """Items of the dialect in, items for the encoder out.

    Attributes:
        done: the stream is complete: the done marker or an end event is in what was returned.
        failure: the stream has failed; what was returned before it stands.
        passed_failure: the failure's own event is in what was returned (`payload: json`): none of ours follows.
    """

    done: bool
    failure: Failure | None
    passed_failure: bool

    @property
    def pending(self) -> bool:
        """Whether text waits that `flush()` would let go."""
        ...

    @property
    def waits_for_end(self) -> bool:
        """Whether an error object waits to be the last event."""
        ...

    @property
    def held(self) -> int:
        """How many characters are held that no other setting bounds."""
        ...

    def feed(self, items: list[Item]) -> list[Item]:
        """Take items; return what can be written."""
        ...

    def flush(self) -> list[Item]:
        """Text has waited long enough."""
        ...

    def settle(self) -> None:
        """The stream ends here, or has been silent long enough: an error object that waits is a failure."""
        ...

    def close(self) -> list[Item]:
        """The stream is over: return all text that is left."""
        ...


def _drop(ledger: Ledger, item: Item) -> None:
    """Count what came behind the stream's end."""
    if isinstance(item, Block):
        for event in item.events():
            _drop(ledger, event)
    elif isinstance(item, Event | Text):
        ledger.dropped_bytes += utf8_length(item.data)
        ledger.repair(RepairKind.AFTER_MARKER, 0 if RepairKind.AFTER_MARKER in ledger.repairs else 1)


class _Restorer:
    """Put back the white space that an old splitter removed between frames.

    Only that splitter leaves every frame but the last ended by a mark without white space, and starts none with it.
    A stream that does otherwise once is another host's, or a stream of tokens, and is left alone from there on. Nor is
    anything put back before a frame was seen that can be a sentence: `3.` and `.` are tokens.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._guesser = WhitespaceGuesser()
        self._enabled = True
        self._owed = False  # the frame before ended in a mark: white space may be missing
        self._head = ""  # the beginning of the frame behind it, too short to tell
        self._last = ""  # the last character of the frame
        self._sample = ""  # its beginning, until a sentence was seen
        self._sentence_seen = False

    def text(self, piece: str) -> str:
        """Take text of a frame; return what can be passed on."""
        self._last = piece[-1]
        if not self._sentence_seen and len(self._sample) < _SAMPLE:
            self._sample += piece[:_SAMPLE]
        if not self._enabled:
            return piece
        if self._owed:
            self._head += piece
            return self._settle(final=False)
        self._guesser.text(piece)
        return piece

    def _settle(self, *, final: bool) -> str:
        head = self._head
        if not head:
            return ""
        if head[0] in _NO_BEGINNING:
            self._enabled = False
        elif not self._guesser.ready(head, final=final):
            return ""
        else:
            self._ledger.repair(RepairKind.WHITESPACE_RESTORED)
            head = self._guesser.guess(head) + head
        self._guesser.text(head)
        self._head, self._owed = "", False
        return head

    def frame_end(self) -> str:
        """The frame ends; return what waited for that."""
        text = self._settle(final=True) if self._owed else ""
        if self._last:
            self._enabled = self._enabled and self._last in _MARKS
            self._sentence_seen = self._sentence_seen or _WORD.search(self._sample) is not None
            self._owed = self._enabled and self._sentence_seen
            self._last = self._sample = ""
        return text

    def close(self) -> str:
        """The answer is over: return what waits. No clock asks for it: time must not change a guess."""
        return self._settle(final=True) if self._owed else ""


class TextAnswer:
    """`payload: text`: routing first, then answer text, then the done marker or an error object."""

    def __init__(self, options: StreamOptions, ledger: Ledger) -> None:
        self._ledger = ledger
        self._control = ControlWords(options.done, objects=True)
        self._cutter: Cutter = make_cutter(options, ledger)
        self._ends = LineEndNormaliser()
        restore = options.restore_whitespace and options.chunker is Chunker.SENTENCE
        self._restorer = _Restorer(ledger) if restore else None
        self._first = True
        self._error: Event | None = None  # an error object: a failure if the stream ends here, else text
        self.done = False
        self.failure: Failure | None = None
        self.passed_failure = False

    @property
    def pending(self) -> bool:
        """Whether text waits that `flush()` would let go."""
        return self._cutter.pending

    @property
    def waits_for_end(self) -> bool:
        """Whether an error object waits to be the last event."""
        return self._error is not None

    @property
    def held(self) -> int:
        """What the cutter holds."""
        return self._cutter.held

    def feed(self, items: list[Item]) -> list[Item]:
        """Take items; return what can be written."""
        out: list[Item] = []
        for item in items:
            if self.done or self.failure is not None:
                _drop(self._ledger, item)
            elif isinstance(item, Text):
                self._error_was_text(out)
                self._text(item.data, out)
            elif isinstance(item, FrameEnd):
                self._ledger.frames_in += 1
                self._first = False
                self._frame_end(out)
            elif isinstance(item, Event):
                self._event(item, out)
            elif isinstance(item, Failure):
                self.failure = item
            else:
                out.append(item)
        return out

    def _event(self, event: Event, out: list[Item]) -> None:
        self._ledger.frames_in += 1
        self._error_was_text(out)
        kind = self._control.classify(event.data, first=self._first and event.type != "error")
        if kind is Control.ROUTING:
            if "\r" in event.data:  # white space of the JSON; our readers would end the line there
                event = replace(event, data=self._normalised(event.data))
            out.append(event)
        elif kind is Control.DONE:
            out += self.close()
            out.append(Event(event.data.strip(" "), event.type, event.id, event.retry))
            self.done = True
        elif event.type == "error":
            self.failure = Failure(FailureCode.UPSTREAM_ERROR, _message(event.data), event.data, event)
        elif kind is Control.ERROR:
            self._error = event
        else:
            self._text_event(event, out)
        self._first = False

    def _error_was_text(self, out: list[Item]) -> None:
        if self._error is not None:
            event, self._error = self._error, None
            self._text_event(event, out)

    def _text_event(self, event: Event, out: list[Item]) -> None:
        """A whole frame of answer text; one with a type, id or retry ends its chunk."""
        if event.plain:
            if event.data:
                self._text(event.data, out)
            self._frame_end(out)
            return
        if event.type:
            self._chunks(self._cutter.flush(), out)  # the text before it is not of its type
        start = len(out)
        if event.data:
            self._text(event.data, out)
        self._frame_end(out)
        self._chunks(self._cutter.flush(), out)
        for at in range(start, len(out)):
            chunk = out[at]
            if isinstance(chunk, Event):
                out[at] = Event(chunk.data, type=event.type)
        last = out[-1] if len(out) > start else None
        if isinstance(last, Event):
            out[-1] = Event(last.data, event.type, event.id, event.retry)
            return
        if event.id is not None:
            out.append(LastEventId(event.id))
        if event.retry is not None:
            out.append(ReconnectionTime(event.retry))

    def _normalised(self, data: str) -> str:
        changed = self._ends.changed
        text = self._ends.feed(data)
        self._ledger.repair(RepairKind.LINE_ENDING, self._ends.changed - changed)
        return text

    def _text(self, data: str, out: list[Item]) -> None:
        text = self._normalised(data)
        if text and self._restorer is not None:
            text = self._restorer.text(text)
        if text:
            self._chunks(self._cutter.feed(text), out)

    def _frame_end(self, out: list[Item]) -> None:
        if self._restorer is not None and (text := self._restorer.frame_end()):
            self._chunks(self._cutter.feed(text), out)
        self._chunks(self._cutter.frame_end(), out)

    def _chunks(self, chunks: list[str], out: list[Item]) -> None:
        for chunk in chunks:
            self._ledger.pieces += 1
            self._ledger.text_chars += len(chunk)
            out.append(Event(chunk))

    def flush(self) -> list[Item]:
        """Text has waited long enough: time adds a cut, it changes no text."""
        out: list[Item] = []
        self._chunks(self._cutter.flush(), out)
        return out

    def settle(self) -> None:
        """An error object that waits is the last event: a failure."""
        if self._error is not None:
            event, self._error = self._error, None
            message = self._control.error_message(event.data) or ""
            self.failure = Failure(FailureCode.UPSTREAM_ERROR, message, event.data, event)

    def close(self) -> list[Item]:
        """Return all text that is left."""
        out: list[Item] = []
        if self._restorer is not None and (text := self._restorer.close()):
            self._chunks(self._cutter.feed(text), out)
        self._chunks(self._cutter.close(), out)
        return out


class OneToOne:
    """`payload: json` and `opaque`: one event out for each one in, as it came."""

    def __init__(self, options: StreamOptions, ledger: Ledger) -> None:
        self._ledger = ledger
        self._control = ControlWords(options.done, objects=False)
        self._json = options.payload is Payload.JSON
        self._end_types = frozenset(options.end_types)
        self._error_types = frozenset(options.error_types)
        # Parsing each event would cost more than all else: only those that hold one of these words can matter.
        self._words = tuple(f'"{word}"' for word in ("error", *options.end_types, *options.error_types))
        self._end_words = (*options.done, *(self._words if self._json else ()))
        self._parts: list[str] = []
        self.held = 0
        self.done = False
        self.failure: Failure | None = None
        self.passed_failure = False
        self.pending = False
        self.waits_for_end = False

    def feed(self, items: list[Item]) -> list[Item]:
        """Take items; return what can be written."""
        out: list[Item] = []
        for item in items:
            if self.done or self.failure is not None:
                _drop(self._ledger, item)
            elif isinstance(item, Block):
                if any(word in item.text for word in self._end_words):
                    out += self.feed([*item.events()])
                else:
                    self._ledger.frames_in += item.count
                    out.append(item)
            elif isinstance(item, Event):
                self._event(item, out)
            elif isinstance(item, Text):
                self._parts.append(item.data)
                self.held += len(item.data)
            elif isinstance(item, FrameEnd):
                data = "".join(self._parts)
                if self._json and "\n" in data:
                    self._ledger.repair(RepairKind.SPLIT_JSON)
                self._parts.clear()
                self.held = 0
                self._event(Event(data), out)
            elif isinstance(item, Failure):
                self.failure = item
            else:
                out.append(item)
        return out

    def _event(self, event: Event, out: list[Item]) -> None:
        self._ledger.frames_in += 1
        data = event.data
        if "\r" in data:  # only text that ignores CR as a line end can hold one, and no event can
            ends = LineEndNormaliser()
            event = Event(ends.feed(data), event.type, event.id, event.retry)
            self._ledger.repair(RepairKind.LINE_ENDING, ends.changed)
        if (marker := self._control.marker(data)) is not None:
            self.done = True
            out.append(Event(marker, event.type, event.id, event.retry))
            return
        out.append(event)
        if not self._json:
            return
        if event.type == "error":
            self.failure = Failure(FailureCode.UPSTREAM_ERROR, "", data)
            self.passed_failure = True
        elif any(word in data for word in self._words):
            self._judge(event)

    def _judge(self, event: Event) -> None:
        value = json_object(event.data)
        if value is None:
            return
        kind = value.get("type")
        if isinstance(kind, str) and kind in self._end_types:
            self.done = True
        elif (isinstance(kind, str) and kind in self._error_types) or host_message(value) is not None:
            self.failure = Failure(FailureCode.UPSTREAM_ERROR, "", event.data)
            self.passed_failure = True

    def flush(self) -> list[Item]:
        """Nothing here waits for a clock."""
        return []

    def settle(self) -> None:
        """Nothing waits for the end."""

    def close(self) -> list[Item]:
        """An unfinished event of these payloads is not passed on."""
        if self._parts:
            self._ledger.dropped_bytes += sum(map(utf8_length, self._parts))
            self._parts.clear()
            self.held = 0
        return []


def _message(data: str) -> str:
    """What an event of type `error` says: a JSON object's `error` or `message`, or plain text."""
    value: dict[str, Any] | None = json_object(data)
    if value is None:
        return data
    message = host_message(value)
    if not message and isinstance(value.get("message"), str):
        message = value["message"]
    return message or ""


def make_answer(options: StreamOptions, ledger: Ledger) -> Answer:
    """Return the answer stage of one stream's settings."""
    return TextAnswer(options, ledger) if options.payload is Payload.TEXT else OneToOne(options, ledger)
