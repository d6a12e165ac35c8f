"""History guard (`scrub_history`): a failure that a page stored as an answer does not go back to the host."""

from __future__ import annotations

import json
import re
from typing import Any

from sse_proxy.core.control import json_object
from sse_proxy.errors import FailureCode

__all__ = ["SCRUB_LIMIT", "scrub_history"]

SCRUB_LIMIT = 1024 * 1024

_KEY = "conversationHistory"
_OURS = '{"error":'  # how our error event's data begins; a page that knows no error event adds it to the text
_CODES = frozenset(str(code) for code in FailureCode)
_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()
_REMOVED = object()


def scrub_history(body: bytes) -> bytes:
    """Return a JSON request body without the failures in its `conversationHistory`.

    An assistant turn that is nothing but an error object is removed; an error event of ours at the end of one is cut
    off, the text that came before it stays. All other bytes are the very bytes that came.
    """
    if _KEY.encode() not in body:
        return body
    try:
        text = body.decode("utf-8")
        json.loads(text.removeprefix("\ufeff"))
        turns = _turns(text)
    except (ValueError, RecursionError):
        return body
    kept: list[str] = []
    changed = False
    for start, end, turn in turns:
        left = _scrubbed(turn)
        changed = changed or left is not turn
        if left is not _REMOVED:
            kept.append(text[start:end] if left is turn else json.dumps(left, separators=(",", ":")))
    if not changed:
        return body
    return (text[: turns[0][0]] + ",".join(kept) + text[turns[-1][1] :]).encode("utf-8")


def _turns(text: str) -> list[tuple[int, int, Any]]:
    """Find the elements of the history in valid JSON: where each begins and ends, and its value."""
    at = _skip(text, len(text) - len(text.removeprefix("\ufeff")))
    if text[at] != "{":
        return []
    turns: list[tuple[int, int, Any]] = []
    at = _skip(text, at + 1)
    while text[at] != "}":
        key, at = _DECODER.raw_decode(text, at)
        at = _skip(text, _skip(text, at) + 1)  # behind the colon
        if key == _KEY:
            turns = _elements(text, at)  # of several, the last counts (RFC 8259 section 4: most readers do so)
        _, at = _DECODER.raw_decode(text, at)
        at = _skip(text, at)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return turns


def _elements(text: str, at: int) -> list[tuple[int, int, Any]]:
    if text[at] != "[":
        return []
    found: list[tuple[int, int, Any]] = []
    at = _skip(text, at + 1)
    while text[at] != "]":
        value, end = _DECODER.raw_decode(text, at)
        found.append((at, end, value))
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return found


def _skip(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return space.end() if space is not None else at


def _scrubbed(turn: Any) -> Any:
    """Return a turn without its failure: itself where it has none, _REMOVED where nothing is left of it."""
    if not isinstance(turn, dict) or turn.get("role") != "assistant" or not isinstance(turn.get("content"), str):
        return turn
    content: str = turn["content"]
    value = json_object(content)
    if value is not None:
        return _REMOVED if isinstance(value.get("error"), str) else turn
    at = content.rfind(_OURS)
    value = json_object(content[at:]) if at >= 0 else None
    if value is None or value.get("code") not in _CODES or not isinstance(value.get("error"), str):
        return turn
    text = content[:at]
    return {**turn, "content": text} if text.strip() else _REMOVED
