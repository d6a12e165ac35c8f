"""Splitters: the hosts' own cuts, on text that is still arriving."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sse_proxy.core import Split
from sse_proxy.core.sentences import SentenceSplitter, Splitter, make_splitter
from sse_proxy.demo.wire import split_743
from tests.strategies import answers, normalised, tokens

MAX = 64 * 1024


def run(splitter: Splitter, parts: list[str]) -> list[str]:
    return [chunk for part in parts for chunk in splitter.feed(part)] + splitter.close()


@given(tokens(answers()))
@example(["One", ".", " ", " ", "Two! ", "\n", "Three"])
def test_sentences_are_the_hosts_own_wherever_the_text_is_cut(parts: list[str]) -> None:
    assert run(SentenceSplitter(MAX), parts) == split_743("".join(parts))


@given(tokens(answers()), st.sampled_from(Split), st.sampled_from([4, 7, 64]), st.data())
def test_chunks_joined_are_the_text_whatever_happens(
    parts: list[str], split: Split, most: int, data: st.DataObject
) -> None:
    splitter = make_splitter(split, most)
    chunks: list[str] = []
    fed = 0
    for part in parts:
        chunks += splitter.feed(part)
        fed += len(part)
        assert splitter.size == fed - sum(map(len, chunks))
        match data.draw(st.integers(0, 3)):
            case 0:
                chunks += splitter.flush()
            case 1:
                chunks += splitter.frame_end()
    chunks += splitter.close()
    assert "".join(chunks) == "".join(parts)
    assert all(chunks)
    assert splitter.size == 0
    assert not splitter.pending
    if split is not Split.NONE:
        assert all(len(chunk.encode()) <= most for chunk in chunks)


@pytest.mark.parametrize(
    ("text", "chunks"),
    [
        ("Pi is 3.14. e.g. this. ", ["Pi is 3.14. ", "e.g. ", "this. "]),
        ("Wait... what?! Yes.", ["Wait... ", "what?! ", "Yes."]),
        (". . .", [". ", ". ", "."]),
        ("a.\u200b b. c", ["a.\u200b b. ", "c"]),
        ("a.\x85b.\u3000c.\x1cd", ["a.\x85", "b.\u3000", "c.\x1cd"]),
        ('He said "no." Then', ['He said "no." Then']),
        ("你好。 再见", ["你好。 再见"]),
        ("  ", ["  "]),
        ("", []),
    ],
)
def test_where_a_sentence_ends(text: str, chunks: list[str]) -> None:
    assert run(SentenceSplitter(MAX), [text]) == chunks
    assert run(SentenceSplitter(MAX), list(text)) == chunks


def test_a_sentence_leaves_once_its_end_is_certain() -> None:
    splitter = SentenceSplitter(MAX)
    assert splitter.feed("One. ") == []  # more white space may follow
    assert splitter.feed("\n") == []
    assert splitter.feed("T") == ["One. \n"]
    assert splitter.pending
    assert splitter.frame_end() == []
    assert splitter.feed("wo. ") == []
    assert splitter.frame_end() == ["Two. "]  # the host cut there itself
    assert splitter.feed(" Three") == []
    assert splitter.flush() == [" Three"]
    assert not splitter.pending


def test_a_chunk_is_cut_between_characters() -> None:
    assert run(SentenceSplitter(5), ["🎸🎸é🎸"]) == ["🎸", "🎸", "é", "🎸"]
    assert run(SentenceSplitter(5), ["abcdefg"]) == ["abcde", "fg"]


@given(answers().map(normalised))
def test_lines_end_behind_their_line_feed(text: str) -> None:
    chunks = run(make_splitter(Split.LINE, 1 << 20), list(text))
    assert [chunk for chunk in chunks if not chunk.endswith("\n")] == chunks[
        len(chunks) - (text[-1:] not in ("", "\n")) :
    ]
    assert all("\n" not in chunk[:-1] for chunk in chunks)


def test_a_frame_is_one_chunk_and_time_does_not_end_it() -> None:
    splitter = make_splitter(Split.NONE, 4)
    assert splitter.feed("long text. ") == []
    assert splitter.flush() == []
    assert splitter.feed("More") == []
    assert splitter.frame_end() == ["long text. More"]
    assert splitter.frame_end() == []
