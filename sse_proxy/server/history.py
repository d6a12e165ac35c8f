"""History guard (`scrub_history`): a failure that a page stored as an answer does not go back to the host."""

from __future__ import annotations

import json
from typing import Any

from sse_proxy.core.control import json_object
from sse_proxy.errors import FailureCode

__all__ = ["SCRUB_LIMIT", "scrub_history"]

SCRUB_LIMIT = 1024 * 1024

_OURS = '{"error":'  # how our error event's data begins; a page that knows no error event adds it to the text
_CODES = frozenset(str(code) for code in FailureCode)


def scrub_history(body: bytes) -> bytes:
    """Return a JSON request body without the failures in its `conversationHistory`.

    An assistant turn that is nothing but an error object is removed; an error event of ours at the end of one is cut
    off, the text that came before it stays. Whatever is not such a body, or has no such turn, comes back as the very
    bytes it was.
    """
    if b"conversationHistory" not in body:
        return body
    try:
        value: Any = json.loads(body)
    except (ValueError, RecursionError):
        return body
    history = value.get("conversationHistory") if isinstance(value, dict) else None
    if not isinstance(history, list):
        return body
    kept = [each for turn in history for each in _scrubbed(turn)]
    if kept == history:
        return body
    value["conversationHistory"] = kept
    return json.dumps(value, separators=(",", ":")).encode("ascii")  # escaped: a lone surrogate has no UTF-8


def _scrubbed(turn: Any) -> list[Any]:
    """Return a turn without its failure, in a list; empty where nothing is left of it."""
    if not isinstance(turn, dict) or turn.get("role") != "assistant" or not isinstance(turn.get("content"), str):
        return [turn]
    content: str = turn["content"]
    value = json_object(content)
    if value is not None:
        return [] if isinstance(value.get("error"), str) else [turn]
    at = content.rfind(_OURS)
    value = json_object(content[at:]) if at >= 0 else None
    if value is None or value.get("code") not in _CODES or not isinstance(value.get("error"), str):
        return [turn]
    text = content[:at]
    return [{**turn, "content": text}] if text.strip() else []
