"""What the core costs: microseconds an event and MB/s for the shapes of streams that matter, against a floor.

    python bench/pipeline.py [--seconds S]

The floor is one compiled expression over each read, the least that any repair in Python can cost; the ratio to it is
taken within one run, so it holds on a noisy machine where the microseconds do not.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable

from sse_proxy.core import Chunker, Dialect, Payload, Pipeline, Split, StreamOptions

PLAIN = StreamOptions(dialect=Dialect.STANDARD, payload=Payload.OPAQUE, split=Split.NONE, done=(), require_done=False)
BROKEN = StreamOptions(
    dialect=Dialect.SINGLE_PREFIX,
    chunker=Chunker.ANY,
    payload=Payload.OPAQUE,
    split=Split.NONE,
    done=(),
    require_done=False,
)
TEXT = StreamOptions()
JSON = StreamOptions(
    dialect=Dialect.STANDARD, payload=Payload.JSON, split=Split.NONE, done=("[DONE]",), require_done=False
)

ONE = b"data: " + b"x" * 72 + b"\n\n"
FIVE = b"data: " + b"\ndata: ".join([b"y" * 72] * 5) + b"\n\n"
GAAPI = b"data: " + b"\n".join([b"y" * 72] * 5) + b"\n\n"
TOKEN = b'data: {"choices":[{"delta":{"content":" chord"}}]}\n\n'
SENTENCE = b"data: The quick brown fox jumps over the lazy dog again and again. \n\n"
LINES = b"data: - **F** is the fourth,\ndata: play it softly.\ndata: \n\n"
BROKEN_LINES = b"data: - **F** is the fourth,\nplay it softly.\n\n\n"
ROUTING = b'data: {"type":"routing"}\n\n'

FLOOR = re.compile(rb"\n(?!\n|data:|event:|id:|retry:|:|\Z)")

CASES: list[tuple[str, StreamOptions, bytes, bytes, int]] = [
    ("one line an event, one event a read", PLAIN, b"", ONE, 1),
    ("one line an event, 32 a read", PLAIN, b"", ONE * 32, 32),
    ("five lines an event, 32 a read", PLAIN, b"", FIVE * 32, 32),
    ("tokens as JSON, one a read", JSON, b"", TOKEN, 1),
    ("tokens as JSON, 32 a read", JSON, b"", TOKEN * 32, 32),
    ("broken, five lines, 32 a read", BROKEN, b"", GAAPI * 32, 32),
    ("chat, right writer, one sentence a read", TEXT, ROUTING, SENTENCE, 1),
    ("chat, right writer, lines, 32 a read", TEXT, ROUTING, LINES * 32, 32),
    ("chat, broken writer, lines, 32 a read", TEXT, ROUTING, BROKEN_LINES * 32, 32),
]


def timed(work: Callable[[], object], seconds: float) -> float:
    """Return the seconds of one call, the least of three rounds."""
    calls = 1
    while True:
        started = time.perf_counter()
        for _ in range(calls):
            work()
        if (took := time.perf_counter() - started) > seconds / 10:
            break
        calls *= 4
    rounds = [took / calls]
    for _ in range(2):
        started = time.perf_counter()
        for _ in range(calls):
            work()
        rounds.append((time.perf_counter() - started) / calls)
    return min(rounds)


def main() -> None:
    """Measure each case and print a table."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--seconds", type=float, default=0.5, help="about how long each case takes")
    seconds = arguments.parse_args().seconds
    print(f"{'':42} {'us/event':>9} {'MB/s':>7} {'x floor':>8}")
    for name, options, head, read, events in CASES:
        pipeline = Pipeline(options, started_at=0.0)
        pipeline.feed(head)
        took = timed(lambda pipeline=pipeline, read=read: pipeline.feed(read, 1.0), seconds)  # type: ignore[misc]
        floor = timed(lambda read=read: FLOOR.sub(b"\ndata: ", read), seconds)  # type: ignore[misc]
        print(f"{name:42} {took / events * 1e6:9.2f} {len(read) / took / 1e6:7.0f} {took / floor:8.1f}")


if __name__ == "__main__":
    main()
