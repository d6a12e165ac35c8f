"""Characters: UTF-8 as browsers decode it, and whose white space is whose."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sse_proxy.core import Ledger, RepairKind
from sse_proxy.core.unicode import DOTNET_SPACE, JS_TRIMMED, Utf8Decoder, utf8_length
from sse_proxy.demo.wire import WHITE_SPACE

INVALID = [
    b"\xff",
    b"\xc0\x80",
    b"\xe4\xb8",
    b"\xf0\x9f\x8e",
    b"\xed\xa0\x80",
    b"\xf5\x80",
    b"\xf4\x90\x80\x80",
    b"\x80",
]
PIECES = st.one_of(
    st.binary(max_size=3), st.sampled_from([*INVALID, b"a", "\ufeff".encode(), "\ufffd".encode(), "é🎸".encode()])
)


@given(st.lists(PIECES).map(b"".join), st.integers(1, 5))
@example(b"\xef\xbb\xbf\xef\xbb\xbfa", 1)
@example(b"\xed\xa0\x80\xf0\x9f", 1)
def test_decoding_is_pythons_own_at_any_cut(raw: bytes, step: int) -> None:
    ledger = Ledger()
    decoder = Utf8Decoder(ledger)
    parts = [decoder.feed(raw[at : at + step]) for at in range(0, len(raw), step)]
    text = "".join(parts) + decoder.close(drop=False)
    want = raw.decode("utf-8", "replace")
    assert text == want.removeprefix("\ufeff")
    assert ledger.repairs.get(RepairKind.BOM, 0) == want.startswith("\ufeff")
    written = raw.count(b"\xef\xbf\xbd")  # U+FFFD that the host wrote itself
    assert ledger.repairs.get(RepairKind.INVALID_UTF8, 0) == want.count("\ufffd") - written


def test_every_pair_of_bytes_decodes_as_pythons_own() -> None:
    for pair in itertools.product(range(256), repeat=2):
        raw = b"a" + bytes(pair) + b"b"
        decoder = Utf8Decoder(Ledger())
        assert "".join(decoder.feed(bytes([byte])) for byte in raw) == raw.decode("utf-8", "replace")


def test_an_unfinished_sequence_is_dropped_at_a_failure() -> None:
    ledger = Ledger()
    decoder = Utf8Decoder(ledger)
    assert decoder.feed(b"a\xf0\x9f") == "a"
    assert decoder.close(drop=True) == ""
    assert ledger.dropped_bytes == 2
    assert ledger.repairs == {RepairKind.UNDECIDED_DROPPED: 1}


def test_a_byte_order_mark_is_kept_where_it_is_text() -> None:
    assert Utf8Decoder(Ledger(), skip_bom=False).feed(b"\xef\xbb\xbfa") == "\ufeffa"


@given(st.text())
def test_the_length_in_utf_8(text: str) -> None:
    assert utf8_length(text) == len(text.encode("utf-8", "surrogatepass"))


def test_dotnet_and_javascript_differ_where_they_do() -> None:
    assert set(DOTNET_SPACE) == set(WHITE_SPACE)
    assert set(DOTNET_SPACE) - set(JS_TRIMMED) == {"\x85"}
    assert set(JS_TRIMMED) - set(DOTNET_SPACE) == {"\ufeff"}


@pytest.mark.parametrize("char", "\x1c\x1f\u200b")
def test_no_white_space_to_either(char: str) -> None:
    assert char not in DOTNET_SPACE
    assert char not in JS_TRIMMED
