"""Memory and disk that are short: guests that are suspended, stay or are given up, and reports about it."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from controller_host.state.progress import LastCall
from support.guests.fake_guests import FakeInstance
from support.guests.hosting_world import (
    DEADLINE,
    Recorder,
    World,
    names_in,
)
from trellis.kube.resources import SECRETS
from trellis.limits.backoff import Backoff


async def test_a_new_controller_receives_existing_objects_and_is_suspended(world: World, recorder: Recorder) -> None:
    world.add("recorder", config={"next": "x"})
    world.watches.put("a", x="1")
    async with world.running():
        await world.at_rest()
        assert names_in(recorder.requests) == ["a"]
        assert recorder.requests[0]["object"]["data"] == {"x": "1"}
        assert recorder.inits == [
            {
                "controller": {"namespace": "team-a", "name": "mirror"},
                "config": {"next": "x"},
                "configMaps": {},
                "secrets": {},
            }
        ]
        assert world.one().lifecycle.instance is None
        assert world.one().lifecycle.snapshot


async def test_a_change_wakes_it_with_its_memory_and_a_deletion_too(world: World, recorder: Recorder) -> None:
    world.add("recorder")
    async with world.running():
        await world.at_rest()
        world.watches.put("a")
        await world.until(lambda: len(recorder.requests) == 1, "told of a")
        await world.at_rest()
        world.watches.remove("a")
        await world.until(lambda: len(recorder.requests) == 2, "told that a is gone")
        assert recorder.requests[1]["object"] is None
        assert recorder.counts == [1, 2]
        assert (world.guests.booted, world.one().lifecycle.counters.wakes) == (1, 2)


async def test_one_turn_starts_a_loaded_controller_delivers_existing_objects_and_suspends_it(
    world: World, recorder: Recorder
) -> None:
    world.add("recorder", module={"configMap": {"name": "recorder", "key": "module.wasm"}, "sha256": "0" * 64})
    world.watches.put("a")
    world.watches.put("b")
    async with world.running():
        await world.at_rest()
        assert (world.turns, len(recorder.requests), world.guests.suspended) == (2, 2, 1), "one asked for the module"
    async with world.running():
        await world.at_rest()
        assert (world.turns, len(recorder.requests), world.guests.woken) == (1, 2, 0)


async def test_memory_that_is_short_puts_the_least_recently_used_to_disk_and_never_a_pinned_one(
    tmp_path: Path, recorder: Recorder
) -> None:
    world = World(tmp_path, {b"recorder": recorder})
    world.budget = 2500
    world.add("recorder", "pinned", idle={"policy": "Pinned"})
    async with world.running():
        await world.at_rest("team-a/pinned")
        for name in ("one", "two", "three"):
            world.add("recorder", name, idle={"suspendAfter": "1h"})
            await world.at_rest(f"team-a/{name}")
        await world.until(lambda: world.hosting.residents.total <= 2500, "it fits")
        resident = {key for key, item in world.hosting.hosted.items() if item.lifecycle.instance is not None}
        assert resident == {"team-a/pinned", "team-a/three"}


async def test_a_call_in_progress_at_shutdown_is_ended_and_all_other_guests_are_on_disk(
    tmp_path: Path, recorder: Recorder
) -> None:
    def hangs(instance: FakeInstance, export: str, request: dict[str, Any]) -> dict[str, Any]:
        del request
        if export == "reconcile":
            instance.wait(DEADLINE * 3)
        return {}

    world = World(tmp_path, {b"hangs": hangs, b"recorder": recorder})
    world.add("hangs", "hangs")
    world.add("recorder", "good", idle={"suspendAfter": "1h"})
    world.watches.put("a")
    async with world.running():
        await world.until(lambda: bool(recorder.requests), "told")
        await world.until(lambda: "team-a/hangs" in world.hosting.hosted and world.one("team-a/hangs").busy, "hangs")
    assert "uid-good" in world.guests.snapshots


async def test_the_end_of_a_term_ends_guests_in_a_call_and_keeps_snapshots(tmp_path: Path) -> None:
    counts: list[int] = []

    def hangs(instance: FakeInstance, export: str, request: dict[str, Any]) -> dict[str, Any]:
        if export == "reconcile":
            counts.append(instance.state.setdefault("count", 0))
            instance.state["count"] += 1
            if request["key"]["name"] == "b" and len(counts) == 2:
                instance.wait(DEADLINE * 3)
        return {}

    world = World(tmp_path, {b"hangs": hangs})
    world.add("hangs")
    world.watches.put("a")
    async with world.running():
        await world.at_rest()
        world.watches.put("b")
        await world.until(lambda: len(counts) == 2, "in a call")
        world.hosting.end()
        await world.until(lambda: not world.one().busy, "ended")
        assert world.one().fault is None
        assert world.hosting.calling.stopped
    async with world.running():
        await world.at_rest()
    assert counts == [0, 1, 1], "it continues from its snapshot, and gets its last change again"
    assert world.guests.booted == 1


async def test_a_full_disk_leaves_it_awake_and_it_goes_there_when_there_is_room(
    world: World, recorder: Recorder
) -> None:
    world.guests.full = True
    world.add("recorder")
    world.watches.put("a")
    async with world.running():
        await world.until(lambda: recorder.counts == [1], "told")
        for version in range(2, 6):
            world.watches.put("a", version)
            await world.until(lambda version=version: recorder.counts[-1] == version, "told again")
        item, room = world.one(), world.hosting.parts.disk_space
        await world.until(lambda: room.refuses, "it was tried")
        assert (item.lifecycle.instance is not None, item.stopped, len(recorder.inits)) == (True, None, 1)
        assert room.reason == "DiskFull"
        world.guests.full = False
        await world.until(lambda: item.lifecycle.instance is None, "it is suspended by itself")
        assert (item.lifecycle.snapshot, room.refuses, len(recorder.inits)) == (True, False, 1)


async def test_one_that_is_too_large_for_the_disk_tries_later_and_later_though_others_are_taken(world: World) -> None:
    world.guests.too_large.add("uid-large")
    world.watches.put("a")
    large, small = world.add("recorder", "large"), world.add("recorder", "small")
    async with world.running():
        room, guests = world.hosting.parts.disk_space, world.guests
        for tries in range(1, 6):
            await world.until(lambda tries=tries: guests.refused == tries and not world.one(large).busy, "it was tried")
            wait = world.one(large).not_to_disk_before - time.monotonic()
            assert 2 ** (tries - 1) - 0.5 < wait <= 2 ** (tries - 1)
            room.took()
            taken = guests.suspended
            world.watches.put("a", tries + 1)
            await world.until(lambda taken=taken: guests.suspended > taken, "another one is called, and suspended")
            await world.until(lambda: world.one(small).lifecycle.instance is None, "that one is out of memory")
            assert guests.refused == tries
            if tries == 5:
                guests.too_large.clear()
            world.one(large).not_to_disk_before = 0.0
            world.queue.add(large)
        await world.until(lambda: world.one(large).lifecycle.instance is None, "it goes there when there is room")
        assert world.one(large).failed_writes == 0


async def test_without_memory_and_disk_some_controllers_stay_and_the_rest_report_it_and_start_later(
    tmp_path: Path, recorder: Recorder
) -> None:
    world = World(tmp_path, {b"recorder": recorder})
    world.budget = 2500
    world.guests.full = True
    names = ["one", "two", "three", "four"]
    world.watches.put("a")
    async with world.running():
        for name in names:
            world.add("recorder", name, idle={"suspendAfter": "1h"})
            await world.until(lambda name=name: f"team-a/{name}" in world.hosting.hosted, "hosted")
        hosted = world.hosting.hosted.values()

        def ended() -> list[str]:
            return [
                item.stopped.reason for item in hosted if item.stopped is not None and item.lifecycle.instance is None
            ]

        def is_settled() -> bool:
            return ended() == ["DiskFull"] * 2 and sum(item.lifecycle.instance is not None for item in hosted) == 2

        await world.until(lambda: len(recorder.inits) >= 4 and is_settled(), "two are given up")
        assert world.hosting.residents.total <= 2500
        tries = world.guests.booted
        for version in range(2, 12):
            world.watches.put("a", version)
            call = LastCall(f"u-a/{version}")
            await world.until(
                lambda last=call: (
                    sum(item.lifecycle.processed.get("v1 ConfigMap team-a a") == last for item in hosted) == 2
                ),
                "those that stayed are called",
            )
        assert world.guests.booted == tries, "and the others do not push them out"
        world.guests.full = False
        world.hosting.parts.disk_space.took()
        world.hosting.memory.recovered()
        await world.until(
            lambda: all(item.lifecycle.processed.get("v1 ConfigMap team-a a") == LastCall("u-a/11") for item in hosted),
            "all are told",
        )
        await world.until(lambda: all(item.stopped is None for item in hosted), "and none says otherwise")


@pytest.mark.parametrize("error", ["not accepted", "waiting", "paused", "unreadable"])
async def test_memory_is_reclaimed_from_one_that_is_not_called(world: World, recorder: Recorder, error: str) -> None:
    world.budget = 1500
    world.kube.put(SECRETS, {"metadata": {"namespace": "team-a", "name": "s"}})
    spec = {"idle": {"suspendAfter": "1h"}, "secretRefs": [{"name": "s"}]}
    world.add("recorder", "first", **spec)
    async with world.running():
        await world.until(lambda: len(recorder.inits) == 1, "started")
        await world.at_rest("team-a/first")
        first = world.one("team-a/first")
        world.hosting.outcomes.backoff = Backoff(first=1000.0, cap=1000.0, random=lambda: 1.0)
        if error == "not accepted":
            world.kube.remove(SECRETS, "s", "team-a")
            await world.until(lambda: first.refused is not None, "refused")
        elif error == "waiting":
            first.not_before = time.monotonic() + 1000
        elif error == "paused":
            world.guests.full = True
            world.add("recorder", "first", 2, paused=True, **spec)
            await world.until(lambda: first.wanted is not None and first.wanted.paused, "paused")
            world.guests.full = False
        else:
            world.add("recorder", "first", 2, watches="none", **spec)
            await world.until(lambda: first.wanted is None, "it cannot be read")
        world.add("recorder", "second", idle={"suspendAfter": "1h"})
        await world.until(lambda: first.lifecycle.instance is None, "its memory is taken back")
        await world.at_rest("team-a/second")
        assert world.one("team-a/second").lifecycle.instance is not None
        assert "uid-first" in world.guests.snapshots


async def test_an_inspected_guest_is_not_the_last_called_one(world: World, recorder: Recorder) -> None:
    world.budget = 2500
    async with world.running():
        for number, name in enumerate(["one", "two", "three"], 1):
            if name == "three":
                looks = world.sources.fetched
                await world.until(lambda looks=looks: world.sources.fetched >= looks + 3, "both are looked at")
                world.queue.add("team-a/one")
                await world.queue.wait_idle()
            world.add("recorder", name, idle={"suspendAfter": "1h"})
            await world.until(lambda number=number: len(recorder.inits) == number, "started")
        await world.until(lambda: world.hosting.residents.total <= 2500, "it fits")
        assert world.one("team-a/one").lifecycle.instance is None
        assert world.one("team-a/two").lifecycle.instance is not None


async def test_a_call_and_its_way_to_disk_are_one_job_of_one_thread(
    world: World, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.add("recorder")
    world.sources_interval = 600.0  # reading the module again would be a job, too
    async with world.running():
        await world.at_rest()
        jobs, submit = [], world.hosting.pool.submit

        def counted(job: Any, *arguments: Any) -> Any:
            jobs.append(job)
            return submit(job, *arguments)

        monkeypatch.setattr(world.hosting.pool, "submit", counted)
        world.watches.put("a")
        await world.until(lambda: len(recorder.requests) == 1, "told of a")
        await world.at_rest()
        assert len(jobs) == 1
        assert (world.one().lifecycle.instance, world.one().lifecycle.counters.suspends) == (None, 2)


async def test_a_change_during_a_call_finds_the_guest_in_memory(tmp_path: Path) -> None:
    class Slow(Recorder):
        def __init__(self) -> None:
            super().__init__()
            self.inside, self.go_on = threading.Event(), threading.Event()

        def answer(self, instance: FakeInstance, request: dict[str, Any]) -> dict[str, Any]:
            self.inside.set()
            self.go_on.wait(DEADLINE)
            return super().answer(instance, request)

    slow = Slow()
    world = World(tmp_path, {b"slow": slow})
    world.add("slow")
    async with world.running():
        await world.at_rest()
        world.watches.put("a")
        await world.until(slow.inside.is_set, "called for a")
        world.watches.put("b")
        slow.go_on.set()
        await world.until(lambda: len(slow.requests) == 2, "told of b")
        await world.at_rest()
        assert world.one().lifecycle.counters.wakes == 1
        assert world.one().lifecycle.instance is None


@pytest.mark.parametrize(
    ("answer", "stays"), [({"requeueAfter": 0}, True), ({"requeueAfter": 60}, False), ({"error": "no"}, False)]
)
async def test_a_guest_that_requests_another_call_at_once_is_not_suspended_before(
    tmp_path: Path, answer: dict[str, Any], stays: bool
) -> None:
    class Asking(Recorder):
        def answer(self, instance: FakeInstance, request: dict[str, Any]) -> dict[str, Any]:
            return answer if len(self.requests) == 1 else super().answer(instance, request)

    asking = Asking()
    world = World(tmp_path, {b"asking": asking})
    world.add("asking")
    async with world.running():
        await world.at_rest()
        world.watches.put("a")
        await world.until(lambda: len(asking.requests) == 1 + stays, "called as often as it wants to be")
        await world.until(lambda: world.one().lifecycle.instance is None and not world.one().busy, "suspended")
        assert world.one().lifecycle.counters.wakes == 1
        assert len(asking.requests) == 1 + stays
