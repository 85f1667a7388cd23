"""Metrics: their names are a contract with dashboards; callbacks are read at each scrape."""

from __future__ import annotations

import pytest
from prometheus_client import generate_latest

from trellis.telemetry import Metrics, process_metrics
from trellis.telemetry.observed import ObservedGauge


def sample(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def test_the_names_and_labels_are_those_of_the_dashboards() -> None:
    metrics = Metrics()
    metrics.handler_seconds.labels("s", "q").observe(0.1)
    metrics.retries_total.labels("s", "q").inc()
    metrics.dead_letters_total.labels("s", "Unparseable").inc()
    metrics.events_published_total.labels("s", "t").inc()
    metrics.events_received_total.labels("s", "t").inc()
    metrics.kube_requests_total.labels("s", "PATCH", "nodes", "200").inc()
    metrics.leader.labels("s").set(1)
    metrics.circuit_breaker_open.labels("s", "nodes").set(1)
    metrics.circuit_breaker_paused_total.labels("s", "nodes").inc()
    metrics.queue("s", "q", lambda: 2, lambda: 3)
    metrics.watch_staleness("s", "jobs", "jobs in a", lambda: 4)
    metrics.watch_staleness("s", "jobs", "jobs in b", lambda: 5)
    assert sample(metrics, "trellis_handler_seconds_count", service="s", queue="q") == 1
    assert sample(metrics, "trellis_retries_total", service="s", queue="q") == 1
    assert sample(metrics, "trellis_dead_letters_total", service="s", reason="Unparseable") == 1
    assert sample(metrics, "trellis_events_published_total", service="s", type="t") == 1
    assert sample(metrics, "trellis_events_received_total", service="s", type="t") == 1
    assert sample(metrics, "trellis_kube_requests_total", service="s", verb="PATCH", resource="nodes", code="200") == 1
    assert sample(metrics, "trellis_leader", service="s") == 1
    assert sample(metrics, "trellis_circuit_breaker_open", service="s", kind="nodes") == 1
    assert sample(metrics, "trellis_circuit_breaker_paused_total", service="s", kind="nodes") == 1
    assert sample(metrics, "trellis_queue_depth", service="s", queue="q") == 2
    assert sample(metrics, "trellis_queue_oldest_seconds", service="s", queue="q") == 3
    for watch, seconds in (("jobs in a", 4), ("jobs in b", 5)):
        labels = {"service": "s", "resource": "jobs", "watch": watch}
        assert sample(metrics, "trellis_watch_staleness_seconds", **labels) == seconds
    assert sample(metrics, "trellis_event_loop_lag_seconds") == 0
    assert b"trellis_build_info" in generate_latest(metrics.registry)


def test_a_callback_is_evaluated_at_each_scrape() -> None:
    metrics, readings = Metrics(), iter([1.0, 2.0])
    metrics.watch_staleness("s", "nodes", "nodes", lambda: next(readings))
    labels = {"service": "s", "resource": "nodes", "watch": "nodes"}
    assert [sample(metrics, "trellis_watch_staleness_seconds", **labels) for _ in "ab"] == [1, 2]


def test_a_queue_made_again_replaces_the_former_which_can_no_longer_end_it() -> None:
    metrics = Metrics()
    forget_former = metrics.queue("s", "q", lambda: 1, lambda: 1)
    forget = metrics.queue("s", "q", lambda: 2, lambda: 2)
    forget_former()
    assert sample(metrics, "trellis_queue_depth", service="s", queue="q") == 2
    forget()
    forget()
    assert sample(metrics, "trellis_queue_depth", service="s", queue="q") is None
    assert sample(metrics, "trellis_queue_oldest_seconds", service="s", queue="q") is None


def test_a_removed_watch_keeps_the_others() -> None:
    metrics = Metrics()
    forget = metrics.watch_staleness("s", "jobs", "jobs in a", lambda: 1)
    metrics.watch_staleness("s", "jobs", "jobs in b", lambda: 2)
    metrics.watch_staleness("other", "jobs", "jobs in a", lambda: 3)
    forget()

    def left(service: str, watch: str) -> float | None:
        labels = {"service": service, "resource": "jobs", "watch": watch}
        return sample(metrics, "trellis_watch_staleness_seconds", **labels)

    assert (left("s", "jobs in a"), left("s", "jobs in b"), left("other", "jobs in a")) == (None, 2, 3)


def test_services_of_a_process_share_one_registry_with_its_memory_in_it() -> None:
    assert process_metrics() is process_metrics()
    assert (sample(process_metrics(), "process_resident_memory_bytes") or 0) > 1e6


@pytest.mark.parametrize("wrong", [("s",), ("s", "q", "x")])
def test_a_wrong_number_of_labels_is_an_error(wrong: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="label"):
        Metrics().retries_total.labels(*wrong)


def test_a_series_of_callbacks_needs_all_labels() -> None:
    with pytest.raises(ValueError, match="label"):
        Metrics().queue_depth.observe(("s",), lambda: 1)


def test_a_name_cannot_be_registered_twice() -> None:
    metrics = Metrics()
    with pytest.raises(ValueError, match="trellis_queue_depth"):
        ObservedGauge("trellis_queue_depth", "another", ("service",), metrics.registry)
