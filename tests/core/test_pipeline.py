"""The pipeline as a whole: its clocks, its ends, a whole answer that came as JSON, and its account."""

from __future__ import annotations

import pytest

from sse_proxy.core import Dialect, Outcome, Payload, Pipeline, Reader, RepairKind, Split, StreamOptions
from sse_proxy.errors import FailureCode, StreamClosed
from tests.core.streams import ROUTING, read_standard, repair

STANDARD = StreamOptions(dialect=Dialect.STANDARD)
DONE = b"data: [DONE]\n\n"
ROUTED = f"data: {ROUTING}\n\n".encode()


# ---- clocks ----


def test_a_piece_of_a_sentence_waits_max_hold_and_no_longer() -> None:
    pipeline = Pipeline(STANDARD)
    assert pipeline.feed(b"data: One. Two\n\n", 5.0) == b"data: One. \n\n"
    assert pipeline.wants_tick_at == pytest.approx(5.2)
    assert pipeline.feed(b"data:  and\n\n", 5.1) == b""
    assert pipeline.wants_tick_at == pytest.approx(5.2)  # not put off by what follows
    assert pipeline.tick(5.19) == b""
    assert pipeline.tick(5.2) == b"data: Two and\n\n"
    assert pipeline.wants_tick_at is None
    assert pipeline.feed(b"data:  three. \n\n", 6.0) == b"data:  three. \n\n"
    assert pipeline.wants_tick_at is None


def test_an_error_object_waits_a_second_to_be_the_last_event() -> None:
    raw = b'data: One. \n\ndata: {"error":"x"}\n\n'
    pipeline = Pipeline(STANDARD)
    assert pipeline.feed(raw, 1.0) == b"data: One. \n\n"
    assert pipeline.wants_tick_at == pytest.approx(2.0)
    assert pipeline.tick(1.9) == b""
    assert b'"code":"upstream_error"' in pipeline.tick(2.0)
    assert pipeline.finished
    text = Pipeline(STANDARD)
    text.feed(raw, 1.0)
    assert text.feed(DONE, 1.5) == b'data: {\n\ndata: "error":"x"}\n\n' + DONE


def test_a_tick_without_need_does_nothing() -> None:
    pipeline = Pipeline(STANDARD)
    assert pipeline.tick(100.0) == b""
    pipeline.feed(DONE)
    assert pipeline.tick(100.0) == b""


def test_when_the_first_text_left_is_told() -> None:
    pipeline = Pipeline(STANDARD, started_at=10.0)
    pipeline.feed(f"data: {ROUTING}\n\n".encode(), 11.0)
    assert pipeline.ledger.first_text_s is None
    pipeline.feed(b"data: One. \n\n", 12.5)
    pipeline.feed(b"data: Two. \n\n", 13.0)
    assert pipeline.ledger.first_text_s == pytest.approx(2.5)
    json = Pipeline(StreamOptions(payload=Payload.JSON), started_at=10.0)
    json.feed(b'data: {"a":1}\n\n', 10.5)
    assert json.ledger.first_text_s == pytest.approx(0.5)


def test_a_keepalive_is_counted_and_a_comment_is_not() -> None:
    pipeline = Pipeline(StreamOptions(keepalive_text="ka"))
    assert pipeline.keepalive() == b": ka\n\n"
    assert pipeline.comment() == b": ka\n\n"
    assert pipeline.ledger.keepalives == 1
    assert pipeline.ledger.bytes_out == 12
    assert Pipeline(StreamOptions(keepalive_blank_line=False)).keepalive() == b": keep-alive\n"


# ---- ends ----


def test_the_marker_is_sent_once_and_last() -> None:
    pipeline = Pipeline(STANDARD)
    assert pipeline.feed(b"data: One\n\n" + DONE + b"data: more\n\n" + DONE) == b"data: One\n\n" + DONE
    assert pipeline.finished
    assert pipeline.ledger.outcome is Outcome.COMPLETE
    assert pipeline.ledger.repairs == {RepairKind.AFTER_MARKER: 1}
    assert pipeline.ledger.dropped_bytes == len(b"data: more\n\n" + DONE)
    assert pipeline.feed(b"x") == b""
    assert pipeline.close() == b""
    assert pipeline.fail(FailureCode.INTERNAL) == b""
    assert pipeline.ledger.outcome is Outcome.COMPLETE


@pytest.mark.parametrize("rest", [b"", b"\n", b"\r\n\n"])
def test_blank_lines_behind_the_marker_are_nothing(rest: bytes) -> None:
    assert repair(b"data: a\n\n" + DONE + rest, STANDARD).repairs == {}


def test_what_follows_the_end_in_the_same_packet_is_not_even_read() -> None:
    for end, options in (
        (DONE, STANDARD),
        (b"event: error\ndata: x\n\n", STANDARD),
        (b'data: {"type":"RUN_FINISHED"}\n\n', StreamOptions(payload=Payload.JSON, end_types=("RUN_FINISHED",))),
    ):
        junk = b"junk\nretry: x\nid: \0\n\xff\xfe\n\n"
        result = repair(end + junk, options)
        assert set(result.repairs) <= {"after_marker"}
        assert result.ledger.dropped_bytes == len(junk)


@pytest.mark.parametrize("at", range(len(DONE) + 1))
def test_nor_is_it_where_the_marker_came_in_two_packets(at: int) -> None:
    raw = b"data: One. \n\n" + DONE + b"junk\nretry: x\n\n"
    cut = len(b"data: One. \n\n") + at
    for dialect in (Dialect.STANDARD, Dialect.AUTO, Dialect.SINGLE_PREFIX):
        result = repair(raw, StreamOptions(dialect=dialect), lambda raw: [raw[:cut], raw[cut:]])
        assert result.repairs == {"after_marker": 1}
        assert result.ledger.dropped_bytes == len(b"junk\nretry: x\n\n")


def test_feeding_a_closed_stream_is_misuse() -> None:
    pipeline = Pipeline(StreamOptions(done=(), require_done=False))
    pipeline.close()
    assert pipeline.feed(b"x") == b""  # it is finished: dropped and counted
    with pytest.raises(StreamClosed):
        pipeline.deliver("", "x")


def test_a_clean_end_without_marker_is_incomplete() -> None:
    result = repair(b"data: One. Two\n\n", STANDARD)
    assert result.ledger.code is FailureCode.UPSTREAM_INCOMPLETE
    assert result.text == "One. Two"
    assert result.error is not None
    assert result.error["retryable"] is True


def test_end_and_error_types_of_json() -> None:
    options = StreamOptions(
        payload=Payload.JSON, split=Split.NONE, done=(), end_types=("RUN_FINISHED",), error_types=("RUN_ERROR",)
    )
    end = repair(b'data: {"type":"A"}\n\ndata: {"type":"RUN_FINISHED"}\n\ndata: {"type":"B"}\n\n', options)
    assert end.data == ['{"type":"A"}', '{"type":"RUN_FINISHED"}']
    assert end.ledger.outcome is Outcome.COMPLETE
    for last in ('{"type":"RUN_ERROR","message":"x"}', '{"error":{"message":"x"}}'):
        failed = repair(f'data: {{"type":"A"}}\n\ndata: {last}\n\n'.encode(), options)
        assert failed.data == ['{"type":"A"}', last]  # passed on unchanged, none of ours behind it
        assert failed.ledger.code is FailureCode.UPSTREAM_ERROR
    text = repair(b'data: {"content":"RUN_FINISHED \\"error\\""}\n\n', options)
    assert text.ledger.code is FailureCode.UPSTREAM_INCOMPLETE


def test_an_upstreams_own_status_and_message_are_told() -> None:
    pipeline = Pipeline(STANDARD)
    out = pipeline.fail(
        FailureCode.UPSTREAM_HTTP_ERROR, status=418, retryable=False, message="Try tea.", detail="x" * 5000
    )
    assert b'{"error":"Try tea.","code":"upstream_http_error","status":418,"retryable":false}' in out
    assert len(pipeline.ledger.log_detail) == 2048
    assert pipeline.ledger.code is FailureCode.UPSTREAM_HTTP_ERROR


# ---- events that carry more than data ----


def test_an_id_goes_on_the_last_part_of_a_split_event() -> None:
    raw = b"id: 7\ndata: One. Two. \n\nid: 8\nevent: delta\ndata: Three. Four\n\n" + DONE
    assert repair(raw, STANDARD).out == (
        b"data: One. \n\nid: 7\ndata: Two. \n\n"
        b"event: delta\ndata: Three. \n\nevent: delta\nid: 8\ndata: Four\n\n" + DONE
    )


def test_an_id_without_data_is_passed_on_alone() -> None:
    raw = b"id: 7\n\nretry: 10\n\nid: 8\ndata:\n\n" + DONE
    assert repair(raw, STANDARD).out == b"id: 7\n\nretry: 10\n\nid: 8\n\n" + DONE


def test_a_routing_object_is_never_split_and_holds_no_cr() -> None:
    routing = '{"type":"routing","agentId":"a. B! C"}'
    assert repair(f"data: {routing}\n\n".encode() + DONE, STANDARD).data[0] == routing
    broken = b'data: {\r\n"type": "routing",\r"a": 1}\n\ndata: x\n\n' + DONE
    out = repair(broken, StreamOptions(dialect=Dialect.SINGLE_PREFIX)).out
    assert b"\r" not in out
    assert out.startswith(b'data: {\ndata: "type": "routing",\ndata: "a": 1}\n\n')


# ---- a whole answer as JSON ----


@pytest.mark.parametrize("reader", Reader)
def test_an_answer_that_came_as_json_is_a_whole_stream(reader: Reader) -> None:
    pipeline = Pipeline(StreamOptions(reader=reader))
    out = pipeline.deliver(ROUTING, "One.\r\nTwo. \ud83c Three")
    events = read_standard(out)[0]
    assert (events[0].data, events[-1].data) == (ROUTING, "[DONE]")
    text = "".join(block[6:] for block in out.decode().split("\n\n")[1:-2]) if reader is Reader.GA_CLIENT else ""
    text = text.replace("\r", "\n") or "".join(event.data for event in events[1:-1])
    assert text == "One.\nTwo. \ufffd Three"
    assert pipeline.finished
    assert pipeline.ledger.outcome is Outcome.COMPLETE
    with pytest.raises(StreamClosed):
        pipeline.deliver(ROUTING, "x")


@pytest.mark.parametrize("answer", ["[DONE]", '{"error":"x"}', '{"type":"x"}', "", "\n\ndata: x\n\n"])
def test_such_an_answer_may_hold_anything(answer: str) -> None:
    pipeline = Pipeline(StreamOptions())
    out = pipeline.deliver(ROUTING, answer)
    assert "".join(event.data for event in read_standard(out)[0][1:-1]) == answer
    assert pipeline.ledger.outcome is Outcome.COMPLETE


def test_without_a_marker_it_ends_all_the_same() -> None:
    pipeline = Pipeline(StreamOptions(done=(), require_done=False))
    assert pipeline.deliver("", "One. Two") == b"data: One. \n\ndata: Two\n\n"
    assert pipeline.finished


# ---- what is kept for a transcript ----


def test_a_kept_answer_is_what_was_written() -> None:
    pipeline = Pipeline(STANDARD, keep_answer=True)
    pipeline.feed(f"data: {ROUTING}\n\ndata: One. \n\ndata: Two\n\n".encode() + DONE)
    kept = pipeline.kept_answer()
    assert kept["answer"] == "One. Two"
    assert kept["meta"]["agentId"] == "theory"
    assert Pipeline(STANDARD).kept_answer() == {"answer": None}
    json = Pipeline(StreamOptions(payload=Payload.JSON), keep_answer=True)
    json.feed(b'data: {"a":1}\n\n' + DONE)
    assert json.kept_answer() == {"events": ['{"a":1}']}


def test_an_answer_too_long_is_not_kept() -> None:
    pipeline = Pipeline(StreamOptions(dialect=Dialect.STANDARD, max_event_bytes=2000), keep_answer=True)
    for _ in range(300):
        pipeline.feed(b"data: A sentence. \n\n")
    pipeline.feed(DONE)
    assert pipeline.kept_answer() == {"answer": None}


# ---- the first line of a stream, which a CR may still end ----


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("more", ["", "data: and a second{end}"])
def test_time_lets_the_first_line_go_and_its_end_still_tells_the_dialect(end: str, more: str) -> None:
    pipeline = Pipeline(StreamOptions(restore_whitespace=False))
    assert pipeline.feed(b"data: no sentence", 1.0) == b""
    assert pipeline.wants_tick_at == pytest.approx(1.2)
    out = pipeline.tick(1.2)
    assert out == b"data: no sentence\n\n"
    assert pipeline.wants_tick_at is None
    rest = f" yet{end}{more.format(end=end)}{end}data: next. {end}{end}data: [DONE]{end}{end}"
    out += pipeline.feed(rest.encode(), 2.0) + pipeline.close(2.0)
    events = [event.data for event in read_standard(out)[0]]
    assert events[-1] == "[DONE]"
    assert "".join(events[:-1]) == "no sentence yet" + ("\nand a second" if more else "") + "next. "
    assert pipeline.ledger.repairs == {}


def test_an_error_event_behind_a_frame_that_ends_no_sentence_is_an_error() -> None:
    pipeline = Pipeline(StreamOptions())
    out = pipeline.feed(b"data: One. \n\ndata: Two\n\nevent: error\ndata: Out of tokens\n\n")
    out += pipeline.close()
    assert pipeline.ledger.code == "upstream_error"
    assert "".join([event.data for event in read_standard(out)[0]][:-1]) == "One. Two"


# ---- right streams that are passed on one to one, many events at a time ----


def test_a_block_counts_and_writes_what_its_events_would() -> None:
    stream = b"data: a\ndata: b\n\ndata: \n\ndata:  c \n\n" * 3
    options = StreamOptions(
        dialect=Dialect.STANDARD, payload=Payload.OPAQUE, split=Split.NONE, done=("END",), require_done=True
    )
    whole, single = Pipeline(options, keep_answer=True), Pipeline(options, keep_answer=True)
    stream += b"data: END\n\n"
    out = b"".join(single.feed(stream[at : at + 1]) for at in range(len(stream)))
    assert whole.feed(stream) == out == stream
    assert whole.ledger.as_dict() == single.ledger.as_dict()
    assert whole.ledger.events_out == 10
    assert whole.kept_answer() == single.kept_answer() == {"events": ["a\nb", "", " c "] * 3}


# ---- what a clock lets go, and what never waits for one ----


@pytest.mark.parametrize("second", ['{"type":"x"}', '{"error":"x"}', "[DONE]"])
def test_the_rest_of_a_frame_that_time_has_begun_is_no_control_event(second: str) -> None:
    pipeline = Pipeline(StreamOptions())
    out = pipeline.feed(b"data: abc", 1.0) + pipeline.tick(1.2)
    out += pipeline.feed(f" more\r\ndata: {second}\r\n\r\ndata: [DONE]\r\n\r\n".encode(), 2.0)
    assert "".join(event.data for event in read_standard(out)[0][:-1]) == f"abc more\n{second}"
    assert pipeline.ledger.outcome is Outcome.COMPLETE


def test_comments_behind_a_sentence_are_passed_on_at_once() -> None:
    pipeline = Pipeline(StreamOptions(max_event_bytes=65536))
    out = pipeline.feed(ROUTED + b"data: Hi. \n\n: first\n\n", 1.0)
    assert out.endswith(b"data: Hi. \n\n: first\n\n")
    for _ in range(20_000):
        assert pipeline.feed(b": ping\n\n", 1.0) == b": ping\n\n"
    assert pipeline.feed(b"data: There. \n\ndata: [DONE]\n\n", 1.0).endswith(b"data: There. \n\ndata: [DONE]\n\n")
    assert pipeline.ledger.repairs == {}


def test_a_long_first_line_does_not_wait_for_its_end() -> None:
    for end in (b"\n", b"\r\n"):
        pipeline = Pipeline(StreamOptions())
        raw = b"data: " + b"One. " * 2000 + end + end + b"data: [DONE]" + end + end
        out = pipeline.feed(raw[:9000])
        assert out.count(b"data: One. \n\n") > 1000
        out += pipeline.feed(raw[9000:]) + pipeline.close()
        assert "".join(event.data for event in read_standard(out)[0]) == "One. " * 2000 + "[DONE]"
        byte_wise = Pipeline(StreamOptions())
        single = b"".join(byte_wise.feed(raw[at : at + 1]) for at in range(len(raw))) + byte_wise.close()
        assert single == out
        assert byte_wise.ledger.as_dict() == pipeline.ledger.as_dict()
