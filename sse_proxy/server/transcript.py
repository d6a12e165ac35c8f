"""Transcript: one JSON line for each complete exchange; a failed one leaves none (`transcript: FILE`)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
from pathlib import Path
from typing import Any

__all__ = ["Transcript", "asked"]

logger = logging.getLogger(__name__)


def asked(body: bytes) -> Any:
    """Return a request's body as its JSON value, or as text where it is none."""
    text = body.decode("utf-8", "replace")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


class Transcript:
    """Append to the transcript, whole lines only, in the order the exchanges ended."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = asyncio.Lock()
        self._writes: set[asyncio.Task[None]] = set()

    def check(self) -> None:
        """Open the file once, so that a wrong path shows at the start.

        Raises:
            OSError: it cannot be written.
        """
        os.close(self._open())

    def add(self, record: dict[str, Any]) -> None:
        """Write one record behind the others, without making the stream wait."""
        line = _as_json(record).encode("utf-8", "replace") + b"\n"
        task = asyncio.get_running_loop().create_task(self._append(line))
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)

    async def close(self) -> None:
        """Wait until all is written."""
        if self._writes:
            await asyncio.wait(self._writes)

    async def _append(self, line: bytes) -> None:
        async with self._lock:
            try:
                await asyncio.to_thread(self._write, line)
            except OSError as error:
                logger.error("transcript %s: an exchange was not written: %s", self._path, error.strerror or error)

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)

    def _write(self, line: bytes) -> None:
        descriptor = self._open()
        try:
            size = os.fstat(descriptor).st_size
            try:
                written = 0
                while written < len(line):
                    written += os.write(descriptor, line[written:])
            except OSError:
                # A full disk: half a line would break the next reader. Where it cannot be cut (a device), so be it.
                with contextlib.suppress(OSError):
                    os.ftruncate(descriptor, size)
                raise
        finally:
            os.close(descriptor)


def _as_json(record: dict[str, Any]) -> str:
    """Return a record as JSON; a request that Python reads and JSON does not know (NaN, 1e999) as its text."""
    try:
        return json.dumps(record, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:
        return json.dumps({**record, "request": json.dumps(record["request"])}, ensure_ascii=False)
