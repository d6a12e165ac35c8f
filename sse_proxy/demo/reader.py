"""A standard reader over a whole body, for the demo's verdicts: the five rules of HTML 9.2.6 and nothing clever.

It is told again here, apart from the core, so that the demo does not judge the proxy by the proxy's own parser.
`page.html` holds the same reader in JavaScript.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from sse_proxy.core.verdict import with_lf
from sse_proxy.demo.wire import DONE

__all__ = ["Reading", "parse_events", "read_answer"]


@dataclass(frozen=True, slots=True)
class Reading:
    """What a standard reader made of one answer's stream.

    Attributes:
        text: the chunks joined, without routing object, done marker and error event.
        events: how many events were dispatched, control events included.
        done: whether the done marker came.
        error: what an error event said: its code if it has one, else its message; None for none.
    """

    text: str
    events: int
    done: bool
    error: str | None

    @property
    def failed(self) -> bool:
        """Whether the reader can tell that the answer is not complete."""
        return self.error is not None or not self.done


def parse_events(raw: bytes) -> list[tuple[str, str]]:
    """Return (type, data) of each event of a whole event stream (HTML 9.2.6, #event-stream-interpretation).

    An event without its blank line at the end is not dispatched.
    """
    text = with_lf(raw.decode("utf-8", "replace").removeprefix("\ufeff"))
    events: list[tuple[str, str]] = []
    event_type = ""
    data: list[str] = []
    for line in text.split("\n")[:-1]:
        if not line:
            if data:
                events.append((event_type or "message", "\n".join(data)))
            event_type, data = "", []
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            data.append(value)
        elif name == "event":
            event_type = value
    return events


def read_answer(raw: bytes) -> Reading:
    """Read one answer's stream as a page with a standard reader does: it stops at the done marker."""
    chunks: list[str] = []
    events = parse_events(raw)
    for n, (event_type, data) in enumerate(events):
        value = _json_object(data)
        if n == 0 and value.get("type") == "routing":
            continue
        if data.strip() == DONE:
            return Reading("".join(chunks), n + 1, True, None)
        error = value.get("error")
        if event_type == "error" or (isinstance(error, str) and len(value) == 1 and n + 1 == len(events)):
            return Reading("".join(chunks), n + 1, False, str(value.get("code") or error or "error"))
        chunks.append(data)
    return Reading("".join(chunks), len(events), False, None)


def _json_object(data: str) -> dict[str, Any]:
    if not data.startswith("{"):
        return {}
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
