"""Worlds of one node and its Jobs in, Jobs and events out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from provisioner.domain.actions import (
    Action,
    CreateJob,
    DeleteJob,
    EndJob,
    EvictPod,
    GiveBackSlot,
    GuardedDeletion,
    JudgeFailed,
    LookAgain,
    Publish,
    Snapshot,
    User,
    WarnNode,
)
from provisioner.domain.decide import decide, inspect
from provisioner.domain.resources import Task
from provisioner.timings import NodeTimings
from support.suite.naming import lacking
from trellis import names
from trellis.crds.shim import RemovalPolicy
from trellis.installer_api.result import FailureReason, InstallResult, Outcome, ShimResult
from trellis.provisioning.installer_pods import InstallerState
from trellis.provisioning.ledger import Entry
from trellis.provisioning.other_controllers import Controller, Peer
from trellis.provisioning.reasons import Reason
from trellis.provisioning.views import KWASM, UNDO, JobState, JobView, NodeView, Target
from trellis_dev.testing.builders import DIGEST, OTHER_DIGEST, a_job, a_node, failed, opted_in, verified_node

NODE = opted_in(a_node())
SLOT = Entry(DIGEST, 1, 1000)


def deciding(
    node: NodeView | None,
    *jobs: JobView,
    entry: Entry | None = None,
    published: frozenset[str] = frozenset(),
    installer: InstallerState | None = None,
    now: float = 1020.0,
    done_for: float = 10.0,
    other: Controller | None = None,
    pods_left: tuple[str, ...] = (),
) -> list[Action]:
    return decide(
        Snapshot(
            "node-1",
            node,
            jobs,
            entry,
            Target(((KWASM, DIGEST),)) if node is not None and node.opt_in == "true" else None,
            published,
            installer,
            verify_timeout=60.0,
            inspect_after=20.0,
            now=now,
            done_for=done_for,
            other=other,
            pods_left=pods_left,
            task=Task(Target(((KWASM, DIGEST),))),
        )
    )


def kinds(actions: list[Action]) -> list[str]:
    return [action.event.event_name if isinstance(action, Publish) else type(action).__name__ for action in actions]


def test_without_a_slot_no_job_is_made() -> None:
    assert deciding(NODE) == []


def test_a_slot_makes_the_job_of_its_attempt() -> None:
    assert deciding(NODE, entry=Entry(DIGEST, 3, 1000)) == [CreateJob(NODE, Task(Target(((KWASM, DIGEST),))), 3)]


def test_a_slot_with_nothing_left_to_change_makes_no_job() -> None:
    nothing = Target(())
    snapshot = Snapshot(
        "node-1",
        NODE,
        (),
        Entry(nothing.digest, 1, 1000, ("spin",)),
        nothing,
        frozenset(),
        None,
        verify_timeout=60.0,
        inspect_after=20.0,
        now=1020.0,
    )
    assert decide(snapshot) == []


def test_a_slot_for_what_is_no_longer_wanted_makes_no_job() -> None:
    assert deciding(NODE, entry=Entry(OTHER_DIGEST, 1, 1000)) == []


@pytest.mark.parametrize("recorded", [verified_node(NODE), failed(NODE)], ids=["verification", "failure"])
def test_a_recorded_result_is_not_processed_again(recorded: NodeView) -> None:
    assert deciding(recorded, entry=SLOT) == []


def test_a_job_deleted_by_hand_is_recreated_after_its_deletion() -> None:
    assert deciding(NODE, a_job(NODE, deleting=True), entry=SLOT) == []
    assert kinds(deciding(NODE, entry=SLOT)) == ["CreateJob"]


def test_work_on_an_unavailable_node_ends_at_its_deadline() -> None:
    unavailable = replace(NODE, ready=False)
    job = a_job(unavailable, failure_target="DeadlineExceeded: too long")
    published = frozenset({f"{job.uid}.started"})
    event, verdict = deciding(unavailable, job, entry=SLOT, published=published)
    assert isinstance(event, Publish)
    assert isinstance(verdict, JudgeFailed)
    assert verdict.reason is Reason.NODE_NOT_READY
    assert verdict.message.startswith("DeadlineExceeded: too long; ")
    assert deciding(unavailable, replace(job, failure="judged"), entry=SLOT, published=published) == []


@pytest.mark.parametrize(
    ("ready", "failure_target"), [(True, "DeadlineExceeded"), (False, "")], ids=["node is ready", "time is left"]
)
def test_work_is_not_ended_while(ready: bool, failure_target: str) -> None:
    node = replace(NODE, ready=ready)
    job = a_job(node, failure_target=failure_target)
    assert "JudgeFailed" not in kinds(deciding(node, job, entry=SLOT))


def test_another_installer_still_at_work_on_the_node_is_waited_for() -> None:
    other = a_job(NODE, digest=OTHER_DIGEST)
    assert "CreateJob" not in kinds(deciding(NODE, other, entry=SLOT))


def test_a_retry_deletes_the_failed_job_first() -> None:
    old = a_job(NODE, JobState.FAILED, failure="InstallerFailed: it broke")
    actions = deciding(failed(NODE), old, entry=Entry(DIGEST, 2, 1000))
    assert kinds(actions) == ["DeleteJob", "CreateJob"]


def test_an_earlier_job_never_outlives_a_newer_one() -> None:
    """While the bus is unavailable the end of a Job is not published, the Job stays for it, and work goes on."""
    earlier = a_job(NODE, JobState.COMPLETE, uid="earlier", name="earlier", digest=OTHER_DIGEST, created_at=900)
    newer = a_job(NODE, JobState.COMPLETE, uid="newer", name="newer", created_at=1000)
    first, *_ = deciding(verified_node(NODE), earlier, newer)
    assert first == DeleteJob(earlier, Reason.SUPERSEDED, foreground=False)


def test_a_failed_job_of_a_verified_target_is_deleted_without_evaluation() -> None:
    """It was created again after a user had deleted the verified one: the node has its target."""
    again = a_job(NODE, JobState.FAILED)
    assert deciding(verified_node(NODE), again) == [DeleteJob(again, Reason.SUPERSEDED, foreground=False)]


def test_remains_of_an_earlier_job_are_recorded_before_the_next_job_is_created() -> None:
    left = a_job(NODE, JobState.COMPLETE, digest=OTHER_DIGEST, installs="slight=ab")
    assert "DeleteJob" not in kinds(deciding(NODE, left, entry=SLOT))
    assert "CreateJob" not in kinds(deciding(NODE, left, entry=SLOT))


def test_a_try_stays_beside_the_job_that_takes_it_back() -> None:
    tried = a_job(NODE, JobState.FAILED, uid="try", name="try", created_at=900)
    undo = a_job(
        NODE, JobState.ACTIVE, uid="undo", name="undo", created_at=1000, operation=UNDO, rolls_back="InstallerFailed: x"
    )
    assert not [item for item in deciding(NODE, tried, undo) if isinstance(item, DeleteJob)]


def test_a_running_job_is_published_once_as_started() -> None:
    job = a_job(NODE)
    actions = deciding(NODE, job, entry=SLOT, now=1001)
    assert kinds(actions) == ["started", "LookAgain"]
    assert kinds(deciding(NODE, job, entry=SLOT, published=frozenset({f"{job.uid}.started"}), now=1001)) == [
        "LookAgain"
    ]


def test_success_is_published_before_the_label_and_the_job_is_deleted_after_it() -> None:
    job = a_job(NODE, JobState.COMPLETE)
    assert kinds(deciding(NODE, job, entry=SLOT)) == ["succeeded", "LookAgain"]
    published = frozenset({f"{job.uid}.succeeded"})
    assert kinds(deciding(NODE, job, entry=SLOT, published=published)) == ["LookAgain"]
    [delete] = deciding(verified_node(NODE), job, entry=SLOT, published=published)
    assert delete == DeleteJob(job, Reason.PROVISION_SUCCEEDED, foreground=False)


@pytest.mark.parametrize(
    ("done_for", "left"), [(0.0, 4.0), (3.5, 0.5), (4.0, None)], ids=["at its end", "later", "then"]
)
def test_a_job_that_is_done_keeps_out_of_the_way_of_the_next_ones(done_for: float, left: float | None) -> None:
    job = a_job(NODE, JobState.COMPLETE)
    actions = deciding(
        verified_node(NODE), job, entry=SLOT, published=frozenset({f"{job.uid}.succeeded"}), done_for=done_for
    )
    assert actions == [LookAgain(left) if left else DeleteJob(job, Reason.PROVISION_SUCCEEDED, foreground=False)]


def test_a_missing_handler_is_waited_for_and_then_a_failure_that_names_it() -> None:
    node = replace(NODE, handlers=frozenset({"runc"}))
    job = a_job(node, JobState.COMPLETE, handlers=frozenset({"spin"}))
    [look] = deciding(node, job, entry=SLOT)
    assert look == LookAgain(50.0)
    publish, verdict = deciding(node, job, entry=SLOT, done_for=61.0)
    assert kinds([publish]) == ["failed"]
    assert isinstance(verdict, JudgeFailed)
    assert verdict.reason is Reason.HANDLER_MISSING
    assert "'spin'" in verdict.message
    assert "runc" in verdict.message


def test_a_handler_that_shows_in_time_is_success() -> None:
    node = replace(NODE, handlers=frozenset({"spin"}))
    publish, _ = deciding(node, a_job(node, JobState.COMPLETE, handlers=frozenset({"spin"})), entry=SLOT)
    assert isinstance(publish, Publish)
    assert publish.event.model_dump()["verified"] == "handler"


def test_a_failed_job_is_judged_with_the_installers_own_last_words() -> None:
    installer = InstallerState(terminated="exit code 2", log_tail="mkdir /opt/kwasm: read-only file system\n")
    publish, verdict = deciding(NODE, a_job(NODE, JobState.FAILED), entry=SLOT, installer=installer)
    assert isinstance(verdict, JudgeFailed)
    assert "BackoffLimitExceeded" in verdict.message
    assert "exit code 2" in verdict.message
    assert verdict.message.endswith("mkdir /opt/kwasm: read-only file system")
    assert isinstance(publish, Publish)
    assert publish.event.model_dump()["message"] == verdict.message


def test_the_answer_of_the_installer_of_trellis_is_sufficient() -> None:
    problem = ShimResult("spin", problem="it says nothing to -v")
    result = InstallResult("install", Outcome.FAILED, FailureReason.SHIM_NOT_EXECUTABLE, "no shim", shims=(problem,))
    installer = InstallerState(terminated="exit code 1", log_tail=result.to_line())
    [_, verdict] = deciding(NODE, a_job(NODE, JobState.FAILED), entry=SLOT, installer=installer)
    assert isinstance(verdict, JudgeFailed)
    assert verdict.message == "ShimNotExecutable: no shim; spin: it says nothing to -v"
    rolled_back = replace(result, outcome=Outcome.ROLLED_BACK, reason=None, restarted=True, shims=())
    installer = InstallerState(log_tail=rolled_back.to_line())
    [_, verdict] = deciding(NODE, a_job(NODE, JobState.FAILED), entry=SLOT, installer=installer)
    assert isinstance(verdict, JudgeFailed)
    assert verdict.message.startswith("RolledBack: no shim (")


def test_a_failure_is_blamed_on_the_shims_that_the_installer_names() -> None:
    wanted = Target((("slight", "d2"), ("spin", "d1")))
    job = a_job(NODE, JobState.FAILED, installs="slight=d2 spin=d1", digest=wanted.digest)

    def blamed(*shims: ShimResult) -> str | None:
        result = InstallResult("install", Outcome.FAILED, FailureReason.DOWNLOAD_FAILED, "no", shims=shims)
        snapshot = Snapshot("node-1", NODE, (job,), None, wanted, frozenset(), None, 60.0, 20.0, 1020.0)
        [_, verdict] = decide(replace(snapshot, installer=InstallerState(log_tail=result.to_line())))
        assert isinstance(verdict, JudgeFailed)
        return verdict.blamed

    assert blamed(ShimResult("spin", "d1", problem="it says nothing"), ShimResult("slight", "d2")) == "spin=d1"
    assert blamed() is None
    assert blamed(ShimResult("another", "d9", problem="whose?")) is None


def test_a_judged_job_stays_for_inspection_until_the_retry() -> None:
    job = a_job(NODE, JobState.FAILED, failure="InstallerFailed: it broke")
    assert deciding(failed(NODE), job) == []


def test_an_installer_that_cannot_start_is_shown_before_its_deadline() -> None:
    job = a_job(NODE)
    installer = InstallerState(waiting="ErrImagePull: no such image")
    actions = deciding(
        NODE, job, entry=SLOT, published=frozenset({f"{job.uid}.started"}), installer=installer, now=1030
    )
    warn, look = actions
    assert isinstance(warn, WarnNode)
    assert "ErrImagePull: no such image" in warn.message
    assert look == LookAgain(20.0)


def test_the_pod_is_read_only_if_it_has_a_result() -> None:
    requested = {"inspect_after": 20.0}
    assert not inspect(None, now=2000, **requested)
    assert not inspect(a_job(NODE), now=1010, **requested)
    assert inspect(a_job(NODE), now=1020, **requested)
    assert inspect(a_job(NODE, JobState.FAILED), now=1010, **requested)
    assert not inspect(a_job(NODE, JobState.FAILED, failure="known"), now=1010, **requested)
    assert not inspect(a_job(NODE, JobState.COMPLETE), now=2000, **requested)


def test_opting_out_deletes_the_job_and_reports_it() -> None:
    job = a_job(NODE)
    [destroy] = deciding(a_node(), job, entry=SLOT)
    assert isinstance(destroy, GuardedDeletion)
    assert (destroy.target.kind, destroy.target.uid) == ("jobs", job.uid)
    publish, delete = destroy.steps
    assert kinds([publish]) == ["removed"]
    assert delete == DeleteJob(job, Reason.OPTED_OUT, foreground=True)


def test_the_deletion_of_a_finished_job_is_not_counted() -> None:
    job = a_job(NODE, JobState.COMPLETE)
    assert kinds(deciding(a_node(), job)) == ["removed", "DeleteJob"]


def of_spin(state: JobState = JobState.ACTIVE, digest: str = "d1", **changes: Any) -> JobView:
    return a_job(NODE, state, installs=f"spin={digest}", **changes)


def test_the_installer_of_trellis_is_stopped_so_that_its_work_stays_recorded() -> None:
    [destroy] = deciding(a_node(), of_spin(), entry=SLOT)
    assert isinstance(destroy, GuardedDeletion)
    assert destroy.steps == (EndJob(of_spin(), Reason.OPTED_OUT),)
    assert deciding(a_node(), of_spin(ends_now=True), entry=SLOT) == []
    assert kinds(deciding(a_node(), of_spin(JobState.FAILED))) == ["removed", "DeleteJob"]


def test_a_job_stays_until_the_node_names_what_it_left_there() -> None:
    job = of_spin(JobState.COMPLETE)
    assert "DeleteJob" not in kinds(deciding(a_node(), job))
    named = replace(verified_node(a_node(), "x", "job"), shims="spin=d1")
    assert "DeleteJob" in kinds(deciding(named, job))


def test_a_running_version_of_a_shim_to_remove_is_stopped_and_is_no_failure() -> None:
    node = with_shim()
    assert kinds(removing(node, jobs=(of_spin(digest="d2"),))) == ["GuardedDeletion"]
    ended = of_spin(JobState.FAILED, "d2", ends_now=True)
    assert kinds(removing(node, jobs=(ended,))) == ["DeleteJob", "CreateJob"]


@pytest.mark.parametrize("state", list(JobState))
def test_jobs_of_a_former_node_go_and_then_the_new_node_gets_its_own(state: JobState) -> None:
    old = a_job(opted_in(a_node(uid="uid-former")), state)
    delete, *others = deciding(NODE, old, entry=SLOT)
    assert delete == DeleteJob(old, Reason.NODE_REPLACED, foreground=False)
    create = CreateJob(NODE, Task(Target(((KWASM, DIGEST),))), 1)
    assert others == ([] if state is JobState.ACTIVE else [create])
    left = deciding(NODE, replace(old, deleting=True), entry=SLOT, pods_left=("ns/pod",))
    assert kinds(left) == ["WarnNode", "GiveBackSlot"]
    assert deciding(NODE, replace(old, deleting=True), entry=SLOT) == [create], "it may be so for long: pods count"
    assert deciding(NODE, entry=SLOT) == [create]


@pytest.mark.parametrize("state", list(JobState))
def test_while_shims_cannot_be_listed_no_job_is_made_judged_or_ended(state: JobState) -> None:
    node = replace(with_shim(), opt_in=None)
    snapshot = Snapshot(
        node.name, node, (of_spin(state),), Entry("d2", 1, 1000), None, frozenset(), None, 60.0, 20.0, 1020.0
    )
    assert decide(snapshot) != []
    assert decide(replace(snapshot, shims_unknown=True)) == []


def test_a_deleted_node_needs_no_work() -> None:
    assert deciding(None, a_job(NODE), entry=SLOT) == []


def with_shim(**changes: Any) -> NodeView:
    """Return a node on which the Shim spin is verified, and whose label is removed already."""
    node = verified_node(a_node(**changes), Target((("spin", "d1"),)).digest, "handler")
    return replace(node, shims="spin=d1", wasm=None, provisioned=None)


def removing(
    node: NodeView, *users: User, policy: RemovalPolicy | None = None, jobs: tuple[JobView, ...] = ()
) -> list[Action]:
    target = Target(())
    return decide(
        Snapshot(
            node.name,
            node,
            jobs,
            Entry(target.digest, 1, 1000, ("spin",)),
            target,
            frozenset(),
            None,
            verify_timeout=60.0,
            inspect_after=20.0,
            now=1020.0,
            users=users,
            policies=(("spin", policy),) if policy else (),
            task=Task(target),
        )
    )


POD = User("default", "hello", "uid-pod", "spin")


def test_a_shim_is_removed_once_its_label_is_deleted_and_it_is_unused() -> None:
    node = with_shim()
    assert removing(node) == [CreateJob(node, Task(Target(())), 1)]
    labelled = replace(node, labels=(("spin", "provisioned"),))
    assert [type(action) for action in removing(labelled)] == [GiveBackSlot]


@pytest.mark.parametrize("policy", [None, RemovalPolicy.REFUSE], ids=["by default", "as asked"])
def test_pods_in_use_refuse_the_removal_and_give_the_slot_back(policy: RemovalPolicy | None) -> None:
    warning, back = removing(with_shim(), POD, policy=policy)
    assert isinstance(warning, WarnNode)
    assert warning.reason is Reason.IN_USE
    assert "default/hello" in warning.message
    assert isinstance(back, GiveBackSlot)
    assert back.reason == warning.message  # the Shim's status says so too


def test_draining_asks_the_pods_to_leave_and_looks_again() -> None:
    node = with_shim()
    evict, again = removing(node, POD, policy=RemovalPolicy.DRAIN)
    assert evict == EvictPod(node, POD)
    assert isinstance(again, LookAgain)


AT = 1_000
"""When the slot of the node to drain was assigned."""


LABEL = ("spin", "provisioned")


def draining(*users: User, now: float = AT + 10.0, labels: tuple[tuple[str, str], ...] = ()) -> list[Action]:
    """Decide about a node whose Shim is to be changed, and whose pods are evicted before, within 300 s."""
    node, target = replace(with_shim(), labels=labels), Target((("spin", "2"),))
    return decide(
        Snapshot(
            *("node-1", node, (), Entry(target.digest, 1, AT, ("spin",)), target, frozenset(), None, 60.0, 20.0, now),
            users=users,
            task=Task(target),
            draining=frozenset({"spin"}),
            drain_timeout=300.0,
        )
    )


def guest(controller: str = "ReplicaSet", created_at: int = AT - 1) -> User:
    return User("default", "hello", "uid-pod", "spin", controller, created_at)


def test_pods_are_evicted_before_their_shim_is_changed() -> None:
    evict, again = draining(guest())
    assert evict == EvictPod(with_shim(), guest(), Reason.CLAIMED)
    assert isinstance(again, LookAgain)
    assert kinds(draining()) == ["CreateJob"]


def test_no_pod_is_evicted_from_a_node_that_has_the_label_of_its_shim() -> None:
    assert draining(guest(), labels=(LABEL,)) == [LookAgain(NodeTimings().labels)]
    assert draining(labels=(LABEL,)) == [LookAgain(NodeTimings().labels)], "a pod can be placed there until then"
    assert kinds(draining(labels=(("zone", "a"),))) == ["CreateJob"]


def test_a_node_that_keeps_its_label_is_not_changed_and_names_the_service_that_removes_it() -> None:
    warning, back = draining(guest(), now=AT + 300.0, labels=(LABEL,))
    assert isinstance(warning, WarnNode)
    assert warning.reason is Reason.DRAIN_BLOCKED
    assert isinstance(back, GiveBackSlot)
    assert not lacking(warning.message, "spin=provisioned", "node_watcher", names.LEDGER)


def test_a_pod_that_was_placed_until_the_label_was_removed_is_evicted_too() -> None:
    late = guest(created_at=AT + 5)
    assert draining(late)[0] == EvictPod(with_shim(), late, Reason.CLAIMED)


@pytest.mark.parametrize(
    "user",
    [
        pytest.param(guest("DaemonSet"), id="of a DaemonSet"),
        pytest.param(guest("Node"), id="static"),
        pytest.param(guest(""), id="that nothing creates again"),
        pytest.param(guest(created_at=AT + 6), id="that names its node itself, and came back"),
    ],
)
def test_a_pod_is_not_evicted(user: User) -> None:
    assert kinds(draining(user)) == ["CreateJob"]


def test_a_node_that_cannot_be_drained_gives_its_slot_back_and_is_not_changed() -> None:
    warning, back = draining(guest(), now=AT + 300.0)
    assert isinstance(warning, WarnNode)
    assert warning.reason is Reason.DRAIN_BLOCKED
    assert isinstance(back, GiveBackSlot)
    assert back.reason == warning.message
    assert not lacking(warning.message, "default/hello")


def test_force_removes_it_under_the_pods() -> None:
    assert kinds(removing(with_shim(), POD, policy=RemovalPolicy.FORCE)) == ["CreateJob"]


OTHER = Controller(Peer.KWASM, "kwasm", "kwasm-operator", "uid-1")


def test_beside_another_controller_no_job_is_made_and_the_node_states_the_reason() -> None:
    [warning] = deciding(NODE, entry=SLOT, other=OTHER)
    assert isinstance(warning, WarnNode)
    assert warning.reason is Reason.OTHER_CONTROLLER
    assert lacking(warning.message, "kwasm/kwasm-operator", "trellis migrate kwasm --take-over") == []
    assert "trellis migrate kwasm --take-over" in warning.message


def test_a_job_that_runs_already_is_followed_to_its_end_beside_another_controller() -> None:
    assert kinds(deciding(NODE, a_job(NODE), entry=SLOT, other=OTHER)) == ["started", "LookAgain"]


def test_an_opted_in_node_without_a_target_reports_it() -> None:
    snapshot = Snapshot("node-1", NODE, (), None, None, frozenset(), None, 60.0, 20.0, 1020.0, unserved=True)
    [warning] = decide(snapshot)
    assert isinstance(warning, WarnNode)
    assert warning.reason is Reason.NOTHING_TO_INSTALL
    assert lacking(warning.message, "trellis.dev/kwasm-default=true", "TRELLIS_INSTALLER_IMAGE") == []
    assert decide(replace(snapshot, unserved=False)) == []
    assert decide(replace(snapshot, target=Target((("spin", "1"),)))) == []
