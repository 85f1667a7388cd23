from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from support.suite.naming import lacking
from trellis.bus.consume.staleness import Listeners, Staleness
from trellis.telemetry import Metrics, Telemetry, setup
from trellis.telemetry.health import Health

STALLED_AFTER = 60.0
LABELS = {"service": "provisioner", "subscription": "nodes"}


@dataclass
class World:
    """A subscription, the time, and for how long the server has answered."""

    time: float = 1000.0
    answering: float = 1000.0
    telemetry: Telemetry = field(default_factory=lambda: setup("provisioner", metrics=Metrics()))
    health: Health = field(default_factory=lambda: Health("provisioner"))

    def __post_init__(self) -> None:
        listeners = Listeners(
            self.telemetry, self.health, lambda: self.answering, STALLED_AFTER, clock=lambda: self.time
        )
        self.staleness = Staleness("nodes", listeners)
        self.staleness.begin()

    def pass_seconds(self, seconds: float) -> None:
        self.time += seconds

    @property
    def gauge(self) -> float | None:
        return self.telemetry.metrics.registry.get_sample_value("trellis_subscription_staleness_seconds", LABELS)


@pytest.fixture
def world() -> World:
    return World()


def test_an_idle_consumer_is_not_stale_while_its_loop_runs(world: World) -> None:
    for _ in range(100):
        world.pass_seconds(5)
        world.staleness.went_round()
        world.staleness.received()
        assert not world.staleness.needs_repair
    assert world.staleness.staleness() == 0
    assert world.health.liveness().ok


@pytest.mark.parametrize("sign", ["went_round", "received"])
def test_a_loop_that_stands_is_stale_and_so_is_one_that_goes_round_while_messages_wait(world: World, sign: str) -> None:
    for _ in range(4):
        world.pass_seconds(7)
        getattr(world.staleness, sign)()
    assert world.staleness.staleness() == 28
    assert world.gauge == 28
    assert world.staleness.needs_repair


def test_it_is_recreated_twice_before_a_restart_is_requested(world: World) -> None:
    repairs = 0
    while world.health.liveness().ok:
        world.pass_seconds(1)
        if world.staleness.needs_repair:
            repairs += 1
            world.staleness.made()
    assert repairs == 2
    assert world.staleness.staleness() == 60
    [reason] = world.health.liveness().reasons
    assert lacking(reason, "subscription nodes", "60 s") == []
    world.staleness.went_round()
    world.staleness.received()
    assert world.health.liveness().ok


def test_an_outage_never_requests_a_restart_and_a_later_check_has_its_minute(world: World) -> None:
    world.answering = 0
    world.pass_seconds(3600)
    assert world.health.liveness().ok
    world.staleness.made()
    assert not world.staleness.needs_repair, "it was made just now"
    world.answering = 59
    assert world.health.liveness().ok
    world.answering = 60
    assert not world.health.liveness().ok


def test_a_stopped_consumer_is_not_stale_and_not_checked(world: World) -> None:
    world.pass_seconds(3600)
    world.staleness.end()
    assert world.health.liveness().ok
    assert world.gauge is None
    world.staleness.begin()
    assert world.gauge == 0
