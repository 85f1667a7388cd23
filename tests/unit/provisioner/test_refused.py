"""Nodes whose installer's pod, or whose labels, the API server refuses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from provisioner.domain.actions import (
    ClearRefusal,
    CreateJob,
    DeleteJob,
    GiveBackSlot,
    GuardedDeletion,
    JudgeFailed,
    LookAgain,
    ReportRefusal,
    Snapshot,
)
from provisioner.domain.decide import decide
from provisioner.domain.job_clock import JobClock
from provisioner.domain.plan import FleetSnapshot, plan
from provisioner.domain.resources import Task
from provisioner.refusals import PodRefusals, view_pod_refusal
from trellis.kube.changes import Change, ChangeKind
from trellis.provisioning.attempts import Retries, ShimLimits
from trellis.provisioning.int_or_percent import CountOrPercent
from trellis.provisioning.ledger import Entry, Ledger
from trellis.provisioning.reasons import Reason
from trellis.provisioning.views import KWASM, PROVISION, UNDO, JobState, JobView, NodeView, Target
from trellis_dev.testing.builders import DIGEST, a_job, a_node, opted_in, verified_node

TARGET = Target(((KWASM, DIGEST),))
SLOT = Entry(DIGEST, 1, 1000, (KWASM,))
NODE = opted_in(a_node("a"))
MESSAGE = 'pods "x" is forbidden: exceeded quota: none'


def a_snapshot(node: NodeView, *jobs: JobView, **changes: object) -> Snapshot:
    given = Snapshot("a", node, jobs, None, TARGET, frozenset(), None, verify_timeout=60, inspect_after=20, now=1020)
    return replace(given, task=Task(TARGET), **changes)


def kinds(actions: list[object]) -> list[type]:
    return [type(action) for action in actions]


def test_a_refused_pod_is_reported_at_once_and_its_job_replaced_after_a_while() -> None:
    job = a_job(NODE)
    refused = a_snapshot(NODE, job, entry=SLOT, pod_refused=MESSAGE)
    report = next(action for action in decide(refused) if isinstance(action, ReportRefusal))
    assert report.reason is Reason.INSTALLER_REFUSED
    assert MESSAGE in report.message
    assert not any(isinstance(action, DeleteJob) for action in decide(refused))
    half = refused.refusal_retry / 2  # with the Job, then without: the next attempt is one retry later
    later = decide(replace(refused, pod_refused_for=half))
    assert DeleteJob(job, Reason.INSTALLER_REFUSED, foreground=True) in later
    assert GiveBackSlot(NODE, half) in later


def test_a_node_whose_slot_is_given_back_is_looked_at_again_when_that_is_over() -> None:
    """Its slot may stay in the ledger, and no change of the node or of a Job wakes it then."""
    waits = a_snapshot(NODE, entry=SLOT, blocked_for=3.0)
    assert list(decide(waits)) == [LookAgain(3.0)]
    assert kinds(list(decide(replace(waits, blocked_for=0.0)))) == [CreateJob]


def test_a_job_that_had_a_pod_is_not_replaced_for_an_older_refusal() -> None:
    snapshot = a_snapshot(NODE, a_job(NODE, has_pods=True), entry=SLOT, pod_refused=MESSAGE, pod_refused_for=99.0)
    assert not {ReportRefusal, DeleteJob} & {*kinds(list(decide(snapshot)))}


def test_a_suspended_job_is_reported_at_once_and_replaced_once_its_pods_ended() -> None:
    job = a_job(NODE, suspended=True, has_pods=True)
    stops = a_snapshot(NODE, job, entry=SLOT, pod_refused=MESSAGE, pod_refused_for=99.0)
    assert ReportRefusal in kinds(list(decide(stops)))
    assert DeleteJob not in kinds(list(decide(stops)))
    ended = replace(stops, jobs=(replace(job, has_pods=False),))
    assert {ReportRefusal, DeleteJob, GiveBackSlot} <= {*kinds(list(decide(ended)))}


def test_a_suspended_job_whose_pod_hangs_is_judged_when_its_time_is_over() -> None:
    job = a_job(NODE, suspended=True, has_pods=True)
    stuck = a_snapshot(NODE, job, entry=SLOT, pod_refused=MESSAGE, pod_refused_for=99.0, stuck_in=0.0)
    [judged] = [action for action in decide(stuck) if isinstance(action, JudgeFailed)]
    assert judged.reason is Reason.INSTALLER_POD_STUCK


@pytest.mark.parametrize("ends_now", [False, True], ids=["running before", "told to end before"])
@pytest.mark.parametrize("operation", [PROVISION, UNDO])
def test_an_unneeded_suspended_job_is_deleted(operation: str, ends_now: bool) -> None:
    """It ignores its deadline, by which others are ended."""
    job = a_job(NODE, suspended=True, operation=operation, installs="spin=d", ends_now=ends_now)
    actions = decide(a_snapshot(NODE, job, target=None, pod_refused=MESSAGE))
    [held] = [action for action in actions if isinstance(action, GuardedDeletion)]
    assert [type(step) for step in held.steps] == [DeleteJob]


def test_a_refused_job_that_rolls_back_an_attempt_is_replaced_and_keeps_the_slot() -> None:
    undo = a_job(NODE, operation=UNDO, rolls_back="HandlerMissing: x")
    actions = kinds(list(decide(a_snapshot(NODE, undo, entry=SLOT, pod_refused=MESSAGE, pod_refused_for=99.0))))
    assert DeleteJob in actions
    assert GiveBackSlot not in actions


@pytest.mark.parametrize(
    ("job", "over"),
    [(a_job(NODE), False), (a_job(NODE, has_pods=True), True), (a_job(NODE, JobState.COMPLETE), True)],
    ids=["no pod yet", "runs", "ended"],
)
def test_a_report_is_withdrawn_when_the_installer_runs(job: JobView, over: bool) -> None:
    snapshot = a_snapshot(NODE, job, entry=SLOT, refused=MESSAGE)
    assert (ClearRefusal(NODE) in decide(snapshot)) is over


def test_a_report_is_withdrawn_when_nothing_is_to_be_done() -> None:
    assert ClearRefusal(verified_node(NODE)) in decide(a_snapshot(verified_node(NODE), refused=MESSAGE))


def test_a_node_that_cannot_be_labelled_is_reported_until_it_is() -> None:
    job = a_job(NODE, JobState.COMPLETE)
    actions = decide(a_snapshot(NODE, job, entry=SLOT, update_refused="no team label", refused=MESSAGE))
    assert ReportRefusal(NODE, Reason.UPDATE_REFUSED, "no team label") in actions
    assert ClearRefusal not in kinds(list(actions))
    assert any(isinstance(action, LookAgain) for action in actions)


def test_a_job_whose_node_cannot_be_labelled_is_stuck_after_deadline_and_grace() -> None:
    now = 0.0
    clock, job = JobClock(10.0, 5.0, lambda: now), a_job(NODE, JobState.COMPLETE)
    clock.change(None, a_job(NODE))
    now = 12.0
    clock.change(a_job(NODE), job)
    assert clock.left(job) == 15.0
    other, limits = opted_in(a_node("other")), {KWASM: ShimLimits(CountOrPercent.parse("1"), 1)}
    targets, jobs = {NODE.uid: TARGET, other.uid: TARGET}, {NODE.uid: (job,)}
    given = FleetSnapshot(
        (NODE, other), targets, jobs, Ledger({NODE.uid: SLOT}), limits, Retries(10.0, 300.0), 10_000.0
    )
    assert not plan(given).claimed
    assert [node.name for node in plan(replace(given, stuck=frozenset({job.uid}))).claimed] == ["other"]


def test_the_newest_event_has_the_words_until_it_expires() -> None:
    def event(message: str, second: int) -> dict[str, object]:
        at = f"2026-01-01T00:00:{second:02}Z"
        return {"involvedObject": {"uid": "job"}, "message": message, "lastTimestamp": at}

    now = 100.0
    refusals = PodRefusals(lambda: now)
    views = {key: view_pod_refusal(event(key, second)) for key, second in (("new", 9), ("old", 1))}
    for key, view in views.items():
        assert refusals.take(Change(ChangeKind.ADDED, key, None, view)) == "job"
    now = 107.0
    assert (refusals.reason_of("job"), refusals.seconds("job")) == ("new", 7.0)
    for key, view in views.items():
        refusals.take(Change(ChangeKind.DELETED, key, view, None))
    assert (refusals.reason_of("job"), refusals.seconds("job")) == ("", 0.0)
