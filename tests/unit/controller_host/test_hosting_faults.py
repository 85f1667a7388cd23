"""Faults of guests, of what they need, and of the host: named, apart from neighbours, tried again."""

from __future__ import annotations

import hashlib
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import orjson
import pytest

from controller_host.guest.faults import FaultKind, GuestFault
from controller_host.scheduler.turns import WorkQueue
from controller_host.state.progress import Progress
from support.guests.fake_guests import FakeInstance
from support.guests.hosting_parts import key_of
from support.guests.hosting_world import DEADLINE, KEY, Recorder, World, names_in, trapping
from trellis.kube.resources import CONFIGMAPS, SECRETS, Resource
from trellis.kube.timings import RefusalTimings
from trellis.limits.backoff import Backoff
from trellis_dev.fakes.fake import status_reply


async def test_a_failure_of_the_hosts_own_costs_no_turn(
    world: World, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.add("recorder")
    failures: list[str] = []
    meet = Progress.meet

    def full(progress: Progress, uid: str, keys: Any) -> Any:
        if not failures:
            failures.append(uid)
            raise sqlite3.OperationalError("database or disk is full")
        return meet(progress, uid, keys)

    async with world.running():
        await world.at_rest()
        monkeypatch.setattr(Progress, "meet", full)
        world.watches.put("a")
        await world.until(lambda: len(recorder.requests) == 1, "told of a after all")
        assert failures


async def test_a_missing_secret_is_reported_and_retried(world: World, recorder: Recorder) -> None:
    world.add("recorder", secretRefs=[{"name": "s"}])
    async with world.running():
        await world.until(lambda: KEY in world.hosting.hosted and world.one().refused is not None, "refused")
        refused = world.one().refused
        assert refused is not None
        assert refused.reason == "SecretNotFound"
        world.kube.put(SECRETS, {"metadata": {"namespace": "team-a", "name": "s"}})
        await world.until(lambda: len(recorder.inits) == 1, "started")
        assert world.one().refused is None


async def test_a_module_that_is_refused_states_the_reason_and_a_new_spec_is_tried_at_once(
    world: World, recorder: Recorder
) -> None:
    world.sources.modules["bad"] = b"no module"
    world.add("bad")
    async with world.running():
        world.hosting.outcomes.backoff = Backoff(first=300.0, random=lambda: 1.0)
        await world.until(lambda: KEY in world.hosting.hosted and world.one().refused is not None, "refused")
        refused = world.one().refused
        assert refused is not None
        assert refused.reason == "NotWasm"
        world.add("recorder", generation=2)
        await world.until(lambda: len(recorder.inits) == 1, "started")


class Writing(Recorder):
    """A guest that creates a ConfigMap for each key, and fails where it is refused that."""

    def answer(self, instance: FakeInstance, request: dict[str, Any]) -> dict[str, Any]:
        metadata = {"namespace": "team-a", "name": f"of-{request['key']['name']}"}
        wanted = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        answer = orjson.loads(instance.host.call(orjson.dumps({"op": "create", "object": wanted})))
        return {"error": answer["error"]["message"]} if "error" in answer else {}


class ConfigMaps:
    """All kinds that there are."""

    async def resource(self, api_version: str, kind: str) -> Resource:
        assert (api_version, kind) == ("v1", "ConfigMap")
        return CONFIGMAPS


@pytest.mark.parametrize("status", [403, 409], ids=["refused", "another failure"])
async def test_a_write_that_the_api_server_refuses_is_retried_soon(tmp_path: Path, status: int) -> None:
    writing = Writing()
    world = World(tmp_path, {b"writing": writing})
    world.add("writing")
    async with world.running():
        await world.at_rest()
        world.hosting.calling.kinds = ConfigMaps()
        world.one().work_queue = WorkQueue(Backoff(first=300.0, random=lambda: 1.0))
        world.hosting.outcomes.refusals = RefusalTimings(retry=0.1, spread=0.0)
        refuse = status_reply(status, "Forbidden" if status == 403 else "Conflict", "not now")
        world.kube.answer_next(2, lambda _: refuse, when=lambda item: item.method == "POST")
        for name in ("a", "b"):
            world.watches.put(name)
        if status == 403:
            await world.until(
                lambda: len(writing.requests) == 4 and not world.one().work_queue.failing, "both are written"
            )
        else:
            await world.until(lambda: world.one().work_queue.failing == 2, "both failed")
            assert (world.one().work_queue.wait(time.monotonic()) or 0) > 200


async def test_a_trap_is_named_begins_cold_and_hurts_no_neighbour(tmp_path: Path, recorder: Recorder) -> None:
    world = World(tmp_path, {b"trapping": trapping(), b"recorder": recorder})
    world.add("trapping", "bad")
    world.add("recorder", "good")
    world.watches.put("bad")
    async with world.running():
        await world.until(lambda: "team-a/bad" in world.hosting.hosted, "hosted")
        await world.until(lambda: world.one("team-a/bad").lifecycle.counters.traps >= 3, "it traps again and again")
        for version in range(2, 12):
            world.watches.put("x", version)
            await world.until(
                lambda version=version: recorder.requests[-1]["object"]["metadata"]["resourceVersion"] == str(version),
                "the neighbour is told",
            )
        fault = world.one("team-a/bad").fault
        assert fault is not None
        assert fault.kind == "Trapped"
        assert "v1 ConfigMap team-a bad" in fault.message
        assert world.one("team-a/good").lifecycle.counters.traps == 0


async def test_repeated_start_failures_back_off_as_a_whole(tmp_path: Path) -> None:
    def never_starts(instance: FakeInstance, export: str, request: dict[str, Any]) -> dict[str, Any]:
        del instance, request
        return {"error": "no licence"} if export == "init" else {}

    world = World(tmp_path, {b"p": never_starts})
    world.add("p")
    async with world.running():
        world.hosting.outcomes.backoff = Backoff(first=1000.0, cap=1000.0, random=lambda: 1.0)
        await world.until(lambda: KEY in world.hosting.hosted and world.one().stopped is not None, "stopped")
        for version in range(1, 20):
            world.watches.put("x", version)
            world.queue.add(KEY)
        await world.queue.wait_idle()
        assert world.guests.booted == 1
        stopped = world.one().stopped
        assert stopped is not None
        assert (stopped.reason, stopped.message) == ("InitFailed", "no licence")


async def test_an_object_that_a_review_denies_does_not_reach_the_guest(world: World, recorder: Recorder) -> None:
    world.watches.denied.add("secret-plans")
    world.watches.unknown.add("not-known-yet")
    world.add("recorder")
    for name in ("a", "secret-plans", "not-known-yet"):
        world.watches.put(name)
    async with world.running():
        await world.until(lambda: len(recorder.requests) == 1, "told of a")
        await world.queue.wait_idle()
        assert names_in(recorder.requests) == ["a"]
        world.watches.remove("secret-plans")
        await world.queue.wait_idle()
        assert names_in(recorder.requests) == ["a"], "not even that it is gone"


async def test_no_object_counts_as_deleted_while_a_watch_is_incomplete(world: World, recorder: Recorder) -> None:
    world.add("recorder")
    world.watches.put("a")
    async with world.running():
        await world.at_rest()
    recorder.requests.clear()
    kept = world.watches.items.pop(key_of("a"))
    world.watches.is_whole = False
    async with world.running():
        await world.until(lambda: KEY in world.hosting.hosted and world.one().ready, "prepared")
        world.watches.notify(key_of("a"))
        await world.queue.wait_idle()
        world.watches.items[key_of("a")] = kept
        world.watches.is_whole = True
        world.queue.add(KEY)
        await world.at_rest()
        assert recorder.requests == []


async def test_objects_of_a_kind_not_served_after_a_restart_do_not_count_as_deleted(
    world: World, recorder: Recorder
) -> None:
    world.add("recorder")
    world.watches.put("a")
    async with world.running():
        await world.at_rest()
    recorder.requests.clear()
    kept = world.watches.items.pop(key_of("a"))
    world.watches.absent_kinds = frozenset({(key_of("a").api_version, key_of("a").kind)})
    async with world.running():
        await world.until(lambda: KEY in world.hosting.hosted and world.one().ready, "prepared")
        world.watches.notify(key_of("a"))
        await world.queue.wait_idle()
        world.watches.items[key_of("a")] = kept
        world.watches.absent_kinds = frozenset()
        world.queue.add(KEY)
        await world.at_rest()
        assert recorder.requests == []


async def test_a_kind_that_is_not_served_and_was_never_seen_keeps_no_controller_waiting(
    world: World, recorder: Recorder
) -> None:
    world.add("recorder")
    world.watches.put("a")
    world.watches.absent_kinds = frozenset({("example.com/v1", "Widget")})
    async with world.running():
        await world.at_rest()
        assert names_in(recorder.requests) == ["a"]


async def test_a_controller_with_incomplete_watches_requests_no_turn_until_they_change(
    world: World, recorder: Recorder
) -> None:
    digest = hashlib.sha256(b"recorder").hexdigest()
    pinned = {"configMap": {"name": "recorder", "key": "module.wasm"}, "sha256": digest}
    world.add("recorder", module=pinned)
    world.watches.put("a")
    world.watches.is_whole = False
    async with world.running():
        await world.until(
            lambda: KEY in world.hosting.hosted and world.one().lifecycle.snapshot, "started and suspended"
        )
        await world.queue.wait_idle()
        assert (world.turns, world.queue.backing_off, recorder.requests) == (2, 0, []), "one asked for the module"
        world.watches.is_whole = True
        world.queue.add(KEY)
        await world.at_rest()
        assert names_in(recorder.requests) == ["a"]


async def test_a_module_that_reports_another_version_at_start_is_refused_until_it_changes(
    world: World, recorder: Recorder
) -> None:
    world.guests.abi, world.guests.says_version = None, 2
    world.add("recorder")
    world.watches.put("a")
    async with world.running():
        await world.until(lambda: world.guests.booted >= 3, "it is tried again")
        item = world.one()
        assert item.refused is not None
        assert item.refused.reason == "UnsupportedAbi"
        assert (item.fault, item.stopped, recorder.requests) == (None, None, [])
        assert item.module is not None
        assert item.module.abi is None
        world.guests.says_version = 1
        await world.until(lambda: len(recorder.requests) == 1, "told of a")
        await world.at_rest()
        assert (item.refused, item.module.abi) == (None, 1)
        looked = world.sources.fetched
        await world.until(lambda: world.sources.fetched >= looked + 3, "it is looked at again")
        assert item.module.abi == 1


@pytest.mark.parametrize("where", ["init", "reconcile", "migrate", "save"])
async def test_a_guest_that_hangs_wherever_it_does_is_ended_at_the_end(
    tmp_path: Path, recorder: Recorder, where: str
) -> None:
    inside, ends = threading.Event(), []

    def hangs(instance: FakeInstance, export: str, request: dict[str, Any]) -> dict[str, Any]:
        if export != where or (where == "save" and not recorder.requests):
            return recorder(instance, export, request)
        inside.set()
        try:
            instance.wait(DEADLINE * 3)
        except GuestFault as fault:
            ends.append(fault.kind)
            raise
        return {}

    behaviours = {b"recorder": recorder, b"other": hangs} if where == "migrate" else {b"recorder": hangs}
    world = World(tmp_path, behaviours | {b"third": recorder})
    world.guests.exports = frozenset({"init", "reconcile", "save", "migrate"})
    world.add("recorder")
    world.watches.put("a")
    async with world.running():
        if where in {"migrate", "save"}:
            await world.at_rest()
            world.add("other" if where == "migrate" else "third", generation=2)
        await world.until(inside.is_set, "it hangs")
    assert ends == [FaultKind.INTERRUPTED]


async def test_without_an_engine_a_controller_reports_it_and_runs_as_soon_as_there_is_one(
    world: World, recorder: Recorder
) -> None:
    world.guests.unavailable = "the engine of controllers cannot be loaded: OSError: no such file"
    world.add("recorder")
    async with world.running():
        await world.until(lambda: KEY in world.hosting.hosted and world.one().stopped is not None, "stopped")
        stopped = world.one().stopped
        assert stopped is not None
        assert (stopped.reason, stopped.message) == ("EngineUnavailable", world.guests.unavailable)
        assert world.one().refused is None, "its module is not to blame"
        await world.until(lambda: world.one().failures >= 3, "tried again, and waits between")
        world.guests.unavailable = ""
        await world.until(lambda: len(recorder.inits) == 1, "started")
        await world.at_rest()
        assert world.one().stopped is None


async def test_an_idle_controller_is_healthy_again_with_the_engine(world: World, recorder: Recorder) -> None:
    world.add("recorder")
    world.watches.put("a")
    async with world.running():
        await world.until(lambda: len(recorder.requests) == 1, "told")
        await world.until(lambda: world.guests.suspended == 1, "on disk")
    world.guests.unavailable = "it is away"
    async with world.running():
        await world.until(lambda: KEY in world.hosting.hosted and world.one().stopped is not None, "stopped")
        world.guests.unavailable = ""
        await world.at_rest()
        assert (world.one().stopped, world.one().failures) == (None, 0)
        assert (len(recorder.inits), len(recorder.requests), world.guests.woken) == (1, 1, 0)
