"""The bytes of the two legacy hosts: their sentence splitters and their event-stream writers, told again.

These are reference writers: what they give is byte for byte what the hosts put on the wire, faults included, so they
share nothing with the code that repairs it.

- *Splitters*, named after the state of the hosts' repository: `a826864` removes the white space between sentences,
  `743` (after change #743) keeps it, so that the chunks joined are the answer.
- *Writers*: `gaapi` puts `data: ` before a chunk whatever the chunk holds, which breaks every chunk with a line break;
  `gachatbot` writes one data field a line, as HTML 9.2.5 (#parsing-an-event-stream) asks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

__all__ = [
    "DONE",
    "ERROR_MESSAGE",
    "SPLITTERS",
    "WHITE_SPACE",
    "WRITERS",
    "compact",
    "error_object",
    "frames",
    "routing_object",
    "split_743",
    "split_a826864",
    "wire",
    "write_gaapi",
    "write_gachatbot",
]

DONE = "[DONE]"
ERROR_MESSAGE = "Failed to process message. Please try again."

# What .NET's \s takes for white space: char.IsWhiteSpace. Python's own \s would add U+001C to U+001F.
WHITE_SPACE = (
    "\t\n\x0b\x0c\r \x85\xa0\u1680"
    "\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)

# .NET's (?<=[.!?]\s+)(?=\S). Python's lookbehind needs a fixed width, so the mark and its white space are matched and
# the cut is at the match's end; two such matches cannot overlap, hence the cuts are the same.
_END_OF_SENTENCE = re.compile(f"[.!?][{WHITE_SPACE}]+(?=[^{WHITE_SPACE}])")
_GAP_AFTER_SENTENCE = re.compile(f"(?<=[.!?])[{WHITE_SPACE}]+")


def split_743(text: str) -> list[str]:
    """Cut `text` after each sentence and the white space behind it; the chunks joined are `text`.

    Returns:
        The chunks in order, none of them empty; no chunk for an empty text.
    """
    chunks, start = [], 0
    for match in _END_OF_SENTENCE.finditer(text):
        chunks.append(text[start : match.end()])
        start = match.end()
    chunks.append(text[start:])
    return [chunk for chunk in chunks if chunk]


def split_a826864(text: str) -> list[str]:
    """Cut `text` at the white space behind each sentence mark and lose that white space, as the hosts did before #743.

    Returns:
        The chunks in order; those that were nothing but white space are dropped, as the hosts dropped them.
    """
    return [chunk for chunk in _GAP_AFTER_SENTENCE.split(text) if chunk.strip(WHITE_SPACE)]


def write_gaapi(chunks: Iterable[str]) -> list[bytes]:
    """Frame each chunk as GaApi does: `data: `, the chunk as it is, two LFs."""
    return [f"data: {chunk}\n\n".encode() for chunk in chunks]


def write_gachatbot(chunks: Iterable[str]) -> list[bytes]:
    """Frame each chunk as GaChatbot.Api does: CRs removed, each line behind its own `data: `, a blank line."""
    return [
        "".join(f"data: {line}\n" for line in chunk.replace("\r", "").split("\n")).encode() + b"\n" for chunk in chunks
    ]


SPLITTERS: Mapping[str, Callable[[str], list[str]]] = {"743": split_743, "a826864": split_a826864}
WRITERS: Mapping[str, Callable[[Iterable[str]], list[bytes]]] = {"gaapi": write_gaapi, "gachatbot": write_gachatbot}


def routing_object(agent_id: str) -> dict[str, Any]:
    """Return the routing object, the first event of an answer, keys in the hosts' order."""
    return {
        "type": "routing",
        "agentId": agent_id,
        "confidence": 0.91,
        "routingMethod": "semantic",
        "grounding": None,
        "trace": {"steps": [{"name": "route", "elapsedMs": 3}]},
    }


def error_object(message: str = ERROR_MESSAGE) -> dict[str, Any]:
    """Return the object of the hosts' error event: its only key is `error`."""
    return {"error": message}


def compact(value: object) -> str:
    """Return `value` as JSON on one line without spaces, non-ASCII escaped, as System.Text.Json writes it."""
    return json.dumps(value, separators=(",", ":"))


def frames(answer: str, routing: Mapping[str, Any], host: str = "gaapi", chunks: str = "743") -> list[bytes]:
    """Return the whole stream of one answer, one element a frame: routing object, chunks, done marker.

    Args:
        answer: the text the host computed.
        routing: see `routing_object`.
        host: the writer, a key of `WRITERS`.
        chunks: the splitter, a key of `SPLITTERS`.

    Raises:
        KeyError: no such writer or splitter.
    """
    return WRITERS[host]([compact(routing), *SPLITTERS[chunks](answer), DONE])


def wire(answer: str, routing: Mapping[str, Any], host: str = "gaapi", chunks: str = "743") -> bytes:
    """Return the bytes of one answer's stream; arguments and errors as in `frames`."""
    return b"".join(frames(answer, routing, host, chunks))
