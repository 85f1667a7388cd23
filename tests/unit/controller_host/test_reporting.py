"""The status writes for controllers, and their limited number."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controller_host.domain.accounts import Account
from controller_host.domain.views import read_spec, view_controller
from controller_host.host_calls.calling import Calling, Calls
from controller_host.report.reporting import Reporting, seen_of, standing_of
from controller_host.report.status import Before, is_urgent, patch_of, status_of
from controller_host.scheduler.hosted import Fault, Hosted, Trouble
from controller_host.scheduler.lifecycle import GuestLifecycle
from controller_host.scheduler.starting import Parts
from controller_host.scheduler.turns import Line
from controller_host.state.progress import KnownModule, Progress
from controller_host.timings import ReportTimings
from support.guests.fake_guests import FakeGuests
from trellis.bus.errors import BusUnavailable
from trellis.events.envelope import EventData
from trellis.kube.informer import Informer
from trellis.kube.recorder import EventRecorder
from trellis.kube.resources import EVENTS, NAMESPACES, WASM_CONTROLLERS
from trellis.telemetry import setup
from trellis.telemetry.metrics import Metrics
from trellis_dev.fakes.fake import FakeKube

KEY = "team-a/mirror"
SPEC = {
    "module": {"configMap": {"name": "mirror", "key": "module.wasm"}},
    "serviceAccountName": "mirror",
    "watches": [{"apiVersion": "v1", "kind": "ConfigMap"}],
}


class SomeBus:
    def __init__(self) -> None:
        self.published: list[EventData] = []
        self.unavailable = False

    async def publish(self, event: EventData, *, dedup: str) -> None:
        assert dedup
        if self.unavailable:
            raise BusUnavailable
        self.published.append(event)


def kube_with_a_controller() -> FakeKube:
    kube = FakeKube(telemetry=setup("test", metrics=Metrics()))
    kube.put(NAMESPACES, {"metadata": {"name": "team-a"}})
    kube.put(WASM_CONTROLLERS, {"metadata": {"namespace": "team-a", "name": "mirror"}, "spec": SPEC})
    return kube


class World:
    def __init__(
        self,
        directory: Path,
        kube: FakeKube | None = None,
        timings: ReportTimings = ReportTimings(),  # noqa: B008 - frozen
    ) -> None:
        telemetry = setup("test", metrics=Metrics())
        self.kube = kube or kube_with_a_controller()
        self.bus = SomeBus()
        self.informer = Informer(self.kube, WASM_CONTROLLERS, view_controller, lambda _: None)
        self.not_watched: Trouble | None = None
        view = self.informer.objects[KEY] = view_controller(self.kube.objects(WASM_CONTROLLERS)[0])
        self.progress = Progress(directory)
        calling = Calling(lambda _: self.kube, None, telemetry, lambda _: None)  # type: ignore[arg-type]
        account = Account(KEY, "user", "manager")
        lifecycle = GuestLifecycle(
            Parts(FakeGuests({}), self.progress, telemetry), KEY, view.uid, Calls(calling, account, 0)
        )
        self.one = Hosted(view, account, lifecycle, read_spec(view), KnownModule("ab" * 32, 1, 7), ready=True)
        self.added: list[str] = []
        self.later: list[float] = []
        self.reporting = Reporting(
            self.kube,
            self.bus,  # type: ignore[arg-type]
            EventRecorder(self.kube, component="trellis.dev/controller-host"),
            {KEY: self.one},
            self.informer,
            lambda _: self.not_watched,
            add=self.added.append,
            add_after=lambda _, seconds: self.later.append(seconds),
            timings=timings,
        )

    @property
    def status(self) -> dict[str, Any]:
        return dict(self.kube.objects(WASM_CONTROLLERS)[0].get("status") or {})

    @property
    def patches(self) -> int:
        return sum(request.method == "PATCH" and "status" in request.path for request in self.kube.writes)


@pytest.fixture
async def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def test_the_first_look_is_written_and_the_same_again_is_not(world: World) -> None:
    for _ in range(3):
        await world.reporting.run(KEY, None)
    assert world.patches == 1
    assert world.status["state"] == "Cold"
    assert {condition["type"] for condition in world.status["conditions"]} >= {"Accepted", "Ready", "WatchesGranted"}


async def test_figures_wait_for_their_minute_and_a_condition_does_not(world: World) -> None:
    await world.reporting.run(KEY, None)
    world.one.lifecycle.counters.calls = 7
    world.reporting.changed(world.one)
    assert world.added == []
    assert 50 < world.later[0] <= 60
    wait = await world.reporting.run(KEY, None)
    assert wait is not None
    assert 50 < wait <= 60
    assert (world.patches, world.status["calls"]) == (1, 0)
    world.reporting.changed(world.one)
    world.one.stopped = Trouble("Trapped", "unreachable")
    world.reporting.changed(world.one)
    assert world.added == [KEY], "what is due later holds nothing up"
    await world.reporting.run(KEY, None)
    assert (world.patches, world.status["calls"]) == (2, 7)


@pytest.mark.parametrize(("spent", "writes"), [("conditions", 0), ("counters", 1)])
async def test_all_together_write_no_oftener_than_their_budget(world: World, spent: str, writes: int) -> None:
    line = Line(1)
    line.stand(time.monotonic())
    setattr(world.reporting, spent, line)
    wait = await world.reporting.run(KEY, None)
    assert world.patches == writes, "a condition is written whatever counters have used"
    assert (wait is not None and 0 < wait <= 1) == (not writes)


async def test_figures_have_a_budget_of_their_own(tmp_path: Path) -> None:
    world = World(tmp_path, timings=ReportTimings(counters=0.0))
    await world.reporting.run(KEY, None)
    world.reporting.counters = Line(1)
    world.reporting.counters.stand(time.monotonic())
    world.one.lifecycle.counters.calls = 7
    wait = await world.reporting.run(KEY, None)
    assert wait is not None
    assert 0 < wait <= 1
    assert world.patches == 1


async def test_a_waiting_report_keeps_its_position(world: World) -> None:
    world.reporting.conditions = Line(1)
    for _ in range(3):
        world.reporting.conditions.stand(time.monotonic())
    waits = [await world.reporting.run(KEY, None) for _ in range(3)]
    assert all(wait is not None and 2 < wait <= 3 for wait in waits), "asking again is not standing in line again"


async def test_a_status_is_written_only_to_the_object_that_was_read(world: World) -> None:
    world.kube.put(
        WASM_CONTROLLERS, {"metadata": {"namespace": "team-a", "name": "mirror"}, "spec": SPEC | {"paused": True}}
    )
    assert await world.reporting.run(KEY, None) == 0.5
    assert world.status == {}


async def test_a_failure_is_an_event_at_its_first_time(world: World) -> None:
    world.one.refused = Trouble("NotWasm", "it has no magic number")
    for _ in range(3):
        await world.reporting.run(KEY, None)
    [event] = world.kube.objects(EVENTS)
    assert (event["reason"], event["type"], event["count"]) == ("NotWasm", "Warning", 1)
    assert event["involvedObject"]["kind"] == "WasmController"
    world.one.refused = None
    world.one.fault = Fault("Trapped", "v1 ConfigMap a x: unreachable", "2026-11-22T10:00:00Z")
    await world.reporting.run(KEY, None)
    assert {event["reason"] for event in world.kube.objects(EVENTS)} == {"NotWasm", "Trapped"}


async def test_repeated_failures_cause_few_events_and_writes(world: World) -> None:
    for number in range(300):
        world.one.work_queue.failed(f"key {number}", 0.0)  # type: ignore[arg-type]
        world.one.fault = Fault("ReconcileFailed", f"v1 ConfigMap a x: {number}", "2026-11-22T10:00:00Z")
        await world.reporting.run(KEY, None)
    events = world.kube.objects(EVENTS)
    assert len(events) == 11
    assert any(event["message"].startswith("(combined from similar events)") for event in events)
    assert world.patches == 1, "how many it fails on is a figure"


async def test_conditions_that_do_not_settle_are_written_once_a_minute_until_the_spec_changes(world: World) -> None:
    wait = None
    for number in range(101):
        world.one.stopped = Trouble("Trapped", "unreachable") if number % 2 else None
        wait = await world.reporting.run(KEY, None)
    assert world.patches == 10
    assert wait is not None
    assert 50 < wait <= 60
    found = world.kube.objects(WASM_CONTROLLERS)[0] | {"spec": SPEC | {"paused": False}}
    view = view_controller(world.kube.put(WASM_CONTROLLERS, found))
    world.one.view = world.informer.objects[KEY] = replace(view, generation=world.one.view.generation + 1)
    await world.reporting.run(KEY, None)
    assert world.patches == 11


async def test_an_event_covers_all_since_the_last_of_its_kind(world: World) -> None:
    counters = world.one.lifecycle.counters
    counters.wakes, counters.suspends = 5, 6
    await world.reporting.run(KEY, None)
    counters.wakes, counters.suspends = 500, 600
    counters.traps, world.one.fault = 3, Fault("Trapped", "unreachable", "2026-11-22T10:00:00Z")
    await world.reporting.run(KEY, None)
    counters.traps = 9
    assert await world.reporting.run(KEY, None) is not None
    published = [(event.event_name, event.count) for event in world.bus.published]  # type: ignore[attr-defined]
    assert published == [("woken", 5), ("suspended", 6), ("trapped", 3)]


async def test_a_bus_that_is_unavailable_delays_events_and_no_status(world: World) -> None:
    world.bus.unavailable = True
    world.one.lifecycle.counters.traps, world.one.fault = 1, Fault("Trapped", "x", "2026-11-22T10:00:00Z")
    wait = await world.reporting.run(KEY, None)
    assert wait == 5
    assert world.patches == 1
    world.bus.unavailable = False
    await world.reporting.run(KEY, None)
    assert [event.event_name for event in world.bus.published] == ["trapped"]


async def test_the_next_process_writes_nothing_until_something_happens_and_counts_on(
    world: World, tmp_path: Path
) -> None:
    counters = world.one.lifecycle.counters
    counters.calls, counters.wakes, counters.traps, counters.snapshot_bytes = 7, 5, 1, 4096
    counters.woken(0.0004)
    world.one.lifecycle._guest_state.snapshot = True
    world.one.fault = Fault("Trapped", "x", "2026-11-22T10:00:00Z")
    await world.reporting.run(KEY, None)
    written = world.status
    assert (written["calls"], written["wakes"], written["traps"]) == (7, 6, 1)
    (tmp_path / "next").mkdir()
    then = World(tmp_path / "next", world.kube)
    then.one.lifecycle._guest_state.snapshot = True
    then.one.lifecycle.counters.snapshot_bytes = 4096 + 512  # the filesystem tells another size now
    await then.reporting.run(KEY, None)
    assert (then.status, then.patches) == (written, 1)
    counters = then.one.lifecycle.counters
    counters.calls, counters.suspends, counters.snapshot_bytes = 1, 1, 8192
    await then.reporting.run(KEY, None)
    assert then.patches == 2
    assert then.status == written | {"calls": 8, "snapshotBytes": 8192}


CHANGES: dict[str, dict[str, Any]] = {
    "another generation": {"generation": 2},
    "it is not ready": {"ready": False},
    "it is refused": {"refused": Trouble("NotWasm", "no")},
    "it is stopped": {"stopped": Trouble("Trapped", "unreachable")},
    "it is fetched": {"fetching": 1.0, "ready": False},
    "another module": {"module": KnownModule("cd" * 32, 1, 7)},
    "it has a fault": {"fault": Fault("Trapped", "unreachable", "2026-11-22T10:00:00Z")},
    "it is in use": {"used_at": 1.0},
    "a key fails": {"fails": True},
    "it was called": {"calls": 7},
    "it takes memory": {"resident_bytes": 7},
}


def change(one: Hosted, name: str, value: Any) -> None:
    if name == "generation":
        one.view = replace(one.view, generation=value)
    elif name == "fails":
        one.work_queue.failed(None, 0.0)  # type: ignore[arg-type]
    else:
        setattr(one if hasattr(one, name) else one.lifecycle.counters, name, value)


@pytest.mark.parametrize("what", CHANGES)
async def test_a_change_is_urgent_if_it_changes_the_standing(world: World, what: str) -> None:
    before = standing_of(world.one, None)
    written = status_of(seen_of(world.one, None, Before()), {}, "2026-11-22T10:00:00Z")
    for name, value in CHANGES[what].items():
        change(world.one, name, value)
    status = status_of(seen_of(world.one, None, Before()), written, "2026-11-22T11:00:00Z")
    assert is_urgent(patch_of(written, status)) == (standing_of(world.one, None) != before)


async def test_a_controller_is_reported_again_once_it_differs_from_its_written_status(world: World) -> None:
    await world.reporting.run(KEY, None)
    for _ in range(3):
        world.one.lifecycle.counters.calls += 1
        world.reporting.changed(world.one)
    assert (world.added, len(world.later)) == ([], 1)
    world.one.stopped = Trouble("Trapped", "unreachable")
    world.reporting.changed(world.one)
    assert world.added == [KEY]
    await world.reporting.run(KEY, None)
    world.one.stopped = None
    world.reporting.changed(world.one)
    assert world.added == [KEY, KEY]
