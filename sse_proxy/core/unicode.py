"""Characters: the white space sets of the peers, and UTF-8 as the Encoding Standard decodes it."""

from __future__ import annotations

import codecs

from sse_proxy.core.ledger import Ledger, RepairKind

__all__ = ["DOTNET_SPACE", "JS_TRIMMED", "Utf8Decoder", "utf8_length"]

_SEPARATORS = "\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"

# What .NET's \s matches: the hosts' splitter is a .NET expression. Not U+001C to U+001F, U+200B or U+FEFF,
# so neither str.isspace() nor Python's \s will do.
DOTNET_SPACE = "\t\n\x0b\x0c\r \x85\xa0" + _SEPARATORS

# What JavaScript's trim() removes (ECMAScript WhiteSpace and LineTerminator): U+FEFF is in it, U+0085 is not.
JS_TRIMMED = "\t\n\x0b\x0c\r \xa0\ufeff" + _SEPARATORS

_BOM = "\ufeff"
_REPLACEMENT = "\ufffd"


def utf8_length(text: str) -> int:
    """Return how many bytes `text` has in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


class Utf8Decoder:
    """Turn bytes into text wherever they are cut: one BOM removed, invalid sequences replaced.

    The Encoding Standard's "UTF-8 decode" (#utf-8-decode), which HTML 9.2.6 asks for. CPython's decoder replaces
    the same maximal subparts. No invalid sequence can swallow an ASCII byte, so lines may be cut after decoding.
    """

    def __init__(self, ledger: Ledger, *, skip_bom: bool = True) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._ledger = ledger
        self._at_start = skip_bom

    def feed(self, chunk: bytes) -> str:
        """Return the text that `chunk` completes, often all of it."""
        held = self._decoder.getstate()[0] if not chunk.isascii() else b""
        text = self._decoder.decode(chunk)
        if _REPLACEMENT in text:
            self._count(text, held + chunk)
        if self._at_start and text:
            self._at_start = False
            if text[0] == _BOM:
                self._ledger.repair(RepairKind.BOM)
                text = text[1:]
        return text

    @property
    def unfinished(self) -> bool:
        """Whether the bytes so far end inside a character."""
        return bool(self._decoder.getstate()[0])

    def close(self, *, drop: bool) -> str:
        """End the text. What an unfinished sequence leaves is U+FFFD, or nothing with `drop` (counted)."""
        held = self._decoder.getstate()[0]
        if not held:
            return ""
        if drop:
            self._ledger.dropped_bytes += len(held)
            self._ledger.repair(RepairKind.UNDECIDED_DROPPED)
            return ""
        text = self._decoder.decode(b"", True)
        self._count(text, held)
        return text

    def discard(self) -> int:
        """Forget an unfinished sequence; return how many bytes it had."""
        held = self._decoder.getstate()[0]
        self._decoder.reset()
        return len(held)

    def _count(self, text: str, raw: bytes) -> None:
        # A U+FFFD that the host wrote itself is text, not an invalid sequence.
        self._ledger.repair(RepairKind.INVALID_UTF8, text.count(_REPLACEMENT) - raw.count(b"\xef\xbf\xbd"))
