"""How one stream is to be read and written: the settings of section "stream" that the core needs, as a frozen value."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Chunker", "Dialect", "Payload", "Reader", "Split", "StreamOptions"]


class Dialect(StrEnum):
    """How the upstream's bytes are framed."""

    STANDARD = "standard"
    SINGLE_PREFIX = "single-prefix"
    AUTO = "auto"
    LINES = "lines"
    RAW = "raw"


class Chunker(StrEnum):
    """How the host cuts its answer into frames."""

    SENTENCE = "sentence"
    ANY = "any"


class Payload(StrEnum):
    """What the data of an event is."""

    TEXT = "text"
    JSON = "json"
    OPAQUE = "opaque"


class Split(StrEnum):
    """Where answer text is cut into events."""

    SENTENCE = "sentence"
    LINE = "line"
    NONE = "none"


class Reader(StrEnum):
    """Whom the output is written for."""

    STANDARD = "standard"
    GA_CLIENT = "ga-client"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """The settings of one stream. The defaults are those of the `gaapi` preset.

    Attributes:
        dialect, chunker, payload, split, reader: see their enums.
        restore_whitespace: put back the white space an old splitter removed.
        strip_double_prefix: remove one redundant `data: ` at the head of a frame.
        done: the done markers; empty where the stream has none.
        end_types: `payload: json`: values of `type` that end a complete stream.
        error_types: `payload: json`: values of `type` that end a failed stream.
        require_done: a clean end without marker or end type is a failure.
        own_events: write error events of our own; False leaves a failure to the ledger and the exit status.
        error_event: the `event:` name of an error event; None for a bare data line.
        error_message: what the reader is told of a failure.
        known_messages: messages of the host that may be shown as they are.
        error_retry_ms: `retry:` of an error event, for EventSource; None for none.
        request_id: the id written into an error event; empty for none.
        keepalive_text: text of the keep-alive comment.
        keepalive_blank_line: whether a blank line follows a comment.
        max_chunk_bytes: longest chunk of answer text, in UTF-8 bytes.
        max_event_bytes: most that may be held at once, in characters.
        max_hold_s: longest time a piece of a sentence waits for its end, in seconds.
    """

    dialect: Dialect = Dialect.AUTO
    chunker: Chunker = Chunker.SENTENCE
    payload: Payload = Payload.TEXT
    split: Split = Split.SENTENCE
    reader: Reader = Reader.STANDARD
    restore_whitespace: bool = True
    strip_double_prefix: bool = False
    done: tuple[str, ...] = ("[DONE]",)
    end_types: tuple[str, ...] = ()
    error_types: tuple[str, ...] = ()
    require_done: bool = True
    own_events: bool = True
    error_event: str | None = "error"
    error_message: str = "The chat service failed. Please try again."
    known_messages: tuple[str, ...] = ()
    error_retry_ms: int | None = None
    request_id: str = ""
    keepalive_text: str = "keep-alive"
    keepalive_blank_line: bool = True
    max_chunk_bytes: int = 64 * 1024
    max_event_bytes: int = 16 * 1024 * 1024
    max_hold_s: float = 0.2
