"""Operators and hosts of other releases than 2.7: they report causes at other places, and keep silent hosts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from support.suite.naming import lacking
from support.v2.manifests import (
    DEADLINE,
    NO_RESPONDERS,
    Manifest,
    condition,
    make_deployment,
    make_host,
    make_snapshot,
    make_workload,
    steps,
)
from support.v2.recordings import deployment, recording
from trellis.read_model.explain.page import Explanation
from trellis.read_model.explain.subject import Beside
from trellis.read_model.health import Health
from trellis.v2.cluster import Cluster
from trellis.v2.explain.deployment import explain_deployment
from trellis.v2.explain.host import explain_host
from trellis.v2.explain.workload import explain_workload
from trellis.v2.host_messages import HostMessages
from trellis.v2.messages import WorkloadState, WorkloadStatus
from trellis.v2.operator import State
from trellis.v2.reasons import Reason
from trellis.v2.snapshot import Snapshot

SYNC = "workload is not operational: WORKLOAD_STATE_ERROR"
COMPONENT = "component 'web'"
MISSING = (
    "failed to pull image for {part}: failed to pull component from registry.test/app:1: Registry error: url x, "
    "envelope: OCI API errors: [OCI API error: manifest unknown]"
)


def outcome(page: Explanation) -> tuple[str | None, Health]:
    return (page.cause.reason if page.cause is not None else None), page.verdict.health


def failing(kind: str, message: str, spec: Manifest | None = None, **about: Any) -> Snapshot:
    """Return a cluster with one Workload whose condition ``kind`` is False."""
    done = {"Config": (), "HostSelection": ("Config",), "Placement": ("Config", "HostSelection")}
    before = done.get(kind, ("Config", "HostSelection", "Placement"))
    made = make_workload(
        "w1", [*steps(*before), condition(kind, "False", message, 20)], **({"spec": spec} if spec else {})
    )
    return make_snapshot([make_host()], [made], **about)


def page(snapshot: Snapshot) -> Explanation:
    return explain_workload(snapshot, snapshot.workloads[0], Beside())


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("widget-undeclared", Reason.INTERFACE_MISSING),
        ("widget-declared", Reason.PLUGIN_MISSING),
        ("no-hostname", Reason.HTTP_HOST_MISSING),
    ],
)
def test_the_message_of_the_host_in_a_condition_is_the_cause_without_a_reply(name: str, expected: Reason) -> None:
    """Operators after 2.7 add it to the state."""
    found = recording("06")
    replies = found.messages(0, 14, replies=True).replies or {}
    snapshot = found.snapshot(14)
    told = []
    for item in snapshot.workloads:
        sync = item.condition("Sync")
        if (reply := replies.get(item.id)) is not None:
            sync = replace(sync, message=f"{sync.message}: Workload is Error: {reply.message}")
        told.append(replace(item, conditions={**item.conditions, "Sync": sync}))
    later = replace(snapshot, workloads=told)
    cause = explain_deployment(later, deployment(later, name), Beside()).cause
    assert cause is not None
    assert cause.reason == expected


def test_the_words_for_a_state_are_no_cause() -> None:
    state = "workload is not operational: WORKLOAD_STATE_NOT_FOUND"
    found = page(failing("Sync", f"{state}: Workload not found: uid-w1"))
    assert outcome(found)[0] == Reason.PULL_FAILED
    assert lacking(found.headline, "--v2-replies") == []


@pytest.mark.parametrize(
    ("state", "age", "expected"),
    [
        ("STARTING", 20, (Reason.WAITING, Health.PROGRESSING)),
        ("STARTING", 70, (Reason.START_FAILED, Health.DEGRADED)),
        ("QUARANTINED", 2, (Reason.START_FAILED, Health.DEGRADED)),
    ],
)
def test_a_state_of_a_later_release_is_a_failure_and_no_state_is_progress_without_end(
    state: str, age: float, expected: tuple[Reason, Health]
) -> None:
    message = f"workload is not operational: WORKLOAD_STATE_{state}"
    made = make_workload(
        "w1", [*steps("Config", "HostSelection", "Placement"), condition("Sync", "False", message, age)]
    )
    found = page(make_snapshot([make_host()], [made]))
    assert outcome(found) == expected
    assert state in found.headline


@pytest.mark.parametrize("kind", ["Placement", "Sync"])
def test_a_failed_pull_in_any_condition_is_the_cause(kind: str) -> None:
    found = page(failing(kind, f"starting workload: {MISSING.format(part=COMPONENT)}"))
    assert outcome(found)[0] == Reason.IMAGE_NOT_FOUND


def test_the_image_of_a_service_that_does_not_exist_is_the_cause() -> None:
    """A host names the service of a workload in other words than a component."""
    spec = {
        "components": [{"name": "web", "image": "registry.test/web:1"}],
        "service": {"image": "registry.test/app:1", "imagePullSecret": {"name": "pull"}},
    }
    denied = (
        "failed to pull image for the workload service: failed to pull component from registry.test/app:1: "
        "Not authorized: url x"
    )
    missing = page(failing("Sync", f"{SYNC}: {MISSING.format(part='the workload service')}", spec))
    assert outcome(missing)[0] == Reason.IMAGE_NOT_FOUND
    assert lacking(missing.headline, "registry.test/app:1") == []
    refused = page(failing("Sync", f"{SYNC}: {denied}", spec))
    assert outcome(refused)[0] == Reason.REGISTRY_DENIED
    assert lacking(refused.headline, "Secret pull") == []


def test_an_image_that_a_host_must_not_pull_is_not_a_missing_one() -> None:
    spec = {"components": [{"name": "web", "image": "registry.test/app:1", "imagePullPolicy": "Never"}]}
    message = "failed to pull image for component 'web': component not found in cache and pull policy is 'Never'"
    found = page(failing("Sync", f"{SYNC}: {message}", spec))
    assert outcome(found)[0] == Reason.IMAGE_NOT_CACHED
    assert lacking(found.headline, "registry.test/app:1", "imagePullPolicy", "IfNotPresent") == []
    unknown = page(failing("Sync", "workload is not operational: WORKLOAD_STATE_NOT_FOUND", spec))
    assert lacking(unknown.headline, "imagePullPolicy") == []


def test_a_failure_of_an_unknown_kind_has_the_message_and_where_there_is_more() -> None:
    found = page(failing("Sync", f"{SYNC}: HostPath volume '/data' does not exist or is not a directory"))
    assert outcome(found)[0] == Reason.START_FAILED
    assert lacking(found.headline, "/data", "log", "h1") == []


@pytest.mark.parametrize(
    ("kind", "message", "named"),
    [
        ("Config", 'resolving local resources config: configmaps "settings" not found', "ConfigMap apps/settings"),
        ("Placement", 'materializing image pull secret: secrets "pull" not found', "Secret apps/pull"),
    ],
)
def test_an_operator_without_a_cache_names_resources_in_place_of_kinds(kind: str, message: str, named: str) -> None:
    found = page(failing(kind, message))
    assert outcome(found)[0] == Reason.CONFIG_MISSING
    assert lacking(found.headline, named) == []


def test_a_pull_secret_of_another_type_has_a_resolution() -> None:
    message = 'materializing image pull secret for component "web": image pull secret "pull" is not of type "x"'
    found = page(failing("Placement", message))
    assert outcome(found)[0] == Reason.CONFIG_INVALID
    assert lacking(found.headline, '"pull"', "kubernetes.io/dockerconfigjson") == []


def kept(name: str, message: str, seen: float = 400.0) -> Manifest:
    """Return a Host without heartbeats that its operator keeps, because it receives none of any host."""
    gated = "host has not reported recently, but the operator has not been hearing the fleet for 1m0s"
    conditions = [condition("Reporting", "False", message, seen - 60), condition("Ready", "Unknown", gated, seen - 60)]
    return make_host(name, seen, created=9000, conditions=conditions)


def test_an_operator_that_keeps_hosts_while_it_receives_no_heartbeats_works() -> None:
    """Without that message, Hosts of this age are those of an operator that does not run."""
    cut_off = make_snapshot([kept("h1", DEADLINE), kept("h2", DEADLINE)])
    assert Cluster(cut_off).operator.state is State.CUT_OFF
    for hosts in ([kept("h1", DEADLINE)], [kept("h1", NO_RESPONDERS), kept("h2", NO_RESPONDERS)]):
        snapshot = make_snapshot(hosts)
        assert Cluster(snapshot).operator.state is State.HEARTBEATS_MISSING
        found = explain_host(snapshot, snapshot.hosts[0], Beside())
        assert outcome(found) == (Reason.HEARTBEATS_STOPPED, Health.UNKNOWN)


REFUSED = [*steps("Config", age=20), condition("HostSelection", "False", "no suitable host found", 20)]


@pytest.mark.parametrize(
    ("ready", "environment", "expected"),
    [
        pytest.param(300, "wasmcloud-system", Reason.NO_HOST_MATCHES, id="Ready before, of another environment"),
        pytest.param(300, "", Reason.NO_HOST_MATCHES, id="Ready before, without an environment"),
        pytest.param(300, "apps", Reason.NOT_OBSERVED, id="Ready before, of the environment of the namespace"),
        pytest.param(4, "wasmcloud-system", Reason.WAITING, id="Ready since the refusal"),
    ],
)
def test_an_environment_is_the_cause_only_if_the_operator_has_refused_the_host(
    ready: float, environment: str, expected: Reason
) -> None:
    """The chart starts hosts with the environment of their own namespace, and sharing is permitted by default."""
    host = make_host(environment=environment, conditions=steps("Reporting", "Ready", age=ready), created=ready + 1)
    made = make_workload("w1", REFUSED, host="", age=21)
    assert outcome(page(make_snapshot([host], [made], deployment=make_deployment())))[0] == expected


def test_a_selection_in_other_words_is_evaluated_again() -> None:
    message = "No suitable host found for hostSelector map[hostgroup:gpu]"
    refused = [*steps("Config", age=20), condition("HostSelection", "False", message, 20)]
    spec = {"components": [], "hostSelector": {"hostgroup": "gpu"}}
    found = page(make_snapshot([make_host()], [make_workload("w1", refused, host="", spec=spec)]))
    assert outcome(found)[0] == Reason.NO_HOST_MATCHES


def test_the_host_of_the_environment_that_does_not_work_is_the_cause_beside_ready_ones_of_other_environments() -> None:
    silent = [condition("Reporting", "False", NO_RESPONDERS, 20), condition("Ready", "Unknown", "", 20)]
    hosts = [
        make_host("own", seen=55, created=9000, environment="apps", conditions=silent),
        make_host("other", seen=5, created=9000, environment="other"),
    ]
    found = page(make_snapshot(hosts, [make_workload("w1", REFUSED, host="", age=21)]))
    assert outcome(found)[0] == Reason.NO_HOST_READY
    assert lacking(found.headline, "host own", "heartbeat") == []


@pytest.mark.parametrize("pinned", [True, False])
def test_a_workload_of_a_pinned_host_is_not_expected_on_another_one(pinned: bool) -> None:
    spec = {"components": [], "hostId": "id-h1"} if pinned else {"components": []}
    unanswered = [*steps("Config", "HostSelection", age=20), condition("Placement", "False", NO_RESPONDERS, 5)]
    made = make_workload("w1", unanswered, spec=spec)
    found = page(make_snapshot([make_host(seen=20), make_host("h2")], [made]))
    assert outcome(found)[0] == Reason.HEARTBEAT_MISSING
    assert ("spec.hostId" in found.headline) is pinned


def test_a_host_that_is_being_deleted_is_not_chosen() -> None:
    host = make_host()
    host["metadata"]["deletionTimestamp"] = host["metadata"]["creationTimestamp"]
    found = page(make_snapshot([host], [make_workload("w1", REFUSED, host="", age=21)]))
    assert outcome(found)[0] == Reason.NO_HOST_READY
    assert lacking(found.headline, "h1", "deleted") == []


@pytest.mark.parametrize(("of", "expected"), [("uid-w1", Reason.IMAGE_NOT_FOUND), ("uid-w0", Reason.WAITING)])
def test_a_failure_that_was_received_is_the_cause_before_the_condition_sync(of: str, expected: Reason) -> None:
    """The real operator evaluates Sync later than the reply arrives if it waits for another host."""
    reply = WorkloadStatus(of, WorkloadState.ERROR, MISSING.format(part=COMPONENT))
    messages = HostMessages(65.0, replies={reply.id: reply})
    made = make_workload("w1", steps("Config", "HostSelection", "Placement", age=2), age=10)
    snapshot = make_snapshot([make_host()], [made], messages=messages)
    assert outcome(page(snapshot))[0] == expected
