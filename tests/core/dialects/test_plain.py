"""Dialects `lines` and `raw`: hosts that forget the blank line, or the framing."""

from __future__ import annotations

import pytest
from hypothesis import given

from sse_proxy.core import Dialect, Outcome, Payload, Reader, Split, StreamOptions
from sse_proxy.errors import FailureCode
from tests.core.streams import Cuts, read_standard, repair
from tests.strategies import answers, cuts, garbage, normalised

LINES = StreamOptions(dialect=Dialect.LINES, payload=Payload.OPAQUE, split=Split.NONE, done=(), require_done=False)
RAW = StreamOptions(dialect=Dialect.RAW, done=(), require_done=False, restore_whitespace=False)


@pytest.mark.parametrize(
    ("raw", "data"),
    [
        (b'{"a":1}\n{"b":2}\n', ['{"a":1}', '{"b":2}']),
        (b"data: a\ndata:b\nc\n\n\nd", ["a", "b", "c", "d"]),
        (b"a\r\nb\rc\n", ["a", "b", "c"]),
        (b"data:  two\n", [" two"]),
        (b": ping\ndata: a\n", ["a"]),
        (b"data: \ndata:\n", []),
        (b"event: x\n", ["event: x"]),
        (b"\xef\xbb\xbfa\n", ["\ufeffa"]),
    ],
)
@pytest.mark.parametrize("step", [1, 100])
def test_each_line_is_one_event(raw: bytes, data: list[str], step: int) -> None:
    result = repair(raw, LINES, lambda raw: [raw[at : at + step] for at in range(0, len(raw), step)])
    assert result.data == data
    assert result.ledger.outcome is Outcome.COMPLETE


def test_a_colon_line_of_text_is_text() -> None:
    options = StreamOptions(dialect=Dialect.LINES, split=Split.NONE)
    result = repair(b": so.\ndata: [DONE]\n", options)
    assert result.data == [": so.", "[DONE]"]


def test_a_redundant_prefix_is_taken_off_where_that_is_set() -> None:
    options = StreamOptions(dialect=Dialect.LINES, split=Split.NONE, strip_double_prefix=True)
    result = repair(b"data: data: data: a\ndata: [DONE]\n", options)
    assert result.data == ["data: a", "[DONE]"]
    assert result.repairs == {"double_prefix": 1}


def test_half_a_line_of_text_is_kept_at_a_failure_and_half_an_event_is_not() -> None:
    text = StreamOptions(dialect=Dialect.LINES)
    assert repair(b"One. \nTw", text, fail=FailureCode.UPSTREAM_TRUNCATED).text == "One. Tw"
    assert repair(b"One. \ndata: Tw", text, fail=FailureCode.UPSTREAM_TRUNCATED).text == "One. Tw"
    assert repair(b"One. \n[DO", text, fail=FailureCode.UPSTREAM_TRUNCATED).text == "One. "
    json = StreamOptions(dialect=Dialect.LINES, payload=Payload.JSON)
    assert repair(b'{"a":1}\n{"b', json, fail=FailureCode.UPSTREAM_TRUNCATED).data[:-1] == ['{"a":1}']


@given(answers(), cuts())
def test_of_raw_text_all_is_answer(answer: str, cuts: Cuts) -> None:
    result = repair(answer.encode(), RAW, cuts)
    assert "".join(result.data) == normalised(answer)
    assert result.ledger.outcome is Outcome.COMPLETE


@given(garbage(), cuts())
def test_raw_bytes_of_any_kind_are_text(raw: bytes, cuts: Cuts) -> None:
    result = repair(raw, RAW, cuts)
    assert "".join(result.data) == normalised(raw.decode("utf-8", "replace"))


@pytest.mark.parametrize("payload", Payload)
@pytest.mark.parametrize("split", Split)
def test_raw_text_without_a_splitter_is_cut_at_its_lines(payload: Payload, split: Split) -> None:
    options = StreamOptions(dialect=Dialect.RAW, payload=payload, split=split, done=(), require_done=False)
    out = repair(b"a. b\nc", options).out
    assert "".join(event.data for event in read_standard(out)[0]) == "a. b\nc"
    assert (b"data: a. \n\n" in out) == (payload is Payload.TEXT and split is Split.SENTENCE)


def test_raw_text_for_ga_clients_is_one_line_an_event() -> None:
    options = StreamOptions(dialect=Dialect.RAW, reader=Reader.GA_CLIENT, done=(), require_done=False)
    assert repair(b"A.\nB. C", options).out == b"data: A.\rB\n\ndata: . C\n\n"
