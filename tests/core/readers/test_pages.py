"""The pages that show text as it comes."""

from __future__ import annotations

import pytest

from sse_proxy.core.readers import GaChatbotPage, HtmlStandardReader, NaivePacketReader, read_all

ROUTING = 'data: {"type":"routing","agentId":"v"}\n\n'
ERROR = '{"error":"Failed."}'

# Two data fields under CRLF on purpose: with one, taking the LF of a cut CRLF for a blank line goes unnoticed.
STREAM = (
    "\ufeffdata: première\r\ndata: ligne\r\n\r\n: ping\rid: 1\rdata:two  \r\rdata\n\nevent\ndata: [DONE]\n\ndata: x\n\n"
)


def standard(*packets: str | bytes, careful: bool = True, done: str | None = "[DONE]") -> HtmlStandardReader:
    reader = HtmlStandardReader(careful=careful, done=done)
    read_all(reader, [packet.encode() if isinstance(packet, str) else packet for packet in packets])
    return reader


@pytest.mark.parametrize("cut", range(len(STREAM.encode()) + 1))
def test_the_five_rules_at_any_cut(cut: int) -> None:
    raw = STREAM.encode()
    reader = standard(raw[:cut], raw[cut:])
    assert reader.chunks == ["première\nligne", "two  ", ""]
    assert reader.finished


def test_an_event_without_its_blank_line_is_discarded() -> None:
    assert standard("data: a\n\ndata: b\n", done=None).answer == "a"


def test_only_the_first_event_is_routing() -> None:
    reader = standard(ROUTING, ROUTING, "data: [DONE]\n\n")
    assert reader.routing == {"type": "routing", "agentId": "v"}
    assert reader.chunks == ['{"type":"routing","agentId":"v"}']


@pytest.mark.parametrize(
    ("tail", "error"),
    [
        (f"event: error\ndata: {ERROR}\n\n", "Failed."),
        ("event: error\ndata: plain\n\n", "plain"),
        (f"data: {ERROR}\n\n", "Failed."),
        (f"data: {ERROR}\n\n: ping\n\n", "Failed."),
        ("", "the stream ended without its done marker"),
    ],
)
def test_a_careful_page_tells_every_failure(tail: str, error: str) -> None:
    reader = standard(ROUTING, "data: Half. \n\n", tail)
    assert (reader.error, reader.answer, reader.finished, reader.stored) == (error, "Half. ", False, None)


def test_an_error_object_that_is_followed_by_the_marker_is_text() -> None:
    reader = standard(f"data: {ERROR}\n\ndata: [DONE]\n\n")
    assert (reader.error, reader.stored) == (None, ERROR)


def test_a_plain_page_shows_and_keeps_the_hosts_error_as_the_lesson_says() -> None:
    reader = standard(f"data: {ERROR}\n\n", careful=False)
    assert (reader.error, reader.stored) == (None, ERROR)
    assert standard("data: Half. \n\n", careful=False).stored == "Half. "


@pytest.mark.parametrize("careful", [True, False])
def test_a_named_event_is_never_text(careful: bool) -> None:
    reader = standard("event: status\ndata: a\n\nevent: message\ndata: b\n\ndata: [DONE]\n\n", careful=careful)
    assert reader.stored == "b"
    assert standard(f"event: error\ndata: {ERROR}\n\n", careful=careful).error == "Failed."


def test_without_a_marker_the_end_is_the_answers() -> None:
    reader = standard("data: [DONE]\n\n", done=None)
    assert (reader.finished, reader.stored) == (True, "[DONE]")


def page(*packets: str) -> GaChatbotPage:
    reader = GaChatbotPage()
    read_all(reader, map(str.encode, packets))
    return reader


def test_the_page_joins_lines_that_have_colon_and_space() -> None:
    assert page(ROUTING, "data: a\ndata:\ndata: \ndata:b\ndata: c\n\ndata: [DONE]\n\n").answer == "a\n\nc"


def test_the_page_needs_lf_only() -> None:
    assert page("data: a\r\n\r\ndata: [DONE]\r\n\r\n").stored == "(empty response)"


def test_the_page_stores_an_error_as_the_answer() -> None:
    reader = page(ROUTING, "data: Half. \n\n", f"data: {ERROR}\n\n")
    assert (reader.error, reader.finished, reader.stored) == (None, False, "Half. " + ERROR)


def test_the_page_does_not_know_named_events() -> None:
    assert page(f"event: error\ndata: {ERROR}\n\n").stored == ERROR


def test_the_page_takes_routing_whenever_it_has_none() -> None:
    reader = page("data: text\n\n", ROUTING, ROUTING, 'data: {"type" \n\n')
    assert reader.routing == {"type": "routing", "agentId": "v"}
    assert reader.chunks == ["text", '{"type":"routing","agentId":"v"}', '{"type" ']


def naive(*packets: bytes) -> NaivePacketReader:
    reader = NaivePacketReader()
    read_all(reader, packets)
    return reader


def test_the_naive_page_is_right_while_events_travel_alone() -> None:
    reader = naive(ROUTING.encode(), b"data: One.\n\nTwo. \n\n", b"data: [DONE]\n\n")
    assert (reader.answer, reader.finished) == ("One.\n\nTwo. ", True)
    assert reader.routing == {"type": "routing", "agentId": "v"}


def test_the_naive_page_reads_a_burst_as_one_event_and_breaks_characters() -> None:
    assert naive(b"data: a\n\ndata: b\n\n").answer == "a\n\ndata: b"
    assert naive("data: é".encode()[:-1], "é\n\n".encode()[1:]).answer == "\ufffd\ufffd"
