"""The stream's head: an event stream, an error as JSON, or no stream at all."""

from __future__ import annotations

import pytest

from sse_proxy.core import Dialect, Payload, Pipeline, Split, StreamOptions
from sse_proxy.core.events import Comment, Failure
from sse_proxy.core.head import StreamHead, host_message
from sse_proxy.errors import FailureCode
from tests.core.streams import repair

FRAMED = [Dialect.AUTO, Dialect.SINGLE_PREFIX, Dialect.STANDARD]
BYTEWISE = pytest.mark.parametrize("step", [1, 1 << 20], ids=["bytewise", "whole"])


def options(dialect: Dialect) -> StreamOptions:
    return StreamOptions(dialect=dialect, known_messages=("busy: 1",))


@BYTEWISE
@pytest.mark.parametrize("dialect", FRAMED)
@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('{"error":"Service is busy"}', "Service is busy"),
        (' \t{"error":"Service is busy"}', "Service is busy"),
        ('\n\r\n{\n "error": "Service is busy"\n}\n', "Service is busy"),
        ('{"error":{"code":400,"message":"context too long"}}', "context too long"),
        ('{"a":{"b":1},"error":"busy: 1"}', "busy: 1"),
        ('{"error":"at /srv/app"}', None),
        ('{"error":true}', None),
    ],
)
def test_a_bare_error_object_is_the_hosts_error(dialect: Dialect, body: str, message: str | None, step: int) -> None:
    result = repair(body.encode(), options(dialect), lambda raw: [raw[i : i + step] for i in range(0, len(raw), step)])
    assert result.ledger.code is FailureCode.UPSTREAM_ERROR
    assert result.error is not None
    assert result.error["error"] == (message or StreamOptions().error_message)
    assert result.ledger.frames_in == 0


@BYTEWISE
@pytest.mark.parametrize("dialect", FRAMED)
@pytest.mark.parametrize(
    "body",
    [
        *("<html><body>sorry</body></html>", '{"answer":"x"}', '{"error":null}', '{"error"', "[1]", "Hello", "   x"),
        *("{" * 3000, "\x1f\x8b\x08gzip"),
    ],
)
def test_another_body_is_no_event_stream(dialect: Dialect, body: str, step: int) -> None:
    result = repair(body.encode(), options(dialect), lambda raw: [raw[i : i + step] for i in range(0, len(raw), step)])
    assert result.ledger.code is FailureCode.UPSTREAM_NOT_EVENT_STREAM
    assert result.error is not None
    assert (result.error["status"], result.error["retryable"]) == (502, False)
    assert result.error["error"] == StreamOptions().error_message
    assert result.ledger.log_detail.startswith(body[:1])
    assert len(result.ledger.log_detail) <= 2048
    assert result.ledger.dropped_bytes == len(body.encode())


@pytest.mark.parametrize("dialect", FRAMED)
@pytest.mark.parametrize("body", ["", "\n\n", ": hi\n\n", ": hi", "dat", "ev"])
def test_an_empty_stream_is_empty(dialect: Dialect, body: str) -> None:
    assert repair(body.encode(), options(dialect)).ledger.code is FailureCode.UPSTREAM_EMPTY


def test_without_a_marker_nothing_at_all_is_complete() -> None:
    result = repair(b"", StreamOptions(done=(), require_done=False))
    assert (result.out, result.ledger.code) == (b"", None)


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("step", [1, 5, 100])
def test_comments_leave_before_the_first_event(line_end: str, step: int) -> None:
    head = StreamHead(lenient=False)
    text = f": one{line_end}{line_end}:two{line_end}data: x"
    items, rest = [], ""
    for at in range(0, len(text), step):
        got, more = head.feed(text[at : at + step])
        items += got
        rest += more
    assert items == [Comment(" one"), Comment("two")]
    assert rest == "data: x"
    assert head.decided
    assert head.first_line_ended_in_cr is (line_end != "\n")


def test_a_long_first_line_is_told_by_its_beginning() -> None:
    head = StreamHead(lenient=False)
    assert head.feed("dat") == ([], "")
    assert head.held == 3
    assert head.feed("a: " + "x" * 100_000) == ([], "data: " + "x" * 100_000)
    assert head.held == 0


def test_a_lenient_head_passes_all_on_and_judges_at_the_end() -> None:
    head = StreamHead(lenient=True)
    assert head.feed("<html>") == ([], "<html>")
    [failure] = head.close(nothing_came=True)
    assert isinstance(failure, Failure)
    assert failure.code is FailureCode.UPSTREAM_NOT_EVENT_STREAM
    assert head.close(nothing_came=False) == []


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({}, None),
        ({"error": None}, None),
        ({"error": False}, None),
        ({"error": "x"}, "x"),
        ({"error": ""}, ""),
        ({"error": {"message": "y"}}, "y"),
        ({"error": {"code": 1}}, ""),
        ({"error": 7}, ""),
        ({"error": [1]}, ""),
    ],
)
def test_what_an_error_says(value: dict[str, object], message: str | None) -> None:
    assert host_message(value) == message


def test_a_json_head_that_never_ends_is_given_up() -> None:
    pipeline = Pipeline(StreamOptions(payload=Payload.JSON, split=Split.NONE))
    for _ in range(40):
        pipeline.feed(b'{"a":"' * 10_000)
        if pipeline.finished:
            break
    assert pipeline.ledger.code is FailureCode.UPSTREAM_NOT_EVENT_STREAM


@BYTEWISE
def test_a_bare_error_object_is_told_before_the_stream_ends(step: int) -> None:
    pipeline = Pipeline(StreamOptions())
    body = b'{"a":{"b":"}"},"error":"Service is busy"}'
    out = b"".join(pipeline.feed(body[at : at + step]) for at in range(0, len(body), step))
    assert pipeline.finished
    assert b'"upstream_error"' in out
