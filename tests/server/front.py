"""A front server in a test: around a handler of the test's own, or around `Passthrough` to an upstream."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import ssl
import struct
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from sse_proxy.config import Listen, Upstream, parse_config
from sse_proxy.server.headers import request_id
from sse_proxy.server.http import FrontServer, Handler, Site, serve
from sse_proxy.server.passthrough import Passthrough

__all__ = ["Client", "front", "make_certificate", "make_upstream", "proxy", "still"]

LISTEN = Listen(host="127.0.0.1", port=0)


def make_upstream(url: str, **settings: Any) -> Upstream:
    """Return the configuration of one plain upstream."""
    text = json.dumps({"upstreams": [{"name": "host", "url": url, "preset": "none", **settings}]})
    return parse_config(text, {}).upstreams[0]


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """Write a self-signed certificate for localhost and its key (PEM files), and return their names."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed")
    cert, key = folder / "cert.pem", folder / "key.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    command = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject]
    subprocess.run([*command, "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
    return cert, key


@asynccontextmanager
async def front(handler: Handler, *, tls: ssl.SSLContext | None = None, **limits: Any) -> AsyncIterator[Site]:
    """Serve a handler on a free port of 127.0.0.1."""
    site = await serve(FrontServer(handler, **limits), LISTEN, tls=tls)
    try:
        yield site
    finally:
        await site.stop()


@asynccontextmanager
async def proxy(
    url: str | Upstream,
    *,
    byte_exact: bool = False,
    tls: ssl.SSLContext | None = None,
    limits: dict[str, Any] | None = None,
    settings: dict[str, Any] | None = None,
    **passing: Any,
) -> AsyncIterator[Site]:
    """Serve `Passthrough` to an upstream.

    Args:
        limits: for `FrontServer`.
        settings: for the upstream's configuration.
        passing: for `Passthrough`.
    """
    upstream = make_upstream(url, **(settings or {})) if isinstance(url, str) else url
    passthrough = Passthrough(upstream, **passing)

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        return await passthrough(request, request_id=request_id(request), byte_exact=byte_exact)

    try:
        async with front(handler, tls=tls, **(limits or {})) as site:
            yield site
    finally:
        await passthrough.close()


async def still(amount: Callable[[], int], limit_s: float = 10.0) -> None:
    """Wait until a number does not change any more: three looks, a tenth of a second apart, see the same."""
    async with asyncio.timeout(limit_s):
        looks = [amount()]
        while len(looks) < 3 or len(set(looks[-3:])) > 1:
            await asyncio.sleep(0.1)
            looks.append(amount())


class Client:
    """A raw client connection that a test drives step by step; every wait is bounded."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    @asynccontextmanager
    async def open(
        cls, port: int, data: bytes = b"", ssl_context: ssl.SSLContext | None = None
    ) -> AsyncIterator[Client]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=ssl_context)
        try:
            client = cls(reader, writer)
            client.send(data)
            yield client
        finally:
            writer.transport.abort()

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def reset(self) -> None:
        """End with an RST."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def stuck(self) -> None:
        """Wait until the peer takes no more of what was sent."""
        await still(self.writer.transport.get_write_buffer_size)
        assert self.writer.transport.get_write_buffer_size() > 0

    async def until(self, mark: bytes, limit_s: float = 5.0) -> bytes:
        """Read up to and with `mark`."""
        async with asyncio.timeout(limit_s):
            return await self.reader.readuntil(mark)

    async def exactly(self, n: int, limit_s: float = 5.0) -> bytes:
        """Read n bytes."""
        async with asyncio.timeout(limit_s):
            return await self.reader.readexactly(n)

    async def rest(self, limit_s: float = 5.0) -> bytes:
        """Read to the connection's end, which may be a reset."""
        got = bytearray()
        async with asyncio.timeout(limit_s):
            try:
                while piece := await self.reader.read(65536):
                    got += piece
            except ConnectionError:
                pass
        return bytes(got)
