"""StreamClocks: when one stream's keep-alive, timeouts and slow reader are due. It reads no clock: the time is given.

Activity only notes the time; what is due is looked at when the shared wheel comes round (`server.wheel`).
"""

from __future__ import annotations

import math

from sse_proxy.config import StreamSettings
from sse_proxy.core.keepalive import KeepAlive
from sse_proxy.errors import FailureCode

__all__ = ["StreamClocks"]


class StreamClocks:
    """The clocks of one stream (design sections 5 and 6), in seconds of the wheel's clock.

    Args:
        now: when the request was accepted.

    Attributes:
        started: that moment.
        keepalive: silence downstream.
        client_sends: it is the client's turn: it still sends its request, so the upstream cannot be idle.
        paused: the reader is slow, and so the upstream is not read: its clocks stand still.
    """

    __slots__ = ("_last_byte", "_last_event", "_s", "_taken_at", "_unsent", "client_sends", "keepalive", "started")

    def __init__(self, settings: StreamSettings, now: float) -> None:
        self._s = settings
        self.started = now
        self.keepalive = KeepAlive(settings.keepalive, now)
        self.client_sends = False
        self._last_byte = self._last_event = now
        self._taken_at: float | None = None  # when a slow reader last took something, as far as was looked
        self._unsent = 0

    # What happens --------------------------------------------------------------------------------------------------

    def byte(self, now: float) -> None:
        """The upstream sent something, or took something of the request."""
        self._last_byte = now

    def event(self, now: float) -> None:
        """The upstream sent an event, or a piece of its text; a comment is none."""
        self._last_event = now

    @property
    def paused(self) -> bool:
        return self._taken_at is not None

    def pause(self, now: float, unsent: int) -> None:
        """The reader is slow: `unsent` bytes wait for it."""
        self._taken_at, self._unsent = now, unsent

    def wrote_more(self, size: int) -> None:
        """More was written although the reader is slow."""
        self._unsent += size

    def resume(self, now: float) -> None:
        """The reader has caught up. What the upstream did not send meanwhile was not its fault."""
        self._taken_at = None
        self._last_byte = self._last_event = now

    # What is due ---------------------------------------------------------------------------------------------------

    def commit_due(self) -> float:
        """When our head leaves at the latest; infinity for never."""
        return math.inf if self._s.commit_after is None else self.started + self._s.commit_after

    def keepalive_due(self) -> float:
        """When the next keep-alive is due; infinity for never."""
        due = self.keepalive.due_at
        return math.inf if due is None else due

    def failure_due(self, *, streaming: bool) -> float:
        """When the first of the timeouts is due; infinity for never.

        Args:
            streaming: events are waited for; a body that is passed on has none.
        """
        s, due = self._s, math.inf
        if s.total_timeout is not None:
            due = self.started + s.total_timeout
        if self._taken_at is None and not self.client_sends:
            if s.idle_timeout is not None:
                due = min(due, self._last_byte + s.idle_timeout)
            if s.stall_timeout is not None and streaming:
                due = min(due, self._last_event + s.stall_timeout)
        return due

    def failure(self, now: float, *, streaming: bool) -> tuple[FailureCode, str] | None:
        """Return what has timed out, and a line for the log; None for nothing."""
        s = self._s
        if s.total_timeout is not None and now >= self.started + s.total_timeout:
            return FailureCode.TIMED_OUT, f"total_timeout {s.total_timeout:g} s"
        if self._taken_at is not None or self.client_sends:
            return None
        if s.idle_timeout is not None and now >= self._last_byte + s.idle_timeout:
            return FailureCode.UPSTREAM_STALLED, f"no byte for {s.idle_timeout:g} s"
        if streaming and s.stall_timeout is not None and now >= self._last_event + s.stall_timeout:
            return FailureCode.UPSTREAM_STALLED, f"no event for {s.stall_timeout:g} s"
        return None

    def reader_due(self) -> float:
        """When a slow reader is to be looked at; infinity where there is none."""
        if self._taken_at is None or self._s.write_timeout is None:
            return math.inf
        return self._taken_at + self._s.write_timeout

    def reader_is_stuck(self, now: float, unsent: int) -> bool:
        """Whether a slow reader has taken nothing for `write_timeout`; `unsent` bytes wait for it now."""
        if now < self.reader_due():
            return False
        if unsent < self._unsent:  # slow, but it takes
            self._taken_at, self._unsent = now, unsent
            return False
        return True
