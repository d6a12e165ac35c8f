"""healthcheck: ready or not, and whatever may stand in the way."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sse_proxy.healthcheck import healthcheck, readyz_url

READY = b'HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n{"ready": true}'
DRAINING = b'HTTP/1.1 503 Service Unavailable\r\n\r\n{"ready": false,\n "reason": "draining"}'


@contextmanager
def answering(answer: bytes, path: Path | None = None) -> Iterator[tuple[str, list[bytes]]]:
    """A listener that reads one request, sends `answer` and closes; yields its address and what it was asked."""
    listener = socket.socket(socket.AF_UNIX if path else socket.AF_INET)
    listener.bind(str(path) if path else ("127.0.0.1", 0))
    listener.listen()
    asked: list[bytes] = []

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(10)
            request = b""
            while not request.endswith(b"\r\n\r\n"):
                piece = connection.recv(4096)
                if not piece:
                    return
                request += piece
            asked.append(request)
            connection.sendall(answer)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"unix:{path}" if path else f"http://127.0.0.1:{listener.getsockname()[1]}/readyz", asked
        thread.join(10)
        assert not thread.is_alive()
    finally:
        listener.close()


def test_a_ready_proxy_is_ready() -> None:
    with answering(READY) as (url, asked):
        assert healthcheck(url) == (True, '200 OK: {"ready": true}')
    assert asked[0].startswith(b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1:")


def test_a_draining_proxy_is_not_and_its_reason_is_one_line() -> None:
    with answering(DRAINING) as (url, _):
        assert healthcheck(url) == (False, '503 Service Unavailable: {"ready": false, "reason": "draining"}')


def test_an_answer_without_a_body_is_its_status() -> None:
    with answering(b"HTTP/1.1 200 OK\r\n\r\n") as (url, _):
        assert healthcheck(url) == (True, "200 OK")


def test_a_unix_socket_is_asked_like_any_listener(tmp_path: Path) -> None:
    with answering(READY, tmp_path / "admin 100%.sock") as (url, asked):
        assert healthcheck(url)[0] is True
    assert b"Host: localhost\r\n" in asked[0]


@pytest.mark.parametrize("answer", [b"", b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 OK\r\n\r\n", b"\xff\x00\r\n"])
def test_what_is_not_http_is_not_ready(answer: bytes) -> None:
    with answering(answer) as (url, _):
        ready, said = healthcheck(url)
    assert not ready
    assert "not HTTP" in said


def test_a_proxy_that_is_not_there_is_not_ready(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        ready, said = healthcheck(f"http://127.0.0.1:{unused.getsockname()[1]}/readyz")
    assert not ready
    assert "refused" in said
    assert healthcheck(f"unix:{tmp_path}/none.sock")[0] is False


def test_a_proxy_that_says_nothing_is_given_up_in_time() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/readyz"
        assert healthcheck(url, 0.05) == (False, f"{url}: no answer within 0.05 s")


def test_a_proxy_that_never_comes_to_an_end_is_given_up_in_time() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    given_up = threading.Event()

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            for _ in range(1000):  # a byte now and then, so that no single read takes too long
                if given_up.wait(0.01):
                    return
                connection.sendall(b"x")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    ready, said = healthcheck(f"http://127.0.0.1:{listener.getsockname()[1]}/readyz", 0.1)
    given_up.set()
    thread.join(10)
    listener.close()
    assert not ready
    assert "no answer within 0.1 s" in said


@pytest.mark.parametrize("url", ["", "https://127.0.0.1:1/readyz", "127.0.0.1:9901", "http://127.0.0.1:99999/readyz"])
def test_an_address_of_another_form_is_refused_in_words(url: str) -> None:
    ready, said = healthcheck(url)
    assert not ready
    assert said.startswith(f"{url}: ")


@pytest.mark.parametrize(
    ("host", "port", "path", "url"),
    [
        ("127.0.0.1", 9901, None, "http://127.0.0.1:9901/readyz"),
        ("0.0.0.0", 9901, None, "http://127.0.0.1:9901/readyz"),
        (None, 9901, None, "http://127.0.0.1:9901/readyz"),
        ("::", 9901, None, "http://[::1]:9901/readyz"),
        ("::1", 9901, None, "http://[::1]:9901/readyz"),
        ("admin.example", 80, None, "http://admin.example:80/readyz"),
        (None, None, "/run/admin.sock", "unix:/run/admin.sock"),
    ],
)
def test_the_address_follows_the_listener(host: str | None, port: int | None, path: str | None, url: str) -> None:
    assert readyz_url(host, port, path) == url


def test_it_starts_without_the_packages_of_the_proxy() -> None:
    code = "import sys, sse_proxy.healthcheck; print(*{'aiohttp', 'asyncio', 'pydantic', 'ssl'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout.split() == []
