"""Durations, sizes and the types of plain scalars, both ways."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sse_proxy.config.values import (
    EnvText,
    Refused,
    format_duration,
    format_size,
    nearest,
    parse_duration,
    parse_size,
    plain,
    resolve_plain,
    show,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("15s", 15.0),
        ("200ms", 0.2),
        ("2m", 120.0),
        ("1h", 3600.0),
        ("0.5s", 0.5),
        ("0.1s", 0.1),
        ("1.5ms", 0.0015),
        ("007s", 7.0),
        ("0s", 0.0),
        ("8784h", 31622400.0),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        *("", "15", "s", "-1s", "+1s", "1 s", " 1s", "1s ", "1S", "1d", "1h30m", "1e3s", ".5s", "5.s", "1_0s", "١s"),
        *("1s\n", "9" * 13 + "s", "8785h", "0." + "1" * 10 + "s", "nans", "infs"),
    ],
)
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(Refused, match=r"^allowed: "):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "number"),
    [("512B", 512), ("64KiB", 65536), ("16MiB", 2**24), ("1GiB", 2**30), ("64kB", 64000), ("1MB", 10**6), ("0B", 0)],
)
def test_sizes(text: str, number: int) -> None:
    assert parse_size(text) == number


@pytest.mark.parametrize(
    "text",
    ["", "64", "64K", "64k", "64kb", "64KB", "64 KiB", "-1B", "1.5MiB", "٣B", "1TiB", "1025GiB", "9" * 16 + "B", "1B "],
)
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(Refused, match=r"^allowed: "):
        parse_size(text)


def test_a_bare_number_gets_its_unit_shown() -> None:
    with pytest.raises(Refused, match=r"did you mean 15s\?"):
        parse_duration("15")
    with pytest.raises(Refused, match=r"did you mean 1\.5s\?"):
        parse_duration("1.5")
    with pytest.raises(Refused, match=r"did you mean 64B\?"):
        parse_size("64")


@given(st.integers(1, 31_622_400_000))
def test_a_duration_is_written_as_it_is_read(milliseconds: int) -> None:
    seconds = milliseconds / 1000
    assert parse_duration(format_duration(seconds)) == seconds


@given(st.integers(0, 2**40))
def test_a_size_is_written_as_it_is_read(number: int) -> None:
    assert parse_size(format_size(number)) == number


@pytest.mark.parametrize(
    ("seconds", "text"), [(15.0, "15s"), (300.0, "300s"), (0.2, "200ms"), (1.5, "1.5s"), (0.0005, "0.5ms"), (1.0, "1s")]
)
def test_durations_as_people_write_them(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("scalar", "value"),
    [
        ("", None),
        ("~", None),
        ("null", None),
        ("nUll", "nUll"),
        ("off", False),
        ("OFF", False),
        ("oFf", "oFf"),
        ("No", False),
        ("yes", True),
        ("true", True),
        ("15", 15),
        ("-3", -3),
        ("0", 0),
        ("010", "010"),
        ("0x1F", "0x1F"),
        ("1_000", "1_000"),
        ("8080:30", "8080:30"),
        ("1" * 18, int("1" * 18)),
        ("1" * 19, "1" * 19),
        ("1" * 5000, "1" * 5000),
        ("١٢", "١٢"),
        ("1.5", 1.5),
        ("1.5e3", 1500.0),
        ("1.5e999", "1.5e999"),
        (".nan", ".nan"),
        (".inf", ".inf"),
        ("2026-01-02", "2026-01-02"),
        ("15s", "15s"),
        ("y", "y"),
    ],
)
def test_plain_scalars(scalar: str, value: Any) -> None:
    resolved = resolve_plain(scalar)
    assert (resolved, type(resolved)) == (value, type(value))


def test_what_came_from_the_environment_gets_its_type_everywhere() -> None:
    assert plain({"a": [EnvText("off"), EnvText("5"), "5"], "b": EnvText("x")}) == {"a": [False, 5, "5"], "b": "x"}


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "nothing"),
        (True, "on"),
        (False, "off"),
        (EnvText("off"), "off"),
        (5, "5"),
        ("a", '"a"'),
        ('a"b', '"a\\"b"'),
        ("é", '"é"'),
        ("a\nb\x1b\u2028\ud800", '"a\\nb\\u001b\\u2028\\ud800"'),
        ([1], "a list"),
        ((), "a list"),
        ({}, "a mapping"),
    ],
)
def test_what_is_shown(value: Any, shown: str) -> None:
    assert show(value) == shown


@given(st.text())
def test_what_is_shown_is_short_and_printable(text: str) -> None:
    assert len(show(text)) <= 81
    assert show(text).isprintable()


@pytest.mark.parametrize(
    ("word", "known"),
    [
        ("keepalife", "keepalive"),
        ("Idle-Timeout", "idle_timeout"),
        ("idletimeout", "idle_timeout"),
        ("zebra", None),
        ("", None),
    ],
)
def test_the_nearest_word(word: str, known: str | None) -> None:
    assert nearest(word, ["keepalive", "idle_timeout", "done"]) == known
