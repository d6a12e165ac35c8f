"""Encoder: items to the bytes of an event stream, one way for each reader (design section 5)."""

from __future__ import annotations

from sse_proxy.core.events import Block, Comment, Event, Item, LastEventId, ReconnectionTime
from sse_proxy.core.options import Reader

__all__ = ["Encoder", "well_formed"]


def well_formed(text: str) -> str:
    """Return `text` with surrogates joined to characters, lone ones replaced by U+FFFD (they have no UTF-8)."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


class Encoder:
    """Write items as HTML 9.2.5 has them: LF only, every line of data behind its own `data: `, a blank line after each.

    For ga-client's readers, which take one line of an event, each LF of the data is sent as CR. What is written holds
    whole events only.

    Args:
        comment_blank_line: whether a blank line follows a comment; some SDKs take it for an empty event.
    """

    def __init__(self, reader: Reader, *, comment_blank_line: bool = True) -> None:
        self._line_end = "\r" if reader is Reader.GA_CLIENT else "\ndata: "
        self._comment_end = "\n\n" if comment_blank_line else "\n"

    def encode(self, items: list[Item]) -> bytes:
        """Return the bytes of events, comments, ids and reconnection times, in order."""
        out: list[str] = []
        for item in items:
            if type(item) is Event:
                if not item.plain:
                    out.append(_fields(item))
                data = item.data
                out.append(f"data: {data.replace(chr(10), self._line_end) if chr(10) in data else data}\n\n")
            elif type(item) is Block:
                out.append(item.text)
            elif isinstance(item, Comment):
                out.append(f":{item.text}{self._comment_end}")
            elif isinstance(item, LastEventId):
                out.append(f"id: {item.id}\n\n")
            elif isinstance(item, ReconnectionTime):
                out.append(f"retry: {item.digits}\n\n")
        return "".join(out).encode("utf-8")


def _fields(event: Event) -> str:
    lines = ""
    if event.type:
        lines += f"event: {event.type}\n"
    if event.id is not None:
        lines += f"id: {event.id}\n"
    if event.retry is not None:
        lines += f"retry: {event.retry}\n"
    return lines
