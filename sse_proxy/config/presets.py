"""The presets: what is known of some hosts, as settings of streams and routes.

A preset is written exactly as an upstream of the file is: settings of streams that hold for all its routes, and
`routes` that change some of them. So a preset for one more host is one more entry here (and its name in
`models.PRESETS`), or, without touching the program, the same lines at an upstream with `preset: none`.
"""

from __future__ import annotations

from typing import Any

__all__ = ["PRESET_VALUES"]

# One run of an agent: every event one JSON object on one line, and no done marker (https://docs.ag-ui.com, events).
_AGUI_RUN: dict[str, Any] = {
    "dialect": "standard",
    "chunker": "any",
    "payload": "json",
    "split": "none",
    "done": False,
    "end_types": ["RUN_FINISHED"],
    "error_types": ["RUN_ERROR"],
    "require_done": True,
    "restore_whitespace": False,
    "scrub_history": False,
}


def _ga(base: str) -> dict[str, Any]:
    """Return the preset of a GuitarAlchemist chat host whose paths stand behind `base`."""
    return {
        "source": "stream",
        "json": {
            "path": f"{base}/api/chatbot/chat",
            "answer": "/naturalLanguageAnswer",
            "meta": {"type": "routing"},
            "omit": ["elapsedMs", "traceId"],
        },
        "dialect": "auto",
        "chunker": "sentence",
        "payload": "text",
        "split": "sentence",
        "restore_whitespace": True,
        "done": "[DONE]",
        "require_done": True,
        # The host sends its head at once, then nothing until the whole answer is computed.
        "idle_timeout": "300s",
        # What its streams and its JSON twin are known to say. Of the second only the beginning is known; whatever
        # follows is plain text, and shown as such.
        "known_messages": ["Failed to process message. Please try again.", "Service is busy"],
        "scrub_history": True,
        "routes": [
            {"path": f"{base}/api/chatbot/chat/stream", "methods": ["POST"], "stream": {}},
            {"path": f"{base}/api/chatbot/agui/stream", "methods": ["POST"], "stream": _AGUI_RUN},
            {"path": f"{base}/hubs/*", "stream": False},  # SignalR has its own protocol on top
        ],
    }


PRESET_VALUES: dict[str, dict[str, Any]] = {
    # The single chat host to come: http 5232, https 7184.
    "gaapi": _ga(""),
    # The public one of today: the same routes behind its path base.
    "gachatbot": _ga("/chatbot"),
    # An AG-UI host has one endpoint an agent, and nothing fixes where. Declare others as routes of the upstream
    # (`- {path: /agents/*, methods: [POST]}`): they start from the same settings.
    "agui": {
        **_AGUI_RUN,
        "idle_timeout": "300s",  # an agent is silent while its tools and models work
        "routes": [
            {"path": "/agui", "methods": ["POST"], "stream": {}},
            {"path": "/agui/*", "methods": ["POST"], "stream": {}},
        ],
    },
    # OpenAI and the many hosts that speak like it (https://platform.openai.com/docs/api-reference).
    "openai": {
        "dialect": "standard",
        "payload": "json",
        "split": "none",
        "done": "[DONE]",
        "require_done": True,
        "errors": "status",  # its SDKs test the status, and try again on 5xx
        "idle_timeout": "300s",  # a local model reads a long prompt for minutes before its first token
        "routes": [
            {"path": "/v1/chat/completions", "methods": ["POST"], "stream": {}},
            {"path": "/v1/completions", "methods": ["POST"], "stream": {}},
            {
                # Events with a type, and no marker at the end. An `incomplete` response is one whose token limit was
                # reached: it says so itself, as `finish_reason: length` does on the older routes.
                "path": "/v1/responses",
                "methods": ["POST"],
                "stream": {
                    "done": False,
                    "end_types": ["response.completed", "response.incomplete"],
                    "error_types": ["response.failed", "error"],
                },
            },
        ],
    },
    # The built-in settings: every event stream read by the standard and passed one to one; no routes.
    "none": {"routes": []},
}
