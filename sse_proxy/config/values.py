"""Single values of the file: their types, durations and sizes with a unit, and how they are shown in a message."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

__all__ = [
    "LONGEST_S",
    "EnvText",
    "Refused",
    "format_duration",
    "format_size",
    "nearest",
    "parse_duration",
    "parse_size",
    "plain",
    "resolve_plain",
    "show",
]

LONGEST_S = 366 * 24 * 3600.0
"""The longest duration, a year: a timer may be asked for no more."""

_BOOLEANS = {"yes": True, "on": True, "true": True, "no": False, "off": False, "false": False}
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?[0-9]+\.[0-9]*(?:[eE][-+]?[0-9]{1,3})?")
_MOST_DIGITS = 18  # of an integer: enough for any setting, and int() raises on very long ones

_DURATION = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)(ms|s|m|h)")
DURATION_PATTERN = f"^{_DURATION.pattern}$"
_SECONDS = {"ms": Decimal("0.001"), "s": Decimal(1), "m": Decimal(60), "h": Decimal(3600)}
_SIZE = re.compile(r"([0-9]{1,15})(B|KiB|MiB|GiB|kB|MB|GB)")
SIZE_PATTERN = f"^{_SIZE.pattern}$"
_BYTES = {"GiB": 1024**3, "MiB": 1024**2, "KiB": 1024, "GB": 1000**3, "MB": 1000**2, "kB": 1000, "B": 1}
_LARGEST_BYTES = 1024**4
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")


class Refused(ValueError):
    """A value that a setting cannot take; the message says what is allowed.

    Attributes:
        items: where the fault is in items of a list: position, item and message of each.
    """

    def __init__(self, message: str = "", items: Sequence[tuple[int, Any, str]] = ()) -> None:
        super().__init__(message)
        self.items = tuple(items)


class EnvText(str):
    """A scalar that was nothing but `${NAME}`: its type is settled by the setting it is for, not by its looks."""

    __slots__ = ()


def resolve_plain(scalar: str) -> str | int | float | bool | None:
    """Give a plain YAML scalar its type: null, on/off, decimal numbers; all else is text.

    Narrower than YAML 1.1 on purpose: `8080:30` is no number of base 60, `0123` no octal, `2026-01-02` no date.
    """
    if scalar in ("", "~", "null", "Null", "NULL"):
        return None
    # YAML 1.1 knows three spellings of each word: off, Off and OFF.
    if scalar in (scalar.lower(), scalar.upper(), scalar.capitalize()) and scalar.lower() in _BOOLEANS:
        return _BOOLEANS[scalar.lower()]
    if len(scalar) <= _MOST_DIGITS and _INTEGER.fullmatch(scalar):
        return int(scalar)
    if len(scalar) <= 40 and _FLOAT.fullmatch(scalar):
        value = float(scalar)
        return value if abs(value) <= 1e300 else scalar
    return scalar


def plain(value: Any) -> Any:
    """Give what came from the environment the type a plain scalar would have; lists and mappings too."""
    if isinstance(value, EnvText):
        return resolve_plain(str(value))
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value


def show(value: Any) -> str:
    """Say in at most some 80 characters of one line what stood in the file."""
    value = plain(value)
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list"
    if isinstance(value, str):
        shown = json.dumps(value[:81], ensure_ascii=False)
        shown = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in shown)
        return shown if len(shown) <= 80 else shown[:77] + '..."'
    return str(value)[:80]


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that `word` is most likely a slip of, or None."""
    by_folded = {known_word.lower().replace("-", "_"): known_word for known_word in known}
    close = difflib.get_close_matches(word[:80].lower().replace("-", "_"), by_folded, n=1, cutoff=0.6)
    return by_folded[close[0]] if close else None


def parse_duration(value: str) -> float:
    """Turn `15s`, `200ms`, `2m`, `1h` or `0.5s` into seconds.

    Raises:
        Refused: it is none, is 0, or is longer than a year.
    """
    match = _DURATION.fullmatch(value)
    if match is None:
        hint = f" (did you mean {value}s?)" if len(value) <= 12 and _NUMBER.fullmatch(value) else ""
        raise Refused(f"allowed: a duration with its unit, such as 15s, 200ms, 2m or 1h{hint}")
    seconds = float(Decimal(match[1]) * _SECONDS[match[2]])
    if seconds > LONGEST_S:
        raise Refused("allowed: at most 8784h, a year")
    return seconds


def format_duration(seconds: float) -> str:
    """Write seconds so that `parse_duration` reads them back: 15.0 is `15s`, 0.2 is `200ms`."""
    exact = Decimal(repr(seconds))
    number, unit = (exact, "s") if exact >= 1 else (exact * 1000, "ms")
    digits = f"{number:.9f}".rstrip("0").rstrip(".")
    return digits + unit


def parse_size(value: str) -> int:
    """Turn `16MiB`, `64KiB`, `512B`, `1GiB` (or the decimal kB, MB, GB) into bytes.

    Raises:
        Refused: it is none, or larger than 1024GiB.
    """
    match = _SIZE.fullmatch(value)
    if match is None:
        hint = f" (did you mean {value}B?)" if len(value) <= 15 and value.isdecimal() and value.isascii() else ""
        raise Refused(f"allowed: a size with its unit, such as 512B, 64KiB, 16MiB or 1GiB{hint}")
    number = int(match[1]) * _BYTES[match[2]]
    if number > _LARGEST_BYTES:
        raise Refused("allowed: at most 1024GiB")
    return number


def format_size(number: int) -> str:
    """Write bytes so that `parse_size` reads them back: 65536 is `64KiB`."""
    for unit in ("GiB", "MiB", "KiB"):
        if number and number % _BYTES[unit] == 0:
            return f"{number // _BYTES[unit]}{unit}"
    return f"{number}B"
