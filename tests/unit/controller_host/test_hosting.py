"""Controllers hosted: started, called for what changed, put to disk, brought back; faults stay their own."""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest

from controller_host.calling import Calling
from controller_host.guest.faults import FaultKind, GuestFault
from controller_host.hosted import Hosted, Trouble
from controller_host.hosting import Hosting
from controller_host.keys import ObjectKey
from controller_host.maxima import Acceptance, Maxima
from controller_host.news import News
from controller_host.outcomes import Outcomes, Told
from controller_host.preparing import Preparing
from controller_host.progress import Mark, NotWritten, Progress
from controller_host.residents import Residents
from controller_host.source_errors import SourceError, SourceReason
from controller_host.sources import Asked
from controller_host.starting import Parts
from controller_host.turns import Places
from controller_host.views import ControllerView, view_controller
from support.fake_guests import Behaviour, FakeGuests, FakeInstance
from trellis.bus.backoff import Backoff
from trellis.bus.queue import KeyedQueue
from trellis.kube.fake import FakeKube
from trellis.kube.resources import CONFIGMAPS, NAMESPACES, SECRETS
from trellis.telemetry import TraceContext, setup
from trellis.telemetry.metrics import Metrics

DEADLINE = 10.0
KEY = "team-a/mirror"


class SomeWatches:
    """One cache for all controllers: what is in ``items`` concerns whoever wants anything of its namespace."""

    def __init__(self) -> None:
        self.items: dict[ObjectKey, bytes] = {}
        self.wanted: dict[str, str] = {}
        self.is_whole = True
        self.denied: set[str] = set()
        self.unknown: set[str] = set()
        self.unwatched: set[str] = set()
        self.on_change: Callable[[str, ObjectKey], None] = lambda _controller, _key: None

    def put(self, name: str, version: int = 1, **data: str) -> None:
        key = key_of(name)
        metadata = {"namespace": "team-a", "name": name, "uid": f"u-{name}", "resourceVersion": str(version)}
        self.items[key] = orjson.dumps({"metadata": metadata, "data": data})
        self.say(key)

    def remove(self, name: str) -> None:
        del self.items[key_of(name)]
        self.say(key_of(name))

    def say(self, key: ObjectKey) -> None:
        for controller in list(self.wanted):
            self.on_change(controller, key)

    def want(self, controller: str, namespace: str, watches: Sequence[Any]) -> None:
        assert watches
        self.wanted[controller] = namespace

    def drop(self, controller: str) -> None:
        self.wanted.pop(controller, None)

    def item(self, key: ObjectKey) -> bytes | None:
        return self.items.get(key)

    def version(self, key: ObjectKey) -> str:
        if key not in self.items:
            return ""
        metadata = orjson.loads(self.items[key])["metadata"]
        return f"{metadata['uid']}/{metadata['resourceVersion']}"

    def keys(self, controller: str) -> Iterable[ObjectKey]:
        return [key for key in self.items if key.namespace == self.wanted[controller]]

    def whole(self, controller: str) -> bool:
        assert controller in self.wanted
        return self.is_whole

    def concerns(self, controller: str, key: ObjectKey) -> bool:
        return key in self.items and key.namespace == self.wanted.get(controller)

    def watched(self, controller: str, key: ObjectKey) -> bool:
        return controller in self.wanted and key.kind not in self.unwatched

    async def allowed(self, controller: str, user: str, key: ObjectKey) -> bool | None:
        assert controller
        assert user.startswith(f"system:serviceaccount:{key.namespace}:")
        return None if key.name in self.unknown else key.name not in self.denied


class SomeSources:
    """ConfigMaps of modules. ``held``: those that do not come before ``let``; ``denied``: users who get none.

    ``confirms``: a source tells whether it would give a module without giving it.
    """

    def __init__(self) -> None:
        self.fetched = self.confirmed = self.cancelled = 0
        self.modules: dict[str, bytes] = {}
        self.held: set[str] = set()
        self.let = asyncio.Event()
        self.denied: set[str] = set()
        self.confirms = False

    @asynccontextmanager
    async def turn(self, asked: Asked) -> AsyncIterator[SomeFetch]:
        assert asked.namespace
        assert asked.user
        try:
            assert asked.module.config_map is not None
            if asked.module.config_map.name in self.held:
                await self.let.wait()
            yield SomeFetch(self, asked)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


@dataclass
class SomeFetch:
    sources: SomeSources
    asked: Asked

    async def confirm(self) -> bool:
        self.sources.confirmed += 1
        self._check()
        return self.sources.confirms

    async def module(self) -> bytes:
        self.sources.fetched += 1
        self._check()
        source = self.asked.module.config_map
        assert source is not None
        if source.name not in self.sources.modules:
            raise SourceError(SourceReason.NOT_FOUND, f"ConfigMap {source.name} does not exist")
        return self.sources.modules[source.name]

    def _check(self) -> None:
        if self.asked.user in self.sources.denied:
            raise SourceError(SourceReason.FORBIDDEN, "the registry wants a pullSecret")


class World:
    """A host, its disk, and everything around it. ``restart`` makes another one on the same disk."""

    def __init__(self, directory: Path, programs: dict[bytes, Behaviour]) -> None:
        self.directory = directory
        self.telemetry = setup("test", metrics=Metrics())
        self.kube = FakeKube(telemetry=self.telemetry)
        self.kube.put(NAMESPACES, {"metadata": {"name": "team-a"}})
        self.guests = FakeGuests(programs)
        self.watches = SomeWatches()
        self.sources = SomeSources()
        self.sources.modules = {name.decode(): name for name in programs}
        self.views: dict[str, ControllerView] = {}
        self.seen: list[tuple[str, str, int]] = []
        self.changed: list[str] = []
        self.budget = 0
        self.threads = 8
        self.maxima = Maxima()

    def add(
        self, program: str, name: str = "mirror", generation: int = 1, namespace: str = "team-a", **spec: Any
    ) -> str:
        metadata = {"namespace": namespace, "name": name, "uid": f"uid-{name}", "generation": generation}
        body = {
            "module": {"configMap": {"name": program, "key": "module.wasm"}},
            "serviceAccountName": "mirror",
            "watches": [{"apiVersion": "v1", "kind": "ConfigMap"}],
            "idle": {"suspendAfter": "0s"},
        } | spec
        view = view_controller({"metadata": metadata, "spec": body})
        self.views[view.key] = view
        if hasattr(self, "queue"):
            self.queue.add(view.key)
        return view.key

    @asynccontextmanager
    async def running(self) -> AsyncIterator[World]:
        progress = Progress(self.directory)
        pool = ThreadPoolExecutor(self.threads)

        class NoKinds:
            async def resource(self, api_version: str, kind: str) -> Any:
                raise AssertionError((api_version, kind))

        calling = Calling(lambda _: self.kube, NoKinds(), self.telemetry, lambda _: None)
        self.hosting = Hosting(
            parts=Parts(self.guests, progress, self.telemetry),
            calling=calling,
            preparing=Preparing(lambda _: self.kube, self.sources, self.guests, progress, pool),
            news=News(self.watches),
            outcomes=Outcomes(
                Told(lambda one: self.changed.append(one.key), lambda _: None, lambda _: None),
                Backoff(first=0.01, cap=0.05),
            ),
            pool=pool,
            residents=Residents(self.budget),
            views=lambda: self.views,
            sources_seconds=0.05,
            acceptance=Acceptance(self.maxima),
            places=Places(self.threads),
        )
        self.turns = 0
        self.queue = KeyedQueue(self._turn, workers=self.threads, name="controllers", telemetry=self.telemetry)
        self.hosting.wake = self.queue.add
        self.watches.on_change = self.hosting.on_change
        work = asyncio.create_task(self.queue.work())
        for key in self.views:
            self.queue.add(key)
        try:
            yield self
            await asyncio.gather(self.queue.drain(2.0), self.hosting.close(2.0))
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            pool.shutdown()
            progress.close()

    async def _turn(self, key: str, trace: TraceContext | None) -> float | None:
        self.turns += 1
        return await self.hosting.run(key, trace)

    def one(self, key: str = KEY) -> Hosted:
        return self.hosting.hosted[key]

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        async with asyncio.timeout(DEADLINE):
            while not condition():  # noqa: ASYNC110 - of many parts
                await asyncio.sleep(0.005)
        assert condition(), what

    async def at_rest(self, key: str = KEY) -> None:
        """Wait until a controller is prepared and has nothing to do."""

        def is_so() -> bool:
            one = self.hosting.hosted.get(key)
            return one is not None and one.listed and not one.busy and not len(one.agenda) and self.queue.depth == 0

        await self.until(is_so, "at rest")


def key_of(name: str) -> ObjectKey:
    return ObjectKey("v1", "ConfigMap", "team-a", name)


def names_in(requests: Iterable[dict[str, Any]]) -> list[str]:
    return [request["key"]["name"] for request in requests]


class Recorder:
    """A guest that remembers what it was told, in memory and out of it."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []
        self.inits: list[dict[str, Any]] = []
        self.counts: list[int] = []

    def __call__(self, instance: FakeInstance, export: str, request: dict[str, Any]) -> dict[str, Any]:
        if export == "init":
            self.inits.append(request)
            return {}
        if export == "save":
            return {"count": instance.state.get("count", 0)}
        if export == "migrate":
            instance.state["count"] = request["from"]["state"]["count"]
            self.inits.append(request)
            return {}
        instance.state["count"] = instance.state.get("count", 0) + 1
        self.counts.append(instance.state["count"])
        self.told.append(request)
        return self.answer(instance, request)

    def answer(self, instance: FakeInstance, request: dict[str, Any]) -> dict[str, Any]:
        del instance, request
        return {}


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def world(tmp_path: Path, recorder: Recorder) -> World:
    return World(tmp_path, {b"recorder": recorder, b"other": recorder})


async def test_a_new_controller_is_told_what_there_is_and_put_to_disk(world: World, recorder: Recorder) -> None:
    world.add("recorder", config={"next": "x"})
    world.watches.put("a", x="1")
    async with world.running():
        await world.at_rest()
        assert names_in(recorder.told) == ["a"]
        assert recorder.told[0]["object"]["data"] == {"x": "1"}
        assert recorder.inits == [
            {
                "controller": {"namespace": "team-a", "name": "mirror"},
                "config": {"next": "x"},
                "configMaps": {},
                "secrets": {},
            }
        ]
        assert world.one().life.instance is None
        assert world.one().life.snapshot


async def test_a_change_wakes_it_with_its_memory_and_a_deletion_too(world: World, recorder: Recorder) -> None:
    world.add("recorder")
    async with world.running():
        await world.at_rest()
        world.watches.put("a")
        await world.until(lambda: len(recorder.told) == 1, "told of a")
        await world.at_rest()
        world.watches.remove("a")
        await world.until(lambda: len(recorder.told) == 2, "told that a is gone")
        assert recorder.told[1]["object"] is None
        assert recorder.counts == [1, 2]
        assert (world.guests.booted, world.one().life.figures.wakes) == (1, 2)


async def test_what_goes_while_it_is_told_is_told_as_gone(world: World, recorder: Recorder) -> None:
    asked, gate, allowed = asyncio.Event(), asyncio.Event(), world.watches.allowed

    async def slow_review(controller: str, user: str, key: ObjectKey) -> bool | None:
        if key.name == "b":
            asked.set()
            await gate.wait()
        return await allowed(controller, user, key)

    world.watches.allowed = slow_review  # type: ignore[method-assign]
    world.add("recorder")
    async with world.running():
        await world.at_rest()
        world.watches.put("a")
        world.watches.put("b")
        await asyncio.wait_for(asked.wait(), 10)
        world.watches.remove("a")
        gate.set()
        await world.until(lambda: len(recorder.told) == 3, "told that a is gone")
        seen = [(told["key"]["name"], told["object"] is not None) for told in recorder.told]
        assert seen == [("a", True), ("b", True), ("a", False)]


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
        await world.until(lambda: len(recorder.told) == 1, "told of a after all")
        assert failures


async def test_what_it_has_seen_wakes_nobody(world: World, recorder: Recorder) -> None:
    world.add("recorder")
    world.watches.put("a")
    async with world.running():
        await world.at_rest()
        world.watches.say(key_of("a"))
        world.queue.add(KEY)
        await world.queue.wait_idle()
        await world.at_rest()
        assert len(recorder.told) == 1
        assert world.guests.woken == 0


async def test_after_a_restart_only_what_differs_is_told(world: World, recorder: Recorder) -> None:
    world.add("recorder")
    for name in ("same", "changed", "deleted"):
        world.watches.put(name)
    async with world.running():
        await world.at_rest()
    assert sorted(names_in(recorder.told)) == ["changed", "deleted", "same"]
    recorder.told.clear()
    world.watches.put("changed", 2)
    world.watches.remove("deleted")
    world.watches.put("new")
    async with world.running():
        await world.at_rest()
        assert {one["key"]["name"]: one["object"] is None for one in recorder.told} == {
            "changed": False,
            "deleted": True,
            "new": False,
        }
        assert recorder.counts[-1] == 6
        assert world.guests.booted == 1


async def test_after_a_restart_nobody_is_woken_for_what_is_old_news(world: World, recorder: Recorder) -> None:
    for number in range(50):
        world.add("recorder", f"c{number}")
    world.watches.put("a")
    async with world.running():
        await world.until(lambda: len(recorder.told) == 50, "all are told")
        await world.queue.wait_idle()
    async with world.running():
        for number in range(50):
            await world.at_rest(f"team-a/c{number}")
        assert len(recorder.told) == 50
        assert (world.guests.booted, world.guests.woken) == (50, 0)
        assert all(one.life.snapshot for one in world.hosting.hosted.values())
    assert world.sources.fetched >= 2, "a module without a checksum may be another"


async def test_a_module_with_a_checksum_is_not_fetched_again(world: World, recorder: Recorder) -> None:
    module = {"configMap": {"name": "recorder", "key": "module.wasm"}, "sha256": "0" * 64}
    world.add("recorder", module=module)
    for _ in range(3):
        async with world.running():
            await world.at_rest()
    assert world.sources.fetched == 1
    assert len(recorder.inits) == 1


async def test_a_failed_key_is_told_again_after_a_restart_also_if_its_object_is_gone(
    world: World, recorder: Recorder
) -> None:
    recorder.answer = lambda _, request: {"error": "no"} if request["object"] is None else {}  # type: ignore[method-assign]
    world.add("recorder")
    world.watches.put("a")
    async with world.running():
        await world.at_rest()
        world.watches.remove("a")
        await world.until(lambda: len(recorder.told) >= 2, "it failed")
    recorder.told.clear()
    recorder.answer = lambda _instance, _request: {}  # type: ignore[method-assign]
    async with world.running():
        await world.until(lambda: names_in(recorder.told) == ["a"], "told again")


async def test_a_requeue_that_is_due_survives_a_restart(world: World, recorder: Recorder) -> None:
    recorder.answer = lambda _instance, _request: {"requeueAfter": 0.2} if len(recorder.told) == 1 else {}  # type: ignore[method-assign]
    world.add("recorder")
    world.watches.put("a")
    async with world.running():
        await world.until(lambda: len(recorder.told) == 1, "told")
    async with world.running():
        await world.until(lambda: len(recorder.told) == 2, "told again in its time")
        await world.at_rest()
        assert world.guests.booted == 1


async def test_a_crash_costs_calls_that_repeat_and_no_call_that_is_missing(world: World, recorder: Recorder) -> None:
    world.add("recorder", idle={"suspendAfter": "1h"})
    world.watches.put("a")
    async with world.running():
        await world.at_rest()
        world.guests.snapshots.clear()
        world.one().life.instance = None  # as after a kill: nothing was written
    recorder.told.clear()
    async with world.running():
        await world.until(lambda: names_in(recorder.told) == ["a"], "told again")
        assert len(recorder.inits) == 2


async def test_what_went_while_everything_was_lost_is_still_told(world: World, recorder: Recorder) -> None:
    world.add("recorder", idle={"suspendAfter": "1h"})
    for name in ("stays", "goes"):
        world.watches.put(name)
    async with world.running():
        await world.at_rest()
        world.one().life.instance = None  # as after a kill: there never was a snapshot
    recorder.told.clear()
    world.watches.remove("goes")
    async with world.running():
        await world.at_rest()
        assert {one["key"]["name"]: one["object"] is None for one in recorder.told} == {"stays": False, "goes": True}
        assert world.hosting.parts.progress.recall("uid-mirror") is not None
    recorder.told.clear()
    async with world.running():
        await world.at_rest()
        assert recorder.told == []


async def test_marks_that_are_newer_than_the_snapshot_do_not_count(world: World, recorder: Recorder) -> None:
    world.add("recorder")
    world.watches.put("a")
    async with world.running():
        await world.at_rest()
        owner, state, _ = world.guests.snapshots["uid-mirror"]
        world.guests.snapshots["uid-mirror"] = (owner, state, "another")  # killed before the marks were written
    async with world.running():
        await world.until(lambda: len(recorder.told) == 2, "told again")
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
        prepared = world.one().life.prepared
        assert prepared is not None
        assert prepared.init == b""


async def test_a_missing_secret_is_told_and_looked_for_again(world: World, recorder: Recorder) -> None:
    world.add("recorder", secretRefs=[{"name": "s"}])
    async with world.running():
        await world.until(lambda: KEY in world.hosting.hosted and world.one().refused is not None, "refused")
        refused = world.one().refused
        assert refused is not None
        assert refused.reason == "SecretNotFound"
        world.kube.put(SECRETS, {"metadata": {"namespace": "team-a", "name": "s"}})
        await world.until(lambda: len(recorder.inits) == 1, "started")
        assert world.one().refused is None


async def test_a_module_that_is_refused_says_why_and_a_new_spec_is_tried_at_once(
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


def trapping(kind: FaultKind = FaultKind.TRAPPED, on: str = "bad") -> Behaviour:
    def behave(instance: FakeInstance, export: str, request: dict[str, Any]) -> dict[str, Any]:
        del instance
        if export == "reconcile" and request["key"]["name"] == on:
            raise GuestFault(kind, "unreachable")
        return {}

    return behave


async def test_a_trap_is_named_begins_cold_and_hurts_no_neighbour(tmp_path: Path, recorder: Recorder) -> None:
    world = World(tmp_path, {b"trapping": trapping(), b"recorder": recorder})
    world.add("trapping", "bad")
    world.add("recorder", "good")
    world.watches.put("bad")
    async with world.running():
        await world.until(lambda: "team-a/bad" in world.hosting.hosted, "hosted")
        await world.until(lambda: world.one("team-a/bad").life.figures.traps >= 3, "it traps again and again")
        for version in range(2, 12):
            world.watches.put("x", version)
            await world.until(
                lambda version=version: recorder.told[-1]["object"]["metadata"]["resourceVersion"] == str(version),
                "the neighbour is told",
            )
        fault = world.one("team-a/bad").fault
        assert fault is not None
        assert fault.kind == "Trapped"
        assert "v1 ConfigMap team-a bad" in fault.message
        assert world.one("team-a/good").life.figures.traps == 0


async def test_who_fails_at_each_start_waits_as_a_whole(tmp_path: Path) -> None:
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


async def test_what_a_review_denies_does_not_reach_the_guest(world: World, recorder: Recorder) -> None:
    world.watches.denied.add("secret-plans")
    world.watches.unknown.add("not-known-yet")
    world.add("recorder")
    for name in ("a", "secret-plans", "not-known-yet"):
        world.watches.put(name)
    async with world.running():
        await world.until(lambda: len(recorder.told) == 1, "told of a")
        await world.queue.wait_idle()
        assert names_in(recorder.told) == ["a"]
        world.watches.remove("secret-plans")
        await world.queue.wait_idle()
        assert names_in(recorder.told) == ["a"], "not even that it is gone"


async def test_nothing_counts_as_gone_while_a_watch_is_not_whole(world: World, recorder: Recorder) -> None:
    world.add("recorder")
    world.watches.put("a")
    async with world.running():
        await world.at_rest()
    recorder.told.clear()
    kept = world.watches.items.pop(key_of("a"))
    world.watches.is_whole = False
    async with world.running():
        await world.until(lambda: KEY in world.hosting.hosted and world.one().ready, "prepared")
        world.watches.say(key_of("a"))
        await world.queue.wait_idle()
        world.watches.items[key_of("a")] = kept
        world.watches.is_whole = True
        world.queue.add(KEY)
        await world.at_rest()
        assert recorder.told == []


async def test_once_its_module_is_there_one_turn_starts_a_controller_tells_it_what_there_is_and_puts_it_to_disk(
    world: World, recorder: Recorder
) -> None:
    world.add("recorder", module={"configMap": {"name": "recorder", "key": "module.wasm"}, "sha256": "0" * 64})
    world.watches.put("a")
    world.watches.put("b")
    async with world.running():
        await world.at_rest()
        assert (world.turns, len(recorder.told), world.guests.suspended) == (2, 2, 1), "one asked for the module"
    async with world.running():
        await world.at_rest()
        assert (world.turns, len(recorder.told), world.guests.woken) == (1, 2, 0)


async def test_a_controller_whose_watches_are_not_whole_asks_for_no_turn_until_word_of_them_comes(
    world: World, recorder: Recorder
) -> None:
    digest = hashlib.sha256(b"recorder").hexdigest()
    pinned = {"configMap": {"name": "recorder", "key": "module.wasm"}, "sha256": digest}
    world.add("recorder", module=pinned)
    world.watches.put("a")
    world.watches.is_whole = False
    async with world.running():
        await world.until(lambda: KEY in world.hosting.hosted and world.one().life.snapshot, "started and put to disk")
        await world.queue.wait_idle()
        assert (world.turns, world.queue.backing_off, recorder.told) == (2, 0, []), "one asked for the module"
        world.watches.is_whole = True
        world.queue.add(KEY)
        await world.at_rest()
        assert names_in(recorder.told) == ["a"]


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
        resident = {key for key, one in world.hosting.hosted.items() if one.life.instance is not None}
        assert resident == {"team-a/pinned", "team-a/three"}


async def test_a_controller_is_called_no_oftener_than_its_limit(world: World, recorder: Recorder) -> None:
    world.add("recorder", limits={"callsPerSecond": 5})
    for number in range(12):
        world.watches.put(f"c{number}")
    async with world.running():
        await world.until(lambda: len(recorder.told) >= 5, "at once")
        assert len(recorder.told) <= 6
        await world.until(lambda: len(recorder.told) == 12, "in the end all")


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


async def test_a_paused_one_is_not_called_and_hears_afterwards_what_it_missed(world: World, recorder: Recorder) -> None:
    world.add("recorder", paused=True)
    world.watches.put("a")
    async with world.running():
        await world.until(lambda: KEY in world.changed, "looked at")
        assert recorder.told == []
        world.add("recorder", generation=2)
        await world.at_rest()
        assert names_in(recorder.told) == ["a"]


async def test_what_a_former_spec_was_refused_for_is_not_said_of_one_that_is_paused(world: World) -> None:
    world.add("recorder", watches="none")
    async with world.running():
        await world.until(lambda: KEY in world.hosting.hosted and world.one().refused is not None, "it cannot be read")
        world.add("recorder", generation=2, paused=True)
        await world.until(lambda: world.one().view.generation == 2 and not world.one().busy, "it is paused")
        assert world.one().refused is None


async def test_who_is_gone_leaves_nothing(world: World) -> None:
    world.add("recorder")
    world.watches.put("a")
    async with world.running():
        await world.at_rest()
        assert world.guests.snapshots
        del world.views[KEY]
        world.queue.add(KEY)
        progress = world.hosting.parts.progress
        await world.until(lambda: not world.hosting.hosted and progress.recall("uid-mirror") is None, "gone")
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
        await world.until(lambda: len(recorder.told) == 2, "told anew")
        assert recorder.counts == [1, 1]


async def test_what_is_in_a_call_at_the_end_is_ended_and_all_others_are_on_disk(
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
        await world.until(lambda: bool(recorder.told), "told")
        await world.until(lambda: "team-a/hangs" in world.hosting.hosted and world.one("team-a/hangs").busy, "hangs")
    assert "uid-good" in world.guests.snapshots


async def test_a_term_that_is_over_ends_who_is_in_a_call_and_leaves_what_is_on_disk(tmp_path: Path) -> None:
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
    assert counts == [0, 1, 1], "it goes on where it was put to disk, and is told again what it was told last"
    assert world.guests.booted == 1


async def test_a_module_that_says_another_version_as_it_starts_is_refused_until_it_is_another(
    world: World, recorder: Recorder
) -> None:
    world.guests.abi, world.guests.says_version = None, 2
    world.add("recorder")
    world.watches.put("a")
    async with world.running():
        await world.until(lambda: world.guests.booted >= 3, "it is tried again")
        one = world.one()
        assert one.refused is not None
        assert one.refused.reason == "UnsupportedAbi"
        assert (one.fault, one.stopped, recorder.told) == (None, None, [])
        assert one.module is not None
        assert one.module.abi is None
        world.guests.says_version = 1
        await world.until(lambda: len(recorder.told) == 1, "told of a")
        await world.at_rest()
        assert (one.refused, one.module.abi) == (None, 1)
        looked = world.sources.fetched
        await world.until(lambda: world.sources.fetched >= looked + 3, "it is looked at again")
        assert one.module.abi == 1


async def test_a_version_that_a_module_said_is_known_after_a_restart(world: World, recorder: Recorder) -> None:
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
        one, room = world.one(), world.hosting.parts.room
        await world.until(lambda: room.refuses, "it was tried")
        assert (one.life.instance is not None, one.stopped, len(recorder.inits)) == (True, None, 1)
        assert room.reason == "DiskFull"
        world.guests.full = False
        await world.until(lambda: one.life.instance is None, "put to disk by itself")
        assert (one.life.snapshot, room.refuses, len(recorder.inits)) == (True, False, 1)


async def test_one_that_is_too_large_for_the_disk_tries_later_and_later_though_others_are_taken(world: World) -> None:
    world.guests.too_large.add("uid-large")
    world.watches.put("a")
    large, small = world.add("recorder", "large"), world.add("recorder", "small")
    async with world.running():
        room, guests = world.hosting.parts.room, world.guests
        for tries in range(1, 6):
            await world.until(lambda tries=tries: guests.refused == tries and not world.one(large).busy, "it was tried")
            wait = world.one(large).not_to_disk_before - time.monotonic()
            assert 2 ** (tries - 1) - 0.5 < wait <= 2 ** (tries - 1)
            room.took()
            taken = guests.suspended
            world.watches.put("a", tries + 1)
            await world.until(lambda taken=taken: guests.suspended > taken, "another is called, and put to disk")
            assert (guests.refused, world.one(small).life.instance) == (tries, None)
            if tries == 5:
                guests.too_large.clear()
            world.one(large).not_to_disk_before = 0.0
            world.queue.add(large)
        await world.until(lambda: world.one(large).life.instance is None, "it goes there when there is room")
        assert world.one(large).not_taken == 0


async def test_with_neither_memory_nor_disk_some_stay_and_the_rest_say_so_and_begin_when_there_is_room(
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

        def gone() -> list[str]:
            return [one.stopped.reason for one in hosted if one.stopped is not None and one.life.instance is None]

        def is_settled() -> bool:
            return gone() == ["DiskFull"] * 2 and sum(one.life.instance is not None for one in hosted) == 2

        await world.until(lambda: len(recorder.inits) >= 4 and is_settled(), "two are given up")
        assert world.hosting.residents.total <= 2500
        tries = world.guests.booted
        for version in range(2, 12):
            world.watches.put("a", version)
            await world.until(
                lambda version=version: (
                    sum(one.life.marks.get("v1 ConfigMap team-a a") == Mark(f"u-a/{version}") for one in hosted) == 2
                ),
                "those that stayed are called",
            )
        assert world.guests.booted == tries, "and the others do not push them out"
        world.guests.full = False
        world.hosting.parts.room.took()
        world.hosting.memory.recovered()
        await world.until(
            lambda: all(one.life.marks.get("v1 ConfigMap team-a a") == Mark("u-a/11") for one in hosted), "all are told"
        )
        assert all(one.stopped is None for one in hosted)


@pytest.mark.parametrize("why", ["not accepted", "waiting", "paused", "unreadable"])
async def test_memory_is_taken_back_from_one_that_is_not_called(world: World, recorder: Recorder, why: str) -> None:
    world.budget = 1500
    world.kube.put(SECRETS, {"metadata": {"namespace": "team-a", "name": "s"}})
    spec = {"idle": {"suspendAfter": "1h"}, "secretRefs": [{"name": "s"}]}
    world.add("recorder", "first", **spec)
    async with world.running():
        await world.until(lambda: len(recorder.inits) == 1, "started")
        await world.at_rest("team-a/first")
        first = world.one("team-a/first")
        world.hosting.outcomes.backoff = Backoff(first=1000.0, cap=1000.0, random=lambda: 1.0)
        if why == "not accepted":
            world.kube.remove(SECRETS, "s", "team-a")
            await world.until(lambda: first.refused is not None, "refused")
        elif why == "waiting":
            first.not_before = time.monotonic() + 1000
        elif why == "paused":
            world.guests.full = True
            world.add("recorder", "first", 2, paused=True, **spec)
            await world.until(lambda: first.wanted is not None and first.wanted.paused, "paused")
            world.guests.full = False
        else:
            world.add("recorder", "first", 2, watches="none", **spec)
            await world.until(lambda: first.wanted is None, "it cannot be read")
        world.add("recorder", "second", idle={"suspendAfter": "1h"})
        await world.until(lambda: first.life.instance is None, "its memory is taken back")
        await world.at_rest("team-a/second")
        assert world.one("team-a/second").life.instance is not None
        assert "uid-first" in world.guests.snapshots


async def test_a_new_version_says_that_it_waits_for_the_disk(
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
        assert "what its former version saves cannot be kept" in stopped.message
        world.watches.put("a", 2)
        full.clear()
        await world.until(lambda: recorder.counts == [1, 2], "the new one took it over")
        assert world.one().stopped is None


@pytest.mark.parametrize("where", ["init", "reconcile", "migrate", "save"])
async def test_a_guest_that_hangs_wherever_it_does_is_ended_at_the_end(
    tmp_path: Path, recorder: Recorder, where: str
) -> None:
    inside, ends = threading.Event(), []

    def hangs(instance: FakeInstance, export: str, request: dict[str, Any]) -> dict[str, Any]:
        if export != where or (where == "save" and not recorder.told):
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


async def test_who_is_looked_at_is_not_who_was_called_last(world: World, recorder: Recorder) -> None:
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
        assert world.one("team-a/one").life.instance is None
        assert world.one("team-a/two").life.instance is not None


async def test_keys_of_a_kind_that_is_not_watched_any_more_are_forgotten(world: World, recorder: Recorder) -> None:
    world.add("recorder")
    world.watches.put("a")
    async with world.running():
        await world.at_rest()
        world.watches.unknown.add("b")
        world.watches.put("b")
        await world.until(lambda: world.one().held_until > 0.0, "nobody knows whether it may be told of b")
        world.watches.unwatched.add("ConfigMap")
        await world.until(lambda: not len(world.one().agenda), "nobody asks any more")
        world.add("recorder", generation=2, idle={"suspendAfter": "1s"})
        await world.until(lambda: world.one().listed and world.one().view.generation == 2, "all is compared anew")
        assert list(world.one().life.marks.items()) == []
        assert names_in(recorder.told) == ["a"]


async def test_what_nobody_may_be_told_of_costs_no_turns(world: World, recorder: Recorder) -> None:
    asked = []
    allowed = world.watches.allowed

    async def counted(controller: str, user: str, key: ObjectKey) -> bool | None:
        asked.append(key.name)
        return await allowed(controller, user, key)

    world.watches.allowed = counted  # type: ignore[method-assign]
    world.watches.denied |= {f"c{number}" for number in range(40)}
    world.add("recorder", module={"configMap": {"name": "recorder", "key": "module.wasm"}, "sha256": "0" * 64})
    for number in range(40):
        world.watches.put(f"c{number}")
    async with world.running():
        await world.until(lambda: KEY in world.hosting.hosted and world.one().held_until > 0.0, "denied")
        await world.queue.wait_idle()
        assert 1 <= len(asked) <= 3, "one answer is that for all"
        assert len(world.one().agenda) == 40
        world.watches.denied.clear()
        world.queue.add(KEY)
        await world.until(lambda: len(recorder.told) == 40, "told when it may be")


class Hostile(Recorder):
    """A guest that keeps the thread that it is called in until the test is over."""

    def __init__(self) -> None:
        super().__init__()
        self.over = threading.Event()
        self.inside = 0

    def __call__(self, instance: FakeInstance, export: str, request: dict[str, Any]) -> dict[str, Any]:
        del instance, export, request
        self.inside += 1
        self.over.wait(DEADLINE * 2)
        self.inside -= 1
        return {}


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
            await world.until(lambda number=number: len(recorder.told) == number + 1, "the other is called")
            assert hostile.inside == 2
        hostile.over.set()
        await world.until(lambda: hostile.inside == 0 and world.guests.booted == 51, "each of them had its turn")
        assert world.hosting.places.enter("team-b", "x"), "all places are given back"
        assert world.hosting.places.enter("team-c", "y")


async def test_what_waits_for_a_place_and_is_deleted_leaves_it_to_the_next(tmp_path: Path, recorder: Recorder) -> None:
    hostile = Hostile()
    world = World(tmp_path, {b"recorder": recorder, b"hostile": hostile})
    world.threads = 2
    async with world.running():
        world.add("hostile", "first")
        await world.until(lambda: hostile.inside == 1, "kept")
        gone, last = world.add("recorder", "gone"), world.add("recorder", "last")
        await world.until(lambda: len(world.hosting.hosted) == 3, "they wait")
        assert recorder.inits == []
        del world.views[gone]
        hostile.over.set()
        world.queue.add(gone)
        await world.until(lambda: bool(recorder.inits), "the next one is started")
        assert [told["controller"]["name"] for told in recorder.inits] == ["last"]
        assert last in world.hosting.hosted


async def test_a_spec_above_what_the_platform_allows_is_not_accepted_and_says_so(
    world: World, recorder: Recorder
) -> None:
    world.maxima = Maxima(memory_bytes=64 << 20)
    world.add("recorder", idle={"suspendAfter": "1h"})
    async with world.running():
        await world.at_rest()
        assert world.one().life.instance is not None
        world.add("recorder", generation=2, limits={"memory": "65Mi"}, idle={"suspendAfter": "1h"})
        await world.until(lambda: world.one().refused is not None, "refused")
        refused = world.one().refused
        assert refused == Trouble("AboveMaximum", "spec.limits.memory is 65Mi, and this platform allows 64Mi at most")
        await world.until(lambda: world.one().life.instance is None, "what ran of it is put to disk")
        world.watches.put("a")
        await world.queue.wait_idle()
        assert recorder.told == []
        world.add("recorder", generation=3, limits={"memory": "64Mi"})
        await world.until(lambda: len(recorder.told) == 1, "it is called once its spec fits")
        assert world.one().refused is None


async def test_what_may_be_pinned_is_a_share_of_its_namespace_and_free_when_given_back(
    world: World, recorder: Recorder
) -> None:
    world.maxima = Maxima(pinned_bytes=100 << 20)
    first = world.add("recorder", "first", idle={"policy": "Pinned"})
    async with world.running():
        await world.at_rest(first)
        second = world.add("recorder", "second", idle={"policy": "Pinned"})
        await world.until(lambda: world.hosting.hosted.get(second) is not None, "hosted")
        await world.until(lambda: world.one(second).refused is not None, "refused")
        refused = world.one(second).refused
        assert refused is not None
        assert (refused.reason, "of 100Mi that controllers of a namespace may pin" in refused.message) == (
            "AboveMaximum",
            True,
        )
        del world.views[first]
        world.queue.add(first)
        await world.at_rest(second)
        assert world.one(second).refused is None
        assert len(recorder.inits) == 2
