"""One event-stream request, start to end.

The upstream pushes its head, bytes and end into a `StreamRun`; what the client is answered is made of them in
`server.treatment`, one write for each read. One task sends the request; no task, queue or timer belongs to an event.
When something is due is judged in `server.clocks`; `server.reply` is the client's side.
"""

from __future__ import annotations

import asyncio
import math
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from sse_proxy.core.ledger import Outcome
from sse_proxy.core.options import Payload
from sse_proxy.core.pipeline import Pipeline
from sse_proxy.errors import FailureCode, UpstreamBadResponse, UpstreamError
from sse_proxy.server.clocks import StreamClocks
from sse_proxy.server.headers import peer_address
from sse_proxy.server.problem import RequestRefused
from sse_proxy.server.registry import Recorder, StreamEntry, StreamState
from sse_proxy.server.reply import StreamReply
from sse_proxy.server.services import Services, Source, StreamRoute
from sse_proxy.server.transcript import asked
from sse_proxy.server.treatment import StreamTreatment
from sse_proxy.server.upstream import ResponseHead

__all__ = ["StreamRun"]

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
        self._answered = self._returned = self._settled = False
        self._heard = False  # the upstream's head is there
        self._ended = False  # it has ended
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
        self._treatment = StreamTreatment(
            route,
            self.pipeline,
            self._reply,
            self._clocks,
            request_id=request_id,
            method=request.method,
            now=self._now,
            on_end=self._let_upstream_end,
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
                self._treatment.unsay(error)
                raise
            while not self._treatment.over:
                self._turn.clear()
                await self._turn.wait()
            if self._treatment.abandoned:
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
            if not self._treatment.over:
                self._treatment.end(None)
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
            self._treatment.fault(error)

    def _refuse(self, error: RequestRefused) -> None:
        """The client did not deliver its request. The front answers; or, when our head is out, the connection ends."""
        if self._treatment.over:
            return
        if not self._reply.committed:
            self._raise = error
        self._treatment.abandoned = True
        self._treatment.end(Outcome.CLIENT_GONE)

    # Called by whoever asks the upstream ---------------------------------------------------------------------------

    def opened(self, source: Source) -> None:
        """Take note of the open upstream; where the stream is over already, it is closed."""
        if self._treatment.over:
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
        if self._treatment.over:
            return
        try:
            self.entry.state = StreamState.STREAMING
            self._treatment.take_head(head)
            self._reschedule()
        except Exception as error:
            self._treatment.fault(error)

    def on_body(self, data: bytes) -> None:
        """Take the body bytes of one read."""
        now = self._now()
        self._clocks.byte(now)
        if self._treatment.over:
            self._drain(data)
            return
        try:
            if self._recorder is not None:
                self._recorder.raw.add(data)
            self._services.wheel.schedule(self, self._treatment.take_body(data, now))
        except zlib.error as error:
            self._treatment.fail(FailureCode.UPSTREAM_TRUNCATED, detail=f"content coding: {error}")
        except Exception as error:
            self._treatment.fault(error)

    def on_end(self, error: UpstreamError | None) -> None:
        """Take the upstream's end; None: complete, as far as its framing tells."""
        self._ended = True
        if self._treatment.over:
            self._end_drain()
            return
        try:
            self._treatment.take_end(error)
        except zlib.error as fault:
            self._treatment.fail(FailureCode.UPSTREAM_TRUNCATED, detail=f"content coding: {fault}")
        except Exception as fault:
            self._treatment.fault(fault)

    # The client's side ---------------------------------------------------------------------------------------------

    def _pace(self, slow: bool) -> None:
        """Where the client is slow, so is the upstream."""
        if self._source is not None and not self._ended:
            if not slow:
                self._source.resume_reading()
            elif not self._treatment.over:
                self._source.pause_reading()
        self._reschedule()

    # Ends ----------------------------------------------------------------------------------------------------------

    def drain_now(self) -> None:
        """The proxy shuts down: end the stream, and say so."""
        if self._treatment.over:
            self._end_drain()
        else:
            self._treatment.shut_down()

    def _let_upstream_end(self, outcome: Outcome | None) -> None:
        """Nothing more is written. The upstream is given a moment to end by itself, or closed."""
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
        if not self._treatment.over:
            self._treatment.end(Outcome.CLIENT_GONE)
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
        return min(self._drain_until, self._clocks.reader_due(), self._treatment.next_due())

    def on_tick(self, now: float) -> float | None:
        """Do what is due."""
        try:
            self._tick(now)
        except Exception as error:
            self._treatment.fault(error)
        due = self._next_due()
        return None if due == math.inf or self._settled else due

    def _tick(self, now: float) -> None:
        if now >= self._drain_until:
            self._end_drain()
        if self._reply.drop_if_stuck(now, self.request_id):
            self._treatment.abandoned = True
            self._client_gone()
        if not self._treatment.over:
            self._treatment.tick(now)
