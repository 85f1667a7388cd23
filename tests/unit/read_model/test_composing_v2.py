"""Entities of wasmCloud v2 after any changes equal those of a composer that received only the final state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.v2.entities import composer_of, seen, statuses, views
from support.v2.host_pods import COUNTRY, SON, both, host_pod
from support.v2.recordings import SITUATIONS, recording
from trellis.read_model.entities.composing_v2 import (
    EVALUATED_MOST,
    INSTALLED,
    RECHECK_SECONDS,
    RECHECKS_MOST,
    V2Composer,
)
from trellis.read_model.entities.entities import PartStatus
from trellis.read_model.entities.journal import Journal
from trellis.read_model.health import Health
from trellis.v2.cluster import Cluster
from trellis.v2.explain.deployment import deployment_health
from trellis.v2.pods import view_host_pod


@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("listens", [False, True], ids=["without heartbeats", "with heartbeats"])
def test_entities_during_a_situation_are_those_of_a_composer_that_sees_only_its_end(
    situation: str, *, listens: bool
) -> None:
    found = recording(situation)
    composer, journal, before = V2Composer(), Journal(100_000), dict[tuple[str, str], Any]()
    times = found.times[:: max(len(found.times) // 12, 1)] or [0.0]
    for at in times:
        after = views(found, at)
        for name, key in {*before, *after}:
            if before.get((name, key)) != after.get((name, key)):
                composer.take(name, key, after.get((name, key)))
        before = after
        composer.report(statuses())
        messages = found.messages(at - 35, at) if listens else None
        journal.write(composer.flush(found.start + at, messages))
        # Texts of problems have ages, and are evaluated in turn; everything else is current.
        current = composer_of(after)
        current._former = composer._former
        wanted = {id_: _lasting(item) for id_, item in current.flush(found.start + at, messages).items() if item}
        assert {id_: _lasting(item) for id_, item in journal.entities.items()} == wanted, at


def _lasting(entity: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entity without its text if it has a problem: that can be older."""
    return {**entity, "message": None}


STEPS = [
    (key, view)
    for situation, at in (("03", 40), ("09", 20), ("10", 60), ("14b", 40), ("15", 20))
    for key, view in views(recording(situation), at).items()
] + [
    (("wpods", f"wasmcloud-system/{name}"), view_host_pod(host_pod(name, address, state, group=group)))
    for name, address, state, group in (
        ("a", SON, "Ready", "default"),
        ("a", SON, "CrashLoopBackOff", "default"),
        ("b", COUNTRY, "Ready", "edge"),
        ("c", "", "Unschedulable", "edge"),
    )
]


@given(st.lists(st.tuples(st.sampled_from(STEPS), st.booleans(), st.booleans()), max_size=40))
def test_entities_after_any_changes_are_those_of_a_composer_that_sees_only_the_end(
    steps: list[tuple[tuple[tuple[str, str], Any], bool, bool]],
) -> None:
    now = recording("09").start + 100
    composer, journal, end = V2Composer(), Journal(100_000), dict[tuple[str, str], Any]()
    composer.report(statuses())
    for ((name, key), view), deleted, flush in steps:
        end[name, key] = None if deleted else view
        composer.take(name, key, end[name, key])
        if flush:
            journal.write(composer.flush(now, None))
    journal.write(composer.flush(now, None))
    late, wanted = composer_of(end), Journal(100_000)
    wanted.write(late.flush(now, None))
    assert journal.entities == wanted.entities


def test_health_is_that_of_pages() -> None:
    found = recording("04").snapshot(30)
    cluster = Cluster(found)
    entities = seen("04", 30)
    for item in found.deployments:
        verdict = deployment_health(cluster, item)
        entity = entities[f"workloaddeployment/{item.meta.key}"]
        assert (entity["health"], entity["reason"]) == (verdict.health, verdict.reason)


def test_relations_lead_from_a_host_group_to_a_service() -> None:
    entities = seen("03", 2.2)
    [host] = [item for id_, item in entities.items() if id_ == "whost/wasmcloud-system/uppity-son-5573"]
    assert host["group"] == "whostgroup/wasmcloud-system/default"
    group = entities[host["group"]]
    assert group["hosts"] == sorted(id_ for id_ in entities if id_.startswith("whost/"))
    assert group["pods"] == {"all": 0, "ready": 0}
    assert {host["pod"], host["node"]} == {None}
    deployment = entities["workloaddeployment/apps/hello"]
    assert "whost/wasmcloud-system/uppity-son-5573" in deployment["hosts"]
    assert deployment["service"] == "wservice/apps/hello"
    service = entities["wservice/apps/hello"]
    assert service["deployments"] == ["workloaddeployment/apps/hello"]
    assert service["hosts"] == deployment["hosts"]
    workloads = [item for item in entities.values() if item["kind"] == "workload"]
    assert {item["deployment"] for item in workloads} == {"workloaddeployment/apps/hello"}
    assert {item["host"] for item in workloads} == {*deployment["hosts"]}
    assert host["placed"] == sum(item["host"] == "whost/wasmcloud-system/uppity-son-5573" for item in workloads)


def test_numbers_of_a_host_are_those_of_its_heartbeat_and_unknown_without_one() -> None:
    id_, found = "whost/wasmcloud-system/uppity-son-5573", recording("03")
    numbers = ("cpu_percent", "memory_total", "memory_free", "workloads", "components", "version")
    without = seen("03", 2.2)[id_]
    assert {without[name] for name in numbers} == {None}
    assert without["heartbeat"] is None
    messages = found.messages(-1, 2.2)
    host = seen("03", 2.2, messages=messages)[id_]
    beat = messages.hosts[host["host_id"]].heartbeat
    assert beat is not None
    assert (host["workloads"], host["version"], host["heartbeat"]) == (beat.workloads, beat.version, True)
    assert host["cpu_percent"] == round(beat.cpu or 0)
    assert 0 <= (beat.memory_free or 0) - host["memory_free"] < 2**20
    failed = replace(messages, error="connection refused", hosts={})
    assert seen("03", 2.2, messages=failed)[id_]["heartbeat"] is None


def test_numbers_in_the_status_of_a_host_are_not_used() -> None:
    found = recording("03")
    there = views(found, 2.2)
    key = ("whosts", "wasmcloud-system/uppity-son-5573")
    there[key] = replace(there[key], memory_total=2**30, memory_free=2**29, components=2, workloads=2, version="2.7.0")
    host = composer_of(there).flush(found.start + 2.2, None)["/".join(("whost", key[1]))]
    assert host is not None
    assert {host[name] for name in ("memory_total", "memory_free", "components", "workloads", "version")} == {None}


def test_hosts_that_cannot_be_read_are_unknown_and_not_absent() -> None:
    entities = seen("07", 20, lacking=["whosts"])
    assert entities["part/whosts"]["lacking"]
    assert "NoHost" not in {item["reason"] for item in entities.values()}
    assert "HostsUnknown" in {item["reason"] for item in entities.values()}


def test_heartbeats_of_hosts_that_cannot_be_read_are_not_used() -> None:
    at, messages = 21.0, recording("06").messages(0, 21)
    reasons = {
        bool(lacking): seen("06", at, lacking=lacking, messages=messages)["workloaddeployment/apps/old-draft"]["reason"]
        for lacking in ([], ["whosts"])
    }
    assert reasons[False] == "PluginMissing"
    assert reasons[True] != "PluginMissing"


def test_a_host_has_its_pod_and_its_node() -> None:
    entities = seen("03", 2.2, pods=both())
    host = entities["whost/wasmcloud-system/uppity-son-5573"]
    assert (host["pod"], host["node"]) == ("wasmcloud-system/default-a", "node/node-1")
    group = entities[host["group"]]
    assert (group["pods"], group["nodes"]) == ({"all": 2, "ready": 2}, ["node/node-1", "node/node-2"])


def test_pods_that_cannot_be_read_leave_the_host_group_unknown() -> None:
    entities = seen("03", 2.2, lacking=["wpods"], pods=both())
    group = entities["whostgroup/wasmcloud-system/default"]
    assert (group["health"], group["pods"]) == (Health.UNKNOWN, None)
    assert entities["whost/wasmcloud-system/uppity-son-5573"]["health"] == Health.HEALTHY


def test_a_host_group_ends_with_its_last_pod_and_host() -> None:
    composer, journal = composer_of({}), Journal(1000)
    pod = view_host_pod(host_pod("a", "", "ImagePullBackOff", group="edge"))
    composer.take("wpods", pod.meta.key, pod)
    journal.write(composer.flush(0.0, None))
    assert journal.entities["whostgroup/wasmcloud-system/edge"]["reason"] == "PodPullFailed"
    assert not [id_ for id_ in composer.flush(1.0, None) if id_.startswith("whostgroup/")], "nothing changed"
    composer.take("wpods", pod.meta.key, None)
    journal.write(composer.flush(3.0, None))
    assert "whostgroup/wasmcloud-system/edge" not in journal.entities


def test_the_pods_of_hosts_without_heartbeat_and_of_missing_hosts_are_evaluated_on_change() -> None:
    found = recording("00")
    composer, journal = composer_of(views(found, 5)), Journal(1000)
    journal.write(composer.flush(found.start + 5, None))
    pod = view_host_pod(host_pod("a", "", "CrashLoopBackOff"))
    composer.take("wpods", pod.meta.key, pod)
    journal.write(composer.flush(found.start + 6, None))
    assert "wasmcloud-system/a" in journal.entities["workloaddeployment/apps/lonely"]["message"]


def test_workloads_that_cannot_be_read_leave_their_number_unknown() -> None:
    entities = seen("03", 2.2, lacking=["workloads"])
    assert entities["whost/wasmcloud-system/uppity-son-5573"]["placed"] is None
    assert entities["workloaddeployment/apps/hello"]["ready"] is None


def test_nothing_is_concluded_before_all_lists_are_read() -> None:
    composer = composer_of(views(recording("03"), 2.2))
    composer.report([replace(item, synced=item.name != "wslices") for item in statuses()])
    assert {id_.partition("/")[0] for id_ in composer.flush(0.0, None)} == {"part"}
    composer.report(statuses())
    assert "whost" in {id_.partition("/")[0] for id_ in composer.flush(0.0, None)}


def test_without_wasmcloud_v2_there_is_only_the_status_of_its_group() -> None:
    composer = V2Composer()
    composer.report([PartStatus(INSTALLED, True, {}, absent=True)])
    entities = composer.flush(0.0, None)
    assert set(entities) == {f"part/{INSTALLED}"}
    assert entities[f"part/{INSTALLED}"] is not None


def test_entities_go_with_the_group() -> None:
    found = views(recording("03"), 2.2)
    composer, journal = composer_of(found), Journal(1000)
    journal.write(composer.flush(recording("03").start + 3, None))
    for name, key in found:
        composer.take(name, key, None)
    composer.report([PartStatus(INSTALLED, True, {}, absent=True)])
    journal.write(composer.flush(recording("03").start + 4, None))
    assert set(journal.entities) == {f"part/{INSTALLED}"}


def test_a_service_of_another_project_is_no_entity() -> None:
    found = {key: view for key, view in views(recording("03"), 2.2).items() if key[0] in {"wservices", "whosts"}}
    entities = composer_of(found).flush(recording("03").start + 3, None)
    assert not [id_ for id_, item in entities.items() if id_.startswith("wservice/") and item is not None]


def test_a_host_whose_heartbeat_stops_changes_without_a_change_of_an_object() -> None:
    found = recording("03")
    composer, journal = composer_of(views(found, 2.2)), Journal(1000)
    journal.write(composer.flush(found.start + 3, None))
    host, deployment = "whost/wasmcloud-system/uppity-son-5573", "workloaddeployment/apps/hello"
    assert {journal.entities[id_]["health"] for id_ in (host, deployment)} == {Health.HEALTHY}
    journal.write(composer.flush(found.start + 48, None))
    assert journal.entities[host]["reason"] == "HeartbeatsStopped", "no host is blamed for the silence of all"
    assert journal.entities[deployment]["health"] != Health.HEALTHY


def test_workloads_of_a_host_whose_heartbeat_stops_are_evaluated_without_a_change_of_another_object() -> None:
    found = recording("03")
    there, name = views(found, 2.2), "uppity-son-5573"
    composer, journal = composer_of(there), Journal(1000)
    journal.write(composer.flush(found.start + 3, None))
    for (part, key), view in there.items():
        if part == "whosts" and view.meta.name != name:  # the operator works
            composer.take(part, key, replace(view, last_seen=found.start + 47))
    journal.write(composer.flush(found.start + 48, None))
    workloads = [item for item in journal.entities.values() if item["kind"] == "workload"]
    assert {(item["host"].endswith(name), item["reason"]) for item in workloads} == {(True, "HeartbeatMissing")}


def test_an_object_with_a_problem_is_evaluated_each_interval_and_a_healthy_one_is_not() -> None:
    found = recording("04")
    composer = composer_of(views(found, 30))
    at = found.start + 30
    first = {id_ for id_, item in composer.flush(at, None).items() if item and not id_.startswith("part/")}
    assert not {id_ for id_ in composer.flush(at + RECHECK_SECONDS - 1, None) if not id_.startswith("part/")}
    later = {id_ for id_ in composer.flush(at + RECHECK_SECONDS, None) if not id_.startswith("part/")}
    assert "workloaddeployment/apps/hello" in first - later
    assert "workloaddeployment/apps/no-tag" in later


def test_more_objects_than_one_run_evaluates_follow_and_are_not_read_before() -> None:
    found = recording("03")
    there = views(found, 2.2)
    [one] = [view for (name, _), view in there.items() if name == "workloaddeployments"]
    many = {
        ("workloaddeployments", f"apps/d{at}"): replace(one, meta=replace(one.meta, name=f"d{at}"))
        for at in range(EVALUATED_MOST)
    }
    composer, journal = composer_of(there | many), Journal(10_000)
    journal.write(composer.flush(found.start + 3, None))
    assert composer.behind
    assert not journal.entities[f"part/{INSTALLED}"]["synced"]
    assert not [id_ for id_ in journal.entities if id_.startswith("workload/")]
    journal.write(composer.flush(found.start + 3, None))
    assert not composer.behind
    assert journal.entities[f"part/{INSTALLED}"]["synced"]
    wanted = Journal(10_000)
    late = composer_of(there | many)
    for _ in range(2):
        wanted.write(late.flush(found.start + 3, None))
    assert journal.entities == wanted.entities
    assert len(journal.entities) > EVALUATED_MOST


def test_a_deployment_counts_with_its_workloads_in_a_run() -> None:
    found = recording("03")
    there = views(found, 2.2)
    [owner] = {view.meta.owner_name for (name, _), view in there.items() if name == "workloads"}
    [replica_set] = [view for (name, _), view in there.items() if name == "workloadreplicasets"]
    [deployment] = [view for (name, _), view in there.items() if name == "workloaddeployments"]
    some = [view for (name, _), view in there.items() if name == "workloads"]
    many: dict[tuple[str, str], Any] = {}
    for at in range(10):
        name = f"d{at}"
        many["workloaddeployments", f"apps/{name}"] = replace(
            deployment, meta=replace(deployment.meta, name=name), current=f"{owner}-{at}"
        )
        many["workloadreplicasets", f"apps/{owner}-{at}"] = replace(
            replica_set, meta=replace(replica_set.meta, name=f"{owner}-{at}", owner_name=name)
        )
        for number in range(EVALUATED_MOST // 4):
            meta = replace(some[0].meta, name=f"{name}-{number}", uid=f"{name}-{number}", owner_name=f"{owner}-{at}")
            many["workloads", f"apps/{meta.name}"] = replace(some[0], meta=meta)
    composer = composer_of(there | many)
    evaluated = composer.flush(found.start + 3, None)
    assert sum(id_.startswith("workloaddeployment/apps/d") for id_ in evaluated) <= 4
    assert composer.behind
    runs = 1
    while composer.behind:
        composer.flush(found.start + 3, None)
        runs += 1
    assert runs <= 8


def test_many_objects_with_a_problem_take_turns() -> None:
    found = recording("04")
    there = views(found, 30)
    [bad] = [view for (name, _), view in there.items() if name == "workloaddeployments" and view.meta.name == "no-tag"]
    many = {
        ("workloaddeployments", f"apps/d{at}"): replace(bad, meta=replace(bad.meta, name=f"d{at}"))
        for at in range(2 * RECHECKS_MOST)
    }
    composer = composer_of(there | many)
    composer.flush(found.start + 30, None)
    turns = [
        {id_ for id_ in composer.flush(found.start + 40 + at, None) if id_.startswith("workloaddeployment/apps/d")}
        for at in range(3)
    ]
    assert all(len(turn) <= RECHECKS_MOST for turn in turns)
    assert len(turns[0] | turns[1] | turns[2]) == 2 * RECHECKS_MOST
