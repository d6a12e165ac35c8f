"""StreamTreatment: what becomes of one upstream's response on a stream route.

Its head decides. A stream is repaired; what is not one is held until `server.held` can judge it, passed on as it comes,
or makes the stream fail. In `mode: observe` all is passed on, and the pipeline only watches. Nothing here knows the
request's own coroutine or the upstream's connection: that is `server.stream`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable
from functools import partial

from sse_proxy.core.ledger import Outcome
from sse_proxy.core.pipeline import Pipeline
from sse_proxy.errors import FailureCode, UpstreamBadResponse, UpstreamError
from sse_proxy.server import held
from sse_proxy.server.clocks import StreamClocks
from sse_proxy.server.disposition import Disposition, Inflate, disposition, inflate_for, media_type
from sse_proxy.server.exact import ExactResponse
from sse_proxy.server.headers import Headers, end_to_end
from sse_proxy.server.held import Failed, HeldBody, PassOn
from sse_proxy.server.problem import upstream_problem
from sse_proxy.server.reply import StreamReply
from sse_proxy.server.services import StreamRoute
from sse_proxy.server.upstream import ResponseHead

__all__ = ["StreamTreatment"]

logger = logging.getLogger(__name__)


class StreamTreatment:
    """Turn what the upstream sends, the time that passes and what goes wrong into one reply.

    Args:
        method: of the request; the pipeline that tells of a fault of our own needs it.
        now: the clock.
        on_end: called when nothing more is written, with the outcome as far as it is known; once, but for `unsay`.

    Attributes:
        over: nothing more is written but the end.
        abandoned: the connection ends in place of the response.
    """

    def __init__(
        self,
        route: StreamRoute,
        pipeline: Pipeline,
        reply: StreamReply,
        clocks: StreamClocks,
        *,
        request_id: str,
        method: str,
        now: Callable[[], float],
        on_end: Callable[[Outcome | None], None],
    ) -> None:
        self._route = route
        self._settings = route.settings
        self._pipeline = pipeline
        self._reply = reply
        self._clocks = clocks
        self._request_id = request_id
        self._method = method
        self._now = now
        self._on_end = on_end
        self.over = False
        self.abandoned = False
        # What the upstream's body is
        self._passing = False  # not repaired: passed on as it comes
        self._watching = False  # `mode: observe`: passed on, and the pipeline tells what it would have made of it
        self._held: HeldBody | None = None
        self._inflate: Inflate | None = None
        self._progress = 0

    # The upstream's side -------------------------------------------------------------------------------------------

    def take_head(self, head: ResponseHead) -> None:
        """Take the upstream's head and decide what its body is."""
        self._reply.learn(head)
        kind = disposition(head, self._settings.dialect)
        if self._route.observe:
            readable, self._inflate = inflate_for(head)
            self._watching = readable and kind is Disposition.STREAM
            self._pass_on(head)
        elif self._route.twin and head.status == 200:
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
        logger.warning("stream %s: content coding %.80r cannot be read", self._request_id, coding)
        if not self._reply.committed:
            self._pass_on(head)
        else:
            self.fail(FailureCode.UPSTREAM_NOT_EVENT_STREAM, detail=f"content coding {coding!r}")

    def take_body(self, data: bytes, now: float) -> float:
        """Take the body bytes of one read; return when they want `tick` to be called, infinity for never.

        Raises:
            zlib.error: the content coding is broken.
        """
        if self._held is not None:
            self._held.data += data
            if len(self._held.data) > self._held.limit:
                self._judge(whole=False)
            return math.inf
        if self._passing:
            self._pass_bytes(data, now)
            return math.inf
        for piece in self._plain(data):
            self._reply.write(self._pipeline.feed(piece, now))
            if self._pipeline.finished:
                break
        ledger = self._pipeline.ledger
        progress = ledger.frames_in + ledger.text_chars
        if progress != self._progress:
            self._progress = progress
            self._clocks.event(now)
        if self._pipeline.finished:
            self.end(ledger.outcome)
            return math.inf
        due = self._pipeline.wants_tick_at
        return math.inf if due is None else due

    def take_end(self, error: UpstreamError | None) -> None:
        """Take the upstream's end; None: complete, as far as its framing tells.

        Raises:
            zlib.error: the content coding is broken.
        """
        now = self._now()
        if self._held is not None and (error is None or self._held.for_the_log):
            self._judge(whole=error is None)
        elif error is not None:
            self._break_off(error.code, str(error))
        elif self._passing:
            self._watch(lambda: self._pipeline.close(now))
            self.end(Outcome.PASSED_ON)
        elif self._inflate is not None and not self._inflate.eof:
            self.fail(FailureCode.UPSTREAM_TRUNCATED, detail="the content coding ends early")
        else:
            self._reply.write(self._pipeline.close(now))
            self.end(self._pipeline.ledger.outcome)

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
        if isinstance(verdict, PassOn) and self._reply.committed:
            verdict = held.failure_of(body, whole)  # our head has left while it was held
        if isinstance(verdict, PassOn):
            self._pass_on(body.head, verdict.headers)
            self._pass_bytes(bytes(body.data) if verdict.body is None else verdict.body, now)
            if whole:
                self.end(Outcome.PASSED_ON)
        elif isinstance(verdict, Failed):
            self.fail(
                verdict.code,
                status=verdict.status,
                retryable=verdict.retryable,
                message=verdict.message,
                detail=verdict.detail,
            )
        else:
            self._pipeline.ledger.bytes_in += len(body.data)
            out = self._pipeline.deliver(verdict.meta, verdict.answer, now)
            self._begin(body.head)
            self._reply.write(out)
            self.end(self._pipeline.ledger.outcome)

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
            self._watch(lambda: [self._pipeline.feed(piece, now) for piece in self._plain(data)])
        else:
            self._pipeline.ledger.bytes_in += len(data)
            self._pipeline.ledger.bytes_out += len(data)
        self._reply.write(data)

    def _plain(self, data: bytes) -> Iterable[bytes]:
        return (data,) if self._inflate is None else self._inflate.pieces(data)

    def _watch(self, step: Callable[[], object]) -> None:
        """`mode: observe`: let the pipeline see what passes. Nothing of it may touch the stream, a fault neither."""
        if not self._watching:
            return
        try:
            step()
        except Exception as error:
            self._watching = False
            logger.error("stream %s cannot be observed further: %s: %s", self._request_id, type(error).__name__, error)

    # The client's side ---------------------------------------------------------------------------------------------

    def _begin(self, head: ResponseHead | None, *, status: int = 200, extra: Headers | None = None) -> None:
        """Let our head go, with a first comment: a page that waits for it must not wait for the answer."""
        if self._reply.committed:
            return
        self._reply.begin(head, status=status, extra=extra)
        if self._settings.keepalive is not None and status == 200:
            self._reply.write(self._pipeline.comment())

    # Failures ------------------------------------------------------------------------------------------------------

    def shut_down(self) -> None:
        """The proxy ends: end the stream, and say so."""
        if self._passing:
            self._cut(FailureCode.PROXY_DRAINING, "the proxy shuts down")
        else:
            self.fail(FailureCode.PROXY_DRAINING)

    def _break_off(self, code: FailureCode, detail: str) -> None:
        """End what cannot go on: a body that is passed on is cut, a stream fails."""
        if self._passing:
            self._cut(code, detail)
        else:
            self.fail(code, detail=detail)

    def fail(
        self,
        code: FailureCode,
        *,
        status: int | None = None,
        retryable: bool | None = None,
        message: str = "",
        detail: str = "",
    ) -> None:
        """End the stream with an error event, as the settings have it."""
        if self.over:
            return
        if self._route.observe:
            self._fail_observed(code, detail)
            return
        now = self._now()
        out = self._pipeline.fail(code, status=status, retryable=retryable, message=message, detail=detail, now=now)
        self._write_failure(out, code, status)

    def _write_failure(self, out: bytes, code: FailureCode, status: int | None) -> None:
        unavailable = code in (FailureCode.OVERLOADED, FailureCode.PROXY_DRAINING)
        true_status = self._settings.errors == "status" or unavailable
        own = code.http_status if status is None else status
        extra = [("Retry-After", "5")] if unavailable else []
        self._begin(None, status=own if true_status else 200, extra=extra)
        self._reply.write(out)
        # Text that was certain may have held the done marker: then it is complete after all.
        self.end(self._pipeline.ledger.outcome)

    def _fail_observed(self, code: FailureCode, detail: str) -> None:
        """In `mode: observe` nothing of ours goes into a stream: a failure looks as the upstream made it."""
        if self._reply.committed:
            self._cut(code, detail)
            return
        error = UpstreamError(detail)
        error.code = code
        self._reply.respond(upstream_problem(error, request_id=self._request_id))
        self._end_failed(code, detail)

    def _cut(self, code: FailureCode, detail: str) -> None:
        """An answer that is passed on was broken off: the client must see that."""
        self.abandoned = True
        self._end_failed(code, detail)

    def fault(self, error: Exception) -> None:
        """A fault of our own: the stream fails like any other, and the log has one line."""
        told = f"{type(error).__name__}: {error}"
        logger.error(
            "stream %s: a fault of the proxy: %s",
            self._request_id,
            told[:500],
            exc_info=error if logger.isEnabledFor(logging.DEBUG) else None,
        )
        if self.over:
            return
        if self._passing:
            self._cut(FailureCode.INTERNAL, told)
            return
        try:
            self.fail(FailureCode.INTERNAL, detail=told)
        except Exception:
            self._fail_without_pipeline(told)

    def _fail_without_pipeline(self, told: str) -> None:
        """The pipeline itself is at fault: say so with another."""
        ledger = self._pipeline.ledger
        ledger.outcome, ledger.code, ledger.log_detail = Outcome.FAILED, FailureCode.INTERNAL, told
        other = Pipeline(self._settings.options(request_id=self._request_id, method=self._method))
        self._write_failure(other.fail(FailureCode.INTERNAL), FailureCode.INTERNAL, None)

    # The end -------------------------------------------------------------------------------------------------------

    def end(self, outcome: Outcome | None) -> None:
        """Nothing more is written; None: with the outcome the pipeline knows, or else the client is gone."""
        if self.over:
            return
        self.over = True
        ledger = self._pipeline.ledger
        ledger.outcome = outcome or ledger.outcome or Outcome.CLIENT_GONE
        ledger.duration_s = round(self._now() - self._clocks.started, 6)
        self._on_end(outcome)

    def unsay(self, error: UpstreamBadResponse) -> None:
        """The upstream's head could not be written: whatever came of its stream, nobody saw it."""
        self.over = False
        self._end_failed(error.code, str(error))

    def _end_failed(self, code: FailureCode, detail: str) -> None:
        """End without the pipeline, which would have noted why."""
        ledger = self._pipeline.ledger
        ledger.code, ledger.log_detail = code, detail
        self.end(Outcome.FAILED)

    # Clocks --------------------------------------------------------------------------------------------------------

    def next_due(self) -> float:
        """When `tick` may have something to do; what merely moved on by then is found out when that time comes."""
        if self.over:
            return math.inf
        due = [self._clocks.failure_due(streaming=not self._passing)]
        if self._held is not None:
            due.append(self._held.until)
        if self._pipeline.wants_tick_at is not None and (self._watching or not self._passing):
            due.append(self._pipeline.wants_tick_at)
        if self._may_keep_alive():
            due.append(self._clocks.keepalive_due())
            if not self._reply.committed:
                due.append(self._clocks.commit_due())
        return min(due)

    def _may_keep_alive(self) -> bool:
        if self._route.observe or self._passing or self._clocks.paused:
            return False
        if self._held is not None and self._held.until < math.inf:
            return False  # the verdict is near, and with it perhaps another status
        # `commit_after: off` waits for the upstream's head, however long.
        return self._reply.committed or self._settings.commit_after is not None

    def tick(self, now: float) -> None:
        """Do what is due."""
        late = self._clocks.failure(now, streaming=not self._passing)
        if late is not None:
            self._break_off(*late)
        elif self._held is not None:
            if now >= self._held.until:
                self._judge(whole=False)
        elif self._pipeline.wants_tick_at is not None and now >= self._pipeline.wants_tick_at:
            self._tick_pipeline(now)
        if not self.over and self._may_keep_alive():
            self._keep_alive(now)

    def _tick_pipeline(self, now: float) -> None:
        if self._route.observe:
            self._watch(lambda: self._pipeline.tick(now))
            return
        self._reply.write(self._pipeline.tick(now))
        if self._pipeline.finished:
            self.end(self._pipeline.ledger.outcome)

    def _keep_alive(self, now: float) -> None:
        if now >= self._clocks.commit_due():
            self._begin(None)
        if self._clocks.keepalive.is_due(now):
            self._begin(None)
            self._reply.write(self._pipeline.keepalive())
