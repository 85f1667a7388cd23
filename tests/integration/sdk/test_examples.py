"""The example controllers do the same in every language, awake or not: what they are told, what they then write."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from controller_host.guest import imports
from controller_host.guest.modules import Modules
from support import guests
from support.guest_api import FakeApi, Json, config_map, key_of
from support.guest_host import GuestHost
from support.sdk_worlds import NANOSECONDS, Boot, Clock, World

pytestmark = pytest.mark.timeout(900)

MIRROR_OF = "examples.trellis.dev/mirror-of"
TTL = "examples.trellis.dev/ttl-seconds"
UNUSUAL = 'quotes " and \\ and \n and \u0000 and ünïcödé and 🦀'

Start = Callable[..., World]


@pytest.fixture(scope="module", params=guests.LANGUAGES)
def language(request: pytest.FixtureRequest) -> str:
    guests.needed(request.param)
    return str(request.param)


@pytest.fixture(params=["awake", "suspended after every call"])
def boot(
    request: pytest.FixtureRequest, language: str, modules: Modules, tmp_path: Path
) -> Iterator[Callable[[str], Boot]]:
    """Makes instances of the example that is named."""
    with contextlib.ExitStack() as ended:

        def instance(name: str, api: FakeApi) -> GuestHost:
            module = modules.load(guests.example(language, name).read_bytes())
            directory = None if request.param == "awake" else Path(tempfile.mkdtemp(dir=tmp_path)) / "snapshots"
            host = GuestHost(module, api, directory)
            ended.callback(host.close)
            return host

        yield lambda name: lambda api: instance(name, api)


@pytest.fixture
def start(boot: Callable[[str], Boot], monkeypatch: pytest.MonkeyPatch) -> Start:
    clock = Clock()
    monkeypatch.setattr(imports, "time", clock)
    return lambda name, **config: World(boot(name), config, clock)


class TestRing:
    def test_passes_a_newer_nonce_on_to_the_next(self, start: Start) -> None:
        world = start("ring", next="ring-2")
        assert world.changed(config_map("ring-1", data={"nonce": "7"})) == {}
        assert world.api.find("ConfigMap", "team-a", "ring-2")["data"] == {"nonce": "7"}
        assert world.changed(config_map("ring-1", data={"nonce": "12"})) == {}
        assert world.api.find("ConfigMap", "team-a", "ring-2")["data"] == {"nonce": "12"}

    def test_keeps_what_else_the_next_has(self, start: Start) -> None:
        world = start("ring", next="ring-2")
        world.api.put(config_map("ring-2", data={"nonce": "3", "other": "kept"}))
        world.changed(config_map("ring-1", data={"nonce": "4"}))
        assert world.api.find("ConfigMap", "team-a", "ring-2")["data"] == {"nonce": "4", "other": "kept"}

    @pytest.mark.parametrize("there", ["7", "8", "100"])
    def test_never_takes_the_next_back_to_an_older_one(self, start: Start, there: str) -> None:
        world = start("ring", next="ring-2")
        world.api.put(config_map("ring-2", data={"nonce": there}))
        assert world.changed(config_map("ring-1", data={"nonce": "7"})) == {}
        assert not world.api.asked("apply")

    def test_asks_nothing_for_what_it_has_passed_on(self, start: Start) -> None:
        world = start("ring", next="ring-2")
        world.changed(config_map("ring-1", data={"nonce": "7"}))
        asked = len(world.api.requests)
        assert world.changed(config_map("ring-1", data={"nonce": "7"})) == {}
        assert world.changed(config_map("ring-1", data={"nonce": "6"})) == {}
        assert len(world.api.requests) == asked

    def test_a_cold_start_leads_to_the_same_end(self, start: Start) -> None:
        world = start("ring", next="ring-2")
        world.changed(config_map("ring-1", data={"nonce": "7"}))
        world.restart()
        assert world.changed(config_map("ring-1", data={"nonce": "7"})) == {}
        assert len(world.api.asked("apply")) == 1

    @pytest.mark.parametrize("data", [{}, {"other": "x"}], ids=["no data", "other data"])
    def test_does_nothing_without_a_nonce(self, start: Start, data: Json) -> None:
        world = start("ring", next="ring-2")
        assert world.changed(config_map("ring-1", data=data)) == {}
        assert world.gone(config_map("ring-1")) == {}
        assert not world.api.requests

    def test_does_nothing_if_it_is_shown_the_next_itself(self, start: Start) -> None:
        world = start("ring", next="ring-2")
        assert world.changed(config_map("ring-2", data={"nonce": "9"})) == {}
        assert not world.api.requests

    @pytest.mark.parametrize(
        "nonce", ["", "x", "-1", "1.5", "1e3", "99999999999999999999", " 1", "1 ", "+1", "0x1", UNUSUAL]
    )
    def test_says_what_is_no_nonce(self, start: Start, nonce: str) -> None:
        world = start("ring", next="ring-2")
        error = world.changed(config_map("ring-1", data={"nonce": nonce}))["error"]
        assert error.startswith("ConfigMap team-a/ring-1: data.nonce is no whole number: ")

    def test_does_not_remember_what_it_could_not_pass_on(self, start: Start) -> None:
        world = start("ring", next="ring-2")
        world.api.refusals["apply"] = {"code": 403, "reason": "Forbidden", "message": "may not"}
        refused = world.changed(config_map("ring-1", data={"nonce": "7"}))
        assert refused == {"error": "apply ConfigMap team-a/ring-2: Forbidden: may not"}
        del world.api.refusals["apply"]
        assert world.changed(config_map("ring-1", data={"nonce": "7"})) == {}
        assert world.api.find("ConfigMap", "team-a", "ring-2")["data"] == {"nonce": "7"}

    def test_does_not_start_without_a_next(self, boot: Callable[[str], Boot]) -> None:
        host = boot("ring")(FakeApi())
        assert host.init({}) == {"error": "config.next is missing: the name of the next ConfigMap"}

    def test_a_nonce_goes_once_around(self, boot: Callable[[str], Boot]) -> None:
        api, size = FakeApi(), 10
        members = [boot("ring")(api) for _ in range(size)]
        for number, member in enumerate(members):
            assert member.init({"next": f"ring-{(number + 1) % size}"}) == {}
        api.put(config_map("ring-0", data={"nonce": "1"}))
        for number in [*range(size), 0]:
            shown = api.find("ConfigMap", "team-a", f"ring-{number}")
            assert members[number].reconcile(key_of(shown), shown) == {}
        assert [request["object"]["metadata"]["name"] for request in api.asked("apply")] == [
            f"ring-{number}" for number in range(1, size)
        ]


class TestMirror:
    def test_makes_changes_and_removes_a_mirror(self, start: Start) -> None:
        world = start("mirror", targetNamespace="copies")
        source = config_map("settings", data={"a": "1", UNUSUAL[:4]: UNUSUAL})
        assert world.changed(source) == {}
        mirror = world.api.find("ConfigMap", "copies", "settings")
        assert mirror["data"] == source["data"]
        assert mirror["metadata"]["annotations"] == {MIRROR_OF: "team-a/settings"}
        assert world.changed(config_map("settings", data={"a": "2"})) == {}
        assert world.api.find("ConfigMap", "copies", "settings")["data"] == {"a": "2"}
        assert world.gone(source) == {}
        assert world.api.find("ConfigMap", "copies", "settings") is None

    def test_takes_binary_data_along(self, start: Start) -> None:
        world = start("mirror", targetNamespace="copies")
        world.changed(config_map("settings") | {"binaryData": {"b": "AAEC"}})
        assert world.api.find("ConfigMap", "copies", "settings")["binaryData"] == {"b": "AAEC"}

    def test_writes_nothing_if_nothing_differs(self, start: Start) -> None:
        world = start("mirror", targetNamespace="copies")
        world.changed(config_map("settings", data={"a": "1", "b": "2"}))
        assert world.changed(config_map("settings", data={"b": "2", "a": "1"}, labels={"new": "label"})) == {}
        assert {request["op"] for request in world.api.requests[2:]} == {"get"}

    @pytest.mark.parametrize("annotations", [{}, {MIRROR_OF: "team-b/settings"}], ids=["a person's", "another's"])
    def test_never_touches_what_it_did_not_make(self, start: Start, annotations: Json) -> None:
        world = start("mirror", targetNamespace="copies")
        world.api.put(config_map("settings", "copies", {"not": "ours"}, annotations=annotations))
        source = config_map("settings", data={"a": "1"})
        assert world.changed(source) == {
            "error": "ConfigMap copies/settings is there already and is no mirror of team-a/settings: "
            "rename one of the two"
        }
        assert world.gone(source) == {}
        assert {request["op"] for request in world.api.requests} == {"get"}
        assert world.api.find("ConfigMap", "copies", "settings")["data"] == {"not": "ours"}

    def test_leaves_the_mirrors_namespace_alone(self, start: Start) -> None:
        world = start("mirror", targetNamespace="copies")
        assert world.changed(config_map("settings", "copies")) == {}
        assert not world.api.requests

    def test_deletes_and_changes_only_what_it_has_looked_at(self, start: Start) -> None:
        world = start("mirror", targetNamespace="copies")
        world.changed(config_map("settings", data={"a": "1"}))
        made = world.api.find("ConfigMap", "copies", "settings")["metadata"]
        world.changed(config_map("settings", data={"a": "2"}))
        [update] = world.api.asked("update")
        assert update["object"]["metadata"]["resourceVersion"] == made["resourceVersion"]
        changed = world.api.find("ConfigMap", "copies", "settings")["metadata"]
        world.gone(config_map("settings"))
        [deletion] = world.api.asked("delete")
        assert {name: deletion[name] for name in ("uid", "resourceVersion")} == {
            name: changed[name] for name in ("uid", "resourceVersion")
        }

    @pytest.mark.parametrize("op", ["get", "create", "update", "delete"])
    def test_is_tried_again_with_the_servers_own_words(self, start: Start, op: str) -> None:
        world = start("mirror", targetNamespace="copies")
        if op in {"update", "delete"}:
            world.changed(config_map("settings", data={"a": "0"}))
        world.api.refusals[op] = {"code": 409, "reason": "Conflict", "message": "the object has been modified"}
        source = config_map("settings", data={"a": "1"})
        answer = world.gone(source) if op == "delete" else world.changed(source)
        assert answer == {"error": f"{op} ConfigMap copies/settings: Conflict: the object has been modified"}

    def test_does_not_start_without_a_namespace(self, boot: Callable[[str], Boot]) -> None:
        host = boot("mirror")(FakeApi())
        assert host.init({})["error"].startswith("config.targetNamespace is missing")


def job(name: str = "once", *, ended: float | None = None, condition: str = "Complete", **more: Any) -> Json:
    """A Job that ended so many seconds before the clock of the tests; None: it runs."""
    status: Json = {}
    if ended is not None:
        at = datetime.fromtimestamp(1_800_000_000 - ended, UTC).isoformat().replace("+00:00", "Z")
        held = {"type": "Suspended", "status": "False", "lastTransitionTime": "2020-01-01T00:00:00Z"}
        status = {"conditions": [held, {"type": condition, "status": "True", "lastTransitionTime": at}]}
    metadata = {"name": name, "namespace": "team-a", **more.pop("metadata", {})}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": more, "status": status}


class TestTtl:
    @pytest.mark.parametrize("condition", ["Complete", "Failed"])
    def test_deletes_a_finished_job_that_is_due_and_tells_of_it(self, start: Start, condition: str) -> None:
        world = start("ttl", seconds=60)
        assert world.changed(job(ended=61, condition=condition)) == {}
        assert world.api.find("Job", "team-a", "once") is None
        [deletion], [event] = world.api.asked("delete"), world.api.events
        assert deletion["uid"]
        assert deletion["propagationPolicy"] == "Background"
        assert (event["type"], event["reason"]) == ("Normal", "TimeToLiveExpired")
        assert event["message"] == "deleted 61 s after it finished"
        assert event["regarding"] == {**key_of(job()), "uid": deletion["uid"]}

    def test_comes_back_when_it_is_due(self, start: Start) -> None:
        world = start("ttl", seconds=60)
        assert world.changed(job(ended=20)) == {"requeueAfter": 40}
        world.clock.now += 39 * NANOSECONDS
        assert world.changed(job(ended=20)) == {"requeueAfter": 1}
        assert not world.api.requests
        world.clock.now += NANOSECONDS
        assert world.changed(job(ended=20)) == {}
        assert len(world.api.asked("delete")) == 1

    def test_comes_back_when_it_is_due_if_that_is_less_than_a_second(self, start: Start) -> None:
        world = start("ttl", seconds=60)
        world.clock.now += NANOSECONDS // 2
        assert world.changed(job(ended=59)) == {"requeueAfter": 1}

    def test_the_annotation_counts_more_than_the_configuration(self, start: Start) -> None:
        world = start("ttl", seconds=60)
        assert world.changed(job(ended=61, metadata={"annotations": {TTL: "100"}})) == {"requeueAfter": 39}
        assert start("ttl").changed(job(ended=1, metadata={"annotations": {TTL: "0"}})) == {}

    @pytest.mark.parametrize(
        "kept",
        [
            pytest.param(job(), id="it runs"),
            pytest.param(job(ended=1000, condition="Suspended"), id="it is suspended"),
            pytest.param(job(ended=1000, ttlSecondsAfterFinished=5000), id="Kubernetes deletes it"),
            pytest.param(
                job(ended=1000, metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}), id="it is being deleted"
            ),
        ],
    )
    def test_leaves_a_job_alone_if(self, start: Start, kept: Json) -> None:
        world = start("ttl", seconds=60)
        assert world.changed(kept) == {}
        assert world.gone(kept) == {}
        assert not world.api.requests

    def test_leaves_all_without_an_annotation_alone_if_nothing_is_configured(self, start: Start) -> None:
        world = start("ttl")
        assert world.changed(job(ended=10**6)) == {}
        assert not world.api.requests

    @pytest.mark.parametrize("value", ["", "x", "-1", "1.5", " 1", "1 ", "+1", "1000000001", "99999999999999999999"])
    def test_says_what_is_no_time_to_live(self, start: Start, value: str) -> None:
        world = start("ttl", seconds=0)
        error = world.changed(job(ended=100, metadata={"annotations": {TTL: value}}))["error"]
        assert error == (
            f"Job team-a/once: the annotation {TTL} is no whole number of seconds from 0 to 1000000000: {value}"
        )
        assert not world.api.requests

    @pytest.mark.parametrize("value", [-1, "60", 1.5, 10**9 + 1, None])
    def test_does_not_start_with_what_is_no_time_to_live(self, boot: Callable[[str], Boot], value: Any) -> None:
        host = boot("ttl")(FakeApi())
        assert host.init({"seconds": value}) == {
            "error": "config.seconds is no whole number of seconds from 0 to 1000000000"
        }

    @pytest.mark.parametrize("reason", ["NotFound", "Conflict"])
    def test_is_done_if_the_job_is_gone_or_another_by_now(self, start: Start, reason: str) -> None:
        world = start("ttl", seconds=60)
        world.api.refusals["delete"] = {"code": 404 if reason == "NotFound" else 409, "reason": reason, "message": "x"}
        assert world.changed(job(ended=61)) == {}
        assert not world.api.events

    def test_is_tried_again_if_it_may_not_delete(self, start: Start) -> None:
        world = start("ttl", seconds=60)
        world.api.refusals["delete"] = {"code": 403, "reason": "Forbidden", "message": "may not"}
        assert world.changed(job(ended=61)) == {"error": "delete Job team-a/once: Forbidden: may not"}
        assert not world.api.events

    def test_is_done_though_nobody_could_be_told(self, start: Start) -> None:
        world = start("ttl", seconds=60)
        world.api.refusals["event"] = {"code": 403, "reason": "Forbidden", "message": "may not"}
        assert world.changed(job(ended=61)) == {}
        assert world.host.logged == [(2, "event about Job team-a/once: Forbidden: may not")]


class TestStateful:
    def test_counts_and_remembers_in_memory(self, start: Start) -> None:
        world = start("stateful", bytes=100_000)
        for name in ("b", "a", "b"):
            assert world.changed(config_map(name)) == {}
        assert world.api.find("ConfigMap", "team-a", "b-seen")["data"] == {
            "calls": "3", "seen": '{"a": 1, "b": 2}', "memory": "whole", "clock": "forward",
        }  # fmt: skip

    def test_sleeps_a_hundred_times_and_knows_all(self, start: Start, request: pytest.FixtureRequest) -> None:
        world = start("stateful", bytes=1_000_000)
        for number in range(100):
            assert world.changed(config_map(f"name-{number % 7}", data={"text": "x" * 1000 * number})) == {}
            report = world.api.find("ConfigMap", "team-a", f"name-{number % 7}-seen")["data"]
            assert (report["calls"], report["memory"], report["clock"]) == (str(number + 1), "whole", "forward")
        assert json.loads(report["seen"]) == {f"name-{number}": 14 + (number < 2) for number in range(7)}
        assert world.host.wakes == (101 if "suspended" in request.node.name else 0)

    def test_a_new_version_takes_over_what_the_former_saved(self, start: Start) -> None:
        world = start("stateful")
        for name in ("b", "a", "b"):
            world.changed(config_map(name))
        saved = world.host.save()
        assert saved == {"calls": 3, "seen": {"a": 1, "b": 2}}
        world.host = world.boot(world.api)
        assert world.host.migrate(saved) == {}
        world.changed(config_map("a"))
        report = world.api.find("ConfigMap", "team-a", "a-seen")["data"]
        assert (report["calls"], report["seen"]) == ("4", '{"a": 2, "b": 2}')

    def test_uses_the_memory_of_a_call_again(self, start: Start) -> None:
        world = start("stateful")
        key, large = key_of(config_map("a")), config_map("a", data={"text": "x" * 1_000_000})
        for _ in range(100):
            world.host.reconcile(key, large)
        # A collector may let some calls' worth pile up; a leak would keep all hundred.
        assert world.host.memory_bytes < 40_000_000
