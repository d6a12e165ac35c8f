"""The listeners around a proxy."""

from __future__ import annotations

import logging

import pytest

from sse_proxy.server.service import Service
from tests.fakes import free_port, parse_response, raw_request
from tests.server.proxied import make_config


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (
            b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nCookie: " + b"c" * 30_000 + b"\r\nConnection: close\r\n\r\n",
            200,
        ),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nbad header\r\n\r\n", 400),
        (b"GET http://[ HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"\x16\x03\x01 nonsense\r\n\r\n", 400),
    ],
)
async def test_the_admin_listener_takes_a_browsers_cookies_and_logs_no_traceback(
    request_bytes: bytes, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    admin = free_port()
    service = Service(make_config("http://127.0.0.1:9", top={"admin": f"127.0.0.1:{admin}"}))
    await service.start()
    try:
        assert service.admin_port == admin
        answer = parse_response(await raw_request(admin, request_bytes))
        assert answer[0] == status
    finally:
        await service.stop(drain_timeout=0)
    assert [record for record in caplog.records if record.exc_info] == []
