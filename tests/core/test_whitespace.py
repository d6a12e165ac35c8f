"""The white space an old splitter removed: single boundaries, the lesson's answers, chat answers, and properties."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sse_proxy.core.whitespace import WhitespaceGuesser

VECTORS = Path(__file__).parent.parent / "vectors"
CHAT = sorted((VECTORS / "whitespace").glob("*.md"))
# Chat answers that come back with every boundary of its true kind; one that leaves this list is a step back.
RIGHT = {
    *("capo-guide", "chord-names", "chord-progression-sad", "circle-of-fifths", "compare-guitars"),
    *("definitions", "diminished-chords", "emoji-steps", "gear-for-beginners", "harmonic-minor", "humidity"),
    *("ii-v-i", "improvise-over-changes", "json-request", "lydian-dominant", "minor-keys-three-scales"),
    *("modes-mood", "modes-overview", "modulation-tips", "open-tunings-list", "reading-tab"),
    *("rhythm-subdivisions", "secondary-dominants", "short-answer", "song-key-question", "string-gauges"),
    *("strumming", "triads-strings", "tuning-drop-d", "vextab-example", "voice-leading-rules"),
}


def cut(text: str) -> tuple[list[str], list[str]]:
    """Split as the old hosts did (here no other white space than blank, tab and LF occurs); return pieces and gaps."""
    parts = re.split(r"(?<=[.!?])([ \t\n]+)(?=[^ \t\n])", text.rstrip())
    return parts[::2], parts[1::2]


def restore(pieces: list[str]) -> tuple[str, list[str]]:
    """Return the pieces joined with what was guessed between them, and the guesses."""
    guesser, gaps, out = WhitespaceGuesser(), [], pieces[0]
    guesser.text(pieces[0])
    for piece in pieces[1:]:
        assert guesser.ready(piece, final=True)
        gaps.append(guesser.guess(piece))
        guesser.text(gaps[-1] + piece)
        out += gaps[-1] + piece
    return out, gaps


def guess(before: str, head: str) -> str:
    """Return the white space guessed before `head` when `before` was the answer so far, nothing lost in it."""
    guesser = WhitespaceGuesser()
    guesser.text(before)
    return guesser.guess(head)


@pytest.mark.parametrize("name", ["improvisation", "windows"])
def test_the_lessons_answers_come_back_exactly(name: str) -> None:
    answer = (VECTORS / "wire" / f"{name}.answer.txt").read_bytes().decode().replace("\r\n", "\n").rstrip("\n")
    pieces, gaps = cut(answer)
    assert len(gaps) == 4
    assert restore(pieces)[0] == answer


def test_a_table_steps_and_a_quote_come_back() -> None:
    answer = (VECTORS / "wire" / "tables.answer.txt").read_bytes().decode().rstrip("\n")
    restored, gaps = restore(cut(answer)[0])
    # What cannot be known: a second blank, and that the item's next sentence stood on a line of its own.
    assert restored == answer.replace("first!  Then", "first! Then").replace('3".\n   Keep', '3". Keep')
    assert gaps == [" ", " ", "\n\n", " ", "\n", " ", " ", "\n\n", " ", "\n\n", " "]


@pytest.mark.parametrize(
    ("before", "head", "white"),
    [
        # prose
        ("Sure.", "and more", " "),
        ("Use light strings, e.g.", "Nines or tens.", " "),
        ("A triad has three notes.", "It is built from thirds.", " "),
        ("Loose strings rattle.", "Otherwise nothing is wrong.", " "),
        ("The G string is often sharp on a new guitar. That is quite common.", "Would you like to know why?", "\n\n"),
        ("These are the modes.", "**Dorian**: minor with a raised sixth.", "\n\n"),
        ("The scale is bright.", "Modes\n-----\n", "\n\n"),
        # headings
        ("Done.", "## Next\n\nText.", "\n\n"),
        ("## Why?", "Because it is easier.", "\n\n"),
        ("# A\nText.\n## Why?", "Because it is easier.", "\n"),
        ("## 1.", "The scale", " "),
        ("Play it in F.", "#1 is the root.", " "),
        # lists
        ("Three tips.", "- Relax.", "\n\n"),
        ("Tips:\n\n- Relax.", "- Breathe.", "\n"),
        ("Tips:\n\n* Relax.\n\n* Rest.", "* Breathe.", "\n\n"),
        ("Steps:\n\n1.", "Relax.", " "),
        ("Steps:\n\n1. Relax.", "2.", "\n"),
        ("Steps:\n\n9) Relax.", "10) Breathe.", "\n"),
        ("- **Warm-up**\n  - Runs.", "- Spiders.", "\n  "),
        ("- **Warm-up**\n  - Runs.", "- **Songs**", "\n"),
        ("1. Warm up\n   - Runs.", "2.", "\n"),
        ("1. Warm up\n\t* Runs.", "* Spiders.", "\n\t"),
        ("3. Warm up.", "1.", "\n\n"),
        ("1. Warm up.", "- Runs", "\n   "),
        ("- One.\n- Two.\n- Three.\n- Four.", "Each of them matters.", "\n\n"),
        ("- A. It is short.\n- B. It is long.\n- C.", "It is wide.", " "),
        ("- One.\n- Two, e.g. this.\n- Three.\n- Four.", "Each of them matters.", "\n\n"),  # "e.g." ends no sentence
        ("* A.\n* B. The others are:\n\n* One.", "* Two.", "\n"),
        ("✅ Pick a scale.", "✅ Pick a rhythm.", "\n"),
        ("✅ Well done!", "🎸\n", " "),
        # tables, quotes, rules, formulas, link definitions, HTML
        ("| A | B |\n|---|---|\n| x | major.", "|\n| y | minor |", " "),
        ("| A | B |\n|---|---|\n| x | First.", "Second. |", " "),
        ("Compare.", "| A | B |\n|---|---|", "\n\n"),
        ("> Keep time.", "> Breathe.", "\n"),
        ("Remember.", "> Keep time.", "\n\n"),
        ("That was it.", "---\n\nMore.", "\n\n"),
        ("So it holds.", "$$f = 440$$", "\n\n"),
        ("It is $5.", "$6 is too much.", " "),
        ("[a]: http://x.test/a.", "[b]: http://x.test/b", "\n"),
        ("See below.", "[Here](http://x.test) it is.", " "),
        ("<p>One.", "<p>Two.", "\n"),
        ("<!-- one.", "-->", "\n"),
        # fences
        ("Play this.", "```\nx02210\n```", "\n\n"),
        ("1. Run it.", "```sh\nmake\n```", "\n\n"),
        ("1. Run it.", "```sh\n   make\n   ```", "\n\n   "),
        ("```\nEnd.", "```\n", "\n"),
        ("```python\n    # Wrap around.", "Negative steps work too.", " "),
        ("```python\n    # Wrap around.", "i = n % 12", "\n    "),
        ("```python\n# Wrap around.", "# Then add.", "\n"),
        ("Inline ```code``` is no fence.", "However it looks.", " "),
    ],
)
def test_a_boundary(before: str, head: str, white: str) -> None:
    assert guess(before, head) == white


def test_hard_wrapped_text_is_told_by_its_width() -> None:
    text = (
        "The circle of fifths orders the twelve keys by how many sharps or flats they\n"
        "have, and going clockwise each key adds one sharp while going the other way\n"
        "each adds one flat, so that keys beside each other share all notes but one,\n"
        "and a song in one may borrow from the next"
    )
    # Fits on the line, and fills it: the same line. Does not fit: the next one. Full alone: a paragraph's first line.
    assert guess(text + ".", "That is why so many do\nit without") == " "
    assert guess(text + " without anybody hearing it.", "Neighbouringkeys are") == "\n"
    alone = "Neighbouring keys sit side by side, and the three main chords of every key\nare"
    assert guess(text + ".", alone) == "\n\n"
    # A new line of a quote would have its mark.
    assert guess(text + ".\n\n> Keep time.", alone.replace("\n", "\n> ") + " a") == " "


@pytest.mark.parametrize("path", CHAT, ids=lambda path: path.stem)
def test_a_chat_answer(path: Path) -> None:
    pieces, gaps = cut(path.read_text(encoding="utf-8"))
    restored, guesses = restore(pieces)
    assert re.sub(r"\s", "", restored) == re.sub(r"\s", "", "".join(pieces))
    if path.stem in RIGHT:
        assert [gap.count("\n") for gap in guesses] == [gap.count("\n") for gap in gaps]


def test_most_boundaries_of_chat_answers_are_right() -> None:
    right = spaces = total = 0
    for path in CHAT:
        pieces, gaps = cut(path.read_text(encoding="utf-8"))
        for gap, found in zip(gaps, restore(pieces)[1], strict=True):
            right += gap.count("\n") == found.count("\n")
            spaces += "\n" not in gap
            total += 1
    assert total > 600
    assert spaces / total < 0.6  # what putting a space everywhere gives
    assert right / total > 0.84


# Text that looks like an answer: loose characters rarely form a block.
WORDS = st.sampled_from(
    [
        *("Play", "it", "**Am**", "`x02210`", "e.g.", "1.", "2.", "slowly.", "Why?", "Stop!", "the chord tones"),
        *("(F – C).", ".'" + "'" * 30),
    ]
)
STARTS = st.sampled_from(
    [
        *("", "", "- ", "* ", "1. ", "2. ", "  - ", "   ", "# ", "> ", "| ", "```", "~~~"),
        *("**Note:** ", "<p>", "<!-- ", "-->", "---"),
    ]
)
LINES = st.builds(lambda start, words: start + " ".join(words), STARTS, st.lists(WORDS, max_size=14))
TEXTS = st.lists(LINES, max_size=12).map("\n".join)
unhurried = settings(deadline=None)  # one example may take long on a busy machine; what one costs is tested below
HEADS = st.one_of(
    TEXTS.map(str.lstrip).filter(bool),
    st.text("#-*+`~|>[]<1.$\\ \nabAB:!?✅\ufe0f", min_size=1).map(str.lstrip).filter(bool),
)


@unhurried
@given(TEXTS, HEADS, st.lists(st.integers(0, 400), max_size=40))
def test_cuts_change_nothing(text: str, head: str, places: list[int]) -> None:
    whole, cuts, single = WhitespaceGuesser(), WhitespaceGuesser(), WhitespaceGuesser()
    whole.text(text)
    places = sorted(place for place in places if place < len(text))
    for start, end in zip([0, *places], [*places, len(text)], strict=True):
        cuts.text(text[start:end])
    for char in text:
        single.text(char)
    assert cuts.guess(head) == single.guess(head) == whole.guess(head)
    assert vars(cuts) == vars(single) == vars(whole)  # no difference that would show later


@unhurried
@given(TEXTS, HEADS)
@example("A triad.", "The" + " word" * 13 + "\nand")  # decided at 64 characters, before the line's end
@example("A triad.", "The" + " word" * 14 + " go\nand more")  # seen whole, it looks hard-wrapped
def test_more_of_the_next_frame_changes_nothing(text: str, head: str) -> None:
    guesser = WhitespaceGuesser()
    guesser.text(text)
    settled = None
    for length in range(1, min(len(head), 130) + 1):
        ready = guesser.ready(head[:length], final=False)
        assert ready or (settled is None and length < 120)
        if ready:
            assert settled in (None, guesser.guess(head[:length]))
            settled = guesser.guess(head[:length])
    if settled:
        assert guesser.guess(head + " And more.") == settled


@unhurried
@given(TEXTS, HEADS)
def test_asking_changes_nothing(text: str, head: str) -> None:
    asked, quiet = WhitespaceGuesser(), WhitespaceGuesser()
    asked.text(text + "\nAnd so.")
    quiet.text(text + "\nAnd so.")
    for final in (False, True):
        asked.ready(head, final=final)
    first = asked.guess(head)
    assert asked.guess(head) == first == quiet.guess(head)
    for guesser in (asked, quiet):
        guesser.text(first + head + " Well.")
    assert asked.guess("Then more.") == quiet.guess("Then more.")


@unhurried
@given(TEXTS, HEADS)
def test_a_guess_is_white_space_without_a_second_blank_line(text: str, head: str) -> None:
    assert re.fullmatch(r" |\n{1,2}[ \t]*", guess(text, head))


@unhurried
@given(TEXTS)
def test_nothing_to_go_on_is_a_space(text: str) -> None:
    guesser = WhitespaceGuesser()
    guesser.text(text)
    assert guesser.ready("", final=True)
    assert not guesser.ready("", final=False)
    assert guesser.guess("") == " "


def test_plain_prose_waits_for_64_characters_at_most() -> None:
    guesser = WhitespaceGuesser()
    guesser.text("A triad has three notes.")
    assert guesser.ready("and", final=False)
    assert not guesser.ready("The" + " word" * 12, final=False)
    assert guesser.ready("The" + " word" * 13, final=False)


@pytest.mark.parametrize(
    "hostile",
    ["a", "(", "'", ".", '."', "!'", "`", "* ", "- ", "# ", "1. ", "| ", "- a.\n  ", "\n", "```\n", "[", "Ab, "],
)
@pytest.mark.timeout(30)
def test_a_long_answer_costs_bounded_state_and_linear_time(hostile: str) -> None:
    guesser = WhitespaceGuesser()
    for _ in range(4):
        guesser.text(hostile * 50_000 + ".")
        guesser.guess(hostile.strip() * 200 or "x")
    for indent in range(200):
        guesser.text(f"\n{' ' * indent}- item {indent}.")
    assert len(pickle.dumps(guesser)) < 4_000
