"""What an old sentence splitter removed between two sentences, guessed back from the markdown around it.

The old hosts split an answer on `(?<=[.!?])\\s+` (white space as .NET reads it) and drop what matched, so behind a
frame that ends in a sentence mark a space, a line break or a blank line is lost. `WhitespaceGuesser` follows the answer
line by line, knows in which block of markdown it stands, and decides from that and the beginning of the next frame.

What has a mark of its own (a list item, a heading, a fence, a table row, a quote) is nearly certain. In hard-wrapped
text the width of the lines tells. For the rest see `paragraphs`. How often it is right: `bench/whitespace.py`.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from unicodedata import category

from sse_proxy.core.markdown import FENCE, ITEM, MARKED, block_at, kind_of, marker_of, shape_of
from sse_proxy.core.paragraphs import HEAD, Place, Run, announced, begins_paragraph

__all__ = ["WhitespaceGuesser"]

_WRAPPED_HEAD = 120  # most characters of the next frame that are waited for; HEAD but for hard-wrapped text
_LINE = 160  # characters kept of the open line's beginning
_TAIL = 24  # and of its end
_LEVELS = 6  # depth of nested lists that is followed
_WIDEST = 110  # no text is wrapped wider: a longer line is a whole paragraph

_SOFT_BREAK = re.compile(r"[^\n]{1,100}[^\n:]\n(?:> ?| {1,9})?[a-z(`]")
# A full stop that ends no sentence: of an abbreviation, or of a number that counts a line, a heading, a step.
_NO_END = re.compile(r"(?:^|[\s(])(?:e\.g|i\.e|vs|cf|approx|ca|resp|incl|Dr|Mr|Mrs|Ms|St|Fig|fig|Nr|pp|Vol|al)\.$")
_BARE_NUMBER = re.compile(
    r"[#/>\s*_|+[-]*(?:(?:Step|Part|Example|Exercise|Chapter) )?(?:\d{1,9}(?:\.\d{1,3})*|[A-Za-z])\.$"
)
_SENTENCE = re.compile(r"[.!?][\"')*_`]{0,8}\s")
_SENTENCE_END = re.compile(r"[.!?][\"')*_`]{0,8}$")
# In a fence: a comment, and what reads like talk rather than like code.
_COMMENT = re.compile(r"\s*(?:#|//|--|;|\*|%|/\*|<!--)|.*\s(?:#|//) ")
_TALK = re.compile(r"[A-Z][\w']*,? [a-z0-9`(\"'][^=;{}]*$|[A-Z][a-z']+[.!?]$")
_TALK_LINE = re.compile(r"\s*(?:[\w'(`\"-]+[,:;)\"`']* ){2,}[^=;{}]*$")


@dataclass(slots=True)
class _Level(Run):
    """One list that is open.

    Attributes:
        indent, content: columns of the marker and of the text behind it; `white`: what stands before the marker.
        mark: the bullet, or `.` or `)` of a numbered list; `number`: the last item's.
        shape: what kind of character the items' text begins with.
        loose: its items are set apart by blank lines.
    """

    indent: int = 0
    content: int = 0
    white: str = ""
    mark: str = "-"
    number: int = 0
    shape: str = ""
    loose: bool = False


class WhitespaceGuesser:
    """Guess the white space an old splitter removed, from the text before it and the next frame's beginning.

    Feed every piece of answer text to `text()`, the white space put back included; where a frame ends in `.`, `!` or
    `?` without white space and another one follows, ask `ready()`, then `guess()`. Both may be asked again and change
    nothing. The state is bounded however long the answer is, and nothing depends on how the text was cut.
    """

    def __init__(self) -> None:
        # The open line: beginning, end, length; whether its block was settled, and what that is.
        self._line = self._tail = ""
        self._length = self._indent = 0
        self._opened = False
        self._kind = "blank"
        # The lines before it.
        self._blank = True  # a blank line, or nothing, stands before it
        self._previous = "blank"  # the line before: its kind, length and text (both its ends)
        self._previous_length = 0
        self._previous_text = ""
        # The block it stands in.
        self._sentences = self._chars = 0
        self._block = self._behind = "nothing"
        self._fence = ""
        self._fence_indent = 0
        self._comment = False
        self._levels: list[_Level] = []
        self._leads: Run | None = None  # paragraphs with a bold lead
        # The answer's habits.
        self._tight: dict[str, bool] = {}  # by place: whether no blank line stands there
        self._loose: dict[str, bool] = {}  # by list mark
        self._widths: deque[int] = deque(maxlen=12)  # of lines that were wrapped; 0 for a long one that was not

    def text(self, piece: str) -> None:
        """Take the next piece of the answer, cut anywhere; line ends are LF."""
        start = 0
        while (end := piece.find("\n", start)) >= 0:
            self._extend(piece[start:end])
            self._end_line()
            start = end + 1
        self._extend(piece[start:])

    def ready(self, head: str, *, final: bool) -> bool:
        """Tell whether `head`, the beginning of the next frame, is long enough to decide.

        At most 120 characters are asked for, 64 but for hard-wrapped text; none beyond the word after the first line.
        To be asked only where a frame ended in a sentence mark, after its text was passed to `text()`.

        Args:
            head: of this frame only, without the white space that is to be guessed.
            final: the frame ends behind `head`, or the stream does.
        """
        return final or len(head) >= _WRAPPED_HEAD or self._decide_early(head) is not None

    def guess(self, head: str) -> str:
        """Return the white space to put back before `head`: a space, or one or two LFs and the next line's indentation.

        The shortest beginning of `head` that `ready()` accepts decides, so more of it changes nothing.
        """
        return self._decide_early(head) or self._decide(head[:_WRAPPED_HEAD], final=True) or " "

    # Following the text

    def _extend(self, part: str) -> None:
        if not part:
            return
        if self._length < _LINE:
            self._line += part[: _LINE - self._length]
        joined = self._tail + part
        if not self._fence:
            for match in _SENTENCE.finditer(joined):
                before = joined[max(0, match.start() - 8) : match.start() + 1]
                if match.end() > len(self._tail) and not _NO_END.search(before):
                    self._sentences += 1
        self._tail = joined[-_TAIL:]
        self._length += len(part)
        self._chars += len(part)

    def _end_line(self) -> None:
        self._open()
        kind = self._kind
        if kind == "comment":
            self._comment = "-->" not in self._line and "-->" not in self._tail
        if kind != "blank":
            self._sentences += not self._fence and _SENTENCE_END.search(self._tail) is not None
            self._previous_length = self._length
            self._previous_text = self._line + (self._tail if self._length > _LINE else "")
            if kind in ("prose", "item") and self._length > _WIDEST:
                self._widths.append(0)
        self._blank = kind == "blank"
        self._previous = kind
        self._line = self._tail = ""
        self._length = 0
        self._opened = False

    def _open(self) -> None:
        """Settle which block the open line belongs to; once a line, as its first characters say all."""
        if self._opened:
            if self._kind == "item" and self._levels and not self._levels[-1].shape:
                self._levels[-1].shape = shape_of(ITEM.sub("", self._line.lstrip(), count=1))  # the number came alone
            return
        self._opened = True
        line = self._line.expandtabs(4)
        text = line.lstrip()
        self._indent = indent = len(line) - len(text)
        previous, fence = self._previous, FENCE.match(text)
        if self._fence:
            self._kind = "fence"
            if fence and fence[1].startswith(self._fence) and not text[len(fence[1]) :].strip():
                self._fence = ""
            return
        self._kind = kind = "comment" if self._comment else kind_of(text)
        if kind in ("blank", "comment"):
            return
        item_goes_on = kind == "prose" and previous == "item" and not self._blank
        if not item_goes_on and (kind == "item" or self._blank or kind != previous):
            self._begin_block(kind, indent, text)
        line_goes_on = kind == "prose" and not self._blank and previous in ("prose", "item")
        if line_goes_on and 50 <= self._previous_length <= _WIDEST:
            self._widths.append(self._previous_length)
        if fence:
            self._fence, self._fence_indent = fence[1], indent
        for place, here in (
            ("before fence", kind == "fence"),
            ("before heading", kind == "heading" and previous != "heading"),
            ("after heading", kind != "heading" and previous == "heading"),
            ("before list", kind == "item" and not self._levels[1:] and self._levels[-1].items == 1),
        ):
            if here:
                self._tight[place] = not self._blank

    def _begin_block(self, kind: str, indent: int, text: str) -> None:
        """End the block before and begin another one with the open line."""
        if self._leads and self._block == "lead":
            self._leads.end_item(self._sentences)
        if kind == "item":
            self._open_item(indent, text)
        elif self._levels and (self._blank or kind in ("heading", "rule", "row", "html")):
            while self._levels and indent + 2 <= self._levels[-1].content:
                self._levels.pop()
            if self._levels and self._blank:
                self._levels[-1].loose = True
        if kind == "prose" and text.startswith("**") and not self._levels:
            kind = "lead"
            if self._leads:
                self._leads.items += 1
            else:
                self._leads = Run()
        elif kind in ("heading", "rule"):
            self._leads = None
        self._behind, self._block = self._block, kind
        self._sentences, self._chars = 0, self._length

    def _open_item(self, indent: int, text: str) -> None:
        match = ITEM.match(text)
        if not match:
            return
        mark, number = marker_of(match[1])
        inner = False  # an inner list ended: the sentences counted are its last item's
        while self._levels and indent < self._levels[-1].indent:
            inner = True
            self._levels.pop()
        level = self._levels[-1] if self._levels else None
        new = _Level(
            announced(self._previous_text),
            indent=indent,
            content=indent + max(match.end(), len(match[1]) + 1),
            white=self._line[: len(self._line) - len(self._line.lstrip())],
            mark=mark,
            number=number,
            shape=shape_of(text[match.end() :]),
            loose=self._loose.get(mark, False),
        )
        if level is None or indent >= level.content:
            if len(self._levels) < _LEVELS:
                self._levels.append(new)
        elif level.mark != mark or (self._blank and self._previous_text.endswith(":")):
            self._levels[-1] = new  # another list: that line leads it in
        else:
            if level.items == 1 or self._blank:
                self._loose[mark] = level.loose = self._blank
            if not inner:
                level.end_item(self._sentences)
            level.items += 1
            level.number = number

    # Deciding

    def _decide_early(self, head: str) -> str | None:
        """Decide from the shortest beginning of `head` that suffices, so that more of it changes nothing."""
        for length in range(1, min(len(head), _WRAPPED_HEAD) + 1):
            white = self._decide(head[:length], final=False)
            if white is not None:
                return white
        return None

    def _decide(self, head: str, *, final: bool) -> str | None:
        """Return the white space before `head`, or None where more of it is needed."""
        if not head:
            return " " if final else None
        self._open()
        if self._length <= _TAIL and _BARE_NUMBER.fullmatch(self._line):
            return " "
        if self._fence:
            return self._in_fence(head, final=final)
        if head[0] in MARKED:
            block = block_at(head, final=final)
            if block is None:
                return None
            if block != "prose":
                return self._before(block, head, final=final)
        if _NO_END.search(self._tail) or self._kind in ("row", "comment"):
            return " "
        if self._kind == "heading":
            return self._gap("after heading")
        if self._wrapped() or _SOFT_BREAK.match(head):
            return self._in_wrapped(head, final=final)
        if _goes_on(head):
            return " "
        if category(head[0]) == "So":  # an emoji: a bullet like that of the line before, or the sentence's last word
            rest = head[1:].lstrip("\ufe0f")
            if not rest and not final:
                return None
            if not rest or rest[0] == "\n":
                return " "
            if category(self._line[:1] or " ") == "So":
                return "\n"
        end = head.find("\n")
        if not final and len(head) < (HEAD if end < 0 else end + 4):
            return None
        return "\n\n" if begins_paragraph(self._place(), head) else " "

    def _before(self, block: str, head: str, *, final: bool) -> str | None:
        """Return the white space before a block that `head` begins with its mark."""
        kind, content = self._kind, self._levels[-1].content if self._levels else 0
        if block == "comment end":
            return "\n"
        if kind == "comment":
            return "\n" + " " * self._indent
        if kind == "row":
            return " "  # the cell's, or the row's, end
        if block == "item":
            return self._before_item(head, final=final)
        if block == "fence":
            end = head.find("\n")
            if content and not final and len(head) < (HEAD if end < 0 else min(end + 1 + content, HEAD)):
                return None
            # In a list item only if what the fence holds is indented so: around lines that are not it would end early.
            inside = end >= 0 and head[end + 1 : end + 1 + content] == " " * content
            return self._gap("before fence") + " " * (content if inside else 0)
        if block == "heading":
            return self._gap("before heading")
        return "\n" if block == kind and block in ("quote", "definition", "html") else "\n\n"

    def _before_item(self, head: str, *, final: bool) -> str | None:
        match = ITEM.match(head)
        if not match:
            return " "
        mark, number = marker_of(match[1])
        if not self._levels:
            if self._kind == "quote":
                return " "
            return "\n\n" if self._kind == "heading" else self._gap("before list")
        same = [level for level in self._levels if level.mark == mark]
        if number:
            same = [level for level in same if number == level.number + 1] or same[-1:]
            if same and number == 1 < same[0].number:
                return "\n\n"  # another list
        if len(same) > 1:  # which depth? the one whose items begin alike
            rest = head[match.end() :]
            if not rest and not final:
                return None
            same = [level for level in same if level.shape == shape_of(rest)] or same
        if same:
            return ("\n\n" if same[-1].loose else "\n") + same[-1].white
        return "\n" + " " * self._levels[-1].content

    def _in_fence(self, head: str, *, final: bool) -> str | None:
        indent = " " * self._indent
        if head[0] in "`~":
            if len(head) < 3 and not final:
                return None
            return "\n" + (" " * self._fence_indent if head.startswith(self._fence[:3]) else indent)
        if not head[0].isalnum():
            return "\n" + indent
        end = head.find("\n")
        if not final and len(head) < (HEAD if end < 0 else end + 1):
            return None
        first_line = head[:HEAD] if end < 0 else head[:end]
        # A sentence among code is a comment's or a program's output; it goes on where another one follows.
        talk = _COMMENT.match(self._line) or (_TALK_LINE.match(self._line) and self._length + len(first_line) < 80)
        return " " if talk and _TALK.match(first_line) else "\n" + indent

    def _gap(self, place: str) -> str:
        return "\n" if self._tight.get(place) else "\n\n"

    def _wrapped(self) -> bool:
        long = self._widths.count(0)
        return len(self._widths) - long >= max(3, long)

    def _in_wrapped(self, head: str, *, final: bool) -> str | None:
        """Decide in hard-wrapped text, by what fits on the open line."""
        widths = sorted(self._widths)
        width = (widths[-2] if len(widths) > 1 else 0) or 80
        end = head.find("\n")
        follow = re.match(r"\s*(\S+)(?=\s)", head[end:]) if end >= 0 else None
        if not final and not follow and len(head) < (width + 4 if end < 0 else _WRAPPED_HEAD):
            return None
        if self._kind == "quote" and follow and head[end + 1] == ">":
            return " "  # a line break would have left its mark
        first_line = head[: width + 4] if end < 0 else head[:end]
        fits = self._length + 1 + len(first_line.partition(" ")[0]) <= width
        next_line = "\n\n" if fits else "\n" + " " * (self._levels[-1].content if self._levels else self._indent)
        together = self._length + 1 + len(first_line)
        if together > width + 1:
            return next_line
        if follow:  # a line is full when the next one's first word has no place on it
            word = 1 + len(follow[1])
            full_together, full_alone = together + word >= width, len(first_line) + word >= width
            if full_together != full_alone:
                return " " if full_together else next_line
        return " " if _goes_on(head) or not begins_paragraph(self._place(), head) else "\n\n"

    def _place(self) -> Place:
        """Describe where the text stands, to weigh whether a paragraph begins."""
        sentences, mark = self._sentences + 1, self._tail[-1:]
        if self._levels:
            level = self._levels[-1]
            return Place("list", sentences, self._chars, mark, loose=level.loose, run=level)
        run = self._leads if self._block == "lead" else None
        return Place(self._kind, sentences, self._chars, mark, opening=self._behind == "nothing", run=run)


def _goes_on(head: str) -> bool:
    """Tell whether `head` begins in the middle of something, whatever the sentence mark before it was."""
    return head[0].islower() or head[0] in "(),;:"
