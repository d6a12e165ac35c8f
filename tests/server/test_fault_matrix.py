"""The fault matrix: the wire cut at every byte, in every way a wire can be cut, for both of the host's writers.

Whatever the cut: the text is a beginning of the answer and holds what had arrived, one error event ends the stream, no
done marker follows, and the response ends properly. A clean end inside or behind the marker alone is a complete answer.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest

from sse_proxy.errors import FailureCode
from tests.fakes import End, Request, Reset, Script, ScriptedUpstream, Stall, chunk, last_chunk, stream_head
from tests.server.proxied import Answer, answer_text, ask, post, running, wire

AT_ONCE = 64
STALL_S = 0.3
WRITERS = ("gaapi", "gachatbot")
MARKER = b"[DONE]"
# What may be held undecided of a frame at the cut (design section 3), and is then dropped: two LFs and a partial
# `data: ` or marker behind them.
UNDECIDED_CHARS = 3


@dataclass(frozen=True)
class End_:
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


ENDS = (
    End_("fin", (End(),), FailureCode.UPSTREAM_TRUNCATED),
    End_("rst", (Reset(),), FailureCode.UPSTREAM_TRUNCATED),
    End_("last chunk", (last_chunk,), FailureCode.UPSTREAM_INCOMPLETE, clean=True),
    End_("stall", (Stall(),), FailureCode.UPSTREAM_STALLED),
    End_("fin, no framing", (End(),), FailureCode.UPSTREAM_INCOMPLETE, chunked=False, clean=True),
    End_("rst, no framing", (Reset(),), FailureCode.UPSTREAM_TRUNCATED, chunked=False),
)


@cache
def frames(name: str, writer: str) -> tuple[bytes, str, bytes, int]:
    """Return a wire, its answer, its frames' prefix, and where its marker begins."""
    body = wire(name, "743", writer)
    return body, answer_text(name), body[: body.index(b"\n\n") + 2], body.rindex(MARKER)


def text_before(name: str, writer: str, cut: int) -> str:
    """Return the answer's text that is certainly in the first `cut` bytes."""
    body, _, routing, _ = frames(name, writer)
    sent = body[len(routing) : cut].decode("utf-8", "ignore")
    pieces = []
    for frame in sent.split("\n\ndata: ") if writer == "gaapi" else sent.split("\n\n"):
        piece = frame.removeprefix("data: ") if writer == "gaapi" else "\n".join(
            line.removeprefix("data: ") for line in frame.split("\n")
        )
        pieces.append(piece)
    return "".join(pieces).replace("\r\n", "\n").replace("\r", "\n")


def check(name: str, writer: str, cut: int, end: End_, answer: Answer) -> None:
    body, whole, routing, marker = frames(name, writer)
    told = f"{name} {writer} cut at {cut} of {len(body)} by {end.name}: {answer.body[-300:]!r}"
    assert answer.status == 200, told
    assert answer.whole, told
    complete = cut >= marker + len(MARKER) if not end.clean else cut > marker + (len(MARKER) - 1)
    if complete and answer.done:
        assert answer.text == whole, told
        assert (answer.done, answer.errors, answer.events[-1]) == (1, [], ("message", "[DONE]")), told
        return
    if complete:
        # The marker's last byte is there but not its line end: only a clean end makes it the marker (section 3).
        assert not end.clean, told
        assert cut < len(body), told
    error = answer.error
    code = FailureCode.UPSTREAM_EMPTY if end.clean and cut < len(b"data: ") + 1 else end.code
    assert error["code"] in (code, FailureCode.UPSTREAM_EMPTY if end.clean else code), told
    assert set(error) == {"error", "code", "status", "retryable", "requestId"}, told
    assert whole.startswith(answer.text), told
    arrived = text_before(name, writer, cut)
    common = len(arrived)
    while not whole.startswith(arrived[:common]):
        common -= 1  # half a frame's own framing, read as text by this simple reader
    assert len(answer.text) >= common - UNDECIDED_CHARS - len("data: [DONE]"), told
    for hidden in (b"127.0.0.1", b"Errno", b"reset by peer", b"Traceback"):
        assert hidden not in answer.body, told


async def cut_everywhere(name: str, writer: str, end: End_, cuts: list[int], **settings: Any) -> None:
    body = frames(name, writer)[0]

    def script(request: Request) -> Script:
        cut = int(request.target.rpartition("=")[2])
        part = body[:cut]
        sent = [chunk(part)] if end.chunked and part else [part]
        return [stream_head(chunked=end.chunked), *sent, *end.steps]

    gate = asyncio.Semaphore(AT_ONCE)
    settings = {"idle_timeout": f"{STALL_S * 1000:g}ms", **settings}
    async with ScriptedUpstream(script) as upstream, running(upstream.url, **settings) as proxy:

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
async def test_cut_at_every_byte(name: str, writer: str, end: End_) -> None:
    await cut_everywhere(name, writer, end, list(range(len(frames(name, writer)[0]) + 1)))


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.name)
@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("name", ["sse-lesson", "windows", "tables", "voicings"])
async def test_other_answers_at_every_seventh_byte_and_around_the_end(name: str, writer: str, end: End_) -> None:
    size = len(frames(name, writer)[0])
    await cut_everywhere(name, writer, end, sorted({*range(0, size, 7), *range(size - 24, size + 1)}))


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.name)
async def test_with_the_other_reader(end: End_) -> None:
    body = frames("improvisation", "gaapi")[0]

    def script(request: Request) -> Script:
        part = body[: int(request.target.rpartition("=")[2])]
        return [stream_head(chunked=end.chunked), *([chunk(part)] if end.chunked and part else [part]), *end.steps]

    async with ScriptedUpstream(script) as upstream:
        async with running(upstream.url, reader="ga-client", idle_timeout="300ms") as proxy:

            async def one(cut: int) -> None:
                answer = await ask(proxy, post(f"/api/chatbot/chat/stream?cut={cut}"), timeout=60)
                assert answer.whole
                assert answer.done + len(answer.errors) == 1
                assert answer_text("improvisation").startswith(answer.text.replace("\r", "\n"))

            async with asyncio.TaskGroup() as group:
                for cut in range(0, len(body), 11):
                    group.create_task(one(cut))


def _marker_is_text(_: int) -> bool:
    return True


@pytest.mark.parametrize(("steps", "expected"), [((End(),), 1), ((last_chunk,), 1), ((Stall(),), 1), ((Reset(),), None)])
async def test_an_answer_that_holds_the_marker_ends_there(steps: tuple[Any, ...], expected: int | None) -> None:
    """The one answer that is not exact (section 4): its own marker ends it, for the host's readers too."""
    part = b'data: {"type":"routing"}\n\ndata: One. \n\ndata: [DONE]\n\n'
    async with ScriptedUpstream([stream_head(), chunk(part), *steps]) as upstream, running(upstream.url) as proxy:
        answer = await ask(proxy)
    assert answer.done + len(answer.errors) == 1
    if expected is not None:
        assert answer.done == expected
        assert answer.text == "One. "


def test_the_matrix_can_fail() -> None:
    """A response that only looks whole is found out, in each of the ways a proxy gets it wrong."""
    body, _, routing, _ = frames("improvisation", "gaapi")
    cut = len(body) // 2
    end = ENDS[0]
    error = json.dumps({"error": "x", "code": end.code, "status": 502, "retryable": True, "requestId": "1"})
    event = f"event: error\ndata: {error}\n\n".encode()
    good = routing + f"data: {text_before('improvisation', 'gaapi', cut)}".replace("\n", "\ndata: ").encode() + b"\n\n"

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
        verdict(good.replace(b"a", b"e") + event),
    ):
        with pytest.raises(AssertionError):
            wrong()
