"""The host's connections: what clients may send, in whatever pieces, and what they get when they may not."""

import asyncio
import json

import pytest

from sse_proxy.demo import connection
from sse_proxy.demo.host import LegacyHost
from tests.fakes import eventually, parse_response, raw_request

CHAT = b'{"message":"Show me Cmaj7 voicings"}'
GET = b"GET /api/chatbot/status HTTP/1.1\r\nHost: h\r\n"
POST = b"POST /api/chatbot/chat HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n"


async def status_of(port: int, data: bytes) -> int:
    status, _, _, complete = parse_response(await raw_request(port, data), head_only=data.startswith(b"HEAD"))
    assert complete
    return status


async def test_keep_alive_and_a_pipelined_request(port: int) -> None:
    body = b"Content-Length: %d\r\n\r\n" % len(CHAT)
    received = await raw_request(port, POST + body + CHAT + b"\r\n" + GET + b"Connection: close\r\n\r\n")
    at = received.index(b"HTTP/1.1 200 OK", 1)
    first, second = parse_response(received[:at]), parse_response(received[at:])
    assert first[0] == second[0] == 200
    assert first[3]
    assert second[3]
    assert json.loads(first[2])["agentId"] == "voicing"
    assert json.loads(second[2])["isAvailable"]


async def test_a_request_in_single_bytes(port: int) -> None:
    chunked = b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n%x;ext=1\r\n%b\r\n0\r\nTrailer: x\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for byte in POST + chunked % (len(CHAT), CHAT):
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)  # one turn of the loop, in which the host reads this byte alone
        async with asyncio.timeout(5):
            status, _, body, complete = parse_response(await reader.read())
    finally:
        writer.transport.abort()
    assert (status, complete) == (200, True)
    assert json.loads(body)["agentId"] == "voicing"


async def test_expect_100_continue(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(5):
            fields = b"Expect: 100-continue\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(CHAT)
            writer.write(POST + fields)
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            writer.write(CHAT)
            assert parse_response(await reader.read())[0] == 200
    finally:
        writer.transport.abort()


async def test_no_100_for_a_body_that_is_too_long(port: int) -> None:
    received = await raw_request(port, POST + b"Expect: 100-continue\r\nContent-Length: 99999999\r\n\r\n")
    assert received.startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/3.0\r\nHost: h\r\n\r\n", 505),
        (b"GET /" + b"a" * connection.MAX_HEAD_BYTES, 431),
        (GET + b"X: " + b"a" * connection.MAX_HEAD_BYTES + b"\r\n\r\n", 431),
        (POST + b"Content-Length: +5\r\n\r\n", 400),
        (POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n", 400),
        (POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n", 501),
        (POST + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n", 400),
        (POST + b"Content-Length: 1048577\r\n\r\n", 413),
        (POST + b"Transfer-Encoding: chunked\r\n\r\nx\r\n", 400),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\nabcdefgh", 400),
        (POST + b"Transfer-Encoding: chunked\r\n\r\nfffffff\r\n", 413),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"0" * 300, 400),
    ],
)
async def test_bad_requests_are_answered(port: int, data: bytes, status: int) -> None:
    assert await status_of(port, data) == status


async def test_an_error_reaches_a_client_that_is_still_sending(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(POST + b"Content-Length: 9999999\r\n\r\n" + b"x" * 3_000_000)
        async with asyncio.timeout(5):
            assert parse_response(await reader.read())[0] == 413  # a reset would raise here
    finally:
        writer.transport.abort()


async def test_a_slow_head_is_answered_with_408(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HEAD_S", 0.05)
    assert await status_of(port, b"GET / HT") == 408


async def test_a_slow_body_is_answered_with_408(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "BODY_S", 0.05)
    assert await status_of(port, POST + b"Content-Length: 5\r\n\r\nab") == 408


async def test_an_idle_connection_is_closed(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "IDLE_S", 0.05)
    assert await raw_request(port, b"") == b""


async def test_a_client_that_leaves_in_the_middle_of_a_request(legacy_host: LegacyHost, port: int) -> None:
    for data in (b"", b"POST /", POST, POST + b"Content-Length: 9\r\n\r\nabc"):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        await eventually(lambda: legacy_host.open_connections == 1)
        writer.write(data)
        writer.close()
        await eventually(lambda: legacy_host.open_connections == 0)
    assert not legacy_host.exchanges


async def test_a_flood_behind_a_stalled_answer_is_not_all_taken(legacy_host: LegacyHost, port: int) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        stalled = b"POST /api/chatbot/chat/stream?fail=head-stall HTTP/1.1\r\nHost: h\r\n"
        writer.write(stalled + b"Content-Length: %d\r\n\r\n" % len(CHAT) + CHAT + b"x" * 20_000_000)
        await eventually(lambda: len(legacy_host.exchanges) == 1)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await writer.drain()
    finally:
        writer.transport.abort()
