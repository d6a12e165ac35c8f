"""`sse-proxy serve`: start, signals, reload, exit status."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from pathlib import Path

from sse_proxy.config import Config, load_config
from sse_proxy.errors import ConfigError
from sse_proxy.server.app import Proxy
from sse_proxy.server.log import set_up_logging
from sse_proxy.server.service import Service, run_loop

__all__ = ["serve_forever"]

logger = logging.getLogger(__name__)

_FIXED = ("listen", "admin", "tls", "head_timeout", "max_header", "log")  # need a restart


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
        task = loop.create_task(_reload(service.proxy, source, config))
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


async def _reload(proxy: Proxy, source: Path | None, started: Config) -> None:
    """Take the file's new settings; a bad one is refused, and all stays as it was.

    Args:
        started: what the listeners were opened by.
    """
    if source is None:
        logger.warning("SIGHUP: there is no configuration file to read again")
        return
    try:
        config = await asyncio.to_thread(load_config, source, os.environ)
        await proxy.reload(config)
    except ConfigError as error:
        for problem in error.problems:
            logger.error("reload refused: %s", problem)
        return
    except OSError as error:
        logger.error("reload refused: %s", _told(error))
        return
    changed = [name for name in _FIXED if getattr(config, name) != getattr(started, name)]
    if changed:
        logger.warning("reloaded; what takes effect at a restart only: %s", ", ".join(changed))
    else:
        logger.info("reloaded %s", source)


def _told(error: OSError) -> str:
    return " ".join(str(part) for part in (error.strerror or error, error.filename) if part)
