"""The host's AG-UI stream: one JSON object an event, RUN_FINISHED or RUN_ERROR last, no done marker."""

from __future__ import annotations

import uuid
from typing import Any

from sse_proxy.demo.wire import ERROR_MESSAGE, SPLITTERS, compact, routing_object

__all__ = ["agui_frames", "question_of", "run_error"]


def agui_frames(answer: str, agent_id: str, *, thread_id: str, run_id: str, chunks: str = "743") -> list[bytes]:
    """Return the whole stream of one answer, one element an event.

    Args:
        thread_id, run_id: as the client named them.
        chunks: the splitter of the answer's deltas, a key of `wire.SPLITTERS`.
    """
    run = {"threadId": thread_id, "runId": run_id}
    message = {"messageId": f"msg-{uuid.uuid5(uuid.NAMESPACE_OID, run_id)}"}
    routing = routing_object(agent_id)
    del routing["type"]
    deltas = SPLITTERS[chunks](answer)
    events: list[dict[str, Any]] = [
        {"type": "RUN_STARTED", **run},
        {"type": "STATE_SNAPSHOT", "snapshot": {"agentId": None, "sentences": 0}},
        {"type": "STEP_STARTED", "stepName": "route"},
        {"type": "CUSTOM", "name": "routing", "value": routing},
        {"type": "STEP_FINISHED", "stepName": "route"},
        {"type": "TEXT_MESSAGE_START", **message, "role": "assistant"},
        *({"type": "TEXT_MESSAGE_CONTENT", **message, "delta": delta} for delta in deltas),
        {"type": "TEXT_MESSAGE_END", **message},
        {
            "type": "STATE_DELTA",
            "delta": [
                {"op": "replace", "path": "/agentId", "value": agent_id},
                {"op": "replace", "path": "/sentences", "value": len(deltas)},
            ],
        },
        {"type": "RUN_FINISHED", **run},
    ]
    return [_frame(event) for event in events]


def run_error(message: str = ERROR_MESSAGE) -> bytes:
    """Return the event that ends a failed run."""
    return _frame({"type": "RUN_ERROR", "message": message})


def question_of(body: dict[str, Any]) -> str:
    """Return what a run's input asks: the last user message; empty where there is none."""
    messages = body.get("messages")
    for message in reversed(messages if isinstance(messages, list) else []):
        if isinstance(message, dict) and message.get("role") == "user" and isinstance(message.get("content"), str):
            return str(message["content"])
    message = body.get("message")
    return message if isinstance(message, str) else ""


def _frame(event: dict[str, Any]) -> bytes:
    return f"data: {compact(event)}\n\n".encode()
