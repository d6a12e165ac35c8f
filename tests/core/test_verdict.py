"""The counts of the public lesson, and what they must not be fooled by."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sse_proxy.core.verdict import Verdict, judge, lost_lines, missing, with_lf

WIRE = Path(__file__).parents[1] / "vectors" / "wire"


def answer(name: str) -> str:
    return (WIRE / f"{name}.answer.txt").read_bytes().decode()


IMPROVISATION = answer("improvisation")


def test_the_answers_have_the_lessons_sizes() -> None:
    voicings = answer("voicings")
    assert len(IMPROVISATION) == 558
    assert IMPROVISATION.count("\n") == 8
    assert missing(IMPROVISATION, IMPROVISATION) == (0, 6, 0)
    assert len(voicings) == 199
    assert len(voicings.split("\n")) == 10  # the blank one counted
    assert missing(voicings, voicings) == (0, 9, 0)


def test_chunks_without_their_white_space_lose_six_line_breaks() -> None:
    lines = IMPROVISATION.split("\n")
    old = "\n".join(lines[:3]) + "".join(lines[3:])
    assert len(old) == 552
    assert missing(IMPROVISATION, old) == (0, 6, 6)
    assert str(judge(IMPROVISATION, old)) == "6 line breaks missing"


def test_a_lost_line_and_all_line_breaks() -> None:
    lines = IMPROVISATION.split("\n")
    got = "".join(lines[:2] + lines[3:])
    assert missing(IMPROVISATION, got) == (1, 6, 8)
    assert str(judge(IMPROVISATION, got)) == "1 of 6 lines missing, 8 line breaks missing"
    assert lost_lines(IMPROVISATION, got) == [lines[2]]


def test_exact_compares_line_ends_as_lf() -> None:
    windows = answer("windows")
    assert "\r\n" in windows
    assert judge(windows, IMPROVISATION) == Verdict(True, 0, 6, 0, 0)
    assert str(judge(windows, IMPROVISATION)) == "exact"
    assert judge("a\rb\r\n\rc", "a\nb\n\nc").exact


@pytest.mark.parametrize(
    ("answer", "got", "said"),
    [
        ("a", "", "1 of 1 line missing"),
        ("", "", "exact"),
        ("One. Two.", "One.Two.", "1 space missing"),
        ("1. Play.\n2. Rest.\n", "1.Play.2. Rest.\n", "1 line break missing, 1 space missing"),
        ("one\ntwo", "two\none", "nothing missing, but the text differs"),
        ("one", "one more", "nothing missing, but the text differs"),
        ("one", "one\n", "nothing missing, but the text differs"),
        ("one\n", "one", "1 line break missing"),
        (" \n\t\n", "", "2 line breaks missing, 2 spaces missing"),
    ],
)
def test_words(answer: str, got: str, said: str) -> None:
    assert str(judge(answer, got)) == said


def test_a_short_line_is_not_found_inside_a_longer_one() -> None:
    assert lost_lines("```vextab\n6/3\n```", "```vextab\n6/3") == ["```"]
    assert missing("```vextab\n6/3\n```", "```vextab\n6/3") == (1, 3, 1)


def test_a_repeated_line_must_arrive_as_often() -> None:
    assert missing("la\nla\nla\nend", "la\nend") == (2, 4, 2)


LINES = st.lists(st.sampled_from(["", "a", "ab", "abc", "b c", "```", "```x", " "]), max_size=12).map("\n".join)


@given(LINES)
def test_a_text_misses_nothing_of_itself(text: str) -> None:
    assert missing(text, text)[::2] == (0, 0)
    assert judge(text, text).exact


@given(LINES, st.text("abc`x \n", max_size=30))
def test_the_counts_stay_within_what_the_answer_has(text: str, got: str) -> None:
    lines_missing, lines_total, breaks_missing = missing(text, got)
    assert 0 <= lines_missing <= lines_total
    assert 0 <= breaks_missing <= text.count("\n")
    lost = lost_lines(text, got)
    assert len(lost) == lines_missing
    rest = iter(text.split("\n"))
    assert all(line in rest for line in lost)  # in order


@given(st.text("a\r\n"))
def test_with_lf_leaves_no_cr_and_counts_crlf_once(text: str) -> None:
    changed = with_lf(text)
    assert "\r" not in changed
    assert changed.count("\n") == text.count("\r") + text.count("\n") - text.count("\r\n")
