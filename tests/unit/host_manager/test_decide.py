"""Decisions about one group, from its snapshot."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from host_manager.domain.children import (
    TemplateLabel,
    fingerprint,
    make_children,
    read_template_label,
    template_label_for,
)
from host_manager.domain.decide import (
    Action,
    ApplyChild,
    DeleteChild,
    RecordGroupEvent,
    RetryPods,
    SetFinalizers,
    WriteStatus,
    decide,
    report,
)
from host_manager.domain.group import ADOPTED, LATEST, Group, HostGroupSpec, Inputs
from host_manager.domain.inputs import Problem
from host_manager.domain.pods import PodView, Trouble
from host_manager.domain.snapshot import Head, Snapshot
from host_manager.domain.status import health_of
from support.lattices.host_groups import FORMER_NAME, MINIMAL, TODAYS_NAME, desired
from support.suite.naming import lacking
from trellis import names
from trellis.crds.conditions import State
from trellis.crds.host_config import WasmCloudHostConfigSpec
from trellis.provisioning.other_controllers import Controller, Peer

NOW = "2026-01-01T00:00:00Z"
ALL_KINDS = [
    "ConfigMap",
    "ServiceAccount",
    "Deployment",
    "Role",
    "Service",
    "PodDisruptionBudget",
    "RoleBinding",
]
OPERATOR = Controller(Peer.WASMCLOUD_OPERATOR, "ns", "operator", "u9")


def snapshot(**changes: Any) -> Snapshot:
    """Return a new group with our finalizer, of which nothing is there yet."""
    head = Head("g", "group", "uid-1", "7", generation=1, finalizers=(names.FINALIZER_HOSTS,))
    base = Snapshot(head, desired(LATEST).group, Inputs(), (), {}, (), {}, NOW)
    return replace(base, **changes)


def stored(child: dict[str, Any], manager: str = names.FIELD_MANAGER_HOST_MANAGER) -> dict[str, Any]:
    """Return a child as the API server has it after an apply."""
    found = copy.deepcopy(child)
    found["metadata"] |= {
        "uid": f"uid-{child['kind']}",
        "resourceVersion": "1",
        "generation": 1,
        "managedFields": [{"manager": manager, "operation": "Apply", "fieldsV1": {"f:spec": {}}}],
    }
    return found


def children(group: Group | None = None, revision: int = LATEST, inputs: Inputs | None = None) -> dict[Any, Any]:
    """Return every child of a group, as it should be."""
    group, inputs = group or desired(LATEST).group, inputs or Inputs()
    label = TemplateLabel(revision, template_label_for(group, inputs, None, latest_requested=False).basis)
    made = make_children(HostGroupSpec(group, inputs, revision), label, budget=revision >= LATEST)
    return {(child["kind"], child["metadata"]["name"]): stored(child) for child in made}


def settled(**changes: Any) -> Snapshot:
    """Return a group with all its children and the status that belongs to them."""
    known = snapshot(children=children())
    [status] = [action for action in decide(known) if isinstance(action, WriteStatus)]
    return replace(known, status=status.status, **changes)


def kinds(actions: list[Action]) -> list[str]:
    return [action.wanted["kind"] for action in actions if isinstance(action, ApplyChild)]


def condition(actions: list[Action], kind: str) -> dict[str, Any]:
    [status] = [action.status for action in actions if isinstance(action, WriteStatus)]
    found: dict[str, Any] = next(item for item in status["conditions"] if item["type"] == kind)
    return found


def with_spec(**spec: Any) -> Group:
    return Group("group", "g", "uid-1", WasmCloudHostConfigSpec.model_validate(MINIMAL | spec))


def test_a_new_group_gets_the_template_of_trellis_and_all_its_children() -> None:
    actions = decide(snapshot())
    assert kinds(actions) == ALL_KINDS
    workload = next(action.wanted for action in actions if isinstance(action, ApplyChild) and action.is_workload)
    label = read_template_label(workload)
    assert label is not None
    assert label.revision == LATEST
    assert condition(actions, "Available")["reason"] == "NotCreated"


def test_a_group_that_is_as_it_should_be_is_left_alone() -> None:
    assert decide(settled()) == []


def test_defaults_of_the_api_server_are_no_difference() -> None:
    known = settled()
    deployment = known.children["Deployment", "group"]
    deployment["spec"]["progressDeadlineSeconds"] = 600
    deployment["spec"]["template"]["spec"]["containers"][0]["terminationMessagePolicy"] = "File"
    assert decide(known) == []


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_a_child_that_is_missing_or_changed_is_written(kind: str) -> None:
    known = settled()
    missing = {key: child for key, child in known.children.items() if key[0] != kind}
    assert kinds(decide(replace(known, children=missing))) == [kind]
    changed = copy.deepcopy(dict(known.children))
    changed[kind, "group"]["metadata"]["ownerReferences"] = []
    assert kinds(decide(replace(known, children=changed))) == [kind]


def test_a_child_in_other_words_is_written_once() -> None:
    group = with_spec(schedulingOptions={"resources": {"nats": {"requests": {"cpu": "1000m"}}}})
    found = children(group)
    found["Deployment", "group"]["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1"
    known = snapshot(group=group, children=found)
    [action] = [action for action in decide(known) if isinstance(action, ApplyChild)]
    assert action.is_workload
    written = {action.key: (fingerprint(action.wanted), fingerprint(found[action.key]))}
    assert kinds(decide(replace(known, applied=written))) == []
    found["Deployment", "group"]["spec"]["replicas"] = 7
    assert kinds(decide(replace(known, applied=written))) == ["Deployment"]


def test_children_of_the_former_owner_are_taken_over_with_their_template() -> None:
    theirs = {key: stored(child, names.WASMCLOUD_OPERATOR) for key, child in children(revision=ADOPTED).items()}
    for child in theirs.values():
        for label in (names.LABEL_APPLIED, names.LABEL_TEMPLATE):
            child["metadata"].get("labels", {}).pop(label, None)
    actions = decide(snapshot(children=theirs))
    writes = [action for action in actions if isinstance(action, ApplyChild)]
    assert kinds(actions) == [kind for kind in ALL_KINDS if kind != "PodDisruptionBudget"]
    for action in writes:
        assert action.managed_fields is not None
        assert [entry["manager"] for entry in action.managed_fields] == [names.FIELD_MANAGER_HOST_MANAGER]
    workload = next(action.wanted for action in writes if action.is_workload)
    assert str(read_template_label(workload)).startswith("1.")
    assert "annotations" not in workload["spec"]["template"]["metadata"]


def labelled(found: dict[Any, Any], operator: str) -> dict[str, Any]:
    """Label the pods as an operator of this name does; return what runs them."""
    workload: dict[str, Any] = found["Deployment", "group"]
    workload["spec"]["template"]["metadata"]["labels"][names.LABEL_MANAGED_BY] = operator
    return workload


def test_pods_keep_the_former_name_of_their_operator_until_they_are_rolled_anyway() -> None:
    theirs = {key: stored(child, names.WASMCLOUD_OPERATOR) for key, child in children(revision=ADOPTED).items()}
    before = labelled(theirs, FORMER_NAME)
    before["metadata"]["labels"].pop(names.LABEL_TEMPLATE)
    [written] = [
        item for item in decide(snapshot(children=theirs)) if isinstance(item, ApplyChild) and item.is_workload
    ]
    assert written.wanted["spec"]["template"] == before["spec"]["template"], "adopted as it is"

    ours = {**children(revision=ADOPTED), ("Deployment", "group"): stored(written.wanted)}
    assert kinds(decide(snapshot(children=ours))) == [], "and left so"

    changed = decide(snapshot(children=ours, group=with_spec(logLevel="DEBUG")))
    [rolled] = [item for item in changed if isinstance(item, ApplyChild) and item.is_workload]
    assert rolled.wanted["spec"]["template"]["metadata"]["labels"][names.LABEL_MANAGED_BY] == TODAYS_NAME


def test_a_label_of_no_operator_is_repaired() -> None:
    found = children(revision=ADOPTED)
    labelled(found, "somebody")
    assert kinds(decide(snapshot(children=found))) == ["Deployment"]


@pytest.mark.parametrize(
    ("changes", "revision"),
    [
        ({}, ADOPTED),
        ({"group": with_spec(hostReplicas=5)}, ADOPTED),
        ({"group": with_spec(logLevel="DEBUG")}, LATEST),
        ({"group": with_spec(drainSeconds=60)}, LATEST),
        ({"inputs": Inputs(checksum="changed")}, LATEST),
    ],
    ids=["nothing", "a number that rolls no pod", "the template", "a field of ours", "a Secret"],
)
def test_an_adopted_group_gets_the_template_of_trellis_only_when_its_pods_roll_anyway(
    changes: dict[str, Any], revision: int
) -> None:
    known = snapshot(children=children(revision=ADOPTED), **changes)
    workload = known.children["Deployment", "group"]
    assert known.group is not None
    assert template_label_for(known.group, known.inputs, workload, latest_requested=False).revision == revision
    assert template_label_for(known.group, known.inputs, workload, latest_requested=True).revision == LATEST


@pytest.mark.parametrize(
    ("manager", "recorded", "revision"),
    [
        (names.FIELD_MANAGER_HOST_MANAGER, LATEST, LATEST),
        (names.FIELD_MANAGER_HOST_MANAGER, None, ADOPTED),
        ("another", LATEST, ADOPTED),
    ],
    ids=["ours", "never recorded", "of another operator"],
)
def test_a_managed_workload_without_its_annotations_keeps_the_revision_of_the_status(
    manager: str, recorded: int | None, revision: int
) -> None:
    known = snapshot(children=children())
    workload = stored(known.children["Deployment", "group"], manager)
    del workload["metadata"]["labels"]
    assert known.group is not None
    label = template_label_for(known.group, known.inputs, workload, latest_requested=False, recorded=recorded)
    assert label.revision == revision


def test_a_group_with_missing_inputs_gets_no_children() -> None:
    problem = Problem("SecretMissing", "Secret g/x is missing")
    actions = decide(snapshot(problems=(problem,)))
    assert kinds(actions) == []
    assert condition(actions, "Degraded")["reason"] == "SecretMissing"
    assert [action.message for action in actions if isinstance(action, RecordGroupEvent)] == ["Secret g/x is missing"]


def test_an_invalid_optional_field_is_reported_and_the_group_created() -> None:
    actions = decide(snapshot(problems=(Problem("RegistriesLeftOut", "one of two", blocks=False),)))
    assert kinds(actions) == ALL_KINDS
    assert condition(actions, "Degraded")["reason"] == "RegistriesLeftOut"


def test_a_problem_that_does_not_block_does_not_hide_failing_hosts() -> None:
    problem = Problem("RegistriesLeftOut", "one of two", blocks=False)
    troubled = settled(problems=(problem,), pods=(pod("p", Trouble("ImagePullBackOff", "no such image")),))
    assert condition(decide(troubled), "Degraded")["reason"] == "ImagePullBackOff"


def test_pods_that_were_refused_keep_everything_as_it_is() -> None:
    actions = decide(snapshot(refused="no such field"))
    assert kinds(actions) == []
    assert "no such field" in condition(actions, "Degraded")["message"]


def test_a_child_that_belongs_to_another_is_left_alone() -> None:
    known = settled()
    found = copy.deepcopy(dict(known.children))
    found["ConfigMap", "group"]["metadata"]["ownerReferences"] = [
        {"kind": "Other", "name": "its", "uid": "x", "controller": True}
    ]
    actions = decide(replace(known, children=found))
    assert kinds(actions) == []
    assert lacking(condition(actions, "Degraded")["message"], "ConfigMap g/group", "Other its") == []


def of_a_former_group(kind: str, *, created: str = "2026-01-01T00:00:00Z") -> Snapshot:
    """Return a group made at 00:05 of which a child of this kind belongs to an earlier one of its name."""
    known = settled()
    found = copy.deepcopy(dict(known.children))
    [owner] = found[kind, "group"]["metadata"]["ownerReferences"]
    found[kind, "group"]["metadata"] |= {
        "ownerReferences": [owner | {"uid": "former"}],
        "creationTimestamp": created,
    }
    return replace(known, head=replace(known.head, created="2026-01-01T00:05:00Z"), children=found)


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_a_child_of_a_former_group_of_the_name_is_taken_over(kind: str) -> None:
    [written] = decide(of_a_former_group(kind))
    assert isinstance(written, ApplyChild)
    assert written.key == (kind, "group")
    assert [owner["uid"] for owner in written.wanted["metadata"]["ownerReferences"]] == ["uid-1"]


def test_a_child_younger_than_the_group_as_it_was_read_is_left_alone() -> None:
    """It may be that of a later group of the name."""
    actions = decide(of_a_former_group("Deployment", created="2026-01-01T00:05:01Z"))
    assert [type(action) for action in actions] == [WriteStatus, RecordGroupEvent]
    assert condition(actions, "Degraded")["reason"] == "ChildConflict"


def test_beside_the_other_operator_only_a_condition_is_written() -> None:
    former = {"apps": [{"name": "a", "version": "1"}], "app_count": 1}
    known = snapshot(other=OPERATOR, status=former)
    actions = decide(replace(known, head=replace(known.head, finalizers=())))
    assert [type(action) for action in actions] == [WriteStatus, RecordGroupEvent]
    assert condition(actions, "OtherControllerActive")["status"] == "True"
    [status] = [action.status for action in actions if isinstance(action, WriteStatus)]
    assert former.items() <= status.items()
    assert report(known, Problem("x", "y")) == []


def test_a_deleted_group_loses_both_finalizers() -> None:
    known = snapshot()
    finalizers = ("somebody.else", names.WASMCLOUD_OPERATOR, names.FINALIZER_HOSTS)
    [action] = decide(replace(known, head=replace(known.head, deleting=True, finalizers=finalizers)))
    assert isinstance(action, SetFinalizers)
    assert action.finalizers == ("somebody.else",)


def test_beside_the_other_operator_a_deleted_group_loses_only_the_finalizer_of_trellis() -> None:
    known = snapshot(other=OPERATOR)
    finalizers = (names.WASMCLOUD_OPERATOR, names.FINALIZER_HOSTS)
    [action] = decide(replace(known, head=replace(known.head, deleting=True, finalizers=finalizers)))
    assert isinstance(action, SetFinalizers)
    assert action.finalizers == (names.WASMCLOUD_OPERATOR,)


def test_a_glance_writes_nothing_but_the_status() -> None:
    known = settled(glance=True)
    deployment = known.children["Deployment", "group"]
    deployment["status"] = {"observedGeneration": 1, "replicas": 1, "readyReplicas": 1, "updatedReplicas": 1}
    only = {("Deployment", "group"): deployment}
    [action, event] = decide(replace(known, children=only))
    assert isinstance(action, WriteStatus)
    assert action.status["templateRevision"] == LATEST
    assert isinstance(event, RecordGroupEvent)
    assert (event.reason, event.warning) == ("RolloutComplete", False)


def test_another_number_of_hosts_is_an_event_once() -> None:
    known = settled()
    more = copy.deepcopy(known.children)
    more["Deployment", "group"]["spec"]["replicas"] = 5
    actions = decide(replace(known, children=more, glance=True))
    [event] = [action for action in actions if isinstance(action, RecordGroupEvent)]
    assert (event.reason, event.warning) == ("Scaled", False)
    [status] = [action.status for action in actions if isinstance(action, WriteStatus)]
    assert decide(replace(known, children=more, glance=True, status=status)) == []


def test_the_finalizer_of_the_former_owner_is_replaced() -> None:
    known = snapshot()
    [action, *_] = decide(replace(known, head=replace(known.head, finalizers=(names.WASMCLOUD_OPERATOR,))))
    assert isinstance(action, SetFinalizers)
    assert action.finalizers == (names.FINALIZER_HOSTS,)


def test_a_daemonset_takes_the_place_of_the_deployment() -> None:
    known = settled(group=with_spec(schedulingOptions={"daemonset": True}))
    actions = decide(known)
    assert "DaemonSet" in kinds(actions)
    deleted = [action.found["kind"] for action in actions if isinstance(action, DeleteChild)]
    assert deleted == ["Deployment", "PodDisruptionBudget"], "a budget forbids every eviction of a DaemonSet's pod"


def test_no_disruption_budget_is_created_beside_that_of_another_owner() -> None:
    known = settled(foreign_budget=True)
    [action] = [action for action in decide(known) if isinstance(action, DeleteChild)]
    assert action.found["kind"] == "PodDisruptionBudget"


def test_an_object_that_the_group_does_not_own_is_not_deleted() -> None:
    known = settled(foreign_budget=True)
    known.children["PodDisruptionBudget", "group"]["metadata"]["ownerReferences"] = []
    assert decide(known) == []


def pod(name: str, trouble: Trouble | None) -> PodView:
    return PodView("g", name, f"uid-{name}", "1", "group", ready=trouble is None, trouble=trouble)


@pytest.mark.parametrize(
    ("trouble", "log_line", "expected_text"),
    [
        (Trouble("ImagePullBackOff", "no such image", "wasmcloud-host"), "", ("no such image", "wasmcloud-host")),
        (Trouble("CrashLoopBackOff", "back-off", "nats-leaf"), "bad config", ("back-off", "bad config", "nats-leaf")),
        (Trouble("Unschedulable", "0/3 nodes"), "", ("0/3 nodes",)),
    ],
)
def test_the_cause_of_a_pod_that_does_not_run_is_reported_in_its_own_words(
    trouble: Trouble, log_line: str, expected_text: tuple[str, ...]
) -> None:
    actions = decide(settled(pods=(pod("a", None), pod("b", trouble)), last_log_line=log_line))
    found = condition(actions, "Degraded")
    assert (found["status"], found["reason"]) == ("True", trouble.reason)
    assert lacking(found["message"], *expected_text, "pod b") == []


def test_a_quota_that_is_reached_is_reported() -> None:
    known = settled()
    failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota"}
    known.children["Deployment", "group"]["status"] = {"conditions": [failure]}
    assert condition(decide(known), "Degraded")["message"] == "exceeded quota"


FAILURE = {"conditions": [{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate"}]}


@pytest.mark.parametrize("glance", [False, True])
@pytest.mark.parametrize(
    ("status", "due", "tried"),
    [(FAILURE, True, True), (FAILURE, False, False), ({}, True, False)],
    ids=["refused and due", "not due", "not refused"],
)
def test_pods_that_are_refused_are_tried_again_when_that_is_due(
    status: dict[str, Any], *, due: bool, tried: bool, glance: bool
) -> None:
    known = settled(retry_pods=due, glance=glance)
    known.children["Deployment", "group"]["status"] = status
    found = [action for action in decide(known) if isinstance(action, RetryPods)]
    assert bool(found) is tried
    if tried:
        assert found[0].found is known.children["Deployment", "group"]
        assert found[0].at == known.now


@pytest.mark.parametrize(
    ("counts", "available", "progressing"),
    [
        ({"observedGeneration": 0}, "False", "Updating"),
        ({"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1}, "True", "Updated"),
        ({"observedGeneration": 1, "replicas": 2, "updatedReplicas": 1, "readyReplicas": 1}, "True", "Updating"),
        ({"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1}, "False", "Starting"),
    ],
)
def test_available_and_progressing_follow_the_counts(counts: dict[str, int], available: str, progressing: str) -> None:
    found = children()
    found["Deployment", "group"]["status"] = counts
    actions = decide(snapshot(children=found))
    assert condition(actions, "Available")["status"] == available
    assert condition(actions, "Progressing")["reason"] == progressing


READY_PODS = [("Available", "True", "HostsReady", "2 of 2"), ("Progressing", "False", "Updated", "2 of 2")]
FINE = ("Degraded", "False", "Healthy", "")
REPORTING = ("HostsReporting", "True", "AllReporting", "2 of 2")


@pytest.mark.parametrize(
    ("conditions", "health"),
    [
        pytest.param([*READY_PODS, FINE, REPORTING], (State.READY, "HostsReady"), id="all hosts run"),
        pytest.param(
            [*READY_PODS, FINE, ("HostsReporting", "Unknown", "HostIDUnknown", "")],
            (State.READY, "HostsReady"),
            id="adopted pods report no host",
        ),
        pytest.param(
            [*READY_PODS, FINE, ("HostsReporting", "Unknown", "WaitingForHosts", "")],
            (State.RECONCILING, "WaitingForHosts"),
            id="a host is not heard yet",
        ),
        pytest.param(
            [*READY_PODS, FINE, ("HostsReporting", "False", "HeartbeatMissing", "")],
            (State.RECONCILING, "HeartbeatMissing"),
            id="a host is silent",
        ),
        pytest.param(
            [*READY_PODS, FINE, ("HostsReporting", "Unknown", "LatticeUnreachable", "")],
            (State.UNKNOWN, "LatticeUnreachable"),
            id="the lattice is unreachable",
        ),
        pytest.param(
            [
                ("Available", "False", "HostsNotReady", ""),
                ("Progressing", "True", "Starting", ""),
                FINE,
                ("HostsReporting", "Unknown", "LatticeUnreachable", ""),
            ],
            (State.UNKNOWN, "LatticeUnreachable"),
            id="the lattice is unreachable and no host starts",
        ),
        pytest.param(
            [READY_PODS[0], ("Progressing", "True", "Updating", ""), FINE, REPORTING],
            (State.RECONCILING, "Updating"),
            id="a rollout is in progress",
        ),
        pytest.param(
            [*READY_PODS, ("Degraded", "True", "CrashLoopBackOff", ""), REPORTING],
            (State.RECONCILING, "CrashLoopBackOff"),
            id="a pod crashes",
        ),
        pytest.param(
            [*READY_PODS, ("Degraded", "True", "InvalidTemplate", ""), REPORTING],
            (State.STALLED, "InvalidTemplate"),
            id="the spec is invalid",
        ),
        pytest.param(
            [*READY_PODS, FINE, REPORTING, ("OtherControllerActive", "True", "WasmCloudOperatorRuns", "")],
            (State.STALLED, "WasmCloudOperatorRuns"),
            id="another controller manages it",
        ),
    ],
)
def test_health_follows_from_its_own_conditions(conditions: list[Any], health: tuple[State, str]) -> None:
    found = health_of(conditions)
    assert (found.state, found.reason) == health


def test_the_status_begins_with_the_health() -> None:
    [status] = [action.status for action in decide(snapshot()) if isinstance(action, WriteStatus)]
    first = [(item["type"], item["status"], item["reason"]) for item in status["conditions"][:3]]
    assert first == [
        ("Ready", "False", "Updating"),
        ("Reconciling", "True", "Updating"),
        ("Stalled", "False", "Updating"),
    ]


def test_a_condition_keeps_its_time_until_its_status_changes() -> None:
    known = settled(now="2027-01-01T00:00:00Z")
    troubled = replace(known, pods=(pod("b", Trouble("Unschedulable", "no node")),))
    actions = decide(troubled)
    assert condition(actions, "Degraded")["lastTransitionTime"] == "2027-01-01T00:00:00Z"
    assert condition(actions, "Available")["lastTransitionTime"] == NOW


def test_fields_of_old_are_named() -> None:
    options = {"podTemplateAdditions": {"spec": {"hostNetwork": True}}}
    actions = decide(snapshot(group=with_spec(issuers=["C"], daemonset=True, schedulingOptions=options)))
    found = condition(actions, "DeprecatedFields")
    assert "podTemplateAdditions.spec" in found["message"]
    assert "spec.issuers" in found["message"]
    assert "spec.daemonset" in found["message"]


def test_outdated_conditions_are_removed_from_the_status() -> None:
    known = settled()
    assert known.status["workload"] == "Deployment"
    [status] = [action.status for action in decide(replace(known, children={})) if isinstance(action, WriteStatus)]
    assert status["workload"] is None
