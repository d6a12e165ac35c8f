"""Cutters: the splitter's chunks made safe for the reader. No chunk may be mistaken for a control event.

Where a chunk would be, the cut moves; the chunks joined stay the text.
"""

from __future__ import annotations

import re
from typing import Protocol

from sse_proxy.core.control import json_object
from sse_proxy.core.ledger import Ledger, RepairKind
from sse_proxy.core.options import Reader, StreamOptions
from sse_proxy.core.sentences import Splitter, make_splitter
from sse_proxy.core.unicode import JS_TRIMMED

__all__ = ["Cutter", "GaClientCutter", "StandardCutter", "make_cutter"]

_TRIMMED = frozenset(JS_TRIMMED)
_CUTTABLE = re.compile(rf"[^{JS_TRIMMED}](?=[^{JS_TRIMMED}{{])")
# Wider than the marker's own rule, as clients trim as they like: Java's trim() takes all up to U+0020.
_STRIPPED = JS_TRIMMED + "\x85" + "".join(map(chr, range(0x20)))


class Cutter(Protocol):
    """Text in, safe chunks out, none of them empty."""

    @property
    def pending(self) -> bool:
        """Whether text waits for more, and may be flushed by a clock."""
        ...

    @property
    def held(self) -> int:
        """How many characters wait beyond what two chunks of the greatest length may take."""
        ...

    def feed(self, text: str) -> list[str]:
        """Take the next text; return the chunks that are certain."""
        ...

    def frame_end(self) -> list[str]:
        """The upstream's frame ends here; return what this settles."""
        ...

    def flush(self) -> list[str]:
        """Return what has waited long enough."""
        ...

    def close(self) -> list[str]:
        """The answer is over: return all that is left."""
        ...


class _Danger:
    """Say whether a chunk could be mistaken for a control event."""

    def __init__(self, done: tuple[str, ...]) -> None:
        self._done = done

    def __call__(self, chunk: str) -> bool:
        bare = chunk.strip(_STRIPPED)
        if bare in self._done:
            return True
        if not bare.startswith("{"):
            return False
        value = json_object(bare)
        return value is not None and ("type" in value or "error" in value)

    def cut_inside(self, chunk: str) -> list[str]:
        """Cut a dangerous chunk in two harmless ones; a chunk of one character stays as it is."""
        first = len(chunk) - len(chunk.lstrip(_STRIPPED))  # a cut in the white space before would save nothing
        for at in range(first + 1, len(chunk)):
            if not self(chunk[:at]) and not self(chunk[at:]):
                return [chunk[:at], chunk[at:]]
        return [chunk]


class StandardCutter:
    """For readers by the standard: the splitter's own chunks, but for those that look like a control event."""

    def __init__(self, splitter: Splitter, options: StreamOptions, ledger: Ledger) -> None:
        self._splitter = splitter
        self._danger = _Danger(options.done)
        self._ledger = ledger
        self._grace = 2 * options.max_chunk_bytes

    @property
    def pending(self) -> bool:
        """Whether text waits for more."""
        return self._splitter.pending

    @property
    def held(self) -> int:
        """What waits beyond two chunks: with `split: none`, for the frame's end."""
        return max(0, self._splitter.size - self._grace)

    def feed(self, text: str) -> list[str]:
        """Take the next text; return the chunks that are certain."""
        return self._safe(self._splitter.feed(text))

    def frame_end(self) -> list[str]:
        """The upstream's frame ends here."""
        return self._safe(self._splitter.frame_end())

    def flush(self) -> list[str]:
        """Return what has waited long enough."""
        return self._safe(self._splitter.flush())

    def close(self) -> list[str]:
        """Return all that is left."""
        return self._safe(self._splitter.close())

    def _safe(self, chunks: list[str]) -> list[str]:
        if not any(map(self._danger, chunks)):
            return chunks
        out: list[str] = []
        for chunk in chunks:
            if self._danger(chunk):
                self._ledger.repair(RepairKind.CHUNK_MOVED)
                out += self._danger.cut_inside(chunk)
            else:
                out.append(chunk)
        return out


class GaClientCutter:
    """For ga-client's readers, which trim each chunk or parse it when it starts with a brace.

    A cut stands only between two characters that JavaScript's trim() keeps, and no chunk but the first starts with a
    brace: each cut moves on to the next such place. An answer that starts with a brace itself cannot be saved for
    chatService; it is counted.
    """

    def __init__(self, splitter: Splitter, options: StreamOptions, ledger: Ledger) -> None:
        self._splitter = splitter
        self._danger = _Danger(options.done)
        self._ledger = ledger
        self._grace = 2 * options.max_chunk_bytes
        self._parts: list[str] = []  # behind the last cut; joined when a cut is made
        self._size = 0
        self._edge = ""  # its last character
        self._wanted = False  # the splitter wants a cut at its end, or wanted one before
        self._started = False

    @property
    def pending(self) -> bool:
        """Whether text waits for more."""
        return self._splitter.pending or self._size > 1

    @property
    def held(self) -> int:
        """What waits beyond two chunks, for a place to cut at."""
        return max(0, self._size + self._splitter.size - self._grace)

    def feed(self, text: str) -> list[str]:
        """Take the next text; return the chunks that are certain."""
        return self._move(self._splitter.feed(text))

    def frame_end(self) -> list[str]:
        """The upstream's frame ends here."""
        return self._move(self._splitter.frame_end())

    def flush(self) -> list[str]:
        """Return what has waited long enough, but for its last character: a cut needs one on either side."""
        out = self._move(self._splitter.flush())
        text = "".join(self._parts)
        at = len(text) - 1
        while at > 0 and not self._may_cut(text, at):
            at -= 1
        if at > 0:
            out.append(self._take(text, at))
        return out

    def close(self) -> list[str]:
        """Return all that is left."""
        out = self._move(self._splitter.close())
        if self._parts:
            text = "".join(self._parts)
            out.append(self._take(text, len(text)))
        if out and self._danger(out[-1]):
            self._ledger.repair(RepairKind.CHUNK_MOVED)
            last = out.pop()
            cuts = (at for at in range(1, len(last)) if self._may_cut(last, at) and not self._danger(last[at:]))
            at = next(cuts, len(last))
            out += [part for part in (last[:at], last[at:]) if part]
        return out

    def _move(self, chunks: list[str]) -> list[str]:
        out: list[str] = []
        for chunk in chunks:
            at = self._first_cut(chunk) if self._wanted else -1
            self._parts.append(chunk)
            self._size += len(chunk)
            if at >= 0:
                text = "".join(self._parts)
                at += len(text) - len(chunk)
                while at < len(text) and not self._may_cut(text, at):
                    at += 1
                if at < len(text):
                    out.append(self._take(text, at))
            self._edge = chunk[-1]
            self._wanted = True
        return out

    def _first_cut(self, chunk: str) -> int:
        """Return the first place in a new chunk where a cut may stand, -1 for none; 0 is the seam before it."""
        if chunk[0] != "{" and self._edge not in _TRIMMED and chunk[0] not in _TRIMMED:
            return 0
        found = _CUTTABLE.search(chunk)
        return found.end() if found else -1

    def _may_cut(self, text: str, at: int) -> bool:
        return (
            text[at - 1] not in _TRIMMED
            and text[at] not in _TRIMMED
            and text[at] != "{"
            and not self._danger(text[:at])
        )

    def _take(self, text: str, at: int) -> str:
        chunk, rest = text[:at], text[at:]
        self._parts = [rest] if rest else []
        self._size = len(rest)
        self._wanted = False
        if not self._started and chunk.lstrip(JS_TRIMMED).startswith("{"):
            # The stated limit: chatService takes this one for JSON, wherever it is cut.
            self._ledger.repair(RepairKind.CHUNK_MOVED)
        self._started = True
        return chunk


def make_cutter(options: StreamOptions, ledger: Ledger) -> Cutter:
    """Return the cutter of one stream's settings."""
    splitter = make_splitter(options.split, options.max_chunk_bytes)
    if options.reader is Reader.GA_CLIENT:
        return GaClientCutter(splitter, options, ledger)
    return StandardCutter(splitter, options, ledger)
