"""Item: what a stage of the core returns; frozen values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from sse_proxy.errors import FailureCode

__all__ = ["Block", "Comment", "Event", "Failure", "FrameEnd", "Item", "LastEventId", "ReconnectionTime", "Text"]


@dataclass(frozen=True, slots=True)
class Event:
    """One whole event of the upstream (HTML 9.2.6).

    Attributes:
        data: the data buffer, its lines joined by LF.
        type: value of the last `event` field; empty for none.
        id: value of the last `id` field of this block; None where it had none.
        retry: value of the last `retry` field, its digits as they came (any length); None where it had none.
    """

    data: str
    type: str = ""
    id: str | None = None
    retry: str | None = None

    @property
    def plain(self) -> bool:
        """Whether the event carries data alone."""
        return not self.type and self.id is None and self.retry is None


@dataclass(frozen=True, slots=True)
class Block:
    """Whole events with data alone, as one piece of text that is already what the encoder would write.

    A right stream that is passed on one to one comes out of the standard's parser so: nothing is made of an event but
    its place in the count.

    Attributes:
        text: `data: ` lines, LF only, a blank line behind each event.
        count: how many events it holds.
    """

    text: str
    count: int

    def events(self) -> list[Event]:
        """Return the events one by one."""
        return [Event(part[6:].replace("\ndata: ", "\n")) for part in self.text[:-2].split("\n\n")]


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of the data of the frame that is open now, as it arrived; never empty."""

    data: str


@dataclass(frozen=True, slots=True)
class FrameEnd:
    """The open frame is over: the pieces since the last end were its data."""


@dataclass(frozen=True, slots=True)
class Comment:
    """One comment line, without its colon."""

    text: str


@dataclass(frozen=True, slots=True)
class ReconnectionTime:
    """A `retry` field in a block that dispatched nothing; `digits` as they came."""

    digits: str


@dataclass(frozen=True, slots=True)
class LastEventId:
    """An `id` field in a block that dispatched nothing: it moves the last event ID all the same."""

    id: str


@dataclass(frozen=True, slots=True)
class Failure:
    """The stream cannot go on; always the last item.

    Attributes:
        code: the slug of the failures table.
        message: what the upstream said, where it said something; not yet checked for safety.
        detail: for the log only.
        event: the event of the upstream that says so; None where none does.
    """

    code: FailureCode
    message: str = ""
    detail: str = ""
    event: Event | None = None


Item: TypeAlias = Event | Block | Text | FrameEnd | Comment | ReconnectionTime | LastEventId | Failure
