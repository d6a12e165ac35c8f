"""Pipeline: the bytes of one upstream stream in, the bytes of one right stream out.

The one module that knows the order of the stages. Synchronous and without a clock of its own: the time is an argument.
"""

from __future__ import annotations

from sse_proxy.core.ledger import Ledger
from sse_proxy.core.options import StreamOptions
from sse_proxy.errors import FailureCode

__all__ = ["Pipeline"]


class Pipeline:
    """Repair one event stream.

    Every method that returns bytes returns whole events only, so a keep-alive may be written between any two calls.

    Attributes:
        ledger: the account so far.
        finished: the response is to end now: the done marker, an end event or an error event was written.
        wants_tick_at: when `tick()` should be called, on the clock whose times are passed in; None when nothing waits.
    """

    def __init__(self, options: StreamOptions) -> None:
        self.ledger = Ledger(dialect=options.dialect)
        self.finished = False
        self.wants_tick_at: float | None = None

    def feed(self, chunk: bytes, now: float = 0.0) -> bytes:
        """Take what one read returned; return what can be written now, often nothing. After `finished`: dropped and counted.

        Raises:
            StreamClosed: `close()` or `fail()` was called before.
        """
        raise NotImplementedError

    def tick(self, now: float) -> bytes:
        """Let go of what has waited long enough (`max_hold`, an undecided frame, a possible marker)."""
        raise NotImplementedError

    def close(self) -> bytes:
        """The upstream ended cleanly. Settles what waits; writes an error event where the answer is not complete."""
        raise NotImplementedError

    def fail(
        self, code: FailureCode, *, status: int | None = None, retryable: bool | None = None, detail: str = ""
    ) -> bytes:
        """The stream failed: pass on the text that is certain, then one error event.

        Args:
            status, retryable: where they differ from the code's own (an upstream's status).
            detail: for the log only; kept in the ledger, cut to 2 KiB.
        """
        raise NotImplementedError

    def deliver(self, meta: str, answer: str, now: float = 0.0) -> bytes:
        """Write a whole answer that came as JSON (`source: json`): routing event, chunks, done marker."""
        raise NotImplementedError

    def keepalive(self) -> bytes:
        """Return one keep-alive comment and count it."""
        raise NotImplementedError
