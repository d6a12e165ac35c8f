"""Which block of markdown a line begins, and from how much of it that can be told."""

from __future__ import annotations

import pytest

from sse_proxy.core.markdown import MARKED, block_at, kind_of, marker_of, shape_of


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("", "blank"),
        ("Plain words.", "prose"),
        ("- item", "item"),
        ("• item", "item"),
        ("12) item", "item"),
        ("1.5 strings", "prose"),
        ("# heading", "heading"),
        ("#hashtag", "prose"),
        ("```python", "fence"),
        ("```code``` in a line", "prose"),
        ("* * *", "rule"),
        ("**bold** words", "prose"),
        ("[1]: http://chat.example", "definition"),
        ("| a | b |", "row"),
        ("> said", "quote"),
        ("<div>", "html"),
        ("<!-- one line -->", "html"),
        ("<!-- the first of more", "comment"),
    ],
)
def test_a_line_tells_its_block(line: str, kind: str) -> None:
    assert kind_of(line) == kind


@pytest.mark.parametrize(
    ("head", "block"),
    [
        ("- item", "item"),
        ("**Bold** words", "prose"),
        ("$$x$$", "formula"),
        ("\\[x", "formula"),
        ("--> and on", "comment end"),
        ("<p>", "html"),
        ("<x>", "prose"),
        ("[link](to)", "prose"),
        ("7th chords", "prose"),
    ],
)
def test_a_beginning_tells_its_block(head: str, block: str) -> None:
    assert head[0] in MARKED
    assert block_at(head, final=False) == block


@pytest.mark.parametrize("head", ["-", "**", "``", "12", "12.", "$", "\\", "<", "<detai", "[1", "#"])
def test_too_short_a_beginning_tells_nothing_until_it_is_all(head: str) -> None:
    assert block_at(head, final=False) is None
    assert block_at(head, final=True) is not None


def test_a_marker_is_a_kind_and_a_number() -> None:
    assert [marker_of(each) for each in ("-", "•", "3.", "12)")] == [("-", 0), ("•", 0), (".", 3), (")", 12)]


def test_items_that_begin_alike_have_one_shape() -> None:
    assert [shape_of(each) for each in ("Word", "word", "**Bold**", "")] == ["A", "a", "*", ""]
