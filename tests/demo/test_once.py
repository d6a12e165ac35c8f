"""The demo in a terminal."""

import io
from pathlib import Path

from rich.console import Console

from sse_proxy.demo.once import render_once

WIRE = Path(__file__).parents[1] / "vectors" / "wire"


def printed(name: str, direct: bytes, proxied: bytes, question: str = "Show me Cmaj7 voicings") -> list[str]:
    out = io.StringIO()
    answer = (WIRE / f"{name}.answer.txt").read_bytes().decode()
    Console(file=out, width=110, force_terminal=False).print(render_once(question, direct, proxied, answer))
    return out.getvalue().splitlines()


def wire(name: str) -> bytes:
    return (WIRE / f"{name}.sse").read_bytes()


def test_the_lost_lines_are_marked_and_the_verdicts_given() -> None:
    lines = printed("voicings", wire("voicings.743.gaapi"), wire("voicings.743.gachatbot"))
    assert lines[0] == "Question: Show me Cmaj7 voicings"
    assert lines[-2:] == [
        "directly from the host  ✗ 8 of 9 lines missing, 9 line breaks missing",
        "     through the proxy  ✓ exact",
    ]
    assert sum(line.startswith("│ ✗ ") for line in lines) == 8
    assert any("│ - **Cmaj7** `3-0-x-2-3-x` (guitar, score 0.369)" in line for line in lines)
    assert any("3 events" in line for line in lines)


def test_failures_are_shown_as_failures() -> None:
    failure = b'event: error\ndata: {"error":"The chat service failed.","code":"upstream_truncated"}\n\n'
    lines = printed("improvisation", b"", failure)
    assert lines[-2] == "directly from the host  ✗ no done marker; 6 of 6 lines missing, 8 line breaks missing"
    assert lines[-1] == (
        "     through the proxy  ✗ failed (upstream_truncated); 6 of 6 lines missing, 8 line breaks missing"
    )
    assert any("(no text)" in line for line in lines)


def test_a_complete_text_without_its_marker_is_not_called_good() -> None:
    raw = wire("voicings.743.gachatbot").removesuffix(b"data: [DONE]\n\n")
    assert printed("voicings", raw, raw)[-1] == "     through the proxy  ✗ no done marker; exact"


def test_a_stream_cannot_drive_the_terminal() -> None:
    raw = "data: \x1b[2J[bold]not markup[/bold]\x9b\n\ndata: [DONE]\n\n".encode()
    text = "\n".join(printed("voicings", raw, raw, question="\x1b]0;title\x07"))
    assert not {"\x1b", "\x07", "\x9b"} & set(text)
    assert "␛[2J[bold]not markup[/bold]" in text
