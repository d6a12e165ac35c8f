"""JavaScript's functions told in Python: by what ECMA-262 says, and against node where it is installed."""

from __future__ import annotations

import base64
import json
import random
import shutil
import subprocess
import sys
from typing import Any

import pytest

from sse_proxy.core.javascript import TextDecoder, json_parse, to_string, trim, truthy, well_formed
from sse_proxy.core.unicode import JS_TRIMMED

NODE = shutil.which("node")


def decode(*packets: bytes) -> str:
    decoder = TextDecoder()
    return "".join(map(decoder.decode, packets))


def test_trim_takes_what_javascript_calls_white_space_and_no_more() -> None:
    kept = "\x1c\x1f\x85\u200b\u180e"  # Python's strip() would take the first three
    assert trim(JS_TRIMMED + kept + JS_TRIMMED) == kept


@pytest.mark.parametrize("cut", range(8))
def test_a_bom_is_dropped_once_and_a_cut_character_waits(cut: int) -> None:
    raw = "\ufeffé\ufeff".encode()
    assert decode(raw[:cut], raw[cut:]) == "é\ufeff"


def test_of_two_boms_one_is_text() -> None:
    assert decode("\ufeff\ufeffa".encode()) == "\ufeffa"


def test_half_a_character_at_the_end_is_given_only_when_the_stream_ends() -> None:
    assert decode(b"a\xf0\x9f") == "a"
    assert TextDecoder().decode(b"a\xf0\x9f", stream=False) == "a\ufffd"


@pytest.mark.parametrize(
    "text",
    ["", "NaN", "Infinity", "-Infinity", '{"a":NaN}', "01", "1.", "'a'", '"\t"', "\ufeff1", "\u00a01", "[1,]", "1 2"],
)
def test_what_is_not_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 (the message is json's)
        json_parse(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("\r\n\t 1 ", 1),
        ('{"a":1,"a":2}', {"a": 2}),
        ("1e999", float("inf")),
        ("9007199254740993", 9007199254740992),  # beyond 2**53 only every other integer exists
        ("1" * 5000, float("inf")),  # int() would raise
        ('"\\ud83c\\udfb8 \u2028"', "🎸 \u2028"),
        ('"\\ud83c"', "\ud83c"),
    ],
)
def test_json_means_what_it_means_in_javascript(text: str, value: Any) -> None:
    assert json_parse(text) == value


def test_deep_nesting_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        json_parse("[" * 200_000 + "]" * 200_000)


@pytest.mark.parametrize("value", [[], {}, "0", 1, -0.5, True, [0]])
def test_truthy(value: Any) -> None:
    assert truthy(value)


@pytest.mark.parametrize("value", ["", 0, 0.0, None, False])
def test_not_truthy(value: Any) -> None:
    assert not truthy(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a", "a"),
        (None, "null"),
        (True, "true"),
        (False, "false"),
        (3.0, "3"),
        (-1.5, "-1.5"),
        (float("-inf"), "-Infinity"),
        (1e21, "1e+21"),
        ({"a": 1}, "[object Object]"),
        ([], ""),
        ([1, [None, "a"], {}], "1,,a,[object Object]"),
        ([[], []], ","),
    ],
)
def test_to_string(value: Any, text: str) -> None:
    assert to_string(value) == text


def test_to_string_of_deep_nesting_does_not_run_out_of_stack() -> None:
    value: list[Any] = ["deep"]
    for _ in range(sys.getrecursionlimit() * 2):
        value = [value]
    assert to_string(value) == "deep"


def test_halves_of_a_character_join_and_a_lone_half_is_replaced() -> None:
    assert well_formed("\ud83c" + "\udfb8 \udfb8") == "🎸 \ufffd"


def test_half_a_surrogate_is_no_utf8_and_is_known_at_once() -> None:
    assert decode(b"a\xed\xa0") == "a\ufffd\ufffd"
    assert decode(b"\xed", b"\x9f", b"\xbf") == "\ud7ff"


SCRIPT = """
const out = JSON.parse(require("fs").readFileSync(0, "utf8")).map(({ packets, text }) => {
  const decoder = new TextDecoder();
  const decoded = packets.map((p) => decoder.decode(Buffer.from(p, "base64"), { stream: true })).join("");
  let string = null;
  try { string = String(JSON.parse(text)); } catch {}
  return { decoded, trimmed: text.trim(), string };
});
console.log(JSON.stringify(out));
"""


def value(rnd: random.Random, depth: int) -> Any:
    """A random JSON value, its lists nested up to `depth`."""
    if depth and rnd.random() < 0.4:
        return [value(rnd, depth - 1) for _ in range(rnd.randrange(4))]
    return rnd.choice([None, True, False, 0, -7, 1.5, 1e21, 10**20, "", "é\n", {"a": 1}])


@pytest.mark.node
@pytest.mark.skipif(NODE is None, reason="node is not installed")
def test_node_agrees_on_random_texts_and_bytes() -> None:
    rnd = random.Random(9)
    marks = [
        *JS_TRIMMED,
        "\x1c",
        "\x85",
        "\u200b",
        "1",
        "0",
        "-",
        ".",
        "e5",
        "[",
        "]",
        ",",
        '"',
        "\\",
        "{",
        "}",
        ":",
        "NaN",
    ]
    cases: list[tuple[list[bytes], str]] = []
    for _ in range(3000):
        raw = bytes(
            rnd.choice(b"a\xef\xbb\xbf\xe2\x82\xac\xf0\x9f\x8e\xb8\xc3\xed\xa0\xff") for _ in range(rnd.randrange(12))
        )
        cuts = sorted(rnd.randrange(len(raw) + 1) for _ in range(rnd.randrange(4)))
        packets = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
        text = "".join(rnd.choice(marks) for _ in range(rnd.randrange(1, 7)))
        if len(cases) % 2:
            text = json.dumps(value(rnd, 3))
        cases.append((packets, text))
    stdin = json.dumps([{"packets": [base64.b64encode(p).decode() for p in ps], "text": text} for ps, text in cases])
    assert NODE is not None
    done = subprocess.run([NODE, "-e", SCRIPT], input=stdin, capture_output=True, text=True, check=True, timeout=60)
    parsed = 0
    for (packets, text), want in zip(cases, json.loads(done.stdout), strict=True):
        assert decode(*packets) == want["decoded"], packets
        assert trim(text) == want["trimmed"], ascii(text)
        try:
            string = to_string(json_parse(text))
        except ValueError:
            string = None
        assert string == want["string"], ascii(text)
        parsed += string is not None
    assert parsed > 1000  # or the comparison of values compared nothing
