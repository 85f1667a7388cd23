"""Nodes that are skipped and Jobs that are stuck: which slots are free, and what may begin."""

from __future__ import annotations

from dataclasses import replace

import pytest

from provisioner.domain.actions import (
    CreateJob,
    EndJob,
    GiveBackSlot,
    JudgeFailed,
    LookAgain,
    Publish,
    Snapshot,
    WarnNode,
)
from provisioner.domain.decide import decide
from provisioner.domain.plan import FleetSnapshot, plan
from provisioner.domain.resources import Task
from trellis.provisioning.attempts import Retries, ShimLimits
from trellis.provisioning.excluded_nodes import Skip
from trellis.provisioning.int_or_percent import CountOrPercent
from trellis.provisioning.ledger import Entry, Ledger
from trellis.provisioning.nodes_and_jobs import view_node
from trellis.provisioning.reasons import Reason
from trellis.provisioning.views import KWASM, NodeView, Target
from trellis_dev.testing.builders import DIGEST, a_job, a_node, failed, opted_in, verified_node

TARGET = Target(((KWASM, DIGEST),))
SKIP = Skip(Reason.FARGATE_NODE, "the label x")
SLOT = Entry(DIGEST, 1, 1000, (KWASM,))
NODE = opted_in(a_node("b"))
SKIPPED = replace(opted_in(a_node("a")), skip=SKIP)


def world(*nodes: NodeView, **changes: object) -> FleetSnapshot:
    limits = {KWASM: ShimLimits(CountOrPercent.parse("1"), 1)}
    given = FleetSnapshot(
        nodes, {node.uid: TARGET for node in nodes}, {}, Ledger({}), limits, Retries(10.0, 300.0), 10_000.0
    )
    return replace(given, **changes)


def claimed(given: FleetSnapshot) -> list[str]:
    return [node.name for node in plan(given).claimed]


def a_snapshot(node: NodeView, *jobs: object, **changes: object) -> Snapshot:
    given = Snapshot("a", node, jobs, None, TARGET, frozenset(), None, verify_timeout=60, inspect_after=20, now=1020)  # type: ignore[arg-type]
    return replace(given, task=Task(TARGET), **changes)


@pytest.mark.parametrize(
    ("labels", "taints", "reason"),
    [
        ({"eks.amazonaws.com/compute-type": "fargate"}, (), Reason.FARGATE_NODE),
        ({"eks.amazonaws.com/compute-type": "auto"}, (), None),
        ({}, (("eks.amazonaws.com/compute-type", "fargate"),), Reason.FARGATE_NODE),
        ({"type": "virtual-kubelet"}, (), Reason.VIRTUAL_KUBELET_NODE),
        ({"type": "kwok"}, (), None),
        ({}, (("virtual-kubelet.io/provider", "azure"),), Reason.VIRTUAL_KUBELET_NODE),
        ({}, (("ToBeDeletedByClusterAutoscaler", "1790000000"),), Reason.NODE_SCALING_DOWN),
        ({}, (("DeletionCandidateOfClusterAutoscaler", "1790000000"),), None),
        ({}, (("karpenter.sh/disrupted", None),), Reason.NODE_SCALING_DOWN),
        ({}, (("karpenter.sh/disruption", "disrupting"),), Reason.NODE_SCALING_DOWN),
        ({}, (("karpenter.sh/disruption", "candidate"),), None),
        ({}, (("node.kubernetes.io/unschedulable", None),), None),
    ],
)
def test_a_node_is_skipped_by_its_marks(
    labels: dict[str, str], taints: tuple[tuple[str, str | None], ...], reason: Reason | None
) -> None:
    metadata = {"name": "n", "uid": "u", "resourceVersion": "1", "labels": labels}
    spec = {
        "taints": [{"key": key, "effect": "NoSchedule"} | ({"value": value} if value else {}) for key, value in taints]
    }
    view = view_node({"metadata": metadata, "spec": spec})
    assert (view.skip.reason if view.skip else None) is reason


def test_a_node_that_is_being_deleted_is_skipped() -> None:
    metadata = {"name": "n", "uid": "u", "resourceVersion": "1", "deletionTimestamp": "2026-01-01T00:00:00Z"}
    view = view_node({"metadata": metadata})
    assert view.skip is not None
    assert view.skip.reason is Reason.NODE_DELETING


def test_a_skipped_node_takes_no_slot() -> None:
    assert claimed(world(SKIPPED, NODE)) == ["b"]


def test_the_slot_of_a_node_that_is_skipped_before_its_job_is_made_is_free() -> None:
    outcome = plan(world(SKIPPED, NODE, ledger=Ledger({SKIPPED.uid: SLOT})))
    assert outcome.released == (SKIPPED.uid,)
    assert [node.name for node in outcome.claimed] == ["b"]


def test_a_skipped_node_of_which_something_is_unknown_keeps_its_entry_and_no_slot() -> None:
    given = world(SKIPPED, NODE, ledger=Ledger({SKIPPED.uid: SLOT}), unconfirmed={SKIPPED.uid: frozenset({KWASM})})
    outcome = plan(given)
    assert SKIPPED.uid in outcome.ledger.entries
    assert [node.name for node in outcome.claimed] == ["b"]


def test_a_skipped_node_that_failed_halts_nothing() -> None:
    outcome = plan(world(failed(SKIPPED), NODE))
    assert outcome.ledger.halted == ()
    assert [node.name for node in outcome.claimed] == ["b"]


def test_a_skipped_node_that_is_at_work_keeps_its_slot_until_its_job_is_stuck() -> None:
    job = a_job(SKIPPED)
    given = world(SKIPPED, NODE, ledger=Ledger({SKIPPED.uid: SLOT}), jobs={SKIPPED.uid: (job,)})
    assert claimed(given) == []
    assert claimed(replace(given, stuck=frozenset({job.uid}))) == ["b"]


@pytest.mark.parametrize("changes", [{}, {"deleting": True}], ids=["active", "deleting"])
def test_a_stuck_job_holds_no_slot(changes: dict[str, object]) -> None:
    other = opted_in(a_node("a"))
    job = a_job(other, **changes)
    given = world(other, NODE, ledger=Ledger({other.uid: SLOT}), jobs={other.uid: (job,)}, stuck_in=7.0)
    assert claimed(given) == []
    assert plan(given).wake_in == 7.0
    outcome = plan(replace(given, stuck=frozenset({job.uid}), stuck_in=None))
    assert [node.name for node in outcome.claimed] == ["b"]
    assert other.uid in outcome.ledger.entries


def test_no_retry_is_claimed_while_the_pod_of_a_judged_job_may_run() -> None:
    node = failed(opted_in(a_node("a")))
    job = a_job(node, failure="InstallerPodStuck: it hangs")
    limits = {KWASM: ShimLimits(CountOrPercent.parse("1"))}
    given = world(node, NODE, jobs={node.uid: (job,)}, stuck=frozenset({job.uid}), limits=limits)
    assert claimed(given) == ["b"]
    assert claimed(replace(given, jobs={}, nodes=(node,))) == ["a"]


def test_a_stuck_job_on_a_ready_node_is_evaluated_and_then_stopped() -> None:
    job = a_job(NODE)
    judged = decide(a_snapshot(NODE, job, stuck_in=0.0))
    assert [action.reason for action in judged if isinstance(action, JudgeFailed)] == [Reason.INSTALLER_POD_STUCK]
    again = decide(a_snapshot(NODE, replace(job, failure="InstallerPodStuck: x"), stuck_in=0.0))
    assert [action for action in again if not isinstance(action, Publish)] == [
        EndJob(replace(job, failure="InstallerPodStuck: x"), Reason.INSTALLER_POD_STUCK)
    ]
    failure_target = replace(job, failure="InstallerPodStuck: x", failure_target="DeadlineExceeded")
    assert not [
        action for action in decide(a_snapshot(NODE, failure_target, stuck_in=0.0)) if isinstance(action, EndJob)
    ]


def test_a_job_that_is_not_stuck_yet_is_looked_at_when_it_is() -> None:
    assert LookAgain(9.0) in decide(a_snapshot(NODE, a_job(NODE), stuck_in=9.0))


def test_a_stuck_job_that_is_being_deleted_is_reported() -> None:
    actions = decide(a_snapshot(NODE, a_job(NODE, deleting=True), stuck_in=0.0))
    assert [action.reason for action in actions if isinstance(action, WarnNode)] == [Reason.INSTALLER_POD_STUCK]


def test_a_skipped_node_reports_it_once_and_gets_no_job() -> None:
    actions = decide(a_snapshot(SKIPPED, entry=SLOT, report_skip=True))
    assert [type(action) for action in actions] == [WarnNode]
    assert decide(a_snapshot(SKIPPED, entry=SLOT)) == []
    assert [type(action) for action in decide(a_snapshot(NODE, entry=SLOT))] == [CreateJob]
    assert decide(a_snapshot(verified_node(SKIPPED), report_skip=True)) == []


def test_no_job_is_made_beside_the_pod_of_one_that_was_deleted() -> None:
    actions = decide(a_snapshot(NODE, entry=SLOT, pods_left=("ns/pod",)))
    assert [type(action) for action in actions] == [WarnNode, GiveBackSlot]
