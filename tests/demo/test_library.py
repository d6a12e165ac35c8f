"""Questions and answers: fixed, and the lesson's own."""

from pathlib import Path

import pytest

from sse_proxy.demo.library import ANSWERS, answer_for, examples

WIRE = Path(__file__).parents[1] / "vectors" / "wire"


@pytest.mark.parametrize(
    ("question", "name"),
    [
        ("which arpeggio fits Am F C G", "improvisation"),
        ("Show me Cmaj7 voicings", "voicings"),
        ("what is an event stream", "sse-lesson"),
        ("What is SSE?", "sse-lesson"),
        ("WINDOWS arpeggio, please", "windows"),
        ("Which chords are diatonic?", "tables"),
        ("a practice plan", "practice"),
        ("assess me", "help"),  # holds "sse", but not as a word
        ("", "help"),
        ("Grüße 🎸", "help"),
    ],
)
def test_keywords(question: str, name: str) -> None:
    assert answer_for(question).name == name


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: answer.name)
def test_the_example_of_an_answer_chooses_it(answer: object) -> None:
    assert answer in ANSWERS
    assert answer_for(getattr(answer, "example", "")) is answer


def test_the_texts_are_the_bytes_of_the_vectors() -> None:
    names = {answer.name for answer in ANSWERS}
    vectors = {path.name.removesuffix(".answer.txt"): path for path in WIRE.glob("*.answer.txt")}
    assert set(vectors) <= names
    for answer in ANSWERS:
        if answer.name in vectors:
            assert answer.text == vectors[answer.name].read_bytes().decode()


def test_only_the_windows_answer_has_crs() -> None:
    assert [answer.name for answer in ANSWERS if "\r" in answer.text] == ["windows"]


def test_examples_begin_with_the_lessons() -> None:
    assert [answer_for(question).name for question in examples()][:2] == ["improvisation", "voicings"]
    assert len(examples()) == len(ANSWERS)
