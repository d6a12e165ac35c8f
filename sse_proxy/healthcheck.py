"""Ask the proxy's admin listener whether it is ready: the `healthcheck` command, for containers.

A container runs it every few seconds, so it must start fast: sockets only, none of the packages of the proxy itself.
"""

from __future__ import annotations

import socket
import time
from urllib.parse import urlsplit

__all__ = ["healthcheck", "readyz_url"]

_MAX_ANSWER = 64 * 1024
_WILDCARDS = {None: "127.0.0.1", "": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}


def readyz_url(host: str | None, port: int | None, path: str | None = None) -> str:
    """Return the address of `/readyz` on an admin listener, for `healthcheck`.

    Args:
        host, port: where it listens; every interface (`0.0.0.0`, `::`) is asked on the loopback one.
        path: its unix socket, in place of both.
    """
    if path is not None:
        return f"unix:{path}"
    host = _WILDCARDS.get(host, host) or ""
    return f"http://[{host}]:{port}/readyz" if ":" in host else f"http://{host}:{port}/readyz"


def healthcheck(url: str, timeout_s: float = 3.0) -> tuple[bool, str]:
    """Return whether the proxy at `url` is ready, and one line that says what it answered or what went wrong.

    Never raises for what the network does, and asks no HTTP proxy of the environment.

    Args:
        url: `http://HOST:PORT/readyz`, or `unix:/PATH` for `/readyz` on a unix socket.
        timeout_s: longest time for the whole exchange, in seconds.
    """
    deadline = time.monotonic() + timeout_s
    try:
        with _connect(url, timeout_s) as connection:
            answer = _exchange(connection, url, deadline)
    except TimeoutError:
        return False, f"{url}: no answer within {timeout_s:g} s"
    except (OSError, ValueError) as error:
        return False, f"{url}: {error}"
    head, _, body = answer.partition(b"\r\n\r\n")
    status_line, _, _ = head.partition(b"\r\n")
    version, _, status = status_line.partition(b" ")
    if not version.startswith(b"HTTP/1.") or not status[:3].isdigit():
        return False, f"{url}: the answer is not HTTP: is this the admin listener?"
    text = " ".join(body.decode("utf-8", "replace").split())[:200]
    return status[:3] == b"200", f"{status.decode('latin-1').strip()}: {text}" if text else status.decode("latin-1")


def _connect(url: str, timeout_s: float) -> socket.socket:
    """Connect to the listener.

    Raises:
        OSError: it could not be reached.
        ValueError: `url` is none of the two forms.
    """
    if url.startswith("unix:"):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(timeout_s)
            connection.connect(url.removeprefix("unix:"))
        except BaseException:
            connection.close()
            raise
        return connection
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        raise ValueError("not an address of the form http://HOST:PORT/readyz or unix:/PATH")
    return socket.create_connection((parts.hostname, parts.port or 80), timeout_s)


def _exchange(connection: socket.socket, url: str, deadline: float) -> bytes:
    """Send the request and return what comes until the listener closes (RFC 9112 section 9.6), head included.

    Raises:
        TimeoutError: the deadline passed.
        OSError: the connection broke.
    """
    target, authority = "/readyz", "localhost"
    if not url.startswith("unix:"):
        parts = urlsplit(url)
        target, authority = parts.path or "/readyz", parts.netloc.rpartition("@")[2]
    connection.sendall(f"GET {target} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\r\n".encode("ascii"))
    answer = bytearray()
    while len(answer) < _MAX_ANSWER:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        connection.settimeout(left)
        piece = connection.recv(16384)
        if not piece:
            break
        answer += piece
    return bytes(answer)
