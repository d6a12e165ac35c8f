"""What `auto` holds since its two readings parted, twice: as it came, and as items of the right reading."""

from __future__ import annotations

from sse_proxy.core.dialects.base import FrameRules
from sse_proxy.core.dialects.single_prefix import SinglePrefixParser
from sse_proxy.core.events import Item

__all__ = ["Undecided"]


class Undecided:
    """Hold text until it is decided which reading was right.

    Attributes:
        holding: text is held from some place on; else both readings agree on all that came.
        size: how many characters are held.
        items: what the right reading made of it.
        weak: a frame boundary where no sentence ends is held; so is all that follows it.
        line, frame: where in what is held the current line, and the open frame, begin.
        first_end: where the open frame's first data line ends, and the last visible character there.
    """

    def __init__(self) -> None:
        self.holding = True
        self.size = 0
        self.items: list[Item] = []
        self.weak = False
        self.line = self.frame = 0
        self.first_end = 0, ""
        self._raw: list[str] = []
        self._weak_start = 0, 0  # what of items and of _raw stands before the first weak boundary that is held
        # Where it begins: before the stream's first frame or not; from between frames, or inside one that ends so
        self._first = True
        self._last: str | None = None

    # Text in -------------------------------------------------------------------------------------------------------

    def take(self, part: str) -> None:
        """Take more of what came, if anything is held."""
        if self.holding:
            self._raw.append(part)
            self.size += len(part)

    def end_line(self) -> None:
        """A LF ends the current line."""
        if self.holding:
            self._raw.append("\n")
            self.size += 1
            self.line = len(self._raw)

    def mark_frame(self) -> None:
        """A frame begins with the current line."""
        self.frame = self.line

    def mark_first_end(self, last: str) -> None:
        """A frame's first data line ends here, its last visible character being `last`."""
        self.first_end = len(self._raw), last

    def mark_weak(self) -> None:
        """The current line begins behind a weak boundary."""
        if not self.weak:
            self.weak = True
            self._weak_start = len(self.items), self.line

    # Where it begins -----------------------------------------------------------------------------------------------

    def hold(self, *, first: bool, last: str | None, before: str = "") -> None:
        """Hold from here on.

        Args:
            first: no frame has ended yet.
            last: inside a frame whose text ends in this; None: from between frames.
            before: what came just before belongs to it as well, but is not held: it was passed on.
        """
        self.hold_nothing()
        self.holding = True
        self._first, self._last = first, last
        if before:
            self._raw.append(before)
            self.line = 1

    def hold_nothing(self) -> None:
        """Both readings agree up to here."""
        self.holding = False
        self._raw.clear()
        self.size = self.line = self.frame = 0

    # Decisions -----------------------------------------------------------------------------------------------------

    @property
    def text(self) -> str:
        """What is held, as it came."""
        return "".join(self._raw)

    def release(self, *, first: bool) -> list[Item]:
        """It was frames: return them, and hold what comes, from between frames on."""
        items, self.items = self.items, []
        self.weak = False
        self.hold(first=first, last=None)
        return items

    def release_before(self, keep: int, *, first: bool, last: str | None = None) -> list[Item]:
        """What stands before `keep` was frames: return them, and hold the rest on (`last`: as for `hold`)."""
        rest, (first_end, end_last) = self._raw[keep:], self.first_end
        line, frame = max(0, self.line - keep), max(0, self.frame - keep)
        items = self.release(first=first)
        self._last = last
        self._raw.extend(rest)
        self.size = sum(map(len, rest))
        self.line, self.frame = line, frame
        self.first_end = max(0, first_end - keep), end_last
        return items

    def drop_weak(self, rules: FrameRules) -> list[Item]:
        """Return what stands before the first weak boundary, and drop what follows it."""
        items, raw = self._weak_start
        rules.drop("".join(self._raw[raw:]))
        return self.items[:items]

    def as_single_prefix(self, rules: FrameRules, *, first: bool, last: str) -> SinglePrefixParser:
        """Return a single-prefix parser that stands where `text` begins; where nothing is held, at `first` and `last`.

        Args:
            first, last: no frame has ended yet; the last visible character of the frame that is open.
        """
        parser = SinglePrefixParser(rules)
        if not self.holding:
            parser.resume(first=first, last=last)
        elif self._last is not None:
            parser.resume(first=self._first, last=self._last)
        elif not self._first:
            parser.resume_between()
        return parser
