"""One event-stream request, start to end.

The upstream pushes its head, bytes and end into a `StreamRun`; that feeds the pipeline and writes what comes out, one
write for each read. One task sends the request; no task, queue or timer belongs to an event. What a body that is not a
stream means is judged in `server.held`, when something is due in `server.clocks`; `server.reply` is the client's side.
"""

from __future__ import annotations

import asyncio
import logging
import math
import zlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from aiohttp import web

from sse_proxy.core.ledger import Outcome
from sse_proxy.core.options import Payload
from sse_proxy.core.pipeline import Pipeline
from sse_proxy.errors import FailureCode, UpstreamBadResponse, UpstreamError
from sse_proxy.server import held
from sse_proxy.server.clocks import StreamClocks
from sse_proxy.server.disposition import Disposition, Inflate, disposition, inflate_for, media_type
from sse_proxy.server.exact import ExactResponse
from sse_proxy.server.headers import Headers, end_to_end, peer_address
from sse_proxy.server.held import Failed, HeldBody, PassOn
from sse_proxy.server.problem import RequestRefused, upstream_problem
from sse_proxy.server.registry import Recorder, StreamEntry, StreamState
from sse_proxy.server.reply import StreamReply
from sse_proxy.server.services import Services, Source, StreamRoute
from sse_proxy.server.transcript import asked
from sse_proxy.server.upstream import ResponseHead

__all__ = ["StreamRun"]

logger = logging.getLogger(__name__)

_DRAIN_BYTES = 64 * 1024
_DRAIN_S = 1.0


class StreamRun:
    """One stream, from the request to its last byte; a sink of the upstream and an entry of the wheel.

    Attributes:
        request_body: kept for the transcript, where it is small.
    """

    wheel_slot: int | None = None

    def __init__(self, request: web.BaseRequest, route: StreamRoute, services: Services, request_id: str) -> None:
        settings = route.settings
        self.request = request
        self.route = route
        self.request_id = request_id
        self.request_body: bytes | None = None
        self._settings = settings
        self._services = services
        self._now = services.wheel.time
        self._clocks = StreamClocks(settings, self._now())
        self.pipeline = Pipeline(
            settings.options(request_id=request_id, method=request.method),
            started_at=self._clocks.started,
            keep_answer=services.transcript is not None,
        )
        self._source: Source | None = None
        self._raise: RequestRefused | None = None  # answered by the front, in place of a response
        self._turn = asyncio.Event()  # a head, the end or an exception waits for `run()`
        self._over = False  # nothing more is written but the end
        self._abandoned = False  # the connection ends in place of the response
        self._answered = self._returned = self._settled = False
        # What the upstream's body is
        self._passing = False  # not repaired: passed on as it comes
        self._watching = False  # `mode: observe`: passed on, and the pipeline tells what it would have made of it
        self._held: HeldBody | None = None
        self._inflate: Inflate | None = None
        self._progress = 0
        self._heard = False  # its head is there
        self._ended = False  # the upstream has ended
        self._drain_until = math.inf
        self._drained = 0
        self.entry: StreamEntry = services.registry.register(
            self.pipeline.ledger,
            request_id=request_id,
            upstream=route.upstream.name,
            route=route.name,
            peer=peer_address(request) or "unix",
            method=request.method,
        )
        self._recorder: Recorder | None = services.registry.tap(self.entry)
        self._reply = StreamReply(
            request, route, self._clocks, self.entry, now=self._now, turn=self._turn, on_pace=self._pace
        )

    @property
    def status(self) -> int:
        """The status that was answered; 0 for none."""
        return self._reply.status if self._raise is None else self._raise.status

    @property
    def expects_text(self) -> bool:
        """Whether a complete stream without any text is worth a warning."""
        return self._settings.payload is Payload.TEXT and not self.route.observe

    # The request's own coroutine -----------------------------------------------------------------------------------

    async def run(self, ask: Callable[[StreamRun], Awaitable[None]]) -> web.StreamResponse:
        """Answer the request.

        Args:
            ask: opens the upstream and sends it the request; its faults are `UpstreamError` and `RequestRefused`.

        Raises:
            RequestRefused: the request itself is at fault, and nothing was answered yet.
            UpstreamBadResponse: the upstream's head cannot be written; nothing was answered yet.
        """
        self._services.runs.add(self)
        asking = asyncio.get_running_loop().create_task(self._asking(ask))
        self._reschedule()
        try:
            await self._turn.wait()
            if self._raise is not None:
                raise self._raise
            try:
                await self._reply.start()
            except UpstreamBadResponse as error:
                self._unsay(error)
                raise
            while not self._over:
                self._turn.clear()
                await self._turn.wait()
            if self._abandoned:
                return self._reply.abandon()
            response = await self._reply.end()
            self._answered = True
            return response
        except asyncio.CancelledError:
            self._client_gone()
            raise
        except ConnectionError:  # it went a moment ago, and this was not cancelled yet
            self._client_gone()
            return self._reply.abandon()
        finally:
            self._returned = True
            asking.cancel()
            if not self._over:
                self._end(None)
            if self._drain_until == math.inf:
                self._settle()
            if not asking.done():
                await asyncio.wait([asking])

    async def _asking(self, ask: Callable[[StreamRun], Awaitable[None]]) -> None:
        try:
            await ask(self)
        except UpstreamError as error:
            self.on_end(error)
        except RequestRefused as refused:
            self._refuse(refused)
        except Exception as error:
            self._fault(error)

    def _unsay(self, error: UpstreamBadResponse) -> None:
        """The upstream's head could not be written: whatever came of its stream, nobody saw it."""
        ledger = self.pipeline.ledger
        ledger.code, ledger.log_detail = error.code, str(error)
        self._over = False
        self._end(Outcome.FAILED)

    def _refuse(self, error: RequestRefused) -> None:
        """The client did not deliver its request. The front answers; or, when our head is out, the connection ends."""
        if self._over:
            return
        if not self._reply.committed:
            self._raise = error
        self._abandoned = True
        self._end(Outcome.CLIENT_GONE)

    # Called by whoever asks the upstream ---------------------------------------------------------------------------

    def opened(self, source: Source) -> None:
        """Take note of the open upstream; where the stream is over already, it is closed."""
        if self._over:
            source.close()
            return
        self._source = source
        self._clocks.byte(self._now())
        if self._clocks.paused:
            source.pause_reading()

    def client_sends(self, sends: bool) -> None:
        """Say whether it is the client's turn to send (more of) its request, or the upstream's to take it."""
        self._clocks.client_sends = sends and not self._heard
        self._clocks.byte(self._now())
        if not sends:
            self._reschedule()

    # The upstream's side -------------------------------------------------------------------------------------------

    def on_head(self, head: ResponseHead) -> None:
        """Take the upstream's head and decide what its body is."""
        self._heard, self._clocks.client_sends = True, False
        self._clocks.byte(self._now())
        if self._over:
            return
        try:
            self._take_head(head)
            self._reschedule()
        except Exception as error:
            self._fault(error)

    def on_body(self, data: bytes) -> None:
        """Take the body bytes of one read."""
        now = self._now()
        self._clocks.byte(now)
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
            self._end_drain()
            return
        try:
            self._take_end(error)
        except zlib.error as fault:
            self._fail(FailureCode.UPSTREAM_TRUNCATED, detail=f"content coding: {fault}")
        except Exception as fault:
            self._fault(fault)

    def _take_head(self, head: ResponseHead) -> None:
        self.entry.state = StreamState.STREAMING
        self._reply.learn(head)
        kind = disposition(head, self._settings.dialect)
        if self.route.observe:
            readable, self._inflate = inflate_for(head)
            self._watching = readable and kind is Disposition.STREAM
            self._pass_on(head)
        elif self.route.twin and head.status == 200:
            self._hold(head, partial(held.twin_of, settings=self._settings), self._settings.max_event)
        elif kind is Disposition.STREAM:
            self._take_stream(head)
        elif kind is Disposition.JSON:
            self._hold(head, held.json_of, held.JSON_BYTES)
        elif kind is not Disposition.PASS_ON or self._reply.committed:
            self._hold(head, held.failure_of, held.COLLECT_BYTES, held.COLLECT_S, for_the_log=True)
        elif head.status >= 400 and media_type(head) in ("", "text/event-stream"):
            judge = partial(held.refusal_of, settings=self._settings)
            self._hold(head, judge, held.COLLECT_BYTES, held.COLLECT_S)
        else:
            self._pass_on(head)

    def _take_stream(self, head: ResponseHead) -> None:
        readable, self._inflate = inflate_for(head)
        if readable:
            self._begin(head)
            return
        coding = head.get("content-encoding")
        logger.warning("stream %s: content coding %.80r cannot be read", self.request_id, coding)
        if not self._reply.committed:
            self._pass_on(head)
        else:
            self._fail(FailureCode.UPSTREAM_NOT_EVENT_STREAM, detail=f"content coding {coding!r}")

    def _take_body(self, data: bytes, now: float) -> None:
        if self._recorder is not None:
            self._recorder.raw.add(data)
        if self._held is not None:
            self._held.data += data
            if len(self._held.data) > self._held.limit:
                self._judge(whole=False)
            return
        if self._passing:
            self._pass_bytes(data, now)
            return
        out = self.pipeline.feed(self._plain(data), now)
        ledger = self.pipeline.ledger
        progress = ledger.frames_in + ledger.text_chars
        if progress != self._progress:
            self._progress = progress
            self._clocks.event(now)
        self._reply.write(out)
        if self.pipeline.finished:
            self._end(ledger.outcome)
        elif (due := self.pipeline.wants_tick_at) is not None:
            self._services.wheel.schedule(self, due)

    def _take_end(self, error: UpstreamError | None) -> None:
        now = self._now()
        if self._held is not None and (error is None or self._held.for_the_log):
            self._judge(whole=error is None)
        elif error is not None and self._passing:
            self._cut(error.code, str(error))
        elif error is not None:
            self._fail(error.code, detail=str(error))
        elif self._passing:
            self._watch(lambda: self.pipeline.close(now))
            self._end(Outcome.PASSED_ON)
        elif self._inflate is not None and not self._inflate.eof:
            self._fail(FailureCode.UPSTREAM_TRUNCATED, detail="the content coding ends early")
        else:
            self._reply.write(self.pipeline.close(now))
            self._end(self.pipeline.ledger.outcome)

    # Bodies that are not a stream ----------------------------------------------------------------------------------

    def _hold(
        self,
        head: ResponseHead,
        judge: Callable[[HeldBody, bool], held.Verdict],
        limit: int,
        within_s: float = math.inf,
        *,
        for_the_log: bool = False,
    ) -> None:
        self._held = HeldBody(head, judge, limit, self._now() + within_s, for_the_log)

    def _judge(self, *, whole: bool) -> None:
        """Do what the body that was held turns out to ask for."""
        body, self._held = self._held, None
        assert body is not None
        now = self._now()
        verdict = body.judge(body, whole)
        if isinstance(verdict, PassOn) and not self._reply.committed:
            self._pass_on(body.head, verdict.headers)
            self._pass_bytes(bytes(body.data) if verdict.body is None else verdict.body, now)
            if whole:
                self._end(Outcome.PASSED_ON)
        elif isinstance(verdict, PassOn):  # our head has left while it was held
            self._judge_failed(held.failure_of(body, whole))
        elif isinstance(verdict, Failed):
            self._judge_failed(verdict)
        else:
            self.pipeline.ledger.bytes_in += len(body.data)
            out = self.pipeline.deliver(verdict.meta, verdict.answer, now)
            self._begin(body.head)
            self._reply.write(out)
            self._end(self.pipeline.ledger.outcome)

    def _judge_failed(self, verdict: held.Verdict) -> None:
        assert isinstance(verdict, Failed)
        self._fail(
            verdict.code,
            status=verdict.status,
            retryable=verdict.retryable,
            message=verdict.message,
            detail=verdict.detail,
        )

    def _pass_on(self, head: ResponseHead, headers: Headers | None = None) -> None:
        """Answer with the upstream's own head; its body follows as it comes."""
        self._passing = True
        if headers is None:
            length = head.get("content-length") if head.get("transfer-encoding") is None else None
            known = int(length) if length is not None and length.isascii() and length.isdigit() else None
            headers = end_to_end(head.raw_headers, length=known)
        self._reply.respond(ExactResponse(head.status, head.reason, headers, send_at_once=False))

    def _pass_bytes(self, data: bytes, now: float) -> None:
        if self._watching:
            self._watch(lambda: self.pipeline.feed(self._plain(data), now))
        else:
            self.pipeline.ledger.bytes_in += len(data)
            self.pipeline.ledger.bytes_out += len(data)
        self._reply.write(data)

    def _plain(self, data: bytes) -> bytes:
        return data if self._inflate is None else self._inflate.decompress(data)

    def _watch(self, step: Callable[[], object]) -> None:
        """`mode: observe`: let the pipeline see what passes. Nothing of it may touch the stream, a fault neither."""
        if not self._watching:
            return
        try:
            step()
        except Exception as error:
            self._watching = False
            logger.error("stream %s cannot be observed further: %s: %s", self.request_id, type(error).__name__, error)

    def _cut(self, code: FailureCode, detail: str) -> None:
        """An answer that is passed on was broken off: the client must see that."""
        ledger = self.pipeline.ledger
        ledger.code, ledger.log_detail = code, detail
        self._abandoned = True
        self._end(Outcome.FAILED)

    # The client's side ---------------------------------------------------------------------------------------------

    def _begin(self, head: ResponseHead | None, *, status: int = 200, extra: Headers | None = None) -> None:
        """Let our head go, with a first comment: a page that waits for it must not wait for the answer."""
        if self._reply.committed:
            return
        self._reply.begin(head, status=status, extra=extra)
        if self._settings.keepalive is not None and status == 200:
            self._reply.write(self.pipeline.comment())

    def _pace(self, slow: bool) -> None:
        """Where the client is slow, so is the upstream."""
        if self._source is not None and not self._ended:
            if not slow:
                self._source.resume_reading()
            elif not self._over:
                self._source.pause_reading()
        self._reschedule()

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
        if self.route.observe:
            self._fail_observed(code, detail)
            return
        now = self._now()
        out = self.pipeline.fail(code, status=status, retryable=retryable, message=message, detail=detail, now=now)
        self._write_failure(out, code, status)

    def _write_failure(self, out: bytes, code: FailureCode, status: int | None) -> None:
        unavailable = code in (FailureCode.OVERLOADED, FailureCode.PROXY_DRAINING)
        true_status = self._settings.errors == "status" or unavailable
        own = code.http_status if status is None else status
        extra = [("Retry-After", "5")] if unavailable else []
        self._begin(None, status=own if true_status else 200, extra=extra)
        self._reply.write(out)
        # Text that was certain may have held the done marker: then it is complete after all.
        self._end(self.pipeline.ledger.outcome)

    def _fail_observed(self, code: FailureCode, detail: str) -> None:
        """In `mode: observe` nothing of ours goes into a stream: a failure looks as the upstream made it."""
        if not self._reply.committed:
            error = UpstreamError(detail)
            error.code = code
            self._reply.respond(upstream_problem(error, request_id=self.request_id))
            ledger = self.pipeline.ledger
            ledger.code, ledger.log_detail = code, detail
            self._end(Outcome.FAILED)
        else:
            self._cut(code, detail)

    def _fault(self, error: Exception) -> None:
        """A fault of our own: the stream fails like any other, and the log has one line."""
        told = f"{type(error).__name__}: {error}"
        logger.error(
            "stream %s: a fault of the proxy: %s",
            self.request_id,
            told[:500],
            exc_info=error if logger.isEnabledFor(logging.DEBUG) else None,
        )
        if self._over:
            return
        if self._passing:
            self._cut(FailureCode.INTERNAL, told)
            return
        try:
            self._fail(FailureCode.INTERNAL, detail=told)
        except Exception:
            self._fail_without_pipeline(told)

    def _fail_without_pipeline(self, told: str) -> None:
        """The pipeline itself is at fault: say so with another."""
        ledger = self.pipeline.ledger
        ledger.outcome, ledger.code, ledger.log_detail = Outcome.FAILED, FailureCode.INTERNAL, told
        other = Pipeline(self._settings.options(request_id=self.request_id, method=self.request.method))
        self._write_failure(other.fail(FailureCode.INTERNAL), FailureCode.INTERNAL, None)

    def drain_now(self) -> None:
        """The proxy shuts down: end the stream, and say so."""
        if self._over:
            self._end_drain()
        elif self._passing:
            self._cut(FailureCode.PROXY_DRAINING, "the proxy shuts down")
        else:
            self._fail(FailureCode.PROXY_DRAINING)

    # Ends ----------------------------------------------------------------------------------------------------------

    def _end(self, outcome: Outcome | None) -> None:
        """Nothing more is written. The upstream is given a moment to end by itself, or closed."""
        if self._over:
            return
        self._over = True
        ledger = self.pipeline.ledger
        ledger.outcome = outcome or ledger.outcome or Outcome.CLIENT_GONE
        ledger.duration_s = round(self._now() - self._clocks.started, 6)
        self._turn.set()
        if self._source is None or self._ended:
            return
        if outcome is Outcome.COMPLETE:
            self._drain_until = self._now() + _DRAIN_S
            self._services.wheel.schedule(self, self._drain_until)
            self._source.resume_reading()
        else:
            self._close_source()

    def _close_source(self) -> None:
        if self._source is not None and not self._ended:
            self._ended = True
            self._source.close()

    def _drain(self, data: bytes) -> None:
        """Drop what comes behind the end, and no more than a little of it."""
        self._drained += len(data)
        if self.pipeline.ledger.outcome is Outcome.COMPLETE:
            self.pipeline.feed(data)  # counts it
        if self._drained > _DRAIN_BYTES:
            self._end_drain()

    def _end_drain(self) -> None:
        self._drain_until = math.inf
        self._close_source()
        if self._returned:
            self._settle()

    def _client_gone(self) -> None:
        ledger = self.pipeline.ledger
        if not self._over:
            self._end(Outcome.CLIENT_GONE)
        elif not self._answered and ledger.outcome is Outcome.COMPLETE:
            ledger.outcome = Outcome.CLIENT_GONE  # it left before it had taken all
        self._drain_until = math.inf
        self._close_source()

    def _settle(self) -> None:
        """Let go of everything, and give account. Once, when the response is over and the upstream drained."""
        if self._settled:
            return
        self._settled = True
        self._close_source()
        services = self._services
        services.wheel.cancel(self)
        services.runs.discard(self)
        services.registry.remove(self.entry)
        services.account(self)
        if self.pipeline.ledger.outcome is Outcome.COMPLETE and services.transcript is not None:
            services.transcript.add(self._record())

    def _record(self) -> dict[str, Any]:
        """What the transcript says of a complete exchange."""
        return {
            "time": self.entry.as_dict(0.0)["started_at"],
            "requestId": self.request_id,
            "upstream": self.route.upstream.name,
            "route": self.route.name,
            "request": asked(self.request_body or b""),
            **self.pipeline.kept_answer(),
            "ledger": self.pipeline.ledger.as_dict(),
        }

    # Clocks --------------------------------------------------------------------------------------------------------

    def _reschedule(self) -> None:
        """Something is due at another time than before."""
        if not self._settled:
            self._services.wheel.schedule(self, self._next_due())

    def _next_due(self) -> float:
        """When the next of the clocks may be due; what merely moved on by then is found out when that time comes."""
        clocks = self._clocks
        due = [self._drain_until, clocks.reader_due()]
        if not self._over:
            due.append(clocks.failure_due(streaming=not self._passing))
            if self._held is not None:
                due.append(self._held.until)
            if self.pipeline.wants_tick_at is not None and (self._watching or not self._passing):
                due.append(self.pipeline.wants_tick_at)
            if self._may_keep_alive():
                due.append(clocks.keepalive_due())
                if not self._reply.committed:
                    due.append(clocks.commit_due())
        return min(due)

    def _may_keep_alive(self) -> bool:
        if self.route.observe or self._passing or self._clocks.paused:
            return False
        if self._held is not None and self._held.until < math.inf:
            return False  # the verdict is near, and with it perhaps another status
        # `commit_after: off` waits for the upstream's head, however long.
        return self._reply.committed or self._settings.commit_after is not None

    def on_tick(self, now: float) -> float | None:
        """Do what is due."""
        try:
            self._tick(now)
        except Exception as error:
            self._fault(error)
        due = self._next_due()
        return None if due == math.inf or self._settled else due

    def _tick(self, now: float) -> None:
        if now >= self._drain_until:
            self._end_drain()
        if self._reply.drop_if_stuck(now, self.request_id):
            self._abandoned = True
            self._client_gone()
        if self._over:
            return
        late = self._clocks.failure(now, streaming=not self._passing)
        if late is not None and self._passing:
            self._cut(*late)
        elif late is not None:
            self._fail(late[0], detail=late[1])
        elif self._held is not None:
            if now >= self._held.until:
                self._judge(whole=False)
        elif self.pipeline.wants_tick_at is not None and now >= self.pipeline.wants_tick_at:
            self._tick_pipeline(now)
        if not self._over and self._may_keep_alive():
            self._keep_alive(now)

    def _tick_pipeline(self, now: float) -> None:
        if self.route.observe:
            self._watch(lambda: self.pipeline.tick(now))
            return
        self._reply.write(self.pipeline.tick(now))
        if self.pipeline.finished:
            self._end(self.pipeline.ledger.outcome)

    def _keep_alive(self, now: float) -> None:
        if now >= self._clocks.commit_due():
            self._begin(None)
        if self._clocks.keepalive.is_due(now):
            self._begin(None)
            self._reply.write(self.pipeline.keepalive())
