#!/usr/bin/env python3
"""Measure the white space guessed back behind an old sentence splitter, on markdown that is not ours.

    python bench/whitespace.py [--dir DIR ...] [--self DIR] [--half dev|held-out] [--no-render] [--errors N] [--json]
    python bench/whitespace.py --fit        print the points of sse_proxy/core/paragraphs.py, fitted anew

Every file is split as the old hosts split an answer: on `(?<=[.!?])\\s+`, the white space removed. The guesser is then
fed as it is in a stream, its own guesses in the text it sees, so that an early mistake may cause later ones. Per set:

* class: the share of boundaries whose kind (space, line break, blank line) was guessed;
* exact: the share whose very characters were;
* rendered: the share where the guess, put alone into the true text, renders to the same page (CommonMark with tables, a
  soft line break being a space); it needs markdown-it-py, which comes with rich.

Files are taken from what is installed (README, docs, package descriptions; no licences), cut to their first 20,000
characters, equal ones counted once, and divided into two halves by a hash of their name. `unwrapped` is the same with
every paragraph on one line, as chat answers have it. `chat` is the folder of `--self`: answers as a chat host gives
them. The rules were made and the points fitted on `dev` alone; `held-out` was only measured.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import random
import re
import sys
import sysconfig
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from sse_proxy.core import paragraphs, whitespace

# White space as .NET reads `\s`: Python's own has U+001C to U+001F too.
WHITE = "\\t\\n\\x0b\\x0c\\r \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000"
SPLITTER = re.compile(f"(?<=[.!?])[{WHITE}]+")
OTHER_BLOCK = re.compile(r"#{1,6} |[|><]|([-*_] *){3,}$|=+$|-+$|\[[^\]]+\]:")
ITEM = re.compile(r"([-*+]|\d+[.)]) ")
LICENCE = re.compile(r"(^|/)(legal/|licen[cs]es?/)|licen[cs]e|copying|notice", re.IGNORECASE)
CHANGES = re.compile(r"change|history|release|news", re.IGNORECASE)
KINDS = ("space", "line break", "blank line")
MAX_CHARS = 20_000
CHAT = Path(__file__).resolve().parent.parent / "tests" / "vectors" / "whitespace"
INSTALLED = (
    sysconfig.get_paths()["purelib"],
    "/usr/lib/node_modules",
    "/usr/share/doc",
    "/usr/share/nodejs",
    "/usr/lib/python3/dist-packages",
    "/usr/lib/google-cloud-sdk",
    "/usr/lib/jvm",
)


@dataclass(frozen=True, slots=True)
class Document:
    """One markdown text: `name` is its folder and file name, `text` has LF line ends."""

    name: str
    text: str


@dataclass(slots=True)
class Score:
    """What was counted over one set of documents.

    Attributes:
        pairs: how often (true kind, guessed kind) came up; kinds are indices of KINDS.
        exact, rendered: boundaries guessed to the character, and those that render the same.
        errors: (document, text before, true white space, guess, text after), first ones only.
    """

    documents: int = 0
    chars: int = 0
    seconds: float = 0.0
    exact: int = 0
    rendered: int = 0
    rendered_spaces: int = 0
    pairs: Counter[tuple[int, int]] = field(default_factory=Counter)
    errors: list[tuple[str, str, str, str, str]] = field(default_factory=list)

    @property
    def boundaries(self) -> int:
        return sum(self.pairs.values())

    def share(self, count: int) -> float:
        return count / self.boundaries if self.boundaries else 0.0


def kind(white: str) -> int:
    """Return 0 for white space within a line, 1 for one line break, 2 for a blank line."""
    return min(white.count("\n"), 2)


def documents(folders: Iterable[str | Path]) -> Iterator[Document]:
    """Yield every markdown text below `folders`, sorted, equal texts once."""
    seen: set[str] = set()
    for folder in folders:
        root = Path(folder)
        paths = [p for pattern in ("*.md", "*.markdown", "METADATA") for p in root.rglob(pattern)]
        for path in sorted(paths):
            if LICENCE.search(str(path.relative_to(root))):
                continue
            try:
                text = path.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError):
                continue
            if path.name == "METADATA":
                head, _, text = text.partition("\n\n")
                if "description-content-type: text/markdown" not in head.lower():
                    continue
            text = text.replace("\r\n", "\n").replace("\r", "\n")[:MAX_CHARS]
            digest = hashlib.sha256(text.encode()).hexdigest()
            if digest not in seen:
                seen.add(digest)
                yield Document(f"{path.parent.name}/{path.name}", text)


def is_dev(name: str) -> bool:
    """Tell the half a document belongs to, from its name alone."""
    return hashlib.sha256(name.encode()).digest()[0] % 2 == 0


def unwrap(text: str) -> str:
    """Join the lines of hard-wrapped paragraphs, as a chat answer has them: one line each."""
    out: list[str] = []
    fence, joinable, comment = "", False, False
    for line in text.split("\n"):
        stripped = line.strip()
        mark = re.match(r"(```+|~~~+)", stripped)
        if mark and (not fence or stripped == fence):
            fence = "" if fence else mark[1]
            joinable = False
        elif comment or stripped.startswith("<!--"):
            comment = "-->" not in stripped
            joinable = False
        elif fence or not stripped or OTHER_BLOCK.match(stripped) or (not joinable and line.startswith("    ")):
            joinable = False
        elif joinable and not ITEM.match(stripped):
            out[-1] = out[-1].rstrip() + " " + stripped
            continue
        else:
            joinable = True
        out.append(line)
    return "\n".join(out)


def cut(text: str) -> tuple[list[str], list[str]]:
    """Split as the old hosts did; return the pieces and the white space between them."""
    pieces, gaps, start = [], [], 0
    for match in SPLITTER.finditer(text):
        if match.end() == len(text):
            break
        pieces.append(text[start : match.start()])
        gaps.append(match[0])
        start = match.end()
    pieces.append(text[start:])
    return pieces, gaps


def guesses(pieces: list[str]) -> list[str]:
    """Return what the guesser puts between `pieces`, fed as a stream feeds it."""
    guesser, found = whitespace.WhitespaceGuesser(), []
    guesser.text(pieces[0])
    for piece in pieces[1:]:
        guess = guesser.guess(piece)
        found.append(guess)
        guesser.text(guess)
        guesser.text(piece)
    return found


def renderer() -> Callable[[str], str] | None:
    """Return markdown to comparable HTML, or None where no renderer is installed."""
    try:
        from markdown_it import MarkdownIt
    except ImportError:
        return None
    markdown = MarkdownIt("commonmark").enable("table")

    def render(text: str) -> str:
        return "".join(
            part if part.startswith("<pre") else re.sub(r"\s+", " ", part)
            for part in re.split(r"(<pre.*?</pre>)", markdown.render(text), flags=re.DOTALL)
        )

    return render


def safe_starts(text: str) -> list[int]:
    """Return where a text may be cut and its rest still renders so: unindented lines behind a blank one, no fence."""
    starts, fence, blank, at = [0], "", True, 0
    for line in text.splitlines(keepends=True):
        mark = re.match(r"\s*(```+|~~~+)", line)
        if mark and (not fence or line.strip().startswith(fence)):
            fence = "" if fence else mark[1]
        elif blank and not fence and re.match(r"[A-Za-z#]", line):
            starts.append(at)
        blank = not line.strip()
        at += len(line)
    return starts


def measure(docs: Iterable[Document], render: Callable[[str], str] | None, keep_errors: int = 0) -> Score:
    """Score the guesser on `docs`."""
    score = Score()
    for doc in docs:
        pieces, gaps = cut(doc.text)
        began = perf_counter()
        found = guesses(pieces)
        score.seconds += perf_counter() - began
        score.documents += 1
        score.chars += len(doc.text)
        starts, at = safe_starts(doc.text), 0
        for piece, gap, guess in zip(pieces, gaps, found, strict=False):
            at += len(piece)
            score.pairs[kind(gap), kind(guess)] += 1
            score.exact += gap == guess
            if render:
                score.rendered += gap == guess or same_page(render, doc.text, starts, at, gap, guess)
                score.rendered_spaces += gap == " " or same_page(render, doc.text, starts, at, gap, " ")
            if kind(gap) != kind(guess) and len(score.errors) < keep_errors:
                after = doc.text[at + len(gap) :][:70]
                score.errors.append((doc.name, doc.text[max(0, at - 150) : at], gap, guess, after))
            at += len(gap)
    return score


def same_page(render: Callable[[str], str], text: str, starts: list[int], at: int, gap: str, guess: str) -> bool:
    """Tell whether `text` renders to the same HTML with `guess` for the `gap` at `at`; a few blocks around it count."""
    before = [start for start in starts if start <= at]
    start = before[max(0, len(before) - 3)]
    after = [s for s in starts if s > at + len(gap)]
    end = after[min(2, len(after) - 1)] if after else len(text)
    rest = text[at + len(gap) : end]
    return render(text[start:at] + gap + rest) == render(text[start:at] + guess + rest)


def samples(docs: Iterable[Document], weight: float) -> Iterator[tuple[list[str], bool, float]]:
    """Yield (signs, whether a paragraph begins, weight) wherever the signs decide; the guesser sees the true text."""
    asked: list[tuple[paragraphs.Place, str]] = []

    def ask(place: paragraphs.Place, head: str) -> bool:
        asked.append((place, head))
        return False

    with mock.patch.object(whitespace, "begins_paragraph", ask):
        for doc in docs:
            pieces, gaps = cut(doc.text)
            guesser = whitespace.WhitespaceGuesser()
            guesser.text(pieces[0])
            for gap, piece in zip(gaps, pieces[1:], strict=True):
                asked.clear()
                guesser.guess(piece)
                if asked and kind(gap) != 1:
                    yield paragraphs.signs(*asked[-1]), kind(gap) == 2, weight
                guesser.text(gap + piece)


def fit(data: list[tuple[list[str], bool, float]], decay: float = 500.0, rounds: int = 60) -> dict[str, int]:
    """Return the points of every sign: a logistic regression by AdaGrad, weights drawn to 0, in tenths and rounded."""
    weights: dict[str, float] = defaultdict(float)
    squares: dict[str, float] = defaultdict(lambda: 1e-6)
    total, order, chance = sum(weight for *_, weight in data), list(range(len(data))), random.Random(0)
    for _ in range(rounds):
        chance.shuffle(order)
        for signs, begins, weight in (data[i] for i in order):
            odds = max(-30.0, min(30.0, sum(weights[sign] for sign in signs)))
            error = weight * (1 / (1 + math.exp(-odds)) - begins)
            for sign in signs:
                slope = error + decay * weights[sign] / total
                squares[sign] += slope * slope
                weights[sign] -= 0.3 * slope / math.sqrt(squares[sign])
    seen = Counter(sign for signs, *_ in data for sign in signs)
    return {sign: round(10 * weights[sign]) for sign in sorted(weights) if abs(weights[sign]) >= 0.1 and seen[sign] > 2}


def report(name: str, score: Score, rendered: bool) -> None:
    """Print one set's figures."""
    print(f"\n{name}: {score.documents} documents, {score.chars:,} characters, {score.boundaries:,} boundaries")
    if not score.boundaries:
        return
    right = sum(n for (true, guess), n in score.pairs.items() if true == guess)
    spaces = sum(n for (true, _), n in score.pairs.items() if true == 0)
    print(f"  class accuracy     {score.share(right):6.1%}   (all spaces: {score.share(spaces):.1%})")
    print(f"  exact characters   {score.share(score.exact):6.1%}")
    if rendered:
        print(f"  rendered the same  {score.share(score.rendered):6.1%}   ", end="")
        print(f"(all spaces: {score.share(score.rendered_spaces):.1%})")
    for index, label in enumerate(KINDS):
        hit = score.pairs[index, index]
        true = sum(n for (t, _), n in score.pairs.items() if t == index)
        said = sum(n for (_, g), n in score.pairs.items() if g == index)
        precision, recall = hit / said if said else 1.0, hit / true if true else 1.0
        row = "  ".join(f"{score.pairs[index, g]:6d}" for g in range(3))
        print(f"  {label:11s} precision {precision:6.1%}  recall {recall:6.1%}   guessed as space, break, blank: {row}")
    print(f"  speed              {score.chars / max(score.seconds, 1e-9) / 1e6:.1f} million characters a second")


def main(argv: list[str] | None = None) -> int:
    """Run the measurement; return 0."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--dir", action="append", help="folder with markdown, instead of what is installed")
    parser.add_argument("--self", dest="own", default=str(CHAT), help="folder of the set `chat`")
    parser.add_argument("--half", choices=["dev", "held-out"], help="measure this half only")
    parser.add_argument("--no-render", action="store_true", help="leave out the rendered comparison (slow)")
    parser.add_argument("--errors", type=int, default=0, metavar="N", help="show the first N mistakes of each set")
    parser.add_argument("--fit", action="store_true", help="print the points fitted on `dev`, and measure nothing")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    options = parser.parse_args(argv)
    render = None if options.no_render else renderer()
    docs = list(documents(options.dir or INSTALLED))
    chat = list(documents([options.own]))
    sets = {}
    for half in [options.half] if options.half else ["dev", "held-out"]:
        members = [doc for doc in docs if is_dev(doc.name) == (half == "dev")]
        sets[half] = members
        sets[f"{half}, unwrapped"] = [Document(doc.name, unwrap(doc.text)) for doc in members]
        sets[f"{half}, chat"] = [doc for doc in chat if is_dev(doc.name) == (half == "dev")]
    if not options.half:
        sets["chat"] = chat
    if options.fit:
        # A chat answer counts 25 times: it is what the guesser is for, and there are few.
        # Change logs are left out: what stands behind their list items (thanks, dates, versions) is no chat's.
        prose = [doc for doc in sets["dev, unwrapped"] if not CHANGES.search(doc.name)]
        data = [*samples(prose, 1.0), *samples(sets["dev, chat"], 25.0)]
        for sign, points in fit(data).items():
            print(f"    {json.dumps(sign)}: {points},")
        return 0
    result = {}
    for name, members in sets.items():
        score = measure(members, render, options.errors)
        right = sum(n for (true, guess), n in score.pairs.items() if true == guess)
        result[name] = {
            "documents": score.documents,
            "boundaries": score.boundaries,
            "class": round(score.share(right), 4),
            "exact": round(score.share(score.exact), 4),
            "rendered": round(score.share(score.rendered), 4) if render else None,
        }
        if not options.json:
            report(name, score, render is not None)
            for where, before, gap, guess, after in score.errors:
                print(f"--- {where}: {gap!r} guessed {guess!r}\n{before}<HERE>{after!r}")
    if options.json:
        print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
