"""What holds for any answer and any bytes, in every dialect and for every reader."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from sse_proxy.core import Chunker, Dialect, Outcome, Payload, Pipeline, Reader, RepairKind, Split, StreamOptions
from sse_proxy.core.unicode import JS_TRIMMED
from sse_proxy.demo.wire import DONE, split_743, write_gaapi, write_gachatbot
from sse_proxy.errors import FailureCode
from tests.core.oracle import in_band_marker
from tests.core.streams import ROUTING, Cuts, Result, read_standard, repair, whole
from tests.strategies import answers, benign_answers, cuts, garbage, normalised, streams

ENDS = [None, FailureCode.UPSTREAM_TRUNCATED]
GRID = list(itertools.product(Dialect, Payload, Split, Reader, Chunker))


@st.composite
def options(draw: st.DrawFn, /, **fixed: Any) -> StreamOptions:
    """Any settings that can be combined, small limits among them."""
    dialect, payload, split, reader, chunker = draw(st.sampled_from(GRID))
    done = draw(st.sampled_from([(DONE,), (DONE,), (), ("[DONE]", "END")]))
    values: dict[str, Any] = {
        "dialect": dialect,
        "payload": payload,
        "split": split,
        "reader": reader,
        "chunker": chunker,
        "done": done,
        "require_done": bool(done),
        "own_events": draw(st.booleans()),
        "restore_whitespace": draw(st.booleans()),
        "strip_double_prefix": draw(st.booleans()),
        "max_event_bytes": draw(st.sampled_from([16 << 20, 16 << 20, 500, 60])),
        "max_chunk_bytes": draw(st.sampled_from([64 << 10, 40, 8])),
        "end_types": ("RUN_FINISHED",),
        "error_types": ("RUN_ERROR",),
    }
    return StreamOptions(**(values | fixed))


def steps_of(size: int) -> Cuts:
    """Cut into chunks of one size."""
    return lambda raw: [raw[at : at + size] for at in range(0, len(raw), size)]


def is_control(chunk: str) -> bool:
    """Whether a reader may take a chunk for the marker, the routing object or an error object."""
    if chunk.strip() == DONE:
        return True
    try:
        value = json.loads(chunk.strip())
    except ValueError:
        return False
    return isinstance(value, dict) and ("type" in value or "error" in value)


# ---- cuts ----


@given(options(), st.one_of(streams(), garbage()), cuts(), st.sampled_from(ENDS))
def test_output_and_account_depend_on_the_bytes_alone(
    options: StreamOptions, raw: bytes, cuts: Cuts, fail: FailureCode | None
) -> None:
    results = [repair(raw, options, each, fail=fail) for each in (whole, cuts, steps_of(1))]
    first = results[0]
    for other in results[1:]:
        assert other.out == first.out
        assert other.repairs == first.repairs
        same = dict(first.account)
        if "\ufffd" in raw.decode("utf-8", "replace"):
            # What is dropped undecoded counts its own bytes, what is dropped behind the decoder three for U+FFFD.
            same["dropped_bytes"] = other.account["dropped_bytes"]
        assert other.account == same


@given(options(), garbage(), cuts(), st.sampled_from(ENDS))
def test_any_bytes_end_in_an_outcome_and_whole_events(
    options: StreamOptions, raw: bytes, cuts: Cuts, fail: FailureCode | None
) -> None:
    pipeline = Pipeline(options)
    now = 0.0
    parts = []
    for chunk in cuts(raw):
        parts += [pipeline.feed(chunk, now), pipeline.tick(now + 0.1), pipeline.tick(now + 0.3)]
        now += 0.5
    parts.append(pipeline.close(now) if fail is None else pipeline.fail(fail, now=now))
    for part in parts:
        assert not part or part.endswith(b"\n\n")
    out = b"".join(parts)
    out.decode("utf-8")
    ledger = pipeline.ledger
    assert pipeline.finished
    assert pipeline.wants_tick_at is None
    assert ledger.outcome in (Outcome.COMPLETE, Outcome.FAILED)
    assert (ledger.code is not None) == (ledger.outcome is Outcome.FAILED)
    assert ledger.bytes_out == len(out)
    assert ledger.bytes_in == len(raw)
    assert ledger.events_out == len([block for block in out.split(b"\n\n") if b"data: " in block])
    json.dumps(ledger.as_dict())


@given(options(reader=Reader.STANDARD), st.one_of(streams(), garbage()))
def test_output_is_a_right_stream(options: StreamOptions, raw: bytes) -> None:
    out = repair(raw, options).out
    assert b"\r" not in out
    for line in out.split(b"\n"):
        assert not line or line.startswith((b"data: ", b"event: ", b"id: ", b"retry: ", b":"))
    strict = StreamOptions(
        dialect=Dialect.STANDARD, payload=Payload.OPAQUE, split=Split.NONE, done=(), require_done=False
    )
    again = repair(out, strict)
    assert again.repairs == ({} if not out.startswith(b"\xef\xbb\xbf") else {"bom": 1})
    assert again.out == out


# ---- chunks ----


def settings_of_chunks() -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {"split": st.sampled_from(Split), "max_chunk_bytes": st.sampled_from([64 << 10, 40, 8])}
    )


def broken(answer: str) -> bytes:
    """The wire of GaApi's writer, sentence by sentence."""
    return b"".join(write_gaapi([ROUTING, *split_743(answer), DONE]))


@given(answers(), settings_of_chunks(), cuts())
@example('{"type":"x"}. {"error":"x"}', {}, whole)
def test_chunks_joined_are_the_answer_and_none_is_a_control_event(
    answer: str, settings: dict[str, Any], cuts: Cuts
) -> None:
    assume(not any(map(in_band_marker, split_743(answer))))
    result = repair(broken(answer), StreamOptions(dialect=Dialect.SINGLE_PREFIX, **settings), cuts)
    assert result.text == normalised(answer)
    assert result.ledger.text_chars == len(normalised(answer))
    assert not any(map(is_control, result.chunks))
    assert all(result.chunks)


def ga_client_chunks(result: Result) -> list[str]:
    """The data of each event but the routing object and the marker, read one line an event."""
    blocks = result.out.decode().split("\n\n")
    assert blocks.pop() == ""
    for block in blocks:
        assert block.startswith("data: ")
        assert "\n" not in block
    assert (blocks[0], blocks[-1]) == (f"data: {ROUTING}", f"data: {DONE}")
    return [block.removeprefix("data: ") for block in blocks[1:-1]]


@given(answers(), settings_of_chunks(), cuts())
@example(" \n\n \n", {"split": Split.LINE}, whole)
@example("One. {two} three.\n\n{\n{\n[DONE]", {}, whole)
@example("[DONE]! x", {}, whole)
def test_a_ga_client_chunk_survives_trimming_and_is_one_line(answer: str, settings: dict[str, Any], cuts: Cuts) -> None:
    assume(not any(map(in_band_marker, split_743(answer))))
    options = StreamOptions(dialect=Dialect.SINGLE_PREFIX, reader=Reader.GA_CLIENT, **settings)
    chunks = ga_client_chunks(repair(broken(answer), options, cuts))
    assert "".join(chunks).replace("\r", "\n") == normalised(answer)
    for left, right in itertools.pairwise(chunks):
        assert left[-1] not in JS_TRIMMED
        assert right[0] not in JS_TRIMMED
        assert right[0] != "{"
    assert not any(map(is_control, chunks[1:]))
    assert not any(chunk.strip() == DONE for chunk in chunks)


@given(answers(), cuts())
def test_an_answer_of_ga_clients_that_begins_with_a_brace_is_counted(answer: str, cuts: Cuts) -> None:
    answer = " {" + answer
    assume(not any(map(in_band_marker, split_743(answer))))
    result = repair(broken(answer), StreamOptions(dialect=Dialect.SINGLE_PREFIX, reader=Reader.GA_CLIENT), cuts)
    assert result.repairs["chunk_moved"] >= 1


@given(answers(), st.sampled_from([8, 40]), cuts())
def test_no_chunk_is_longer_than_max_chunk(answer: str, most: int, cuts: Cuts) -> None:
    assume(not any(map(in_band_marker, split_743(answer))))
    for split in (Split.SENTENCE, Split.LINE):
        options = StreamOptions(dialect=Dialect.SINGLE_PREFIX, split=split, max_chunk_bytes=most)
        assert all(len(chunk.encode()) <= most for chunk in repair(broken(answer), options, cuts).chunks)


@given(answers(), cuts())
def test_split_line_cuts_after_each_line_feed_alone(answer: str, cuts: Cuts) -> None:
    assume(not any(map(in_band_marker, split_743(answer))))
    result = repair(broken(answer), StreamOptions(dialect=Dialect.SINGLE_PREFIX, split=Split.LINE), cuts)
    assume("chunk_moved" not in result.repairs)
    assert result.chunks == [line for line in re.split(r"(?<=\n)", normalised(answer)) if line]


# ---- time ----


@given(answers(), settings_of_chunks(), st.sampled_from(Reader), cuts(), st.lists(st.floats(0, 0.19), min_size=1))
def test_a_clock_adds_cuts_and_changes_no_text(
    answer: str, settings: dict[str, Any], reader: Reader, cuts: Cuts, pauses: list[float]
) -> None:
    """Pauses below the second after which a control event counts as the last one."""
    assume(not any(map(in_band_marker, split_743(answer))))
    pipeline = Pipeline(StreamOptions(dialect=Dialect.SINGLE_PREFIX, reader=reader, **settings))
    now, out = 0.0, b""
    for chunk, pause in zip(cuts(broken(answer)), itertools.cycle(pauses)):
        out += pipeline.feed(chunk, now)
        before = now
        now += min(pause, 0.9)
        if pause > 0.05 and pipeline.wants_tick_at is not None and now - before < 0.9:
            out += pipeline.tick(now)
    out += pipeline.close(now)
    text = "".join(event.data for event in read_standard(out)[0][1:-1])
    if reader is Reader.GA_CLIENT:
        text = "".join(block.removeprefix("data: ") for block in out.decode().split("\n\n")[1:-2]).replace("\r", "\n")
    assert text == normalised(answer)


@given(benign_answers(), cuts(), st.integers(1, 9))
def test_a_right_stream_keeps_its_text_with_a_tick_after_every_chunk(answer: str, cuts: Cuts, step: int) -> None:
    tokens = [answer[at : at + step] for at in range(0, len(answer), step)]
    pipeline = Pipeline(StreamOptions(restore_whitespace=False))
    out, now = b"", 0.0
    for chunk in cuts(b"".join(write_gachatbot([ROUTING, *tokens, DONE]))):
        out += pipeline.feed(chunk, now)
        now += 0.5
        out += pipeline.tick(now)
    out += pipeline.close(now)
    assert "".join(event.data for event in read_standard(out)[0][1:-1]) == answer


# ---- sizes ----


@pytest.mark.parametrize("reader", Reader)
@pytest.mark.parametrize("payload", Payload)
@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize(
    "endless",
    [
        *(b"x", b" ", b"\n", b"data: \n", b"data: x\n", b"data: a\n\ndata: ", b": comment", b"id: 7\n", b"\xf0"),
        *(b'data: {"type":"', b'data: {"error":"', b"data: [DONE]   ", b"data: x\n\n", b"data: {\n{\n", b"data: x\r"),
        b'{"a":',
    ],
)
def test_what_is_held_is_bounded(endless: bytes, dialect: Dialect, payload: Payload, reader: Reader) -> None:
    limit = 2000
    options = StreamOptions(
        dialect=dialect,
        payload=payload,
        reader=reader,
        split=Split.NONE,
        max_event_bytes=limit,
        max_chunk_bytes=100,
        done=(),
        require_done=False,
    )
    pipeline = Pipeline(options)
    raw = endless * (20 * limit // len(endless))
    fed = out = 0
    for at in range(0, len(raw), 50):
        out += len(pipeline.feed(raw[at : at + 50]))
        fed += 50
        if pipeline.finished:
            break
        assert pipeline._held() <= limit
    if pipeline.ledger.code is FailureCode.EVENT_TOO_LARGE:
        assert fed > limit
        assert RepairKind.AFTER_MARKER not in pipeline.ledger.repairs


@pytest.mark.parametrize("size", [59, 60, 61, 62])
@pytest.mark.parametrize("dialect", [Dialect.STANDARD, Dialect.AUTO, Dialect.LINES])
def test_an_event_is_too_large_at_the_same_place_at_any_cut(dialect: Dialect, size: int) -> None:
    raw = b"data: ok\n\n" + b"data: " + b"x" * (size - 6) + b"\n\ndata: [DONE]\n\n"
    options = StreamOptions(dialect=dialect, payload=Payload.OPAQUE, max_event_bytes=60)
    results = [repair(raw, options, steps_of(n)) for n in (1, 2, 7, 59, 60, 61, 200)]
    assert {result.out for result in results} == {results[0].out}
    if dialect is not Dialect.AUTO:  # which holds line ends as well
        assert (results[0].ledger.code is FailureCode.EVENT_TOO_LARGE) == (size > 60)
