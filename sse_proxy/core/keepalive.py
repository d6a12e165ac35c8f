"""KeepAlive: when the next comment is due. It has no clock: the time is an argument."""

from __future__ import annotations

__all__ = ["KeepAlive"]


class KeepAlive:
    """Say when a stream has been silent for long enough (design section 5).

    Args:
        interval_s: the longest silence downstream, in seconds; None for no keep-alives.
        now: when the request was accepted.
    """

    __slots__ = ("_interval", "due_at")

    def __init__(self, interval_s: float | None, now: float) -> None:
        self._interval = interval_s
        self.due_at = None if interval_s is None else now + interval_s

    def wrote(self, now: float) -> None:
        """Something was written downstream: the silence begins anew."""
        if self._interval is not None:
            self.due_at = now + self._interval

    def is_due(self, now: float) -> bool:
        """Whether a comment should be written now."""
        return self.due_at is not None and now >= self.due_at
