"""Messages of the host that may be shown, and the error event that carries them (design section 6)."""

from __future__ import annotations

import json
import re

from sse_proxy.core.encoder import well_formed
from sse_proxy.core.events import Event
from sse_proxy.core.options import StreamOptions
from sse_proxy.errors import FailureCode

__all__ = ["error_event", "is_showable"]

MAX_SHOWN = 200

# Anything that smells of markup, a path, a host name, an address, code or a traceback stays in the log.
_UNSAFE = re.compile(
    r"""[<>{}\[\]\\/@=;|`$\x00-\x1f\x7f-\x9f\u2028\u2029\ufffd]   # markup, paths, URLs, code, control characters
      | \w\.\w                                                    # host.name, Some.Exception, 10.0.0.1
      | :\d | ::                                                  # :5232, ::1
      | \b(?:traceback|exception|stack|errno|localhost|file|line\s\d+|0x[0-9a-f])
      | \w(?:error|exception)\b                                 # KeyError, NullReferenceException
      | [\w-]{32}                                                # a key, a hash, a trace id
    """,
    re.VERBOSE | re.IGNORECASE,
)


def is_showable(message: str, known: tuple[str, ...] = ()) -> bool:
    """Whether a message of the host may reach a reader: it is a known one, or short plain text."""
    if message in known:
        return True
    return bool(message.strip()) and len(message) <= MAX_SHOWN and not _UNSAFE.search(message)


def error_event(
    options: StreamOptions,
    code: FailureCode,
    *,
    message: str = "",
    status: int | None = None,
    retryable: bool | None = None,
) -> Event:
    """Return our error event: one line of JSON, without an id.

    Args:
        message: what the host said; shown where that is safe, else `error_message` stands in for it.
        status, retryable: where they differ from the code's own.
    """
    shown = message if is_showable(message, options.known_messages) else options.error_message
    data = {
        "error": well_formed(shown),
        "code": str(code),
        "status": code.http_status if status is None else status,
        "retryable": code.retryable if retryable is None else retryable,
    }
    if options.request_id:
        data["requestId"] = options.request_id
    if options.error_types:
        # A reader of typed objects (AG-UI) ignores one without a type, and would take our proper end for success.
        data["type"] = "error" if "error" in options.error_types else options.error_types[0]
        data["message"] = data["error"]
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    retry = None if options.error_retry_ms is None else str(options.error_retry_ms)
    return Event(text, type=options.error_event or "", retry=retry)
