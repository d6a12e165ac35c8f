"""History guard (`scrub_history`): a failure that a page stored as an answer is not sent back to the host."""

from __future__ import annotations

import json
from typing import Any

from sse_proxy.core.control import json_object

__all__ = ["SCRUB_LIMIT", "scrub_history"]

SCRUB_LIMIT = 1024 * 1024


def scrub_history(body: bytes) -> bytes:
    """Return a JSON request body without the assistant turns that are nothing but an error object.

    Whatever is not such a body, or has no such turn, comes back as the very bytes it was.
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
    kept = [turn for turn in history if not _is_failure(turn)]
    if len(kept) == len(history):
        return body
    value["conversationHistory"] = kept
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def _is_failure(turn: Any) -> bool:
    if not isinstance(turn, dict) or turn.get("role") != "assistant" or not isinstance(turn.get("content"), str):
        return False
    value = json_object(turn["content"])
    return value is not None and isinstance(value.get("error"), str)
