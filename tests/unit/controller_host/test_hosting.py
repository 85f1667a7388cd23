"""Controllers hosted: started, called for each change, suspended to disk, woken, in turns."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson

from controller_host.domain.keys import ObjectKey
from controller_host.domain.maximum_limits import MaximumLimits
from controller_host.domain.views import view_controller
from support.guests.fake_guests import FakeInstance
from support.guests.hosting_parts import key_of
from support.guests.hosting_world import KEY, Hostile, Recorder, World, names_in
from support.suite.naming import lacking


async def test_an_object_deleted_during_its_delivery_is_delivered_as_deleted(world: World, recorder: Recorder) -> None:
    requested, gate, allowed = asyncio.Event(), asyncio.Event(), world.watches.allowed

    async def slow_review(controller: str, user: str, key: ObjectKey) -> bool | None:
        if key.name == "b":
            requested.set()
            await gate.wait()
        return await allowed(controller, user, key)

    world.watches.allowed = slow_review  # type: ignore[method-assign]
    world.add("recorder")
    async with world.running():
        await world.at_rest()
        world.watches.put("a")
        world.watches.put("b")
        await asyncio.wait_for(requested.wait(), 10)
        world.watches.remove("a")
        gate.set()
        await world.until(lambda: len(recorder.requests) == 3, "told that a is gone")
        seen = [(request["key"]["name"], request["object"] is not None) for request in recorder.requests]
        assert seen == [("a", True), ("b", True), ("a", False)]


async def test_objects_already_seen_wake_no_guest(world: World, recorder: Recorder) -> None:
    world.add("recorder")
    world.watches.put("a")
    async with world.running():
        await world.at_rest()
        world.watches.notify(key_of("a"))
        world.queue.add(KEY)
        await world.queue.wait_idle()
        await world.at_rest()
        assert len(recorder.requests) == 1
        assert world.guests.woken == 0


async def test_a_controller_is_called_no_oftener_than_its_limit(world: World, recorder: Recorder) -> None:
    world.add("recorder", limits={"callsPerSecond": 5})
    for number in range(12):
        world.watches.put(f"c{number}")
    async with world.running():
        await world.until(lambda: len(recorder.requests) >= 5, "at once")
        assert len(recorder.requests) <= 6
        await world.until(lambda: len(recorder.requests) == 12, "in the end all")


async def test_one_with_a_long_list_lets_others_have_their_turn(tmp_path: Path) -> None:
    order: list[str] = []

    def slow(instance: FakeInstance, export: str, request: dict[str, Any]) -> dict[str, Any]:
        if export == "reconcile":
            instance.wait(0.01)
            order.append(request and "busy")
        return {}

    def quick(instance: FakeInstance, export: str, request: dict[str, Any]) -> dict[str, Any]:
        del instance, request
        if export == "reconcile":
            order.append("other")
        return {}

    world = World(tmp_path, {b"slow": slow, b"quick": quick})
    world.threads = 1
    world.add("slow", "busy", limits={"callsPerSecond": 10000})
    for number in range(100):
        world.watches.put(f"c{number}")
    async with world.running():
        await world.until(lambda: len(order) > 3, "busy")
        world.add("quick", "other", limits={"callsPerSecond": 10000})
        await world.until(lambda: "other" in order, "the other had its turn")
        assert order.count("busy") < 90


async def test_a_paused_controller_is_not_called_and_receives_the_missed_objects_afterwards(
    world: World, recorder: Recorder
) -> None:
    world.add("recorder", paused=True)
    world.watches.put("a")
    async with world.running():
        await world.until(lambda: KEY in world.changed, "looked at")
        assert recorder.requests == []
        world.add("recorder", generation=2)
        await world.at_rest()
        assert names_in(recorder.requests) == ["a"]


async def test_a_refusal_of_a_former_spec_is_not_reported_on_a_paused_controller(world: World) -> None:
    world.add("recorder", watches="none")
    async with world.running():
        await world.until(lambda: KEY in world.hosting.hosted and world.one().refused is not None, "it cannot be read")
        world.add("recorder", generation=2, paused=True)
        await world.until(lambda: world.one().view.generation == 2 and not world.one().busy, "it is paused")
        assert world.one().refused is None


async def test_a_deleted_controller_leaves_nothing(world: World) -> None:
    world.add("recorder")
    world.watches.put("a")
    async with world.running():
        await world.at_rest()
        assert world.guests.snapshots
        del world.views[KEY]
        world.queue.add(KEY)
        progress = world.hosting.parts.progress
        await world.until(lambda: not world.hosting.hosted and progress.load("uid-mirror") is None, "gone")
        assert world.guests.snapshots == {}
        assert world.watches.wanted == {}


async def test_a_namesake_gets_nothing_of_the_former_one(world: World, recorder: Recorder) -> None:
    world.add("recorder")
    world.watches.put("a")
    async with world.running():
        await world.at_rest()
        manifest = {"metadata": {"namespace": "team-a", "name": "mirror", "uid": "another"}}
        world.views[KEY] = view_controller(manifest | {"spec": orjson.loads(world.views[KEY].spec)})
        world.queue.add(KEY)
        await world.until(lambda: len(recorder.requests) == 2, "told anew")
        assert recorder.counts == [1, 1]


async def test_keys_of_a_kind_that_is_not_watched_any_more_are_forgotten(world: World, recorder: Recorder) -> None:
    world.add("recorder")
    world.watches.put("a")
    async with world.running():
        await world.at_rest()
        world.watches.unknown.add("b")
        world.watches.put("b")
        await world.until(lambda: world.one().next_review_at > 0.0, "nobody knows whether it may be told of b")
        world.watches.unwatched.add("ConfigMap")
        await world.until(lambda: not len(world.one().work_queue), "nobody asks any more")
        world.add("recorder", generation=2, idle={"suspendAfter": "1s"})
        await world.until(lambda: world.one().listed and world.one().view.generation == 2, "all is compared anew")
        assert list(world.one().lifecycle.processed.items()) == []
        assert names_in(recorder.requests) == ["a"]


async def test_objects_that_no_controller_may_watch_cost_no_turns(world: World, recorder: Recorder) -> None:
    requested = []
    allowed = world.watches.allowed

    async def counted(controller: str, user: str, key: ObjectKey) -> bool | None:
        requested.append(key.name)
        return await allowed(controller, user, key)

    world.watches.allowed = counted  # type: ignore[method-assign]
    world.watches.denied |= {f"c{number}" for number in range(40)}
    world.add("recorder", module={"configMap": {"name": "recorder", "key": "module.wasm"}, "sha256": "0" * 64})
    for number in range(40):
        world.watches.put(f"c{number}")
    async with world.running():
        await world.until(lambda: KEY in world.hosting.hosted and world.one().next_review_at > 0.0, "denied")
        await world.queue.wait_idle()
        assert 1 <= len(requested) <= 3, "one answer is that for all"
        assert len(world.one().work_queue) == 40
        world.watches.denied.clear()
        world.queue.add(KEY)
        await world.until(lambda: len(recorder.requests) == 40, "told when it may be")


async def test_a_namespace_that_keeps_all_threads_it_can_get_leaves_some_to_the_others(
    tmp_path: Path, recorder: Recorder
) -> None:
    hostile = Hostile()
    world = World(tmp_path, {b"recorder": recorder, b"hostile": hostile})
    world.threads = 4
    async with world.running():
        for number in range(50):
            world.add("hostile", f"h{number}", namespace="evil")
        await world.until(lambda: hostile.inside == 2, "half of the threads are kept")
        world.add("recorder")
        for number in range(20):
            world.watches.put("a", number)
            await world.until(lambda number=number: len(recorder.requests) == number + 1, "the other is called")
            assert hostile.inside == 2
        hostile.over.set()
        await world.until(lambda: hostile.inside == 0 and world.guests.booted == 51, "each of them had its turn")
        # A place is given back after its guest has ended its turn.
        free = [("team-b", "team-b/x"), ("team-c", "team-c/y")]
        entered: set[str] = set()

        def enters() -> bool:
            entered.update(team for team, key in free if team not in entered and world.hosting.places.enter(team, key))
            return len(entered) == len(free)

        await world.until(enters, "all places are given back")


async def test_a_deleted_controller_leaves_its_place_in_the_queue_to_the_next(
    tmp_path: Path, recorder: Recorder
) -> None:
    hostile = Hostile()
    world = World(tmp_path, {b"recorder": recorder, b"hostile": hostile})
    world.threads = 2
    async with world.running():
        world.add("hostile", "first")
        await world.until(lambda: hostile.inside == 1, "kept")
        deleted, last = world.add("recorder", "gone"), world.add("recorder", "last")
        await world.until(lambda: len(world.hosting.hosted) == 3, "they wait")
        assert recorder.inits == []
        del world.views[deleted]
        hostile.over.set()
        world.queue.add(deleted)
        await world.until(lambda: bool(recorder.inits), "the next one is started")
        assert [request["controller"]["name"] for request in recorder.inits] == ["last"]
        assert last in world.hosting.hosted


async def test_a_spec_above_what_the_platform_allows_is_not_accepted_and_reports_it(
    world: World, recorder: Recorder
) -> None:
    world.maximum_limits = MaximumLimits(memory_bytes=64 << 20)
    world.add("recorder", idle={"suspendAfter": "1h"})
    async with world.running():
        await world.at_rest()
        assert world.one().lifecycle.instance is not None
        world.add("recorder", generation=2, limits={"memory": "65Mi"}, idle={"suspendAfter": "1h"})
        await world.until(lambda: world.one().refused is not None, "refused")
        refused = world.one().refused
        assert refused is not None
        assert refused.reason == "AboveMaximum"
        assert lacking(refused.message, "spec.limits.memory", "65Mi", "64Mi") == []
        await world.until(lambda: world.one().lifecycle.instance is None, "its instance is suspended")
        world.watches.put("a")
        await world.queue.wait_idle()
        assert recorder.requests == []
        world.add("recorder", generation=3, limits={"memory": "64Mi"})
        await world.until(lambda: len(recorder.requests) == 1, "it is called once its spec fits")
        assert world.one().refused is None


async def test_pinned_memory_is_limited_per_namespace_and_free_when_given_back(
    world: World, recorder: Recorder
) -> None:
    world.maximum_limits = MaximumLimits(pinned_bytes=100 << 20)
    first = world.add("recorder", "first", idle={"policy": "Pinned"})
    async with world.running():
        await world.at_rest(first)
        second = world.add("recorder", "second", idle={"policy": "Pinned"})
        await world.until(lambda: world.hosting.hosted.get(second) is not None, "hosted")
        await world.until(lambda: world.one(second).refused is not None, "refused")
        refused = world.one(second).refused
        assert refused is not None
        assert (refused.reason, lacking(refused.message, "100Mi")) == ("AboveMaximum", [])
        del world.views[first]
        world.queue.add(first)
        await world.at_rest(second)
        assert world.one(second).refused is None
        assert len(recorder.inits) == 2
