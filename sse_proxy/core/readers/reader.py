"""ChatReader: what all readers share: how they are fed, how they end, and what they tell."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from sse_proxy.core.javascript import TextDecoder, json_parse, well_formed
from sse_proxy.errors import StreamClosed

__all__ = ["DONE", "ChatReader", "parse_object"]

DONE = "[DONE]"
"""The done marker, as it is written into all these programs."""


class ChatReader(ABC):
    """One program that reads a chat stream.

    Attributes:
        name: what tables call it.
        chunks: the pieces of text the program took for the answer, oldest first.
        routing: the routing object, as far as the program keeps it; None before or without one.
        error: what the program throws or shows as an error; None where it noticed none.
        finished: the program saw the end of the answer and knows that it is complete.
    """

    name: ClassVar[str]

    def __init__(self) -> None:
        self.chunks: list[str] = []
        self.routing: dict[str, Any] | None = None
        self.error: str | None = None
        self.finished = False
        self._decoder = TextDecoder()
        self._buffer = ""
        self._closed = False

    @property
    def answer(self) -> str:
        """The text on the screen: the chunks joined."""
        return well_formed("".join(self.chunks))

    @property
    def stopped(self) -> bool:
        """Whether the program has stopped reading of its own accord; what comes later it never sees."""
        return self.finished or self.error is not None

    @property
    def stored(self) -> str | None:
        """The text the program keeps as a complete answer, and sends back as history.

        None while it reads, and after an error.
        """
        return self.answer if self.error is None and (self.finished or self._closed) else None

    def feed(self, packet: bytes) -> None:
        """Read one packet: what one read of the response body returned.

        Raises:
            StreamClosed: `close()` or `fail()` was called before.
        """
        if self._closed:
            raise StreamClosed("feed() after close(): make one reader per response")
        if not self.stopped:
            self._read(packet)

    def close(self) -> None:
        """The response body ended cleanly. Calling it again changes nothing."""
        if not self._closed and not self.stopped:
            self._end()
        self._closed = True

    def fail(self, reason: str = "network error") -> None:
        """The body did not end, it broke (reset, cut chunk) or a timer of the program ran out: its read loop throws."""
        if not self._closed and not self.stopped:
            self.error = reason
        self._closed = True

    @abstractmethod
    def _read(self, packet: bytes) -> None:
        """One turn of the program's read loop."""

    def _end(self) -> None:  # noqa: B027 (most programs do nothing after their read loop)
        """What the program does after its read loop."""


def parse_object(data: str) -> dict[str, Any]:
    """Parse an object; what is no object, or no JSON, is an empty one."""
    try:
        parsed = json_parse(data)
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}
