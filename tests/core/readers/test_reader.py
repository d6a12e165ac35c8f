"""What all readers share, and what the wires of the hosts give each of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from sse_proxy.core.readers import READERS, read_all
from sse_proxy.core.verdict import judge
from sse_proxy.errors import StreamClosed

WIRE = Path(__file__).parents[2] / "vectors" / "wire"
LOST = "1 of 6 lines missing, 8 line breaks missing"

# The lesson's table, and streamChat by the same count.
FIGURES = {
    ("gachatbot", "HTML standard"): ("6 line breaks missing", "exact"),
    ("gachatbot", "GaChatbot page"): ("6 line breaks missing", "exact"),
    ("gachatbot", "ga-client chatService"): (LOST, LOST),
    ("gachatbot", "ga-client streamChat"): ("8 line breaks missing", "8 line breaks missing"),
    ("gaapi", "HTML standard"): (LOST, LOST),
    ("gaapi", "GaChatbot page"): (LOST, LOST),
    ("gaapi", "ga-client chatService"): (LOST, LOST),
    ("gaapi", "ga-client streamChat"): (LOST, LOST),
}


@pytest.mark.parametrize("size", [1, 7, 100_000])
@pytest.mark.parametrize(("writer", "name"), FIGURES)
def test_the_lessons_figures_at_any_packet_size(writer: str, name: str, size: int) -> None:
    answer = (WIRE / "improvisation.answer.txt").read_text(encoding="utf-8")
    for chunks, figure in zip(("a826864", "743"), FIGURES[writer, name], strict=True):
        raw = (WIRE / f"improvisation.{chunks}.{writer}.sse").read_bytes()
        reader = read_all(READERS[name](), [raw[at : at + size] for at in range(0, len(raw), size)])
        assert str(judge(answer, reader.answer)) == figure
        assert reader.error is None
        # chatService drops every object, the routing one too
        assert (reader.routing or {}).get("agentId") == (None if "chatService" in name else "improvisation")


@pytest.mark.parametrize("name", READERS)
def test_a_closed_reader_takes_no_more(name: str) -> None:
    reader = READERS[name]()
    reader.close()
    reader.close()
    with pytest.raises(StreamClosed):
        reader.feed(b"data: a\n\n")


@pytest.mark.parametrize("name", READERS)
def test_a_connection_that_breaks_is_an_error_and_nothing_is_stored(name: str) -> None:
    reader = READERS[name]()
    reader.feed(b'data: {"type":"TEXT_MESSAGE_CONTENT","delta":"Half."}\n\n')
    reader.fail()
    assert reader.error == "network error"
    assert reader.stored is None
    assert not reader.finished


@pytest.mark.parametrize("name", ["HTML standard", "GaChatbot page", "ga-client chatService", "naive packet reader"])
def test_after_the_marker_nothing_is_read_and_a_broken_connection_is_no_error(name: str) -> None:
    reader = READERS[name]()
    reader.feed(b"data: Whole.\n\n")
    seen = [reader.stored]
    reader.feed(b"data: [DONE]\n\n")
    assert (reader.finished, reader.stopped) == (True, True)
    seen.append(reader.stored)
    reader.feed(b"data: more\n\n")
    reader.fail()
    assert reader.error is None
    assert [*seen, reader.stored, reader.answer] == [None, "Whole.", "Whole.", "Whole."]


def test_an_emoji_cut_in_two_deltas_is_shown_whole() -> None:
    reader = READERS["AG-UI client"]()
    for half in ("\\ud83c", "\\udfb8"):
        reader.feed(b'data: {"type":"TEXT_MESSAGE_CONTENT","delta":"%s"}\n\n' % half.encode())
    assert reader.answer == "🎸"


@pytest.mark.parametrize("name", READERS)
def test_hostile_json_never_escapes(name: str) -> None:
    raw = b'data: {"a":' + b"[" * 50_000 + b'\n\ndata: {"error":' + b"1" * 5000 + b"}\n\ndata: null\n\ndata: [DONE]\n\n"
    reader = read_all(READERS[name](), [raw])
    assert isinstance(reader.answer, str)
