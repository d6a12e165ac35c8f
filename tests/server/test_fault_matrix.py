"""The fault matrix: the wire cut at every byte, in every way a wire can be cut, for both of the host's writers.

Whatever the cut: the text is a beginning of the answer and holds what had arrived, one error event ends the stream, no
done marker follows, and the response ends properly. A clean end inside or behind the marker alone is a complete answer.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest

from sse_proxy.errors import FailureCode
from tests.fakes import End, Request, Reset, Script, ScriptedUpstream, Stall, chunk, last_chunk, stream_head
from tests.server.proxied import WIRES, Answer, answer_text, ask, post, running, wire

AT_ONCE = 128
WRITERS = ("gaapi", "gachatbot")
MARKER = b"[DONE]"
PREFIX = "data: "
# What may be held undecided at the cut, and is then dropped: two LFs and a partial `data: ` and marker behind them.
UNDECIDED_CHARS = len("\n\ndata: [DONE]\n\n")


@dataclass(frozen=True)
class Ending:
    """One way for a wire to end.

    Attributes:
        steps: what the upstream does behind the bytes it sent; `close-delimited` bodies have no chunks to break.
        code: what the reader is told, where the answer is not complete.
    """

    name: str
    steps: tuple[Any, ...]
    code: FailureCode
    chunked: bool = True
    clean: bool = False

    @property
    def idle_timeout(self) -> str:
        # Only a stall is to be told by it, also where the machine is slow.
        return "600ms" if self.code is FailureCode.UPSTREAM_STALLED else "60s"


ENDS = (
    Ending("fin", (End(),), FailureCode.UPSTREAM_TRUNCATED),
    Ending("rst", (Reset(),), FailureCode.UPSTREAM_TRUNCATED),
    Ending("last chunk", (last_chunk,), FailureCode.UPSTREAM_INCOMPLETE, clean=True),
    Ending("stall", (Stall(),), FailureCode.UPSTREAM_STALLED),
    Ending("fin, no framing", (End(),), FailureCode.UPSTREAM_INCOMPLETE, chunked=False, clean=True),
    Ending("rst, no framing", (Reset(),), FailureCode.UPSTREAM_TRUNCATED, chunked=False),
)


@cache
def frames(name: str, writer: str) -> tuple[bytes, str, bytes, int]:
    """Return a wire, its answer, its routing frame, and where its marker begins."""
    body = wire(name, "743", writer)
    return body, answer_text(name), body[: body.index(b"\n\n") + 2], body.rindex(MARKER)


@cache
def arrivals(name: str, writer: str) -> list[int]:
    """Return for every cut how many bytes of the answer, as the host computed it, stand before it on the wire."""
    body, _, routing, _ = frames(name, writer)
    answer = (WIRES / f"{name}.answer.txt").read_bytes().decode()
    if writer == "gachatbot":
        answer = answer.replace("\r", "")
    line_end = "\n" if writer == "gaapi" else f"\n{PREFIX}"
    counts = [0] * len(routing)
    made = routing
    for piece in re.findall(r"(?s).+?(?:[.!?]\s+(?=\S)|\Z)", answer):
        for at, part in enumerate([PREFIX, *piece, "\n\n"]):
            is_text = 0 < at <= len(piece)
            raw = (line_end if part == "\n" and is_text else part).encode()
            counts += [counts[-1]] * (len(raw) - 1) + [counts[-1] + is_text]
            made += raw
    assert body == made + f"{PREFIX}[DONE]\n\n".encode()
    return [0, *counts, *[counts[-1]] * (len(body) - len(counts))]


def is_proven(name: str, writer: str, cut: int) -> bool:
    """Whether the first `cut` bytes prove that the broken writer sent them: a line without `data: `."""
    body, _, routing, _ = frames(name, writer)
    lines = re.split(rb"\r\n|\r|\n", body[len(routing) : cut])
    return writer == "gaapi" and any(line and not PREFIX.encode().startswith(line[:6]) for line in lines)


def surely_arrived(name: str, writer: str, cut: int) -> int:
    """Return how many characters of the answer the first `cut` bytes hold whichever writer sent them (section 3)."""
    body, _, routing, _ = frames(name, writer)
    sent = body[len(routing) : cut].decode("utf-8", "ignore").replace("\r\n", "\n").replace("\r", "\n")
    arrived = arrivals(name, writer)[cut] - (body[:cut].count(b"\r") if writer == "gaapi" else 0)
    if not is_proven(name, writer, cut):
        certain = 0  # whole frames that end at a sentence, and the first line of the one behind them
        for frame in sent.split("\n\n"):
            first, *more = frame.removeprefix(PREFIX).split("\n")
            certain += len(first)
            if more or not re.search(r"[.!?]\s+$", first):
                break
        arrived = min(arrived, certain)
    return max(0, arrived - UNDECIDED_CHARS)


def check(name: str, writer: str, cut: int, end: Ending, answer: Answer) -> None:
    body, whole, routing, marker = frames(name, writer)
    told = f"{name} {writer} cut at {cut} of {len(body)} by {end.name}: {answer.body[-300:]!r}"
    assert answer.status == 200, told
    assert answer.whole, told
    if answer.done:
        assert (answer.done, answer.errors, answer.events[-1]) == (1, [], ("message", "[DONE]")), told
        if cut > marker:
            assert end.clean or cut > marker + len(MARKER), told
            assert answer.text == whole, told
        else:  # the answer itself holds the marker, and was cut right behind it
            assert body[:cut].rstrip(b"\n").endswith(b"\n" + PREFIX.encode() + MARKER), told
        return
    assert not (end.clean and cut >= marker + len(MARKER)), told
    decided = re.search(r"[.!?]\s*$", whole) is not None
    assert not (decided and cut == len(body)), told
    error = answer.error
    codes = {end.code, FailureCode.UPSTREAM_EMPTY} if end.clean and cut < len(routing) else {end.code}
    assert error["code"] in codes, told
    assert set(error) == {"error", "code", "status", "retryable", "requestId"}, told
    # After 200 ms without proof a blank line and `data: ` are taken for a frame's end, also where they are the answer's
    # own (section 3: time settles it): such an answer that stalls right there is the one that may be misread.
    settled_by_time = end.name == "stall" and f"\n\n{PREFIX}" in whole and not is_proven(name, writer, cut)
    assert whole.startswith(answer.text) or settled_by_time, told
    sure = surely_arrived(name, writer, cut)
    assert len(answer.text) >= sure, (told, sure)
    for hidden in (b"127.0.0.1", b"Errno", b"reset by peer", b"Traceback"):
        assert hidden not in answer.body, told


async def cut_everywhere(name: str, writer: str, end: Ending, cuts: list[int]) -> None:
    body = frames(name, writer)[0]

    def script(request: Request) -> Script:
        cut = int(request.target.rpartition("=")[2])
        part = body[:cut]
        sent = [chunk(part)] if end.chunked and part else [part]
        return [stream_head(chunked=end.chunked), *sent, *end.steps]

    gate = asyncio.Semaphore(AT_ONCE)
    async with ScriptedUpstream(script) as upstream, running(upstream.url, idle_timeout=end.idle_timeout) as proxy:

        async def one(cut: int) -> None:
            async with gate:
                answer = await ask(proxy, post(f"/api/chatbot/chat/stream?cut={cut}"), timeout=60)
            check(name, writer, cut, end, answer)

        async with asyncio.TaskGroup() as group:
            for cut in cuts:
                group.create_task(one(cut))
        await proxy.last()
        assert proxy.idle


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> Any:
    """No traceback, and no error: a host that fails is a warning."""
    with caplog.at_level(logging.INFO):
        yield
    records = caplog.get_records("call")
    assert not [record for record in records if record.exc_info or record.levelno >= logging.ERROR]
    assert not [record for record in records if "Traceback" in record.getMessage()]


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.name)
@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("name", ["improvisation"])
async def test_cut_at_every_byte(name: str, writer: str, end: Ending) -> None:
    await cut_everywhere(name, writer, end, list(range(len(frames(name, writer)[0]) + 1)))


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.name)
@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("name", ["sse-lesson", "windows", "tables", "voicings"])
async def test_other_answers_at_every_seventh_byte_and_around_the_end(name: str, writer: str, end: Ending) -> None:
    size = len(frames(name, writer)[0])
    await cut_everywhere(name, writer, end, sorted({*range(0, size, 7), *range(size - 24, size + 1)}))


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.name)
async def test_with_the_other_reader(end: Ending) -> None:
    body = frames("improvisation", "gaapi")[0]

    def script(request: Request) -> Script:
        part = body[: int(request.target.rpartition("=")[2])]
        return [stream_head(chunked=end.chunked), *([chunk(part)] if end.chunked and part else [part]), *end.steps]

    async with (
        ScriptedUpstream(script) as upstream,
        running(upstream.url, reader="ga-client", idle_timeout=end.idle_timeout) as proxy,
    ):

        async def one(cut: int) -> None:
            answer = await ask(proxy, post(f"/api/chatbot/chat/stream?cut={cut}"), timeout=60)
            assert answer.whole
            assert answer.done + len(answer.errors) == 1
            blocks = [block for block in answer.body.split(b"\n\n") if block.startswith(PREFIX.encode())]
            text = b"".join(block[6:] for block in blocks[1:] if block != b"data: [DONE]").decode()
            assert answer_text("improvisation").startswith(text.replace("\r", "\n"))

        async with asyncio.TaskGroup() as group:
            for cut in range(0, len(body), 11):
                group.create_task(one(cut))


@pytest.mark.parametrize("steps", [(End(),), (last_chunk,), (Stall(),), (Reset(),)])
async def test_an_answer_that_holds_the_marker_ends_there(steps: tuple[Any, ...]) -> None:
    """The one answer that is not exact (section 4): its own marker ends it, for the host's readers too."""
    part = b'data: {"type":"routing"}\n\ndata: One. \n\ndata: [DONE]\n\n'
    async with ScriptedUpstream([stream_head(), chunk(part), *steps]) as upstream, running(upstream.url) as proxy:
        answer = await ask(proxy)
    assert (answer.done, answer.errors, answer.text) == (1, [], "One. ")


def test_the_matrix_can_fail() -> None:
    """A response that only looks whole is found out, in each of the ways a proxy gets it wrong."""
    body, whole, routing, _ = frames("improvisation", "gaapi")
    cut = len(body) // 2
    end = ENDS[0]
    error = json.dumps({"error": "x", "code": end.code, "status": 502, "retryable": True, "requestId": "1"})
    event = f"event: error\ndata: {error}\n\n".encode()
    text = whole[: surely_arrived("improvisation", "gaapi", cut)]
    good = routing + (PREFIX + text.replace("\n", f"\n{PREFIX}") + "\n\n").encode()

    def verdict(made: bytes, whole: bool = True) -> Callable[[], None]:
        return lambda: check("improvisation", "gaapi", cut, end, Answer(200, [], made, whole))

    verdict(good + event)()
    for wrong in (
        verdict(good + b"data: [DONE]\n\n"),
        verdict(good),
        verdict(good + event + b"data: [DONE]\n\n"),
        verdict(good + event + event),
        verdict(good + event, whole=False),
        verdict(routing + event),
        verdict(good.replace(b"chord", b"card") + event),
    ):
        with pytest.raises(AssertionError):
            wrong()
