"""Vectors: what is right, case by case. NAME.sse holds the bytes, NAME.json how they come and what is to come out.

NAME.json: `note`; `options` (of `StreamOptions`); `packets` (lengths of the pieces the bytes came in); `events` as a
page gets them (`data`, and `event`, `id`, `retry` where set); `outcome`, `code`; `repairs`. `standard.jsonl.gz` holds
cases of the HTML standard alone, gathered from the test suites its lines name.
"""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from sse_proxy.core import Chunker, Dialect, Payload, Pipeline, Reader, Split, StreamOptions
from tests.core.streams import SseEvent, read_standard, repair

VECTORS = Path(__file__).parents[1] / "vectors"
CASES = sorted(VECTORS.glob("*.json"))
STANDARD = [json.loads(line) for line in gzip.decompress((VECTORS / "standard.jsonl.gz").read_bytes()).splitlines()]
ENUMS = {"dialect": Dialect, "chunker": Chunker, "payload": Payload, "split": Split, "reader": Reader}
PLAIN = StreamOptions(
    dialect=Dialect.STANDARD, payload=Payload.OPAQUE, split=Split.NONE, done=(), require_done=False, own_events=False
)


def options_of(given: dict[str, Any]) -> StreamOptions:
    values: dict[str, Any] = {key: ENUMS[key](value) if key in ENUMS else value for key, value in given.items()}
    values["done"] = tuple(values["done"])
    return StreamOptions(**values)


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
@pytest.mark.parametrize("how", ["as it came", "whole", "byte by byte"])
def test_a_case_gives_its_events(path: Path, how: str) -> None:
    case = json.loads(path.read_text(encoding="utf-8"))
    raw = path.with_suffix(".sse").read_bytes()
    assert sum(case["packets"]) == len(raw)
    ends = [sum(case["packets"][: n + 1]) for n in range(len(case["packets"]))]
    if how != "as it came":
        ends = [len(raw)] if how == "whole" else list(range(1, len(raw) + 1))
    pipeline = Pipeline(options_of(case["options"]))
    out = b"".join(pipeline.feed(raw[start:end]) for start, end in zip([0, *ends], ends, strict=False))
    out += pipeline.close()
    events, retry, _ = read_standard(out)
    expected = [dict(event) for event in case["events"]]
    retries = [str(event.pop("retry")) for event in expected if "retry" in event]
    assert events == [SseEvent(event["data"], event.get("event", "message"), event.get("id", "")) for event in expected]
    assert retry == case.get("retry", retries[-1] if retries else None)
    assert pipeline.ledger.outcome == case["outcome"]
    assert pipeline.ledger.code == case.get("code")
    assert {str(kind): n for kind, n in pipeline.ledger.repairs.items()} == case["repairs"]


def test_there_are_cases_and_each_has_both_files() -> None:
    assert len(CASES) > 30
    assert {path.stem for path in CASES} == {path.stem for path in VECTORS.glob("*.sse")}
    assert len(STANDARD) == 207


@pytest.mark.parametrize("case", STANDARD, ids=lambda case: case["name"])
@pytest.mark.parametrize("step", [1, 7, 1 << 20])
def test_the_standard_is_obeyed(case: dict[str, Any], step: int) -> None:
    raw = base64.b64decode(case["input_b64"])
    if step < 100 and len(raw) > 20_000:
        step *= 64  # long ones byte by byte take seconds
    result = repair(raw, PLAIN, lambda raw: [raw[at : at + step] for at in range(0, len(raw), step)])
    want = [SseEvent(event["data"], event["type"], event["id"]) for event in case["events"]]
    for out in (raw, result.out):  # our own reader of output is judged as well
        events, retry, last_id = read_standard(out)
        assert events == want
        assert last_id == case["last_event_id"]
        if case["retry_check"]:
            assert (None if retry is None or len(retry) > 4000 else int(retry)) == case["retry"]
    assert b"\r" not in result.out
