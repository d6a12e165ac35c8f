"""A proxy with its listeners, and the loop it runs on."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from aiohttp import web

from sse_proxy.config import Config, Listen
from sse_proxy.server.admin import create_admin_app
from sse_proxy.server.app import Proxy
from sse_proxy.server.http import FrontServer, Site, serve, server_context

__all__ = ["Service", "run_loop"]

T = TypeVar("T")

_ADMIN_HEAD = 64 * 1024  # a browser sends the cookies of every port of localhost
# aiohttp logs each bad request with a traceback and what the client wrote; the client is told, that is enough.
_SILENT = logging.getLogger("sse_proxy.admin.requests")
_SILENT.setLevel(logging.CRITICAL)

_LEAST_S = 1.0  # for the answers that are nearly through when the time is up


class Service:
    """A `Proxy` with its two listeners.

    Attributes:
        site: the listener for clients; None until it runs.
        admin_port: the port of the admin listener; None without one.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self.proxy = Proxy(config)
        self.site: Site | None = None
        self.admin_port: int | None = None
        self._admin: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: an address cannot be listened at, or a file cannot be read.
        """
        config = self._config
        front = FrontServer(self.proxy.handle, max_header=config.max_header, head_timeout=config.head_timeout)
        try:
            tls = server_context(config.tls.cert, config.tls.key) if config.tls is not None else None
            self.site = await serve(front, config.listen, tls=tls)
            if config.admin is not None:
                await self._start_admin(config.admin)
        except OSError as error:
            await self.stop(drain_timeout=0)
            if isinstance(error, socket.gaierror):  # it does not say which name
                where = config.listen if self.site is None else config.admin
                raise OSError(error.errno, error.strerror, str(where)) from error
            raise

    async def _start_admin(self, listen: Listen) -> None:
        app = create_admin_app(self.proxy, host=listen.host)
        self._admin = web.AppRunner(
            app,
            access_log=None,
            logger=_SILENT,
            handle_signals=False,
            max_line_size=_ADMIN_HEAD,
            max_field_size=_ADMIN_HEAD,
        )
        await self._admin.setup()
        site: web.BaseSite
        if listen.path is not None:
            site = web.UnixSite(self._admin, listen.path)
        else:
            site = web.TCPSite(self._admin, listen.host, listen.port)
        await site.start()
        addresses = self._admin.addresses
        if addresses and isinstance(addresses[0], tuple):
            self.admin_port = addresses[0][1]

    async def stop(self, drain_timeout: float) -> None:
        """Drain, then close. Plain requests are answered, and `/readyz` says 503, until all streams are over.

        Args:
            drain_timeout: seconds that running streams and requests may go on.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + drain_timeout
        await self.proxy.drain(drain_timeout)
        if self.site is not None:
            await self.site.stop(max(deadline - loop.time(), min(_LEAST_S, drain_timeout)))
        await self.proxy.close()
        if self._admin is not None:
            await self._admin.cleanup()


def run_loop(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine on uvloop where the platform has it, else on asyncio's own loop."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main())
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())
