"""The log: one line a request on stderr, as text for people or JSON for machines."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any

from sse_proxy.config import LogSettings

__all__ = ["JsonFormatter", "set_up_logging"]


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, message, and the fields a line was given."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as JSON text."""
        entry: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        fields = getattr(record, "fields", None)
        if fields is not None:
            entry["message"] = record.getMessage().partition(" ")[0]
            entry.update(fields)
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False, default=str)


def set_up_logging(settings: LogSettings) -> None:
    """Send the log to stderr, in the configured form. At debug level alone does it hold tracebacks."""
    handler = logging.StreamHandler(sys.stderr)
    if settings.format == "json":
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.level.upper())
    logging.getLogger("aiohttp").setLevel(logging.WARNING)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
