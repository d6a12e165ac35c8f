"""What all dialects share: their verbs and the rules they are given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from sse_proxy.core.control import Control, ControlWords, is_json
from sse_proxy.core.events import Item
from sse_proxy.core.ledger import Ledger, RepairKind
from sse_proxy.core.options import Chunker, Payload, StreamOptions
from sse_proxy.core.unicode import utf8_length

__all__ = ["CONTROL_WAIT_S", "UNDECIDED_WAIT_S", "DialectParser", "FrameRules"]

UNDECIDED_WAIT_S = 0.2  # an undecided frame boundary, when the upstream is silent
CONTROL_WAIT_S = 1.0  # a marker or error object whose stream does not end


class DialectParser(Protocol):
    """Text of an event stream in, items out; the text may be cut anywhere."""

    @property
    def hold_s(self) -> float | None:
        """How long what is held now may wait, in seconds; None where nothing waits for a clock."""
        ...

    @property
    def held(self) -> int:
        """How many characters are held now; never more than the text fed holds."""
        ...

    def feed(self, text: str) -> list[Item]:
        """Take the next text; return the items it completes, oldest first, often none."""
        ...

    def flush(self) -> list[Item]:
        """What is held has waited long enough: settle it."""
        ...

    def close(self) -> list[Item]:
        """The upstream ended cleanly: settle what is held by that."""
        ...

    def abort(self) -> list[Item]:
        """The stream failed: return the text that is certain; drop and count what is undecided."""
        ...


@dataclass(frozen=True, slots=True)
class FrameRules:
    """What a dialect needs to know of the stream's settings.

    Attributes:
        sentences: the host cuts at sentences, so a frame that ends elsewhere is no frame of its splitter.
    """

    ledger: Ledger
    control: ControlWords
    payload: Payload
    sentences: bool
    require_done: bool
    strip_double_prefix: bool

    @classmethod
    def of(cls, options: StreamOptions, ledger: Ledger) -> FrameRules:
        """Take the rules out of a stream's options."""
        text = options.payload is Payload.TEXT
        return cls(
            ledger=ledger,
            control=ControlWords(options.done, objects=text),
            payload=options.payload,
            sentences=text and options.chunker is Chunker.SENTENCE,
            require_done=options.require_done,
            strip_double_prefix=options.strip_double_prefix,
        )

    def is_half(self, data: str, *, first: bool) -> bool:
        """Whether an event that a clean end left without its blank line is not whole, or may not be.

        An answer is whole with its marker only, so its last frame is a beginning of one; half a JSON value is no event.
        """
        if self.payload is Payload.TEXT:
            return self.require_done and self.control.classify(data, first=first) is Control.TEXT
        return self.payload is Payload.JSON and not is_json(data) and self.control.marker(data) is None

    def drop(self, text: str, kind: RepairKind | None = RepairKind.UNDECIDED_DROPPED) -> None:
        """Count text that is not passed on."""
        if text:
            self.ledger.dropped_bytes += utf8_length(text)
            if kind is not None:
                self.ledger.repair(kind)
