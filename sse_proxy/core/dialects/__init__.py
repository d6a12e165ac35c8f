"""The wire dialects: how an upstream's text is read (design section 3). One module a dialect, all feed()/close()."""

from __future__ import annotations

from sse_proxy.core.dialects.auto import AutoParser
from sse_proxy.core.dialects.base import DialectParser, FrameRules
from sse_proxy.core.dialects.plain import LinesParser, RawParser
from sse_proxy.core.dialects.single_prefix import SinglePrefixParser
from sse_proxy.core.dialects.standard import StandardParser
from sse_proxy.core.options import Dialect

__all__ = ["DialectParser", "FrameRules", "make_parser"]


def make_parser(dialect: Dialect, rules: FrameRules, *, first_line_ended_in_cr: bool | None = None) -> DialectParser:
    """Return the parser of one dialect.

    Args:
        first_line_ended_in_cr: what a comment before the first frame told (`auto` alone asks); None where none came.
    """
    match dialect:
        case Dialect.STANDARD:
            return StandardParser(rules)
        case Dialect.SINGLE_PREFIX:
            return SinglePrefixParser(rules)
        case Dialect.LINES:
            return LinesParser(rules)
        case Dialect.RAW:
            return RawParser(rules)
        case Dialect.AUTO:
            return AutoParser(rules, first_line_ended_in_cr=first_line_ended_in_cr)
