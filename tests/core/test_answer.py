"""The answer stage: which events are control events, wherever they stand, and what an old splitter's stream is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sse_proxy.core import Dialect, Outcome, Payload, Pipeline, RepairKind, Split, StreamOptions
from sse_proxy.errors import FailureCode
from tests.core.streams import ROUTING, read_standard

JSON = StreamOptions(dialect=Dialect.STANDARD, payload=Payload.JSON, split=Split.NONE)
HEAD = f"data: {ROUTING}\n\n".encode()
ERROR = b'event: error\ndata: {"type":"error","error":{"message":"at db01.internal line 12"}}\n\n'


def data_of(raw: bytes) -> list[str]:
    return [event.data for event in read_standard(raw)[0]]


# ---- an error event is one, wherever it stands ----


@pytest.mark.parametrize("dialect", [Dialect.AUTO, Dialect.STANDARD, Dialect.SINGLE_PREFIX])
@pytest.mark.parametrize("behind", [b"", b"data: [DONE]\n\n", b"data: Text. \n\ndata: [DONE]\n\n"])
def test_an_error_event_that_comes_first_is_no_routing_object(dialect: Dialect, behind: bytes) -> None:
    pipeline = Pipeline(StreamOptions(dialect=dialect))
    out = pipeline.feed(ERROR + behind) + pipeline.close()
    assert pipeline.ledger.code is FailureCode.UPSTREAM_ERROR
    [only] = data_of(out)
    assert '"code":"upstream_error"' in only
    assert "db01" not in only


@pytest.mark.parametrize("data", [b'{"message":"boom"}', b"boom"])
@pytest.mark.parametrize("behind", [b"", b"data: [DONE]\n\n"])
def test_an_error_event_ends_a_json_stream_as_failed_and_is_passed_on(data: bytes, behind: bytes) -> None:
    event = b"event: error\ndata: " + data + b"\n\n"
    for size in (1, 1000):
        pipeline = Pipeline(JSON)
        raw = event + behind
        out = b"".join(pipeline.feed(raw[at : at + size]) for at in range(0, len(raw), size)) + pipeline.close()
        assert out == event
        assert (pipeline.ledger.outcome, pipeline.ledger.code) == (Outcome.FAILED, FailureCode.UPSTREAM_ERROR)


def test_without_events_of_ours_the_hosts_own_error_is_passed_on() -> None:
    options = replace(StreamOptions(), done=(), require_done=False, own_events=False)
    pipeline = Pipeline(options)
    raw = b'data: Hi. \n\ndata: {"error":"x"}\n\n'
    assert pipeline.feed(raw) + pipeline.close() == raw
    assert pipeline.ledger.code is FailureCode.UPSTREAM_ERROR


# ---- the marker at the end of what came ----


@pytest.mark.parametrize("dialect", [Dialect.AUTO, Dialect.SINGLE_PREFIX, Dialect.LINES])
def test_half_a_character_behind_a_marker_makes_it_text(dialect: Dialect) -> None:
    pipeline = Pipeline(StreamOptions(dialect=dialect))
    out = pipeline.feed(b"data: Hi. \n\ndata: [DONE]\xc2") + pipeline.close()
    assert pipeline.ledger.code is FailureCode.UPSTREAM_INCOMPLETE
    assert "[DONE]" not in data_of(out)


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_marker_that_may_go_on_waits_for_no_clock(end: bytes) -> None:
    pipeline = Pipeline(StreamOptions(dialect=Dialect.SINGLE_PREFIX))
    out = pipeline.feed(b"data: So\n\ndata: [DONE]" + end, 1.0)
    while pipeline.wants_tick_at is not None:
        out += pipeline.tick(pipeline.wants_tick_at)
    assert not pipeline.finished
    out += pipeline.feed(b" is the marker. \n\ndata: [DONE]\n\n", 9.0)
    *text, last = data_of(out)
    assert "".join(text) == "So\n\ndata: [DONE]" + end.decode() + " is the marker. "
    assert last == "[DONE]"


# ---- the white space of an old splitter ----


@pytest.mark.parametrize(
    "tokens", [[".", "NET", " is ok."], ["3.", "14", " is pi."], ["U.", "S.", "A"], ["Hi!", "!", "!"], ["So.", ", no"]]
)
def test_nothing_is_put_between_tokens(tokens: list[str]) -> None:
    pipeline = Pipeline(StreamOptions(dialect=Dialect.STANDARD))
    raw = HEAD + b"".join(f"data: {token}\n\n".encode() for token in tokens) + b"data: [DONE]\n\n"
    assert "".join(data_of(pipeline.feed(raw))[1:-1]) == "".join(tokens)
    assert RepairKind.WHITESPACE_RESTORED not in pipeline.ledger.repairs


@pytest.mark.parametrize(
    ("frames", "answer"),
    [(["Sure!", "Here it is.", "1.", "Play."], "Sure! Here it is.\n\n1. Play."), (["Hi!", "Yes."], "Hi! Yes.")],
)
def test_sentences_get_their_white_space_back(frames: list[str], answer: str) -> None:
    pipeline = Pipeline(StreamOptions(dialect=Dialect.STANDARD))
    raw = HEAD + b"".join(f"data: {frame}\n\n".encode() for frame in frames) + b"data: [DONE]\n\n"
    assert "".join(data_of(pipeline.feed(raw))[1:-1]) == answer


# ---- the account ----


def test_a_line_break_at_a_chunks_end_is_a_repair_of_the_broken_writer() -> None:
    pipeline = Pipeline(StreamOptions())
    raw = b"data: - a.\n\n\ndata: - b.\n\n\ndata: - c.\n\ndata: [DONE]\n\n"
    out = pipeline.feed(raw) + pipeline.close()
    assert data_of(out) == ["- a.\n", "- b.\n", "- c.", "[DONE]"]
    assert pipeline.ledger.repairs == {RepairKind.EXCESS_BLANK_LINE: 2}


def test_a_whole_answer_keeps_its_first_event_whatever_that_holds() -> None:
    pipeline = Pipeline(StreamOptions())
    out = pipeline.deliver('{"agentId":"theory"}', "Hi. There")
    assert data_of(out) == ['{"agentId":"theory"}', "Hi. ", "There", "[DONE]"]
