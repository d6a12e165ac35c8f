"""The reference writers against the very bytes of the hosts."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sse_proxy.demo.wire import (
    SPLITTERS,
    WHITE_SPACE,
    WRITERS,
    frames,
    routing_object,
    split_743,
    split_a826864,
    wire,
    write_gaapi,
    write_gachatbot,
)

WIRE = Path(__file__).parents[1] / "vectors" / "wire"
AGENTS = {
    "improvisation": "improvisation",
    "voicings": "voicing",
    "tables": "theory",
    "sse-lesson": "theory",
    "windows": "improvisation",
}


@pytest.mark.parametrize("name", AGENTS)
@pytest.mark.parametrize("host", WRITERS)
@pytest.mark.parametrize("chunks", SPLITTERS)
def test_the_bytes_of_the_hosts(name: str, host: str, chunks: str) -> None:
    answer = (WIRE / f"{name}.answer.txt").read_bytes().decode()
    expected = (WIRE / f"{name}.{chunks}.{host}.sse").read_bytes()
    assert wire(answer, routing_object(AGENTS[name]), host, chunks) == expected


def test_every_wire_file_is_covered() -> None:
    covered = {f"{name}.{chunks}.{host}.sse" for name in AGENTS for chunks in SPLITTERS for host in WRITERS}
    assert {path.name for path in WIRE.glob("*.sse")} == covered


@pytest.mark.parametrize(
    ("text", "after", "before"),
    [
        ("", [], []),
        ("   ", ["   "], []),
        ("One. Two", ["One. ", "Two"], ["One.", "Two"]),
        ("One.  \n\n Two!", ["One.  \n\n ", "Two!"], ["One.", "Two!"]),
        ("No mark here", ["No mark here"], ["No mark here"]),
        ("3.5 is no end.Nor this", ["3.5 is no end.Nor this"], ["3.5 is no end.Nor this"]),
        ("Really?! Yes... maybe", ["Really?! ", "Yes... ", "maybe"], ["Really?!", "Yes...", "maybe"]),
        ("End. \n", ["End. \n"], ["End."]),
        ("no mark \n", ["no mark \n"], ["no mark \n"]),
        (". a", [". ", "a"], [".", "a"]),
        # Not white space to .NET, though Python's \s takes the first and JavaScript's the last.
        ("a.\x1cb.\u200bc.\ufeffd", ["a.\x1cb.\u200bc.\ufeffd"], ["a.\x1cb.\u200bc.\ufeffd"]),
        ("a.\x85b.\u3000c.\xa0d", ["a.\x85", "b.\u3000", "c.\xa0", "d"], ["a.", "b.", "c.", "d"]),
    ],
)
def test_splitters(text: str, after: list[str], before: list[str]) -> None:
    assert split_743(text) == after
    assert split_a826864(text) == before


TEXTS = st.text("ab.!? \t\n\r\xa0\u2028\x1c:d", max_size=60)


@given(TEXTS)
def test_nothing_is_lost_after_743(text: str) -> None:
    assert "".join(split_743(text)) == text


@given(TEXTS)
def test_the_old_splitter_loses_white_space_only(text: str) -> None:
    def dense(parts: list[str]) -> str:
        return "".join(c for part in parts for c in part if c not in WHITE_SPACE)

    assert dense(split_a826864(text)) == dense([text])


def test_white_space_is_the_set_of_dotnet() -> None:
    assert len(set(WHITE_SPACE)) == len(WHITE_SPACE) == 25
    assert not set("\x1c\x1d\x1e\x1f\u180e\u200b\ufeff") & set(WHITE_SPACE)


def test_gaapi_writes_the_chunk_as_it_is() -> None:
    assert write_gaapi(["a\n\nb\r", ""]) == [b"data: a\n\nb\r\n\n", b"data: \n\n"]


def test_gachatbot_writes_one_field_a_line_and_no_cr() -> None:
    assert write_gachatbot(["a\r\n\r\nb", ""]) == [b"data: a\ndata: \ndata: b\n\n", b"data: \n\n"]


def test_frames_joined_are_the_wire() -> None:
    routing = routing_object("theory")
    parts = frames("One. Two.", routing)
    assert parts[1:] == [b"data: One. \n\n", b"data: Two.\n\n", b"data: [DONE]\n\n"]
    assert b"".join(parts) == wire("One. Two.", routing)


def test_an_unknown_writer_is_an_error() -> None:
    with pytest.raises(KeyError):
        wire("a", {}, "nobody")
