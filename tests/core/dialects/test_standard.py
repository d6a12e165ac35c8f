"""Dialect `standard`: the HTML standard to the letter; its vectors are in tests/core/test_vectors.py."""

from __future__ import annotations

import pytest
from hypothesis import given

from sse_proxy.core import Dialect, Outcome, Payload, Pipeline, Split, StreamOptions
from sse_proxy.core.dialects.standard import LineEndNormaliser
from sse_proxy.errors import FailureCode
from tests.core.streams import Cuts, read_standard, repair
from tests.strategies import answers, cuts, garbage, normalised, streams, tokens

PLAIN = StreamOptions(
    dialect=Dialect.STANDARD, payload=Payload.OPAQUE, split=Split.NONE, done=(), require_done=False, own_events=False
)


@given(streams(), cuts())
def test_any_stream_gives_the_events_of_the_whole_buffer_reading(raw: bytes, cuts: Cuts) -> None:
    result = repair(raw, PLAIN, cuts)
    if result.ledger.code is not None:  # no event came at all, and the head was none of a stream
        assert result.ledger.code in (FailureCode.UPSTREAM_NOT_EVENT_STREAM, FailureCode.UPSTREAM_ERROR)
        assert read_standard(raw)[0] == []
        return
    assert read_standard(result.out) == read_standard(raw)


@given(garbage(), cuts())
def test_so_do_any_bytes(raw: bytes, cuts: Cuts) -> None:
    result = repair(raw, PLAIN, cuts)
    if result.ledger.code is None:
        assert read_standard(result.out) == read_standard(raw)


@given(tokens(answers()))
def test_line_ends_become_line_feeds_wherever_the_text_is_cut(parts: list[str]) -> None:
    ends = LineEndNormaliser()
    assert "".join(ends.feed(part) for part in parts) == normalised("".join(parts))
    assert ends.changed == "".join(parts).count("\r")


def test_an_event_leaves_at_its_last_line_end() -> None:
    pipeline = Pipeline(PLAIN)
    assert pipeline.feed(b"data: a\r\n") == b""
    assert pipeline.feed(b"\r") == b"data: a\n\n"  # the LF that may follow is not waited for
    assert pipeline.feed(b"\ndata: b\r\r") == b"data: b\n\n"


@pytest.mark.parametrize("raw", [b"data: a\n\ndata: b", b"data: a\n\ndata: b\n", b"data: a\n\nid: 1\ndata: b\n"])
def test_an_event_without_its_blank_line_is_discarded(raw: bytes) -> None:
    result = repair(raw, PLAIN)
    assert result.data == ["a"]
    assert result.ledger.outcome is Outcome.COMPLETE
    assert result.ledger.dropped_bytes > 0


def test_of_an_answer_its_text_is_kept_and_the_stream_fails() -> None:
    result = repair(b"data: One. \n\ndata: Tw", StreamOptions(dialect=Dialect.STANDARD))
    assert result.text == "One. Tw"
    assert result.ledger.code is FailureCode.UPSTREAM_INCOMPLETE


def test_a_json_value_over_lines_without_prefix_is_never_repaired() -> None:
    options = StreamOptions(dialect=Dialect.STANDARD, payload=Payload.JSON, done=(), require_done=False)
    result = repair(b'data: {"a":\n1}\n\n', options)
    assert result.data == ['{"a":']
    assert result.repairs == {"unknown_field": 1}


def test_an_event_of_type_error_is_the_hosts_failure() -> None:
    raw = b'data: One. \n\nevent: error\ndata: {"message":"Service is busy"}\n\ndata: [DONE]\n\n'
    result = repair(raw, StreamOptions(dialect=Dialect.STANDARD))
    assert result.ledger.code is FailureCode.UPSTREAM_ERROR
    assert result.error is not None
    assert result.error["error"] == "Service is busy"
    assert result.text == "One. "
