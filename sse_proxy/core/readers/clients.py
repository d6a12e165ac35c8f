"""ga-client's three readers and a desktop app: programs that take JSON objects apart."""

from __future__ import annotations

from typing import Any

from sse_proxy.core.javascript import json_parse, to_string, trim, truthy
from sse_proxy.core.readers.reader import DONE, ChatReader, parse_object

__all__ = ["AgUiClient", "DesktopApp", "GaClientChatService", "GaClientStreamChat"]


class GaClientChatService(ChatReader):
    """ga-client's chatService: the first `data:` line of an event, trimmed.

    Objects never reach the text: one with `error` is thrown, any other dropped, text that starts with `{` and is not
    JSON is thrown as well. After `[DONE]` it still reads the rest of that packet. What is left over at the end, prefix
    and all, is appended to the answer; a cut answer is returned like a whole one.
    """

    name = "ga-client chatService"

    def _read(self, packet: bytes) -> None:
        self._buffer += self._decoder.decode(packet)
        *events, self._buffer = self._buffer.split("\n\n")
        done = False
        for event in events:
            line = next((line for line in event.split("\n") if line.startswith("data:")), "data:")
            data = trim(line[5:])
            if data == DONE:
                done = True
            elif data.startswith("{"):
                self.error = _thrown(data)
                if self.error is not None:
                    return
            elif data:
                self.chunks.append(data)
        if done:
            self._end()
            self.finished = True

    def _end(self) -> None:
        if rest := trim(self._buffer):
            self.chunks.append(rest)


class GaClientStreamChat(ChatReader):
    """ga-client's streamChat: every line that starts with `data: ` is one chunk, to the end of the response.

    Objects as in chatService, but a routing object is passed on (three keys of it). `[DONE]` means nothing to it, so it
    never knows whether an answer is complete; a line without its LF at the end is dropped.
    """

    name = "ga-client streamChat"

    def _read(self, packet: bytes) -> None:
        self._buffer += self._decoder.decode(packet)
        *lines, self._buffer = self._buffer.split("\n")
        for line in lines:
            data = line.removeprefix("data: ") if line.startswith("data: ") else ""
            if not data or data == DONE:
                continue
            if not data.startswith("{"):
                self.chunks.append(data)
                continue
            self.error = _thrown(data)
            if self.error is not None:
                return
            parsed = parse_object(data)
            if parsed.get("type") == "routing":
                self.routing = {k: parsed[k] for k in ("agentId", "confidence", "routingMethod") if k in parsed}


class AgUiClient(ChatReader):
    """ga-client's AG-UI service: one JSON object an event, on its first `data:` line.

    What is not JSON is skipped without a word. RUN_FINISHED and RUN_ERROR end it; an end without either counts as
    complete.
    """

    name = "AG-UI client"

    def _read(self, packet: bytes) -> None:
        self._buffer += self._decoder.decode(packet)
        cut = self._buffer.rfind("\n\n") + 2
        if cut < 2:
            return
        ready, self._buffer = self._buffer[:cut], self._buffer[cut:]
        for frame in ready.split("\n\n"):
            line = next((line for line in frame.split("\n") if line.startswith("data:")), "data:")
            try:
                event = json_parse(trim(line[5:]))
            except ValueError:
                continue
            if event is None:
                self.error = "Cannot read properties of null (reading 'type')"
            elif isinstance(event, dict):
                self._event(event)
            if self.stopped:
                return

    def _event(self, event: dict[str, Any]) -> None:
        kind = event.get("type")
        if kind == "TEXT_MESSAGE_CONTENT":
            self.chunks.append(_member(event, "delta"))
        elif kind == "RUN_FINISHED":
            self.finished = True
        elif kind == "RUN_ERROR":
            self.error = _member(event, "message")


class DesktopApp(ChatReader):
    """A desktop chat app that reads JSON, line by line, until the server hangs up.

    Blank and comment lines are skipped, and so is the done marker: without a hang-up it waits on, until its overall
    timer (`fail("timed out")`). A line that is not JSON is dropped without a count, and so is a last line without its
    end: an answer with a hole, or without its end, looks whole. Text is the `delta` of an AG-UI event or an
    OpenAI-style `choices[0].delta.content`.
    """

    name = "desktop app"

    def _read(self, packet: bytes) -> None:
        self._buffer += self._decoder.decode(packet)
        *lines, self._buffer = self._buffer.split("\n")
        for line in lines:
            data = trim(trim(line).removeprefix("data:"))
            if data and data != DONE and not line.startswith(":"):
                self._object(parse_object(data))

    def _object(self, parsed: dict[str, Any]) -> None:
        error = parsed.get("error")
        if truthy(error):
            self.error = to_string(error.get("message", error) if isinstance(error, dict) else error)
        elif parsed.get("type") == "routing":
            self.routing = parsed
        elif parsed.get("type") == "TEXT_MESSAGE_CONTENT":
            self.chunks.append(_member(parsed, "delta"))
        else:
            match parsed.get("choices"):
                case [{"delta": {"content": str(content)}}, *_]:
                    self.chunks.append(content)


def _thrown(data: str) -> str | None:
    """What ga-client throws for data that starts with `{`; None if it parses and has no `error` that counts as true."""
    try:
        error = json_parse(data).get("error")
    except ValueError:
        return f"not JSON: {data[:80]}"
    return to_string(error) if truthy(error) else None


def _member(event: dict[str, Any], key: str) -> str:
    return to_string(event[key]) if key in event else "undefined"
