"""Events about wasmCloud v2: replays of recordings, histories with gaps, restarts, outages, large clusters."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from host_manager.domain.v2.decide import decide, forget_deleted
from host_manager.domain.v2.operator_clock import OperatorClock
from host_manager.domain.v2.published import EVENTS, Published
from host_manager.domain.v2.trust import Trust
from host_manager.v2.watches import slim_deployment, slim_replica_set
from support.v2.recordings import SITUATIONS, recording
from trellis.events.envelope import EventData
from trellis.events.subjects import event_subject
from trellis.events.wasmcloud_v2 import (
    WasmHostGone,
    WasmHostReady,
    WasmHostSilent,
    WorkloadDeploymentDegraded,
    WorkloadDeploymentReady,
    WorkloadFailed,
    WorkloadGone,
    WorkloadStarted,
)
from trellis.v2.cluster import Cluster
from trellis.v2.deployments import DeploymentView, Replicas, ReplicaSetView, view_artifact, view_deployment
from trellis.v2.hosts import HostView, view_host
from trellis.v2.objects import Condition, Meta
from trellis.v2.operator import DEADLINE, NO_RESPONDERS
from trellis.v2.reasons import Reason
from trellis.v2.snapshot import Part, Snapshot
from trellis.v2.timings import V2Timings
from trellis.v2.workloads import STEPS, TemplateView, WorkloadView, view_workload

GOLDEN = json.loads((Path(__file__).parents[2] / "data/host_manager/v2_events.json").read_text())
UNWATCHED = dict.fromkeys((Part.SERVICES, Part.SLICES, Part.PODS), "not watched")
SYSTEM = "wasmcloud-system"
LONG_AGO = Trust(dict.fromkeys((SYSTEM, "system-a", "system-b"), 0.0))
NOW = 1_800_000_000.0
STEP = 5.0


class Replay:
    """Publishes what is decided, as the reconciler does."""

    def __init__(self, trust: Trust = LONG_AGO) -> None:
        self.published, self.trust, self.events = Published(), trust, list[EventData]()

    def see(self, snapshot: Snapshot) -> list[EventData]:
        cluster = Cluster(snapshot)
        self.trust = self.trust.next(cluster)
        found = decide(cluster, self.published, self.trust)
        for event in found:
            self.published.note(event)
        forget_deleted(cluster, self.published)
        assert decide(cluster, self.published, self.trust) == []
        self.events += found
        return found

    def restart(self) -> None:
        """Continue as another leader, with the last event of each subject."""
        last = {event_subject("c", event): at for at, event in enumerate(self.events)}
        self.published = Published()
        for at in sorted(last.values()):
            self.published.note(self.events[at])


def shown(event: EventData) -> str:
    return " ".join(
        filter(None, (f"{event.noun}.{event.event_name}", "/".join(event.key()), getattr(event, "reason", "")))
    )


def times_of(name: str) -> list[float]:
    found = recording(name)
    return sorted({0.0, *found.times, *(STEP * at for at in range(int(found.end / STEP) + 1))})


def snapshot(name: str, at: float, seed: int = 0) -> Snapshot:
    return recording(name).snapshot(at, seed=seed, unread=UNWATCHED)


@pytest.mark.parametrize("name", SITUATIONS)
def test_a_recording_has_its_sequence_of_events(name: str) -> None:
    replay = Replay()
    for at in times_of(name):
        replay.see(snapshot(name, at))
    assert [shown(event) for event in replay.events] == GOLDEN[name]


@pytest.mark.parametrize("name", ["04", "10", "11", "12", "13"])
def test_heartbeats_of_a_recording_change_the_events_little(name: str) -> None:
    """They are a second source: silence needs both, so its events come once and at most one interval later."""
    replay, found = Replay(), recording(name)
    for at in times_of(name):
        whole = found.snapshot(at, unread=UNWATCHED)
        window = whole.timings.silence
        replay.see(replace(whole, messages=found.messages(at - window, at)) if at >= window else whole)
    [golden] = [lines for key, lines in GOLDEN.items() if key.partition("-")[0] == name]
    assert sorted(map(shown, replay.events)) == sorted(golden)


def test_events_about_workloads_have_the_name_of_their_host_as_its_own_events() -> None:
    replay = Replay()
    for at in times_of("04"):
        replay.see(snapshot("04", at))
    names = {event.host_id: event.name for event in replay.events if isinstance(event, WasmHostReady)}
    names |= {host.id: host.meta.name for host in snapshot("04", 0.0).hosts}
    about = [event for event in replay.events if isinstance(event, WorkloadStarted | WorkloadFailed)]
    assert {type(event) for event in about} == {WorkloadStarted, WorkloadFailed}
    assert [event.host_name for event in about] == [names.get(event.host_id, "") for event in about]
    assert any(event.host_name for event in about)


def test_all_recordings_together_have_every_event() -> None:
    found = {line.split()[0] for lines in GOLDEN.values() for line in lines}
    assert found == {f"{model.noun}.{model.event_name}" for model in EVENTS}


HISTORIES = ("03", "04", "08", "10", "11b", "12", "14", "14b", "15")


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_gaps_and_repetitions_of_a_history_change_neither_the_last_state_nor_repeat_an_event(
    data: st.DataObject,
) -> None:
    name = data.draw(st.sampled_from(HISTORIES))
    times = times_of(name)
    full, gappy = Replay(), Replay()
    for at in times:
        full.see(snapshot(name, at))
    kept = data.draw(st.lists(st.sampled_from(times), max_size=12).map(sorted))
    for at in [*kept, times[-1]]:
        gappy.see(snapshot(name, at, seed=data.draw(st.integers(0, 9))))
    assert state(gappy.published) == state(full.published)
    assert set(gappy.published.artifacts) <= set(full.published.artifacts), "one that is being deleted was published"
    check_order(gappy.events)


def state(published: Published) -> Any:
    deployments = {key: (item.uid, item.replicas, item.reason) for key, item in published.deployments.items()}
    hosts = {key: (item.uid, item.event_name) for key, item in published.hosts.items()}
    return deployments, set(published.workloads), hosts


def check_order(events: Sequence[EventData]) -> None:
    """Started before ended, once per UID; no two equal events in sequence about a WorkloadDeployment or a Host."""
    ran: dict[str, list[str]] = {}
    last: dict[tuple[str, ...], EventData] = {}
    for event in events:
        if isinstance(event, WorkloadStarted | WorkloadGone):
            ran.setdefault(event.uid, []).append(event.event_name)
        key = (event.noun, *event.key())
        assert last.get(key) != event
        last[key] = event
    assert all(events in (["started"], ["started", "gone"]) for events in ran.values())


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_a_restart_at_any_time_repeats_and_loses_nothing(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(HISTORIES))
    cut = data.draw(st.sampled_from(times_of(name)))
    replay, without = Replay(), Replay()
    for at in times_of(name):
        replay.see(snapshot(name, at))
        without.see(snapshot(name, at))
        if at == cut:
            replay.restart()
    assert replay.events == without.events


# A synthetic cluster: hosts that report each 15 s, WorkloadDeployments of one template.


def meta(name: str, namespace: str = "apps", **fields: Any) -> Meta:
    return Meta(namespace=namespace, name=name, uid=f"uid-{namespace}-{name}", created=NOW - 3600, **fields)


def a_host(number: int, age: float = 3.0, message: str = "", namespace: str = SYSTEM) -> HostView:
    status = "False" if message else "True"
    conditions = {kind: Condition(kind, status, message, NOW - 3600) for kind in ("Reporting", "Ready")}
    return HostView(
        meta=meta(f"host-{number}", namespace, labels={"hostgroup": "default"}),
        id=f"{namespace}-id-{number}",
        address=f"10.0.{number // 250}.{number % 250 + 1}",
        port=9191,
        last_seen=NOW - age,
        conditions=conditions,
    )


def a_deployment(
    name: str, hosts: Sequence[HostView], sync: str = "", namespace: str = "apps"
) -> dict[Part, list[Any]]:
    """Return a WorkloadDeployment with a replica on each of the hosts; ``sync``: message of a Sync that is False."""
    top, replica_set, well = meta(name, namespace, generation=1), f"{name}-rs", ("Config", "HostSelection", "Placement")
    conditions = {kind: Condition(kind, "True", "", NOW - 3600) for kind in STEPS}
    failed = {kind: conditions[kind] for kind in well} | {"Sync": Condition("Sync", "False", sync, NOW - 30)}
    owned = {"owner": f"uid-{namespace}-{replica_set}", "owner_name": replica_set}
    return {
        Part.DEPLOYMENTS: [
            DeploymentView(
                top, len(hosts), current=replica_set, counts=Replicas(), conditions={"Ready": conditions["Sync"]}
            )
        ],
        Part.REPLICA_SETS: [ReplicaSetView(meta(replica_set, namespace, owner=top.uid, owner_name=name), len(hosts))],
        Part.WORKLOADS: [
            WorkloadView(
                meta(f"{replica_set}-{at}", namespace, **owned),
                TemplateView(),
                host_id=host.id,
                id=f"uid-{at}",
                conditions=failed if sync else conditions,
            )
            for at, host in enumerate(hosts)
        ],
    }


def world(hosts: Sequence[HostView], *deployments: dict[Part, list[Any]], now: float = NOW) -> Snapshot:
    parts = {part: [item for found in deployments for item in found[part]] for part in a_deployment("x", [])}
    return Snapshot(
        now=now,
        hosts=hosts,
        workloads=parts[Part.WORKLOADS],
        replica_sets=parts[Part.REPLICA_SETS],
        deployments=parts[Part.DEPLOYMENTS],
        unread=UNWATCHED,
    )


def large(ages: Sequence[float], message: str = "", sync: str = "", deployments: int = 500) -> Snapshot:
    hosts = [a_host(number, age, message) for number, age in enumerate(ages)]
    on = ([hosts[(at + step) % len(hosts)] for step in range(3)] for at in range(deployments))
    return world(hosts, *(a_deployment(f"d{at}", those, sync) for at, those in enumerate(on)))


def some(ages: Sequence[float], message: str = "", sync: str = "") -> Snapshot:
    """Return a cluster of few WorkloadDeployments, for tests of many states."""
    return large(ages, message, sync, 3)


def test_workloads_without_anything_to_run_are_degraded_and_not_failed_by_a_missing_template() -> None:
    hosts = [a_host(1)]
    for empty, expected in ((True, {Reason.COMPONENTS_MISSING.value}), (False, set[str]())):
        found = world(hosts, a_deployment("web", hosts))
        spec = TemplateView(empty=empty)
        found = replace(found, workloads=[replace(item, spec=spec) for item in found.workloads])
        events = Replay().see(found)
        assert {event.reason for event in events if isinstance(event, WorkloadFailed | WorkloadDeploymentDegraded)} == (
            expected
        )


def test_a_start_without_an_effect_on_a_failure_repeats_it_at_once() -> None:
    """A start ends the failures of a WorkloadReplicaSet that nothing owns; without components, it fails again."""
    hosts, replay = [a_host(1), a_host(2)], Replay()
    for replicas, names in ((1, ["started", "failed"]), (2, ["started", "failed"]), (1, ["gone"]), (1, [])):
        found = world(hosts, a_deployment("web", hosts[:replicas]))
        empty = [replace(item, spec=TemplateView(empty=True)) for item in found.workloads]
        free = [replace(item, meta=replace(item.meta, owner="", owner_name="")) for item in found.replica_sets]
        events = replay.see(replace(found, deployments=[], replica_sets=free, workloads=empty))
        assert [event.event_name for event in events if event.noun == "workload"] == names


@pytest.mark.parametrize(("spec", "empty"), [({}, True), ({"components": [{"name": "web", "image": "web:1"}]}, False)])
def test_the_watch_drops_a_template_and_keeps_whether_it_is_empty(spec: dict[str, Any], empty: bool) -> None:
    template = {"metadata": {"name": "web", "namespace": "apps"}, "spec": {"template": {"spec": spec}}}
    for slim in (slim_deployment, slim_replica_set):
        assert slim(template).spec == TemplateView(empty=empty)


FRESH = [15 * number / 100 for number in range(100)]
LATE = [19 * number / 100 for number in range(100)]
"""Ages of the last heartbeats on a slow network."""


def test_the_first_list_of_a_large_cluster_is_published_once() -> None:
    replay = Replay()
    found = replay.see(large(FRESH))
    published = [(event.noun, event.event_name) for event in found]
    assert published.count(("wasm_host", "ready")) == 100
    assert published.count(("workload", "started")) == 1500
    assert published.count(("workload_deployment", "ready")) == 500
    assert len(published) == 2100


@pytest.mark.parametrize("message", ["", NO_RESPONDERS, DEADLINE])
def test_an_outage_of_nats_or_of_the_operator_is_no_event_of_a_hundred_hosts(message: str) -> None:
    replay = Replay()
    replay.see(some(LATE))
    for since in range(0, 300, 2):
        assert replay.see(some([age + since for age in LATE], message if since > 60 else "")) == []


def test_the_end_of_an_outage_is_no_event_while_hosts_reconnect_one_by_one() -> None:
    replay = Replay()
    replay.see(some(FRESH))
    replay.see(some([age + 100 for age in FRESH], DEADLINE, DEADLINE))
    for back in range(1, 100, 9):
        ages = [2.0 if number < back else 100.0 + number / 10 for number in range(100)]
        assert [item for item in replay.see(some(ages, "", NO_RESPONDERS)) if not isinstance(item, WasmHostReady)] == []


def test_requests_that_reach_no_host_are_a_failure_only_if_the_operator_works_for_long_enough() -> None:
    """After an outage, Workloads have this condition until the operator reconciles them again."""
    snapshot = replace(some(FRESH, sync=NO_RESPONDERS), now=NOW + 10)
    assert not [event for event in Replay(Trust()).see(snapshot) if isinstance(event, WorkloadFailed)]
    found = Replay().see(snapshot)
    assert {event.reason for event in found if isinstance(event, WorkloadFailed)} == {Reason.HOST_UNREACHABLE}


def test_an_outage_of_one_of_two_operators_is_no_event_of_its_hosts_and_neither_is_its_end() -> None:
    """``a``: the one with the outage; its hosts reconnect one by one."""

    def seen(a: Sequence[float], message: str = "") -> Snapshot:
        hosts = [a_host(at, age, message, "system-a") for at, age in enumerate(a)]
        parts = [a_deployment(host.id, [host], message) for host in hosts]
        return world([*hosts, *(a_host(at, 3.0, namespace="system-b") for at in range(3))], *parts)

    replay, ages = Replay(), [float(at) for at in range(10)]
    replay.see(seen(ages))
    for since in range(0, 200, 10):
        assert replay.see(seen([age + since for age in ages], NO_RESPONDERS if since > 60 else "")) == []
    for back in range(1, 10):
        assert replay.see(seen([2.0 if at < back else 200.0 for at in range(10)])) == []
    replay.trust = LONG_AGO
    [silent, *_] = replay.see(seen([2.0] * 9 + [50.0]))
    assert isinstance(silent, WasmHostSilent), "one of many, long after the outage"


def test_one_host_of_many_without_heartbeat_is_published_with_its_failures() -> None:
    replay = Replay()
    replay.see(large(FRESH))
    ages = [*FRESH]
    ages[7] = 50.0
    found = replay.see(large(ages))
    assert [event.name for event in found if isinstance(event, WasmHostSilent)] == ["host-7"]
    assert {event.reason for event in found if isinstance(event, WorkloadFailed)} == {Reason.HEARTBEAT_MISSING}
    affected = {f"d{at}" for at in range(500) if 7 in {(at + step) % 100 for step in range(3)}}
    assert {event.owner for event in found if isinstance(event, WorkloadFailed)} == affected
    assert {event.name for event in found if isinstance(event, WorkloadDeploymentDegraded)} == affected
    back = replay.see(large(FRESH))
    assert {type(event) for event in back} == {WasmHostReady, WorkloadDeploymentReady}


@settings(max_examples=40, deadline=None)
@given(st.sampled_from([-7200.0, -50.0, -3.0, 3.0, 50.0, 7200.0]), st.lists(st.floats(0.0, 1.0), min_size=9))
def test_a_clock_of_the_operator_that_differs_changes_no_event(ahead: float, delays: list[float]) -> None:
    """``ahead``: seconds of the operator's clock before that of the API server; ``delays``: of the watch."""
    clock, replay = OperatorClock(V2Timings().slack), Replay()
    ages = [3.0 + number for number in range(10)]

    def seen(ages: Sequence[float], now: float = NOW) -> list[HostView]:
        return [replace(a_host(number), last_seen=now - age + ahead) for number, age in enumerate(ages)]

    for delay in delays:
        [former], [host] = seen([15.0], NOW - delay), seen([0.0], NOW - delay)
        clock.note(former, host, NOW)
    alive, silent = ([clock.adjusted(host) for host in seen(found)] for found in (ages, [55.0, *ages[1:]]))
    assert [event.event_name for event in replay.see(world(alive))] == ["ready"] * 10
    assert [event.event_name for event in replay.see(world(silent))] == ["silent"]
    assert [event.event_name for event in replay.see(world(alive))] == ["ready"]


def test_late_heartbeats_of_a_list_and_of_a_restored_store_are_no_other_clock() -> None:
    clock = OperatorClock(V2Timings().slack)
    for age in (0.2, 40.0, 14.0, 9.0):
        clock.note(a_host(1, age + 15), a_host(1, age), NOW)
    clock.note(a_host(1), a_host(1, 3600.0), NOW)
    clock.note(None, a_host(1, 3600.0), NOW)
    assert clock.difference == 0.0


def test_right_after_a_start_silence_proves_nothing() -> None:
    replay = Replay(Trust())
    assert not [item for item in replay.see(some([50.0, *FRESH[1:]])) if isinstance(item, WasmHostSilent)]


def test_a_heartbeat_of_the_future_is_no_evidence_against_others() -> None:
    replay = Replay()
    replay.see(some(FRESH))
    assert replay.see(some([-1e6, *(age + 60 for age in FRESH[1:])])) == []


def test_equal_names_in_two_namespaces_are_two_objects() -> None:
    one, two = a_host(1, namespace="system-a"), a_host(1, namespace="system-b")
    first = a_deployment("hello", [one], namespace="a")
    second = a_deployment("hello", [two], "WORKLOAD_STATE_NOT_FOUND", namespace="b")
    replay = Replay()
    found = [shown(event) for event in replay.see(world([one, two], first, second))]
    assert sorted(found) == [
        "wasm_host.ready system-a/host-1",
        "wasm_host.ready system-b/host-1",
        "workload.failed b/WorkloadDeployment/hello/PullFailed PullFailed",
        "workload.started a/hello-rs-0",
        "workload_deployment.degraded b/hello PullFailed",
        "workload_deployment.ready a/hello",
    ]
    assert [shown(event) for event in replay.see(world([one], first, second))] == ["wasm_host.gone system-b/host-1"]


def test_replacements_of_a_failed_workload_are_one_event_until_it_is_ready() -> None:
    host, replay = a_host(1), Replay()
    failed, ready = a_deployment("hello", [host], "WORKLOAD_STATE_NOT_FOUND"), a_deployment("hello", [host])
    assert [shown(event) for event in replay.see(world([host], failed))][1:] == [
        "workload.failed apps/WorkloadDeployment/hello/PullFailed PullFailed",
        "workload_deployment.degraded apps/hello PullFailed",
    ]
    for at in range(5):
        [workload] = failed[Part.WORKLOADS]
        other = replace(workload, meta=meta(f"hello-rs-again-{at}", owner_name="hello-rs"), id=f"uid-again-{at}")
        assert replay.see(world([host], failed | {Part.WORKLOADS: []})) == []
        assert replay.see(world([host], failed | {Part.WORKLOADS: [other]})) == []
    assert len(replay.see(world([host], ready))) == 2
    assert len(replay.see(world([host], failed))) == 2, "a new failure after it was ready is a new event"


PULL, LINK = "WORKLOAD_STATE_NOT_FOUND", "WORKLOAD_STATE_ERROR"


def replicas(hosts: Sequence[HostView], *syncs: str | None) -> dict[Part, list[Any]]:
    """Return a WorkloadDeployment; ``syncs``: of each replica the message of its False Sync, None: being replaced."""
    parts = a_deployment("hello", hosts)
    failing = (a_deployment("hello", hosts, sync or "")[Part.WORKLOADS] for sync in syncs)
    workloads = [found[at] for at, (sync, found) in enumerate(zip(syncs, failing, strict=True)) if sync is not None]
    return parts | {Part.WORKLOADS: workloads}


@pytest.mark.parametrize(
    ("histories", "published"),
    [([(PULL, LINK), (None, LINK), (PULL, None)], 1), ([(PULL, None), (None, None), (LINK, None)], 2)],
    ids=["two replicas with a reason each", "one replica, on another host each time"],
)
def test_reasons_that_alternate_are_an_event_each_until_it_is_ready(
    histories: list[tuple[str | None, ...]], published: int
) -> None:
    hosts, replay = [a_host(1), a_host(2)], Replay()
    for turn in range(6):
        for syncs in histories:
            replay.see(world(hosts, replicas(hosts, *syncs)))
        if turn == 3:
            replay.restart()
    found = [event.reason for event in replay.events if isinstance(event, WorkloadDeploymentDegraded)]
    assert len(found) == len(set(found)) == published
    failures = [event.reason for event in replay.events if isinstance(event, WorkloadFailed)]
    assert sorted(failures) == [Reason.PULL_FAILED, Reason.START_FAILED]
    replay.see(world(hosts, replicas(hosts, "", "")))
    again = replay.see(world(hosts, replicas(hosts, PULL, LINK)))
    assert [type(item) for item in again].count(WorkloadDeploymentDegraded) == 1, "a new failure after it was ready"


def test_failures_of_former_templates_are_not_kept() -> None:
    host, replay = a_host(1), Replay()
    for at in range(5):
        parts = a_deployment("hello", [host], "WORKLOAD_STATE_NOT_FOUND")
        [top], [replica_set], [workload] = parts[Part.DEPLOYMENTS], parts[Part.REPLICA_SETS], parts[Part.WORKLOADS]
        name = f"hello-rs-{at}"
        parts = {
            Part.DEPLOYMENTS: [replace(top, current=name)],
            Part.REPLICA_SETS: [replace(replica_set, meta=replace(replica_set.meta, name=name, uid=name))],
            Part.WORKLOADS: [replace(workload, meta=replace(workload.meta, owner_name=name))],
        }
        found = [shown(event) for event in replay.see(world([host], parts)) if isinstance(event, WorkloadFailed)]
        assert found == ["workload.failed apps/WorkloadDeployment/hello/PullFailed PullFailed"], "another template"
        assert [len(item) for item in replay.published.failures.values()] == [1]


def test_a_workload_without_an_owner_fails_under_its_own_name_until_it_runs() -> None:
    host, replay = a_host(1), Replay()
    parts = a_deployment("x", [host], "WORKLOAD_STATE_NOT_FOUND")
    [workload] = parts[Part.WORKLOADS]
    [running] = a_deployment("x", [host])[Part.WORKLOADS]
    empty: dict[Part, list[Any]] = {part: [] for part in parts}
    alone, runs = (replace(item, meta=meta("alone")) for item in (workload, running))
    failed = "workload.failed apps/Workload/alone/PullFailed PullFailed"
    assert [shown(item) for item in replay.see(world([host], empty | {Part.WORKLOADS: [alone]}))][1:] == [failed]
    assert [shown(item) for item in replay.see(world([host], empty | {Part.WORKLOADS: [runs]}))] == [
        "workload.started apps/alone"
    ]
    assert [shown(item) for item in replay.see(world([host], empty | {Part.WORKLOADS: [alone]}))] == [failed]


@pytest.mark.parametrize("part", [Part.DEPLOYMENTS, Part.REPLICA_SETS, Part.WORKLOADS, Part.ARTIFACTS])
def test_a_kind_that_is_not_known_deletes_nothing(part: Part) -> None:
    host, replay = a_host(1), Replay()
    replay.see(world([host], a_deployment("hello", [host])))
    empty = world([])
    unknown = replace(empty, unread=UNWATCHED | {part: "not served"})
    before = repr(replay.published)
    assert replay.see(unknown) == []
    assert repr(replay.published) == before


def test_unknown_hosts_are_neither_deleted_nor_a_cause() -> None:
    host, replay = a_host(1), Replay()
    parts = a_deployment("hello", [host])
    replay.see(world([host], parts))
    failed = a_deployment("hello", [host], NO_RESPONDERS)
    assert replay.see(replace(world([], failed), unread=UNWATCHED | {Part.HOSTS: "denied"})) == []


def test_without_the_hosts_a_deployment_is_ready_by_its_conditions_and_each_failure_is_published() -> None:
    host, replay, unread = a_host(1), Replay(), UNWATCHED | {Part.HOSTS: "in another namespace"}
    ready, failed = (replace(world([], a_deployment("hello", [host], sync)), unread=unread) for sync in ("", PULL))
    events = [[event.event_name for event in replay.see(found)] for found in (ready, failed, ready, failed)]
    assert events == [["started", "ready"], ["failed", "degraded"], ["ready"], ["failed", "degraded"]]


def test_conditions_without_the_hosts_are_not_the_end_of_a_silence() -> None:
    hosts, replay = [a_host(1), a_host(2)], Replay()
    parts = a_deployment("hello", hosts[:1])
    replay.see(world(hosts, parts))
    found = replay.see(world([a_host(1, 50.0), hosts[1]], parts))
    assert Reason.HEARTBEAT_MISSING in {
        event.reason for event in found if isinstance(event, WorkloadDeploymentDegraded)
    }
    assert replay.see(replace(world([], parts), unread=UNWATCHED | {Part.HOSTS: "denied for a moment"})) == []
    assert [event.event_name for event in replay.see(world(hosts, parts))] == ["ready", "ready"]


def test_an_artifact_without_an_image_is_not_published() -> None:
    """Another controller can set the condition Published before artifactUrl."""
    replay, found = Replay(), snapshot("15", 30)
    [artifact] = found.artifacts
    replay.see(replace(found, artifacts=[replace(artifact, url="")]))
    assert [event for event in replay.events if event.noun == "artifact"] == []
    replay.see(found)
    assert [shown(event) for event in replay.events if event.noun == "artifact"] == [
        "artifact.published apps/hello-code"
    ]


def test_a_new_object_of_the_same_name_ends_the_former_one() -> None:
    host, replay = a_host(1), Replay()
    replay.see(world([host]))
    again = replace(host, meta=replace(host.meta, uid="another"), id="another-id")
    assert [type(event) for event in replay.see(world([again]))] == [WasmHostGone, WasmHostReady]


def test_views_whose_watch_is_behind_cause_no_event_under_another_owner() -> None:
    host, replay = a_host(1), Replay()
    parts = a_deployment("hello", [host], "WORKLOAD_STATE_NOT_FOUND")
    replay.see(world([host]))
    assert replay.see(world([host], parts | {Part.REPLICA_SETS: [], Part.DEPLOYMENTS: []})) == []
    assert replay.see(world([host], parts | {Part.DEPLOYMENTS: []})) == []


FIELDS = st.sampled_from(
    ["metadata", "name", "namespace", "uid", "spec", "status", "conditions", "type", "message", "replicas", "hostId"]
) | st.text(max_size=4)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(FIELDS, children, max_size=6),
    max_leaves=25,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(JSON, max_size=4), st.integers(0, 2))
def test_garbage_raises_nothing_and_is_published_once(manifests: list[Any], times: int) -> None:
    found = Snapshot(
        now=NOW,
        hosts=[view_host(item) for item in manifests],
        workloads=[view_workload(item) for item in manifests],
        deployments=[view_deployment(item) for item in manifests],
        artifacts=[view_artifact(item) for item in manifests],
        unread=UNWATCHED,
    )
    replay = Replay()
    for _ in range(times + 1):
        replay.see(found)
