"""Verification of an installation: accepted, tried by a pod, or rolled back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeGuard

import pytest

from provisioner.domain.actions import (
    Action,
    CreateCanary,
    CreateUndo,
    DeleteCanary,
    DeleteJob,
    JudgeFailed,
    LookAgain,
    Publish,
    Snapshot,
    VerifyJob,
)
from provisioner.domain.canary import Canary, CanaryPod, canary_of, trial_of
from provisioner.domain.canary_resources import make_canary_class, make_canary_pod, view_canary
from provisioner.domain.decide import decide
from provisioner.settings import Settings
from support.suite.naming import lacking
from trellis import names
from trellis.events.provision import ProvisionSucceeded
from trellis.installer_api.result import FailureReason, InstallResult, Outcome
from trellis.provisioning.installer_pods import InstallerState
from trellis.provisioning.ledger import Entry
from trellis.provisioning.leftovers import fulfilled
from trellis.provisioning.reasons import Reason
from trellis.provisioning.shims import Verification
from trellis.provisioning.views import (
    UNDO,
    JobState,
    JobView,
    NodeView,
    Target,
    VerifiedBy,
    encode_digests,
    verification_of,
)
from trellis_dev.testing.builders import a_job, a_node, a_shim

OURS = "trellis.example/node-installer:1"
TARGET = Target((("wasmtime", "v1"),))
CANARY = Canary("wasmtime", "uid-wasmtime", "wasmtime", OURS, ("/canary.wasm",))


def a_shims_job(node: NodeView, state: JobState = JobState.COMPLETE, **changes: Any) -> JobView:
    """Return a Job that put the shim wasmtime, in version v1, onto the node."""
    given: dict[str, Any] = {
        "digest": TARGET.digest,
        "handlers": frozenset({"wasmtime"}),
        "installs": encode_digests(dict(TARGET.shims)),
        "canaries": frozenset({"wasmtime"}),
    }
    return a_job(node, state, **given | changes)


def a_pod(job: JobView, phase: str = "Running", **changes: Any) -> CanaryPod:
    pod = CanaryPod("trellis-installers", "canary", "uid-canary", "1", job.uid, job.node, "wasmtime", phase)
    return replace(pod, **changes)


def a_snapshot(node: NodeView, *jobs: JobView, **changes: Any) -> Snapshot:
    """Return a snapshot 5 s after a Job ended, of a node that is to have the shim."""
    snapshot = Snapshot(
        name=node.name,
        node=node,
        jobs=jobs,
        entry=Entry(TARGET.digest, 1, 1000, ("wasmtime",)),
        target=TARGET,
        published=frozenset(),
        installer=None,
        verify_timeout=60,
        inspect_after=20,
        now=1015,
        done_for=5,
        canaries=(CANARY,),
    )
    return replace(snapshot, **changes)


LISTS = a_node(handlers=frozenset({"", "runc", "wasmtime"}))
SILENT = a_node(runtime_version="containerd://1.6.33")
MARKED = replace(
    LISTS,
    shims="wasmtime=v0",
    digest=Target((("wasmtime", "v0"),)).digest,
    verified="canary",
    marked_uid=LISTS.uid,
)


def only(actions: list[Action], kind: type[Any]) -> Any:
    [found] = [action for action in actions if isinstance(action, kind)]
    return found


# --- which Shims are tried ---


@pytest.mark.parametrize(
    ("handler", "verification", "image"),
    [
        pytest.param("wasmtime", Verification(), OURS, id="runs a WASI command"),
        pytest.param("spin", Verification(), None, id="runs applications of its own kind"),
        pytest.param("spin", Verification(canary=True), OURS, id="asked for"),
        pytest.param("spin", Verification(canary_image="x/y:1"), "x/y:1", id="brings its own"),
        pytest.param("wasmtime", Verification(canary=False), None, id="not wanted"),
        pytest.param("spin", Verification(canary=False, canary_image="x/y:1"), None, id="not wanted at all"),
    ],
)
def test_handler_and_verification_determine_the_canary(
    handler: str, verification: Verification, image: str | None
) -> None:
    canary = canary_of(a_shim("s", handler=handler, verification=verification), OURS)
    assert (canary and canary.image) == image
    assert canary is None or canary.command == (("/canary.wasm",) if image == OURS else ())


# --- verification ---


@pytest.mark.parametrize(
    ("node", "changes", "verified_by"),
    [
        pytest.param(LISTS, {}, None, id="listed, not yet tried"),
        pytest.param(LISTS, {"verified_by": VerifiedBy.CANARY}, VerifiedBy.CANARY, id="listed and tried"),
        pytest.param(LISTS, {"verified_by": VerifiedBy.HANDLER}, VerifiedBy.HANDLER, id="one of several tried"),
        pytest.param(LISTS, {"canaries": frozenset()}, VerifiedBy.HANDLER, id="nothing to try it with"),
        pytest.param(
            replace(LISTS, handlers=frozenset({"runc"})), {"verified_by": VerifiedBy.CANARY}, None, id="not listed"
        ),
        pytest.param(SILENT, {"verified_by": VerifiedBy.CANARY}, VerifiedBy.CANARY, id="nothing listed, but tried"),
        pytest.param(SILENT, {"verified_by": VerifiedBy.HANDLER}, None, id="nothing listed, one not tried"),
        pytest.param(SILENT, {"canaries": frozenset()}, None, id="nothing listed, nothing tried"),
        pytest.param(LISTS, {"operation": UNDO, "canaries": frozenset()}, None, id="a rollback verifies nothing"),
    ],
)
def test_verified_handlers(node: NodeView, changes: dict[str, Any], verified_by: VerifiedBy | None) -> None:
    assert verification_of(a_shims_job(node, **changes), node) is verified_by


def test_a_removal_keeps_the_verification_of_what_stays_on_a_node_that_lists_nothing() -> None:
    node = replace(MARKED, handlers=frozenset())
    job = a_shims_job(node, operation="remove", installs="", removed_handlers=frozenset({"wasmtime"}))
    assert verification_of(job, node) is VerifiedBy.CANARY


# --- the trial ---


@pytest.mark.parametrize("node", [LISTS, SILENT], ids=["containerd 2", "containerd 1.6"])
def test_a_pod_is_made_once_the_installer_succeeded(node: NodeView) -> None:
    job = a_shims_job(node)
    actions = decide(a_snapshot(node, job))
    assert only(actions, CreateCanary).canary == CANARY
    assert only(actions, LookAgain).seconds == 55


def test_a_pod_does_not_wait_for_the_kubelets_list_and_does_not_stand_for_it() -> None:
    node = replace(LISTS, handlers=frozenset({"runc"}))
    job = a_shims_job(node)
    assert only(decide(a_snapshot(node, job)), CreateCanary)
    assert decide(a_snapshot(node, replace(job, verified_by=VerifiedBy.CANARY))) == [LookAgain(55)]


def test_a_pod_that_runs_is_waited_for() -> None:
    job = a_shims_job(LISTS)
    assert decide(a_snapshot(LISTS, job, pods=(a_pod(job),))) == [LookAgain(55)]


def test_a_pod_of_a_former_job_counts_for_nothing() -> None:
    job = a_shims_job(LISTS)
    former = a_pod(replace(job, uid="former"), "Succeeded")
    assert only(decide(a_snapshot(LISTS, job, pods=(former,))), CreateCanary)


def test_the_result_of_a_verification_pod_is_recorded_on_the_job_and_then_published() -> None:
    job = a_shims_job(LISTS)
    passed = (a_pod(job, "Succeeded"),)
    assert decide(a_snapshot(LISTS, job, pods=passed)) == [VerifyJob(job, VerifiedBy.CANARY)]
    verified = replace(job, verified_by=VerifiedBy.CANARY)
    event = only(decide(a_snapshot(LISTS, verified, pods=passed)), Publish).event
    assert isinstance(event, ProvisionSucceeded)
    assert event.verified == "canary"


def test_a_job_of_two_shims_with_one_canary_is_verified_by_its_handlers() -> None:
    shims = {"wasmtime": "v1", "spin": "v1"}
    job = a_shims_job(LISTS, installs=encode_digests(shims))
    assert decide(a_snapshot(LISTS, job, pods=(a_pod(job, "Succeeded"),))) == [VerifyJob(job, VerifiedBy.HANDLER)]


def test_a_shim_that_is_no_longer_wanted_is_not_tried() -> None:
    job = a_shims_job(LISTS)
    assert decide(a_snapshot(LISTS, job, canaries=())) == [VerifyJob(job, VerifiedBy.HANDLER)]


def test_an_evicted_pod_is_recreated() -> None:
    job = a_shims_job(LISTS)
    evicted = a_pod(job, "Failed", interrupted=True)
    assert decide(a_snapshot(LISTS, job, pods=(evicted,))) == [
        DeleteCanary(evicted, Reason.VERIFICATION_FAILED),
        LookAgain(55),
    ]


# --- taking back ---


def test_a_failed_shim_is_rolled_back_before_it_is_judged() -> None:
    job = a_shims_job(LISTS)
    pod = a_pod(job, "Failed", trouble="exit code 1 (Error): this shim is broken")
    actions = decide(a_snapshot(LISTS, job, pods=(pod,)))
    undo = only(actions, CreateUndo)
    assert undo.task.blamed == f"wasmtime={job.shims['wasmtime']}"
    assert undo.reason is Reason.CANARY_FAILED
    assert "this shim is broken" in undo.task.reason
    assert only(actions, DeleteCanary).pod == pod
    assert not any(isinstance(action, JudgeFailed) for action in actions)


@pytest.mark.parametrize(
    ("pod", "expected_text"),
    [
        pytest.param({"trouble": "FailedCreatePodSandBox: no answer"}, "FailedCreatePodSandBox: no answer", id="told"),
        pytest.param({}, "", id="silent"),
    ],
)
def test_a_pod_that_does_not_end_in_time_has_failed(pod: dict[str, str], expected_text: str) -> None:
    job = a_shims_job(LISTS)
    undo = only(decide(a_snapshot(LISTS, job, pods=(a_pod(job, "Pending", **pod),), done_for=61)), CreateUndo)
    assert undo.reason is Reason.CANARY_FAILED
    assert expected_text in undo.task.reason


def test_a_handler_that_never_shows_is_rolled_back_too() -> None:
    node = replace(LISTS, handlers=frozenset({"runc"}))
    job = a_shims_job(node, verified_by=VerifiedBy.CANARY)
    undo = only(decide(a_snapshot(node, job, done_for=61)), CreateUndo)
    assert undo.reason is Reason.HANDLER_MISSING


def test_a_node_without_listed_handlers_names_the_remedy() -> None:
    job = a_shims_job(SILENT, canaries=frozenset())
    undo = only(decide(a_snapshot(SILENT, job, done_for=61)), CreateUndo)
    assert lacking(undo.task.reason, "'wasmtime'", "containerd://1.6.33", "spec.verify.canaryImage") == []


def test_nothing_is_rolled_back_on_an_unavailable_node() -> None:
    node = replace(LISTS, ready=False)
    judged = only(decide(a_snapshot(node, a_shims_job(node), done_for=61)), JudgeFailed)
    assert not judged.disruptive


@pytest.mark.parametrize(
    ("state", "failed_too"),
    [(JobState.COMPLETE, False), (JobState.FAILED, True)],
)
def test_the_verdict_comes_with_the_end_of_the_rollback(state: JobState, failed_too: bool) -> None:
    result = InstallResult("uninstall", Outcome.FAILED, FailureReason.SHIMS_IN_USE, "pods run").to_line()
    tried = a_shims_job(LISTS)
    undo = a_shims_job(
        LISTS, state, uid="undo", operation=UNDO, installs="", rolls_back="CanaryFailed: it broke", created_at=1020
    )
    snapshot = a_snapshot(LISTS, tried, undo, installer=InstallerState(log_tail=result))
    judged = only(decide(snapshot), JudgeFailed)
    assert judged.job == undo
    assert judged.reason is Reason.CANARY_FAILED
    assert judged.message.startswith("it broke; ")
    assert ("ShimsInUse: pods run" in judged.message) is failed_too
    assert judged.disruptive
    failed = replace(undo, failure="CanaryFailed: it broke")
    assert decide(replace(snapshot, jobs=(tried, failed))) == []


def test_a_rollback_on_a_node_that_disappeared_ends_at_its_deadline() -> None:
    unavailable = replace(LISTS, ready=False)
    undo = a_shims_job(
        unavailable,
        JobState.ACTIVE,
        operation=UNDO,
        rolls_back="CanaryFailed: it broke",
        failure_target="DeadlineExceeded",
    )
    judged = only(decide(a_snapshot(unavailable, undo)), JudgeFailed)
    assert judged.reason is Reason.CANARY_FAILED
    assert judged.message.startswith("it broke; ")
    assert "JudgeFailed" not in [type(action).__name__ for action in decide(a_snapshot(LISTS, undo))]


def test_the_job_that_rolls_back_is_the_newest_even_within_one_second() -> None:
    tried = a_shims_job(LISTS, name="zzz")
    undo = replace(tried, name="aaa", uid="undo", operation=UNDO, rolls_back="CanaryFailed: x")
    assert isinstance(decide(a_snapshot(LISTS, tried, undo))[-1], JudgeFailed)


# --- no longer wanted ---


def test_a_rollback_continues_after_the_shim_is_no_longer_needed() -> None:
    tried = a_shims_job(LISTS, failure=None)
    undo = a_shims_job(
        LISTS, JobState.ACTIVE, uid="undo", operation=UNDO, installs="", rolls_back="CanaryFailed: x", created_at=1020
    )
    deleted = [action.job for action in decide(a_snapshot(LISTS, tried, undo, target=None)) if is_deletion(action)]
    assert deleted == [tried]
    done = replace(undo, state=JobState.COMPLETE)
    assert only(decide(a_snapshot(LISTS, done, target=None)), DeleteJob).job == done


def test_a_slot_is_kept_until_the_verdict_on_what_was_rolled_back_is_recorded() -> None:
    undo = a_shims_job(LISTS, operation=UNDO, installs="", rolls_back="CanaryFailed: x")
    assert not fulfilled(undo, LISTS)


def is_deletion(action: Action) -> TypeGuard[DeleteJob]:
    return isinstance(action, DeleteJob)


# --- manifests ---


def test_a_canary_may_do_nothing_but_run_and_goes_where_no_label_leads_yet() -> None:
    job = a_shims_job(a_node("a." * 60 + "b"))
    pod = make_canary_pod(Settings(node_installer_image=OURS).installer(), job, CANARY, 60)
    made = make_canary_class(CANARY)
    assert len(pod["metadata"]["name"]) <= 63
    assert pod["spec"]["runtimeClassName"] == made["metadata"]["name"]
    assert made["handler"] == "wasmtime"
    assert "scheduling" not in made
    assert pod["spec"]["nodeName"] == job.node
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert pod["spec"]["securityContext"]["runAsNonRoot"]
    [container] = pod["spec"]["containers"]
    assert container["command"] == ["/canary.wasm"]
    assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    metadata = pod["metadata"] | {"uid": "u", "resourceVersion": "1"}
    seen = view_canary(pod | {"metadata": metadata, "status": {"phase": "Running"}})
    assert (seen.job_uid, seen.node, seen.shim, seen.phase) == (job.uid, job.node, "wasmtime", "Running")


ENDED = {"exitCode": 1, "reason": "Error", "message": "this shim\n is broken"}


@pytest.mark.parametrize(
    ("status", "interrupted", "trouble"),
    [
        pytest.param({}, False, "", id="new"),
        pytest.param(
            {"containerStatuses": [{"state": {"terminated": ENDED}}]},
            False,
            "exit code 1 (Error): this shim is broken",
            id="ended",
        ),
        pytest.param(
            {"containerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull", "message": "no such"}}}]},
            False,
            "ErrImagePull: no such",
            id="no image",
        ),
        pytest.param(
            {"containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}]}, False, "", id="starts"
        ),
        pytest.param({"reason": "Evicted", "message": "disk"}, True, "Evicted: disk", id="evicted"),
        pytest.param({"reason": "DeadlineExceeded"}, False, "DeadlineExceeded", id="too slow"),
        pytest.param(
            {"containerStatuses": [{"state": {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown"}}}]},
            True,
            "exit code 137 (ContainerStatusUnknown)",
            id="the node was restarted",
        ),
    ],
)
def test_a_pods_status_in_words(status: dict[str, Any], interrupted: bool, trouble: str) -> None:
    metadata = {"namespace": "n", "name": "p", "uid": "u", "resourceVersion": "1"}
    pod = view_canary({"metadata": metadata, "status": {"phase": "Failed", **status}})
    assert (pod.interrupted, pod.trouble) == (interrupted, trouble)


def test_a_pod_that_is_being_deleted_is_waited_for() -> None:
    job = a_shims_job(LISTS)
    deleting = a_pod(job, "Failed", interrupted=True, deleting=True)
    trial = trial_of(job, [CANARY], [deleting], overdue=False)
    assert (trial.begin, trial.again, trial.failed, trial.passed) == ((), (), (), False)


def test_the_names_of_canaries_fit() -> None:
    assert len(names.canary_name("n" * 253, "uid", "s" * 253)) <= 63
    assert len(names.canary_class("uid", "h" * 63)) <= 253


def test_a_pod_that_could_not_be_created_in_time_fails_in_the_api_servers_words() -> None:
    trial = trial_of(a_shims_job(LISTS), [CANARY], [], overdue=True, refused="exceeded quota: none")
    assert trial.failed == ("wasmtime",)
    assert "exceeded quota: none" in trial.message
