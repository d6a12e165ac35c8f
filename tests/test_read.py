"""`sse-proxy read`: a stream shown as it is, as each reader gets it, and as the proxy would make it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes import End, ScriptedUpstream, chunk, free_port, last_chunk, stream_head

WIRES = Path(__file__).parent / "vectors" / "wire"
WIRE = WIRES / "voicings.743.gaapi.sse"


def run(*arguments: str, stdin: bytes = b"") -> tuple[int, str, str]:
    """Run the command; return its exit status, stdout and stderr."""
    done = subprocess.run(
        [sys.executable, "-m", "sse_proxy", "read", *arguments],
        input=stdin,
        capture_output=True,
        timeout=60,
        env={**os.environ, "COLUMNS": "160", "PYTHONIOENCODING": "utf-8"},
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_a_file_is_shown_three_ways() -> None:
    status, out, err = run(str(WIRE))
    assert (status, err) == (0, "")
    raw, _, rest = out.partition("what the proxy makes of it")
    repaired, _, readers = rest.partition("what each reader gets")
    assert "- **Cmaj7** `3-0-x-2-3-x` (guitar, score 0.369)⏎" in raw
    assert "HTML standard" in readers
    assert "ga-client chatService" in readers
    assert "data: - **Cmaj7** `3-0-x-2-3-x` (guitar, score 0.369)\n" in repaired
    assert "single-prefix" in readers


def test_carriage_returns_are_visible() -> None:
    _, out, _ = run(str(WIRES / "windows.743.gaapi.sse"))
    assert "for each chord:␍⏎" in out


def test_stdin_is_a_file_named_minus_and_options_are_those_of_fix() -> None:
    status, out, _ = run("-", "--dialect", "lines", "--payload", "json", "--done", "", stdin=b'{"a":1}\n{"b":2}\n')
    assert status == 0
    assert 'data: {"a":1}\n\ndata: {"b":2}\n' in out


def test_an_incomplete_stream_is_told_by_the_exit_status() -> None:
    status, out, err = run("-", stdin=WIRE.read_bytes()[:200])
    assert (status, err) == (1, "")
    assert '"code":"upstream_incomplete"' in out


@pytest.mark.parametrize("where", ["no/such/file", "http://127.0.0.1:{port}/x", "http://"])
def test_what_cannot_be_read_is_one_line_and_exit_2(where: str) -> None:
    status, out, err = run(where.format(port=free_port()))
    assert (status, out) == (2, "")
    assert err.count("\n") == 1
    assert err.startswith("sse-proxy: ")


def test_a_header_without_colon_and_an_unknown_option_are_refused() -> None:
    status, _, err = run("x", "-H", "Nonsense")
    assert status == 2
    assert "allowed: 'Name: value'" in err
    status, _, err = run("x", "--dilect", "auto")
    assert status == 2
    assert "--dialect" in err


async def test_a_url_is_posted_to_and_a_cut_is_seen() -> None:
    body = WIRE.read_bytes()
    whole = (stream_head(), chunk(body), last_chunk)
    cut = (stream_head(), chunk(body[:-30]), End())
    async with ScriptedUpstream(whole, cut) as upstream:
        url = f"http://127.0.0.1:{upstream.port}/api/chatbot/chat/stream"
        arguments = (url, "--data", '{"message":"hi"}', "-H", "Cookie: a=b")
        status, out, _ = await asyncio.to_thread(run, *arguments)
        assert status == 0
        assert "200 OK, text/event-stream" in out
        request = await upstream.request(0)
        assert (request.method, request.body) == ("POST", b'{"message":"hi"}')
        assert ("Cookie", "a=b") in request.headers
        status, out, _ = await asyncio.to_thread(run, *arguments)
        assert status == 1
        assert "the stream broke off" in out
        assert '"code":"upstream_truncated"' in out
