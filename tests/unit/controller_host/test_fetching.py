"""Modules on their way: no controller waits for another's, and none runs a module that its source would not give it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from controller_host.report.reporting import seen_of
from controller_host.report.status import Before, status_of
from controller_host.timings import Timings, TurnTimings
from support.guests.hosting_world import KEY, Recorder, World
from trellis.kube.resources import SECRETS

SHA = "0" * 64
USER = "system:serviceaccount:team-a:"


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def world(tmp_path: Path, recorder: Recorder) -> World:
    found = World(tmp_path, {b"recorder": recorder, b"other": recorder, b"slow": recorder})
    found.sources.held = {"slow"}
    return found


def pinned(name: str = "recorder") -> dict[str, object]:
    return {"configMap": {"name": name, "key": "module.wasm"}, "sha256": SHA}


async def test_however_many_wait_for_their_modules_the_next_one_is_served(world: World, recorder: Recorder) -> None:
    for number in range(world.threads * 3):
        world.add("slow", f"slow-{number}")
    async with world.running():
        await world.until(lambda: len(world.hosting.fetching) == world.threads * 3, "all wait")
        world.add("recorder")
        world.watches.put("a")
        await world.until(lambda: len(recorder.requests) == 1, "told")
        await world.at_rest()
        world.sources.let.set()
        await world.until(
            lambda: len(recorder.requests) == 1 + world.threads * 3, "all are told, when theirs are there"
        )
        await world.until(lambda: not len(world.hosting.fetching), "none is left")


async def test_requests_of_one_user_for_one_source_share_a_fetch(world: World, recorder: Recorder) -> None:
    for number in range(20):
        world.add("slow", f"slow-{number}", module=pinned("slow"))
    world.watches.put("a")
    async with world.running():
        await world.until(lambda: len(world.hosting.fetching) == 20, "all wait")
        world.sources.let.set()
        await world.until(lambda: len(recorder.requests) == 20, "all are told")
    assert world.sources.fetched == 1


@pytest.mark.parametrize("shared", [0.0, 3600.0])
async def test_a_repeated_check_of_a_source_is_shared(world: World, recorder: Recorder, shared: float) -> None:
    world.shared = shared
    for number in range(20):
        world.add("recorder", f"one-{number}")
    world.watches.put("a")
    async with world.running():
        await world.until(lambda: len(recorder.requests) == 20, "all are told")
        await world.until(lambda: not len(world.hosting.fetching), "none is left")
        fetched, turns = world.sources.fetched, world.turns
        await world.until(lambda: world.turns > turns + 100, "all were checked again")
        assert (world.sources.fetched == fetched) is bool(shared)


async def test_a_shared_check_is_used_for_its_user_and_source_only(world: World, recorder: Recorder) -> None:
    world.shared = 3600.0
    world.add("recorder")
    world.watches.put("a")
    world.sources.denied = {f"{USER}other"}
    async with world.running():
        await world.until(lambda: len(recorder.requests) == 1, "told")
        first, at_once = world.one(), world.hosting.preparing.at_once
        assert first.wanted is not None
        assert at_once(first.view, first.wanted, first.account.user, repeated=True) is not None
        assert at_once(first.view, first.wanted, first.account.user, repeated=False) is None
        assert at_once(first.view, first.wanted, f"{USER}other", repeated=True) is None
        second = world.add("recorder", "second", serviceAccountName="other")
        await world.until(lambda: second in world.hosting.hosted and world.one(second).refused is not None, "refused")
        third = world.add("other", "third")
        await world.until(lambda: len(recorder.requests) == 2, "told")
        assert world.one(third).module is not None
    assert world.sources.fetched >= 3


async def test_a_refusal_that_is_over_does_not_delay_a_later_retry(world: World) -> None:
    world.add("recorder")
    async with world.running():
        await world.until(lambda: KEY in world.hosting.hosted and world.one().ready, "prepared")
        world.sources.denied = {f"{USER}mirror"}
        await world.until(lambda: world.one().failures > 3, "refused again and again")
        world.sources.denied = set()
        await world.until(lambda: world.one().refused is None, "accepted")
        assert world.one().failures == 0


async def test_a_new_spec_ends_the_fetch_for_the_former(world: World, recorder: Recorder) -> None:
    world.add("slow")
    world.watches.put("a")
    async with world.running():
        await world.until(lambda: len(world.hosting.fetching) == 1, "it waits")
        world.add("recorder", generation=2)
        await world.until(lambda: len(recorder.requests) == 1, "told")
        assert world.sources.cancelled == 1
        assert not len(world.hosting.fetching)


@pytest.mark.parametrize("how", ["deleted", "paused"])
async def test_an_unneeded_fetch_is_cancelled(world: World, how: str) -> None:
    world.add("slow")
    async with world.running():
        await world.until(lambda: len(world.hosting.fetching) == 1, "it waits")
        if how == "deleted":
            del world.views[KEY]
            world.queue.add(KEY)
        else:
            world.add("slow", generation=2, paused=True)
        await world.until(lambda: world.sources.cancelled == 1, "ended")
        assert not len(world.hosting.fetching)


async def test_a_host_that_stops_waits_for_no_module_and_the_next_one_fetches_it(
    world: World, recorder: Recorder
) -> None:
    world.add("slow")
    world.watches.put("a")
    async with world.running():
        await world.until(lambda: len(world.hosting.fetching) == 1, "it waits")
    assert world.sources.cancelled == 1
    world.sources.let.set()
    async with world.running():
        await world.until(lambda: len(recorder.requests) == 1, "told")


async def test_a_refused_fetch_is_reported_and_retried(world: World, recorder: Recorder) -> None:
    del world.sources.modules["recorder"]
    world.add("recorder")
    world.watches.put("a")
    async with world.running():
        await world.until(lambda: world.sources.fetched >= 3, "tried again")
        refused = world.one().refused
        assert refused is not None
        assert refused.reason == "ModuleNotFound"
        world.sources.modules["recorder"] = b"recorder"
        await world.until(lambda: len(recorder.requests) == 1, "told")
        assert world.one().refused is None


async def test_a_long_fetch_is_reported(world: World) -> None:
    world.add("slow", "waits")
    world.add("recorder", "runs")
    async with world.running():
        await world.at_rest("team-a/runs")
        await world.until(lambda: len(world.hosting.fetching) == 1, "it waits")
        assert "team-a/waits" not in world.changed
    world.timings = Timings(turns=TurnTimings(fetching=0.0))
    async with world.running():
        await world.until(lambda: "team-a/waits" in world.changed, "told")
        status = status_of(seen_of(world.one("team-a/waits"), None, Before()), {}, "2026-11-22T10:00:00Z")
        found = {condition["type"]: (condition["status"], condition["reason"]) for condition in status["conditions"]}
        assert (found["Accepted"], found["Ready"]) == (("Unknown", "Fetching"), ("False", "Fetching"))


async def test_a_running_controller_continues_while_its_reference_is_resolved(world: World, recorder: Recorder) -> None:
    world.add("recorder")
    async with world.running():
        await world.at_rest()
        world.sources.held.add("recorder")
        await world.until(lambda: len(world.hosting.fetching) == 1, "it is looked at")
        world.watches.put("a")
        await world.until(lambda: len(recorder.requests) == 1, "told meanwhile")
        assert len(world.hosting.fetching) == 1


async def test_a_user_without_permission_does_not_get_a_module_fetched_by_another(
    world: World, recorder: Recorder
) -> None:
    world.sources.confirms = True
    world.sources.denied = {f"{USER}thief"}
    world.add("recorder", "owner", module=pinned())
    world.watches.put("a")
    async with world.running():
        await world.at_rest("team-a/owner")
        world.add("recorder", "thief", module=pinned(), serviceAccountName="thief")
        await world.until(lambda: world.sources.confirmed >= 2, "its source is asked, again and again")
        refused = world.one("team-a/thief").refused
        assert refused is not None
        assert refused.reason == "ModuleForbidden"
        assert len(recorder.requests) == 1
        world.sources.denied.clear()
        await world.until(lambda: len(recorder.requests) == 2, "what is there is run, once its source allows it")
    assert world.sources.fetched == 1


async def test_a_verified_permission_is_not_verified_again(world: World, recorder: Recorder) -> None:
    for number in range(5):
        world.add("recorder", f"c{number}", module=pinned())
    world.watches.put("a")
    async with world.running():
        await world.until(lambda: len(recorder.requests) == 5, "told")
        world.add("recorder", "later", module=pinned())
        await world.until(lambda: len(recorder.requests) == 6, "told")
    async with world.running():
        for number in range(5):
            await world.at_rest(f"team-a/c{number}")
        await world.at_rest("team-a/later")
    assert (world.sources.fetched, world.sources.confirmed) == (1, 0)


async def test_a_verified_permission_is_forgotten_with_its_last_user(world: World, recorder: Recorder) -> None:
    world.sources.confirms = True
    world.add("recorder", "first", module=pinned())
    async with world.running():
        await world.at_rest("team-a/first")
        del world.views["team-a/first"]
        world.queue.add("team-a/first")
        await world.until(lambda: world.queue.depth == 0 and not world.hosting.hosted, "gone, with all that is stored")
        world.add("recorder", "second", module=pinned())
        await world.at_rest("team-a/second")
    assert (world.sources.fetched, world.sources.confirmed) == (1, 1)
    assert len(recorder.inits) == 2


async def test_one_with_references_reads_them_outside_of_its_turn(
    world: World, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.kube.put(SECRETS, {"metadata": {"namespace": "team-a", "name": "key"}, "data": {"x": "eA=="}})
    get, let = world.kube.get, asyncio.Event()

    async def slow(*arguments: object, **more: object) -> object:
        await let.wait()
        return await get(*arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(world.kube, "get", slow)
    for number in range(world.threads * 2):
        world.add("recorder", f"refers-{number}", module=pinned(), secretRefs=[{"name": "key"}])
    async with world.running():
        await world.until(lambda: len(world.hosting.fetching) == world.threads * 2, "all wait")
        world.add("recorder")
        world.watches.put("a")
        await world.until(lambda: len(recorder.requests) == 1, "told")
        let.set()
        await world.until(lambda: len(recorder.requests) == 1 + world.threads * 2, "all are told")
        assert recorder.inits[-1]["secrets"] == {"key": {"x": "eA=="}}
