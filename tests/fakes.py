"""Upstreams that do exactly what a test says, and small clients to look at raw bytes.

    async with ScriptedUpstream([stream_head(), chunk(b"data: a\\n\\n"), Reset()]) as upstream:
        ...                                    # talk to upstream.url
        assert upstream.requests[0].target == "/chat"
        await upstream.client_closed(0)

Real sockets on 127.0.0.1 throughout. Every wait is bounded; leaving `async with` closes all and re-raises what went
wrong inside a script.
"""
# ruff: noqa: ASYNC109  (a `timeout` argument reads best where the test says how long it is ready to wait)

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TypeVar, cast

__all__ = [
    "Early",
    "End",
    "HalfClose",
    "Request",
    "Reset",
    "Script",
    "ScriptedUpstream",
    "Send",
    "Stall",
    "Step",
    "Trickle",
    "Wait",
    "WaitForBody",
    "chunk",
    "eventually",
    "free_port",
    "head",
    "last_chunk",
    "parse_response",
    "raw_request",
    "stream_head",
]

T = TypeVar("T")

_TIMEOUT_S = 5.0
_MAX_HEAD = 1024 * 1024


# --- steps of a script -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Send:
    """Write these bytes, and wait while the peer does not take them. Bare `bytes` in a script mean the same."""

    data: bytes


@dataclass(frozen=True)
class Trickle:
    """Write `data` in pieces of `size` bytes, the loop running in between (the peer's kernel may join pieces again)."""

    data: bytes
    size: int = 1


@dataclass(frozen=True)
class Wait:
    """Go on when the event is set, or the peer has left."""

    event: asyncio.Event


@dataclass(frozen=True)
class Stall:
    """Do nothing until the peer leaves (what it sends is read)."""


@dataclass(frozen=True)
class Reset:
    """End with an RST (SO_LINGER 0). What the peer's kernel already holds can still be read there."""


@dataclass(frozen=True)
class End:
    """Close the connection; a FIN when all was read."""


@dataclass(frozen=True)
class HalfClose:
    """Send a FIN and go on reading."""


@dataclass(frozen=True)
class Early:
    """First step only: play before the request's body is there.

    Attributes:
        read: False leaves the body in the kernel until `WaitForBody`, so that a large upload blocks. While it does,
            the peer's leaving cannot be seen.
    """

    read: bool = True


@dataclass(frozen=True)
class WaitForBody:
    """Go on when the request's body is whole (after `Early`; else it always is)."""


Step = Send | Trickle | Wait | Stall | Reset | End | HalfClose | Early | WaitForBody | bytes
Script = Sequence[Step]


# --- pieces of a response ----------------------------------------------------------------------------------------


def head(
    status: int = 200,
    headers: Iterable[tuple[str, str]] = (),
    *,
    chunked: bool = False,
    length: int | None = None,
    reason: str = "X",
    version: str = "1.1",
) -> bytes:
    """Return a response head, blank line included. Without `chunked` and `length` the body ends with the connection."""
    lines = [f"HTTP/{version} {status} {reason}", *(f"{name}: {value}" for name, value in headers)]
    if chunked:
        lines.append("Transfer-Encoding: chunked")
    if length is not None:
        lines.append(f"Content-Length: {length}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def stream_head(headers: Iterable[tuple[str, str]] = (), *, chunked: bool = True) -> bytes:
    """Return the head of an event stream, as GaApi sends it."""
    own = [("Content-Type", "text/event-stream"), ("Cache-Control", "no-cache")]
    return head(200, [*own, *headers], chunked=chunked, reason="OK")


def chunk(data: bytes) -> bytes:
    """Return one chunk of a chunked body (RFC 9112 7.1)."""
    return b"%x\r\n%b\r\n" % (len(data), data)


last_chunk = b"0\r\n\r\n"


# --- requests ----------------------------------------------------------------------------------------------------


@dataclass
class Request:
    """One request as it came.

    Attributes:
        headers: in order, names as sent, values decoded as Latin-1.
        body: chunked framing removed; set when it is whole, or as far as it came when the peer left before.
        complete: whether the body is whole.
        received: bytes of the body so far (of a chunked one: in whole chunks).
        chunks: of a chunked body, as they were cut.
        connection: index of the connection it came on, from 0.
    """

    method: str
    target: str
    version: str
    headers: list[tuple[str, str]]
    connection: int
    body: bytes = b""
    complete: bool = False
    received: int = 0
    chunks: list[bytes] = field(default_factory=list, repr=False)

    def get(self, name: str) -> str | None:
        """Return the first value of a header, None when it is missing."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)


def _split_head(data: bytes) -> tuple[str, list[tuple[str, str]]]:
    """Return first line and headers of a head (without its blank line)."""
    first, *rest = data.decode("latin-1").split("\r\n")
    headers = []
    for line in rest:
        name, colon, value = line.partition(":")
        if not colon:
            raise ValueError(f"not a header: {line[:80]!r}")
        headers.append((name, value.strip(" \t")))
    return first, headers


def _dechunk(data: bytes) -> tuple[bytes, int | None]:
    """Return the body so far, and how many bytes the whole chunked body took; None while it is not whole."""
    body: list[bytes] = []
    at = 0
    while (end := data.find(b"\r\n", at)) >= 0:
        size_text = data[at:end].split(b";")[0].strip()
        if not re.fullmatch(rb"[0-9a-fA-F]+", size_text):
            raise ValueError(f"not a chunk size: {data[at:end][:80]!r}")
        size, at = int(size_text, 16), end + 2
        if size == 0:  # trailers end with an empty line
            while (end := data.find(b"\r\n", at)) > at:
                at = end + 2
            return b"".join(body), None if end < 0 else end + 2
        body.append(data[at : at + size])
        if len(data) < at + size + 2:
            break
        if data[at + size : at + size + 2] != b"\r\n":
            raise ValueError(f"no line end after a chunk: {data[at + size :][:80]!r}")
        at += size + 2
    return b"".join(body), None


def _take_chunks(buffer: bytearray, chunks: list[bytes]) -> bool:
    """Move the whole chunks at the head of `buffer` into `chunks`; return whether the body ended."""
    while (end := buffer.find(b"\r\n")) >= 0:
        size = int(buffer[:end].split(b";")[0], 16)
        if size == 0:
            _, used = _dechunk(bytes(buffer))
            if used is not None:
                del buffer[:used]
            return used is not None
        after = end + 2 + size
        if len(buffer) < after + 2:
            return False
        if buffer[after : after + 2] != b"\r\n":
            raise ValueError("no line end after a chunk of the request")
        chunks.append(bytes(buffer[end + 2 : after]))
        del buffer[: after + 2]
    return False


# --- the server --------------------------------------------------------------------------------------------------


class _Connection(asyncio.Protocol):
    """One connection: what came, and who left."""

    def __init__(self, server: ScriptedUpstream) -> None:
        self._server = server
        self.index = -1
        self.buffer = bytearray()
        self.changed = asyncio.Event()  # bytes came, or the peer left
        self.gone = asyncio.Event()  # FIN or RST from the peer, or our own close
        self.lost = asyncio.Event()
        self.client_left = False  # by the peer's own doing
        self._we_closed = False
        self._writable = asyncio.Event()
        self._writable.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's own class is none
        self._server._accepted(self)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        self.changed.set()

    def eof_received(self) -> bool:
        self._left(by_client=not self._we_closed)
        return self._server.half_open  # True: the script decides when we close

    def connection_lost(self, exc: Exception | None) -> None:
        self._left(by_client=not self._we_closed)
        self.lost.set()

    def _left(self, *, by_client: bool) -> None:
        self.client_left = self.client_left or by_client
        for event in (self.gone, self.changed, self._writable):
            event.set()

    def pause_writing(self) -> None:
        if not self.gone.is_set():
            self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    async def more(self) -> bool:
        """Wait for more bytes; False when no more can come."""
        if self.gone.is_set():
            return False
        self.changed.clear()
        await self.changed.wait()
        return True

    async def write(self, data: bytes) -> None:
        if not self.gone.is_set():
            self.transport.write(data)
            await self._writable.wait()

    def close(self, *, reset: bool = False) -> None:
        """Close now (what was written goes out first, unless `reset`)."""
        if self.lost.is_set():
            return
        self._we_closed = True
        if reset:
            if (sock := self.transport.get_extra_info("socket")) is not None:  # None: its TLS is gone already
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.transport.abort()
        else:
            self.transport.close()


class ScriptedUpstream:
    """An HTTP/1.1 server that reads each request and then plays a script.

    Args:
        scripts: what to play: one script for each request, counted over all connections, of which the last repeats;
            or one function that is given each request once, its body read, and returns a script.
        early: call the function as soon as the request's head is there, and play its script as after `Early()`.
        ssl_context: serve TLS.

    After a script that neither ended nor reset, the next request on the connection is read.

    Attributes:
        port, url: where it listens, on 127.0.0.1.
        requests: every request whose head came, oldest first.
        connections: how many were accepted so far.
    """

    def __init__(
        self,
        *scripts: Script | Callable[[Request], Script],
        early: bool = False,
        ssl_context: ssl.SSLContext | None = None,
        port: int = 0,
    ) -> None:
        self._scripts = scripts or ((),)
        self._early = early
        self._ssl = ssl_context
        self._want_port = port
        self._connections: list[_Connection] = []
        self._tasks: list[asyncio.Task[None]] = []
        self.half_open = ssl_context is None  # TLS as asyncio does it has no half-closed connections
        self.requests: list[Request] = []
        self.port = 0
        self.url = ""

    async def __aenter__(self) -> ScriptedUpstream:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _Connection(self), "127.0.0.1", self._want_port, ssl=self._ssl, backlog=1024
        )
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"{'https' if self._ssl else 'http'}://127.0.0.1:{self.port}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        results = await asyncio.gather(*self._tasks, return_exceptions=True)
        for connection in self._connections:
            connection.close(reset=True)
        async with asyncio.timeout(_TIMEOUT_S):
            for connection in self._connections:
                await connection.lost.wait()
            await self._server.wait_closed()
        faults = [r for r in results if isinstance(r, Exception)]
        if faults and kind is None:
            raise faults[0]

    @property
    def connections(self) -> int:
        return len(self._connections)

    @property
    def open_connections(self) -> int:
        """How many connections neither side has left."""
        return sum(not connection.gone.is_set() for connection in self._connections)

    async def request(self, n: int = 0, timeout: float = _TIMEOUT_S) -> Request:
        """Wait until request `n` (from 0) has come whole, and return it."""
        await eventually(lambda: len(self.requests) > n and self.requests[n].complete, timeout, f"request {n}")
        return self.requests[n]

    async def client_closed(self, n: int = 0, timeout: float = _TIMEOUT_S) -> None:
        """Wait until the client has left connection `n` (from 0), by FIN or RST.

        Raises:
            AssertionError: it has not within `timeout` seconds.
        """
        await eventually(
            lambda: len(self._connections) > n and self._connections[n].client_left,
            timeout,
            f"the client to close connection {n} of {len(self._connections)}",
        )

    def _accepted(self, connection: _Connection) -> None:
        connection.index = len(self._connections)
        self._connections.append(connection)
        self._tasks.append(asyncio.get_running_loop().create_task(self._serve(connection)))

    async def _serve(self, connection: _Connection) -> None:
        try:
            while (request := await self._read_head(connection)) is not None:
                script = self._scripts[min(len(self.requests), len(self._scripts) - 1)]
                self.requests.append(request)
                if callable(script):
                    if not self._early:
                        await self._read_body(connection, request)
                    script = script(request)
                first = script[0] if script else None
                if not isinstance(first, Early) and not self._early:
                    await self._read_body(connection, request)
                elif isinstance(first, Early) and not first.read:
                    connection.transport.pause_reading()
                if not await self._play(connection, request, script):
                    return
                await self._read_body(connection, request)
            connection.close()
        except BaseException:
            connection.close(reset=True)  # whatever waits for this answer must not wait on
            raise

    async def _read_head(self, connection: _Connection) -> Request | None:
        """Return the next request, its body not read; None when the peer left first."""
        while (end := connection.buffer.find(b"\r\n\r\n")) < 0:
            if len(connection.buffer) > _MAX_HEAD:
                raise ValueError(f"a request head of more than {_MAX_HEAD} bytes")
            if not await connection.more():
                return None
        first, headers = _split_head(bytes(connection.buffer[:end]))
        del connection.buffer[: end + 4]
        method, target, version = first.split(" ")
        return Request(method, target, version, headers, connection.index)

    async def _read_body(self, connection: _Connection, request: Request) -> None:
        """Read the rest of a body; returns with `complete` False when the peer left before."""
        if request.complete:
            return
        if not connection.gone.is_set():
            connection.transport.resume_reading()
        buffer = connection.buffer
        if (request.get("Transfer-Encoding") or "").lower() == "chunked":
            while not (whole := _take_chunks(buffer, request.chunks)) and await connection.more():
                request.received = sum(map(len, request.chunks))
            request.body = b"".join(request.chunks)
        else:
            length = int(request.get("Content-Length") or 0)
            while not (whole := len(buffer) >= length) and await connection.more():
                request.received = min(len(buffer), length)
            request.body = bytes(buffer[:length])
            if whole:
                del buffer[:length]
        request.received, request.complete = len(request.body), whole

    async def _play(self, connection: _Connection, request: Request, script: Script) -> bool:
        """Play one script; return whether another request may follow."""
        for step in script:
            match step:
                case bytes():
                    await connection.write(step)
                case Send(data):
                    await connection.write(data)
                case Trickle(data, size):
                    for at in range(0, len(data), size):
                        await connection.write(data[at : at + size])
                        await asyncio.sleep(0)
                case Wait(event):
                    await _first(event.wait(), connection.gone.wait())
                case Stall():
                    if not connection.gone.is_set():
                        connection.transport.resume_reading()  # else the leaving would not be seen
                    await connection.gone.wait()
                    return False
                case HalfClose():
                    if not connection.gone.is_set():
                        connection.transport.write_eof()
                case WaitForBody():
                    await self._read_body(connection, request)
                case End():
                    connection.close()
                    return False
                case Reset():
                    connection.close(reset=True)
                    return False
                case Early():
                    if step is not script[0]:
                        raise ValueError("Early() can only be the first step")
                case _:
                    raise TypeError(f"not a step: {step!r}")
        return True


async def _first(*waits: Awaitable[object]) -> None:
    """Return when the first of them is done; none of them is left running."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


# --- clients and waiting -----------------------------------------------------------------------------------------


def free_port() -> int:
    """Return a port of 127.0.0.1 nobody listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def raw_request(
    port: int,
    data: bytes,
    *,
    until_close: bool = True,
    timeout: float = _TIMEOUT_S,
    host: str = "127.0.0.1",
    ssl_context: ssl.SSLContext | None = None,
) -> bytes:
    """Send `data` and return every byte that comes back until the peer closes, by FIN or RST.

    Args:
        until_close: False returns as soon as one response is whole, on a connection that stays open.

    Raises:
        TimeoutError: that took more than `timeout` seconds.
    """
    async with asyncio.timeout(timeout):
        reader, writer = await asyncio.open_connection(host, port, ssl=ssl_context)
        received = bytearray()
        try:
            writer.write(data)
            while piece := await reader.read(65536):
                received += piece
                if not until_close and _is_whole(bytes(received), head_only=data.startswith(b"HEAD ")):
                    break
        except ConnectionError:
            pass  # an RST: what came before it is the answer; parse_response() tells whether it is whole
        finally:
            writer.transport.abort()
        return bytes(received)


def _is_whole(data: bytes, *, head_only: bool) -> bool:
    if b"\r\n\r\n" not in data:
        return False
    _, headers, _, complete = parse_response(data, head_only=head_only)
    names = {name.lower() for name, _ in headers}
    return complete and (head_only or bool(names & {"content-length", "transfer-encoding"}))


def parse_response(data: bytes, *, head_only: bool = False) -> tuple[int, list[tuple[str, str]], bytes, bool]:
    """Take a raw response apart; interim (1xx) responses before it are skipped.

    Returns:
        status; headers in order, names as sent; body with chunked framing removed; whether the body is whole by its
        own framing (a body that ends with the connection always is).

    Raises:
        ValueError: not a response, or broken chunked framing.
    """
    while True:
        top, blank, rest = data.partition(b"\r\n\r\n")
        if not blank:
            raise ValueError(f"no response head in {data[:80]!r}")
        first, headers = _split_head(top)
        if not (match := re.fullmatch(r"HTTP/1\.[01] (\d{3})( .*)?", first)):
            raise ValueError(f"not a status line: {first[:80]!r}")
        status = int(match[1])
        if status >= 200 or status == 101:
            break
        data = rest
    fields = {name.lower(): value for name, value in headers}
    if head_only or status in (204, 304):
        return status, headers, b"", not rest
    if fields.get("transfer-encoding", "").lower() == "chunked":
        body, used = _dechunk(rest)
        return status, headers, body, used is not None
    if "content-length" in fields:
        length = int(fields["content-length"])
        return status, headers, rest[:length], len(rest) >= length
    return status, headers, rest, True


async def eventually(predicate: Callable[[], T], timeout: float = _TIMEOUT_S, what: str = "the condition") -> T:
    """Let the loop run until `predicate()` is true, and return its value. The one place of the tests that waits.

    Raises:
        AssertionError: it is still false after `timeout` seconds.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout
    turns = 0
    while not (value := predicate()):
        if loop.time() > deadline:
            raise AssertionError(f"waited {timeout} s for {what}")
        turns += 1
        await asyncio.sleep(0 if turns < 50 else 0.002)
    return value
