"""Ledger: the account of one stream, every byte and every repair (design section 10)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from sse_proxy.errors import FailureCode

__all__ = ["Ledger", "Outcome", "RepairKind"]


class Outcome(StrEnum):
    """How a stream ended."""

    COMPLETE = "complete"
    FAILED = "failed"
    CLIENT_GONE = "client_gone"
    PASSED_ON = "passed_on"


class RepairKind(StrEnum):
    """A named deviation of the upstream that was put right. A stream without any is a correct one."""

    UNPREFIXED_LINE = "unprefixed_line"
    BLANK_LINE_IN_TEXT = "blank_line_in_text"
    EXCESS_BLANK_LINE = "excess_blank_line"
    FIELD_LIKE_TEXT = "field_like_text"
    LINE_ENDING = "line_ending"
    BOM = "bom"
    INVALID_UTF8 = "invalid_utf8"
    UNTERMINATED_EVENT = "unterminated_event"
    BARE_MARKER = "bare_marker"
    DOUBLE_PREFIX = "double_prefix"
    SPLIT_JSON = "split_json"
    WHITESPACE_RESTORED = "whitespace_restored"
    CHUNK_MOVED = "chunk_moved"
    NUL_ID = "nul_id"
    BAD_RETRY = "bad_retry"
    UNKNOWN_FIELD = "unknown_field"
    AFTER_MARKER = "after_marker"
    UNDECIDED_DROPPED = "undecided_dropped"


@dataclass(slots=True)
class Ledger:
    """What one stream was, counted as it passed.

    Attributes:
        dialect: how it is read; `auto` until it is decided.
        outcome: None while the stream runs.
        code: the failure's code where the outcome is `failed`.
        frames_in: events the upstream sent; comments are none.
        events_out: events written, an error event of ours among them; comments are none.
        pieces: chunks of answer text written.
        text_chars: characters of answer text written.
        dropped_bytes: bytes of the upstream that were not passed on (after the marker, undecided at a failure, ...).
        first_text_s, duration_s: seconds since the request was accepted; None where there was none, or no clock.
        log_detail: what the upstream said of a failure, cut to 2 KiB; for the log only, never for a reader.
    """

    dialect: str = "auto"
    outcome: Outcome | None = None
    code: FailureCode | None = None
    bytes_in: int = 0
    bytes_out: int = 0
    frames_in: int = 0
    events_out: int = 0
    pieces: int = 0
    text_chars: int = 0
    repairs: dict[RepairKind, int] = field(default_factory=dict)
    dropped_bytes: int = 0
    keepalives: int = 0
    first_text_s: float | None = None
    duration_s: float | None = None
    log_detail: str = ""

    def repair(self, kind: RepairKind, n: int = 1) -> None:
        """Count `n` repairs of one kind."""
        if n:
            self.repairs[kind] = self.repairs.get(kind, 0) + n

    def as_dict(self) -> dict[str, Any]:
        """The ledger as one JSON-ready object, in the order of the design; `log_detail` is not in it."""
        return {
            "dialect": self.dialect,
            "outcome": self.outcome and str(self.outcome),
            "code": self.code and str(self.code),
            "bytes_in": self.bytes_in,
            "bytes_out": self.bytes_out,
            "frames_in": self.frames_in,
            "events_out": self.events_out,
            "pieces": self.pieces,
            "text_chars": self.text_chars,
            "repairs": {str(kind): n for kind, n in sorted(self.repairs.items())},
            "dropped_bytes": self.dropped_bytes,
            "keepalives": self.keepalives,
            "first_text_s": self.first_text_s,
            "duration_s": self.duration_s,
        }
