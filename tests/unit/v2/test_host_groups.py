"""Host groups of wasmCloud v2: their pods explain missing and silent hosts, and unread pods explain nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.suite.naming import lacking
from support.v2.host_pods import COUNTRY, OTHER, SON, both, host_pod
from support.v2.recordings import deployment, host, recording
from trellis.read_model.explain.page import Explanation
from trellis.read_model.explain.subject import Beside
from trellis.read_model.health import Health
from trellis.v2.cluster import Cluster
from trellis.v2.explain.deployment import explain_deployment
from trellis.v2.explain.host import explain_host
from trellis.v2.explain.host_group import explain_host_group
from trellis.v2.explain.hosting import host_trouble
from trellis.v2.operator import State
from trellis.v2.pods import view_host_pod
from trellis.v2.reasons import Reason
from trellis.v2.snapshot import Part, Snapshot

GROUP = "wasmcloud-system/default"
Pods = Sequence[dict[str, Any]]


def seen(situation: str, at: float, pods: Pods, **about: Any) -> Snapshot:
    return replace(recording(situation).snapshot(at, **about), pods=[view_host_pod(pod) for pod in pods])


def page(snapshot: Snapshot, key: str = GROUP) -> Explanation:
    return explain_host_group(snapshot, Cluster(snapshot).host_groups[key], Beside())


def outcome(found: Explanation) -> tuple[str | None, Health]:
    return found.cause.reason if found.cause else None, found.verdict.health


CRASH = host_pod("default-c", OTHER, "CrashLoopBackOff")
STATES = {
    "each pod has a host": (both(), None, Health.HEALTHY, ()),
    "hosts outside of the cluster": ([], None, Health.HEALTHY, ()),
    "a pod that crashes": ([*both(), CRASH], Reason.POD_CRASHING, Health.DEGRADED, ("default-c", "exit code 1")),
    "an image that cannot be pulled": (
        [*both(), host_pod("default-c", "", "ImagePullBackOff")],
        Reason.POD_PULL_FAILED,
        Health.DEGRADED,
        ("default-c", "registry.test/wash:none"),
    ),
    "no node for a pod": (
        [*both(), host_pod("default-c", "", "Unschedulable")],
        Reason.POD_UNSCHEDULABLE,
        Health.DEGRADED,
        ("default-c", "Insufficient memory"),
    ),
    "a ConfigMap that a pod needs": (
        [*both(), host_pod("default-c", "", "CreateContainerConfigError")],
        Reason.POD_FAILED,
        Health.DEGRADED,
        ("default-c", "settings"),
    ),
    "a pod that starts": (
        [*both(), host_pod("default-c", "", "ContainerCreating")],
        Reason.POD_STARTING,
        Health.PROGRESSING,
        ("default-c",),
    ),
    "a pod that is not ready": (
        [*both(), host_pod("default-c", OTHER, "NotReady")],
        Reason.POD_NOT_READY,
        Health.PROGRESSING,
        ("default-c",),
    ),
    "a pod without a Host": (
        [*both(), host_pod("default-c", OTHER)],
        Reason.POD_WITHOUT_HOST,
        Health.DEGRADED,
        ("default-c", OTHER),
    ),
    "a Host without a pod that sends heartbeats": (
        both()[:1],
        Reason.HOST_WITHOUT_POD,
        Health.PROGRESSING,
        (COUNTRY,),
    ),
    "a pod that was evicted and has a successor": (
        [*both(), host_pod("default-c", OTHER, "Evicted")],
        None,
        Health.HEALTHY,
        (),
    ),
    "a pod that is being deleted": (
        [*both(), host_pod("default-c", OTHER, "NotReady", deleting=True)],
        None,
        Health.HEALTHY,
        (),
    ),
}


@pytest.mark.parametrize(("pods", "reason", "health", "named"), STATES.values(), ids=STATES)
def test_the_pods_of_a_host_group_are_its_health(
    pods: Pods, reason: Reason | None, health: Health, named: tuple[str, ...]
) -> None:
    found = page(seen("03", 20, pods))
    assert outcome(found) == (reason, health), found.headline
    assert lacking(found.headline, *named) == []


def test_a_pod_that_became_ready_just_now_is_not_registered_yet() -> None:
    at = recording("03").start + 20
    found = page(seen("03", 20, [*both(), host_pod("default-c", OTHER, since=at - 10)]))
    assert outcome(found) == (Reason.WAITING, Health.PROGRESSING)


def named_by(snapshot: Snapshot, name: str) -> Snapshot:
    """Return a snapshot whose host at SON calls itself by a name, as without --host-name."""
    return replace(snapshot, hosts=[replace(it, address=name) if it.address == SON else it for it in snapshot.hosts])


@pytest.mark.parametrize(
    ("pods", "reason"),
    [
        pytest.param(both(), None, id="the name of its pod"),
        pytest.param([], Reason.ADDRESS_NOT_ROUTABLE, id="the name of no pod"),
        pytest.param([host_pod("default-a", "127.0.0.1")], Reason.ADDRESS_NOT_ROUTABLE, id="a pod that loops back"),
        pytest.param([host_pod("default-a")], None, id="a pod without an address yet"),
    ],
)
def test_a_host_with_the_name_of_its_pod_has_the_address_of_it(pods: Pods, reason: Reason | None) -> None:
    """The operator finds the pod of a host by its name if the host does not call itself by an address."""
    snapshot = named_by(seen("02", 6, pods), "default-a")
    [at] = [item for item in snapshot.hosts if item.address == "default-a"]
    assert outcome(explain_host(snapshot, at, Beside()))[0] == reason
    cluster = Cluster(snapshot)
    assert (cluster.pod_of(at) is None) is (not pods)
    missing = replace(snapshot, slices=(), now=snapshot.now + 1)
    found = explain_deployment(missing, deployment(missing, "hello"), Beside())
    assert outcome(found)[0] == (reason or Reason.NO_ENDPOINTS)


def test_the_name_of_a_host_proves_nothing_without_the_pods() -> None:
    found, hidden = named_by(recording("02").snapshot(6), "default-a"), {Part.PODS: "forbidden"}
    for snapshot in (replace(found, unread=hidden), replace(found, limited=hidden)):
        assert outcome(explain_host(snapshot, snapshot.hosts[0], Beside()))[0] is None


def test_several_pods_with_one_problem_are_one_line() -> None:
    pods = [host_pod(f"bad-{at}", "", "ImagePullBackOff") for at in range(3)]
    found = page(seen("03", 20, [*both(), *pods]))
    assert len([line for line in found.lines if line.reason == Reason.POD_PULL_FAILED]) == 1
    assert lacking(found.headline, "3 of 5", "bad-0") == []


def test_pods_that_cannot_be_read_are_unknown_and_not_absent() -> None:
    hidden = replace(seen("03", 20, ()), unread={Part.PODS: "list-forbidden"})
    found = page(hidden)
    assert outcome(found) == (Reason.PODS_UNKNOWN, Health.UNKNOWN)
    assert "list-forbidden" in found.headline
    lonely = replace(seen("00", 5, ()), unread={Part.PODS: "list-forbidden"})
    workload = explain_deployment(lonely, deployment(lonely, "lonely"), Beside())
    assert (outcome(workload)[0], "list-forbidden" in workload.headline) == (Reason.NO_HOST, True)


def test_pods_of_the_namespaces_of_hosts_only_prove_no_absence() -> None:
    limited = replace(seen("03", 20, both()[:1]), limited={Part.PODS: "list-forbidden"})
    assert outcome(page(limited)) == (None, Health.HEALTHY)
    assert any("list-forbidden" in line.text for line in page(limited).lines)


def test_hosts_that_cannot_be_read_are_unknown_and_no_pod_lacks_one() -> None:
    found = page(replace(seen("03", 20, both(), unread={Part.HOSTS: "list-forbidden"})))
    assert outcome(found) == (Reason.HOSTS_UNKNOWN, Health.UNKNOWN)


def dead(snapshot: Snapshot) -> str:
    return min(snapshot.hosts, key=lambda item: item.last_seen or 0.0).meta.name


@pytest.mark.parametrize(
    ("state", "named"),
    [("CrashLoopBackOff", ("default-x", "CrashLoopBackOff", "exit code 1")), ("Ready", ("default-x", "is ready"))],
)
def test_the_first_line_of_a_host_without_heartbeat_has_the_state_of_its_pod(
    state: str, named: tuple[str, ...]
) -> None:
    snapshot = recording("10").snapshot(60)
    silent = host(snapshot, dead(snapshot))
    found = explain_host(
        there := seen("10", 60, [host_pod("default-x", silent.address, state)]), host(there, silent.meta.name), Beside()
    )
    assert outcome(found) == (Reason.HEARTBEAT_MISSING, Health.DEGRADED)
    assert lacking(found.headline, *named) == []


def test_a_host_without_heartbeat_and_with_a_deleted_pod_has_no_pod() -> None:
    recorded = recording("10").snapshot(60)
    silent = host(recorded, dead(recorded))
    living = [item for item in recorded.hosts if item.meta.name != silent.meta.name]
    snapshot = seen("10", 60, [host_pod(f"p-{item.id}", item.address) for item in living])
    assert outcome(page(snapshot)) == (Reason.HOST_WITHOUT_POD, Health.DEGRADED)
    found = explain_host(snapshot, host(snapshot, silent.meta.name), Beside())
    assert lacking(found.headline, silent.address) == []


def test_pods_show_that_the_silence_of_all_hosts_is_their_own() -> None:
    crashing = [host_pod("a", SON, "CrashLoopBackOff"), host_pod("b", COUNTRY, "CrashLoopBackOff")]
    recorded = recording("03").snapshot(20)
    for pods, expected, state in (
        ((), Reason.HEARTBEATS_STOPPED, State.HEARTBEATS_MISSING),
        (both(), Reason.HEARTBEATS_STOPPED, State.HEARTBEATS_MISSING),
        (crashing, Reason.HEARTBEAT_MISSING, State.UNKNOWN),
    ):
        cluster = Cluster(replace(seen("03", 20, pods), now=recorded.now + 50))
        found = [host_trouble(cluster, item) for item in cluster.hosts]
        assert {line.reason if line else None for line in found} == {expected}
        assert cluster.operator.state is state


def test_a_heartbeat_of_a_host_whose_pod_is_not_ready_shows_that_the_operator_works() -> None:
    recorded = recording("03").snapshot(20)
    ages = {SON: 5.0, COUNTRY: 40.0}
    hosts = [replace(item, last_seen=recorded.now - ages[item.address]) for item in recorded.hosts]
    snapshot = seen("03", 20, [host_pod("a", SON, "NotReady"), host_pod("b", COUNTRY)])
    cluster = Cluster(replace(snapshot, hosts=hosts))
    assert cluster.operator.state is State.WORKING
    lines = {item.address: host_trouble(cluster, item) for item in cluster.hosts}
    assert {address: line and line.reason for address, line in lines.items()} == {
        SON: None,
        COUNTRY: Reason.HEARTBEAT_MISSING,
    }


def test_without_a_host_the_first_line_has_the_pods() -> None:
    pods = [host_pod("default-a", SON, "CrashLoopBackOff"), host_pod("default-b", COUNTRY)]
    snapshot = seen("00", 5, pods)
    found = explain_deployment(snapshot, deployment(snapshot, "lonely"), Beside())
    assert outcome(found) == (Reason.NO_HOST, Health.DEGRADED)
    assert lacking(found.headline, "1 of 2 pods", "default-a", "CrashLoopBackOff", "kubectl logs") == []
    assert [*Cluster(snapshot).host_groups] == [GROUP]
    assert outcome(page(snapshot)) == (Reason.POD_CRASHING, Health.DEGRADED)


def test_a_selector_of_a_host_group_without_a_host_has_the_pods_of_that_group() -> None:
    snapshot = seen("07", 15, [*both(), host_pod("gpu-a", OTHER, "ImagePullBackOff", group="gpu")])
    found = explain_deployment(snapshot, deployment(snapshot, "picky"), Beside())
    assert outcome(found) == (Reason.NO_HOST_MATCHES, Health.DEGRADED)
    assert lacking(found.headline, "hostgroup=gpu", "gpu-a", "ImagePullBackOff") == []


def test_a_host_group_has_the_namespace_of_its_hosts_also_if_its_pods_are_elsewhere() -> None:
    snapshot = seen("03", 20, [*both(namespace="tenant"), host_pod("c", "", "ContainerCreating", namespace="tenant")])
    groups = Cluster(snapshot).host_groups
    assert {key: (len(group.hosts), len(group.pods)) for key, group in groups.items()} == {GROUP: (2, 3)}


def test_host_groups_of_two_operators_are_two() -> None:
    recorded = recording("03").snapshot(20)
    twins = [replace(item, id=f"{item.id}2", address=OTHER, meta=replace(item.meta, namespace="other")) for item in
             recorded.hosts[:1]]  # fmt: skip
    pods = [view_host_pod(pod) for pod in (*both(), host_pod("x", OTHER, namespace="other"))]
    groups = Cluster(replace(recorded, hosts=[*recorded.hosts, *twins], pods=pods)).host_groups
    assert {key: len(group.pods) for key, group in groups.items()} == {GROUP: 2, "other/default": 1}


def test_a_host_that_restarts_in_its_pod_has_the_former_one_beside_it() -> None:
    recorded = recording("03").snapshot(20)
    [first, second] = sorted(recorded.hosts, key=lambda item: item.address)
    former = replace(first, id="former", last_seen=recorded.now - 60, meta=replace(first.meta, name="former"))
    pods = [view_host_pod(pod) for pod in (host_pod("default-a", SON, restarts=1), both()[1])]
    snapshot = replace(recorded, hosts=[first, second, former], pods=pods)
    found = explain_host(snapshot, former, Beside())
    assert outcome(found)[0] == Reason.HEARTBEAT_MISSING
    assert lacking(found.headline, "default-a", "1 restart") == []


def test_no_view_of_a_pod_has_a_value_of_its_environment() -> None:
    assert "hunter2" not in repr(view_host_pod(both()[0]))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda children: (
        st.lists(children, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "metadata",
                    "spec",
                    "status",
                    "conditions",
                    "containerStatuses",
                    "state",
                    "waiting",
                    "podIPs",
                    "labels",
                ]
            ),
            children,
            max_size=5,
        )
    ),
    max_leaves=25,
)


@given(st.lists(JSON, max_size=3))
def test_garbage_raises_nothing(manifests: list[Any]) -> None:
    pods = [replace(view_host_pod(item), group="default") for item in manifests]
    snapshot = replace(recording("03").snapshot(20), pods=pods)
    for key in Cluster(snapshot).host_groups:
        assert page(snapshot, key).headline
