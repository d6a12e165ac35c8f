"""Whole-buffer readings of the dialects, told again from their rules: what the streaming parsers are compared with.

They look at a whole, cleanly ended wire at once, so they need no holding back, no states for half a line, no timers.
All of them are for `payload: text`, `chunker: sentence` and the marker `[DONE]`, and return the frames of answer text,
joined, as the host wrote them (line ends not normalised), and how the stream ended.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

__all__ = ["Reading", "in_band_marker", "looks_framed", "read_auto", "read_single_prefix"]

DONE = "[DONE]"
SPACE = (
    "\t\n\x0b\x0c\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
ERROR = re.compile(
    r'[ \t\r\n]*\{[ \t\r\n]*"error"[ \t\r\n]*:[ \t\r\n]*"(?:[^"\\\x00-\x1f]|\\.)*"[ \t\r\n]*\}[ \t\r\n]*'
)
BARE_MARKER = re.compile(r"\n\n? {0,8}\[DONE\] {0,8}\n{0,2}\Z")


class Reading(NamedTuple):
    """What a wire says.

    Attributes:
        text: the answer.
        end: "done", "error" (the stream ends in an error object) or "open" (neither): then the last of the text may
            be undecided and need not be passed on.
    """

    text: str
    end: str


def in_band_marker(chunk: str) -> bool:
    """Whether the broken writer's frame of `chunk` reads as the marker: it is the marker, or begins with it and a
    blank line (the frame's own two LFs count)."""
    return re.match(r" *\[DONE\] *\n\n", chunk + "\n\n") is not None


def looks_framed(answer: str) -> bool:
    """Whether a line of the answer, but for the first, begins as a line of an event stream does.

    Such answers of the broken writer may look like a right writer's, and `auto` cannot tell.
    """
    return re.search(r"[\n\r](data:|event:|id:|retry:|:)", answer) is not None


def is_done(data: str) -> bool:
    return data.strip(" ") == DONE


def is_error(data: str) -> bool:
    if not ERROR.fullmatch(data):
        return False
    try:
        value = json.loads(data)
    except ValueError:
        return False
    return isinstance(value, dict) and list(value) == ["error"]


def is_routing(data: str) -> bool:
    try:
        value = json.loads(data.strip(" \t\r\n"))
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and "type" in value


def ends_sentence(text: str) -> bool:
    return text.rstrip(SPACE)[-1:] in (".", "!", "?") and text.rstrip(SPACE) != ""


def without_end(text: str) -> str:
    """`text` without its frame's end: at most two LFs."""
    return text.removesuffix("\n").removesuffix("\n")


def read_single_prefix(wire: str, *, first: bool = True) -> Reading:
    """Read what GaApi's writer sent: only `LF LF data: ` ends a frame, and only where a sentence ends.

    Args:
        wire: from a frame's `data: ` on.
        first: the frame it begins with is the stream's first.
    """
    text: list[str] = []
    at = 0
    while True:
        # A frame's head.
        while wire.startswith("\n", at):
            at += 1
        if at >= len(wire):
            return Reading("".join(text), "open")
        if wire.startswith("data: ", at):
            at += len("data: ")
        end = wire.find("\n\n", at)
        head = wire[at:end] if end >= 0 else without_end(wire[at:])
        if is_done(head):
            return Reading("".join(text), "done")
        if first and end >= 0 and is_routing(head):
            at, first = end + 2, False
            continue
        if is_error(without_end(wire[at:])):
            return Reading("".join(text), "error")
        # Its text, up to the first boundary that ends it.
        cut = wire.find("\n\ndata: ", at)
        while cut >= 0 and not ends_sentence(wire[at:cut]):
            rest = without_end(wire[cut + len("\n\ndata: ") :])
            if is_done(rest) or is_error(rest):
                return Reading("".join([*text, wire[at:cut]]), "done" if is_done(rest) else "error")
            cut = wire.find("\n\ndata: ", cut + 1)
        if cut < 0:
            bare = BARE_MARKER.search(wire, at)
            body = wire[at : bare.start()] if bare else without_end(wire[at:])
            return Reading("".join([*text, body]), "done" if bare else "open")
        text.append(wire[at:cut])
        at, first = cut + 2, False


class CannotTell(Exception):
    """The wire holds what this reading of `auto` leaves out: fields and comments before the dialect is decided."""


def read_standard_text(wire: str, *, first: bool = True) -> Reading:
    """Read a right writer's frames, with any line ends."""
    text: list[str] = []
    data: list[str] = []
    lines = wire.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    frames: list[str] = []
    for line in lines:
        if line.startswith(("event", "id")):
            raise CannotTell
        if not line and data:
            frames.append("\n".join(data))
            data = []
        if line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
        elif line == "data":
            data.append("")
    for n, frame in enumerate(frames):
        if first and n == 0 and is_routing(frame):
            continue
        if is_done(frame):
            return Reading("".join(text), "done")
        if is_error(frame) and n == len(frames) - 1:
            return Reading("".join(text), "error")
        text.append(frame)
    return Reading("".join(text), "open")


def read_auto(wire: str) -> Reading:
    """Read a wire by the evidence in it, as section "auto" of the rules has it: right until it is proved broken.

    Raises:
        CannotTell: see there.
    """
    line_end = re.search(r"[\r\n]", wire)
    if line_end is None:
        raise CannotTell
    if line_end.group() == "\r":
        return read_standard_text(wire)
    agreed, text, first = 0, "", True  # both readings agree up to here
    frames: list[str] = []  # behind it, read as right
    weak, at, last = 0, 0, None
    lines = wire.split("\n")
    n = 0

    def broken() -> Reading:
        rest = read_single_prefix(wire[agreed:], first=first)
        return Reading(text + rest.text, rest.end)

    while n < len(lines) - 1:
        line = lines[n]
        start = at
        if not line:
            if last is not None:
                return broken()
            n, at = n + 1, at + 1
            continue
        if line.startswith("data: "):
            pass
        elif line.startswith(("data:", "event:", "id:", "retry:", ":")) and "\r" not in line:
            raise CannotTell
        else:
            return broken()
        # A frame begins here.
        if last is not None:
            if not ends_sentence(last):
                weak += 1
                if weak == 4:
                    held = ["data: " + frame.replace("\n", "\ndata: ") + "\n\n" for frame in frames]
                    rest = read_standard_text("".join(held) + wire[start:], first=first)
                    return Reading(text + rest.text, rest.end)
            elif not weak:
                agreed, text = start, text + "".join(frames)
                frames, first = [], False
        if "\r" in line:
            return broken()
        data = [line[6:]]
        n, at = n + 1, at + len(line) + 1
        while n < len(lines) and lines[n]:
            if "\r" in lines[n] or not lines[n].startswith("data: "):
                return broken()
            data.append(lines[n][6:])
            n, at = n + 1, at + len(lines[n]) + 1
        n, at = n + 1, at + 1
        frame = "\n".join(data)
        last = "." if is_done(frame) else frame
        routing = first and not frames and is_routing(frame)
        if not weak and (is_done(frame) or routing):
            text += "".join(frames)
            if is_done(frame):
                return Reading(text, "done")
            agreed, first, frames, last = at, False, [], "."
            continue
        frames.append(frame)
    for place, frame in enumerate(frames):
        if is_done(frame):
            return Reading(text, "done")
        if place == len(frames) - 1 and is_error(frame):
            return Reading(text, "error")
        text += frame
    return Reading(text, "open")
