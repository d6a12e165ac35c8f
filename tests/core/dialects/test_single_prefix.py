"""Dialect `single-prefix`: GaApi's writer, whatever its answers hold."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from sse_proxy.core import Chunker, Dialect, Outcome, Payload, Pipeline, Split, StreamOptions
from sse_proxy.core.control import MAX_ROUTING
from sse_proxy.demo.wire import DONE, split_743, write_gaapi
from sse_proxy.errors import FailureCode
from tests.core.oracle import in_band_marker, read_single_prefix
from tests.core.streams import ROUTING, Cuts, repair, whole
from tests.strategies import LINES, answers, cuts, normalised, tokens

OPTIONS = StreamOptions(dialect=Dialect.SINGLE_PREFIX)
NO_GUESS = StreamOptions(dialect=Dialect.SINGLE_PREFIX, restore_whitespace=False)
ANY = StreamOptions(dialect=Dialect.SINGLE_PREFIX, chunker=Chunker.ANY)
WIRES = Path(__file__).parents[2] / "vectors" / "wire"


def frames(*chunks: str) -> bytes:
    """Frames of GaApi's writer."""
    return b"".join(write_gaapi(chunks))


@given(answers(), cuts())
@example("Use this:\n\ndata: x\n\ndata: y. Then.\n\ndata: [DONE]", whole)
@example('{"error":"x"}', whole)
@example('Text. {"error":"x"}\n\n', whole)
@example("\r\n\r\r\n\x85\u2028.\r", whole)
def test_any_answer_comes_back_exactly(answer: str, cuts: Cuts) -> None:
    """The one exception is the in-band marker: there the answer ends, as it does for the host's own readers."""
    chunks = split_743(answer)
    ends = next((n for n, chunk in enumerate(chunks) if in_band_marker(chunk)), None)
    result = repair(frames(ROUTING, *chunks, DONE), OPTIONS, cuts)
    assert result.data[0] == ROUTING
    assert result.data[-1] == DONE
    assert result.ledger.outcome is Outcome.COMPLETE
    assert result.text == normalised("".join(chunks[:ends]))
    assert ("after_marker" in result.repairs) == (ends is not None)


@given(answers(), cuts())
def test_any_answer_without_a_routing_object_too(answer: str, cuts: Cuts) -> None:
    chunks = split_743(answer)
    assume(not any(map(in_band_marker, chunks)))
    assume(not answer.lstrip(" \t\r\n").startswith("{"))  # the first event may be the routing object
    assert repair(frames(*chunks, DONE), OPTIONS, cuts).text == normalised(answer)


@given(
    st.one_of(tokens(answers()), answers().map(split_743)),
    st.sampled_from([(DONE,), (DONE,), (), ('{"error":"x"}',), (DONE, "more")]),
    st.booleans(),
    cuts(),
)
def test_any_wire_reads_as_the_whole_buffer_reading_has_it(
    chunks: list[str], tail: tuple[str, ...], routing: bool, cuts: Cuts
) -> None:
    raw = frames(*[ROUTING] * routing, *chunks, *tail)
    want = read_single_prefix(raw.decode())
    result = repair(raw, NO_GUESS, cuts)
    check(want.text, want.end, result.text, result.ledger.code)


@given(st.lists(st.tuples(st.sampled_from(LINES), st.sampled_from(["\n", "\n\n", "\n\n\n"])).map("".join)), cuts())
def test_any_lines_read_as_the_whole_buffer_reading_has_them(lines: list[str], cuts: Cuts) -> None:
    raw = (f"data: {ROUTING}\n\n" + "".join(lines) + "data: [DONE]\n\n").encode()
    want = read_single_prefix(raw.decode())
    result = repair(raw, NO_GUESS, cuts)
    check(want.text, want.end, result.text, result.ledger.code)


def check(want: str, end: str, text: str, code: FailureCode | None) -> None:
    assert {None: "done", FailureCode.UPSTREAM_ERROR: "error"}.get(code, "open") == end
    if end == "open":  # what is undecided at the end need not be passed on
        assert normalised(want).startswith(text)
    else:
        assert text == normalised(want)


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        # LF LF `data: ` is text where no sentence ends, framing where one does.
        ("data: one\n\ndata: two. \n\ndata: three\n\n", "one\n\ndata: two. three"),
        ("data: one.\n\ndata: two\n\n", "one.two"),
        ("data: one!\u3000\x85\n\ndata: two\n\n", "one!\u3000\x85two"),
        ("data: one.\u200b\n\ndata: two\n\n", "one.\u200b\n\ndata: two"),  # no white space to .NET
        # The mark must be this frame's own: the empty frame behind a sentence has none.
        ("data: a. \n\ndata: \n\ndata: b. \n\n", "a. \n\ndata: b. "),
        # What looks like fields and comments is text.
        ("data: a\nid: 7\n: x\nevent: y\nretry: 1\ndata: z. \n\n", "a\nid: 7\n: x\nevent: y\nretry: 1\ndata: z. "),
        # LF here is U+000A alone.
        ("data: a.\r\n\r\ndata: b. \n\n", "a.\n\ndata: b. "),
        ("data:  two spaces. \n\n", " two spaces. "),
    ],
)
def test_what_ends_a_frame(raw: str, text: str) -> None:
    result = repair(f"data: {ROUTING}\n\n{raw}data: [DONE]\n\n".encode(), NO_GUESS)
    assert result.text == text
    assert result.ledger.outcome is Outcome.COMPLETE


def test_with_chunker_any_each_boundary_ends_a_frame() -> None:
    result = repair(frames(ROUTING, "to", "ken\n\nby", " token", DONE), ANY)
    assert result.text == "token\n\nby token"
    assert result.ledger.frames_in == 5


@pytest.mark.parametrize("tail", ["data: [DONE]", "data: [DONE]\n", "data:  [DONE]  \n\n", "[DONE]", "[DONE]\n"])
@pytest.mark.parametrize("text", ["A sentence. ", "no sentence"])
def test_a_marker_at_the_end_needs_no_blank_line_and_no_prefix(text: str, tail: str) -> None:
    result = repair(frames(ROUTING, text) + tail.encode(), OPTIONS)
    assert result.ledger.outcome is Outcome.COMPLETE
    assert result.text == text
    assert ("bare_marker" in result.repairs) == (not tail.endswith("\n\n"))
    assert result.data[-1] == DONE


def test_a_marker_inside_text_is_text() -> None:
    answer = "Say [DONE] now.\n[DONE]\nand\n\ndata: [DONE]\n\ngo on"
    assert repair(frames(ROUTING, *split_743(answer), DONE), OPTIONS).text == answer


def test_an_error_object_is_a_failure_only_at_the_end() -> None:
    error = '{"error":"Service is busy"}'
    failed = repair(frames(ROUTING, "Some. ", error), OPTIONS)
    assert failed.ledger.code is FailureCode.UPSTREAM_ERROR
    assert failed.error is not None
    assert failed.error["error"] == "Service is busy"
    assert failed.text == "Some. "
    text = repair(frames(ROUTING, "Some. ", error, DONE), OPTIONS)
    assert text.ledger.outcome is Outcome.COMPLETE
    assert text.text == "Some. " + error


@pytest.mark.parametrize("spaces", [1, 4000, 5000])
@pytest.mark.parametrize("step", [1, 7, 10000])
def test_a_long_head_is_decided_alike_at_any_cut(spaces: int, step: int) -> None:
    raw = frames(ROUTING, " " * spaces + "x", '{"error":"' + "y" * spaces, DONE)
    result = repair(raw, NO_GUESS, lambda raw: [raw[at : at + step] for at in range(0, len(raw), step)])
    assert result.text == " " * spaces + 'x\n\ndata: {"error":"' + "y" * spaces


@pytest.mark.parametrize("dialect", [Dialect.SINGLE_PREFIX, Dialect.AUTO])
@pytest.mark.parametrize("step", [60_000, 1 << 21])
def test_what_is_too_long_for_a_routing_object_is_text_and_leaves(dialect: Dialect, step: int) -> None:
    raw = b'data: x. \n\ndata: {"y":"' if dialect is Dialect.AUTO else b'data: {"y":"'
    raw += b"z" * (MAX_ROUTING + 100_000)
    pipeline = Pipeline(StreamOptions(dialect=dialect, restore_whitespace=False))
    out = b"".join(pipeline.feed(raw[at : at + step]) for at in range(0, len(raw), step))
    assert out.count(b"z") > MAX_ROUTING


def test_fields_of_the_first_frame_are_kept() -> None:
    raw = b"event: delta\nid: 7\r\nretry: 10\n\n" + frames(ROUTING, "a", DONE)
    out = repair(raw, OPTIONS).out
    assert out.startswith(b"id: 7\n\nretry: 10\n\ndata: {")


def test_a_redundant_prefix_is_taken_off_once_where_that_is_set() -> None:
    options = StreamOptions(dialect=Dialect.SINGLE_PREFIX, strip_double_prefix=True, restore_whitespace=False)
    raw = frames("data: data: a. ", "data: b. ", "c. ", DONE)
    for step in (1, 100):
        result = repair(raw, options, lambda raw, step=step: [raw[at : at + step] for at in range(0, len(raw), step)])  # type: ignore[misc]
        assert result.text == "data: a. b. c. "
        assert result.repairs["double_prefix"] == 2


def test_a_json_value_over_several_lines_is_one_event() -> None:
    options = StreamOptions(dialect=Dialect.SINGLE_PREFIX, payload=Payload.JSON, split=Split.NONE)
    result = repair(b'data: {\n  "a": [1,\n  2]\n}\n\ndata: {"b":2}\n\ndata: [DONE]\n\n', options)
    assert result.data == ['{\n  "a": [1,\n  2]\n}', '{"b":2}', DONE]
    assert result.repairs["split_json"] == 1


def test_text_leaves_as_it_arrives() -> None:
    pipeline = Pipeline(OPTIONS)
    head = pipeline.feed(frames(ROUTING))
    assert head == f"data: {ROUTING}\n\n".encode()
    assert pipeline.feed(b"data: One. Tw") == b"data: One. \n\n"
    assert pipeline.feed(b"o.\n") == b""
    assert pipeline.feed(b"Three") == b"data: Two.\ndata: \n\n"


def test_a_control_event_at_the_end_waits_a_second_for_it() -> None:
    pipeline = Pipeline(OPTIONS)
    pipeline.feed(frames(ROUTING, "no sentence", '{"error":"x"}'), 10.0)
    assert pipeline.tick(10.3) == b"data: no sentence\n\n"
    assert pipeline.wants_tick_at == pytest.approx(11.0)
    assert pipeline.tick(10.9) == b""
    assert b'{"error":"x","code":"upstream_error"' in pipeline.tick(11.1)
    assert pipeline.finished


@pytest.mark.parametrize("wire", sorted(WIRES.glob("*.743.gaapi.sse")), ids=lambda path: path.name)
def test_the_hosts_own_wires(wire: Path) -> None:
    answer = (wire.parent / (wire.name.split(".")[0] + ".answer.txt")).read_bytes().decode()
    result = repair(wire.read_bytes(), OPTIONS)
    assert result.chunks == split_743(normalised(answer))
    assert result.ledger.outcome is Outcome.COMPLETE
