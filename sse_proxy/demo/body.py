"""Sends a response the way the knobs ask for: whole, slow, in small packets, or broken at a chosen place."""

from __future__ import annotations

import gzip
from dataclasses import dataclass, field
from itertools import takewhile

from sse_proxy.demo.connection import Connection
from sse_proxy.demo.knobs import MAX_STALL_S, Fail, Knobs
from sse_proxy.demo.messages import Headers, Request, head, problem
from sse_proxy.demo.wire import ERROR_MESSAGE, compact, error_object

__all__ = ["BUSY_MESSAGE", "Script", "perform"]

BUSY_MESSAGE = "Service is busy. Please try again in a moment."

LOGIN_PAGE = b"""<!DOCTYPE html>
<html lang="en"><head><title>Sign in</title></head>
<body><h1>Sign in</h1>
<form method="post"><input name="user"><input name="password" type="password"></form></body></html>
"""
GARBAGE = b"\x15\x03\x03\x00\x02\x02\x46 this is not HTTP\n"
MISSING_BYTES = 1000  # how much longer than the body a lying Content-Length is


@dataclass(frozen=True, slots=True)
class Script:
    """One 200 response before anything goes wrong with it.

    Attributes:
        headers: all but the framing.
        frames: the body, one element a frame; the last one ends a complete answer.
        error: the frame by which the host reports a failure inside the stream.
        after: what a host that does not know its end sends behind the last frame.
        silent_head: False sends the head together with the body: the JSON twin knows nothing before its answer.
    """

    headers: Headers
    frames: list[bytes]
    error: bytes = b""
    after: list[bytes] = field(default_factory=list)
    silent_head: bool = True


async def perform(connection: Connection, request: Request, script: Script, knobs: Knobs, extra: Headers) -> bool:
    """Answer `request` with `script`, as `knobs` ask.

    Args:
        extra: headers that any response of the request carries (CORS, cookie), failures before the stream included.

    Returns:
        Whether the connection may go on to the next request.

    Raises:
        ClientGone: the client left.
    """
    match knobs.fail:
        case Fail.HEAD_STALL:
            await connection.pause(MAX_STALL_S)
            return False
        case Fail.CLOSE:
            await connection.pause(knobs.delay_s)
            return False
        case Fail.GARBAGE:
            await connection.pause(knobs.delay_s)
            await connection.write(GARBAGE)
            return False
    plain = _plain_failure(knobs.fail)
    if plain is not None:
        await connection.pause(knobs.delay_s)
        status, headers, body = plain
        return await connection.respond(request, status, [*headers, *extra], body)
    return await _perform_stream(connection, request, script, knobs, extra)


def _plain_failure(fail: Fail | None) -> tuple[int, Headers, bytes] | None:
    """A response without any stream: status, headers, body; None where the failure is none of these."""
    json_type = [("Content-Type", "application/json; charset=utf-8")]
    match fail:
        case Fail.STATUS_500:
            return 500, *problem(500, "System.Net.Http.HttpRequestException: no model server")
        case Fail.STATUS_503:
            return 503, json_type, compact(error_object(BUSY_MESSAGE)).encode()
        case Fail.STATUS_404:
            return 404, [], b""
        case Fail.HTML:
            return 200, [("Content-Type", "text/html; charset=utf-8")], LOGIN_PAGE
        case Fail.JSON_ERROR:
            return 200, json_type, compact(error_object(ERROR_MESSAGE)).encode()
    return None


async def _perform_stream(
    connection: Connection, request: Request, script: Script, knobs: Knobs, extra: Headers
) -> bool:
    fail = knobs.fail
    frames = _frames(script, knobs)
    headers = [*script.headers, *extra]
    if fail is Fail.GZIP:
        headers.append(("Content-Encoding", "gzip"))
        frames = [gzip.compress(b"".join(frames), mtime=0)]
    chunked = False
    if fail is Fail.LENGTH:
        headers.append(("Content-Length", str(sum(map(len, frames)) + MISSING_BYTES)))
    elif request.minor >= 1:
        chunked = True
        headers.append(("Transfer-Encoding", "chunked"))
    # HTTP/1.0 knows no chunks: there the body ends with the connection.
    ends_whole = fail not in {Fail.RST, Fail.CUT, Fail.STALL, Fail.LENGTH, Fail.NO_HANGUP}
    keep = ends_whole and chunked and request.keep_alive
    headers.append(("Connection", "keep-alive" if keep else "close"))
    opening = head(200, headers)
    if script.silent_head:
        await connection.write(opening)
        opening = b""
    await connection.pause(knobs.delay_s)
    for n, write in enumerate(_writes(frames, knobs)):
        if n and knobs.pace_s:
            await connection.pause(knobs.pace_s)
        for packet in write:
            await connection.write(opening + b"".join(map(_chunk, packet) if chunked else packet))
            opening = b""
    if opening:
        await connection.write(opening)
    if fail is Fail.RST:
        await connection.reset()
    elif fail in {Fail.STALL, Fail.NO_HANGUP}:
        await connection.pause(MAX_STALL_S)
    elif ends_whole and chunked:
        await connection.write(b"0\r\n\r\n")
    return keep


def _frames(script: Script, knobs: Knobs) -> list[bytes]:
    frames = script.frames
    match knobs.fail:
        case Fail.ERROR:
            if knobs.cut is None:
                return [*frames[: max(2, len(frames) // 2)], script.error]
            sizes = [sum(map(len, frames[: n + 1])) for n in range(len(frames))]
            whole = sum(1 for _ in takewhile(lambda size: size <= (knobs.cut or 0), sizes))
            return [*frames[:whole], script.error]
        case Fail.ERROR_FIRST:
            return [script.error]
        case Fail.RST | Fail.CUT | Fail.STALL:
            whole_bytes = sum(map(len, frames))
            return _first(frames, whole_bytes // 2 if knobs.cut is None else knobs.cut)
        case Fail.EOF:
            return frames[:-1]
        case Fail.EMPTY:
            return []
        case Fail.AFTER_MARKER:
            return [*frames, *script.after]
        case Fail.COMMENT_ONLY:
            return [b": waiting for the model\n\n"] * 3
    return frames


def _first(frames: list[bytes], size: int) -> list[bytes]:
    """Return the frames that the first `size` bytes of the body hold, the last of them cut short."""
    kept = []
    for frame in frames:
        if size <= 0:
            break
        kept.append(frame[:size])
        size -= len(frame)
    return kept


def _writes(frames: list[bytes], knobs: Knobs) -> list[list[list[bytes]]]:
    """Return what is written between two pauses: packets, each one write, each a list of HTTP chunks."""
    if knobs.pace_s:
        return [[[part] for part in _cut(frame, knobs.packet)] for frame in frames]
    if knobs.packet:
        return [[[part] for part in _cut(b"".join(frames), knobs.packet)]]
    return [[frames]] if frames else []  # one burst, each frame its own chunk, as Kestrel flushes them


def _cut(data: bytes, size: int | None) -> list[bytes]:
    size = size or len(data) or 1
    return [data[at : at + size] for at in range(0, len(data), size)]


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)
