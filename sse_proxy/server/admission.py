"""Admission: how many streams may run at once, and how the last of them is waited for.

Counting only: nothing is queued. A stream beyond the limit is refused at once, as a reader is better served by a clear
503 than by a connection that stays silent. For one event loop; not thread-safe.
"""

from __future__ import annotations

import asyncio
from types import TracebackType

from sse_proxy.errors import AdmissionRefused, FailureCode

__all__ = ["Admission", "Lease"]

_OVERLOADED_RETRY_S = 1
# Long enough for a balancer to have seen that this instance is not ready any more.
_DRAINING_RETRY_S = 5


class Admission:
    """Hand out leases, one for each running stream.

    Attributes:
        max_streams: how many may run at once.
        active: how many run now.
        draining: shutting down; nothing is admitted any more.
    """

    __slots__ = ("_empty", "active", "draining", "max_streams")

    def __init__(self, max_streams: int) -> None:
        if max_streams < 1:
            raise ValueError(f"max_streams must be at least 1, not {max_streams}")
        self.max_streams = max_streams
        self.active = 0
        self.draining = False
        self._empty = asyncio.Event()
        self._empty.set()

    def acquire(self) -> Lease:
        """Admit one stream; the lease is to be released when it has ended.

        Raises:
            AdmissionRefused: `proxy_draining` after `drain()`, else `overloaded` where `max_streams` run already.
        """
        if self.draining:
            raise AdmissionRefused(FailureCode.PROXY_DRAINING, _DRAINING_RETRY_S)
        if self.active >= self.max_streams:
            raise AdmissionRefused(FailureCode.OVERLOADED, _OVERLOADED_RETRY_S)
        self.active += 1
        self._empty.clear()
        return Lease(self)

    def drain(self) -> None:
        """Refuse every stream from now on; those that run go on."""
        self.draining = True

    def resize(self, max_streams: int) -> None:
        """Set another limit (a reload). Streams that run go on, even where they are more than it now allows.

        Raises:
            ValueError: `max_streams` is below 1.
        """
        if max_streams < 1:
            raise ValueError(f"max_streams must be at least 1, not {max_streams}")
        self.max_streams = max_streams

    async def wait_empty(self, timeout_s: float | None) -> bool:
        """Wait until no stream runs.

        Args:
            timeout_s: longest wait in seconds; None waits for ever.

        Returns:
            False where streams still ran when the time was up.
        """
        try:
            async with asyncio.timeout(timeout_s):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True

    def _released(self) -> None:
        self.active -= 1
        if not self.active:
            self._empty.set()


class Lease:
    """One stream's place among those that may run. A context manager; releasing it twice counts once."""

    __slots__ = ("_admission",)

    def __init__(self, admission: Admission) -> None:
        self._admission: Admission | None = admission

    def release(self) -> None:
        """Give the place back."""
        admission, self._admission = self._admission, None
        if admission is not None:
            admission._released()

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()
