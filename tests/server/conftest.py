"""Streams are tested on both event loops: uvloop is what the proxy runs on where there is one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop

# Where the loop's own ways matter: transports, ends of connections, timers.
BOTH = {"test_stream", "test_stream_failures", "test_fault_matrix", "test_clocks", "test_client_gone", "test_done"}


@pytest.hookimpl(optionalhook=True)  # pytest-asyncio before 1.4 does not know it, and runs asyncio alone
def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    loops: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
    if item.path.stem in BOTH:
        loops["uvloop"] = uvloop.new_event_loop
    return loops
