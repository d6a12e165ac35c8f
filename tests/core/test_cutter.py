"""Cutters: no chunk that a reader could take for a control event, no cut that its trimming would eat."""

from __future__ import annotations

import pytest

from sse_proxy.core import Ledger, Reader, RepairKind, Split, StreamOptions
from sse_proxy.core.cutter import Cutter, make_cutter


def run(text: str, *, ledger: Ledger | None = None, step: int = 0, **settings: object) -> list[str]:
    cutter: Cutter = make_cutter(StreamOptions(**settings), ledger or Ledger())  # type: ignore[arg-type]
    parts = [text[at : at + step] for at in range(0, len(text), step)] if step else [text]
    return [chunk for part in parts for chunk in cutter.feed(part)] + cutter.close()


@pytest.mark.parametrize("step", [0, 1])
@pytest.mark.parametrize(
    ("text", "chunks"),
    [
        ("One. Two.", ["One. ", "Two."]),
        ("[DONE]", ["[", "DONE]"]),
        ("\u3000[DONE]\x1f\n", ["\u3000[", "DONE]\x1f\n"]),
        ('{"error":"x"}', ["{", '"error":"x"}']),
        (' {"type":"x"}', [" {", '"type":"x"}']),
        ('{"a":1}', ['{"a":1}']),
        ('{"error":"x"} y', ['{"error":"x"} y']),
        ('So. {"type":1}', ["So. ", "{", '"type":1}']),
    ],
)
def test_for_standard_readers_a_dangerous_chunk_is_cut_in_two(text: str, chunks: list[str], step: int) -> None:
    ledger = Ledger()
    assert run(text, ledger=ledger, step=step) == chunks
    assert ledger.repairs.get(RepairKind.CHUNK_MOVED, 0) == (len(chunks) > 1 and "One" not in text)


@pytest.mark.parametrize("step", [0, 1])
@pytest.mark.parametrize(
    ("text", "chunks"),
    [
        ("One. Two. Three.", ["One. T", "wo. T", "hree."]),  # not beside white space
        ("One. {a} Two. B", ["One. {", "a} Two. B"]),
        ("A.\n\n\n\nB", ["A.\n\n\n\nB"]),
        ("[DONE]", ["[", "DONE]"]),
        ("[DONE]! And", ["[DONE]! A", "nd"]),
        ("  x  ", ["  x  "]),
        (" ", [" "]),
        ("", []),
    ],
)
def test_for_ga_clients_each_cut_moves_to_where_trimming_eats_nothing(text: str, chunks: list[str], step: int) -> None:
    assert run(text, step=step, reader=Reader.GA_CLIENT) == chunks


def test_an_answer_that_begins_with_a_brace_is_counted_once() -> None:
    ledger = Ledger()
    assert run("{a}. Bc. {d}. Ef", ledger=ledger, reader=Reader.GA_CLIENT) == ["{a}. B", "c. {", "d}. E", "f"]
    assert ledger.repairs == {RepairKind.CHUNK_MOVED: 1}


def test_time_lets_go_of_all_but_the_last_character_for_ga_clients() -> None:
    cutter = make_cutter(StreamOptions(reader=Reader.GA_CLIENT), Ledger())
    assert cutter.feed("Hello") == []
    assert cutter.pending
    assert cutter.flush() == ["Hell"]
    assert not cutter.pending
    assert cutter.feed(", world") == []
    assert cutter.flush() == ["o, worl"]
    assert cutter.close() == ["d"]


def test_time_ends_no_frame_with_split_none() -> None:
    for reader in Reader:
        cutter = make_cutter(StreamOptions(split=Split.NONE, reader=reader), Ledger())
        assert cutter.feed("half a frame") == []
        assert cutter.flush() == []
        assert cutter.feed(", whole") == []
        assert cutter.frame_end() + cutter.close() == ["half a frame, whole"]


def test_what_waits_beyond_two_chunks_counts_as_held() -> None:
    settings = StreamOptions(reader=Reader.GA_CLIENT, split=Split.LINE, max_chunk_bytes=10)
    cutter = make_cutter(settings, Ledger())
    for _ in range(50):
        cutter.feed("\n")
    assert cutter.held == 30
    assert cutter.feed("ab\n") == ["\n" * 50 + "a"]
    assert cutter.held == 0


@pytest.mark.parametrize(("text", "cut"), [("One {two", True), ("a b {", False), ("x   ", False), ("ab {{{ ", True)])
def test_time_cuts_for_ga_clients_where_trimming_eats_nothing_too(text: str, cut: bool) -> None:
    cutter = make_cutter(StreamOptions(reader=Reader.GA_CLIENT), Ledger())
    cutter.feed(text)
    chunks = cutter.flush()
    rest = "".join([*chunks, *cutter.close()])
    assert rest == text
    for chunk in chunks:
        after = text[len(chunk)]
        assert chunk[-1] not in " \n"
        assert after not in " \n{"
    assert bool(chunks) is cut
