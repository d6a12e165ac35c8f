"""The WebSocket tunnel: by bytes, with aiohttp's own ends, and with the clients people use."""
# ruff: noqa: SIM117  (a proxy stands in front of its upstream, a client in front of both: nesting shows it)

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import WSMsgType, web
from aiohttp.test_utils import TestServer

from sse_proxy.server.http import server_context
from tests.fakes import (
    Early,
    End,
    Reset,
    Script,
    ScriptedUpstream,
    Stall,
    Wait,
    eventually,
    head,
    parse_response,
    raw_request,
)
from tests.server.front import Client, make_certificate, proxy, still

KEY = "dGhlIHNhbXBsZSBub25jZQ=="
OVER = web.ResponseKey("over", bool)
ACCEPT = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


def upgrade(*lines: str, target: str = "/ws", connection: str = "Upgrade", to: str = "websocket") -> bytes:
    own = [f"GET {target} HTTP/1.1", "Host: shop", f"Upgrade: {to}", f"Connection: {connection}"]
    return "\r\n".join([*own, f"Sec-WebSocket-Key: {KEY}", "Sec-WebSocket-Version: 13", *lines, "", ""]).encode()


def switching(*headers: tuple[str, str]) -> bytes:
    own = [("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Accept", ACCEPT)]
    return head(101, [*own, *headers], reason="Switching Protocols")


# --- by bytes -----------------------------------------------------------------------------------------------------


async def test_the_handshake_passes_both_ways_as_it_is() -> None:
    """Case websocket-03: no empty subprotocol, no invented extension."""
    lines = ["Origin: http://page", "Cookie: a=1", "Authorization: Bearer x", "X-Request-ID: r"]
    async with ScriptedUpstream([switching(("Set-Cookie", "b=2")), Stall()]) as upstream, proxy(upstream.url) as site:
        async with Client.open(site.port or 0, upgrade(*lines, target="/ws%2f?a=%41")) as client:
            answer = await client.until(b"\r\n\r\n")
        seen = upstream.requests[0]
    assert seen.target == "/ws%2f?a=%41"
    assert [pair for pair in seen.headers if "forwarded" not in pair[0].lower()] == [
        ("Host", f"127.0.0.1:{upstream.port}"),
        ("Sec-WebSocket-Key", KEY),
        ("Sec-WebSocket-Version", "13"),
        *(tuple(line.split(": ")) for line in lines),
        ("Connection", "Upgrade"),
        ("Upgrade", "websocket"),
    ]
    assert answer == (
        b"HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: %b\r\nSet-Cookie: b=2\r\n"
        b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n" % ACCEPT.encode()
    )


async def test_subprotocol_and_extensions_are_the_two_ends_business() -> None:
    offered = ["Sec-WebSocket-Protocol: a, b", "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits"]
    chosen = [("Sec-WebSocket-Protocol", "b"), ("Sec-WebSocket-Extensions", "permessage-deflate")]
    async with ScriptedUpstream([switching(*chosen), Stall()]) as upstream, proxy(upstream.url) as site:
        async with Client.open(site.port or 0, upgrade(*offered)) as client:
            _, headers, _, _ = parse_response(await client.until(b"\r\n\r\n"))
        for name in ("Sec-WebSocket-Protocol", "Sec-WebSocket-Extensions"):
            assert upstream.requests[0].get(name) == next(
                v for n, _, v in (o.partition(": ") for o in offered) if n == name
            )
    assert [pair for pair in headers if pair[0] in dict(chosen)] == chosen


@pytest.mark.parametrize("connection", ["Upgrade", "keep-alive, Upgrade", "upgrade"])
async def test_any_bytes_pass_both_ways(connection: str) -> None:
    """Bytes that are no frames at all, in any pieces, also right behind the heads."""
    noise = bytes(range(256)) * 300
    early, late = b"\x81\x05early", b"HTTP/1.1 200 OK\r\n\r\n"
    go = asyncio.Event()
    got = bytearray()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(switching() + noise)
        await go.wait()
        writer.write(late)
        while piece := await reader.read(65536):
            got.extend(piece)
        writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        async with proxy(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}") as site:
            async with Client.open(site.port or 0, upgrade(connection=connection) + early) as client:
                await client.until(b"\r\n\r\n")
                assert await client.exactly(len(noise)) == noise
                client.send(noise)
                go.set()
                assert await client.exactly(len(late)) == late
                await eventually(lambda: got == early + noise)
    finally:
        server.close()
        await server.wait_closed()


async def test_a_tunnel_through_tls_on_both_sides(tmp_path: Path) -> None:
    files = make_certificate(tmp_path)
    context = ssl.create_default_context(cafile=files[0])
    context.check_hostname = False
    noise = bytes(range(256)) * 1000
    server_side = server_context(*files)
    async with ScriptedUpstream([switching(), noise, Stall()], ssl_context=server_side) as upstream:
        settings = {"tls": {"ca_file": str(files[0])}}
        async with proxy(f"https://localhost:{upstream.port}", tls=server_side, settings=settings) as site:
            async with Client.open(site.port or 0, upgrade(), ssl_context=context) as client:
                await client.until(b"\r\n\r\n")
                assert await client.exactly(len(noise)) == noise
            await upstream.client_closed(0, 1)


REFUSALS: dict[str, Script] = {
    "401": [head(401, [("WWW-Authenticate", "Bearer")], length=2, reason="Who?"), b"no"],
    "404 chunked": [head(404, chunked=True), b"2\r\nno\r\n0\r\n\r\n"],
    "204": [head(204)],
    "302": [head(302, [("Location", "/login")], length=0)],
    "plain 200": [head(200, length=2), b"no"],
    "426": [head(426, [("Sec-WebSocket-Version", "8")], length=0)],
}


@pytest.mark.parametrize("name", REFUSALS)
async def test_a_refusal_passes_on_with_status_headers_and_body(name: str) -> None:
    async with ScriptedUpstream(REFUSALS[name], [head(200, length=2), b"ok"]) as upstream, proxy(upstream.url) as site:
        async with Client.open(upstream.port, upgrade()) as client:
            received = await client.until(b"\r\n\r\n")
            if "Content-Length: 2" in received.decode() or name == "404 chunked":
                received += await client.until(b"no" if name != "404 chunked" else b"0\r\n\r\n")
            direct = parse_response(received)
        upstream.requests.clear()
        async with Client.open(site.port or 0, upgrade()) as client:
            received = await client.until(b"\r\n\r\n")
            status, headers, _, _ = parse_response(received)
            if direct[2]:
                received += await client.until(b"no" if name != "404 chunked" else b"0\r\n\r\n")
            assert parse_response(received)[:3] == (direct[0], headers, direct[2])
            assert [h for h in headers if h[0] in ("WWW-Authenticate", "Location", "Sec-WebSocket-Version")] == [
                h for h in direct[1] if h[0] in ("WWW-Authenticate", "Location", "Sec-WebSocket-Version")
            ]
            assert status != 101
            client.send(b"GET /next HTTP/1.1\r\nHost: shop\r\n\r\n")  # the connection is still one for requests
            assert (await client.until(b"ok")).startswith(b"HTTP/1.1 200 ")


async def test_a_switch_to_something_else_becomes_502() -> None:
    answer = head(101, [("Upgrade", "h2c"), ("Connection", "Upgrade")])
    async with ScriptedUpstream([answer, Stall()]) as upstream, proxy(upstream.url) as site:
        received = await raw_request(site.port or 0, upgrade(), until_close=False)
        assert received.startswith(b"HTTP/1.1 502 ")
        await upstream.client_closed(0, 1)


@pytest.mark.parametrize("to", ["h2c", "websocket, h2c", "TLS/1.0", "nonsense"])
async def test_no_other_protocol_is_switched_to(to: str) -> None:
    """An h2c tunnel would carry requests that nothing here looks at."""
    async with ScriptedUpstream([head(200, length=2), b"ok"]) as upstream, proxy(upstream.url) as site:
        received = await raw_request(site.port or 0, upgrade("HTTP2-Settings: AAMAAABk", to=to), until_close=False)
        assert received.startswith(b"HTTP/1.1 200 ")
        assert upstream.requests[0].get("Upgrade") is None
        assert upstream.requests[0].get("Connection") is None


@pytest.mark.parametrize(
    "data",
    [
        upgrade().replace(b"GET", b"POST"),
        upgrade("Content-Length: 2") + b"ab",
        upgrade().replace(b"HTTP/1.1", b"HTTP/1.0"),
        upgrade(connection="close"),
    ],
    ids=["POST", "with a body", "1.0", "not in Connection"],
)
async def test_an_upgrade_that_is_none_is_a_plain_request(data: bytes) -> None:
    async with ScriptedUpstream([head(200, length=2), b"ok"]) as upstream, proxy(upstream.url) as site:
        async with Client.open(site.port or 0, data) as client:
            assert (await client.until(b"ok")).startswith(b"HTTP/1.1 200 ")
        assert upstream.requests[0].get("Upgrade") is None


@pytest.mark.parametrize("end", [End(), Reset()])
async def test_an_upstream_that_ends_ends_the_client_behind_what_it_wrote(end: End | Reset) -> None:
    go = asyncio.Event()
    async with (
        ScriptedUpstream([switching(), Wait(go), b"\x88\x02\x03\xe9", end]) as upstream,
        proxy(upstream.url) as site,
    ):
        async with Client.open(site.port or 0, upgrade()) as client:
            await client.until(b"\r\n\r\n")
            go.set()
            received = await client.rest(2)
            if isinstance(end, End):
                assert received == b"\x88\x02\x03\xe9"


@pytest.mark.parametrize("farewell", ["fin", "rst"])
async def test_a_client_that_ends_ends_the_upstream_behind_what_it_wrote(farewell: str) -> None:
    got = bytearray()
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(switching())
        try:
            while piece := await reader.read(65536):
                got.extend(piece)
        except ConnectionError:
            pass
        ended.set()
        writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        async with proxy(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}") as site:
            async with Client.open(site.port or 0, upgrade()) as client:
                await client.until(b"\r\n\r\n")
                client.send(b"x" * 100_000)
                if farewell == "fin":
                    client.writer.close()
                else:
                    await eventually(lambda: len(got) == 100_000)
                    client.writer.transport.abort()
                async with asyncio.timeout(1):
                    await ended.wait()
        assert len(got) == 100_000
    finally:
        server.close()
        await server.wait_closed()


@pytest.mark.parametrize("direction", ["down", "up"])
async def test_a_side_that_does_not_read_holds_the_other_back(direction: str) -> None:
    """Case backpressure-01, in a tunnel."""
    sent = 0
    go, served = asyncio.Event(), asyncio.Event()
    total = 100_000_000
    arrived = 0

    async def push(writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        while sent < total:
            writer.write(bytes(100_000))
            sent += 100_000
            await writer.drain()

    async def pull(reader: asyncio.StreamReader) -> None:
        nonlocal arrived
        await go.wait()
        while arrived < total:
            arrived += len(await reader.read(1_000_000))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(switching())
        await (push(writer) if direction == "down" else pull(reader))
        await reader.read()  # up to the client's end
        writer.transport.abort()
        served.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        async with proxy(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}") as site:
            async with Client.open(site.port or 0, upgrade()) as client:
                await client.until(b"\r\n\r\n")
                mine = asyncio.create_task(pull(client.reader) if direction == "down" else push(client.writer))
                await still(lambda: sent)
                assert 0 < sent < 30_000_000  # sockets' buffers hold some megabytes by themselves
                go.set()
                async with asyncio.timeout(20):
                    await mine
                    await eventually(lambda: arrived == total, 20)
            async with asyncio.timeout(5):
                await served.wait()
    finally:
        server.close()
        await server.wait_closed()


async def test_a_client_that_resets_while_the_upstream_does_not_read_frees_the_tunnel() -> None:
    async with ScriptedUpstream([Early(read=False), switching(), Wait(asyncio.Event())]) as upstream:
        async with proxy(upstream.url) as site, Client.open(site.port or 0, upgrade()) as client:
            await client.until(b"\r\n\r\n")
            client.send(bytes(120_000_000))
            await client.stuck()
            client.reset()
            await eventually(lambda: not site._front.connections, 2)


# --- with aiohttp's own ends --------------------------------------------------------------------------------------


@asynccontextmanager
async def sockets() -> AsyncIterator[tuple[str, list[web.WebSocketResponse]]]:
    """Run a WebSocket server behind the proxy; yield its URL through the proxy, and the server's ends."""
    ends: list[web.WebSocketResponse] = []

    async def handler(request: web.Request) -> web.WebSocketResponse:
        end = web.WebSocketResponse(protocols=("chat", "json"), max_msg_size=0, compress=False, autoping=False)
        await end.prepare(request)
        ends.append(end)
        try:
            async for message in end:
                if message.type is WSMsgType.TEXT:
                    await end.send_str(message.data)
                elif message.type is WSMsgType.BINARY:
                    await end.send_bytes(message.data)
                elif message.type is WSMsgType.PING:
                    await end.pong(message.data)
        finally:
            end[OVER] = True
        return end

    app = web.Application()
    app.router.add_get("/ws", handler)
    server = TestServer(app)
    await server.start_server()
    try:
        async with proxy(f"http://127.0.0.1:{server.port}") as site:
            yield f"http://127.0.0.1:{site.port}/ws", ends
    finally:
        await server.close()


@pytest.mark.parametrize("compress", [0, 15])
async def test_messages_of_any_size_and_kind(compress: int) -> None:
    """Case websocket-01: 5,000,000 characters, both ways."""
    text = "5 млн " * 833_333 + "xy"
    async with sockets() as (url, _), aiohttp.ClientSession() as session:
        async with session.ws_connect(url, max_msg_size=0, compress=compress, autoping=False) as end:
            async with asyncio.timeout(30):
                await end.send_str(text)
                assert await end.receive_str() == text
                await end.send_bytes(bytes(range(256)))
                assert await end.receive_bytes() == bytes(range(256))
                await end.send_str("")
                assert await end.receive_str() == ""
                await end.ping(b"are you there")
                assert (await end.receive())[:2] == (WSMsgType.PONG, b"are you there")


async def test_the_upstreams_subprotocol_is_the_clients() -> None:
    async with sockets() as (url, _), aiohttp.ClientSession() as session:
        async with session.ws_connect(url, protocols=("none", "json", "chat")) as end:
            assert end.protocol == "json"
        async with session.ws_connect(url) as end:
            assert end.protocol is None


async def test_code_and_reason_of_a_close_pass_both_ways() -> None:
    async with sockets() as (url, ends), aiohttp.ClientSession() as session:
        async with session.ws_connect(url) as end:
            await end.close(code=4001, message=b"good night")
            await eventually(lambda: ends[0].close_code is not None)
            assert ends[0].close_code == 4001
        async with session.ws_connect(url) as end:
            await eventually(lambda: len(ends) == 2)
            closing = asyncio.create_task(ends[1].close(code=4002, message="спокойной ночи".encode()))
            async with asyncio.timeout(5):
                message = await end.receive()
                await closing
            assert (message.type, message.data, message.extra) == (WSMsgType.CLOSE, 4002, "спокойной ночи")


async def test_a_client_that_vanishes_ends_the_upstreams_socket_without_a_close() -> None:
    async with sockets() as (url, ends):
        async with Client.open(int(url.split(":")[2].partition("/")[0]), upgrade()) as client:
            await client.until(b"\r\n\r\n")
        await eventually(lambda: bool(ends) and OVER in ends[0])
        assert ends[0].close_code in (None, aiohttp.WSCloseCode.ABNORMAL_CLOSURE)


async def test_a_refused_handshake_tells_a_client_its_status() -> None:
    async with ScriptedUpstream([head(403, [("X-Why", "no")], length=0)]) as upstream, proxy(upstream.url) as site:
        async with aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await session.ws_connect(f"http://127.0.0.1:{site.port}/ws")
            assert refused.value.status == 403
            assert refused.value.headers is not None
            assert refused.value.headers["X-Why"] == "no"


async def test_a_stop_ends_open_tunnels() -> None:
    async with aiohttp.ClientSession() as session:
        async with sockets() as (url, ends):
            end = await session.ws_connect(url)
            await eventually(lambda: bool(ends))
        # Leaving stopped the proxy first, with the tunnel open: both ends were told.
        assert OVER in ends[0]
        async with asyncio.timeout(2):
            assert (await end.receive()).type in (WSMsgType.CLOSED, WSMsgType.CLOSE)
