"""Text to plain values: YAML without its traps, lines, and what the environment puts in."""

from __future__ import annotations

from typing import Any

import pytest

from sse_proxy.config.tree import path_text, read_tree
from sse_proxy.config.values import EnvText


def value_of(text: str, env: dict[str, str] | None = None) -> Any:
    tree = read_tree(text, env or {})
    assert tree.problems == []
    return tree.value


def problems_of(text: str, env: dict[str, str] | None = None) -> list[tuple[str, str]]:
    tree = read_tree(text, env or {})
    return [(path_text(place), what) for place, what in tree.problems]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: off", {"a": False}),
        ("a: 'off'", {"a": "off"}),
        ("a: [DONE]", {"a": ["DONE"]}),
        ('a: "[DONE]"', {"a": "[DONE]"}),
        ("a: 8080:30", {"a": "8080:30"}),
        ("a: 0.0.0.0:80", {"a": "0.0.0.0:80"}),
        ("a: 2026-01-02", {"a": "2026-01-02"}),
        ("a: 1e3", {"a": "1e3"}),
        ("a: =", {"a": "="}),
        ("a: !!str 5", {"a": "5"}),
        ("a: |\n  x\n  y\n", {"a": "x\ny\n"}),
        ("on: 1\n5: 2\n~: 3", {"on": 1, "5": 2, "~": 3}),
        ("a:", {"a": None}),
        ("", None),
        ("--- {a: 1}\n...", {"a": 1}),
    ],
)
def test_values(text: str, value: Any) -> None:
    assert value_of(text) == value


def test_aliases_and_merged_mappings() -> None:
    text = "a: &a {x: 1, y: 2}\nb: &b {y: 3, z: 4}\nc: {<<: *a, y: 5}\nd: {<<: [*a, *b]}\ne: *a"
    value = value_of(text)
    assert value["c"] == {"x": 1, "y": 5}
    assert value["d"] == {"x": 1, "y": 2, "z": 4}
    assert value["e"] == value["a"]


def test_lines() -> None:
    tree = read_tree("a:\n  - b: 1\n    c:\n      2\n  - 3\n", {})
    assert tree.lines[("a",)] == 1
    assert tree.lines[("a", 0, "b")] == 2
    assert tree.lines[("a", 0, "c")] == 3
    assert tree.lines[("a", 1)] == 5
    assert tree.line_of(("a", 0, "missing")) == 2
    assert tree.line_of(("missing",)) is None


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ((), ""),
        (("upstreams", 0, "routes", 1, "path"), "upstreams[0].routes[1].path"),
        (("a b", "c"), '"a b".c'),
        (("a", "\n"), 'a."\\n"'),
        (("", 0), '""[0]'),
    ],
)
def test_paths(place: tuple[str | int, ...], text: str) -> None:
    assert path_text(place) == text


FORMS = "allowed: ${NAME}, ${NAME:-default}, or $${ for the characters as they are"
ENV = {"NAME": "x", "EMPTY": "", "YAML": "{a: 1}\n- b", "NUMBER": "5", "OFF": "off", "NESTED": "${NAME}"}


@pytest.mark.parametrize(
    ("scalar", "value"),
    [
        ("${NAME}", "x"),
        ("'${NAME}'", "x"),
        ("a${NAME}b${NAME}c", "axbxc"),
        ("${NOTHING:-x}", "x"),
        ("${NOTHING:-}", ""),
        ("${NAME:-y}", "x"),
        ("${EMPTY}", ""),
        ("${EMPTY:-y}", "y"),
        ("${NOTHING:-http://localhost:5232}", "http://localhost:5232"),
        ("${NOTHING:-a:-b}", "a:-b"),
        ("$${NAME}", "${NAME}"),
        ("a$${NAME}${NAME}", "a${NAME}x"),
        ("$NAME $ {NAME} $$", "$NAME $ {NAME} $$"),
        ("${NESTED}", "${NAME}"),  # once: what the environment holds is a value
        ("'${YAML}'", "{a: 1}\n- b"),
        ("v${NUMBER}", "v5"),
        ("|\n  ${NAME}\n", "x\n"),
    ],
)
def test_variables(scalar: str, value: str) -> None:
    assert value_of(f"a: {scalar}", ENV) == {"a": value}


def test_a_scalar_that_is_a_variable_is_typed_by_its_setting() -> None:
    value = value_of("a: ${NUMBER}\nb: '${OFF}'\nc: x${OFF}\nd: $${OFF}\ne: 5", ENV)
    assert [type(item) for item in value.values()] == [EnvText, EnvText, str, str, int]


def test_keys_are_no_variables() -> None:
    assert value_of("${NAME}: ${NAME}", ENV) == {"${NAME}": "x"}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("a: [1, '${NOTHING}']", ("a[1]", "the environment has no NOTHING; set it, or write ${NOTHING:-default}")),
        ("a: '${1}'", ("a", f'found "${{1}}"; {FORMS}')),
        ("a: '${NAME'", ("a", f'found "${{NAME"; {FORMS}')),
        ("a: '${LONG}'", ("a", "the variables give more than 65536 characters")),
        ("a: '${BYTE}'", ("a", 'found "\\udcff"; allowed: text that can be written in UTF-8')),
        ("a: !x 1", ("a", 'found the tag "!x"; allowed: plain YAML without such tags')),
        ("a: !!binary eA==", ("a", 'found the tag "!!binary"; allowed: plain YAML without such tags')),
        ("a: !!set {b}", ("a", 'found the tag "!!set"; allowed: plain YAML without such tags')),
        ("a: 1\n'a': 2", ("a", "stands twice, in lines 1 and 2; allowed: once")),
    ],
)
def test_problems(text: str, what: tuple[str, str]) -> None:
    assert problems_of(text, {"LONG": "x" * 70_000, "BYTE": "\udcff", **ENV}) == [what]


def test_what_could_not_be_told_is_remembered() -> None:
    tree = read_tree("a: ${NOTHING}\nb: !x {c: 1}", {})
    assert tree.unknown == {("a",), ("b",)}
