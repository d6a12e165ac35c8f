"""Splitters: answer text to chunks. The chunks joined are the text, whatever happens.

`SentenceSplitter` is the zero-width splitter of the hosts, `(?<=[.!?]\\s+)(?=\\S)` with .NET's `\\s`, on text that is
still arriving. All splitters share feed(), frame_end(), flush() and close(), and return lists of chunks.
"""

from __future__ import annotations

import re
from typing import Protocol

from sse_proxy.core.options import Split
from sse_proxy.core.unicode import DOTNET_SPACE, utf8_length

__all__ = ["FrameSplitter", "LineTextSplitter", "SentenceSplitter", "Splitter", "make_splitter"]

MARKS = ".!?"

# Possessive, and only one mark can stand before a run of white space: linear on any text.
_CUT = re.compile(f"[{MARKS}][{DOTNET_SPACE}]++(?=.)", re.DOTALL)
_NOT_SPACE = re.compile(f"[^{DOTNET_SPACE}]")


class Splitter(Protocol):
    """Cut the text of one answer into chunks, none of them empty."""

    @property
    def pending(self) -> bool:
        """Whether text waits for more that `flush()` would return."""
        ...

    @property
    def size(self) -> int:
        """How many characters wait."""
        ...

    def feed(self, text: str) -> list[str]:
        """Take the next text; return the chunks that are certain."""
        ...

    def frame_end(self) -> list[str]:
        """The upstream's frame ends here; return the chunk that this settles."""
        ...

    def flush(self) -> list[str]:
        """Return what has waited long enough."""
        ...

    def close(self) -> list[str]:
        """The answer is over: return all that is left."""
        ...


class _Pending:
    """The text since the last cut, as parts joined once; knows when it passes the longest chunk."""

    def __init__(self, max_chunk_bytes: int) -> None:
        self._parts: list[str] = []
        self.chars = 0
        self._max = max(4, max_chunk_bytes)  # the longest character

    def __bool__(self) -> bool:
        return bool(self._parts)

    def add(self, text: str) -> None:
        if text:
            self._parts.append(text)
            self.chars += len(text)

    def take(self) -> str:
        text = "".join(self._parts)
        self._parts.clear()
        self.chars = 0
        return text

    def overflow(self) -> list[str]:
        """Cut whole chunks of the greatest length off the front while there is more than one.

        Counted from the last cut, so the places depend on the text alone.
        """
        if self.chars * 4 <= self._max:  # a character has at most four bytes
            return []
        text = self.take()
        chunks = []
        if len(text) > self._max or utf8_length(text) > self._max:
            raw = text.encode("utf-8", "surrogatepass")
            start = 0
            while len(raw) - start > self._max:
                end = start + self._max
                while raw[end] & 0xC0 == 0x80:  # not inside a character
                    end -= 1
                chunks.append(raw[start:end].decode("utf-8", "surrogatepass"))
                start = end
            text = raw[start:].decode("utf-8", "surrogatepass")
        self.add(text)
        return chunks


class SentenceSplitter:
    """Cut behind each sentence mark and its white space, before the next character that is none.

    A chunk also ends at `max_chunk_bytes`, and with the frame where the text ends in a mark and white space: the host
    has cut there itself. Time (`flush()`) may add cuts; nothing changes text.
    """

    def __init__(self, max_chunk_bytes: int) -> None:
        self._pending = _Pending(max_chunk_bytes)
        self._after_mark = False  # the last character is a mark
        self._in_gap = False  # a mark and at least one white space character are the last ones

    @property
    def pending(self) -> bool:
        """Whether text waits for more."""
        return bool(self._pending)

    @property
    def size(self) -> int:
        """How many characters wait: at most `max_chunk_bytes`."""
        return self._pending.chars

    def feed(self, text: str) -> list[str]:
        """Take the next text; return the chunks that are certain."""
        if not text:
            return []
        chunks: list[str] = []
        start = 0
        if self._after_mark or self._in_gap:
            found = _NOT_SPACE.search(text)
            gap = found.start() if found else len(text)
            if gap:
                self._in_gap, self._after_mark = True, False
            if not found:
                self._pending.add(text)
                return self._pending.overflow()
            if self._in_gap:
                self._pending.add(text[:gap])
                chunks += self._cut()
                start = gap
        for cut in _CUT.finditer(text, start):
            self._pending.add(text[start : cut.end()])
            chunks += self._cut()
            start = cut.end()
        rest = text[start:]
        self._pending.add(rest)
        chunks += self._pending.overflow()
        self._after_mark = rest[-1] in MARKS
        bare = rest.rstrip(DOTNET_SPACE)
        self._in_gap = len(bare) < len(rest) and bool(bare) and bare[-1] in MARKS
        return chunks

    def _cut(self) -> list[str]:
        chunks = self._pending.overflow()
        if self._pending:
            chunks.append(self._pending.take())
        return chunks

    def frame_end(self) -> list[str]:
        """The upstream's frame ends here; a mark and white space at its end are a certain cut."""
        return self.flush() if self._in_gap else []

    def flush(self) -> list[str]:
        """Return what waits, now."""
        self._after_mark = self._in_gap = False
        return [self._pending.take()] if self._pending else []

    def close(self) -> list[str]:
        """Return all that is left."""
        return self.flush()


class LineTextSplitter:
    """Cut after each LF (`split: line`)."""

    def __init__(self, max_chunk_bytes: int) -> None:
        self._pending = _Pending(max_chunk_bytes)

    @property
    def pending(self) -> bool:
        """Whether text waits for more."""
        return bool(self._pending)

    @property
    def size(self) -> int:
        """How many characters wait: at most `max_chunk_bytes`."""
        return self._pending.chars

    def feed(self, text: str) -> list[str]:
        """Take the next text; return the whole lines."""
        chunks: list[str] = []
        start = 0
        while end := text.find("\n", start) + 1:
            self._pending.add(text[start:end])
            chunks += self._pending.overflow()
            chunks.append(self._pending.take())
            start = end
        self._pending.add(text[start:])
        return chunks + self._pending.overflow()

    def frame_end(self) -> list[str]:
        """A frame's end is no line's end."""
        return []

    def flush(self) -> list[str]:
        """Return what waits, now."""
        return [self._pending.take()] if self._pending else []

    def close(self) -> list[str]:
        """Return all that is left."""
        return self.flush()


class FrameSplitter:
    """One chunk for each upstream frame (`split: none`), however long it takes."""

    pending = False  # a frame waits for its end, not for a clock

    def __init__(self) -> None:
        self._parts: list[str] = []
        self.size = 0

    def feed(self, text: str) -> list[str]:
        """Take the next text of the frame."""
        if text:
            self._parts.append(text)
            self.size += len(text)
        return []

    def frame_end(self) -> list[str]:
        """Return the frame as one chunk."""
        return self.close()

    def flush(self) -> list[str]:
        """Return nothing: time ends no frame."""
        return []

    def close(self) -> list[str]:
        """Return all that is left."""
        text = "".join(self._parts)
        self._parts.clear()
        self.size = 0
        return [text] if text else []


def make_splitter(split: Split, max_chunk_bytes: int) -> Splitter:
    """Return the splitter of one setting."""
    if split is Split.SENTENCE:
        return SentenceSplitter(max_chunk_bytes)
    return LineTextSplitter(max_chunk_bytes) if split is Split.LINE else FrameSplitter()
