"""StreamRegistry: the streams that run now and the last that ended, for /streams and the inspector.

What is remembered is bounded whatever the traffic: ended streams by `recent`, captured bytes by `capture.keep`
recorders of `capture.max_bytes` a side. For one event loop; not thread-safe.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Protocol

from sse_proxy.core.ledger import Ledger

__all__ = ["CaptureSettings", "Recorder", "Recording", "StreamEntry", "StreamRegistry", "StreamState"]


class CaptureSettings(Protocol):
    """The part of the configuration that says how much is captured (`capture:`).

    Attributes:
        keep: how many streams, those that still run among them.
        max_bytes: how many bytes of each stream and side.
    """

    @property
    def keep(self) -> int: ...
    @property
    def max_bytes(self) -> int: ...


class StreamState(StrEnum):
    """Where a stream stands."""

    WAITING = "waiting"  # the upstream has not answered yet
    STREAMING = "streaming"
    PAUSED = "paused"  # the reader is slow: the upstream is not read for now
    ENDED = "ended"


class Recording:
    """The first bytes of one side of a stream.

    Attributes:
        kept: the bytes themselves, `max_bytes` at most.
        seen: how many bytes there were in all.
    """

    __slots__ = ("_room", "kept", "seen")

    def __init__(self, max_bytes: int) -> None:
        self.kept = bytearray()
        self.seen = 0
        self._room = max_bytes

    def add(self, chunk: bytes) -> None:
        """Take what passed; keep what there is room for."""
        self.seen += len(chunk)
        if self._room:
            self.kept += chunk[: self._room]
            self._room = max(0, self._room - len(chunk))


class Recorder:
    """What went in and out of one stream.

    Attributes:
        raw: the bytes of the upstream, before anything was done to them.
        repaired: the bytes that were written to the reader.
    """

    __slots__ = ("raw", "repaired")

    def __init__(self, max_bytes: int) -> None:
        self.raw = Recording(max_bytes)
        self.repaired = Recording(max_bytes)


@dataclass(slots=True, eq=False, kw_only=True)
class StreamEntry:
    """One stream, as an operator sees it.

    Attributes:
        id: a number of this process, in order of arrival; the request id is the client's to choose, so it is no key.
        request_id: as in the log line and the error event.
        upstream, route: as in the metrics.
        peer: the client's address.
        method: of the client's request.
        ledger: the account so far; may be replaced when the stream is given its pipeline.
        state: set by whoever runs the stream.
        started_at: the wall clock when it was accepted, in seconds since 1970.
        started: the monotonic clock at the same moment, in seconds.
        recorder: where its bytes are captured; None where they are not.
    """

    id: int
    request_id: str
    upstream: str
    route: str
    peer: str
    method: str
    ledger: Ledger
    started_at: float
    started: float
    state: StreamState = StreamState.WAITING
    recorder: Recorder | None = field(default=None, repr=False)

    def as_dict(self, now: float) -> dict[str, Any]:
        """The entry as one JSON-ready object. `now` is the monotonic clock, in seconds."""
        return {
            "id": self.id,
            "request_id": self.request_id,
            "upstream": self.upstream,
            "route": self.route,
            "method": self.method,
            "peer": self.peer,
            "state": str(self.state),
            "started_at": datetime.fromtimestamp(self.started_at, UTC).isoformat(timespec="milliseconds"),
            "age_s": round(now - self.started, 3),
            "captured": self.recorder is not None,
            "ledger": self.ledger.as_dict(),
        }


class StreamRegistry:
    """Know every live stream and the last that ended.

    Args:
        capture: how much to capture; None captures nothing.
        recent: how many ended streams to remember.
        wall, monotonic: the clocks, in seconds.
    """

    def __init__(
        self,
        capture: CaptureSettings | None = None,
        *,
        recent: int = 100,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.capture = capture
        self.monotonic = monotonic
        self._wall = wall
        self._last_id = 0
        self._live: dict[int, StreamEntry] = {}
        self._recent: deque[StreamEntry] = deque(maxlen=recent)
        self._recorded: deque[StreamEntry] = deque()  # entries with a recorder, oldest first

    def register(
        self, ledger: Ledger, *, request_id: str, upstream: str, route: str, peer: str, method: str
    ) -> StreamEntry:
        """Note a stream that begins now; its number and its times are given here."""
        self._last_id += 1
        entry = StreamEntry(
            id=self._last_id,
            request_id=request_id,
            upstream=upstream,
            route=route,
            peer=peer,
            method=method,
            ledger=ledger,
            started_at=self._wall(),
            started=self.monotonic(),
        )
        self._live[entry.id] = entry
        return entry

    def remove(self, entry: StreamEntry) -> None:
        """Note that a stream has ended; it is remembered among the recent ones. A second call does nothing."""
        if self._live.pop(entry.id, None) is None:
            return
        entry.state = StreamState.ENDED
        if self._recent.maxlen and len(self._recent) == self._recent.maxlen:
            self._forget(self._recent[0])
        self._recent.append(entry)

    def tap(self, entry: StreamEntry) -> Recorder | None:
        """Start to capture a stream; None where capture is off, or `keep` streams that still run are captured already.

        The oldest ended stream gives up its bytes for the new one. A second call returns the same recorder.
        """
        if self.capture is None or entry.recorder is not None:
            return entry.recorder
        while len(self._recorded) >= self.capture.keep:
            ended = next((old for old in self._recorded if old.state is StreamState.ENDED), None)
            if ended is None:
                return None
            self._forget(ended)
        entry.recorder = Recorder(self.capture.max_bytes)
        self._recorded.append(entry)
        return entry.recorder

    def live(self) -> list[StreamEntry]:
        """The streams that run, newest first."""
        return list(reversed(self._live.values()))

    def recent(self) -> list[StreamEntry]:
        """The streams that ended, last ended first."""
        return list(reversed(self._recent))

    def find(self, number: int) -> StreamEntry | None:
        """The stream of that number; None where it never was, or is forgotten."""
        return self._live.get(number) or next((entry for entry in self._recent if entry.id == number), None)

    @property
    def active(self) -> int:
        """How many streams run."""
        return len(self._live)

    def _forget(self, entry: StreamEntry) -> None:
        if entry.recorder is not None:
            entry.recorder = None
            self._recorded.remove(entry)
