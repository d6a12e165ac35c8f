"""Control words: what is a marker, a routing object, an error object, and what may still become one."""

from __future__ import annotations

import json

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sse_proxy.core.control import MAX_CONTROL, MAX_ROUTING, Control, ControlWords, is_json, json_object, json_prefix
from tests.strategies import HOSTILE

WORDS = ControlWords(("[DONE]", "END"), objects=True)
OPAQUE = ControlWords(("[DONE]",), objects=False)


@pytest.mark.parametrize(
    ("data", "first", "kind"),
    [
        ("[DONE]", False, Control.DONE),
        ("  [DONE] ", True, Control.DONE),
        ("END", False, Control.DONE),
        ("[DONE]\n", False, Control.TEXT),
        ("\t[DONE]", False, Control.TEXT),
        ("[done]", False, Control.TEXT),
        ("", False, Control.TEXT),
        ('{"type":"routing","agentId":"a"}', True, Control.ROUTING),
        ('{"type":"routing"}', False, Control.TEXT),
        ('{"kind":"routing"}', True, Control.TEXT),
        ('{"type":NaN}', True, Control.TEXT),
        ('\r\n{ "a": 1,\n "type": 2 }', True, Control.ROUTING),
        ('{"error":"x"}', False, Control.ERROR),
        (' {\n"error" : "a \\"b\\" \\u00e9" } ', True, Control.ERROR),
        ('{"error":"x","code":1}', False, Control.TEXT),
        ('{"error":{"message":"x"}}', False, Control.TEXT),
        ('{"error":"\\x"}', False, Control.TEXT),
        ('{"error":"x"', False, Control.TEXT),
        ('{"error":"a\nb"}', False, Control.TEXT),
    ],
)
def test_what_an_event_is(data: str, first: bool, kind: Control) -> None:
    assert WORDS.classify(data, first=first) is kind


def test_without_objects_there_is_the_marker_alone() -> None:
    assert OPAQUE.classify('{"type":"x"}', first=True) is Control.TEXT
    assert OPAQUE.classify('{"error":"x"}', first=False) is Control.TEXT
    assert OPAQUE.classify("[DONE]", first=False) is Control.DONE
    assert ControlWords((), objects=False).classify("", first=True) is Control.TEXT


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.sampled_from(["type", "error", "a"]), inner, max_size=3)
    ),
)
SPACES = st.text(" \n\t\r", max_size=3)


@given(JSON, SPACES, SPACES, st.booleans(), st.sampled_from([None, 1]))
def test_every_beginning_of_a_control_event_may_become_one(
    value: object, before: str, after: str, first: bool, indent: int | None
) -> None:
    for data in (before + json.dumps(value, indent=indent) + after, '{"error":' + json.dumps(str(value)) + after + "}"):
        if WORDS.classify(data, first=first) is not Control.TEXT:
            for end in range(len(data) + 1):
                assert WORDS.may_become(data[:end], first=first), data[:end]


@given(st.lists(st.sampled_from(HOSTILE), max_size=4).map("".join), st.booleans())
def test_what_may_not_become_a_control_event_never_does(data: str, first: bool) -> None:
    states = [WORDS.may_become(data[:end], first=first) for end in range(len(data) + 1)]
    assert states == sorted(states, reverse=True)  # once text, always text
    if not states[-1]:
        assert WORDS.classify(data, first=first) is Control.TEXT
        assert WORDS.classify(data + "}", first=first) is Control.TEXT


def test_what_is_held_to_find_out_is_bounded() -> None:
    assert not WORDS.may_become(" " * (MAX_CONTROL + 1), first=False)
    assert WORDS.classify(" " * MAX_CONTROL + "[DONE]", first=False) is Control.TEXT
    assert not WORDS.may_become('{"error":"' + "x" * MAX_CONTROL, first=False)
    assert WORDS.may_become('{"a":"' + "x" * MAX_CONTROL, first=True)
    assert not WORDS.may_become('{"a":"' + "x" * MAX_ROUTING, first=True)


@pytest.mark.parametrize(
    "tail", ["\n[DONE]", "\n\n[DONE]\n", "\n [DONE]  \n\n", "\nEND", "\n[DO", "\n\n  [", "\n", "\nE"]
)
def test_a_bare_marker_at_a_texts_end_is_seen_from_its_first_letter(tail: str) -> None:
    assert WORDS.bare_marker_tail().match(tail)


@pytest.mark.parametrize(
    "tail", ["\n[DONE]x", "\nx[DONE]", "\n\n\n[DONE]", "[DONE]", "\n[DONE]\n\n\n", "\n         [DONE]"]
)
def test_other_lines_are_no_bare_marker(tail: str) -> None:
    assert not WORDS.bare_marker_tail().match(tail)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "NaN", "Infinity", "", "{", "nul", "1 2", "'a'"])
def test_what_is_no_json_raises_nothing(text: str) -> None:
    assert not is_json(text)
    assert json_object(text) is None
    assert json_prefix(text) is None


def test_json_of_any_length_of_number_is_json() -> None:
    assert is_json("1" * 10_000)
    assert json_object('{"a":' + "1" * 10_000 + "}") is not None
    assert json_prefix(' {"a":1} and more') == {"a": 1}
    assert json_object("[1]") is None


@given(st.text(max_size=20))
def test_json_object_is_what_json_says(text: str) -> None:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    assume(not isinstance(value, float))
    assert json_object(text) == (value if isinstance(value, dict) else None)
