"""Dialect `auto`: a right stream is a no-op, a broken one is read as what it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from sse_proxy.core import Chunker, Dialect, Outcome, Payload, Pipeline, Split, StreamOptions
from sse_proxy.demo.wire import DONE, SPLITTERS, split_743, write_gaapi, write_gachatbot
from sse_proxy.errors import FailureCode
from tests.core.oracle import CannotTell, in_band_marker, looks_framed, read_auto
from tests.core.streams import ROUTING, Cuts, repair, whole
from tests.strategies import LINES, answers, benign_answers, cuts, normalised, tokens

OPTIONS = StreamOptions()
NO_GUESS = StreamOptions(restore_whitespace=False)
WIRES = Path(__file__).parents[2] / "vectors" / "wire"


def right(*chunks: str) -> bytes:
    """Frames of the right writer."""
    return b"".join(write_gachatbot(chunks))


def is_marker(chunk: str) -> bool:
    """Whether a right writer's event of `chunk` is the marker for every reader."""
    return chunk.strip(" ") == DONE


def is_moved(chunk: str) -> bool:
    """Whether a chunk may not stand alone in our output: a reader could take it for a control event."""
    bare = chunk.strip("".join(map(chr, range(33))) + "\x85\xa0\u2028\u2029\u3000\ufeff")
    return bare == DONE or (bare.startswith("{") and bare.endswith("}"))


# ---- right streams ----


@given(answers().map(normalised), cuts())
@example("One.\n\ndata: two\n\n\nthree. \n", whole)
def test_a_right_stream_of_sentences_is_a_no_op(answer: str, cuts: Cuts) -> None:
    chunks = split_743(answer)
    assume(not any(map(is_marker, chunks)))
    raw = right(ROUTING, *chunks, DONE)
    result = repair(raw, OPTIONS, cuts)
    assert result.text == answer
    if not any(map(is_moved, chunks)):
        assert result.out == raw
        assert result.repairs == {}


@given(tokens(answers().map(normalised)), cuts())
def test_a_right_stream_of_tokens_keeps_its_text(chunks: list[str], cuts: Cuts) -> None:
    assume(not any(map(is_marker, chunks)))
    result = repair(right(ROUTING, *chunks, DONE), NO_GUESS, cuts)
    assert result.text == "".join(chunks)
    assert result.ledger.outcome is Outcome.COMPLETE
    assert set(result.repairs) <= {"chunk_moved"}
    assert result.ledger.dialect != Dialect.SINGLE_PREFIX


@given(tokens(answers().map(normalised)), cuts(), st.sampled_from([b"\r\n", b"\r"]))
def test_a_right_stream_with_other_line_ends_is_read_as_the_standard_has_it(
    chunks: list[str], cuts: Cuts, line_end: bytes
) -> None:
    assume(not any(map(is_marker, chunks)))
    result = repair(right(ROUTING, *chunks, DONE).replace(b"\n", line_end), NO_GUESS, cuts)
    assert result.text == "".join(chunks)
    assert result.ledger.dialect == Dialect.STANDARD


@given(tokens(benign_answers()), cuts())
def test_the_restorer_leaves_tokens_alone_from_the_first_that_ends_no_sentence(chunks: list[str], cuts: Cuts) -> None:
    """Only frames that all end in a mark may be an old splitter's: white space goes between those alone."""
    assume(not any(map(is_marker, chunks)))
    result = repair(right(ROUTING, *chunks, DONE), OPTIONS, cuts)
    sentences = 0
    for chunk in chunks[:-1]:
        if chunk[-1] not in ".!?":
            break
        sentences += 1
    settled = "".join(chunks[sentences:])
    assert result.text.endswith(settled)
    assert result.repairs.get("whitespace_restored", 0) <= sentences
    for chunk in chunks[:sentences]:
        assert chunk.strip() in result.text


# ---- broken streams ----


@given(benign_answers(), st.booleans(), cuts())
@example("- item\n- item. More.\n\n\nEnd", True, whole)
def test_a_broken_stream_of_markdown_comes_back_exactly(answer: str, windows: bool, cuts: Cuts) -> None:
    """The limit: an answer whose lines begin as an event stream's do, before anything proved the stream broken."""
    assume(not looks_framed(answer))
    written = answer.replace("\n", "\r\n") if windows else answer
    raw = b"".join(write_gaapi([ROUTING, *split_743(written), DONE]))
    result = repair(raw, OPTIONS, cuts)
    assert result.text == answer
    assert result.ledger.outcome is Outcome.COMPLETE
    assert result.chunks == split_743(answer)


@given(answers(), cuts())
def test_any_broken_stream_comes_back_exactly_but_for_lines_that_look_framed(answer: str, cuts: Cuts) -> None:
    chunks = split_743(answer)
    assume(not looks_framed(answer))
    assume(not any(map(in_band_marker, chunks)))
    assert repair(b"".join(write_gaapi([ROUTING, *chunks, DONE])), OPTIONS, cuts).text == normalised(answer)


def test_what_looks_framed_may_come_out_as_a_right_stream() -> None:
    """The same bytes are a right writer's two lines: nothing can tell, until something proves the stream broken."""
    assert repair(b"".join(write_gaapi([ROUTING, "Use:\ndata: x. ", DONE])), OPTIONS).text == "Use:\nx. "
    answer = "One\ntwo. Use:\ndata: x. "
    assert repair(b"".join(write_gaapi([ROUTING, *split_743(answer), DONE])), OPTIONS).text == answer


# ---- any streams ----


@given(
    st.one_of(tokens(answers()), answers().map(split_743)),
    st.sampled_from([write_gaapi, write_gachatbot]),
    st.sampled_from([(DONE,), (DONE,), (), ('{"error":"x"}',), (DONE, "more")]),
    st.booleans(),
    cuts(),
)
def test_any_wire_reads_as_the_whole_buffer_reading_has_it(
    chunks: list[str], write: Callable[[Iterable[str]], list[bytes]], tail: tuple[str, ...], routing: bool, cuts: Cuts
) -> None:
    compare(b"".join(write([*[ROUTING] * routing, *chunks, *tail])), cuts)


@given(st.lists(st.tuples(st.sampled_from(LINES), st.sampled_from(["\n", "\n\n", "\n\n\n"])).map("".join)), cuts())
def test_any_lines_read_as_the_whole_buffer_reading_has_them(lines: list[str], cuts: Cuts) -> None:
    compare((f"data: {ROUTING}\n\n" + "".join(lines) + "data: [DONE]\n\n").encode(), cuts)


def compare(raw: bytes, cuts: Cuts) -> None:
    try:
        want = read_auto(raw.decode())
    except CannotTell:
        assume(False)
    result = repair(raw, NO_GUESS, cuts)
    assert {None: "done", FailureCode.UPSTREAM_ERROR: "error"}.get(result.ledger.code, "open") == want.end
    if want.end == "open":
        assert normalised(want.text).startswith(result.text)
    else:
        assert result.text == normalised(want.text)


# ---- evidence ----


@pytest.mark.parametrize(
    ("raw", "dialect", "text"),
    [
        ("data: a\nb. \n\n", Dialect.SINGLE_PREFIX, "a\nb. "),  # a line without its prefix
        ("data: a. \n\n\ndata: b. \n\n", Dialect.SINGLE_PREFIX, "a. \nb. "),  # more than one blank line
        ("data: a\rb. \n\n", Dialect.SINGLE_PREFIX, "a\nb. "),  # a CR behind a first line that ended in LF
        ("data: a\ndata: b. \n\n", Dialect.AUTO, "a\nb. "),  # no proof
        ("data: a\n\ndata: b\n\ndata: c\n\n", Dialect.AUTO, "abc"),  # three weak boundaries, the marker's among them
        ("data: a\n\ndata: b\n\ndata: c\n\ndata: d\n\n", Dialect.STANDARD, "abcd"),  # four
        ("data: a\n\ndata: b\nc. \n\n", Dialect.SINGLE_PREFIX, "a\n\ndata: b\nc. "),  # a weak one, then proof
        ("data: a\ndata: b\nc. \n\n", Dialect.SINGLE_PREFIX, "a\ndata: b\nc. "),  # proof in the same frame
        ("data:a\n\ndata:b\n\n", Dialect.AUTO, "ab"),  # the space is optional in a right stream
    ],
)
@pytest.mark.parametrize("step", [1, 1000])
def test_what_is_evidence(raw: str, dialect: Dialect, text: str, step: int) -> None:
    wire = f"data: {ROUTING}\n\n{raw}data: [DONE]\n\n".encode()
    result = repair(wire, NO_GUESS, lambda raw: [raw[at : at + step] for at in range(0, len(raw), step)])
    assert result.ledger.dialect == dialect
    assert result.text == text
    assert result.ledger.outcome is Outcome.COMPLETE


def test_a_weak_boundary_is_held_for_200_ms() -> None:
    pipeline = Pipeline(NO_GUESS)
    pipeline.feed(right(ROUTING), 1.0)
    assert pipeline.feed(right("to"), 1.0) == b""
    assert pipeline.feed(right("ken"), 1.0) == b""
    assert pipeline.wants_tick_at == pytest.approx(1.2)
    assert pipeline.tick(1.1) == b""
    assert pipeline.tick(1.25) == b"data: token\n\n"
    assert pipeline.feed(b"data: [DONE]\n\n", 1.3) == b"data: [DONE]\n\n"


@pytest.mark.parametrize("json_lines", ['{"a":1,\ndata: "b":2}', '{"a":1,\n"b":2}'])
@pytest.mark.parametrize("step", [1, 1000])
def test_a_json_value_over_several_lines_is_one_event(json_lines: str, step: int) -> None:
    options = StreamOptions(payload=Payload.JSON, chunker=Chunker.ANY, split=Split.NONE)
    raw = f'data: {{"x":0}}\n\ndata: {json_lines}\n\ndata: [DONE]\n\n'.encode()
    result = repair(raw, options, lambda raw: [raw[at : at + step] for at in range(0, len(raw), step)])
    assert result.data == ['{"x":0}', '{"a":1,\n"b":2}', DONE]


def test_fields_and_comments_of_a_right_stream_are_kept() -> None:
    raw = b'data: {"type":"x"}\n\n: ping\n\nid: 1\nevent: delta\ndata: One. \n\nretry: 5\n\nid: 2\n\ndata: [DONE]\n\n'
    result = repair(raw, OPTIONS)
    assert result.out == raw.replace(b"id: 1\nevent: delta\n", b"event: delta\nid: 1\n")


def test_half_a_frame_at_a_clean_end_is_no_event_but_its_text_is_kept() -> None:
    for tail, text in ((b"data: Hel", "Hel"), (b"data: [DO", ""), (b'data: {"err', ""), (b"data: a\ndata: b", "a\nb")):
        result = repair(right(ROUTING, "One. ") + tail, OPTIONS)
        assert result.ledger.code is FailureCode.UPSTREAM_INCOMPLETE
        assert result.text == "One. " + text
    options = StreamOptions(payload=Payload.JSON)
    assert repair(b'data: {"a":1}\n\ndata: {"b":', options).data[:-1] == ['{"a":1}']
    assert repair(b'data: {"a":1}\n\ndata: {"b":2}', options).data[:-1] == ['{"a":1}', '{"b":2}']


@pytest.mark.parametrize("wire", sorted(WIRES.glob("*.sse")), ids=lambda path: path.name)
def test_the_hosts_own_wires(wire: Path) -> None:
    name, chunks, writer, _ = wire.name.split(".")
    answer = normalised((wire.parent / f"{name}.answer.txt").read_bytes().decode())
    result = repair(wire.read_bytes(), NO_GUESS)
    assert result.ledger.outcome is Outcome.COMPLETE
    assert result.text == "".join(SPLITTERS[chunks](answer))
    if writer == "gachatbot" and chunks == "743":
        assert result.out == wire.read_bytes()
        assert result.repairs == {}
