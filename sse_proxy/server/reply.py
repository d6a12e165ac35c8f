"""StreamReply: the client's side of one stream: our head, what is written behind it, and a reader that may be slow."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from email.utils import formatdate

from aiohttp import web

from sse_proxy.errors import UpstreamBadResponse
from sse_proxy.server.clocks import StreamClocks
from sse_proxy.server.disposition import stream_headers
from sse_proxy.server.downstream import StreamWriter
from sse_proxy.server.exact import BadHead, ExactResponse
from sse_proxy.server.headers import Headers, end_to_end
from sse_proxy.server.registry import StreamEntry, StreamState
from sse_proxy.server.services import StreamRoute
from sse_proxy.server.upstream import ResponseHead

__all__ = ["StreamReply"]

logger = logging.getLogger(__name__)


class StreamReply:
    """What one client is answered.

    Args:
        clocks: of the stream; whether its reader is slow is noted there.
        entry: shows the state, and takes what was written.
        now: the clock.
        turn: set when it is known what to answer.
        on_pace: called with True when the reader has become slow, with False when it takes bytes again.
    """

    def __init__(
        self,
        request: web.BaseRequest,
        route: StreamRoute,
        clocks: StreamClocks,
        entry: StreamEntry,
        *,
        now: Callable[[], float],
        turn: asyncio.Event,
        on_pace: Callable[[bool], None],
    ) -> None:
        self._request = request
        self._route = route
        self._clocks = clocks
        self._entry = entry
        self._recorded = entry.recorder.repaired if entry.recorder is not None else None
        self._now = now
        self._turn = turn
        self._on_pace = on_pace
        self._origin = request.headers.get("Origin", "")
        self._writer = StreamWriter(request, self._writable)
        self._response: ExactResponse | None = None

    # The head ------------------------------------------------------------------------------------------------------

    @property
    def committed(self) -> bool:
        """Whether it is known what to answer: another status cannot be said any more."""
        return self._response is not None

    @property
    def status(self) -> int:
        """The status of the answer; 0 while there is none."""
        return 0 if self._response is None else self._response.status

    def learn(self, head: ResponseHead) -> None:
        """Remember the CORS headers of the upstream's answer, for answers of our own."""
        self._route.cors.learn(self._origin, head.status, head.headers)

    def respond(self, response: ExactResponse) -> None:
        """Answer with a head that is ready, made with `send_at_once=False`."""
        self._response = response
        self._turn.set()

    def begin(self, head: ResponseHead | None, *, status: int = 200, extra: Headers | None = None) -> None:
        """Answer with a stream; headers of the upstream's `head` are kept, without one there are only ours."""
        if head is None:
            kept = [("Date", formatdate(usegmt=True)), *self._route.cors.own(self._origin), *(extra or [])]
        else:
            kept = self._route.cors.of_stream(self._origin, end_to_end(head.raw_headers))
        self.respond(ExactResponse(status, None, stream_headers(kept), send_at_once=False))

    async def start(self) -> None:
        """Let the head go.

        Raises:
            ConnectionError: the client is gone.
            UpstreamBadResponse: the upstream's head cannot be written; nothing was.
        """
        response = self._response
        assert response is not None
        if self._request.body_exists and not self._request.content.is_eof():
            response.force_close()  # an early answer: where the next request begins is not known
        try:
            await self._writer.start(response)
        except BadHead as error:
            raise UpstreamBadResponse(str(error)) from error
        self._watch_reader()

    # What follows --------------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Write whole events, or a piece of a body that is passed on."""
        if not data:
            return
        self._clocks.keepalive.wrote(self._now())
        if self._recorded is not None:
            self._recorded.add(data)
        self._writer.write(data)
        if self._clocks.paused:
            self._clocks.wrote_more(len(data))
        elif self._writer.started:
            self._watch_reader()

    async def end(self) -> web.StreamResponse:
        """End the response properly, and wait until a slow reader has taken enough of it."""
        return await self._writer.end()

    def abandon(self) -> web.StreamResponse:
        """End the connection in place of a response that must not look complete."""
        return self._writer.abandon()

    # A slow reader -------------------------------------------------------------------------------------------------

    def _watch_reader(self) -> None:
        """Where the client is slow, note it."""
        if not self._writer.paused or self._clocks.paused:
            return
        self._clocks.pause(self._now(), self._writer.unsent)
        self._entry.state = StreamState.PAUSED
        self._on_pace(True)

    def _writable(self) -> None:
        if not self._clocks.paused:
            return
        self._clocks.resume(self._now())
        self._entry.state = StreamState.STREAMING
        self._on_pace(False)

    def drop_if_stuck(self, now: float, request_id: str) -> bool:
        """Cut the connection to a reader that took nothing for `write_timeout`; return whether that was done."""
        if not self._clocks.reader_is_stuck(now, self._writer.unsent):
            return False
        limit = self._route.settings.write_timeout
        logger.info("stream %s: its reader took nothing for %g s", request_id, limit)
        self._clocks.resume(now)
        self._writer.drop()
        return True
