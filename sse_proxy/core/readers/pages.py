"""Readers that show text as it comes: a page on the HTML standard's reader, GaChatbot.Api's page, a naive page."""

from __future__ import annotations

import re

from sse_proxy.core.javascript import TextDecoder
from sse_proxy.core.readers.reader import DONE, ChatReader, parse_object

__all__ = ["GaChatbotPage", "HtmlStandardReader", "NaivePacketReader"]


class HtmlStandardReader(ChatReader):
    """A page on top of the HTML standard's own reader: the five rules, then the chat's control events.

    HTML 9.2.5 and 9.2.6. The first event is the routing object if it is a JSON object with a type; the done marker
    ends the answer; all other data is text. An event of type `error` reaches the error handler, as with EventSource;
    other named events have no listener. A *careful* page also knows a last event that is an object with `error`, and an
    end without the marker. The plain one, the lesson's, does not: nothing in the standard tells an error from text.

    Args:
        careful: see above.
        done: the done marker; None where the stream has none, and its end is the answer's.
    """

    name = "HTML standard"

    def __init__(self, *, careful: bool = True, done: str | None = DONE) -> None:
        super().__init__()
        self._careful = careful
        self._done = done
        self._line: list[str] = []
        self._after_cr = False
        self._data: list[str] = []
        self._type = ""
        self._first = True
        self._held: tuple[str, str] | None = None  # (data, message): an error object, if nothing follows it

    def _read(self, packet: bytes) -> None:
        text = self._decoder.decode(packet)
        if not text:
            return
        if self._after_cr:
            text = text.removeprefix("\n")
        self._after_cr = text.endswith("\r")
        head, *lines = re.split("\r\n|\r|\n", text)
        self._line.append(head)
        for line in lines:
            self._field("".join(self._line))
            self._line = [line]
            if self.stopped:
                return

    def _field(self, line: str) -> None:
        if not line:
            if self._data:
                self._event(self._type, "\n".join(self._data))
            self._data, self._type = [], ""
            return
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            self._data.append(value)
        elif field == "event":
            self._type = value

    def _event(self, kind: str, data: str) -> None:
        if kind == "error":
            error = parse_object(data).get("error")
            self.error = error if isinstance(error, str) else data
        if kind not in ("", "message"):
            return
        first, self._first = self._first, False
        if self._held is not None:
            self.chunks.append(self._held[0])
            self._held = None
        if self._done is not None and data == self._done:
            self.finished = True
            return
        if data.startswith("{"):
            parsed = parse_object(data)
            if first and "type" in parsed:
                self.routing = parsed
                return
            if self._careful and isinstance(parsed.get("error"), str):
                self._held = data, parsed["error"]
                return
        self.chunks.append(data)

    def _end(self) -> None:
        if self._held is not None:
            self.error = self._held[1]
        elif self._done is None:
            self.finished = True
        elif self._careful:
            self.error = "the stream ended without its done marker"


class GaChatbotPage(ChatReader):
    """The page of GaChatbot.Api: events end at LF LF, lines that start with `data: ` are joined, `[DONE]` returns.

    It knows no errors: an error object is appended to the answer and goes into the history, and an answer that was cut
    short is kept like a whole one. Only a connection that breaks reaches its catch block.
    """

    name = "GaChatbot page"

    @property
    def stored(self) -> str | None:
        """As the page writes its history: an empty answer is kept as `(empty response)`."""
        text = super().stored
        return "(empty response)" if text == "" else text

    def _read(self, packet: bytes) -> None:
        self._buffer += self._decoder.decode(packet)
        *events, self._buffer = self._buffer.split("\n\n")
        for event in events:
            lines = [line[6:] for line in event.split("\n") if line.startswith("data: ")]
            if not lines:
                continue
            data = "\n".join(lines)
            if data == DONE:
                self.finished = True
                return
            # Not only the first event: any, as long as no routing object was seen.
            if self.routing is None and data.startswith("{") and '"type"' in data:
                parsed = parse_object(data)
                if parsed.get("type") == "routing":
                    self.routing = parsed
                    continue
            self.chunks.append(data)


class NaivePacketReader(ChatReader):
    """A page that takes each packet for one event: `data: ` off its head, one blank line off its end.

    Right as long as every event travels alone, which no network promises; nothing on the wire can help it.
    """

    name = "naive packet reader"

    def _read(self, packet: bytes) -> None:
        # A new decoder for every packet: a character cut in two is lost as well.
        text = TextDecoder().decode(packet, stream=False)
        data = text.removeprefix("data: ").removesuffix("\n\n")
        if data == DONE:
            self.finished = True
            return
        parsed = parse_object(data) if data.startswith("{") else {}
        if self.routing is None and parsed.get("type") == "routing":
            self.routing = parsed
        else:
            self.chunks.append(data)
