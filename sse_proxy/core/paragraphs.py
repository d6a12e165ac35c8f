"""Whether a sentence that bears no mark of its own begins a paragraph, where its white space was lost.

A list item, a heading, a fence or a table row shows itself. A plain sentence does not: behind a list item it may be
the item's next sentence or the text after the list, and in prose the same. There signs are weighed, each with points:
tenths of the natural log odds that a paragraph begins, fitted by `bench/whitespace.py --fit` on the half of its
documents called `dev`, and rounded. Either mistake costs a reader the same: one paragraph too many or too few.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["HEAD", "Place", "Run", "announced", "begins_paragraph", "signs"]

HEAD = 64  # characters of the next sentence that are looked at

_LEAD = re.compile(r"\*\*|__|[*_][^*_\n]{1,40}:[*_]")  # bold, or an italic word with its colon
_PLAIN_LEAD = re.compile(r"[A-Z][\w ]{1,24}: \S")
_UNDERLINE = re.compile(r"-{3,}|={3,}")
_NUMBERS = {
    word: n for n, word in enumerate(("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"), start=2)
}


@dataclass(slots=True)
class Run:
    """Blocks of one kind in a row: the items of a list, or paragraphs that each begin in bold.

    Attributes:
        promised: how many the line before announces ("Three tips:"), 0 where it does not say.
        items: how many began.
        fewest, most: sentences in those that ended.
    """

    promised: int = 0
    items: int = 1
    fewest: int = 99
    most: int = 0

    def end_item(self, sentences: int) -> None:
        """Count an item that ended after so many sentences."""
        self.fewest, self.most = min(self.fewest, sentences), max(self.most, sentences)

    def signs(self, sentences: int) -> list[str]:
        """Name what the items before say of the open one, which has `sentences` now."""
        if self.items == 1:
            found = ["first item"]
        elif self.fewest == self.most:
            place = "below" if sentences < self.most else "over" if sentences > self.most else "reached"
            found = [f"uniform {place} {min(self.items, 4)}" if place == "reached" else f"uniform {place}"]
        else:
            place = "below" if sentences < self.fewest else "within" if sentences < self.most else "reached"
            found = [f"varied {place if sentences <= self.most else 'over'}"]
        if self.promised:
            found.append("last promised" if self.items >= self.promised else "more promised")
        return found


@dataclass(frozen=True, slots=True)
class Place:
    """Where the text stands.

    Attributes:
        kind: `list`, or the kind of the open line (`prose`, `quote`, ...).
        sentences: in the open item or paragraph, the one that just ended included.
        chars: in it.
        mark: the sentence mark it ends in.
        opening: it is the answer's first block.
        loose: the list's items are set apart by blank lines.
        run: the list, or the paragraphs with a bold lead, that it is one of.
    """

    kind: str
    sentences: int
    chars: int
    mark: str
    opening: bool = False
    loose: bool = False
    run: Run | None = None


def begins_paragraph(place: Place, head: str) -> bool:
    """Tell whether the sentence that begins with `head` more likely begins a paragraph than goes on at `place`."""
    return sum(_POINTS.get(sign, 0) for sign in signs(place, head)) > 0


def signs(place: Place, head: str) -> list[str]:
    """Name what speaks for or against a new paragraph before `head`, of which the first 64 characters count."""
    first_line, _, rest = head[:HEAD].partition("\n")
    if _UNDERLINE.match(rest):
        return ["underlined"]
    found = [place.kind]
    if place.kind == "list":
        found += place.run.signs(place.sentences) if place.run else []
        if place.loose:
            found.append("loose")
        if re.match(r" +[a-z]", rest):
            found.append("inside")
    else:
        found.append(f"{min(place.sentences, 3)} sentences")
        found.append(f"{min(place.chars // 100, 3)}00 characters" if place.chars > 40 else "remark")
        if place.opening:
            found.append("opening")
        if place.run:
            found += [f"lead, {sign}" for sign in place.run.signs(place.sentences)]
        if place.kind == "quote" and rest[:1] == ">":
            found.append("inside")
    if rest and first_line.endswith(":"):
        found.append("colon" if len(first_line) > 28 else "short colon")
    elif not rest and len(first_line) < HEAD:  # the whole sentence is here
        found.append("question" if first_line.endswith("?") else "short" if len(first_line) < 28 else "whole")
    if _LEAD.match(head):
        found.append("bold in list" if place.kind == "list" else "bold")
    elif _PLAIN_LEAD.match(head):
        found.append("plain lead")
    elif head[:1] in ("*", "_", "`", "[", '"', "'"):
        found.append(f"opens {head[:1]}")
    elif not head[:1].isascii() and not head[:1].isalpha():
        found.append("symbol")
    if place.mark in ("!", "?"):
        found.append(f"after {place.mark}")
    words = [*re.findall(r"[A-Za-z']+", head[:40].lower())[:2], "", ""]
    cue = _CUES.get(f"{words[0]} {words[1]}") or _CUES.get(words[0])
    if cue == "shows" and place.opening:
        cue = "shows, opening"  # what the answer is about, and what follows: mostly one paragraph
    return [*found, cue] if cue else found


def announced(line: str) -> int:
    """Return how many items the line before a list promises ("Three tips:"), 0 where it does not say."""
    found = [_NUMBERS[word] for word in re.findall(r"[a-z]+", line.lower()) if word in _NUMBERS]
    return found[-1] if found else 0


# What a sentence begins with, one word or two, and what that is a sign of.
_CUES: dict[str, str] = {
    cue: sign
    for sign, cues in (
        (
            "goes on",
            "otherwise, therefore, thus, hence, then, also, however, but, and, so, or, they, that, it, its, it's, "
            "that's, because, since, these, such, instead, likewise, neither, nor, he, she, in this, in that, "
            "in other, for instance, that way, this means, this is, this can, this will, this makes, this allows, "
            "this also, this includes, this may, this does",
        ),
        (
            "may go on",
            "this, those, see, you, most, both, there, many, each, use, their, another, other, your, please, nothing, "
            "not, none, we, no, for example, the same",
        ),
        (
            "may begin",
            "to, if, when, once, some, by, as, on, while, after, before, all, try, start, with, for, now, next, why, "
            "how, what, are, is, do, does, need, until",
        ),
        (
            "begins",
            "note, remember, questions, example, examples, bonus, tip, warning, overall, finally, step, let's, want, "
            " enjoy, should, which, can, would you, let me, do you, feel free, in short, "
            "in summary, to summarize, to sum, in conclusion, good luck, happy playing, that's it, that's all, "
            "my advice, a few, see also, the following, by default",
        ),
        ("shows", "here, here's, below, use this, try this"),
    )
    for cue in cues.split(", ")
}
_POINTS: dict[str, int] = {
    "000 characters": -6,
    "1 sentences": -5,
    "100 characters": 2,
    "200 characters": 3,
    "3 sentences": 8,
    "300 characters": 1,
    "after !": 4,
    "after ?": -2,
    "begins": 17,
    "bold": 41,
    "bold in list": 4,
    "colon": 9,
    "first item": -7,
    "goes on": -11,
    "html": 24,
    "inside": -27,
    "last promised": 14,
    "lead, first item": -6,
    "lead, uniform below": -4,
    "lead, uniform over": 22,
    "lead, uniform reached 2": 9,
    "lead, uniform reached 3": 13,
    "lead, varied within": -14,
    "list": -1,
    "loose": -5,
    "may begin": 3,
    "more promised": -5,
    "opening": 3,
    "opens *": -23,
    "opens [": -8,
    "opens _": 6,
    "opens `": 1,
    "plain lead": 17,
    "prose": -2,
    "question": 5,
    "quote": 15,
    "remark": -23,
    "short": -11,
    "short colon": 10,
    "underlined": 22,
    "uniform below": -10,
    "uniform over": -2,
    "uniform reached 2": 1,
    "uniform reached 3": 3,
    "uniform reached 4": 26,
    "varied below": -16,
    "varied over": -2,
    "varied reached": 2,
    "varied within": -4,
    "whole": -6,
}
