"""`sse-proxy fix`: the whole repair as a filter over bytes. No timers: the end of the input settles what waits."""

from __future__ import annotations

import json
import os
import sys
from typing import BinaryIO, TextIO

from sse_proxy.core.ledger import Outcome
from sse_proxy.core.options import StreamOptions
from sse_proxy.core.pipeline import Pipeline

__all__ = ["run_filter"]

_READ = 64 * 1024


def run_filter(
    options: StreamOptions,
    source: BinaryIO,
    sink: BinaryIO,
    *,
    read_size: int | None = None,
    report: TextIO | None = None,
) -> int:
    """Repair what `source` holds into `sink`, each piece as soon as it is certain; stop at the done marker.

    Args:
        read_size: at most so many bytes are fed at a time; None feeds what one read returned.
        report: where the ledger goes, as one line of JSON.

    Returns:
        0 when the stream was complete, 1 when it ended in a failure or nobody reads what is written.
    """
    pipeline = Pipeline(options)
    descriptor = source.fileno()
    try:
        while not pipeline.finished and (chunk := os.read(descriptor, min(read_size or _READ, _READ))):
            if out := pipeline.feed(chunk):
                sink.write(out)
                sink.flush()
        if out := pipeline.close():
            sink.write(out)
            sink.flush()
    except OSError as error:
        # What is still in the buffer must not raise again when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sink.fileno())
        if not isinstance(error, BrokenPipeError):  # a reader that has gone knows it
            sys.stderr.write(f"sse-proxy: cannot go on: {error.strerror}\n")
        return 1
    if report is not None:
        report.write(json.dumps(pipeline.ledger.as_dict()) + "\n")
    return 0 if pipeline.ledger.outcome is Outcome.COMPLETE else 1
