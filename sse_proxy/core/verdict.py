"""What of an answer a reader got: the count behind the demo's and the matrix's verdicts.

The public lesson about these hosts counts three things, and so does this module:

- *lines*: lines of text, that is lines that hold more than white space. (Where the lesson says "10 lines, the blank
  one counted" of the voicings answer, it tells its size; in a verdict blank lines count as line breaks only, or the
  improvisation answer would have 8 lines and not 6.) A line is missing when its characters are nowhere in one line
  of the text the reader got, or not as often as the answer has it. White space inside a line is left out of this
  comparison: a line whose spaces were lost is damaged, not missing, and its spaces are counted on their own.
- *line breaks*: how many fewer the reader got, wherever they were. A line and its break are lost independently: six
  chunks run together lose breaks and no line.
- *exact*: every character, line ends compared as LF (CRLF and a lone CR are one each), because an HTML reader cannot
  tell them apart (HTML 9.2.6).

The three counts cannot see a wrong order or text that was added; `exact` does.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

__all__ = ["Verdict", "judge", "lost_lines", "missing", "with_lf"]


def with_lf(text: str) -> str:
    """Return `text` with CRLF and lone CR turned into LF, nothing else changed."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is missing from the text a reader got. `str()` gives the lesson's words.

    Attributes:
        exact: nothing is missing and nothing was added or moved.
        lines_missing: lines of text that did not arrive.
        lines_total: lines of text the answer has; blank lines are none.
        breaks_missing: line breaks the answer has more than the text.
        spaces_missing: other white-space characters the answer has more than the text.
    """

    exact: bool
    lines_missing: int
    lines_total: int
    breaks_missing: int
    spaces_missing: int

    def __str__(self) -> str:
        """Say it as the lesson does: `exact`, or `1 of 6 lines missing, 8 line breaks missing`."""
        if self.exact:
            return "exact"
        parts = []
        if self.lines_missing:
            lines = "line" if self.lines_total == 1 else "lines"
            parts.append(f"{self.lines_missing} of {self.lines_total} {lines} missing")
        if self.breaks_missing:
            parts.append(f"{_count(self.breaks_missing, 'line break')} missing")
        # The spaces of a missing line went with it; saying so again would only hide the two figures that matter.
        if self.spaces_missing and not self.lines_missing:
            parts.append(f"{_count(self.spaces_missing, 'space')} missing")
        return ", ".join(parts) or "nothing missing, but the text differs"


def judge(answer: str, got: str) -> Verdict:
    """Compare what the host computed with what a reader made of the stream.

    Args:
        answer: the host's answer, with any line ends.
        got: the reader's text: the chunks joined, without routing object and done marker.
    """
    answer, got = with_lf(answer), with_lf(got)
    lines_missing, lines_total, breaks_missing = missing(answer, got)
    return Verdict(
        exact=answer == got,
        lines_missing=lines_missing,
        lines_total=lines_total,
        breaks_missing=breaks_missing,
        spaces_missing=max(0, _spaces(answer) - _spaces(got)),
    )


def missing(answer: str, got: str) -> tuple[int, int, int]:
    """Return (lines missing, lines of text in the answer, line breaks missing); see the module's docstring.

    `(0, n, 0)` is not yet "exact": that is `judge(answer, got).exact`.
    """
    answer, got = with_lf(answer), with_lf(got)
    lines_total = sum(1 for line in answer.split("\n") if line.strip())
    breaks_missing = max(0, answer.count("\n") - got.count("\n"))
    return len(lost_lines(answer, got)), lines_total, breaks_missing


def lost_lines(answer: str, got: str) -> list[str]:
    """Return the answer's lines that are missing, in order; of a line lost some of several times, its last ones."""
    lines = with_lf(answer).split("\n")
    wanted = Counter(filter(None, map(_squeezed, lines)))
    rest = "\n".join(map(_squeezed, with_lf(got).split("\n")))  # a line is not found across a line break
    lost: dict[str, int] = {}
    # Longest first, and what was found is taken out, so that "```" is not found again inside "```vextab".
    for line in sorted(wanted, key=len, reverse=True):
        lost[line] = max(0, wanted[line] - rest.count(line))
        rest = rest.replace(line, "\n", wanted[line])
    found = []
    for text in reversed(lines):
        line = _squeezed(text)
        if lost.get(line):
            lost[line] -= 1
            found.append(text)
    return found[::-1]


def _squeezed(text: str) -> str:
    return "".join(text.split())


def _spaces(text: str) -> int:
    return sum(map(str.isspace, text)) - text.count("\n")


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"
