"""`sse-proxy matrix`: every writer with every reader, directly and through the proxy, counted as the lesson counts.

Nothing is fixed beforehand: each figure is what the demo host's reference writers, a `Pipeline` and the readers of
`core.readers` give at this moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from json import dumps

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from sse_proxy.core.options import Payload, Reader, Split, StreamOptions
from sse_proxy.core.pipeline import Pipeline
from sse_proxy.core.readers import (
    AgUiClient,
    ChatReader,
    DesktopApp,
    GaChatbotPage,
    GaClientChatService,
    GaClientStreamChat,
    HtmlStandardReader,
    NaivePacketReader,
)
from sse_proxy.core.verdict import judge, with_lf
from sse_proxy.demo.library import ANSWERS, Answer
from sse_proxy.demo.wire import ERROR_MESSAGE, WRITERS, compact, error_object, frames, routing_object, split_743
from sse_proxy.errors import FailureCode

__all__ = ["Failure", "Matrix", "Pair", "Seen", "compute", "run_matrix"]

_WRITERS = {"gachatbot": "GaChatbot.Api", "gaapi": "GaApi"}
_CHUNKS = {"a826864": "chunks at a826864", "743": "chunks after #743"}
_TWIN = "json"
_PAGE_WIDTH = 190  # of output that is no terminal, so that no figure is broken over two lines


@dataclass(frozen=True, slots=True)
class _Row:
    """A reader of text streams, as the tables name it.

    Attributes:
        make: a new one.
        suits: the proxy's `reader` setting for it.
        burst: all packets arrive as one; it matters to the naive reader only.
    """

    name: str
    make: Callable[[], ChatReader]
    suits: Reader = Reader.STANDARD
    burst: bool = False

    def read(self, packets: list[bytes], *, broken: bool = False) -> ChatReader:
        """Let the reader at a whole response; `broken`: it did not end, its connection broke."""
        reader = self.make()
        for packet in [b"".join(packets)] if self.burst else packets:
            reader.feed(packet)
        if broken:
            reader.fail()
        else:
            reader.close()
        return reader


_STANDARD = _Row(
    HtmlStandardReader.name, lambda: HtmlStandardReader(careful=False)
)  # the lesson's: five rules, no more
_ROWS = (
    _STANDARD,
    _Row(GaChatbotPage.name, GaChatbotPage),
    _Row(GaClientChatService.name, GaClientChatService, Reader.GA_CLIENT),
    _Row(GaClientStreamChat.name, GaClientStreamChat, Reader.GA_CLIENT),
    _Row("naive reader, event a packet", NaivePacketReader),
    _Row("naive reader, one burst", NaivePacketReader, burst=True),
)


@dataclass(frozen=True, slots=True)
class Pair:
    """One writer with one reader: the lesson's words, by splitter (`a826864`, `743`).

    Attributes:
        directly: without the proxy.
        through: behind the proxy, by its `reader` setting, then by splitter; `json` is `source: json`.
    """

    writer: str
    reader: str
    directly: dict[str, str]
    through: dict[str, dict[str, str]]


@dataclass(frozen=True, slots=True)
class Seen:
    """What one reader made of a failed answer.

    Attributes:
        shown: the text on the screen at the end.
        error: what it throws or shows as an error; None where it noticed nothing.
        stored: what it keeps as a complete answer, and sends back as history; None for nothing.
    """

    shown: str
    error: str | None
    stored: str | None


@dataclass(frozen=True, slots=True)
class Failure:
    """One way for an answer to fail, and what one reader makes of it."""

    case: str
    reader: str
    directly: Seen
    through: Seen


@dataclass(frozen=True, slots=True)
class Matrix:
    """All figures for one answer, which is counted with its line ends as LF."""

    name: str
    text: str
    pairs: tuple[Pair, ...]
    failures: tuple[Failure, ...]

    @property
    def size(self) -> dict[str, int]:
        """Characters, lines of text (blank ones are none) and line breaks of the answer."""
        lines = sum(bool(line.strip()) for line in self.text.split("\n"))
        return {"characters": len(self.text), "lines": lines, "line_breaks": self.text.count("\n")}


def compute(answer: str = "improvisation") -> Matrix:
    """Let every writer, splitter and reader at one answer of the demo host.

    Raises:
        ValueError: the demo host has no answer of that name; the message names those it has.
    """
    entries = {entry.name: entry for entry in ANSWERS}
    if answer not in entries:
        raise ValueError(f"there is no answer {answer!r}; known are {', '.join(sorted(entries))}")
    entry = entries[answer]
    failures = (*_text_failures(entry), *_json_failures(entry))
    return Matrix(answer, with_lf(entry.text), tuple(_pairs(entry)), failures)


def _pairs(entry: Answer) -> Iterator[Pair]:
    routing = routing_object(entry.agent_id)
    for writer, writer_name in _WRITERS.items():
        wires = {chunks: frames(entry.text, routing, writer, chunks) for chunks in _CHUNKS}
        repaired = {}
        for setting in Reader:
            options = StreamOptions(reader=setting)
            repaired[setting] = {chunks: _through(options, wire) for chunks, wire in wires.items()}
            repaired[setting][_TWIN] = [Pipeline(options).deliver(compact(routing), entry.text)]
        for row in _ROWS:
            yield Pair(
                writer_name,
                row.name,
                {way: _figure(entry.text, row.read(wire).answer) for way, wire in wires.items()},
                {
                    str(setting): {way: _figure(entry.text, row.read(wire).answer) for way, wire in ways.items()}
                    for setting, ways in repaired.items()
                },
            )


def _through(options: StreamOptions, wire: list[bytes], *, broken: bool = False) -> list[bytes]:
    """Send a host's packets through the proxy; return what it writes, one element a write."""
    pipeline = Pipeline(options)
    out = []
    for packet in wire:
        out.append(pipeline.feed(packet))
        if pipeline.finished:
            break
    else:
        out.append(pipeline.fail(FailureCode.UPSTREAM_TRUNCATED) if broken else pipeline.close())
    return [packet for packet in out if packet]


def _figure(answer: str, got: str) -> str:
    """Say in the lesson's words what is missing, and where it is only the white space at the answer's own ends."""
    verdict = judge(answer, got)
    at_ends = not verdict.exact and with_lf(answer).strip() == with_lf(got).strip()
    return f"{verdict}, at the very end" if at_ends else str(verdict)


# What fails, how: the case's name, and whether the connection breaks.
_CASES = (("the host's own error", False), ("cut, as if it had ended", False), ("cut, the connection broke", True))


def _text_failures(entry: Answer) -> Iterator[Failure]:
    # The right writer's wire: whatever is lost here is the failure's doing.
    whole = frames(entry.text, routing_object(entry.agent_id), "gachatbot", "743")
    cut = [*whole[:-2], _half(whole[-2])]
    error = WRITERS["gachatbot"]([compact(error_object())])
    for (case, broken), wire in zip(_CASES, (error, cut, cut), strict=True):
        for row in _ROWS[:5]:
            yield _failure(case, row, StreamOptions(reader=row.suits), wire, broken=broken)


def _json_failures(entry: Answer) -> Iterator[Failure]:
    chunks = split_743(entry.text)
    events = [{"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": chunk} for chunk in chunks]
    ag_ui = _json_events({"type": "RUN_STARTED"}, *events)
    ag_ui_error = _json_events({"type": "RUN_ERROR", "message": ERROR_MESSAGE, "code": "error"})
    ends = StreamOptions(
        payload=Payload.JSON, split=Split.NONE, done=(), end_types=("RUN_FINISHED",), error_types=("RUN_ERROR",)
    )
    parts = _json_events(*({"choices": [{"index": 0, "delta": {"content": chunk}}]} for chunk in ["", *chunks]))
    parts_error = _json_events({"error": {"message": ERROR_MESSAGE, "type": "server_error"}})
    marker = StreamOptions(payload=Payload.JSON, split=Split.NONE)
    for row, options, wire, error in (
        (_Row(AgUiClient.name, AgUiClient), ends, ag_ui, ag_ui_error),
        (_Row(DesktopApp.name, DesktopApp), marker, parts, parts_error),
    ):
        cut = [*wire[:-1], _half(wire[-1])]
        for (case, broken), failed in zip(_CASES, (wire[:1] + error, cut, cut), strict=True):
            yield _failure(case, row, options, failed, broken=broken)


def _failure(case: str, row: _Row, options: StreamOptions, wire: list[bytes], *, broken: bool) -> Failure:
    repaired = _through(options, wire, broken=broken)
    return Failure(case, row.name, _seen(row.read(wire, broken=broken)), _seen(row.read(repaired)))


def _seen(reader: ChatReader) -> Seen:
    return Seen(reader.answer, reader.error, reader.stored)


def _json_events(*objects: object) -> list[bytes]:
    return [b"data: " + compact(value).encode() + b"\n\n" for value in objects]


def _half(frame: bytes) -> bytes:
    return frame[: len(frame) // 2]


def run_matrix(json: bool, answer: str = "improvisation") -> str:
    """Compute the matrix; return it as JSON, or as tables.

    On a terminal the tables are coloured and as wide as it is; for a file or pipe they are wide enough for every figure
    to stand on one line.

    Raises:
        ValueError: the demo host has no answer of that name.
    """
    matrix = compute(answer)
    if json:
        return _as_json(matrix) + "\n"
    console = Console()
    if not console.is_terminal:
        console = Console(width=_PAGE_WIDTH)
    with console.capture() as capture:
        console.print(_as_tables(matrix))
    return "".join(line.rstrip() + "\n" for line in capture.get().rstrip("\n").split("\n"))


def _as_json(matrix: Matrix) -> str:
    value = {
        "answer": {"name": matrix.name, **matrix.size},
        "pairs": [asdict(pair) for pair in matrix.pairs],
        "failures": [asdict(failure) for failure in matrix.failures],
    }
    return dumps(value, indent=2, ensure_ascii=False)


def _as_tables(matrix: Matrix) -> Group:
    size = matrix.size
    head = (
        f"The {matrix.name} answer: {size['characters']} characters, {size['lines']} lines of text, "
        f"{size['line_breaks']} line breaks."
    )
    parts: list[RenderableType] = [Text(head)]
    directly = _table("Directly: each writer with each reader", "writer", "reader", *_CHUNKS.values())
    for pair in matrix.pairs:
        directly.add_row(pair.writer, pair.reader, *(_coloured(pair.directly[chunks]) for chunks in _CHUNKS))
    parts.append(directly)
    for setting in Reader:
        title = f"Through the proxy, reader: {setting}"
        table = _table(title, "writer", "reader", *_CHUNKS.values(), f"source: {_TWIN}")
        for pair in matrix.pairs:
            figures = pair.through[setting]
            table.add_row(pair.writer, pair.reader, *(_coloured(figures[way]) for way in (*_CHUNKS, _TWIN)))
        parts.append(table)
    failed = _table(
        "When the answer fails: what a reader shows, and what it keeps", "reader", "directly", "through the proxy"
    )
    for case, _ in _CASES:
        failed.add_section()
        failed.add_row(Text(case, style="bold"))
        for failure in (failure for failure in matrix.failures if failure.case == case):
            sides = (_told(matrix.text, failure.directly), _told(matrix.text, failure.through))
            failed.add_row(f"  {failure.reader}", *sides)
    parts.append(failed)
    return Group(*parts)


def _table(title: str, *columns: str) -> Table:
    table = Table(*columns, title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1))
    table.columns[0].no_wrap = True
    return table


def _coloured(figure: str) -> Text:
    return Text(figure, style="green" if figure == "exact" else "yellow" if "very end" in figure else "red")


def _told(answer: str, seen: Seen) -> Text:
    """One reader's end of a failed answer: an error is green, a failure kept as an answer red."""
    if seen.error is None:
        return Text(f"keeps as the answer: {_extent(answer, seen.stored or '')}", style="red")
    return Text(f"error: {_quoted(seen.error)}; shows {_extent(answer, seen.shown)}, keeps nothing", style="green")


def _extent(answer: str, text: str) -> str:
    """How much of the answer `text` is, and what else stands in it."""
    text = with_lf(text)
    shorter = min(len(answer), len(text))
    own = next((at for at in range(shorter) if answer[at] != text[at]), shorter)
    rest = text[own:]
    parts = [f"{own} of {len(answer)} characters"] if own else []
    return " + ".join(parts + [_quoted(rest)] * bool(rest)) or "no text"


def _quoted(text: str) -> str:
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return f"“{shown[:60]}…”" if len(shown) > 61 else f"“{shown}”"
