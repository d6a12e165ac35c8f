"""Which block of markdown a line begins, told from its first characters: pure functions, no state."""

from __future__ import annotations

import re

from sse_proxy.core.paragraphs import HEAD

__all__ = ["FENCE", "ITEM", "MARKED", "block_at", "kind_of", "marker_of", "shape_of"]

ITEM = re.compile(r"([-*+•]|\d{1,9}[.)])(?:[ \t]+|$)")
FENCE = re.compile(r"(`{3,}(?=[^`]*$)|~{3,})")
MARKED = frozenset("#`~-*+_|><[$\\•0123456789")  # what a block's mark may begin with

_HEADING = re.compile(r"#{1,6}(?:\s|$)")
_RULE = re.compile(r"(?:(?:\* *){3,}|(?:- *){3,}|(?:_ *){3,})$")
_DEFINITION = re.compile(r"\[[^\]\n]+\]:")
_BLOCKS = (("rule", _RULE), ("item", ITEM), ("heading", _HEADING), ("fence", FENCE), ("definition", _DEFINITION))
_TAG = re.compile(r"</?(?:p|div|details|summary|table|tr|td|ul|ol|li|h\d|img|br|a)\b|<!--")


def marker_of(marker: str) -> tuple[str, int]:
    """Return a list marker's kind (`-`, `*`, `.` ...) and its number, 0 for a bullet."""
    return (marker, 0) if len(marker) == 1 else (marker[-1], int(marker[:-1]))


def shape_of(text: str) -> str:
    """Return what kind of character `text` begins with."""
    first = text[:1]
    return "A" if first.isupper() else "a" if first.islower() else first


def kind_of(text: str) -> str:
    """Return the kind of block that a line beginning with `text`, its indentation removed, is part of."""
    if not text:
        return "blank"
    if text.startswith("<!--"):
        return "comment" if "-->" not in text else "html"
    for kind, pattern in _BLOCKS:
        if pattern.match(text):
            return kind
    return {"|": "row", ">": "quote", "<": "html"}.get(text[0], "prose")


def block_at(head: str, *, final: bool) -> str | None:
    """Return the kind of block that `head` begins, or None where more of it is needed.

    Args:
        head: the line's beginning, and what follows; never empty.
        final: nothing more of it comes.
    """
    first = head[0]
    if first in "|>":
        return "row" if first == "|" else "quote"
    mark = re.match(r"#{1,6}|[-*+•_]+>?|`{1,3}|~{1,3}|\d{1,9}[.)]?|\$|\\", head)
    if mark and mark.end() == len(head) and not final and len(head) < 12:
        return None
    if head.startswith(("$$", "\\[")):
        return "formula"
    if head.startswith("-->"):
        return "comment end"
    if first == "[" and "]" not in head[:-1] and len(head) < HEAD and not final:
        return None
    if first == "<":
        if len(head) < 10 and ">" not in head and not final:
            return None
        return "html" if _TAG.match(head) else "prose"
    kind = kind_of(head.partition("\n")[0])
    return "prose" if kind in ("comment", "html") else kind
