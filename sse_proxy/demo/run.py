"""`sse-proxy demo`: the embedded legacy host, the proxy in front of it, and the page that shows both."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from urllib.parse import urlencode

import aiohttp
import click
from rich.console import Console

from sse_proxy.config import Capture, Config, config_for_upstream
from sse_proxy.demo.host import LegacyHost
from sse_proxy.demo.once import render_once
from sse_proxy.errors import ConfigError
from sse_proxy.server.log import set_up_logging
from sse_proxy.server.service import Service, run_loop

__all__ = ["run_demo", "run_once"]

_STREAM = {"gaapi": "/api/chatbot/chat/stream", "gachatbot": "/chatbot/api/chatbot/chat/stream"}
_TWIN = {"gaapi": "/api/chatbot/chat", "gachatbot": "/chatbot/api/chatbot/chat"}
_ONCE_IDLE_S = 3.0
_PAGE_IDLE_S = 20.0


def run_demo(listen: str) -> int:
    """Run host and proxy until Ctrl-C.

    Returns:
        the exit status: 0, or 1 where the address is taken, 2 where it is none.
    """
    try:
        return run_loop(lambda: _demo(listen))
    except ConfigError as error:
        for problem in error.problems:
            click.echo(f"sse-proxy: {problem}", err=True)
        return 2


async def _demo(listen: str) -> int:
    host = LegacyHost()
    await host.start("127.0.0.1", 0)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    try:
        admin = _free_admin()
        config = _impatient(config_for_upstream(host.url, preset="gaapi", listen=listen, admin=admin), _PAGE_IDLE_S)
        config = config.model_copy(update={"capture": Capture()})  # for the inspector: both sides of every stream
        set_up_logging(config.log)
        service = Service(config)
        try:
            await service.start()
        except OSError as error:
            click.echo(
                f"sse-proxy: cannot listen on {listen}: {error.strerror or error}; try --listen HOST:PORT", err=True
            )
            return 1
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        where = f"http://{config.listen}"
        click.echo(f"page          {where}/          the same question, read directly and through the proxy")
        click.echo(
            f"legacy host   {host.url}      broken on purpose: ?host=gaapi|gachatbot&chunks=743|a826864&fail=KIND"
        )
        click.echo(f"inspector     http://{admin}/      live streams and their repairs")
        click.echo(
            f"try           curl -N -X POST {where}/api/chatbot/chat/stream -H 'Content-Type: application/json' "
            """-d '{"message":"which arpeggio fits Am F C G"}'"""
        )
        click.echo("Ctrl-C ends it.")
        await stop.wait()
        await service.stop(drain_timeout=1.0)
        return 0
    finally:
        await host.stop()


def _impatient(config: Config, idle_s: float) -> Config:
    """Return `config` with a short `idle_timeout`: nobody watches a host that stalls for the preset's five minutes."""
    upstreams = []
    for upstream in config.upstreams:
        routes = []
        for route in upstream.routes:
            stream = route.stream and route.stream.model_copy(update={"idle_timeout": idle_s})
            routes.append(route.model_copy(update={"stream": stream}))
        upstreams.append(upstream.model_copy(update={"routes": tuple(routes)}))
    return config.model_copy(update={"upstreams": tuple(upstreams)})


def _free_admin() -> str:
    """Return the usual admin address, or a free port where another proxy has that."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", 9901))
        except OSError:
            probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def run_once(question: str, *, host: str, chunks: str, fail: str | None) -> int:
    """Ask once, directly and through the proxy, and print what a reader gets of each."""
    return run_loop(lambda: _once(question, host, chunks, fail))


async def _once(question: str, writer: str, chunks: str, fail: str | None) -> int:
    host = LegacyHost()
    await host.start("127.0.0.1", 0)
    service: Service | None = None
    try:
        config = config_for_upstream(
            host.url, preset="gaapi" if writer == "gaapi" else "gachatbot", listen="127.0.0.1:0", admin="off"
        )
        service = Service(_impatient(config, _ONCE_IDLE_S))
        await service.start()
        assert service.site is not None
        knobs = {"host": writer, "chunks": chunks, **({"fail": fail} if fail else {})}
        path = f"{_STREAM[writer]}?{urlencode(knobs)}"
        direct = await _ask(f"{host.url}{path}", question)
        proxied = await _ask(f"http://127.0.0.1:{service.site.port}{path}", question)
        twin = await _ask(f"{host.url}{_TWIN[writer]}", question)
        Console().print(render_once(question, direct, proxied, json.loads(twin)["naturalLanguageAnswer"]))
        return 0
    finally:
        if service is not None:
            await service.stop(drain_timeout=0)
        await host.stop()


async def _ask(url: str, question: str) -> bytes:
    """POST a question; return as much of the body as came."""
    body = bytearray()
    timeout = aiohttp.ClientTimeout(total=2 * _ONCE_IDLE_S)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.post(url, json={"message": question}) as response,
        ):
            async for piece in response.content.iter_any():
                body += piece
    except (aiohttp.ClientError, TimeoutError):
        pass  # a host that fails is what is shown
    return bytes(body)
