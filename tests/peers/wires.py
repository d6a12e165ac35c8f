"""The recorded wires of the hosts as cases: how a reader asks for one, and what it must have got.

A case is played by `PeerHost`: its packets are the wire's bytes in pieces of 1 or 7 bytes, or whole; a failing one ends
in the middle of its last chunk. Its key travels in the query of a GET and in the message of a POST.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from sse_proxy.demo.wire import WHITE_SPACE, split_743
from tests.fakes import End, Request, Reset, Script, Step, chunk, head, last_chunk, stream_head

__all__ = ["CASES", "CHAT", "FAILED_CASES", "TWIN", "TWIN_CASES", "Case", "PeerHost", "differences"]

WIRE = Path(__file__).parents[1] / "vectors" / "wire"
# How a host fails, and the code the reader is told.
FAILURES = {
    "error": "upstream_error",  # GaApi's own: an object, no marker, an orderly end
    "incomplete": "upstream_incomplete",  # an orderly end without marker
    "cut": "upstream_truncated",  # the connection closed inside a chunked body
    "reset": "upstream_truncated",
}
SIZES = {"1": 1, "7": 7, "whole": 1_000_000}

CHAT = "/api/chatbot/chat/stream"
TWIN = "/twin" + CHAT  # the same through `source: json`
_JSON = [("Content-Type", "application/json")]


@dataclass(frozen=True)
class Case:
    """One wire in packets of one size.

    Attributes:
        path: where the proxy is asked for it.
        failure: how the host fails, a key of `FAILURES`; empty for not at all.
    """

    name: str
    chunks: str
    writer: str
    size: str
    path: str = CHAT
    failure: str = ""

    def __str__(self) -> str:
        return f"{self.key}{' (source: json)' if self.path == TWIN else ''}"

    @property
    def key(self) -> str:
        return f"{self.name}.{self.chunks}.{self.writer}.{self.size}.{self.failure}"

    @property
    def answer(self) -> str:
        """What the host computed, line ends as LF."""
        return host_answer(self.name).replace("\r\n", "\n").replace("\r", "\n")

    def request(self, method: str) -> dict[str, Any]:
        """How to ask for it: `path`, and what JavaScript's fetch takes as `init`."""
        if method == "GET":
            return {"path": f"{self.path}?case={self.key}", "init": {}}
        body = json.dumps({"message": self.key, "conversationHistory": []})
        init = {"method": method, "headers": {"Content-Type": "application/json"}, "body": body}
        return {"path": self.path, "init": init}


def host_answer(name: str) -> str:
    return (WIRE / f"{name}.answer.txt").read_bytes().decode()


def _parts(wire: str) -> tuple[str, str, str]:
    name, chunks, writer = wire.split(".")
    return name, chunks, writer


_NAMES = sorted(file.name.removesuffix(".sse") for file in WIRE.glob("*.sse"))

CASES = [Case(*_parts(name), size) for name in _NAMES for size in SIZES]
FAILED_CASES = [
    Case("improvisation", "743", writer, "7", CHAT, failure)
    for failure in FAILURES
    for writer in ("gaapi", "gachatbot")
]
TWIN_CASES = [
    Case(file.name.split(".")[0], "743", "gaapi", "whole", TWIN) for file in sorted(WIRE.glob("*.answer.txt"))
]


class PeerHost:
    """The legacy host as a script function for `ScriptedUpstream`.

    Attributes:
        pages: more resources to serve on GET: path to content type and body.
        posted: called with the body of any other POST.
    """

    def __init__(self) -> None:
        self.pages: dict[str, tuple[str, bytes]] = {}
        self.posted: Callable[[bytes], None] = lambda body: None

    def __call__(self, request: Request) -> Script:
        path, _, query = request.target.partition("?")
        if path == CHAT:
            key = parse_qs(query)["case"][0] if request.method == "GET" else json.loads(request.body)["message"]
            wire, size, failure = key.rsplit(".", 2)
            raw, n = (WIRE / f"{wire}.sse").read_bytes(), SIZES[size]
            if failure:
                raw = raw[: raw.rindex(b"data: [DONE]") - 40]
            if failure == "error":
                raw = (
                    raw[: raw.rindex(b"data: ")] + b'data: {"error":"Failed to process message. Please try again."}\n\n'
                )
            packets = [chunk(raw[at : at + n]) for at in range(0, len(raw), n)]
            ends: dict[str, Step] = {"cut": End(), "reset": Reset()}
            return [
                stream_head([("Set-Cookie", "ga_chat_session=1; path=/api/chatbot")]),
                *packets,
                ends.get(failure, last_chunk),
            ]
        if path == "/api/chatbot/chat":
            name = json.loads(request.body)["message"].split(".")[0]
            reply = {"naturalLanguageAnswer": host_answer(name), "agentId": "theory", "confidence": 0.5}
            return _whole(200, _JSON, json.dumps(reply).encode())
        if request.method == "POST":
            self.posted(request.body)
            return _whole(200, _JSON, b"{}")
        if path in self.pages:
            kind, body = self.pages[path]
            return _whole(200, [("Content-Type", kind)], body)
        return _whole(404, [("Content-Type", "text/plain")], b"no such page")


def _whole(status: int, headers: list[tuple[str, str]], body: bytes) -> Script:
    return [head(status, headers, length=len(body)) + body]


def differences(case: Case, result: dict[str, Any]) -> list[str]:
    """Compare what a reader got with what it must get; say what differs, nothing if it is right.

    Args:
        result: `data`, the events' data, and `failure`, that of the error event if one came; or `error`, what the
            reader threw.
    """
    if "error" in result:
        return [f"{case}: {result['error']}"]
    data: list[str] = result["data"]
    found = []
    if case.failure:
        return _failed(case, data, result.get("failure"))
    if "failure" in result:
        return [f"{case}: {result['failure']}"]
    if len(data) < 2 or data[-1] != "[DONE]":
        return [f"{case}: {len(data)} events, the last {data[-1:]}"]
    routing, *chunks, _ = data
    if json.loads(routing).get("type") != "routing":
        found.append(f"{case}: the first event is {routing[:80]}")
    got, want = "".join(chunks), case.answer
    if case.chunks == "743":
        if chunks != split_743(want):
            found.append(f"{case}: the chunks are not those of the host's new splitter")
    else:
        # Its white space is guessed; on the lesson's answer, with either line end, the guess is right but for the end.
        if case.name in ("improvisation", "windows") and got != want.rstrip("\n"):
            found.append(f"{case}: the guessed white space does not give the answer back")
        got, want = _squeezed(got), _squeezed(want)
    if got != want:
        found.append(f"{case}: the text differs from the answer: {got!r}")
    return found


def _failed(case: Case, data: list[str], failure: str | None) -> list[str]:
    if failure is None:
        return [f"{case}: no error event after {len(data)} events"]
    told = json.loads(failure)
    found = []
    if told["code"] != FAILURES[case.failure] or not told["error"]:
        found.append(f"{case}: the error event is {failure}")
    if "[DONE]" in data:
        found.append(f"{case}: a done marker in a failed stream")
    # A reset may overtake bytes that were sent before it; nothing else loses any.
    enough = 0 if case.failure == "reset" else 4
    if len(data) < enough or not case.answer.startswith("".join(data[1:])):
        found.append(f"{case}: not a beginning of the answer: {data[1:]}")
    return found


def _squeezed(text: str) -> str:
    return re.sub(f"[{WHITE_SPACE}]+", "", text)
