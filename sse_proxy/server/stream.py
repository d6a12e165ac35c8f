"""One event-stream request, start to end.

The upstream pushes its head, bytes and end into a `StreamRun`; that feeds the pipeline and writes what comes out, one
write for each read. One task sends the request; no task, queue or timer belongs to an event. All clocks are looked at
when the shared wheel comes round.
"""

from __future__ import annotations

import asyncio
import json
import logging
import zlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from email.utils import formatdate
from ipaddress import IPv4Network, IPv6Network
from typing import Protocol

from aiohttp import web

from sse_proxy.config import Route, StreamSettings, Upstream
from sse_proxy.core.control import json_object, json_prefix
from sse_proxy.core.head import host_message
from sse_proxy.core.keepalive import KeepAlive
from sse_proxy.core.ledger import Outcome
from sse_proxy.core.options import Payload, Reader, Split
from sse_proxy.core.pipeline import Pipeline
from sse_proxy.errors import AdmissionRefused, FailureCode, UpstreamBadResponse, UpstreamError
from sse_proxy.metrics import UNDECLARED, Metrics
from sse_proxy.server.admission import Admission
from sse_proxy.server.cors import CorsMemory
from sse_proxy.server.disposition import Disposition, Inflate, disposition, inflate_for, media_type, stream_headers
from sse_proxy.server.downstream import StreamWriter
from sse_proxy.server.exact import BadHead, ExactResponse
from sse_proxy.server.headers import Headers, end_to_end, peer_address
from sse_proxy.server.json_source import TwinAnswer, read_twin
from sse_proxy.server.problem import RequestRefused, upstream_problem
from sse_proxy.server.registry import Recorder, StreamEntry, StreamRegistry, StreamState
from sse_proxy.server.transcript import Transcript
from sse_proxy.server.upstream import ResponseHead, UpstreamAddress
from sse_proxy.server.wheel import TimerWheel

__all__ = ["Services", "Source", "StreamRoute", "StreamRun", "refuse_stream"]

logger = logging.getLogger(__name__)

_COLLECT_BYTES = 64 * 1024  # of a failure's body: enough for its message, and for the log
_COLLECT_S = 1.0
_JSON_BYTES = 1024 * 1024  # of a 200 JSON that may hold an error
_DRAIN_BYTES = 64 * 1024
_DRAIN_S = 1.0
_FIELDS = (b"data:", b"event:", b"id:", b"retry:")


@dataclass(eq=False)
class Services:
    """What all streams of a proxy share."""

    wheel: TimerWheel
    metrics: Metrics
    registry: StreamRegistry
    admission: Admission
    transcript: Transcript | None = None
    trusted_proxies: tuple[IPv4Network | IPv6Network, ...] = ()
    max_header: int = 64 * 1024
    body_timeout: float | None = 60.0
    account: Callable[[StreamRun], None] = lambda run: None  # hears of each stream that is over
    runs: set[StreamRun] = field(default_factory=set)  # all that have not ended, those being drained among them


class StreamRoute:
    """A declared route, or the undeclared streams, of one upstream: what does not change from request to request."""

    def __init__(self, upstream: Upstream, address: UpstreamAddress, route: Route | None) -> None:
        self.upstream = upstream
        self.address = address
        self.name = UNDECLARED if route is None else route.path
        settings = upstream.undeclared if route is None else route.stream
        assert settings is not None
        self.settings: StreamSettings = settings
        self.observe = upstream.mode == "observe"
        self.cors = CorsMemory(settings.cors)


class Source(Protocol):
    """Where a stream's bytes come from, once it is open: an exchange of our own, or aiohttp's response."""

    def pause_reading(self) -> None:
        """Let nothing more come."""

    def resume_reading(self) -> None:
        """Go on."""

    def close(self) -> None:
        """Break off at once; nothing more comes."""


class StreamRun:
    """One stream, from the request to its last byte; a sink of the upstream and an entry of the wheel.

    Args:
        ask: opens the upstream and sends it the request; its faults are `UpstreamError` and `RequestRefused`.
    """

    wheel_slot: int | None = None

    def __init__(self, request: web.BaseRequest, route: StreamRoute, services: Services, request_id: str) -> None:
        settings = route.settings
        self.request = self._request = request
        self.route = self._route = route
        self._settings = settings
        self._services = services
        self.request_id = self._request_id = request_id
        self._origin = request.headers.get("Origin", "")
        self._now = services.wheel.time
        self._started = now = self._now()
        options = settings.options(request_id=request_id, method=request.method)
        keep = services.transcript is not None
        self.pipeline = Pipeline(options, started_at=now, keep_answer=keep)
        self.entry: StreamEntry = services.registry.register(
            self.pipeline.ledger,
            request_id=request_id,
            upstream=route.upstream.name,
            route=route.name,
            peer=peer_address(request) or "unix",
            method=request.method,
        )
        self._recorder: Recorder | None = services.registry.tap(self.entry)
        self._writer = StreamWriter(request, self._writable)
        self._source: Source | None = None
        self._task: asyncio.Task[None] | None = None
        self.request_body: bytes | None = None  # kept for the transcript, where it is small
        # What is told to the client, once it is known
        self._response: ExactResponse | None = None
        self._raise: Exception | None = None  # answered by the front, in place of a response
        self._turn = asyncio.Event()  # a head, the end or an exception waits for `run()`
        self._over = False  # nothing more is written
        self._abandoned = False
        self._settled = False
        self.status = 0  # of the response; 0 while there is none
        # What the upstream's body is
        self._passing = False  # not repaired: passed on as it comes
        self._collecting: bytearray | None = None
        self._collect_limit = 0
        self._judge: Callable[[], None] | None = None
        self._inflate: Inflate | None = None
        self._head: ResponseHead | None = None
        self._ended = False  # the upstream has ended
        # Clocks
        self._keepalive = KeepAlive(settings.keepalive, now)
        self._last_byte = self._last_event = now
        self._events_seen = 0
        self._paused_at: float | None = None
        self._collect_until: float | None = None
        self._drain_until: float | None = None
        self._drained = 0

    @property
    def expects_text(self) -> bool:
        """Whether a complete stream without any text is worth a warning."""
        return self._settings.payload is Payload.TEXT and not self._route.observe

    # The request's own coroutine -----------------------------------------------------------------------------------

    async def run(self, ask: Callable[[StreamRun], Awaitable[None]]) -> web.StreamResponse:
        """Answer the request.

        Raises:
            RequestRefused: the request itself is at fault, and nothing was answered yet.
        """
        self._services.runs.add(self)
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(self._asking(ask))
        self._services.wheel.schedule(self, self._next_due())
        try:
            await self._turn.wait()
            if self._raise is not None:
                raise self._raise
            assert self._response is not None
            try:
                await self._writer.start(self._response)
            except BadHead as error:
                raise UpstreamBadResponse(str(error)) from error
            if self._writer.paused:
                self._pause()
            while not self._over:
                self._turn.clear()
                await self._turn.wait()
            return self._writer.abandon() if self._abandoned else await self._writer.end()
        except asyncio.CancelledError:
            self._client_gone()
            raise
        finally:
            await self._stop_asking()
            if not self._over:
                self._end(None)
            if self._drain_until is None:
                self._settle()

    async def _asking(self, ask: Callable[[StreamRun], Awaitable[None]]) -> None:
        try:
            await ask(self)
        except UpstreamError as error:
            self.on_end(error)
        except RequestRefused as refused:
            self._refuse(refused)
        except Exception as error:
            self._fault(error)

    async def _stop_asking(self) -> None:
        task = self._task
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait([task])

    def _refuse(self, error: Exception) -> None:
        """Let the front answer for an exception; or, when our head is out, end the connection."""
        if self._over:
            return
        if self._response is None:
            self._raise = error
        self._abandoned = True
        self._end(Outcome.PASSED_ON)

    def opened(self, source: Source) -> None:
        """Take note of the open upstream; where the stream is over already, it is closed."""
        if self._over and self._drain_until is None:
            source.close()
            return
        self._source = source
        self._last_byte = self._now()

    def upload_moved(self) -> None:
        """The request's body moves: the upstream is not idle, it is being asked."""
        self._last_byte = self._now()

    # The upstream's side -------------------------------------------------------------------------------------------

    def on_head(self, head: ResponseHead) -> None:
        """Take the upstream's head and decide what its body is."""
        try:
            self._take_head(head)
        except Exception as error:
            self._fault(error)

    def on_body(self, data: bytes) -> None:
        """Take the body bytes of one read."""
        now = self._last_byte = self._now()
        if self._over:
            self._drain(data)
            return
        try:
            self._take_body(data, now)
        except zlib.error as error:
            self._fail(FailureCode.UPSTREAM_TRUNCATED, detail=f"content coding: {error}")
        except Exception as error:
            self._fault(error)

    def on_end(self, error: UpstreamError | None) -> None:
        """Take the upstream's end; None: complete, as far as its framing tells."""
        self._ended = True
        if self._over:
            self._settle()
            return
        try:
            self._take_end(error)
        except Exception as fault:
            self._fault(fault)

    def _take_head(self, head: ResponseHead) -> None:
        self._last_byte = self._now()
        self._head = head
        if self._over:
            return
        self._route.cors.learn(self._origin, head.headers)
        if self._route.observe:
            self._pass_on(head)
            return
        twin = self._settings.source == "json"
        kind = disposition(head, self._settings.dialect)
        if twin and head.status == 200:
            self._collect(self._deliver_twin, self._settings.max_event)
        elif kind is Disposition.STREAM:
            readable, self._inflate = inflate_for(head)
            if not readable:
                logger.warning(
                    "stream %s: content coding %r cannot be read", self._request_id, head.get("content-encoding")
                )
            if readable:
                self._begin_stream(head)
            elif self._response is None:
                self._pass_on(head)
            else:
                self._fail(FailureCode.UPSTREAM_NOT_EVENT_STREAM, detail="a content coding that cannot be read")
        elif kind is Disposition.JSON:
            self._collect(self._judge_json, _JSON_BYTES)
        elif kind is Disposition.PASS_ON and self._response is None:
            if head.status >= 400 and media_type(head) in ("", "text/event-stream"):
                self._collect(self._pass_reframed, _COLLECT_BYTES, _COLLECT_S)
            else:
                self._pass_on(head)
        else:
            self._collect(self._fail_by_head, _COLLECT_BYTES, _COLLECT_S)

    def _take_body(self, data: bytes, now: float) -> None:
        if self._recorder is not None:
            self._recorder.raw.add(data)
        if self._collecting is not None:
            self._collecting += data
            if len(self._collecting) >= self._collect_limit:
                self._collected()
            return
        if self._passing:
            self._pass_bytes(data, now)
            return
        if self._inflate is not None:
            data = self._inflate.decompress(data)
        out = self.pipeline.feed(data, now)
        frames = self.pipeline.ledger.frames_in
        if frames != self._events_seen:
            self._events_seen = frames
            self._last_event = now
        if out:
            self._write(out, now)
        if self.pipeline.finished:
            self._end(self.pipeline.ledger.outcome)
        else:
            self._rearm()

    def _take_end(self, error: UpstreamError | None) -> None:
        if error is not None and self._passing:
            self._cut(error)
        elif self._collecting is not None and (error is None or self._judge == self._fail_by_head):
            self._collected()
        elif error is not None:
            self._fail(error.code, detail=str(error))
        elif self._passing:
            if self._route.observe:
                self.pipeline.close(self._now())
            self._end(Outcome.PASSED_ON)
        elif self._inflate is not None and not getattr(self._inflate, "eof", True):
            self._fail(FailureCode.UPSTREAM_TRUNCATED, detail="the content coding ends early")
        else:
            self._write(self.pipeline.close(self._now()), self._now())
            self._end(self.pipeline.ledger.outcome)

    # Bodies that are not a stream ----------------------------------------------------------------------------------

    def _collect(self, judge: Callable[[], None], limit: int, within_s: float | None = None) -> None:
        """Hold the body until its end, `limit` bytes, or `within_s` seconds; then judge it."""
        self._collecting = bytearray()
        self._judge = judge
        self._collect_limit = limit
        if within_s is not None:
            self._collect_until = self._now() + within_s
            self._services.wheel.schedule(self, self._collect_until)

    def _collected(self) -> None:
        judge, self._judge = self._judge, None
        self._collect_until = None
        assert judge is not None
        judge()
        self._collecting = None

    def _body_text(self) -> str:
        return bytes(self._collecting or b"").decode("utf-8", "replace")

    def _fail_by_head(self) -> None:
        """The head alone makes it a failure; the body is for the log, and may hold a message."""
        head = self._head
        assert head is not None
        text = self._body_text()
        value = json_prefix(text)
        message = host_message(value) if value is not None else None
        detail = f"{head.status} {media_type(head) or 'no type'}: {text[:2048]}"
        if head.status == 200:
            self._fail(FailureCode.UPSTREAM_NOT_EVENT_STREAM, detail=detail)
        elif head.status == 204:
            self._fail(FailureCode.UPSTREAM_EMPTY, detail=detail)
        else:
            retryable = None if head.status >= 500 else False
            code = FailureCode.UPSTREAM_HTTP_ERROR
            self._fail(code, status=head.status, retryable=retryable, message=message or "", detail=detail)

    def _judge_json(self) -> None:
        """A 200 JSON on a stream route: an error, or an answer that is none of our business."""
        value = json_object(self._body_text()) if self._ended or len(self._collecting or b"") < _JSON_BYTES else None
        message = host_message(value) if value is not None else None
        if message is not None:
            self._fail(FailureCode.UPSTREAM_ERROR, message=message, detail=self._body_text()[:2048])
        elif self._response is not None:
            self._fail(FailureCode.UPSTREAM_NOT_EVENT_STREAM, detail=self._body_text()[:2048])
        else:
            self._pass_collected()

    def _deliver_twin(self) -> None:
        """The JSON twin's reply: write the stream ourselves."""
        raw = bytes(self._collecting or b"")
        if not self._ended:
            self._fail(FailureCode.EVENT_TOO_LARGE, detail=f"the twin's reply has over {len(raw)} bytes (max_event)")
            return
        assert self._head is not None
        readable, inflate = inflate_for(self._head)
        if not readable:
            self._fail(FailureCode.UPSTREAM_BAD_RESPONSE, detail="a content coding that cannot be read")
            return
        reply = read_twin(inflate.decompress(raw) if inflate is not None else raw, self._settings.json)
        if not isinstance(reply, TwinAnswer):
            self._fail(reply.code, message=reply.message, detail=reply.detail)
            return
        now = self._now()
        self.pipeline.ledger.bytes_in = len(raw)
        out = self.pipeline.deliver(reply.meta, reply.answer, now)
        if self._response is None:
            self._begin_stream(self._head)
        self._write(out, now)
        self._end(self.pipeline.ledger.outcome)

    def _pass_on(self, head: ResponseHead) -> None:
        """Answer with the upstream's own head; its body follows as it comes."""
        self._passing = True
        length = head.get("content-length") if head.get("transfer-encoding") is None else None
        headers = end_to_end(head.raw_headers, length=int(length) if length is not None and length.isdigit() else None)
        self._respond(ExactResponse(head.status, head.reason, headers, send_at_once=False))

    def _pass_reframed(self) -> None:
        """A refusal whose body is framed as an event, as the host does for an empty message: framed rightly."""
        held = bytes(self._collecting or b"")
        head = self._head
        assert head is not None
        if not self._ended or not held.startswith(_FIELDS):
            self._pass_collected()
            return
        now = self._now()
        reframing = replace(
            self._settings.options(), payload=Payload.OPAQUE, split=Split.NONE, done=(), require_done=False
        )
        repair = Pipeline(replace(reframing, reader=Reader.STANDARD, own_events=False))
        body = repair.feed(held, now) + repair.close(now)
        kept = [pair for pair in end_to_end(head.raw_headers) if pair[0].lower() not in ("content-type", "etag")]
        headers = [*kept, ("Content-Type", "text/event-stream; charset=utf-8"), ("Content-Length", str(len(body)))]
        self._passing = True
        self._respond(ExactResponse(head.status, head.reason, headers, send_at_once=False))
        self._pass_bytes(body, now)
        self._end(Outcome.PASSED_ON)

    def _pass_collected(self) -> None:
        held = bytes(self._collecting or b"")
        assert self._head is not None
        self._pass_on(self._head)
        self._pass_bytes(held, self._now())
        if self._ended:
            self._end(Outcome.PASSED_ON)

    def _pass_bytes(self, data: bytes, now: float) -> None:
        if self._route.observe:
            if not self.pipeline.finished:
                self.pipeline.feed(data, now)
        else:
            self.pipeline.ledger.bytes_in += len(data)
            self.pipeline.ledger.bytes_out += len(data)
        self._write(data, now)

    def _cut(self, error: UpstreamError) -> None:
        """An answer that is passed on was broken off: the client must see that."""
        self.pipeline.ledger.log_detail = str(error)
        self.pipeline.ledger.code = error.code
        self._abandoned = True
        self._end(Outcome.FAILED)

    # The client's side ---------------------------------------------------------------------------------------------

    def _respond(self, response: ExactResponse) -> None:
        self._response = response
        self.status = response.status
        self._turn.set()

    def _begin_stream(self, head: ResponseHead | None, *, status: int = 200, extra: Headers | None = None) -> None:
        """Let our head go, with a first comment: a page that waits for it must not wait for the answer."""
        if self._response is not None:
            return
        if head is None:
            kept = [("Date", formatdate(usegmt=True)), *self._route.cors.own(self._origin), *(extra or [])]
        else:
            kept = self._route.cors.of_stream(self._origin, end_to_end(head.raw_headers))
        self._respond(ExactResponse(status, None, stream_headers(kept), send_at_once=False))
        if self._settings.keepalive is not None and status == 200:
            self._write(self.pipeline.comment(), self._now())

    def _write(self, data: bytes, now: float) -> None:
        if not data:
            return
        self._keepalive.wrote(now)
        if self._recorder is not None:
            self._recorder.repaired.add(data)
        if self.entry.state is StreamState.WAITING:
            self.entry.state = StreamState.STREAMING
        self._writer.write(data)
        if self._writer.started and self._writer.paused:
            self._pause()

    def _pause(self) -> None:
        """The client is slow: so is the upstream, from here on."""
        if self._paused_at is not None:
            return
        self._paused_at = self._now()
        self.entry.state = StreamState.PAUSED
        if self._source is not None and not self._ended:
            self._source.pause_reading()
        if self._settings.write_timeout is not None:
            self._services.wheel.schedule(self, self._paused_at + self._settings.write_timeout)

    def _writable(self) -> None:
        if self._paused_at is None:
            return
        self._paused_at = None
        self.entry.state = StreamState.STREAMING
        # What the upstream did not send meanwhile was not its fault.
        self._last_byte = self._last_event = self._now()
        if self._source is not None and not self._ended:
            self._source.resume_reading()

    def _fail(
        self,
        code: FailureCode,
        *,
        status: int | None = None,
        retryable: bool | None = None,
        message: str = "",
        detail: str = "",
    ) -> None:
        """End the stream with an error event, as the settings have it."""
        if self._over:
            return
        now = self._now()
        if self._route.observe:
            self._fail_observed(code, detail)
            return
        out = self.pipeline.fail(code, status=status, retryable=retryable, message=message, detail=detail, now=now)
        if self._response is None:
            own = code.http_status if status is None else status
            unavailable = code in (FailureCode.OVERLOADED, FailureCode.PROXY_DRAINING)
            by_status = self._settings.errors == "status" or unavailable
            extra = [("Retry-After", "5")] if unavailable else []
            self._begin_stream(None, status=own if by_status else 200, extra=extra)
        self._write(out, now)
        self._end(Outcome.FAILED)

    def _fail_observed(self, code: FailureCode, detail: str) -> None:
        """In `mode: observe` nothing of ours goes into a stream: a failure looks as the upstream made it."""
        self.pipeline.fail(code, detail=detail, now=self._now())
        if self._response is None:
            error = UpstreamError(detail)
            error.code = code
            self._respond(upstream_problem(error, request_id=self._request_id))
        else:
            self._abandoned = True
        self._end(Outcome.FAILED)

    def _fault(self, error: Exception) -> None:
        """A fault of our own: the stream fails like any other, and the log has one line."""
        logger.error(
            "stream %s: a fault of the proxy: %s: %s",
            self._request_id,
            type(error).__name__,
            error,
            exc_info=error if logger.isEnabledFor(logging.DEBUG) else None,
        )
        try:
            self._fail(FailureCode.INTERNAL, detail=f"{type(error).__name__}: {error}")
        except Exception:
            self._abandoned = True
            self._end(Outcome.FAILED)

    def drain_now(self) -> None:
        """The proxy shuts down: end the stream, and say so."""
        self._drain_until = None
        if self._over:
            self._settle()
        elif self._passing:
            self._abandoned = True
            self._end(Outcome.FAILED)
        else:
            self._fail(FailureCode.PROXY_DRAINING)

    # Ends ----------------------------------------------------------------------------------------------------------

    def _end(self, outcome: Outcome | None) -> None:
        """Nothing more is written. The upstream is given a moment to end by itself, or closed."""
        if self._over:
            return
        self._over = True
        ledger = self.pipeline.ledger
        if outcome is not None:
            ledger.outcome = outcome
        elif ledger.outcome is None:
            ledger.outcome = Outcome.CLIENT_GONE
        ledger.duration_s = round(self._now() - self._started, 6)
        self._turn.set()
        if outcome is Outcome.COMPLETE and not self._ended and self._source is not None:
            self._drain_until = self._now() + _DRAIN_S
            self._services.wheel.schedule(self, self._drain_until)
            if self._paused_at is not None:
                self._source.resume_reading()

    def _drain(self, data: bytes) -> None:
        """Drop what comes behind the end, and no more than a little of it."""
        self._drained += len(data)
        if self.pipeline.ledger.outcome is not Outcome.CLIENT_GONE:
            self.pipeline.feed(data)
        if self._drained > _DRAIN_BYTES:
            self._settle()

    def _client_gone(self) -> None:
        self._drain_until = None
        if not self._over:
            self.pipeline.ledger.outcome = None
            self._end(Outcome.CLIENT_GONE)
        self._drain_until = None

    def _settle(self) -> None:
        """Let go of everything, and give account. Once."""
        if self._settled:
            return
        self._settled = True
        self._drain_until = None
        if self._source is not None and not self._ended:
            self._source.close()
        self._services.wheel.cancel(self)
        self._services.runs.discard(self)
        self._services.registry.remove(self.entry)
        ledger = self.pipeline.ledger
        self._services.account(self)
        if ledger.outcome is Outcome.COMPLETE and self._services.transcript is not None:
            self._transcribe(self._services.transcript)

    def _transcribe(self, transcript: Transcript) -> None:
        body = (self.request_body or b"").decode("utf-8", "replace")
        try:
            asked = json.loads(body)
        except (ValueError, RecursionError):
            asked = body
        transcript.add(
            {
                "time": self.entry.as_dict(0.0)["started_at"],
                "requestId": self._request_id,
                "upstream": self._route.upstream.name,
                "route": self._route.name,
                "request": asked,
                **self.pipeline.kept_answer(),
                "ledger": self.pipeline.ledger.as_dict(),
            }
        )

    # Clocks --------------------------------------------------------------------------------------------------------

    def _next_due(self) -> float:
        """When the next of the clocks may be due; the keep-alive's and the idle clock's may have moved on by then."""
        s = self._settings
        if self._over:
            return self._drain_until if self._drain_until is not None else float("inf")
        due = [float("inf")]
        if self._response is None and s.commit_after is not None and not self._route.observe:
            due.append(self._started + s.commit_after)
        if self._keepalive.due_at is not None and self._may_keep_alive():
            due.append(self._keepalive.due_at)
        if self.pipeline.wants_tick_at is not None:
            due.append(self.pipeline.wants_tick_at)
        if self._paused_at is not None:
            if s.write_timeout is not None:
                due.append(self._paused_at + s.write_timeout)
        else:
            if s.idle_timeout is not None:
                due.append(self._last_byte + s.idle_timeout)
            if s.stall_timeout is not None:
                due.append(self._last_event + s.stall_timeout)
        if s.total_timeout is not None:
            due.append(self._started + s.total_timeout)
        if self._collect_until is not None:
            due.append(self._collect_until)
        return min(due)

    def _may_keep_alive(self) -> bool:
        if self._route.observe or self._passing or self._paused_at is not None:
            return False
        # `commit_after: off` waits for the upstream's head, however long.
        return self._response is not None or self._settings.commit_after is not None

    def _rearm(self) -> None:
        due = self.pipeline.wants_tick_at
        if due is not None:
            self._services.wheel.schedule(self, due)

    def on_tick(self, now: float) -> float | None:
        """Do what is due."""
        try:
            self._tick(now)
        except Exception as error:
            self._fault(error)
        due = self._next_due()
        return None if due == float("inf") or self._settled else due

    def _tick(self, now: float) -> None:
        s = self._settings
        if self._over:
            if self._drain_until is not None and now >= self._drain_until:
                self._settle()
            return
        if s.total_timeout is not None and now >= self._started + s.total_timeout:
            self._time_out(FailureCode.TIMED_OUT, f"total_timeout {s.total_timeout:g} s")
        elif self._paused_at is not None:
            if s.write_timeout is not None and now >= self._paused_at + s.write_timeout:
                logger.info("stream %s: its reader took nothing for %g s", self._request_id, s.write_timeout)
                self._abandoned = True
                self._end(Outcome.CLIENT_GONE)
        elif s.idle_timeout is not None and now >= self._last_byte + s.idle_timeout:
            self._time_out(FailureCode.UPSTREAM_STALLED, f"no byte for {s.idle_timeout:g} s")
        elif s.stall_timeout is not None and now >= self._last_event + s.stall_timeout:
            self._time_out(FailureCode.UPSTREAM_STALLED, f"no event for {s.stall_timeout:g} s")
        if self._over:
            return
        if self._collect_until is not None and now >= self._collect_until:
            self._collected()
        elif self.pipeline.wants_tick_at is not None and now >= self.pipeline.wants_tick_at:
            out = self.pipeline.tick(now)
            if not self._route.observe:
                self._write(out, now)
            if self.pipeline.finished and not self._route.observe:
                self._end(self.pipeline.ledger.outcome)
        if not self._over and self._may_keep_alive():
            commit = self._settings.commit_after
            if self._response is None and commit is not None and now >= self._started + commit:
                self._begin_stream(None)
            if self._keepalive.is_due(now):
                self._begin_stream(None)
                self._write(self.pipeline.keepalive(), now)

    def _time_out(self, code: FailureCode, detail: str) -> None:
        if self._passing:
            error = UpstreamError(detail)
            error.code = code
            self._cut(error)
        else:
            self._fail(code, detail=detail)


async def refuse_stream(
    request: web.BaseRequest, route: StreamRoute, services: Services, request_id: str, refusal: AdmissionRefused
) -> web.StreamResponse:
    """Answer a stream that is not admitted: its 503, with the error event as body."""
    pipeline = Pipeline(route.settings.options(request_id=request_id, method=request.method))
    body = pipeline.fail(refusal.code)
    origin = request.headers.get("Origin", "")
    headers = [
        *stream_headers([("Date", formatdate(usegmt=True)), *route.cors.own(origin)]),
        ("Retry-After", str(refusal.retry_after_s)),
        ("Content-Length", str(len(body))),
    ]
    services.metrics.observe_stream(route.upstream.name, route.name, pipeline.ledger)
    response = ExactResponse(refusal.code.http_status, None, headers, body=body)
    await response.prepare(request)
    await response.write_eof()
    return response
