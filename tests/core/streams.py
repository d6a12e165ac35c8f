"""What the tests of the core share: run a pipeline over cut bytes, and read its output by the HTML standard alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sse_proxy.core import Ledger, Outcome, Pipeline, StreamOptions
from sse_proxy.demo.wire import DONE, compact, routing_object
from sse_proxy.errors import FailureCode

__all__ = ["ROUTING", "Cuts", "Result", "SseEvent", "read_standard", "repair", "whole"]

ROUTING = compact(routing_object("theory"))
Cuts = Callable[[bytes], list[bytes]]


@dataclass(frozen=True)
class SseEvent:
    """One event as a page gets it."""

    data: str
    type: str = "message"
    id: str = ""


def read_standard(raw: bytes) -> tuple[list[SseEvent], str | None, str]:
    """Read a whole buffer by HTML 9.2.5 and 9.2.6, as plainly as it can be put.

    Returns:
        The events, the digits of the last valid `retry`, and the last event ID.
    """
    text = raw.decode("utf-8", "replace").removeprefix("\ufeff")
    *lines, _pending = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    events: list[SseEvent] = []
    data: list[str] = []
    kind, buffer, last_id, retry = "", "", "", None
    for line in lines:
        if not line:
            last_id = buffer
            if data:
                events.append(SseEvent("\n".join(data), kind or "message", last_id))
            data, kind = [], ""
            continue
        name, _, value = line.partition(":")
        value = value[1:] if value[:1] == " " else value
        if name == "data":
            data.append(value)
        elif name == "event":
            kind = value
        elif name == "id" and "\0" not in value:
            buffer = value
        elif name == "retry" and value and set(value) <= set("0123456789"):
            retry = value
    return events, retry, last_id


def whole(raw: bytes) -> list[bytes]:
    """Feed all at once."""
    return [raw] if raw else []


@dataclass(frozen=True)
class Result:
    """What came out of one run.

    Attributes:
        out: all bytes.
        parts: what each call returned, `close()` or `fail()` last.
        events: the output, read by the standard.
    """

    out: bytes
    parts: list[bytes]
    events: list[SseEvent]
    ledger: Ledger

    @property
    def data(self) -> list[str]:
        """The data of each event."""
        return [event.data for event in self.events]

    @property
    def chunks(self) -> list[str]:
        """The chunks of answer text: neither the routing object, nor the marker, nor our error event (`text` only)."""
        data = self.data
        if data and (self.ledger.outcome is Outcome.FAILED or data[-1] == DONE):
            del data[-1]
        return data[len(data) - self.ledger.pieces :]

    @property
    def text(self) -> str:
        """The answer as a reader of the output has it."""
        return "".join(self.chunks)

    @property
    def repairs(self) -> dict[str, int]:
        """The repairs, by slug."""
        return {str(kind): n for kind, n in self.ledger.repairs.items()}

    @property
    def account(self) -> dict[str, Any]:
        """The ledger but for what depends on a clock."""
        return self.ledger.as_dict()

    @property
    def error(self) -> dict[str, Any] | None:
        """The object of our error event, where the stream ended in one."""
        if self.ledger.outcome is not Outcome.FAILED or not self.events:
            return None
        value = json.loads(self.events[-1].data)
        assert isinstance(value, dict)
        return value


def repair(raw: bytes, options: StreamOptions, cuts: Cuts = whole, *, fail: FailureCode | None = None) -> Result:
    """Feed `raw` to a pipeline in chunks, then end it: cleanly, or with the failure code `fail`.

    Every call must return whole events only.
    """
    pipeline = Pipeline(options)
    parts = [pipeline.feed(chunk) for chunk in cuts(raw)]
    parts.append(pipeline.close() if fail is None else pipeline.fail(fail))
    for part in parts:
        assert not part or part.endswith(b"\n\n"), "half an event"
    out = b"".join(parts)
    return Result(out, parts, read_standard(out)[0], pipeline.ledger)
