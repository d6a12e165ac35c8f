"""A sink that writes down what it hears."""

from __future__ import annotations

from collections.abc import Callable

from sse_proxy.errors import UpstreamError
from sse_proxy.server.upstream import ResponseHead, UpstreamExchange
from tests.fakes import eventually


class Recorder:
    """Notes every call, in order, and runs what a test wants to happen inside one.

    Attributes:
        calls: `head`, `body` or `end`, one for each call.
        on: what to run inside a call, after it was noted.
    """

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.head: ResponseHead | None = None
        self.pieces: list[bytes] = []
        self.error: UpstreamError | None = None
        self.on: dict[str, Callable[[], None]] = {}
        self.exchange: UpstreamExchange | None = None

    @property
    def body(self) -> bytes:
        return b"".join(self.pieces)

    @property
    def ended(self) -> bool:
        return "end" in self.calls

    def on_head(self, head: ResponseHead) -> None:
        self.head = head
        self._note("head")

    def on_body(self, data: bytes) -> None:
        assert type(data) is bytes
        assert data
        self.pieces.append(data)
        self._note("body")

    def on_end(self, error: UpstreamError | None) -> None:
        self.error = error
        self._note("end")

    def _note(self, call: str) -> None:
        assert not self.ended, f"{call} after the end"
        self.calls.append(call)
        if call in self.on:
            self.on[call]()

    async def end(self) -> UpstreamError | None:
        """Wait for the end and return its error."""
        await eventually(lambda: self.ended, what="on_end")
        return self.error
