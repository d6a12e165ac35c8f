"""Bodies on a stream route that are not a stream: held until they can be judged, then a verdict (design section 6).

What is held is bounded in size, and in time where only the log waits for it. Nothing here writes or closes anything.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from sse_proxy.config import StreamSettings
from sse_proxy.core.control import json_object, json_prefix
from sse_proxy.core.head import host_message
from sse_proxy.core.options import Payload, Reader, Split
from sse_proxy.core.pipeline import Pipeline
from sse_proxy.errors import FailureCode
from sse_proxy.server.disposition import inflate_for, media_type
from sse_proxy.server.headers import Headers, end_to_end
from sse_proxy.server.json_source import TwinAnswer, TwinFailure, read_twin
from sse_proxy.server.upstream import ResponseHead

__all__ = ["Failed", "HeldBody", "PassOn", "Verdict", "failure_of", "json_of", "refusal_of", "twin_of"]

COLLECT_BYTES = 64 * 1024  # of a failure's body: enough for its message, and for the log
COLLECT_S = 1.0
JSON_BYTES = 1024 * 1024  # of a 200 JSON that may hold an error
_DETAIL = 2048
_FIELDS = (b"data:", b"event:", b"id:", b"retry:")


@dataclass(frozen=True, slots=True)
class Failed:
    """The stream fails; see `Pipeline.fail`."""

    code: FailureCode
    status: int | None = None
    retryable: bool | None = None
    message: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class PassOn:
    """The answer is none of our business.

    Attributes:
        headers, body: what takes the place of the upstream's, the body whole; None for the very bytes that came.
    """

    headers: Headers | None = None
    body: bytes | None = None


Verdict: TypeAlias = Failed | PassOn | TwinAnswer


@dataclass(slots=True)
class HeldBody:
    """The body of one response, while it is held.

    Attributes:
        judge: says what it is; its argument tells whether the body is whole.
        limit: most bytes that are held; beyond, it is judged by what there is.
        until: when it is judged at the latest, on the wheel's clock; infinity for no limit.
        for_the_log: the verdict is certain already: a body that breaks off makes no other.
    """

    head: ResponseHead
    judge: Callable[[HeldBody, bool], Verdict]
    limit: int
    until: float
    for_the_log: bool = False
    data: bytearray = field(default_factory=bytearray)

    def text(self) -> str:
        """Return what is held as text, its content coding undone where that can be."""
        readable, inflate = inflate_for(self.head)
        data = bytes(self.data)
        if readable and inflate is not None:
            try:
                data = inflate.decompress(data, COLLECT_BYTES + JSON_BYTES)
            except zlib.error:
                return "(a content coding that cannot be read)"
        return data.decode("utf-8", "replace")


def failure_of(held: HeldBody, whole: bool) -> Verdict:
    """The head alone makes it a failure; the body is for the log, and may hold a message that can be shown."""
    head, text = held.head, held.text()
    value = json_prefix(text)
    message = (host_message(value) if value is not None else None) or ""
    detail = f"{head.status} {media_type(head) or 'no type'}: {text[:_DETAIL]}"
    if head.status in (204, 205):
        return Failed(FailureCode.UPSTREAM_EMPTY, detail=detail)
    if head.status < 300:
        return Failed(FailureCode.UPSTREAM_NOT_EVENT_STREAM, detail=detail)
    # A redirect or a refusal that comes behind our own head will be the same when asked again.
    retryable = None if head.status >= 500 else False
    return Failed(FailureCode.UPSTREAM_HTTP_ERROR, head.status, retryable, message, detail)


def json_of(held: HeldBody, whole: bool) -> Verdict:
    """A 200 JSON on a stream route: an error, or an answer to pass on."""
    value = json_object(held.text()) if whole else None
    message = host_message(value) if value is not None else None
    if message is not None:
        return Failed(FailureCode.UPSTREAM_ERROR, message=message, detail=held.text()[:_DETAIL])
    return PassOn()


def refusal_of(held: HeldBody, whole: bool, *, settings: StreamSettings) -> Verdict:
    """A 4xx whose body is framed as an event, as the host does for an empty message: framed rightly."""
    body = bytes(held.data)
    if not whole or not body.startswith(_FIELDS):
        return PassOn()
    options = replace(
        settings.options(),
        payload=Payload.OPAQUE,
        split=Split.NONE,
        reader=Reader.STANDARD,
        done=(),
        require_done=False,
        own_events=False,
    )
    pipeline = Pipeline(options)
    reframed = pipeline.feed(body) + pipeline.close()
    kept = [pair for pair in end_to_end(held.head.raw_headers) if pair[0].lower() not in ("content-type", "etag")]
    framing = [("Content-Type", "text/event-stream; charset=utf-8"), ("Content-Length", str(len(reframed)))]
    return PassOn([*kept, *framing], reframed)


def twin_of(held: HeldBody, whole: bool, *, settings: StreamSettings) -> Verdict:
    """The JSON twin's reply: the answer to be written as a stream."""
    if not whole:
        detail = f"the reply of the JSON twin has over {len(held.data)} bytes (max_event)"
        return Failed(FailureCode.EVENT_TOO_LARGE, detail=detail)
    readable, inflate = inflate_for(held.head)
    if not readable:
        return Failed(FailureCode.UPSTREAM_BAD_RESPONSE, detail="a content coding that cannot be read")
    body = bytes(held.data)
    if inflate is not None:
        body = inflate.decompress(body, settings.max_event + 1)
        if len(body) > settings.max_event:
            return Failed(FailureCode.EVENT_TOO_LARGE, detail="the reply of the JSON twin is over max_event")
        if not inflate.eof:
            return Failed(FailureCode.UPSTREAM_TRUNCATED, detail="the content coding ends early")
    reply = read_twin(body, settings.json)
    if isinstance(reply, TwinFailure):
        return Failed(reply.code, message=reply.message, detail=reply.detail)
    return reply
