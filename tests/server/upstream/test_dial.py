"""Getting a connection: how long to try, what fails at once, and that nothing is left when it does."""

from __future__ import annotations

import asyncio
import gc
import math
import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

import pytest

from sse_proxy.errors import UpstreamUnreachable
from sse_proxy.server.upstream import UpstreamAddress, UpstreamExchange, connect
from sse_proxy.server.upstream.address import _Addresses
from tests.fakes import End, ScriptedUpstream, Stall, eventually, free_port, head
from tests.server.upstream.conftest import Certificate
from tests.server.upstream.recorder import Recorder


def sockets() -> int:
    """How many sockets this process has open."""
    count = 0
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the listing's own is gone by now
            count += os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
    return count


@asynccontextmanager
async def no_socket_left() -> AsyncIterator[None]:
    before = sockets()
    yield
    await eventually(lambda: sockets() <= before, what="the sockets to be closed")
    gc.collect()  # what was freed and not closed warns now


@contextmanager
def silent_listener(host: str = "127.0.0.1", port: int = 0) -> Iterator[int]:
    """A port whose queue is full: the kernel drops what knocks, as a host behind a broken route would."""
    with socket.socket() as listener:
        listener.bind((host, port))
        listener.listen(0)
        address = listener.getsockname()
        knocking = []
        try:
            for _ in range(4):
                sock = socket.socket()
                sock.setblocking(False)
                sock.connect_ex(address)
                knocking.append(sock)
            yield address[1]
        finally:
            for sock in knocking:
                sock.close()


def at(port: int, host: str = "127.0.0.1", scheme: str = "http") -> UpstreamAddress:
    return UpstreamAddress.from_url(f"{scheme}://{host}:{port}")


async def ask(exchange: UpstreamExchange, recorder: Recorder) -> int:
    exchange.send_head("GET", "/", [], chunked=False)
    assert await recorder.end() is None
    assert recorder.head is not None
    return recorder.head.status


async def test_a_connection() -> None:
    async with ScriptedUpstream([head(200, length=0)]) as upstream:
        recorder = Recorder()
        exchange = await connect(at(upstream.port), recorder, connect_timeout=5)
        assert not exchange.closed
        assert await ask(exchange, recorder) == 200
        assert upstream.requests[0].headers == [("Host", f"127.0.0.1:{upstream.port}")]


async def test_by_name() -> None:
    """localhost is often ::1 first, where nobody listens."""
    async with ScriptedUpstream([head(200, length=0)]) as upstream:
        address = at(upstream.port, "localhost")
        recorder = Recorder()
        assert await ask(await connect(address, recorder, connect_timeout=5), recorder) == 200
        assert (await address.places())[0] == (socket.AF_INET, "127.0.0.1")
        assert upstream.requests[0].get("Host") == f"localhost:{upstream.port}"


async def test_while_it_is_refused_it_is_tried_again() -> None:
    """A sidecar often starts before its host."""
    port = free_port()
    recorder = Recorder()
    trying = asyncio.ensure_future(connect(at(port, "localhost"), recorder, connect_timeout=5))
    done, _ = await asyncio.wait([trying], timeout=0.1)
    assert not done
    async with ScriptedUpstream([head(200, length=0)], port=port):
        assert await ask(await trying, recorder) == 200


async def test_refused_to_the_end() -> None:
    port = free_port()
    loop = asyncio.get_running_loop()
    started = loop.time()
    says = rf"127\.0\.0\.1:{port} refuses connections; gave up after 0\.15 s"
    async with no_socket_left():
        with pytest.raises(UpstreamUnreachable, match=says) as caught:
            await connect(at(port), Recorder(), connect_timeout=0.15)
    assert 0.15 <= loop.time() - started < 2
    assert isinstance(caught.value.__cause__, ConnectionRefusedError)


async def test_no_answer_at_all() -> None:
    with silent_listener() as port:
        async with no_socket_left():
            with pytest.raises(UpstreamUnreachable, match=r"does not answer; gave up after 0\.1 s"):
                await connect(at(port), Recorder(), connect_timeout=0.1)


async def test_a_name_that_is_not_found_fails_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def find(self: _Addresses, host: str, port: int) -> list[tuple[int, str]]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(_Addresses, "find", find)
    with pytest.raises(UpstreamUnreachable, match=r"no\.example:80: the name is not found .*not known"):
        await connect(UpstreamAddress.from_url("http://no.example"), Recorder(), connect_timeout=60)


async def test_a_name_that_is_none_fails_at_once() -> None:
    with pytest.raises(UpstreamUnreachable, match="the name is not found"):
        await connect(UpstreamAddress.from_url(f"http://{'a' * 64}.example"), Recorder(), connect_timeout=60)


async def test_another_failure_of_the_network_fails_at_once() -> None:
    async with no_socket_left():
        with pytest.raises(UpstreamUnreachable, match="cannot be reached"):
            await connect(at(80, "255.255.255.255"), Recorder(), connect_timeout=60)


async def test_an_address_that_swallows_all_leaves_time_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    async def find(self: _Addresses, host: str, port: int) -> list[tuple[int, str]]:
        return [(socket.AF_INET, "127.0.0.2"), (socket.AF_INET, "127.0.0.1")]

    monkeypatch.setattr(_Addresses, "find", find)
    async with ScriptedUpstream([head(200, length=0)]) as upstream:
        with silent_listener("127.0.0.2", upstream.port):
            recorder = Recorder()
            exchange = await connect(at(upstream.port, "localhost"), recorder, connect_timeout=0.6)
            assert await ask(exchange, recorder) == 200


async def test_the_address_that_worked_is_tried_first_from_then_on() -> None:
    async with ScriptedUpstream([head(200, length=0)]) as upstream:
        address = at(upstream.port, "localhost")
        good = (int(socket.AF_INET), "127.0.0.1")
        address._names._places = [(socket.AF_INET, "127.0.0.3"), good]
        address._names._expires_at = math.inf
        recorder = Recorder()
        assert await ask(await connect(address, recorder, connect_timeout=5), recorder) == 200
        assert (await address.places())[0] == good


async def test_cancelled_while_it_is_refused() -> None:
    async with no_socket_left():
        trying = asyncio.ensure_future(connect(at(free_port()), Recorder(), connect_timeout=60))
        await asyncio.wait([trying], timeout=0.05)
        trying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await trying


async def test_cancelled_while_nobody_answers() -> None:
    with silent_listener() as port:
        async with no_socket_left():
            trying = asyncio.ensure_future(connect(at(port), Recorder(), connect_timeout=60))
            await asyncio.wait([trying], timeout=0.05)
            trying.cancel()
            with pytest.raises(asyncio.CancelledError):
                await trying


@pytest.mark.parametrize("secure", [False, True])
async def test_cancelled_at_any_turn_of_the_loop(certificate: Certificate, secure: bool) -> None:
    context = certificate.server if secure else None
    async with ScriptedUpstream([Stall()], ssl_context=context) as upstream:
        address = UpstreamAddress.from_url(upstream.url, ca_file=certificate.ca_file)
        finished = 0
        for turns in range(200):
            trying = asyncio.ensure_future(connect(address, Recorder(), connect_timeout=60))
            for _ in range(turns):
                await asyncio.sleep(0)
            trying.cancel()
            try:
                exchange = await trying
            except asyncio.CancelledError:
                continue
            exchange.close()
            finished += 1
            if finished == 3:
                break
        assert finished == 3
        await eventually(lambda: upstream.open_connections == 0)


# --- TLS ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
async def test_tls(certificate: Certificate, host: str) -> None:
    async with ScriptedUpstream([head(200, length=0)], ssl_context=certificate.server) as upstream:
        address = UpstreamAddress.from_url(f"https://{host}:{upstream.port}", ca_file=certificate.ca_file)
        recorder = Recorder()
        assert await ask(await connect(address, recorder, connect_timeout=5), recorder) == 200


async def test_a_certificate_nobody_vouches_for(certificate: Certificate) -> None:
    async with ScriptedUpstream([head(200, length=0)], ssl_context=certificate.server) as upstream:
        async with no_socket_left():
            with pytest.raises(UpstreamUnreachable, match=r"no TLS connection: .*certificate verify failed"):
                await connect(UpstreamAddress.from_url(upstream.url), Recorder(), connect_timeout=60)
            await eventually(lambda: upstream.open_connections == 0)
        recorder = Recorder()
        trusting = UpstreamAddress.from_url(upstream.url, verify=False)
        assert await ask(await connect(trusting, recorder, connect_timeout=5), recorder) == 200


async def test_a_certificate_for_another_name(certificate: Certificate) -> None:
    async with ScriptedUpstream([], ssl_context=certificate.server) as upstream:
        address = UpstreamAddress.from_url(f"https://127.0.0.2:{upstream.port}", ca_file=certificate.ca_file)
        with pytest.raises(UpstreamUnreachable):
            await connect(address, Recorder(), connect_timeout=0.2)  # nobody listens on .2
        address = UpstreamAddress(
            "127.0.0.1", upstream.port, address.ssl_context, "elsewhere.example", "", address.authority
        )
        with pytest.raises(UpstreamUnreachable, match="elsewhere"):
            await connect(address, Recorder(), connect_timeout=60)


async def test_tls_to_a_plain_port_fails_at_once() -> None:
    server = await asyncio.start_server(_answer_plainly, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(UpstreamUnreachable, match="no TLS connection"):
            await connect(at(port, scheme="https"), Recorder(), connect_timeout=60)


async def _answer_plainly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(100)
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


@pytest.mark.parametrize("reset", [False, True])
async def test_hanging_up_in_the_handshake_fails_at_once(reset: bool) -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not reset:  # unread bytes make an RST of the close
            await reader.read(10_000)
        writer.transport.abort()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(UpstreamUnreachable, match="no TLS connection"):
            await connect(at(port, scheme="https"), Recorder(), connect_timeout=60)


async def test_a_silent_handshake_takes_no_longer_than_the_budget() -> None:
    async with ScriptedUpstream([End()]) as upstream, no_socket_left():  # it reads on for the end of a request head
        with pytest.raises(UpstreamUnreachable, match=r"does not answer; gave up after 0\.1 s"):
            await connect(at(upstream.port, scheme="https"), Recorder(), connect_timeout=0.1)
        await upstream.client_closed(0)
