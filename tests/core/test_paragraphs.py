"""Whether a sentence without a mark begins a paragraph: what is seen, and what follows from it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sse_proxy.core.paragraphs import Place, Run, announced, begins_paragraph, signs


def run(*sentences: int, promised: int = 0) -> Run:
    """Return a run whose ended items had so many sentences; one more is open."""
    made = Run(promised)
    for count in sentences:
        made.end_item(count)
        made.items += 1
    return made


@pytest.mark.parametrize(
    ("made", "sentences", "sign"),
    [
        (run(), 1, "first item"),
        (run(2, 2), 1, "uniform below"),
        (run(2, 2), 2, "uniform reached 3"),
        (run(1, 1, 1, 1, 1), 1, "uniform reached 4"),
        (run(1), 3, "uniform over"),
        (run(2, 4), 1, "varied below"),
        (run(2, 4), 2, "varied within"),
        (run(2, 4), 4, "varied reached"),
        (run(2, 4), 5, "varied over"),
    ],
)
def test_what_the_items_before_say(made: Run, sentences: int, sign: str) -> None:
    assert made.signs(sentences) == [sign]


def test_a_promised_number_of_items_is_counted() -> None:
    assert run(1, promised=3).signs(1)[-1] == "more promised"
    assert run(1, 1, promised=3).signs(1)[-1] == "last promised"


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("Three tips:", 3),
        ("There are two kinds, in four keys:", 4),
        ("One tip:", 0),
        ("Tips for often-used chords:", 0),
    ],
)
def test_a_line_before_a_list_promises_its_length(line: str, count: int) -> None:
    assert announced(line) == count


@pytest.mark.parametrize(
    ("head", "sign"),
    [
        ("Modes\n=====", "underlined"),
        ("Here is what the neck of the guitar looks like:\n\n", "colon"),
        ("Try this:\n\n", "short colon"),
        ("Would you like a diagram of it?", "question"),
        ("Small turns!", "short"),
        ("It then rings as clearly as before.", "whole"),
        ("**Dorian** is minor.", "bold"),
        ("*Exercise:* play it.", "bold"),
        ("Rule of thumb: sharps first.", "plain lead"),
        ('"Blue Bossa" is one.', 'opens "'),
        ("🎸 Play it.", "symbol"),
        ("Otherwise it buzzes.", "goes on"),
        ("For instance, try D.", "goes on"),
        ("For example, try D.", "may go on"),
        ("For slide, try D.", "may begin"),
        ("Let me know!", "begins"),
    ],
)
def test_what_the_next_sentence_says(head: str, sign: str) -> None:
    assert sign in signs(Place("prose", 2, 120, "."), head)


def test_what_the_place_says() -> None:
    assert signs(Place("prose", 7, 950, "?", opening=True), "The")[:4] == [
        "prose",
        "3 sentences",
        "300 characters",
        "opening",
    ]
    assert "remark" in signs(Place("prose", 1, 40, "!"), "The")
    assert "after !" in signs(Place("prose", 1, 40, "!"), "The")
    assert signs(Place("list", 1, 40, ".", loose=True, run=run(1)), "The\n  a")[1:4] == [
        "uniform reached 2",
        "loose",
        "inside",
    ]
    assert "lead, first item" in signs(Place("prose", 1, 90, ".", run=run()), "The")
    assert "inside" in signs(Place("quote", 1, 90, "."), "The\n> a")


def test_a_uniform_list_ends_with_its_last_sentence_and_an_uneven_one_goes_on() -> None:
    head = "Each arpeggio spells the chord tones; the scale adds the passing notes for lines between them."
    assert begins_paragraph(Place("list", 1, 90, ".", run=run(1, 1, 1)), head)
    assert not begins_paragraph(Place("list", 1, 90, ".", run=run(2, 2, 2)), head)
    assert not begins_paragraph(Place("list", 1, 90, ".", run=run()), head)


def test_prose_goes_on_at_first_and_a_closing_question_stands_alone() -> None:
    assert not begins_paragraph(Place("prose", 1, 80, "."), "It is built from thirds and sounds rather bright.")
    assert begins_paragraph(Place("prose", 3, 240, "."), "Would you like a diagram of any of these chords?")


@given(st.text(min_size=64), st.text())
def test_no_more_than_64_characters_count(head: str, more: str) -> None:
    place = Place("prose", 1, 80, ".")
    assert signs(place, head) == signs(place, head[:64] + more)
