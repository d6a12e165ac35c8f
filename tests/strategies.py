"""Hypothesis strategies: answers made of what breaks event streams, the tokens they are streamed in, and cuts of bytes.

Random streams are built from whole pieces: loose characters rarely form a frame, a marker or an error object.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

__all__ = [
    "BENIGN",
    "HOSTILE",
    "LINES",
    "answers",
    "benign_answers",
    "cut",
    "cuts",
    "garbage",
    "normalised",
    "streams",
    "tokens",
]

# What a sentence is made of, and what looks like framing or like a control event but is an answer's text.
HOSTILE = (
    *("\n", "\n\n", "\n\n\n", "\r\n", "\r\n\r\n", "\r", "\n\ndata: ", "\ndata: ", "data: ", "data:", "data", ": ", ":"),
    *("[DONE]", " [DONE] ", "[DONE]\n\n", "\n\n[DONE]", "\n\ndata: [DONE]", "[DO", "NE]", "\n[DONE]\n"),
    *(
        '{"error":',
        '{"error":"x"}',
        '{"error":"x"}\n\n',
        '\n\ndata: {"error":"x"}',
        '{"type":"x"}',
        "{",
        "}",
        '"',
        '{"',
    ),
    *('{"error":"a\\"b","code":1}', '{ "error" : "x" } ', "{}", "null", "\\"),
    *(
        ". ",
        "! ",
        "?\n",
        ".",
        "!",
        "?",
        ".\n\n",
        ".\n\ndata: ",
        "? \n\ndata: [DONE]",
        ".\r\n",
        ".\r",
        ".\x85",
        ".\u2028",
    ),
    *("\x85", "\u2028", "\u2029", "\u200b", "\ufeff", "\xa0", "\u3000", "\x1c", "\x1f", "\x0b", "\x0c", "\0", "\t"),
    *("\U0001f3b8", "\U0001f468\u200d\U0001f3a4", "e\u0301", "\u00e9", "\ufffd", "\u4e2d\u6587"),
    *("id: 7", "\nid: 7\n", "event: error", "\nevent: error\ndata: x\n", "retry: 1", "\nretry: 1\n\n", ": ping\n\n"),
    *(" ", "  ", "      ", "a", "word", "3.14", "v1.0.0", "e.g. ", "- item\n", "# head\n\n", "```\n", "x" * 300),
)

# The same without any line that begins like a field: what a model writes.
BENIGN = (
    *("\n", "\n\n", "\n\n\n", "- item\n", "1. item\n", "# head\n\n", "```\ncode();\n```\n", "| a | b |\n", "> quote\n"),
    *(". ", "! ", "?\n", ".", "!", "?", ".\n\n", ":", ": ", "...", "3.14", "v1.0.0", "e.g. ", "Dr. ", " ", "  "),
    *("word", "Play ", "the ", "scale", "\U0001f3b8", "\u00e9", "\u4e2d\u6587", "\u3002", "\xa0", "\u2028", "\x85"),
    *("{", "}", '"', '{"a": 1}', "[DO", "data", "\t", "**bold**", "x" * 80),
)

# Whole lines of event streams, right ones and wrong ones.
LINES = (
    *("data: a", "data: b. ", "data:c", "data", "data: ", "data:  two", "data: [DONE]", "data: data: x", "Data: x"),
    *('data: {"error":"x"}', 'data: {"type":"routing","agentId":"a"}', '{"error":"bare"}', "[DONE]", "text", "", ""),
    *(
        "",
        "event: error",
        "event: delta",
        "event",
        "id: 7",
        "id",
        "id: a\0b",
        "retry: 10",
        "retry: x",
        "retry",
        ": ping",
    ),
    *(":", "\ufeffdata: x", "other: y", "dataset: z", " data: w", "data: 3.", "data: 14. ", "data: caf\u00e9! "),
    *(
        'data: {"a":',
        "data: 1}",
        '"b": 2}',
        'data: {"type":"RUN_FINISHED"}',
        'data: {"type":"RUN_ERROR"}',
        "{",
        "<html>",
    ),
)


def normalised(text: str) -> str:
    """Return `text` with LF for each CRLF and lone CR: how an answer counts as the same."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def answers(max_pieces: int = 24) -> st.SearchStrategy[str]:
    """Texts that look like anything but text."""
    loose = st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
    piece = st.one_of(st.sampled_from(HOSTILE), st.sampled_from(HOSTILE), st.sampled_from(HOSTILE), loose)
    return st.lists(piece, max_size=max_pieces).map("".join)


def benign_answers(max_pieces: int = 40) -> st.SearchStrategy[str]:
    """Markdown-like texts, no line of which begins like a field of an event stream."""
    return st.lists(st.sampled_from(BENIGN), max_size=max_pieces).map("".join)


@st.composite
def tokens(draw: st.DrawFn, texts: st.SearchStrategy[str]) -> list[str]:
    """A text cut at any characters: the chunks of a host that streams what its model says; none of them empty."""
    text = draw(texts)
    places = draw(st.lists(st.integers(1, max(1, len(text) - 1)), max_size=30))
    return cut(text, places)


def cut(whole: Any, places: Sequence[int]) -> list[Any]:
    """Cut a text or bytes at the places; the parts joined are the whole, and none is empty."""
    at = sorted({place for place in places if 0 < place < len(whole)})
    return [whole[i:j] for i, j in zip([0, *at], [*at, len(whole)], strict=True) if whole[i:j]]


def cuts() -> st.SearchStrategy[Any]:
    """How bytes are cut: a function from bytes to chunks. Every byte alone, and few or many places at random."""
    by_step = st.sampled_from([1, 2, 3, 7, 64]).map(
        lambda n: lambda raw: [raw[i : i + n] for i in range(0, len(raw), n)]
    )
    at_random = st.randoms(use_true_random=False).map(
        lambda rnd: lambda raw: cut(raw, [rnd.randrange(len(raw) + 1) for _ in range(rnd.choice([1, 2, 5, 40]))])
    )
    return st.one_of(by_step, at_random)


def streams(max_lines: int = 20) -> st.SearchStrategy[bytes]:
    """Event streams of whole lines, right and wrong, with every line end, some invalid bytes, sometimes cut off."""
    ends = st.sampled_from([b"\n", b"\n", b"\n", b"\n", b"\r\n", b"\r", b"\n\n", b"\n\n\n", b""])
    one_end = st.sampled_from([b"\n", b"\r\n", b"\r"])
    line = st.one_of(
        st.sampled_from(LINES).map(str.encode),
        st.sampled_from([b"data: \xff\xe4\xb8", b"\xf0\x9f", b"data: \xed\xa0\x80"]),
    )
    mixed = st.lists(st.tuples(line, ends).map(b"".join), max_size=max_lines).map(b"".join)
    regular = st.tuples(st.lists(line, max_size=max_lines), one_end).map(
        lambda drawn: b"".join(x + drawn[1] for x in drawn[0])
    )
    events = st.tuples(st.lists(line, max_size=max_lines), one_end).map(
        lambda drawn: b"".join(x + drawn[1] * 2 for x in drawn[0])
    )
    head = st.sampled_from([b"", b"", b"", b"\xef\xbb\xbf", b": hi\n\n", b": hi\r\n\r\n", b"\n", b"\r\n"])
    return st.tuples(head, st.one_of(mixed, regular, events)).map(b"".join)


def garbage() -> st.SearchStrategy[bytes]:
    """Any bytes at all, and bytes with pieces of streams between them."""
    piece = st.one_of(
        st.binary(max_size=8), st.sampled_from(HOSTILE).map(str.encode), st.sampled_from(LINES).map(str.encode)
    )
    return st.lists(piece, max_size=30).map(b"".join)
