"""What the shipped readers lean on: the few functions of JavaScript that Python's own only resemble.

Each differs from its Python neighbour where a chat answer can show it: `str.strip()` also removes U+001C to U+001F and
U+0085 but not U+FEFF; `json.loads` takes NaN and raises on deep nesting; a JavaScript string may be put together from
two halves of a surrogate pair.
"""

from __future__ import annotations

import codecs
import json
import math
from typing import Any, NoReturn

from sse_proxy.core.unicode import JS_TRIMMED

__all__ = ["TextDecoder", "json_parse", "to_string", "trim", "truthy", "well_formed"]


def trim(text: str) -> str:
    """Remove white space at both ends, as `String.prototype.trim` does (ECMA-262 22.1.3.32)."""
    return text.strip(JS_TRIMMED)


class TextDecoder:
    """Decode UTF-8 packet by packet, as `new TextDecoder()` with `{stream: true}` does (Encoding Standard, 7.2).

    One BOM at the head is dropped; what is not UTF-8 becomes U+FFFD; a sequence cut in two waits for its other half.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._at_head = True

    def decode(self, packet: bytes, *, stream: bool = True) -> str:
        """Return the text that `packet` completes; with `stream=False` also what still waits, as U+FFFD."""
        text = self._decoder.decode(packet, not stream)
        held = self._decoder.getstate()[0]
        if held[:1] == b"\xed" and held[1:] >= b"\xa0":
            # The first two bytes of a surrogate: CPython waits for the third, a browser knows that none can mend it.
            self._decoder.reset()
            text += "\ufffd\ufffd"
        if self._at_head and text:
            self._at_head = False
            text = text.removeprefix("\ufeff")
        return text


def json_parse(text: str) -> Any:
    """Parse JSON as `JSON.parse` does: no NaN, no Infinity, numbers beyond 15 digits as doubles.

    One limit of ours: JavaScript parses any depth of nesting, this raises at about a thousand levels.

    Raises:
        ValueError: it is not JSON (JavaScript throws a SyntaxError).
    """
    try:
        return json.loads(text, parse_constant=_refuse, parse_int=_number)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _number(digits: str) -> int | float:
    # int() itself raises past 4,300 digits, where a double is merely Infinity.
    return int(digits) if len(digits) <= 15 else float(digits)


def truthy(value: Any) -> bool:
    """Tell whether a parsed JSON value counts as true in JavaScript: empty arrays and objects do."""
    return isinstance(value, (list, dict)) or bool(value)


def to_string(value: Any) -> str:
    """Turn a parsed JSON value into text, as `String(value)` does; what `new Error(value)` shows.

    Numbers are written exactly up to 1e21, where JavaScript changes to exponents.
    """
    if not isinstance(value, list):
        return _scalar(value)
    # Array.prototype.join by hand: nested arrays run into each other, null is nothing. A stack, as depth is a peer's.
    out: list[str] = []
    stack: list[Any] = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, list):
            for index in range(len(item) - 1, -1, -1):
                stack.append("" if item[index] is None else item[index])
                if index:
                    stack.append(",")
        else:
            out.append(_scalar(item))
    return "".join(out)


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "[object Object]"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return str(int(value)) if value == int(value) and abs(value) < 1e21 else repr(value)


def well_formed(text: str) -> str:
    """Join the halves of surrogate pairs, and replace a lone half by U+FFFD, as a page shows it.

    `JSON.parse` may give half a pair (an emoji cut in two deltas); in JavaScript the halves join by themselves.
    """
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
