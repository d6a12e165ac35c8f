"""Reading a response: what a head may say, where a body ends, and what a cut is called."""

from __future__ import annotations

import gc
import weakref

import pytest

from sse_proxy.errors import UpstreamBadResponse, UpstreamError, UpstreamTruncated
from sse_proxy.server.upstream.response import ResponseHead, ResponseReader, excerpt
from tests.fakes import chunk, head, last_chunk

RESET = ConnectionResetError(104, "Connection reset by peer")
BODY = bytes(range(256))


def reader(*, max_head: int = 65536, head_only: bool = False) -> ResponseReader:
    return ResponseReader("host:80", max_head=max_head, head_only=head_only)


def read(*pieces: bytes, max_head: int = 65536, head_only: bool = False) -> ResponseReader:
    result = reader(max_head=max_head, head_only=head_only)
    for piece in pieces:
        result.feed(piece)
    return result


def feed_all(result: ResponseReader, pieces: list[bytes]) -> None:
    for piece in pieces:
        result.feed(piece)


def body_of(result: ResponseReader) -> bytes:
    return b"".join(result.chunks)


def single(data: bytes) -> list[bytes]:
    return [bytes([byte]) for byte in data]


# --- heads -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [False, True], ids=["whole", "byte-by-byte"])
def test_a_head_keeps_order_case_duplicates_and_bytes(cut: bool) -> None:
    wire = b"HTTP/1.1 203 So So\r\nset-Cookie: a\r\nX-E:\r\nSet-Cookie: \xe9 \xc3\xa9 \t\r\nX-T: a\tb\r\n\r\n"
    result = read(*(single(wire) if cut else [wire]))
    assert result.head == ResponseHead(
        203, "So So", (("set-Cookie", "a"), ("X-E", ""), ("Set-Cookie", "é Ã©"), ("X-T", "a\tb")), "1.1"
    )
    assert result.head.get("SET-COOKIE") == "a"
    assert result.head.get_all("set-cookie") == ["a", "é Ã©"]
    assert (result.head.get("x-e"), result.head.get("missing"), result.head.get_all("missing")) == ("", None, [])
    assert result.head.raw_headers[2] == (b"Set-Cookie", b"\xe9 \xc3\xa9")
    assert not result.complete


@pytest.mark.parametrize("line", [b"HTTP/1.1 200\r\n", b"HTTP/1.1 200 \r\n", b"HTTP/1.0 200 \r\n"])
def test_a_reason_may_be_missing(line: bytes) -> None:
    result = read(line + b"\r\n")
    assert result.head is not None
    assert (result.head.status, result.head.reason, result.head.http_version) == (200, "", line[5:8].decode())


@pytest.mark.parametrize("cut", [False, True], ids=["whole", "byte-by-byte"])
def test_interim_heads_are_skipped(cut: bool) -> None:
    wire = head(100) + head(102) + head(103, [("Link", "x")]) + head(200, [("A", "b")], length=2) + b"ok"
    result = read(*(single(wire) if cut else [wire]))
    assert result.head is not None
    assert (result.head.status, result.head.headers) == (200, (("A", "b"), ("Content-Length", "2")))
    assert (body_of(result), result.complete) == (b"ok", True)


@pytest.mark.parametrize(
    ("wire", "says"),
    [
        (b"SSH-2.0-OpenSSH_9\r\n", "SSH-2.0-OpenSSH_9"),
        (b"<html>", "cannot be read"),
        (b"\x16\x03\x01\x02", "cannot be read"),
        (b"HTTP/1.1 2x0 OK\r\n\r\n", "cannot be read"),
        (b"HTTP/1.1 20 OK\r\n\r\n", "cannot be read"),
        (b"HTTP/1.1 099 OK\r\n\r\n", "status line"),
        (b"HTTP/1.1 200 O\x01K\r\n\r\n", "status line"),
        (b"HTTP/0.9 200 OK\r\n\r\n", "HTTP/0.9"),
        (b"HTTP/2.0 200 OK\r\n\r\n", "HTTP/2.0"),
        (b"HTTP/1.1 200 OK\r\nX: a\x01b\r\n\r\n", "cannot be read"),
        (b"HTTP/1.1 200 OK\r\nX: a\x00b\r\n\r\n", "cannot be read"),
        (b"HTTP/1.1 200 OK\r\nX: a\x7fb\r\n\r\n", "cannot be read"),
        (b"HTTP/1.1 200 OK\r\nX: a\rb\r\n\r\n", "cannot be read"),
        (b"HTTP/1.1 200 OK\r\nX: a\r\n folded\r\n\r\n", "cannot be read"),
        (b"HTTP/1.1 200 OK\r\nX : y\r\n\r\n", "cannot be read"),
        (b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", "cannot be read"),
        (head(200, [("Content-Length", "3"), ("Transfer-Encoding", "chunked")]), "Content-Length"),
        (head(200, [("Transfer-Encoding", "chunked"), ("Content-Length", "3")]), "Content-Length"),
        (head(200, [("Content-Length", "3"), ("Content-Length", "4")]), "Content-Length"),
        (head(200, [("Content-Length", "3, 4")]), "Content-Length"),
        (head(200, [("Content-Length", "-3")]), "Content-Length"),
        (head(200, [("Content-Length", "+3")]), "Content-Length"),
        (head(200, [("Content-Length", "")]), "Content-Length"),
        (head(200, [("Content-Length", "9" * 30)]), "Content-Length"),
        (head(200, [("Transfer-Encoding", "gzip, chunked")]), "transfer coding"),
        (head(200, [("Transfer-Encoding", "identity")]), "transfer coding"),
        (head(200, [("Transfer-Encoding", "chunked"), ("Transfer-Encoding", "chunked")]), "transfer coding"),
        (head(101, [("Upgrade", "websocket"), ("Connection", "upgrade")]), "101"),
        (head(101), "101"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("cut", [False, True], ids=["whole", "byte-by-byte"])
def test_a_bad_head(wire: bytes, says: str, cut: bool) -> None:
    result = reader()
    if cut:
        says = ""  # the excerpt is shorter then
    with pytest.raises(UpstreamBadResponse, match=f"host:80 .*{says}") as caught:
        feed_all(result, single(wire + b"body") if cut else [wire + b"body"])
    assert (result.head, result.chunks, result.complete) == (None, [], False)
    assert caught.value.__context__ is None


def test_two_equal_lengths_are_refused_too() -> None:
    """RFC 9110 8.6 leaves the choice; refused as on the plain routes."""
    with pytest.raises(UpstreamBadResponse, match="Content-Length"):
        read(head(200, [("Content-Length", "3"), ("Content-Length", "3")]))


@pytest.mark.parametrize("status", [200, 404, 500, 599, 999])
def test_any_final_status_is_passed_on(status: int) -> None:
    result = read(head(status))
    assert result.head is not None
    assert result.head.status == status


def test_an_upgrade_that_was_only_offered_is_a_response_like_any_other() -> None:
    result = read(head(200, [("Upgrade", "h2c"), ("Connection", "upgrade")], length=2) + b"ok")
    assert (body_of(result), result.complete) == (b"ok", True)


@pytest.mark.parametrize("size", [900, 1100])
@pytest.mark.parametrize("step", [1, 7, 5000])
@pytest.mark.parametrize("where", ["one header", "many headers", "reason", "interim heads"])
def test_a_head_over_the_limit(where: str, step: int, size: int) -> None:
    wire = {
        "one header": head(200, [("X", "a" * size)]),
        "many headers": head(200, [("Xyz", "abc")] * (size // 10)),
        "reason": head(200, reason="a" * size),
        "interim heads": head(103, [("A", "b" * 90)]) * (size // 113) + head(200),
    }[where] + bytes(2000)  # body that came with it does not count
    result = reader(max_head=1000)
    pieces = [wire[at : at + step] for at in range(0, len(wire), step)]
    if size < 1000:
        feed_all(result, pieces)
        assert result.head is not None
        return
    with pytest.raises(UpstreamBadResponse, match="head of more than 1000 bytes"):
        feed_all(result, pieces)
    assert result.head is None


def test_legacy_line_ends_in_a_head() -> None:
    result = read(b"HTTP/1.0 200 OK\nContent-Type: text/event-stream\n\ndata: a\n\n")
    assert result.head is not None
    assert result.head.headers == (("Content-Type", "text/event-stream"),)
    assert body_of(result) == b"data: a\n\n"


def test_messages_stay_short_and_show_no_header() -> None:
    with pytest.raises(UpstreamBadResponse) as caught:
        read(b"\xff\x00secret" * 1000)
    assert len(str(caught.value)) < 200
    with pytest.raises(UpstreamBadResponse) as caught:
        read(b"HTTP/1.1 200 OK\r\nSet-Cookie: secret", b"secret\x00secret")
    assert "secret" not in str(caught.value)
    assert len(excerpt(bytes(1000))) == 80
    assert excerpt(b"ab\n") == r"'ab\n'"


# --- bodies ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4096])
@pytest.mark.parametrize("step", [1, 3, 10_000])
def test_a_chunked_body(size: int, step: int) -> None:
    body = (BODY * 16)[:size]
    wire = head(chunked=True) + b"".join(chunk(body[at : at + 5]) for at in range(0, size, 5)) + last_chunk
    result = read(*(wire[at : at + step] for at in range(0, len(wire), step)))
    assert (body_of(result), result.complete) == (body, True)


@pytest.mark.parametrize(
    "wire",
    [
        b"3  \r\nabc\r\n0\r\n\r\n",  # sizes with blanks behind
        b"3;a=b;c=\"d\"\r\nabc\r\n0\r\n\r\n",
        b"03\r\nabc\r\n000\r\n\r\n",
        b"3\r\nabc\r\n0\r\nTrailer: x\r\nSet-Cookie: y\r\n\r\n",
        b"3\r\nabc\r\n0\r\n\r\nmore",
    ],
)  # fmt: skip
def test_chunked_framing_that_is_right(wire: bytes) -> None:
    for pieces in ([wire], single(wire)):
        result = read(head(200, [("A", "b")], chunked=True), *pieces)
        assert (body_of(result), result.complete) == (b"abc", True)
        assert result.head is not None
        assert len(result.head.headers) == 2  # trailers do not join them


@pytest.mark.parametrize(
    "wire",
    [
        b"3\r\nabc\r\nzz\r\n",
        b"3\r\nabcd\r\n",
        b"3\r\nabc\r\n-1\r\n",
        b"3\r\nabc\r\n0x1\r\n",
        b"3\r\nabc\r\n\r\n",
        b"3\r\nabc\r\nfffffffffffffffff\r\n",
        b"3\r\nabc\r\n1\nx",
        b"3\r\nabc\r\n0\r\nbad trailer\r\n\r\n",
    ],
)
def test_broken_chunked_framing_is_a_cut_and_keeps_what_came(wire: bytes) -> None:
    for pieces in ([wire], single(wire)):
        result = reader()
        with pytest.raises(UpstreamTruncated, match="host:80 breaks the chunked framing"):
            feed_all(result, [head(chunked=True), *pieces])
        assert (body_of(result), result.complete) == (b"abc", False)


@pytest.mark.parametrize("flood", [b"3;" + b"x" * 2000, b"0\r\n" + b"A: b\r\n" * 400, b"0\r\nA: " + b"b" * 2000])
def test_endless_framing_is_cut_off(flood: bytes) -> None:
    result = read(head(chunked=True), max_head=1000)
    with pytest.raises(UpstreamTruncated, match="1000 bytes of chunk framing"):
        feed_all(result, [flood[at : at + 100] for at in range(0, len(flood), 100)])


def test_a_slow_stream_of_tiny_chunks_is_no_flood() -> None:
    """Nor do a head of just the size allowed, the framing of the first chunk, and trailers add up to one."""
    bare = len(head(200, [("A", "")], chunked=True))
    result = read(head(200, [("A", "b" * (1000 - bare))], chunked=True), max_head=1000)
    for piece in single(chunk(b"x") * 1000 + b"0\r\n" + b"T: t\r\n" * 100 + b"\r\n"):
        result.feed(piece)
        result.chunks.clear()
    assert result.complete


def test_a_body_of_known_length_ends_there() -> None:
    for pieces in ([b"abcmore"], single(b"abcmore")):
        result = read(head(length=3), *pieces)
        assert (body_of(result), result.complete) == (b"abc", True)
    assert read(head(length=0)).complete


def test_a_second_response_is_not_read() -> None:
    result = read(head(200, length=1) + b"a" + head(201, length=1) + b"b")
    result.feed(head(202, length=1) + b"c")
    assert result.head is not None
    assert (result.head.status, body_of(result)) == (200, b"a")


@pytest.mark.parametrize("framing", [{}, {"length": 7}, {"chunked": True}])
@pytest.mark.parametrize(("status", "head_only"), [(204, False), (304, False), (200, True), (404, True)])
def test_responses_without_a_body_whatever_their_headers_say(
    status: int, head_only: bool, framing: dict[str, int]
) -> None:
    result = read(head(status, **framing) + b"garbage", head_only=head_only)  # type: ignore[arg-type]
    assert result.head is not None
    assert (result.head.status, result.chunks, result.complete) == (status, [], True)
    assert result.eof(None) is result.eof(RESET) is None


def test_a_205_is_framed_like_any_other() -> None:
    assert body_of(read(head(205, length=1) + b"x")) == b"x"


def test_http_1_0_with_chunks_is_read() -> None:
    """RFC 9112 6.1 calls it faulty and lets the message be processed; the connection is closed after it anyway."""
    assert read(head(chunked=True, version="1.0") + chunk(b"a") + last_chunk).complete


# --- ends --------------------------------------------------------------------------------------------------------

CHUNKED = head(200, [("A", "b")], chunked=True) + chunk(b"hello") + chunk(b"\r\n0\r\n\r\n") + last_chunk
LENGTH = head(200, [("A", "b")], length=12) + b"hello\r\n0\r\n\r\n"
CLOSE = head(200, [("A", "b")]) + b"hello\r\n0\r\n\r\n"


@pytest.mark.parametrize(
    "wire", [CHUNKED, LENGTH, CLOSE, head(100) + CHUNKED], ids=["chunked", "length", "close", "100"]
)
@pytest.mark.parametrize("cause", [None, RESET], ids=["fin", "rst"])
def test_a_cut_at_any_byte_gets_the_right_name(wire: bytes, cause: Exception | None) -> None:
    head_ends = wire.index(b"A: b")
    head_ends = wire.index(b"\r\n\r\n", head_ends) + 4
    for cut in range(len(wire) + 1):
        result = read(wire[:cut])
        error = result.eof(cause)
        expected: type[UpstreamError] | None
        if cut < head_ends:
            expected = UpstreamBadResponse
        elif wire is CLOSE:
            expected = UpstreamTruncated if cause else None
        else:
            expected = UpstreamTruncated if cut < len(wire) else None
        assert (None if error is None else type(error)) is expected, (cut, wire[:cut])
        assert error is None or str(error).startswith("host:80 ")
        assert cause is None or error is None or "Connection reset by peer" in str(error)
        assert result.complete is (expected is None)
        assert b"hello\r\n0\r\n\r\n".startswith(body_of(result))


# --- house-keeping -----------------------------------------------------------------------------------------------


def test_closed_it_reads_nothing_and_is_freed_at_once() -> None:
    result = read(head(chunked=True) + chunk(b"abc"))
    gone = weakref.ref(result)
    result.close()
    result.close()
    result.feed(b"whatever")
    assert result.chunks == []
    gc.disable()
    try:
        del result
        assert gone() is None
    finally:
        gc.enable()
