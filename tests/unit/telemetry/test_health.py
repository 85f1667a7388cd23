"""The readiness and the liveness of a service."""

from __future__ import annotations

from trellis.telemetry.health import Health, LoopLag, Verdict


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_it_is_not_ready_until_each_expected_part_was_once() -> None:
    health = Health("node_watcher")
    health.expect("bus", "kubernetes")
    verdict = health.readiness()
    assert not verdict.ok
    assert [reason.partition(": ")[0] for reason in verdict.reasons] == ["bus", "kubernetes"]
    health.ready("bus")
    assert not health.readiness().ok
    health.ready("kubernetes")
    assert health.readiness() == Verdict(ok=True)


def test_a_part_that_was_ready_before_it_was_expected_stays_ready() -> None:
    health = Health("node_watcher")
    health.ready("bus")
    health.expect("bus")
    assert health.readiness().ok


def test_an_outage_makes_it_not_ready_but_not_dead() -> None:
    health = Health("node_watcher")
    health.ready("kubernetes")
    health.not_ready("kubernetes", "connection refused at https://10.0.0.1:6443")
    assert health.readiness().reasons == ("kubernetes: connection refused at https://10.0.0.1:6443",)
    assert health.liveness() == Verdict(ok=True)


def test_the_latest_reason_counts() -> None:
    health = Health("node_watcher")
    health.not_ready("bus", "connection refused")
    health.not_ready("bus", "not authorized")
    assert health.readiness().reasons == ("bus: not authorized",)
    health.ready("bus")
    assert health.readiness().ok


def test_a_reason_shows_no_password() -> None:
    health = Health("node_watcher")
    health.not_ready("bus", "cannot reach nats://me:hunter2@bus")
    health.add_liveness("bus", lambda: "no progress at nats://me:hunter2@bus")
    assert "hunter2" not in str((health.readiness(), health.liveness()))


def test_only_a_probe_makes_it_dead_and_the_probe_is_evaluated_each_time() -> None:
    answers = iter(["no progress for 61 s", None])
    health = Health("node_watcher")
    health.add_liveness("watch nodes", lambda: next(answers))
    assert health.liveness() == Verdict(ok=False, reasons=("watch nodes: no progress for 61 s",))
    assert health.liveness() == Verdict(ok=True)


def test_a_part_that_is_forgotten_no_longer_counts() -> None:
    health = Health("node_watcher")
    health.not_ready("watch nodes", "stopped")
    health.add_liveness("watch nodes", lambda: "dead")
    health.forget("watch nodes")
    assert health.readiness().ok
    assert health.liveness().ok
    health.expect("watch nodes")
    assert not health.readiness().ok


def test_it_knows_for_how_long_it_has_not_been_ready() -> None:
    clock = Clock()
    health = Health("node_watcher", clock=clock)
    assert health.not_ready_seconds() == 0
    health.not_ready("bus", "away")
    clock.now += 5
    health.not_ready("kubernetes", "away")
    health.ready("bus")
    clock.now += 2
    assert health.not_ready_seconds() == 7
    health.ready("kubernetes")
    clock.now += 9
    assert health.not_ready_seconds() == 0


def test_the_lag_is_the_delay_of_the_loop_and_is_reported_once() -> None:
    clock = Clock()
    lag = LoopLag(1.0, clock)
    clock.now += 0.5
    assert lag.take() == 0
    clock.now += 3.5
    assert lag.take() == 3.0
    clock.now += 0.25
    assert lag.take() == 0.25
