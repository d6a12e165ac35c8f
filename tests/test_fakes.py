"""The fakes do what they say; a fake that lies makes every other test worthless."""

from __future__ import annotations

import asyncio
import gc
import socket

import pytest

from tests.fakes import (
    Early,
    End,
    HalfClose,
    Request,
    Reset,
    Script,
    ScriptedUpstream,
    Send,
    Stall,
    Trickle,
    Wait,
    WaitForBody,
    chunk,
    eventually,
    free_port,
    head,
    last_chunk,
    parse_response,
    raw_request,
    stream_head,
)

GET = b"GET /a?b=%2F HTTP/1.1\r\nHost: x\r\nX-Dup: 1\r\nx-dup: 2\r\n\r\n"
POST = b"POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = b"POST /c HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nTrailer: 1\r\n\r\n"
OK = [head(200, length=2), b"ok"]


async def test_requests_are_recorded_as_they_came() -> None:
    async with ScriptedUpstream(OK) as upstream:
        await raw_request(upstream.port, GET, until_close=False)
        await raw_request(upstream.port, POST, until_close=False)
        await raw_request(upstream.port, CHUNKED, until_close=False)
    first, second, third = upstream.requests
    assert (first.method, first.target, first.version) == ("GET", "/a?b=%2F", "HTTP/1.1")
    assert first.headers == [("Host", "x"), ("X-Dup", "1"), ("x-dup", "2")]
    assert first.get("X-DUP") == "1"
    assert first.get("missing") is None
    assert (second.body, second.complete, second.connection) == (b"hello", True, 1)
    assert (third.body, third.complete, third.received) == (b"abcde", True, 5)


async def test_keep_alive_and_pipelining_play_one_script_a_request() -> None:
    scripts: list[Script] = [
        [head(200, length=1), b"1"],
        [head(201, length=1), b"2"],
        [head(202, length=1), b"3", End()],
    ]
    async with ScriptedUpstream(*scripts) as upstream:
        raw = await raw_request(upstream.port, POST + CHUNKED + GET)
    assert raw == head(200, length=1) + b"1" + head(201, length=1) + b"2" + head(202, length=1) + b"3"
    assert [request.method for request in upstream.requests] == ["POST", "POST", "GET"]
    assert upstream.connections == 1


async def test_the_last_script_repeats() -> None:
    async with ScriptedUpstream([head(503, length=0), End()], [head(200, length=0), End()]) as upstream:
        statuses = [parse_response(await raw_request(upstream.port, GET))[0] for _ in range(3)]
    assert statuses == [503, 200, 200]


async def test_a_function_is_called_once_with_the_body() -> None:
    calls = []

    def echo(request: Request) -> Script:
        calls.append(request.body)
        return [head(200, length=len(request.body)), request.body, End()]

    async with ScriptedUpstream(echo) as upstream:
        assert (await raw_request(upstream.port, CHUNKED)).endswith(b"\r\n\r\nabcde")
    assert calls == [b"abcde"]


async def test_an_early_function_is_called_before_the_body() -> None:
    def answer(request: Request) -> Script:
        return [head(200, length=1), b"T" if request.complete else b"F", WaitForBody(), End()]

    async with ScriptedUpstream(answer, early=True) as upstream:
        assert (await raw_request(upstream.port, POST)).endswith(b"F")
        assert upstream.requests[0].body == b"hello"


async def test_end_is_a_fin_and_reset_is_an_rst() -> None:
    async with ScriptedUpstream([head(), b"abc", End()], [head(), b"abc", Reset()]) as upstream:
        reader, writer = await asyncio.open_connection("127.0.0.1", upstream.port)
        writer.write(GET)
        assert (await reader.read()).endswith(b"abc")
        writer.close()
        await writer.wait_closed()
        reader, writer = await asyncio.open_connection("127.0.0.1", upstream.port)
        writer.write(GET)
        with pytest.raises(ConnectionResetError):
            await reader.read()
        writer.close()
        with pytest.raises(ConnectionResetError):
            await writer.wait_closed()


async def test_half_close_goes_on_reading() -> None:
    async with ScriptedUpstream([Early(), head(), HalfClose(), WaitForBody(), Stall()]) as upstream:
        reader, writer = await asyncio.open_connection("127.0.0.1", upstream.port)
        writer.write(POST[:-5])
        assert await reader.read() == head()
        assert not upstream.requests[0].complete
        writer.write(POST[-5:])
        assert (await upstream.request(0)).body == b"hello"
        writer.close()
        await writer.wait_closed()
        await upstream.client_closed(0)


async def test_stall_ends_when_the_peer_leaves_and_the_leaving_is_recorded() -> None:
    async with ScriptedUpstream([stream_head(), Stall()]) as upstream:
        _, writer = await asyncio.open_connection("127.0.0.1", upstream.port)
        writer.write(GET)
        await upstream.request(0)
        assert upstream.open_connections == 1
        with pytest.raises(AssertionError, match="connection 0 of 1"):
            await upstream.client_closed(0, timeout=0.01)
        writer.close()
        await writer.wait_closed()
        await upstream.client_closed(0)
        assert upstream.open_connections == 0


async def test_our_own_close_is_not_the_clients() -> None:
    async with ScriptedUpstream([*OK, End()]) as upstream:
        await raw_request(upstream.port, GET)
        await eventually(lambda: upstream.open_connections == 0)
        with pytest.raises(AssertionError):
            await upstream.client_closed(0, timeout=0.01)


async def test_wait_holds_until_its_event() -> None:
    event = asyncio.Event()
    async with ScriptedUpstream([head(), b"a", Wait(event), Send(b"b"), End()]) as upstream:
        reader, writer = await asyncio.open_connection("127.0.0.1", upstream.port)
        writer.write(GET)
        assert await reader.readexactly(len(head()) + 1) == head() + b"a"
        event.set()
        assert await reader.read() == b"b"
        writer.close()
        await writer.wait_closed()


async def test_trickle_writes_piece_by_piece() -> None:
    body = bytes(range(256))
    async with ScriptedUpstream([head(length=256), Trickle(body, 3), End()]) as upstream:
        assert parse_response(await raw_request(upstream.port, GET))[2:] == (body, True)


async def test_an_unread_upload_blocks_until_its_turn() -> None:
    go = asyncio.Event()
    size = 32 * 1024 * 1024
    async with ScriptedUpstream([Early(read=False), Wait(go), WaitForBody(), head(length=0), End()]) as upstream:
        reader, writer = await asyncio.open_connection("127.0.0.1", upstream.port)
        writer.write(b"PUT / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % size + bytes(size))
        await eventually(lambda: upstream.requests)
        assert upstream.requests[0].received == 0
        assert writer.transport.get_write_buffer_size() > 0
        go.set()
        assert await reader.read() == head(length=0)
        assert upstream.requests[0].received == size
        writer.close()
        await writer.wait_closed()


async def test_a_body_cut_by_the_client_is_not_complete() -> None:
    async with ScriptedUpstream(OK) as upstream:
        _, writer = await asyncio.open_connection("127.0.0.1", upstream.port)
        writer.write(POST[:-2])
        await eventually(lambda: upstream.requests)
        writer.close()
        await writer.wait_closed()
        await upstream.client_closed(0)
        await eventually(lambda: upstream.requests[0].body)
    assert (upstream.requests[0].body, upstream.requests[0].complete) == (b"hel", False)


async def test_a_fault_inside_a_script_is_raised_at_the_end() -> None:
    def broken(request: Request) -> Script:
        raise LookupError(request.target)

    with pytest.raises(LookupError, match="/a"):
        async with ScriptedUpstream(broken) as upstream:
            assert await raw_request(upstream.port, GET) == b""


async def test_what_is_no_step_is_refused() -> None:
    with pytest.raises(TypeError, match="not a step: 'text'"):
        async with ScriptedUpstream(["text"]) as upstream:  # type: ignore[list-item]
            await raw_request(upstream.port, GET)


async def test_nothing_is_left_behind() -> None:
    before = asyncio.all_tasks()
    async with ScriptedUpstream([stream_head(), Wait(asyncio.Event()), Stall()]) as upstream:
        reader, writer = await asyncio.open_connection("127.0.0.1", upstream.port)
        writer.write(GET)
        await reader.readuntil(b"\r\n\r\n")
    with pytest.raises(ConnectionResetError):
        await reader.read()
    writer.close()
    with pytest.raises(ConnectionResetError):
        await writer.wait_closed()
    assert asyncio.all_tasks() == before
    gc.collect()  # an unclosed transport would warn now, and warnings are errors


def test_a_free_port_refuses() -> None:
    with socket.socket() as sock:
        assert sock.connect_ex(("127.0.0.1", free_port())) != 0


async def test_eventually_returns_the_value_or_says_what_it_waited_for() -> None:
    assert await eventually(lambda: 7) == 7
    with pytest.raises(AssertionError, match="waited 0 s for the moon"):
        await eventually(lambda: None, 0, "the moon")


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (
            head(200, [("A", "1"), ("a", "2")], length=3) + b"abc",
            (200, [("A", "1"), ("a", "2"), ("Content-Length", "3")], b"abc", True),
        ),
        (head(length=3) + b"ab", (200, [("Content-Length", "3")], b"ab", False)),
        (head(chunked=True) + chunk(b"ab") + last_chunk, (200, [("Transfer-Encoding", "chunked")], b"ab", True)),
        (head(chunked=True) + chunk(b"ab") + b"0\r\n", (200, [("Transfer-Encoding", "chunked")], b"ab", False)),
        (head(chunked=True) + chunk(b"ab")[:-3], (200, [("Transfer-Encoding", "chunked")], b"a", False)),
        (
            head(chunked=True) + chunk(b"ab") + b"0\r\nT: 1\r\n\r\n",
            (200, [("Transfer-Encoding", "chunked")], b"ab", True),
        ),
        (head(100) + head(103) + head(404) + b"no", (404, [], b"no", True)),
        (head(204), (204, [], b"", True)),
        (head(204) + b"x", (204, [], b"", False)),
    ],
)
def test_parse_response(raw: bytes, expected: tuple[int, list[tuple[str, str]], bytes, bool]) -> None:
    assert parse_response(raw) == expected


@pytest.mark.parametrize(
    "raw",
    [b"", b"HTTP/1.1 200 OK\r\n", b"hello\r\n\r\n", head(chunked=True) + b"zz\r\n", head(chunked=True) + b"1\r\nabc"],
)
def test_parse_response_refuses_what_is_none(raw: bytes) -> None:
    with pytest.raises(ValueError, match="no"):
        parse_response(raw)
