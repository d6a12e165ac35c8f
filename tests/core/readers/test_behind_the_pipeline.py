"""Every shipped reader behind the proxy: for any answer, however the host frames it, each has it exactly."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sse_proxy.core.javascript import trim
from sse_proxy.core.options import Dialect, Reader, StreamOptions
from sse_proxy.core.pipeline import Pipeline
from sse_proxy.core.readers import (
    ChatReader,
    GaChatbotPage,
    GaClientChatService,
    GaClientStreamChat,
    HtmlStandardReader,
    read_all,
)
from sse_proxy.core.verdict import with_lf
from sse_proxy.demo.wire import compact, frames, routing_object

ROUTING = routing_object("theory")

# Whole pieces that have meant something to a writer, a splitter or a reader; loose characters rarely do.
PIECES = [
    *("a", "One. ", "Two?\n", "Three!\n\n", "e.g. ", "🎸", "é.", "."),
    *(" ", "\n", "\r\n", "\r", "\n\n", "\t", "\u00a0", "\ufeff", "\u2028", "\x85"),
    *("{", "}", '{"error":"x"}', '{"type":"routing"}', "[DONE]", "[DONE]\n\n"),
    *("data: ", "\n\ndata: ", "data:", ": c", "event: error\n"),
    *("- item.\n", "| a | b |\n", "```\n", "# Head\n\n"),
]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)

SAMPLES = (
    "",
    " ",
    "\n",
    "a",
    "{",
    "🎸",
    "[DONE]",
    "\n\n \u00a0\n",
    "x {",
    "One. {not json. ",
    'A.\n{"error":"x"}\n',
    "\ufeff.\ufeff {",
)


def examples(test: Callable[..., None]) -> Callable[..., None]:
    for sample in SAMPLES:
        test = example(sample)(test)
    return test


def from_twin(reader: Reader, answer: str) -> list[bytes]:
    return [Pipeline(StreamOptions(reader=reader)).deliver(compact(ROUTING), answer)]


def from_stream(reader: Reader, answer: str, writer: str, size: int) -> list[bytes]:
    raw = b"".join(frames(answer, ROUTING, writer, "743"))
    # The writer's own dialect: `auto` guesses where a text of a few characters leaves no evidence.
    dialect = Dialect.SINGLE_PREFIX if writer == "gaapi" else Dialect.STANDARD
    pipeline = Pipeline(StreamOptions(reader=reader, dialect=dialect))
    out = []
    for at in range(0, len(raw), size):
        out.append(pipeline.feed(raw[at : at + size]))
        if pipeline.finished:
            return out
    return [*out, pipeline.close()]


def sendable(answer: str, writer: str) -> str:
    """An answer that this host can send at all: GaChatbot.Api's writer removes every CR, a line end of its own too."""
    return re.sub("\r(?!\n)", "", answer) if writer == "gachatbot" else answer


def ends_at_its_own_marker(answer: str, writer: str) -> bool:
    """The stated limit: the marker is in-band, so an answer with a chunk that is the marker ends there."""
    chunks = [data.removeprefix(b"data: ") for data in frames(answer, ROUTING, writer, "743")[1:-1]]
    return any(chunk.strip(b" ").startswith(b"[DONE]") for chunk in chunks)


def check(make: Callable[[], ChatReader], packets: list[bytes], answer: str) -> None:
    reader = read_all(make(), packets)
    want, got = with_lf(answer), with_lf(reader.answer)
    if isinstance(reader, GaClientChatService):
        want, got = trim(want), trim(got)  # the white space at the answer's own ends it cannot keep
    assert reader.error is None
    assert got == want


PAGES = pytest.mark.parametrize("make", [HtmlStandardReader, GaChatbotPage])
CLIENTS = pytest.mark.parametrize("make", [GaClientChatService, GaClientStreamChat])


@PAGES
@examples
@settings(deadline=None)
@given(answer=TEXTS)
def test_a_page_has_every_answer_from_the_json_twin(make: Callable[[], ChatReader], answer: str) -> None:
    check(make, from_twin(Reader.STANDARD, answer), answer)


@CLIENTS
@examples
@settings(deadline=None)
@given(answer=TEXTS)
def test_ga_client_has_every_answer_from_the_json_twin(make: Callable[[], ChatReader], answer: str) -> None:
    if not trim(answer).startswith("{"):  # the stated limit: such an answer is an object to them
        check(make, from_twin(Reader.GA_CLIENT, answer), answer)


@pytest.mark.parametrize("writer", ["gaapi", "gachatbot"])
@PAGES
@settings(deadline=None)
@given(answer=TEXTS, size=st.integers(1, 40))
def test_a_page_has_every_answer_from_the_stream(
    make: Callable[[], ChatReader], writer: str, answer: str, size: int
) -> None:
    answer = sendable(answer, writer)
    if not ends_at_its_own_marker(answer, writer):
        check(make, from_stream(Reader.STANDARD, answer, writer, size), answer)


@pytest.mark.parametrize("writer", ["gaapi", "gachatbot"])
@CLIENTS
@settings(deadline=None)
@given(answer=TEXTS, size=st.integers(1, 40))
def test_ga_client_has_every_answer_from_the_stream(
    make: Callable[[], ChatReader], writer: str, answer: str, size: int
) -> None:
    answer = sendable(answer, writer)
    if not ends_at_its_own_marker(answer, writer) and not trim(answer).startswith("{"):
        check(make, from_stream(Reader.GA_CLIENT, answer, writer, size), answer)
