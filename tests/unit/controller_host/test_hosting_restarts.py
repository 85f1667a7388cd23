"""Controllers after a restart, a crash, and with another module: called for unseen changes, and nothing else."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from controller_host.state.progress import NotWritten, Progress
from support.guests.hosting_world import (
    Recorder,
    World,
    names_in,
)
from trellis.kube.resources import CONFIGMAPS, SECRETS


async def test_after_a_restart_only_differences_are_delivered(world: World, recorder: Recorder) -> None:
    world.add("recorder")
    for name in ("same", "changed", "deleted"):
        world.watches.put(name)
    async with world.running():
        await world.at_rest()
    assert sorted(names_in(recorder.requests)) == ["changed", "deleted", "same"]
    recorder.requests.clear()
    world.watches.put("changed", 2)
    world.watches.remove("deleted")
    world.watches.put("new")
    async with world.running():
        await world.at_rest()
        assert {item["key"]["name"]: item["object"] is None for item in recorder.requests} == {
            "changed": False,
            "deleted": True,
            "new": False,
        }
        assert recorder.counts[-1] == 6
        assert world.guests.booted == 1


async def test_after_a_restart_no_guest_is_woken_for_known_objects(world: World, recorder: Recorder) -> None:
    for number in range(50):
        world.add("recorder", f"c{number}")
    world.watches.put("a")
    async with world.running():
        await world.until(lambda: len(recorder.requests) == 50, "all are told")
        await world.queue.wait_idle()
    async with world.running():
        for number in range(50):
            await world.at_rest(f"team-a/c{number}")
        assert len(recorder.requests) == 50
        assert (world.guests.booted, world.guests.woken) == (50, 0)
        assert all(item.lifecycle.snapshot for item in world.hosting.hosted.values())
    assert world.sources.fetched >= 2, "a module without a checksum may be another"


async def test_a_module_with_a_checksum_is_not_fetched_again(world: World, recorder: Recorder) -> None:
    module = {"configMap": {"name": "recorder", "key": "module.wasm"}, "sha256": "0" * 64}
    world.add("recorder", module=module)
    for _ in range(3):
        async with world.running():
            await world.at_rest()
    assert world.sources.fetched == 1
    assert len(recorder.inits) == 1


async def test_a_failed_key_is_reported_again_after_a_restart_also_if_its_object_is_deleted(
    world: World, recorder: Recorder
) -> None:
    recorder.answer = lambda _, request: {"error": "no"} if request["object"] is None else {}  # type: ignore[method-assign]
    world.add("recorder")
    world.watches.put("a")
    async with world.running():
        await world.at_rest()
        world.watches.remove("a")
        await world.until(lambda: len(recorder.requests) >= 2, "it failed")
    recorder.requests.clear()
    recorder.answer = lambda _instance, _request: {}  # type: ignore[method-assign]
    async with world.running():
        await world.until(lambda: names_in(recorder.requests) == ["a"], "told again")


async def test_a_requeue_that_is_due_survives_a_restart(world: World, recorder: Recorder) -> None:
    recorder.answer = lambda _instance, _request: {"requeueAfter": 0.2} if len(recorder.requests) == 1 else {}  # type: ignore[method-assign]
    world.add("recorder")
    world.watches.put("a")
    async with world.running():
        await world.until(lambda: len(recorder.requests) == 1, "told")
    async with world.running():
        await world.until(lambda: len(recorder.requests) == 2, "told again in its time")
        await world.at_rest()
        assert world.guests.booted == 1


async def test_a_crash_costs_calls_that_repeat_and_no_call_that_is_missing(world: World, recorder: Recorder) -> None:
    world.add("recorder", idle={"suspendAfter": "1h"})
    world.watches.put("a")
    async with world.running():
        await world.at_rest()
        world.guests.snapshots.clear()
        world.one().lifecycle.instance = None  # as after a kill: nothing was written
    recorder.requests.clear()
    async with world.running():
        await world.until(lambda: names_in(recorder.requests) == ["a"], "told again")
        assert len(recorder.inits) == 2


async def test_deletions_during_a_loss_of_all_state_are_still_delivered(world: World, recorder: Recorder) -> None:
    world.add("recorder", idle={"suspendAfter": "1h"})
    for name in ("stays", "goes"):
        world.watches.put(name)
    async with world.running():
        await world.at_rest()
        world.one().lifecycle.instance = None  # as after a kill: there never was a snapshot
    recorder.requests.clear()
    world.watches.remove("goes")
    async with world.running():
        await world.at_rest()
        assert {item["key"]["name"]: item["object"] is None for item in recorder.requests} == {
            "stays": False,
            "goes": True,
        }
        assert world.hosting.parts.progress.load("uid-mirror") is not None
    recorder.requests.clear()
    async with world.running():
        await world.at_rest()
        assert recorder.requests == []


async def test_marks_that_are_newer_than_the_snapshot_do_not_count(world: World, recorder: Recorder) -> None:
    world.add("recorder")
    world.watches.put("a")
    async with world.running():
        await world.at_rest()
        owner, state, _ = world.guests.snapshots["uid-mirror"]
        world.guests.snapshots["uid-mirror"] = (owner, state, "another")  # killed before the marks were written
    async with world.running():
        await world.until(lambda: len(recorder.requests) == 2, "told again")
        assert recorder.counts == [1, 2]


async def test_a_changed_configuration_starts_cold_and_a_changed_module_migrates(
    tmp_path: Path, recorder: Recorder
) -> None:
    world = World(tmp_path, {b"recorder": recorder, b"other": recorder})
    world.guests.exports = frozenset({"init", "reconcile", "save", "migrate"})
    world.add("recorder")
    world.watches.put("a")
    async with world.running():
        await world.at_rest()
        world.add("recorder", generation=2, config={"x": 1})
        await world.until(lambda: len(recorder.inits) == 2, "a cold start")
        await world.at_rest()
        assert recorder.counts == [1, 1]
        world.add("other", generation=3, config={"x": 1})
        await world.until(lambda: len(recorder.inits) == 3, "migrated")
        await world.at_rest()
        assert recorder.inits[2]["from"]["state"] == {"count": 1}
        assert recorder.inits[2]["config"] == {"x": 1}
        assert recorder.counts == [1, 1, 2]
        assert world.hosting.parts.progress.saved("uid-mirror") is None


async def test_a_changed_secret_starts_it_cold_and_its_value_is_kept_nowhere(world: World, recorder: Recorder) -> None:
    secret = {"metadata": {"namespace": "team-a", "name": "s"}, "data": {"p": "b25l"}}
    world.kube.put(SECRETS, secret)
    world.kube.put(CONFIGMAPS, {"metadata": {"namespace": "team-a", "name": "m"}, "data": {"k": "v"}})
    world.add("recorder", secretRefs=[{"name": "s"}], configMapRefs=[{"name": "m"}])
    async with world.running():
        await world.at_rest()
        assert recorder.inits[0]["secrets"] == {"s": {"p": "b25l"}}
        assert recorder.inits[0]["configMaps"] == {"m": {"k": "v"}}
        world.kube.put(SECRETS, secret | {"data": {"p": "dHdv"}})
        await world.until(lambda: len(recorder.inits) == 2, "a cold start")
        await world.at_rest()
        assert recorder.inits[1]["secrets"] == {"s": {"p": "dHdv"}}
        prepared = world.one().lifecycle.prepared
        assert prepared is not None
        assert prepared.init == b""


async def test_the_version_of_a_module_is_known_after_a_restart(world: World, recorder: Recorder) -> None:
    world.guests.abi = None
    world.add("recorder", module={"configMap": {"name": "recorder", "key": "module.wasm"}, "sha256": "0" * 64})
    for _ in range(2):
        async with world.running():
            await world.at_rest()
            module = world.one().module
            assert module is not None
            assert module.abi == 1
    assert world.guests.booted == 1
    assert len(recorder.inits) == 1


async def test_a_new_version_reports_that_it_waits_for_disk_space(
    tmp_path: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, {b"recorder": recorder, b"other": recorder})
    world.guests.exports = frozenset({"init", "reconcile", "save", "migrate"})
    world.add("recorder")
    world.watches.put("a")
    save, full = Progress.save, [True]

    def saving(progress: Progress, uid: str, saved: Any) -> None:
        if full:
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise NotWritten(error)
        save(progress, uid, saved)

    monkeypatch.setattr(Progress, "save", saving)
    async with world.running():
        await world.at_rest()
        world.add("other", generation=2)
        await world.until(lambda: world.one().stopped is not None, "it says so")
        stopped = world.one().stopped
        assert stopped is not None
        assert stopped.reason == "DiskFull"
        world.watches.put("a", 2)
        full.clear()
        await world.until(lambda: recorder.counts == [1, 2], "the new one took it over")
        await world.until(lambda: world.one().stopped is None, "nothing is said any more")
