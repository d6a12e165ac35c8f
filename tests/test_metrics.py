"""Metrics: bounded labels, series from zero, one count for each stream that ended."""

from __future__ import annotations

import re

import pytest
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

from sse_proxy.core.ledger import Ledger, Outcome, RepairKind
from sse_proxy.errors import FailureCode
from sse_proxy.metrics import NO_UPSTREAM, UNDECLARED, Metrics

ROUTE = "/api/chatbot/chat/stream"


@pytest.fixture
def metrics() -> Metrics:
    metrics = Metrics()
    metrics.declare("gaapi", [ROUTE, "/hubs/*"])
    return metrics


def samples(metrics: Metrics) -> dict[str, float]:
    """Each sample by its line's name and labels, labels in alphabetical order."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(metrics.render()[0].decode()):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


def test_the_names_and_labels_are_those_of_the_contract(metrics: Metrics) -> None:
    body = metrics.render()[0].decode()
    assert set(re.findall(r"^# TYPE (\w+) ", body, re.M)) == {
        "sse_proxy_streams_active",
        "sse_proxy_streams_total",
        "sse_proxy_failures_total",
        "sse_proxy_repairs_total",
        "sse_proxy_keepalives_total",
        "sse_proxy_requests_total",
        "sse_proxy_time_to_first_text_seconds",
        "sse_proxy_stream_duration_seconds",
    }
    assert "_created" not in body


def test_every_series_of_a_declared_upstream_is_there_from_zero(metrics: Metrics) -> None:
    found = samples(metrics)
    for code in FailureCode:
        assert found[f"sse_proxy_failures_total{{code={code},upstream=gaapi}}"] == 0
    for kind in RepairKind:
        assert found[f"sse_proxy_repairs_total{{kind={kind},upstream=gaapi}}"] == 0
    for outcome in Outcome:
        for route in (ROUTE, "/hubs/*", UNDECLARED):
            assert found[f"sse_proxy_streams_total{{outcome={outcome},route={route},upstream=gaapi}}"] == 0
    assert found["sse_proxy_keepalives_total{upstream=gaapi}"] == 0
    assert found["sse_proxy_requests_total{status=502,upstream=gaapi}"] == 0


def test_a_complete_stream_counts_its_repairs_keepalives_and_times(metrics: Metrics) -> None:
    ledger = Ledger(outcome=Outcome.COMPLETE, keepalives=3, first_text_s=1.5, duration_s=12.0)
    ledger.repair(RepairKind.UNPREFIXED_LINE, 5)
    metrics.observe_stream("gaapi", ROUTE, ledger)
    found = samples(metrics)
    assert found[f"sse_proxy_streams_total{{outcome=complete,route={ROUTE},upstream=gaapi}}"] == 1
    assert found["sse_proxy_repairs_total{kind=unprefixed_line,upstream=gaapi}"] == 5
    assert found["sse_proxy_repairs_total{kind=bom,upstream=gaapi}"] == 0
    assert found["sse_proxy_keepalives_total{upstream=gaapi}"] == 3
    assert found["sse_proxy_time_to_first_text_seconds_sum"] == 1.5
    assert found["sse_proxy_stream_duration_seconds_bucket{le=10.0}"] == 0
    assert found["sse_proxy_stream_duration_seconds_bucket{le=20.0}"] == 1
    assert not any(value for name, value in found.items() if name.startswith("sse_proxy_failures_total"))


def test_a_failed_stream_counts_its_code(metrics: Metrics) -> None:
    ledger = Ledger(outcome=Outcome.FAILED, code=FailureCode.UPSTREAM_STALLED, duration_s=300.0)
    metrics.observe_stream("gaapi", ROUTE, ledger)
    found = samples(metrics)
    assert found[f"sse_proxy_streams_total{{outcome=failed,route={ROUTE},upstream=gaapi}}"] == 1
    assert found["sse_proxy_failures_total{code=upstream_stalled,upstream=gaapi}"] == 1
    assert found["sse_proxy_time_to_first_text_seconds_count"] == 0  # it never had text


def test_a_stream_without_an_outcome_is_a_fault_of_ours(metrics: Metrics) -> None:
    metrics.observe_stream("gaapi", ROUTE, Ledger())
    assert samples(metrics)["sse_proxy_failures_total{code=internal,upstream=gaapi}"] == 1


def test_what_was_passed_on_has_no_stream_duration(metrics: Metrics) -> None:
    metrics.observe_stream("gaapi", ROUTE, Ledger(outcome=Outcome.PASSED_ON, duration_s=0.01))
    found = samples(metrics)
    assert found[f"sse_proxy_streams_total{{outcome=passed_on,route={ROUTE},upstream=gaapi}}"] == 1
    assert found["sse_proxy_stream_duration_seconds_count"] == 0


def test_no_request_can_add_a_label_value(metrics: Metrics) -> None:
    before = set(samples(metrics))
    for n in range(50):
        metrics.observe_stream("gaapi", f"/path/of/a/request/{n}", Ledger(outcome=Outcome.COMPLETE))
        metrics.observe_request(f"name-{n}", 200)
        metrics.observe_request("gaapi", 1000 + n)
        metrics.observe_stream(f"name-{n}", ROUTE, Ledger(outcome=Outcome.COMPLETE))
    found = samples(metrics)
    assert set(found) - before == {
        "sse_proxy_requests_total{status=other,upstream=gaapi}",
        f"sse_proxy_streams_total{{outcome=complete,route={UNDECLARED},upstream={NO_UPSTREAM}}}",
    }
    assert found[f"sse_proxy_streams_total{{outcome=complete,route={UNDECLARED},upstream=gaapi}}"] == 50
    assert found[f"sse_proxy_requests_total{{status=200,upstream={NO_UPSTREAM}}}"] == 50


def test_requests_are_counted_by_status(metrics: Metrics) -> None:
    for status in (200, 200, 404):
        metrics.observe_request("gaapi", status)
    found = samples(metrics)
    assert found["sse_proxy_requests_total{status=200,upstream=gaapi}"] == 2
    assert found["sse_proxy_requests_total{status=404,upstream=gaapi}"] == 1


def test_declaring_again_resets_nothing_and_adds_routes(metrics: Metrics) -> None:
    metrics.observe_request("gaapi", 200)
    metrics.declare("gaapi", ["/new"])
    metrics.observe_stream("gaapi", "/new", Ledger(outcome=Outcome.COMPLETE))
    metrics.observe_stream("gaapi", ROUTE, Ledger(outcome=Outcome.COMPLETE))
    found = samples(metrics)
    assert found["sse_proxy_requests_total{status=200,upstream=gaapi}"] == 1
    assert found["sse_proxy_streams_total{outcome=complete,route=/new,upstream=gaapi}"] == 1
    assert found[f"sse_proxy_streams_total{{outcome=complete,route={ROUTE},upstream=gaapi}}"] == 1


def test_the_active_streams_are_read_at_the_scrape(metrics: Metrics) -> None:
    running = 3
    metrics.watch_active(lambda: running)
    assert samples(metrics)["sse_proxy_streams_active"] == 3
    running = 0
    assert samples(metrics)["sse_proxy_streams_active"] == 0


def test_two_proxies_count_apart_and_nothing_is_global(metrics: Metrics) -> None:
    other = Metrics()
    other.declare("gaapi", [ROUTE])
    metrics.observe_request("gaapi", 200)
    assert samples(other)["sse_proxy_requests_total{status=200,upstream=gaapi}"] == 0
    assert not [family.name for family in REGISTRY.collect() if family.name.startswith("sse_proxy")]


def test_a_scrape_names_its_format() -> None:
    assert Metrics().render()[1].startswith("text/plain; version=")
