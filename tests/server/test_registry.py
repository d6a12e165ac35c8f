"""StreamRegistry: live and recent streams, and captured bytes within their bounds."""

from __future__ import annotations

import json
from dataclasses import dataclass

from sse_proxy.core.ledger import Ledger, Outcome, RepairKind
from sse_proxy.server.registry import Recorder, StreamEntry, StreamRegistry, StreamState


@dataclass
class Capture:
    keep: int
    max_bytes: int


def register(registry: StreamRegistry, request_id: str = "r") -> StreamEntry:
    return registry.register(
        Ledger(), request_id=request_id, upstream="gaapi", route="/chat", peer="127.0.0.1:4711", method="POST"
    )


def ids(entries: list[StreamEntry]) -> list[int]:
    return [entry.id for entry in entries]


def captured(entry: StreamEntry) -> bytes | None:
    return bytes(entry.recorder.raw.kept) if entry.recorder else None


def test_a_stream_is_live_until_it_is_removed_then_recent() -> None:
    registry = StreamRegistry()
    first, second = register(registry), register(registry)
    assert ids(registry.live()) == [second.id, first.id]
    assert registry.active == 2
    registry.remove(first)
    assert ids(registry.live()) == [second.id]
    assert ids(registry.recent()) == [first.id]
    assert first.state is StreamState.ENDED
    assert registry.find(first.id) is first
    assert registry.find(second.id) is second
    assert registry.find(99) is None


def test_removing_twice_remembers_once() -> None:
    registry = StreamRegistry()
    entry = register(registry)
    registry.remove(entry)
    registry.remove(entry)
    assert ids(registry.recent()) == [entry.id]


def test_streams_with_one_request_id_are_told_apart() -> None:
    registry = StreamRegistry()
    assert register(registry, "same").id != register(registry, "same").id


def test_only_so_many_ended_streams_are_remembered() -> None:
    registry = StreamRegistry(recent=3)
    entries = [register(registry) for _ in range(5)]
    for entry in entries:
        registry.remove(entry)
    assert ids(registry.recent()) == [5, 4, 3]
    assert registry.find(1) is None


def test_an_entry_reads_as_json_with_its_age_and_ledger() -> None:
    registry = StreamRegistry(wall=lambda: 1_790_000_000.25, monotonic=lambda: 100.0)
    entry = register(registry, "req-1")
    entry.ledger.repair(RepairKind.BOM)
    entry.ledger.outcome = Outcome.COMPLETE
    shown = json.loads(json.dumps(entry.as_dict(102.5)))
    ledger = shown.pop("ledger")
    assert shown == {
        "id": 1,
        "request_id": "req-1",
        "upstream": "gaapi",
        "route": "/chat",
        "method": "POST",
        "peer": "127.0.0.1:4711",
        "state": "waiting",
        "started_at": "2026-09-21T14:13:20.250+00:00",
        "age_s": 2.5,
        "captured": False,
    }
    assert (ledger["outcome"], ledger["repairs"]) == ("complete", {"bom": 1})


def test_the_ledger_may_be_replaced_while_the_stream_runs() -> None:
    registry = StreamRegistry()
    entry = register(registry)
    entry.ledger = Ledger(dialect="standard")
    assert registry.live()[0].as_dict(0)["ledger"]["dialect"] == "standard"


def test_without_capture_there_is_no_recorder() -> None:
    registry = StreamRegistry()
    entry = register(registry)
    assert registry.tap(entry) is None
    assert entry.recorder is None


def test_a_recorder_keeps_the_first_bytes_of_each_side_and_counts_all() -> None:
    recorder = Recorder(max_bytes=5)
    recorder.raw.add(b"abc")
    recorder.raw.add(b"defg")
    recorder.raw.add(b"hi")
    recorder.repaired.add(b"xy")
    assert (bytes(recorder.raw.kept), recorder.raw.seen) == (b"abcde", 9)
    assert (bytes(recorder.repaired.kept), recorder.repaired.seen) == (b"xy", 2)


def test_a_new_capture_takes_the_place_of_the_oldest_ended_one() -> None:
    registry = StreamRegistry(Capture(keep=2, max_bytes=10))
    old, live, new = register(registry), register(registry), register(registry)
    for entry in (live, old):
        recorder = registry.tap(entry)
        assert recorder is not None
        recorder.raw.add(b"bytes")
    registry.remove(old)
    assert registry.tap(new) is not None
    assert captured(old) is None
    assert captured(live) == b"bytes"
    assert ids(registry.recent()) == [old.id]  # its ledger stays


def test_no_more_than_keep_streams_are_captured_at_once() -> None:
    registry = StreamRegistry(Capture(keep=2, max_bytes=10))
    first, second, third = register(registry), register(registry), register(registry)
    assert registry.tap(first) is not None
    assert registry.tap(second) is not None
    assert registry.tap(third) is None
    assert captured(first) == b""


def test_a_forgotten_stream_frees_its_capture() -> None:
    registry = StreamRegistry(Capture(keep=2, max_bytes=10), recent=1)
    first, second = register(registry), register(registry)
    registry.tap(first)
    registry.remove(first)
    registry.remove(second)  # pushes the first out
    assert captured(first) is None
    # Both places are free again: neither of these has to take one from an ended stream.
    assert registry.tap(register(registry)) is not None
    assert registry.tap(register(registry)) is not None
    assert registry.tap(register(registry)) is None


def test_capture_may_be_switched_off_by_a_reload() -> None:
    registry = StreamRegistry(Capture(keep=1, max_bytes=10))
    kept = register(registry)
    registry.tap(kept)
    registry.capture = None
    assert registry.tap(register(registry)) is None
    assert captured(kept) == b""
