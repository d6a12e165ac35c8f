"""Cutters: the splitter's chunks made safe for the reader. No chunk may be mistaken for a control event.

Where a chunk would be, the cut moves; the chunks joined stay the text.
"""

from __future__ import annotations

from typing import Protocol

from sse_proxy.core.control import json_object
from sse_proxy.core.ledger import Ledger, RepairKind
from sse_proxy.core.options import Reader, StreamOptions
from sse_proxy.core.sentences import Splitter, make_splitter
from sse_proxy.core.unicode import JS_TRIMMED

__all__ = ["Cutter", "GaClientCutter", "StandardCutter", "make_cutter"]

_TRIMMED = frozenset(JS_TRIMMED)


class Cutter(Protocol):
    """Text in, safe chunks out, none of them empty."""

    @property
    def pending(self) -> bool:
        """Whether text waits for more, and may be flushed by a clock."""
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
        bare = chunk.strip(JS_TRIMMED + "\x85")  # wider than the marker's own rule: clients trim as they like
        if bare in self._done:
            return True
        if not bare.startswith("{"):
            return False
        value = json_object(bare)
        return value is not None and ("type" in value or "error" in value)

    def cut_inside(self, chunk: str) -> list[str]:
        """Cut a dangerous chunk in two harmless ones; a chunk of one character stays as it is."""
        for at in range(1, len(chunk)):
            if not self(chunk[:at]) and not self(chunk[at:]):
                return [chunk[:at], chunk[at:]]
        return [chunk]


class StandardCutter:
    """For readers by the standard: the splitter's own chunks, but for those that look like a control event."""

    def __init__(self, splitter: Splitter, done: tuple[str, ...], ledger: Ledger) -> None:
        self._splitter = splitter
        self._danger = _Danger(done)
        self._ledger = ledger

    @property
    def pending(self) -> bool:
        """Whether text waits for more."""
        return self._splitter.pending

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
        return self.flush()

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

    def __init__(self, splitter: Splitter, done: tuple[str, ...], ledger: Ledger) -> None:
        self._splitter = splitter
        self._danger = _Danger(done)
        self._ledger = ledger
        self._text = ""  # behind the last cut
        self._wanted = 0  # where in it the splitter wants the next cut; 0: nowhere
        self._started = False

    @property
    def pending(self) -> bool:
        """Whether text waits for more."""
        return self._splitter.pending or len(self._text) > 1

    def feed(self, text: str) -> list[str]:
        """Take the next text; return the chunks that are certain."""
        return self._move(self._splitter.feed(text))

    def frame_end(self) -> list[str]:
        """The upstream's frame ends here."""
        return self._move(self._splitter.frame_end())

    def flush(self) -> list[str]:
        """Return what has waited long enough, but for its last character: a cut needs one on either side."""
        out = self._move(self._splitter.flush())
        at = len(self._text) - 1
        while at > 0 and not self._may_cut(at):
            at -= 1
        if at > 0:
            out.append(self._take(at))
        return out

    def close(self) -> list[str]:
        """Return all that is left."""
        out = self._move(self._splitter.flush())
        if self._text:
            out.append(self._take(len(self._text)))
        if out and self._danger(out[-1]):
            self._ledger.repair(RepairKind.CHUNK_MOVED)
            last = out.pop()
            cuts = [at for at in range(1, len(last)) if _cuttable(last, at) and not self._danger(last[:at])]
            out += [last[: cuts[0]], last[cuts[0] :]] if cuts else [last]
        return out

    def _move(self, chunks: list[str]) -> list[str]:
        out: list[str] = []
        for chunk in chunks:
            self._text += chunk
            at = self._wanted
            while 0 < at < len(self._text):
                if self._may_cut(at):
                    out.append(self._take(at))
                    break
                at += 1
            self._wanted = len(self._text)
        return out

    def _may_cut(self, at: int) -> bool:
        return _cuttable(self._text, at) and not self._danger(self._text[:at])

    def _take(self, at: int) -> str:
        chunk, self._text = self._text[:at], self._text[at:]
        self._wanted = 0
        if not self._started and chunk.lstrip(JS_TRIMMED).startswith("{"):
            # The stated limit: chatService takes this one for JSON, wherever it is cut.
            self._ledger.repair(RepairKind.CHUNK_MOVED)
        self._started = True
        return chunk


def _cuttable(text: str, at: int) -> bool:
    return text[at - 1] not in _TRIMMED and text[at] not in _TRIMMED and text[at] != "{"


def make_cutter(options: StreamOptions, ledger: Ledger) -> Cutter:
    """Return the cutter of one stream's settings."""
    splitter = make_splitter(options.split, options.max_chunk_bytes)
    if options.reader is Reader.GA_CLIENT:
        return GaClientCutter(splitter, options.done, ledger)
    return StandardCutter(splitter, options.done, ledger)
