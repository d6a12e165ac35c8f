"""A running legacy host for the tests of this folder."""

from collections.abc import AsyncIterator

import pytest

from sse_proxy.demo.host import LegacyHost


@pytest.fixture
async def legacy_host() -> AsyncIterator[LegacyHost]:
    host = LegacyHost()
    await host.start()
    try:
        yield host
    finally:
        await host.stop()


@pytest.fixture
def port(legacy_host: LegacyHost) -> int:
    return int(legacy_host.url.rsplit(":", 1)[1])
