"""A stream that breaks off anywhere: what arrived is there, one error event ends it, and it never looks whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sse_proxy.core import Chunker, Dialect, Outcome, Payload, Reader, Split, StreamOptions
from sse_proxy.demo.wire import DONE, SPLITTERS, split_743, write_gaapi, write_gachatbot
from sse_proxy.errors import FailureCode
from tests.core.oracle import in_band_marker, looks_framed
from tests.core.streams import ROUTING, Result, repair
from tests.strategies import answers, benign_answers, normalised

CUT = FailureCode.UPSTREAM_TRUNCATED
WIRES = sorted((Path(__file__).parents[1] / "vectors" / "wire").glob("*.sse"))


def check_cut(raw: bytes, at: int, want: str, options: StreamOptions, fail: FailureCode | None) -> Result | None:
    """Break a wire off behind `at` bytes; return None where that is a complete stream."""
    result = repair(raw[:at], options, fail=fail)
    marker = raw.rindex(b"data: [DONE]") + len(b"data: [DONE]")
    if result.ledger.outcome is Outcome.COMPLETE:
        if at >= marker:  # inside the blank line behind the marker, or behind it
            assert result.text == want
        else:  # an answer that holds the marker itself, cut right behind it (and inside the character that follows)
            assert fail is None
            assert raw[:at].decode("utf-8", "ignore").rstrip("\r\n ").endswith(DONE)
        return None
    assert fail is None or at < len(raw)
    assert result.events[-1].type == "error"
    assert [event.type for event in result.events].count("error") == 1
    assert DONE not in result.data
    assert want.startswith(result.text)
    error = result.error
    assert error is not None
    assert error["code"] == result.ledger.code
    return result


@settings(max_examples=25)
@given(
    answers(10),
    st.sampled_from([write_gaapi, write_gachatbot]),
    st.sampled_from([Dialect.AUTO, None]),
    st.sampled_from(Split),
    st.sampled_from([b"\n", b"\n", b"\r\n"]),
)
def test_any_stream_broken_off_at_any_byte_is_a_beginning(
    answer: str,
    write: Callable[[Iterable[str]], list[bytes]],
    dialect: Dialect | None,
    split: Split,
    line_end: bytes,
) -> None:
    broken = write is write_gaapi
    answer = answer if broken else normalised(answer)
    assume(not (broken and dialect is Dialect.AUTO and looks_framed(answer)))
    chunks = split_743(answer)
    assume(not any(in_band_marker(chunk) or chunk.strip(" ") == DONE for chunk in chunks))
    raw = b"".join(write([ROUTING, *chunks, DONE]))
    raw = raw if broken else raw.replace(b"\n", line_end)
    own = Dialect.SINGLE_PREFIX if broken else Dialect.STANDARD
    options = StreamOptions(dialect=dialect or own, split=split, restore_whitespace=False)
    for at, fail in product(range(len(raw)), (CUT, None)):
        check_cut(raw, at, normalised(answer), options, fail)


@settings(max_examples=25)
@given(benign_answers(10), st.integers(1, 5))
def test_a_right_stream_of_tokens_broken_off_at_any_byte_is_a_beginning(answer: str, size: int) -> None:
    tokens = [answer[at : at + size] for at in range(0, len(answer), size)]
    assume(DONE not in answer)
    raw = b"".join(write_gachatbot([ROUTING, *tokens, DONE]))
    for at, fail in product(range(len(raw)), (CUT, None)):
        check_cut(raw, at, answer, StreamOptions(restore_whitespace=False), fail)


@pytest.mark.parametrize("fail", [CUT, None], ids=["failed", "closed"])
@pytest.mark.parametrize("auto", [True, False], ids=["auto", "own"])
@pytest.mark.parametrize("wire", WIRES, ids=lambda path: path.name)
def test_the_hosts_own_wires_broken_off_at_every_byte(wire: Path, auto: bool, fail: FailureCode | None) -> None:
    name, chunks, writer, _ = wire.name.split(".")
    answer = (wire.parent / f"{name}.answer.txt").read_bytes().decode()
    raw = wire.read_bytes()
    dialect = Dialect.AUTO if auto else Dialect.SINGLE_PREFIX if writer == "gaapi" else Dialect.STANDARD
    options = StreamOptions(dialect=dialect, restore_whitespace=False)
    want = normalised("".join(SPLITTERS[chunks](answer)))
    head = raw.index(b"\n\n") + 2
    last = 0
    for at in range(len(raw)):
        result = check_cut(raw, at, want, options, fail)
        if result is None:
            continue
        if at < head:
            assert result.text == ""
        elif name != "sse-lesson":
            # What arrived is there, but for a partial `data: `, the marker's beginning and line ends.
            framed = raw[head:at].decode("utf-8", "ignore")
            arrived = sum(map(str.isalnum, framed)) - 4 * framed.count("data: ")
            assert sum(map(str.isalnum, result.text)) >= arrived - len("data[DONE]")
        last = at
    assert last > head


def test_a_cut_in_a_weak_boundary_drops_what_is_undecided() -> None:
    raw = b"".join(write_gachatbot([ROUTING, "One. ", "two", "three"]))
    result = repair(raw, StreamOptions(), fail=CUT)
    assert result.text == "One. two"
    assert result.repairs == {"undecided_dropped": 1}
    assert result.ledger.dropped_bytes > 0


def test_what_is_held_of_an_event_too_large_counts_as_text_of_an_unfinished_frame() -> None:
    options = StreamOptions(dialect=Dialect.STANDARD, max_event_bytes=100, max_chunk_bytes=100)
    result = repair(b"data: One. \n\ndata: " + b"x" * 200, options)
    assert result.ledger.code is FailureCode.EVENT_TOO_LARGE
    assert result.text.startswith("One. xxx")
    assert result.error is not None
    assert (result.error["status"], result.error["retryable"]) == (502, False)


@pytest.mark.parametrize("payload", [Payload.JSON, Payload.OPAQUE])
@pytest.mark.parametrize("dialect", [Dialect.STANDARD, Dialect.AUTO, Dialect.SINGLE_PREFIX, Dialect.LINES])
def test_half_an_event_of_another_payload_is_not_passed_on(dialect: Dialect, payload: Payload) -> None:
    options = StreamOptions(dialect=dialect, payload=payload, chunker=Chunker.ANY, split=Split.NONE, done=())
    raw = b'data: {"a":1}\n\ndata: {"b":2}\n\n'
    for at in range(len(raw) - 1):
        result = repair(raw[:at], options, fail=CUT)
        assert result.data[:-1] in ([], ['{"a":1}'], ['{"a":1}', '{"b":2}'])


@pytest.mark.parametrize("reader", Reader)
def test_an_error_event_says_what_and_nothing_else(reader: Reader) -> None:
    options = StreamOptions(reader=reader, request_id="r-1", error_retry_ms=5000, error_event=None)
    result = repair(b"data: x", options, fail=FailureCode.UPSTREAM_STALLED)
    assert result.out.endswith(
        b'retry: 5000\ndata: {"error":"The chat service failed. Please try again.","code":"upstream_stalled",'
        b'"status":504,"retryable":true,"requestId":"r-1"}\n\n'
    )


def test_without_events_of_our_own_a_failure_is_in_the_ledger_alone() -> None:
    options = StreamOptions(own_events=False)
    result = repair(b"data: One. two", options, fail=CUT)
    assert result.out == b"data: One. \n\ndata: two\n\n"
    assert result.ledger.code is CUT
