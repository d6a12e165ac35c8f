"""Pipeline: the bytes of one upstream stream in, the bytes of one right stream out.

The one module that knows the order of the stages: Utf8Decoder, StreamHead, dialect, answer (with its cutter), Encoder.
Synchronous and without a clock of its own: the time is an argument.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from sse_proxy.core.answer import make_answer
from sse_proxy.core.control import json_object
from sse_proxy.core.dialects import DialectParser, FrameRules, make_parser
from sse_proxy.core.dialects.base import CONTROL_WAIT_S
from sse_proxy.core.encoder import Encoder, well_formed
from sse_proxy.core.events import Block, Event, Failure, FrameEnd, Item, Text
from sse_proxy.core.head import StreamHead
from sse_proxy.core.ledger import Ledger, Outcome, RepairKind
from sse_proxy.core.messages import error_event
from sse_proxy.core.options import Dialect, Payload, Split, StreamOptions
from sse_proxy.core.unicode import Utf8Decoder, utf8_length
from sse_proxy.errors import FailureCode, StreamClosed

__all__ = ["Pipeline"]

_LOG_DETAIL = 2048
_UNDECODED = 3  # bytes of an unfinished UTF-8 sequence, each of which may become a character
_LINE_END = re.compile(rb"[\r\n]")
_UNFRAMED = (Dialect.RAW, Dialect.LINES)


class Pipeline:
    """Repair one event stream.

    Every method that returns bytes returns whole events only, so a keep-alive may be written between any two calls.

    Args:
        options: the stream's settings.
        started_at: when the request was accepted, on the clock whose times are passed in; None where there is none.
        keep_answer: keep what is written, for `kept_answer()`.

    Attributes:
        ledger: the account so far.
        finished: the response is to end now: the done marker, an end event or an error event was written.
        wants_tick_at: when `tick()` should be called; None when nothing waits for a clock.
    """

    def __init__(self, options: StreamOptions, *, started_at: float | None = None, keep_answer: bool = False) -> None:
        if options.dialect is Dialect.RAW and (options.payload is not Payload.TEXT or options.split is Split.NONE):
            # Text without frames has no other place to be cut at than its lines.
            options = replace(options, payload=Payload.TEXT, split=Split.LINE)
        self._options = options
        self._started_at = started_at
        self.ledger = Ledger(dialect=options.dialect)
        self._decoder = Utf8Decoder(self.ledger, skip_bom=options.dialect not in _UNFRAMED)
        self._head: StreamHead | None = None
        self._parser: DialectParser | None = None
        self._rules = FrameRules.of(options, self.ledger)
        if options.dialect in _UNFRAMED:
            self._parser = make_parser(options.dialect, self._rules)
        else:
            self._head = StreamHead(lenient=options.dialect is Dialect.STANDARD)
            if options.dialect is Dialect.STANDARD:
                self._parser = make_parser(options.dialect, self._rules)
        self._answer = make_answer(options, self.ledger)
        self._end_words = _end_words(options)
        self._longest_word = max(map(len, self._end_words), default=0)
        self._seen = b""  # the last bytes, where such a word may have begun
        self._by_line = False
        self._room = 0  # at least so many characters may still be held
        self._encoder = Encoder(options.reader, comment_blank_line=options.keepalive_blank_line)
        self._hold: tuple[float, float] | None = None  # how long the dialect's hold may last, and when it is over
        self._text_due: float | None = None
        self._error_due: float | None = None
        self._kept: list[str] | None = [] if keep_answer else None
        self._kept_chars = 0
        self._closed = False
        self.finished = False
        self.wants_tick_at: float | None = None

    # In ------------------------------------------------------------------------------------------------------------

    def feed(self, chunk: bytes, now: float = 0.0) -> bytes:
        """Take what one read returned; return what can be written now, often nothing.

        Behind the end (`finished`) everything is dropped and counted.

        Raises:
            StreamClosed: `close()` or `fail()` was called before.
        """
        self.ledger.bytes_in += len(chunk)
        if self.finished:
            self._after_end(chunk)
            return b""
        if self._closed:
            raise StreamClosed("feed() after close(): make one Pipeline for each stream")
        self._room -= len(chunk)
        if self._room < 0:
            self._room = self._options.max_event_bytes - self._held() - _UNDECODED - len(chunk)
        safe = self._safe_end(chunk)
        start = safe if self._room >= 0 else 0
        if start == len(chunk):
            return self._pass(self._take(chunk), now)
        out = self._take(chunk[:start]) if start else []
        while start < len(chunk) and not self._ended():
            end = self._step_end(chunk, start)
            out += self._take(chunk[start:end])
            start = end
            if (held := self._held()) > self._options.max_event_bytes:
                self._too_large(held, out)
        rest = chunk[start:]
        raw = self._pass(out, now)
        if rest:
            self._after_end(rest)
        return raw

    def _take(self, part: bytes) -> list[Item]:
        return self._answer.feed(self._items(self._decoder.feed(part)))

    def _safe_end(self, chunk: bytes) -> int:
        """Return how much of `chunk` holds nothing that may end the stream; the rest is to be taken line by line.

        What follows the end is then not read, so the account of a stream depends on its bytes, not on what came in
        one packet with its end.
        """
        if self._by_line:
            return 0
        seen = self._seen + chunk
        at = len(seen)
        for word in self._end_words:
            found = seen.find(word, 0, at)
            if found >= 0:
                at = found
        if at == len(seen):
            if self._end_words:
                self._seen = seen[-self._longest_word :]
            return len(chunk)
        self._by_line = True
        at = max(0, at - len(self._seen))
        return max(chunk.rfind(b"\n", 0, at), chunk.rfind(b"\r", 0, at)) + 1

    def _held(self) -> int:
        """How many characters are held for the dialect and for the answer; none of them has been passed on."""
        source = self._parser or self._head
        return (source.held if source is not None else 0) + self._answer.held

    def _step_end(self, chunk: bytes, start: int) -> int:
        """Return how far `chunk` can be taken in one step: to a line's end, and not beyond what may be held."""
        room = self._options.max_event_bytes - self._held() - _UNDECODED
        end = start + max(1, room)
        if self._by_line and (found := _LINE_END.search(chunk, start, end)) is not None:
            return found.end()
        return min(end, len(chunk))

    def _too_large(self, held: int, out: list[Item]) -> None:
        if self._parser is not None:
            out += self._answer.feed(self._parser.abort())
        if not self._ended():
            allowed = self._options.max_event_bytes
            detail = f"{held} characters of one event held, {allowed} allowed (max_event)"
            self._answer.failure = Failure(FailureCode.EVENT_TOO_LARGE, detail=detail)

    def _items(self, text: str) -> list[Item]:
        if self._head is None or self._head.decided:
            return self._parser.feed(text) if self._parser is not None else []
        items, text = self._head.feed(text)
        if items and isinstance(items[-1], Failure):
            # Nothing was repaired in what is no event stream, and nothing of it is passed on.
            self.ledger.dropped_bytes += utf8_length(self._head.take()) + self._decoder.discard()
            self.ledger.repairs.pop(RepairKind.INVALID_UTF8, None)
        if self._parser is None and self._head.decided:
            self._parser = make_parser(
                self._options.dialect, self._rules, first_line_ended_in_cr=self._head.first_line_ended_in_cr
            )
        if text and self._parser is not None:
            items += self._parser.feed(text)
        return items

    def _after_end(self, chunk: bytes) -> None:
        self.ledger.dropped_bytes += len(chunk)
        complete = self.ledger.outcome is Outcome.COMPLETE
        if complete and chunk.strip(b"\r\n") and RepairKind.AFTER_MARKER not in self.ledger.repairs:
            self.ledger.repair(RepairKind.AFTER_MARKER)

    def tick(self, now: float) -> bytes:
        """Let go of what has waited long enough: a piece of a sentence, an undecided frame, a possible last event."""
        if self.finished or self._closed:
            return b""
        out: list[Item] = []
        flushed = False
        if self._hold is not None and now >= self._hold[1] and self._parser is not None:
            waited, self._hold = self._hold[0], None
            out += self._answer.feed(self._parser.flush())
            if waited >= CONTROL_WAIT_S:
                self._answer.settle()
            if self._text_due is None and self._answer.pending:
                self._text_due = now + max(0.0, self._options.max_hold_s - waited)
        if self._error_due is not None and now >= self._error_due:
            self._answer.settle()
        if self._text_due is not None and now >= self._text_due:
            self._text_due = None
            out += self._answer.flush()
            flushed = True
        return self._pass(out, now, flushed=flushed)

    def deliver(self, meta: str, answer: str, now: float = 0.0) -> bytes:
        """Write a whole answer that came as JSON (`source: json`): routing event, chunks, done marker.

        Args:
            meta: the routing object as JSON text; empty for none.
            answer: the answer; a lone surrogate, which JSON can hold and UTF-8 cannot, becomes U+FFFD.
        """
        if self.finished or self._closed:
            raise StreamClosed("deliver() after the stream's end: make one Pipeline for each stream")
        head: list[Item] = []
        if meta:  # whatever its keys are: it is no part of the answer
            head.append(Event(well_formed(meta)))
            self.ledger.frames_in += 1
        items: list[Item] = []
        if answer:
            items += [Text(well_formed(answer)), FrameEnd()]
        if self._options.done:
            items.append(Event(self._options.done[0]))
        out = self._pass([*head, *self._answer.feed(items)], now)
        return out if self.finished else out + self.close()

    # Out -----------------------------------------------------------------------------------------------------------

    def _pass(self, out: list[Item], now: float, *, flushed: bool = False) -> bytes:
        answer = self._answer
        if answer.failure is not None:
            failure = answer.failure
            return self._write(out, now) + self._fail(failure, now)
        if answer.done:
            self._end(Outcome.COMPLETE)
            return self._write(out, now)
        self._arm(now, flushed=flushed)
        return self._write(out, now) if out else b""

    def _write(self, out: list[Item], now: float) -> bytes:
        raw = self._encoder.encode(out)
        if self._kept is not None:
            self._keep(out)
        ledger = self.ledger
        for item in out:
            if type(item) is Event:
                ledger.events_out += 1
            elif type(item) is Block:
                ledger.events_out += item.count
        ledger.bytes_out += len(raw)
        if ledger.first_text_s is None and self._started_at is not None:
            text = self._options.payload is Payload.TEXT
            if ledger.pieces if text else ledger.events_out:
                ledger.first_text_s = round(max(0.0, now - self._started_at), 6)
        return raw

    def _arm(self, now: float, *, flushed: bool) -> None:
        """Find when what waits now has waited long enough. A hold that goes on keeps its time.

        What a flush has left waits for more text (`flushed`), not for a clock.
        """
        hold = self._parser.hold_s if self._parser is not None else None
        if hold is None:
            self._hold = None
        elif self._hold is None or self._hold[0] != hold:
            self._hold = hold, now + hold
        if not self._answer.pending:
            self._text_due = None
        elif self._text_due is None and not flushed:
            self._text_due = now + self._options.max_hold_s
        if not self._answer.waits_for_end:
            self._error_due = None
        elif self._error_due is None:
            self._error_due = now + CONTROL_WAIT_S
        due = [t for t in (self._hold and self._hold[1], self._text_due, self._error_due) if t is not None]
        self.wants_tick_at = min(due) if due else None

    def _keep(self, out: list[Item]) -> None:
        data: list[str] = []
        for item in out:
            if isinstance(item, Block):
                data += [event.data for event in item.events()]
            elif isinstance(item, Event):
                data.append(item.data)
        self._kept_chars += sum(map(len, data))
        if self._kept_chars > self._options.max_event_bytes:
            self._kept = None
        elif self._kept is not None:
            self._kept += data

    def kept_answer(self) -> dict[str, Any]:
        """Return a complete stream's answer, for a transcript: `answer` and `meta` of a text, else its `events`.

        Both are None where nothing was kept, or the answer was too long to keep (`max_event`).
        """
        if self._kept is None:
            return {"answer": None} if self._options.payload is Payload.TEXT else {"events": None}
        events = [data for data in self._kept if data not in self._options.done]
        if self._options.payload is not Payload.TEXT:
            return {"events": events}
        text = len(events) - self.ledger.pieces  # what stands before the text is the routing object
        meta = json_object(events[0]) if text else None
        return {"meta": meta, "answer": "".join(events[text:])}

    def comment(self) -> bytes:
        """Return one comment, such as lets a head be seen."""
        end = "\n\n" if self._options.keepalive_blank_line else "\n"
        raw = f": {self._options.keepalive_text}{end}".encode()
        self.ledger.bytes_out += len(raw)
        return raw

    def keepalive(self) -> bytes:
        """Return one keep-alive comment and count it."""
        self.ledger.keepalives += 1
        return self.comment()

    # Ends ----------------------------------------------------------------------------------------------------------

    def close(self, now: float = 0.0) -> bytes:
        """The upstream ended cleanly: settle what waits. An answer that is not complete ends in an error event."""
        if self.finished or self._closed:
            return b""
        half = self._decoder.unfinished and self._options.require_done
        text = self._decoder.close(drop=half)
        items = self._items(text) if text else []
        if self._parser is not None:
            # Half a character: what stands before it is no marker, whatever it looks like.
            items += self._parser.abort() if half else self._parser.close()
        out = self._answer.feed(items)
        if self._head is not None and not self._ended():
            out += self._answer.feed(self._head.close(nothing_came=self.ledger.frames_in == 0))
            self.ledger.dropped_bytes += utf8_length(self._head.take())
        if not self._ended():
            self._answer.settle()
        if not self._ended() and self._options.require_done:
            out += self._answer.close()
            came = self.ledger.frames_in or self.ledger.pieces
            code = FailureCode.UPSTREAM_INCOMPLETE if came else FailureCode.UPSTREAM_EMPTY
            self._answer.failure = Failure(code)
        if not self._ended():
            out += self._answer.close()
            self._end(Outcome.COMPLETE)
            return self._write(out, now)
        return self._pass(out, now)

    def _ended(self) -> bool:
        return self._answer.done or self._answer.failure is not None

    def fail(
        self,
        code: FailureCode,
        *,
        status: int | None = None,
        retryable: bool | None = None,
        message: str = "",
        detail: str = "",
        now: float = 0.0,
    ) -> bytes:
        """The stream failed: pass on the text that is certain, then one error event.

        Args:
            status, retryable: where they differ from the code's own (an upstream's status).
            message: what the upstream said; the reader sees it where that is safe.
            detail: for the log only; kept in the ledger, cut to 2 KiB.
        """
        if self.finished or self._closed:
            return b""
        self._decoder.close(drop=True)
        out = self._answer.feed(self._parser.abort()) if self._parser is not None else []
        raw = self._write(out, now)
        if self._answer.done:
            self._end(Outcome.COMPLETE)
            return raw
        return raw + self._fail(Failure(code, message, detail), now, status=status, retryable=retryable)

    def _fail(self, failure: Failure, now: float, *, status: int | None = None, retryable: bool | None = None) -> bytes:
        passed = self._answer.passed_failure
        out = self._answer.close()
        if failure.event is not None and not self._options.own_events:
            out.append(failure.event)  # the host's own word is not ours to withhold
        elif not passed and self._options.own_events:
            out.append(
                error_event(self._options, failure.code, message=failure.message, status=status, retryable=retryable)
            )
        self.ledger.code = failure.code
        self.ledger.log_detail = failure.detail[:_LOG_DETAIL]
        self._end(Outcome.FAILED)
        return self._write(out, now)

    def _end(self, outcome: Outcome) -> None:
        self.finished = self._closed = True
        self.wants_tick_at = None
        self.ledger.outcome = outcome


def _end_words(options: StreamOptions) -> tuple[bytes, ...]:
    """What a chunk must hold for an event in it to end the stream."""
    words = [*options.done]
    if options.payload is not Payload.OPAQUE:
        words += ["event: error", "event:error"]
    if options.payload is Payload.JSON:
        words += [f'"{word}"' for word in ("error", *options.end_types, *options.error_types)]
    return tuple(word.encode("utf-8", "surrogatepass") for word in words)
