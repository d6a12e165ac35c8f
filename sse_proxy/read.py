"""`sse-proxy read`: show a stream as it arrives, what each reader makes of it, and what the proxy would make of it."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator

import aiohttp
import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sse_proxy.core.ledger import Outcome
from sse_proxy.core.options import StreamOptions
from sse_proxy.core.pipeline import Pipeline
from sse_proxy.core.readers import READERS, ChatReader, read_all
from sse_proxy.errors import FailureCode
from sse_proxy.server.service import run_loop

__all__ = ["run_read"]

_READ = 64 * 1024


def run_read(source: str, options: StreamOptions, *, data: str | None, headers: dict[str, str]) -> int:
    """Show one stream; a URL is asked with GET, or with POST where there is `data`.

    Returns:
        the exit status: 0 where the stream was complete, 1 where it was not, 2 where it could not be read.
    """
    console = Console(highlight=False)
    try:
        return run_loop(lambda: _read(source, options, data, headers, console))
    except KeyboardInterrupt:
        return 1


async def _read(
    source: str, options: StreamOptions, data: str | None, headers: dict[str, str], console: Console
) -> int:
    started = time.monotonic()
    pipeline = Pipeline(options, started_at=0.0)
    readers = {name: make() for name, make in READERS.items()}
    repaired = bytearray()
    packets = _url(source, data, headers, console) if "://" in source else _file(source)
    broken = ""
    try:
        async for packet in packets:
            now = time.monotonic() - started
            _show(console, packet, now)
            for reader in readers.values():
                reader.feed(packet)
            repaired += pipeline.feed(packet, now)
            if pipeline.finished:
                break
    except aiohttp.InvalidURL:
        click.echo(f"sse-proxy: {source}: is not a URL", err=True)
        return 2
    except aiohttp.ClientConnectorError as error:
        click.echo(f"sse-proxy: {source}: no connection: {error.os_error.strerror or error.os_error}", err=True)
        return 2
    except (aiohttp.ClientError, TimeoutError) as error:
        broken = "the connection was cut before the end of the response"
        if not isinstance(error, aiohttp.ClientPayloadError):
            broken = str(error) or type(error).__name__
    except OSError as error:
        click.echo(f"sse-proxy: {source}: {error.strerror or error}", err=True)
        return 2
    for reader in readers.values():
        reader.fail() if broken else reader.close()
    if broken:
        console.print(Text(f"the stream broke off: {broken}", style="red"))
        repaired += pipeline.fail(FailureCode.UPSTREAM_TRUNCATED, detail=broken)
    else:
        repaired += pipeline.close(time.monotonic() - started)
    _sum_up(console, readers, bytes(repaired), pipeline)
    return 0 if pipeline.ledger.outcome is Outcome.COMPLETE else 1


async def _url(url: str, data: str | None, headers: dict[str, str], console: Console) -> AsyncIterator[bytes]:
    """Ask, show the head, and yield the body as its packets come; no limit of time."""
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=10)
    own = {"Accept": "text/event-stream", **({"Content-Type": "application/json"} if data is not None else {})}
    async with aiohttp.ClientSession(timeout=timeout, read_bufsize=_READ) as session:
        method = "GET" if data is None else "POST"
        async with session.request(method, url, data=data, headers={**own, **headers}) as response:
            kind = response.headers.get("Content-Type", "no content type")
            console.print(Text(f"{response.status} {response.reason}, {kind}", style="bold"))
            async for packet in response.content.iter_any():
                yield packet


async def _file(path: str) -> AsyncIterator[bytes]:
    descriptor = sys.stdin.fileno() if path == "-" else os.open(path, os.O_RDONLY)
    try:
        while packet := await asyncio.to_thread(os.read, descriptor, _READ):
            yield packet
    finally:
        if path != "-":
            os.close(descriptor)


def _show(console: Console, packet: bytes, at: float) -> None:
    """Print the bytes of one read, line ends visible."""
    *lines, last = packet.decode("utf-8", "backslashreplace").split("\n")
    for line, end in [*((line, "⏎") for line in lines), *([(last, "")] if last else [])]:
        shown = line.replace("\r", "␍")
        console.print(Text.assemble((f"{at:8.3f}s ", "dim"), shown, (end, "cyan")), soft_wrap=True)


def _sum_up(console: Console, readers: dict[str, ChatReader], repaired: bytes, pipeline: Pipeline) -> None:
    console.rule("what the proxy makes of it")
    console.print(Text(repaired.decode("utf-8")), soft_wrap=True, end="")
    console.rule("what each reader gets of it")
    table = Table(show_lines=True)
    for column in ("reader", "directly", "through the proxy"):
        table.add_column(column, overflow="fold", ratio=1 if column == "reader" else 3)
    for name, reader in readers.items():
        behind = read_all(READERS[name](), [repaired])
        if reader.answer or reader.error or behind.answer or behind.error:
            table.add_row(name, _got(reader), _got(behind))
    console.print(table)
    console.rule("ledger")
    for key, value in pipeline.ledger.as_dict().items():
        if value not in (None, 0, {}):
            shown = ", ".join(f"{kind} {count}" for kind, count in value.items()) if isinstance(value, dict) else value
            console.print(Text.assemble((f"{key:14} ", "dim"), str(shown)))


def _got(reader: ChatReader) -> Text:
    """What a reader shows, and how it thinks of that."""
    if reader.error is not None:
        verdict = Text(f"error: {reader.error}", style="red")
    else:
        verdict = Text("knows it is whole" if reader.finished else "takes the end for its end", style="dim")
    return Text.assemble(reader.answer, "\n" if reader.answer else "", verdict)
