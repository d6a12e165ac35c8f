"""The matrix: the lesson's figures to the word, and what the proxy makes of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sse_proxy import matrix
from sse_proxy.core.verdict import with_lf
from sse_proxy.demo.library import ANSWERS
from sse_proxy.demo.wire import ERROR_MESSAGE

LOST = "1 of 6 lines missing, 8 line breaks missing"
NO_END = "1 line break missing, at the very end"
PAGES = ("HTML standard", "GaChatbot page")
CLIENTS = ("ga-client chatService", "ga-client streamChat")


@pytest.fixture(scope="module")
def figures() -> matrix.Matrix:
    return matrix.compute()


def test_the_answer_is_the_lessons(figures: matrix.Matrix) -> None:
    assert figures.size == {"characters": 558, "lines": 6, "line_breaks": 8}


@pytest.mark.parametrize(
    ("writer", "reader", "old", "new"),
    [
        ("GaChatbot.Api", "HTML standard", "6 line breaks missing", "exact"),
        ("GaChatbot.Api", "GaChatbot page", "6 line breaks missing", "exact"),
        ("GaChatbot.Api", "ga-client chatService", LOST, LOST),
        ("GaChatbot.Api", "ga-client streamChat", "8 line breaks missing", "8 line breaks missing"),
        ("GaApi", "HTML standard", LOST, LOST),
        ("GaApi", "GaChatbot page", LOST, LOST),
        ("GaApi", "ga-client chatService", LOST, LOST),
        ("GaApi", "ga-client streamChat", LOST, LOST),
        # The naive reader is right as long as GaApi's events travel alone, and wrong when they do not.
        ("GaApi", "naive reader, event a packet", "6 line breaks missing", "exact"),
        (
            "GaApi",
            "naive reader, one burst",
            "nothing missing, but the text differs",
            "nothing missing, but the text differs",
        ),
    ],
)
def test_directly(figures: matrix.Matrix, writer: str, reader: str, old: str, new: str) -> None:
    assert pair(figures, writer, reader).directly == {"a826864": old, "743": new}


@pytest.mark.parametrize("writer", ["GaChatbot.Api", "GaApi"])
@pytest.mark.parametrize(
    ("reader", "setting", "want"),
    [
        *((reader, "standard", {"a826864": NO_END, "743": "exact", "json": "exact"}) for reader in PAGES),
        # chatService trims, so the answer's own last line break is lost whatever is sent.
        (CLIENTS[0], "ga-client", {"a826864": NO_END, "743": NO_END, "json": NO_END}),
        (CLIENTS[1], "ga-client", {"a826864": NO_END, "743": "exact", "json": "exact"}),
    ],
)
def test_through_the_proxy_every_shipped_reader_has_the_answer(
    figures: matrix.Matrix, writer: str, reader: str, setting: str, want: dict[str, str]
) -> None:
    assert pair(figures, writer, reader).through[setting] == want


@pytest.mark.parametrize("answer", [entry.name for entry in ANSWERS])
def test_every_answer_of_the_demo_host_is_exact_behind_the_proxy(answer: str) -> None:
    figures = matrix.compute(answer)
    for row in figures.pairs:
        if row.reader in PAGES:
            assert (row.through["standard"]["743"], row.through["standard"]["json"]) == ("exact", "exact")
        if row.reader == CLIENTS[1]:
            assert (row.through["ga-client"]["743"], row.through["ga-client"]["json"]) == ("exact", "exact")
        if row.reader == CLIENTS[0]:
            for figure in (row.through["ga-client"]["743"], row.through["ga-client"]["json"]):
                assert figure == "exact" or figure.endswith("at the very end")


def test_an_unknown_answer_is_refused_with_the_known_names() -> None:
    with pytest.raises(ValueError, match=r"'nope'.*improvisation.*voicings"):
        matrix.compute("nope")


# ---- failures ----


def test_directly_a_failure_shows_as_the_lesson_says(figures: matrix.Matrix) -> None:
    raw = json.dumps({"error": ERROR_MESSAGE}, separators=(",", ":"))
    for reader in PAGES:
        assert failure(figures, "the host's own error", reader).directly == matrix.Seen(raw, None, raw)
    for reader in CLIENTS:
        assert failure(figures, "the host's own error", reader).directly == matrix.Seen("", ERROR_MESSAGE, None)


@pytest.mark.parametrize("reader", [*PAGES, *CLIENTS, "AG-UI client", "desktop app"])
def test_directly_a_cut_answer_is_kept_as_a_whole_one(figures: matrix.Matrix, reader: str) -> None:
    cut = failure(figures, "cut, as if it had ended", reader).directly
    assert cut.error is None
    assert cut.stored
    assert failure(figures, "cut, the connection broke", reader).directly.error == "network error"


@pytest.mark.parametrize("reader", ["HTML standard", *CLIENTS, "desktop app"])
def test_through_the_proxy_a_reader_with_an_error_handler_is_told_and_keeps_nothing(
    figures: matrix.Matrix, reader: str
) -> None:
    for row in figures.failures:
        if row.reader == reader:
            assert row.through.error, row.case
            assert row.through.stored is None
            assert figures.text.startswith(with_lf(row.through.shown))


def test_every_case_is_told_for_every_reader(figures: matrix.Matrix) -> None:
    rows = {(row.case, row.reader) for row in figures.failures}
    assert len(rows) == len(figures.failures) == 3 * 7


# ---- output ----


def test_json_holds_every_figure(figures: matrix.Matrix) -> None:
    value: dict[str, Any] = json.loads(matrix.run_matrix(json=True))
    assert value["answer"] == {"name": "improvisation", "characters": 558, "lines": 6, "line_breaks": 8}
    assert [row["directly"] for row in value["pairs"]] == [row.directly for row in figures.pairs]
    assert [row["through"]["error"] for row in value["failures"]] == [row.through.error for row in figures.failures]


def test_the_tables_have_every_figure_on_one_line(figures: matrix.Matrix, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")  # of a terminal; this is none
    lines = [" ".join(line.split()) for line in matrix.run_matrix(json=False).split("\n")]
    for row in figures.pairs:
        assert " ".join([row.writer, row.reader, row.directly["a826864"], row.directly["743"]]) in lines
        for way in row.through.values():
            assert " ".join([row.writer, row.reader, *way.values()]) in lines
    for title in (
        "Directly",
        "Through the proxy, reader: standard",
        "Through the proxy, reader: ga-client",
        "When the answer",
    ):
        assert any(line.startswith(title) for line in lines)


def test_another_answer_is_counted_by_its_own_lines() -> None:
    assert "199 characters, 9 lines of text, 9 line breaks" in matrix.run_matrix(json=False, answer="voicings")


def pair(figures: matrix.Matrix, writer: str, reader: str) -> matrix.Pair:
    [found] = [row for row in figures.pairs if (row.writer, row.reader) == (writer, reader)]
    return found


def failure(figures: matrix.Matrix, case: str, reader: str) -> matrix.Failure:
    [found] = [row for row in figures.failures if (row.case, row.reader) == (case, reader)]
    return found
