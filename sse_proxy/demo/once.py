"""`sse-proxy demo --once`: one answer in the terminal, as a standard reader gets it directly and through the proxy."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.rule import Rule
from rich.text import Text

from sse_proxy.core.verdict import judge, lost_lines, with_lf
from sse_proxy.demo.reader import Reading, read_answer

__all__ = ["render_once"]

# A stream's text must not move the terminal's cursor: control characters are shown as their pictures (U+2400 block).
_PICTURES = {code: 0x2400 + code for code in range(0x20) if code not in (0x09, 0x0A)} | {0x7F: 0x2421}
_PICTURES |= dict.fromkeys(range(0x80, 0xA0), 0xFFFD)


def render_once(question: str, direct: bytes, proxied: bytes, answer: str) -> RenderableType:
    """Return both readings, one below the other, for printing with a rich console.

    Args:
        question: what was asked.
        direct: the whole body of the host's stream.
        proxied: the whole body of the same stream through the proxy.
        answer: what the host computed, from its JSON twin.
    """
    readings = [("directly from the host", read_answer(direct)), ("through the proxy", read_answer(proxied))]
    width = max(len(name) for name, _ in readings)
    verdicts = [Text.assemble(f"{name:>{width}}  ", _verdict(reading, answer)) for name, reading in readings]
    return Group(
        Text.assemble("Question: ", (_safe(question), "bold")),
        *(_panel(name, reading, answer) for name, reading in readings),
        Text("Verdicts", style="bold"),
        *verdicts,
    )


def _panel(name: str, reading: Reading, answer: str) -> Panel:
    parts: list[RenderableType] = [Text(_safe(reading.text)) if reading.text else Text("(no text)", style="dim")]
    lost = lost_lines(answer, reading.text)
    if lost:
        parts.append(Rule("did not arrive", style="red"))
        parts += [Text.assemble(("✗ ", "bold red"), (_safe(line), "red")) for line in lost]
    events = "1 event" if reading.events == 1 else f"{reading.events} events"
    style = "green" if _good(reading, answer) else "red"
    return Panel(
        Group(*parts), title=name, subtitle=events, title_align="left", subtitle_align="right", border_style=style
    )


def _verdict(reading: Reading, answer: str) -> Text:
    said = str(judge(answer, reading.text))
    if reading.error is not None:
        said = f"failed ({_safe(reading.error[:200])}); {said}"
    elif not reading.done:
        said = f"no done marker; {said}"
    good = _good(reading, answer)
    return Text(f"{'✓' if good else '✗'} {said}", style="bold green" if good else "bold red")


def _good(reading: Reading, answer: str) -> bool:
    return not reading.failed and judge(answer, reading.text).exact


def _safe(text: str) -> str:
    return with_lf(text).translate(_PICTURES)
