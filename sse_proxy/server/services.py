"""What the streams of a proxy share, and what all streams of one route have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network
from typing import TYPE_CHECKING, Protocol

from sse_proxy.config import Route, StreamSettings, Upstream
from sse_proxy.metrics import UNDECLARED, Metrics
from sse_proxy.server.admission import Admission
from sse_proxy.server.cors import CorsMemory
from sse_proxy.server.registry import StreamRegistry
from sse_proxy.server.transcript import Transcript
from sse_proxy.server.upstream import UpstreamAddress
from sse_proxy.server.wheel import TimerWheel

if TYPE_CHECKING:
    from sse_proxy.server.stream import StreamRun

__all__ = ["Services", "Source", "StreamRoute"]


@dataclass(eq=False)
class Services:
    """What all streams of a proxy share.

    Attributes:
        account: hears of each stream that is over.
        runs: all that have not been accounted for, those whose upstream is being drained among them.
    """

    wheel: TimerWheel
    metrics: Metrics
    registry: StreamRegistry
    admission: Admission
    transcript: Transcript | None = None
    trusted_proxies: tuple[IPv4Network | IPv6Network, ...] = ()
    max_header: int = 64 * 1024
    body_timeout: float | None = 60.0
    account: Callable[[StreamRun], None] = lambda run: None
    runs: set[StreamRun] = field(default_factory=set)


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
        self.twin = settings.source == "json"
        self.cors = CorsMemory(settings.cors)


class Source(Protocol):
    """Where a stream's bytes come from, once it is open: an exchange of our own, or aiohttp's response."""

    def pause_reading(self) -> None:
        """Let nothing more come."""

    def resume_reading(self) -> None:
        """Go on."""

    def close(self) -> None:
        """Break off at once; nothing more comes."""
