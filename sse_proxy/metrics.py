"""Metrics: what an operator counts of streams and requests, in Prometheus' text format.

One `Metrics` has a registry of its own and touches no global one, so two proxies in one process (and every test) count
apart. A stream is counted once, when it has ended, from its ledger: nothing here runs per event. Label values are
bounded by the configuration, never taken from a request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from sse_proxy.core.ledger import Ledger, Outcome, RepairKind
from sse_proxy.errors import FailureCode

__all__ = ["NO_UPSTREAM", "UNDECLARED", "Metrics"]

UNDECLARED = "undeclared"
"""The `route` of a stream that no configured route names."""

NO_UPSTREAM = "none"
"""The `upstream` of a request that no upstream matches."""

# The text of GaApi comes after the whole answer is computed, which takes from a second to some minutes.
_FIRST_TEXT_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300)
_DURATION_BUCKETS = (0.1, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600)

# What a dashboard asks first; the other statuses appear when they first happen.
_EXPECTED_STATUSES = ("200", "502", "503", "504")


class Metrics:
    """Count streams, failures, repairs and requests; render them for a scrape.

    Declare each upstream first (again after a reload): its series then exist from zero, so that `rate()` sees the first
    failure too, and only declared names become label values.
    """

    def __init__(self) -> None:
        self._routes: dict[str, set[str]] = {}
        # registry=None keeps them out of prometheus-client's global registry.
        self._active = Gauge("sse_proxy_streams_active", "Streams running now.", registry=None)
        self._streams = Counter(
            "sse_proxy_streams", "Streams that ended, by outcome.", ("upstream", "route", "outcome"), registry=None
        )
        self._failures = Counter(
            "sse_proxy_failures", "Streams that failed, by code.", ("upstream", "code"), registry=None
        )
        self._repairs = Counter(
            "sse_proxy_repairs", "Deviations of the upstream put right, by kind.", ("upstream", "kind"), registry=None
        )
        self._keepalives = Counter("sse_proxy_keepalives", "Keep-alive comments sent.", ("upstream",), registry=None)
        self._requests = Counter(
            "sse_proxy_requests", "Requests answered, by status.", ("upstream", "status"), registry=None
        )
        self._first_text = Histogram(
            "sse_proxy_time_to_first_text_seconds",
            "From the request's acceptance to the first answer text sent.",
            registry=None,
            buckets=_FIRST_TEXT_BUCKETS,
        )
        self._duration = Histogram(
            "sse_proxy_stream_duration_seconds",
            "From the request's acceptance to the end of its stream.",
            registry=None,
            buckets=_DURATION_BUCKETS,
        )
        self._registry = CollectorRegistry()
        self._registry.register(
            _WithoutCreated(
                self._active,
                self._streams,
                self._failures,
                self._repairs,
                self._keepalives,
                self._requests,
                self._first_text,
                self._duration,
            )
        )
        self.declare(NO_UPSTREAM, ())

    def declare(self, upstream: str, routes: Iterable[str]) -> None:
        """Make the series of one upstream, all at zero. May be called again; nothing is reset or removed.

        Args:
            upstream: its configured name.
            routes: the paths of its configured routes, as they stand in the configuration (`/hubs/*`).
        """
        known = self._routes.setdefault(upstream, set())
        known.update(routes)
        for status in _EXPECTED_STATUSES:
            self._requests.labels(upstream, status)
        if upstream == NO_UPSTREAM:
            return  # a request that matches no upstream is never a stream
        for route in (*known, UNDECLARED):
            for outcome in Outcome:
                self._streams.labels(upstream, route, outcome.value)
        for code in FailureCode:
            self._failures.labels(upstream, code.value)
        for kind in RepairKind:
            self._repairs.labels(upstream, kind.value)
        self._keepalives.labels(upstream)

    def watch_active(self, read: Callable[[], int]) -> None:
        """Take the number of running streams from `read`, called at each scrape."""
        self._active.set_function(read)

    def observe_stream(self, upstream: str, route: str, ledger: Ledger) -> None:
        """Count one stream that has ended.

        Args:
            upstream: the configured name; one that was not declared counts as `none`.
            route: the configured path; any other counts as `undeclared`.
            ledger: its account; an outcome of None is a fault of ours and counts as `failed`, `internal`.
        """
        routes = self._routes.get(upstream)
        if routes is None:
            upstream, routes = NO_UPSTREAM, set()
        outcome = ledger.outcome or Outcome.FAILED
        self._streams.labels(upstream, route if route in routes else UNDECLARED, outcome.value).inc()
        if outcome is Outcome.FAILED:
            self._failures.labels(upstream, (ledger.code or FailureCode.INTERNAL).value).inc()
        for kind, n in ledger.repairs.items():
            self._repairs.labels(upstream, kind.value).inc(n)
        if ledger.keepalives:
            self._keepalives.labels(upstream).inc(ledger.keepalives)
        if ledger.first_text_s is not None:
            self._first_text.observe(ledger.first_text_s)
        # What was passed on was no stream (a 4xx, a redirect): its few milliseconds would hide how long streams last.
        if ledger.duration_s is not None and outcome is not Outcome.PASSED_ON:
            self._duration.observe(ledger.duration_s)

    def observe_request(self, upstream: str, status: int) -> None:
        """Count one answered request, a stream's too.

        Args:
            upstream: the configured name; one that was not declared counts as `none`.
            status: the status the client was sent; outside 100 to 599 it counts as `other`.
        """
        if upstream not in self._routes:
            upstream = NO_UPSTREAM
        self._requests.labels(upstream, str(status) if 100 <= status <= 599 else "other").inc()

    def render(self) -> tuple[bytes, str]:
        """Return the body of a scrape and its content type."""
        return generate_latest(self._registry), CONTENT_TYPE_LATEST


class _WithoutCreated(Collector):
    """Collect some metrics without the `_created` series that prometheus-client adds to each of theirs.

    They double the number of series, and the library's own switch for them is global.
    """

    def __init__(self, *metrics: Collector) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        """Yield each family, its `_created` samples left out."""
        for metric in self._metrics:
            for family in metric.collect():
                family.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
                yield family
