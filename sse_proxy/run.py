"""`sse-proxy serve`: logging, listeners and signals around a `Proxy`."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from aiohttp import web

from sse_proxy.config import Config, Listen, LogSettings, load_config
from sse_proxy.errors import ConfigError
from sse_proxy.server.admin import create_admin_app
from sse_proxy.server.app import Proxy
from sse_proxy.server.http import FrontServer, Site, serve, server_context

__all__ = ["JsonFormatter", "Service", "run_loop", "serve_forever", "set_up_logging"]

logger = logging.getLogger(__name__)
T = TypeVar("T")

_FIXED = ("listen", "admin", "tls", "head_timeout", "max_header", "log")  # need a restart


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, message, and the fields a line was given."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as JSON text."""
        entry: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        fields = getattr(record, "fields", None)
        if fields is not None:
            entry["message"] = record.getMessage().partition(" ")[0]
            entry.update(fields)
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False, default=str)


def set_up_logging(settings: LogSettings) -> None:
    """Send the log to stderr, in the configured form. At debug level alone does it hold tracebacks."""
    handler = logging.StreamHandler(sys.stderr)
    if settings.format == "json":
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.level.upper())
    logging.getLogger("aiohttp").setLevel(logging.WARNING)
    logging.getLogger("asyncio").setLevel(logging.WARNING)


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
        tls = server_context(config.tls.cert, config.tls.key) if config.tls is not None else None
        try:
            self.site = await serve(front, config.listen, tls=tls)
            if config.admin is not None:
                await self._start_admin(config.admin)
        except OSError:
            await self.stop(drain_timeout=0)
            raise

    async def _start_admin(self, listen: Listen) -> None:
        app = create_admin_app(self.proxy, host=listen.host)
        self._admin = web.AppRunner(app, access_log=None, handle_signals=False)
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
        """Drain, then close. Plain requests are answered, and `/readyz` says 503, until all streams are over."""
        await self.proxy.drain(drain_timeout)
        if self.site is not None:
            await self.site.stop(min(1.0, drain_timeout))
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


def serve_forever(config: Config, source: Path | None) -> int:
    """Serve until SIGTERM or SIGINT; SIGHUP reads `source` again.

    Returns:
        the exit status: 0 after an orderly end, 1 where a listener could not be opened.
    """
    set_up_logging(config.log)
    return run_loop(lambda: _serve(config, source))


async def _serve(config: Config, source: Path | None) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    try:
        service = Service(config)
        await service.start()
    except OSError as error:
        logger.error("cannot start: %s", _told(error))
        return 1
    reloads: set[asyncio.Task[None]] = set()

    def reload() -> None:
        task = loop.create_task(_reload(service.proxy, source))
        reloads.add(task)
        task.add_done_callback(reloads.discard)

    handlers = {signal.SIGTERM: stop.set, signal.SIGINT: stop.set}
    if hasattr(signal, "SIGHUP"):
        handlers[signal.SIGHUP] = reload
    for number, handler in handlers.items():
        try:
            loop.add_signal_handler(number, handler)
        except NotImplementedError:  # Windows
            signal.signal(number, lambda *_args, call=handler: loop.call_soon_threadsafe(call))
    names = ", ".join(f"{upstream.name} at {upstream.url}" for upstream in config.upstreams)
    admin = f", admin on {config.admin}" if config.admin is not None else ""
    logger.info("listening on %s%s, for %s", config.listen, admin, names)
    await stop.wait()
    logger.info("stopping: %d streams run, waiting %g s for them", service.proxy.registry.active, config.drain_timeout)
    await service.stop(service.proxy.config.drain_timeout)
    logger.info("stopped")
    return 0


async def _reload(proxy: Proxy, source: Path | None) -> None:
    """Take the file's new settings; a bad one is refused, and all stays as it was."""
    if source is None:
        logger.warning("SIGHUP: there is no configuration file to read again")
        return
    try:
        config = await asyncio.to_thread(load_config, source, os.environ)
        before = proxy.config
        await proxy.reload(config)
    except ConfigError as error:
        for problem in error.problems:
            logger.error("reload refused: %s", problem)
        return
    except OSError as error:
        logger.error("reload refused: %s", _told(error))
        return
    changed = [name for name in _FIXED if getattr(config, name) != getattr(before, name)]
    if changed:
        logger.warning("reloaded, but %s need a restart", ", ".join(changed))
    else:
        logger.info("reloaded %s", source)


def _told(error: OSError) -> str:
    return " ".join(str(part) for part in (error.strerror or error, error.filename) if part)
