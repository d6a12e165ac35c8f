"""Every failure on request, seen by a raw client."""

import asyncio
import gzip
import json
from pathlib import Path

import pytest

from sse_proxy.demo import body as body_module
from sse_proxy.demo.host import LegacyHost
from sse_proxy.demo.knobs import Fail
from tests.fakes import eventually, parse_response, raw_request

WIRE = (Path(__file__).parents[1] / "vectors" / "wire" / "improvisation.743.gaapi.sse").read_bytes()
MARKER = b"data: [DONE]\n\n"
ERROR = b'data: {"error":"Failed to process message. Please try again."}\n\n'


def request(query: str = "", version: str = "1.1", close: bool = True) -> bytes:
    body = json.dumps({"message": "which arpeggio fits Am F C G"}).encode()
    fields = f"Host: h\r\nContent-Length: {len(body)}\r\n" + ("Connection: close\r\n" if close else "")
    return f"POST /api/chatbot/chat/stream?{query} HTTP/{version}\r\n{fields}\r\n".encode() + body


class Reply:
    """A response as it came, and how its connection ended."""

    def __init__(self, raw: bytes, ended: str) -> None:
        self.ended = ended
        self.raw = raw
        self.status, headers, self.body, self.complete = parse_response(raw)
        self.headers = {name.lower(): value for name, value in headers}


def holds(raw: bytes, size: int) -> bool:
    return b"\r\n\r\n" in raw and len(parse_response(raw)[2]) >= size


async def ask(port: int, query: str = "", open_after: int | None = None) -> Reply:
    """Ask, and read to the connection's end, which is `fin` or `reset`.

    Args:
        open_after: so many bytes of the body, then the connection is expected to stay `open` without another one.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    raw, ended = b"", "fin"
    try:
        writer.write(request(query))
        while True:
            expected = open_after is not None and holds(raw, open_after)
            async with asyncio.timeout(0.1 if expected else 5):
                piece = await reader.read(65536)
            if not piece:
                break
            raw += piece
    except TimeoutError:
        ended = "open" if expected else "too slow"
    except ConnectionResetError:
        ended = "reset"
    finally:
        writer.transport.abort()
    return Reply(raw, ended)


async def test_nothing_goes_wrong(port: int) -> None:
    reply = await ask(port)
    assert (reply.status, reply.body, reply.complete, reply.ended) == (200, WIRE, True, "fin")
    assert reply.headers["content-type"] == "text/event-stream"
    assert reply.headers["cache-control"] == "no-cache"
    # Each frame is one HTTP chunk; the first one is the routing object's.
    first = WIRE.index(b"\n\n") + 2
    assert b"\r\n\r\n%x\r\ndata: {" % first in reply.raw


@pytest.mark.parametrize(
    ("fail", "status", "content_type"),
    [
        ("500", 500, "application/problem+json"),
        ("503", 503, "application/json; charset=utf-8"),
        ("404", 404, None),
        ("html", 200, "text/html; charset=utf-8"),
        ("json-error", 200, "application/json; charset=utf-8"),
    ],
)
async def test_no_stream_at_all(port: int, fail: str, status: int, content_type: str | None) -> None:
    reply = await ask(port, f"fail={fail}")
    assert (reply.status, reply.headers.get("content-type"), reply.complete) == (status, content_type, True)
    if fail in {"503", "json-error"}:
        assert list(json.loads(reply.body)) == ["error"]


@pytest.mark.parametrize(
    ("query", "body", "complete", "ended"),
    [
        ("fail=error-first", ERROR, True, "fin"),
        ("fail=eof", WIRE.removesuffix(MARKER), True, "fin"),
        ("fail=empty", b"", True, "fin"),
        ("fail=after-marker", WIRE + b"data: And another thing. \n\ndata: Goodbye.\n\n", True, "fin"),
        ("fail=comment-only", b": waiting for the model\n\n" * 3, True, "fin"),
        ("fail=cut", WIRE[: len(WIRE) // 2], False, "fin"),
        ("fail=rst", WIRE[: len(WIRE) // 2], False, "reset"),
        ("fail=stall", WIRE[: len(WIRE) // 2], False, "open"),
        ("fail=no-hangup", WIRE, False, "open"),
        ("cut=200", WIRE[:200], False, "fin"),
        ("cut=0", b"", False, "fin"),
        ("cut=200&fail=rst", WIRE[:200], False, "reset"),
        ("cut=0&fail=stall", b"", False, "open"),
        ("cut=99999&fail=rst", WIRE, False, "reset"),
    ],
)
async def test_broken_streams(port: int, query: str, body: bytes, complete: bool, ended: str) -> None:
    reply = await ask(port, query, len(body) if ended == "open" else None)
    assert (reply.status, reply.body, reply.complete, reply.ended) == (200, body, complete, ended)
    assert reply.headers["content-type"] == "text/event-stream"


async def test_the_hosts_own_error_comes_after_some_text(port: int) -> None:
    reply = await ask(port, "fail=error")
    text = reply.body.removesuffix(ERROR)
    assert reply.complete
    assert text != reply.body
    assert WIRE.startswith(text)
    assert b"Over **Am" in text
    assert MARKER not in text
    assert (await ask(port, "fail=error&cut=165")).body == WIRE[: WIRE.index(b"\n\n") + 2] + ERROR


async def test_a_lying_length(port: int) -> None:
    reply = await ask(port, "fail=length")
    assert int(reply.headers["content-length"]) == len(WIRE) + 1000
    assert (reply.body, reply.complete, reply.ended) == (WIRE, False, "fin")


async def test_an_unasked_gzip(port: int) -> None:
    reply = await ask(port, "fail=gzip")
    assert reply.headers["content-encoding"] == "gzip"
    assert gzip.decompress(reply.body) == WIRE


@pytest.mark.parametrize("fail", ["close", "garbage", "head-stall"])
async def test_no_head_at_all(legacy_host: LegacyHost, port: int, fail: str) -> None:
    if fail == "head-stall":
        with pytest.raises(TimeoutError):
            await raw_request(port, request(f"fail={fail}"), timeout=0.2)
        await eventually(lambda: legacy_host.exchanges[-1].outcome == "client gone")
    else:
        assert await raw_request(port, request(f"fail={fail}")) == (b"" if fail == "close" else body_module.GARBAGE)


@pytest.mark.parametrize("query", ["fail=stall", "fail=no-hangup", "delay=60000", "pace=60000", "fail=500&delay=60000"])
async def test_a_client_that_leaves_is_noticed(legacy_host: LegacyHost, port: int, query: str) -> None:
    with pytest.raises(TimeoutError):
        await raw_request(port, request(query), timeout=0.1)
    await eventually(lambda: legacy_host.open_connections == 0)
    assert legacy_host.exchanges[-1].outcome == "client gone"


async def test_a_stall_ends_by_itself(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_module, "MAX_STALL_S", 0.05)
    assert (await ask(port, "fail=stall")).ended == "fin"


async def test_the_head_comes_before_the_silence(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request("delay=60000"))
        async with asyncio.timeout(5):
            head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await reader.read(1)
    finally:
        writer.transport.abort()


async def test_packets_and_pace_change_the_cuts_alone(port: int) -> None:
    reply = await ask(port, "packet=7")
    assert reply.body == WIRE
    assert reply.raw.count(b"\r\n7\r\n") == len(WIRE) // 7
    assert (await ask(port, "pace=1")).body == WIRE
    assert (await ask(port, "pace=1&packet=50&host=gaapi")).body == WIRE


async def test_paced_frames_come_one_by_one(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request("pace=60000"))
        async with asyncio.timeout(5):
            await reader.readuntil(b"\r\n\r\n")
            assert (await reader.readuntil(b"\n\n\r\n")).endswith(WIRE[: WIRE.index(b"\n\n") + 2] + b"\r\n")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await reader.read(1)
    finally:
        writer.transport.abort()


async def test_http_1_0_ends_with_the_connection(port: int) -> None:
    received = await raw_request(port, request(version="1.0", close=False))
    status, headers, body, _ = parse_response(received)
    assert (status, body) == (200, WIRE)
    assert ("Connection", "close") in headers
    assert "transfer-encoding" not in {name.lower() for name, _ in headers}


ENDS = {Fail.RST, Fail.CUT, Fail.STALL, Fail.HEAD_STALL, Fail.CLOSE, Fail.GARBAGE, Fail.LENGTH, Fail.NO_HANGUP}


@pytest.mark.parametrize("fail", [None, *(fail for fail in Fail if fail not in ENDS)])
async def test_what_leaves_the_framing_whole_keeps_the_connection(port: int, fail: Fail | None) -> None:
    again = request(close=True)
    received = await raw_request(port, request(f"fail={fail or 'none'}", close=False) + again)
    at = received.rindex(b"HTTP/1.1 ")
    assert parse_response(received[:at])[3]
    assert parse_response(received[at:])[2] == WIRE
