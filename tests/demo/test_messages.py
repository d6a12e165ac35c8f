"""Request heads that are taken, and those that are not."""

import json

import pytest

from sse_proxy.demo.messages import BadRequest, head, parse_head, problem


def test_a_request() -> None:
    request = parse_head(b"POST /a%20b?x=%2F&y HTTP/1.1\r\nHost: h\r\nX-A: 1\r\nx-a:2 \r\nConnection: Keep-Alive")
    assert (request.method, request.path, request.query, request.minor) == ("POST", "/a b", "x=%2F&y", 1)
    assert request.header("x-a") == "1, 2"
    assert request.header("x-b") is None
    assert request.keep_alive


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("GET http://other.example:80/a?b HTTP/1.1", "/a"),
        ("GET http://other.example HTTP/1.1", "/"),
        ("GET //evil HTTP/1.1", "//evil"),
        ("OPTIONS * HTTP/1.1", "*"),
    ],
)
def test_targets(line: str, path: str) -> None:
    assert parse_head(f"{line}\r\nHost: h".encode()).path == path


@pytest.mark.parametrize(
    ("raw", "keep"),
    [
        (b"GET / HTTP/1.1\r\nHost: h", True),
        (b"GET / HTTP/1.1\r\nHost: h\r\nConnection: x, close", False),
        (b"GET / HTTP/1.0", False),
        (b"GET / HTTP/1.0\r\nConnection: keep-alive", True),
    ],
)
def test_keep_alive(raw: bytes, keep: bool) -> None:
    assert parse_head(raw).keep_alive is keep


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"", 400),
        (b"GET /", 400),
        (b"GET / b HTTP/1.1\r\nHost: h", 400),
        (b"GET /\xff HTTP/1.1\r\nHost: h", 400),
        (b"GET / HTTP/2.0\r\nHost: h", 505),
        (b"GET / HTTP/1.1", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\n folded", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nName : b", 400),
        (b"GET / HTTP/1.1\r\nHost: a\nX: b", 400),
        (b"GET / HTTP/1.1\r\nHost: a" + b"\r\nX: b" * 100, 431),
    ],
)
def test_refused_heads(raw: bytes, status: int) -> None:
    with pytest.raises(BadRequest) as caught:
        parse_head(raw)
    assert caught.value.status == status


def test_a_response_head() -> None:
    lines = head(404, [("X-A", "b"), ("X-A", "c")]).split(b"\r\n")
    assert lines[0] == b"HTTP/1.1 404 Not Found"
    assert lines[-4:] == [b"X-A: b", b"X-A: c", b"", b""]


def test_a_problem() -> None:
    headers, body = problem(400, "why")
    assert headers == [("Content-Type", "application/problem+json")]
    assert json.loads(body) == {"title": "Bad Request", "status": 400, "detail": "why"}
