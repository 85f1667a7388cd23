"""Pods on changed nodes: as ready as before, or the rollout waits and halts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from provisioner.domain.pod_readiness import Judgement, RolloutPod, Work, Workloads, baseline_of, judge
from support.suite.naming import lacking
from trellis.crds.conditions import make_condition
from trellis.crds.shim import WorkloadPolicy
from trellis.provisioning.attempts import ShimLimits
from trellis.provisioning.shim_status import Reason
from trellis.provisioning.workload_state import Baseline, WorkloadState

BEGAN, ENDED, NOW = 1_000, 1_030, 1_100.0
TIMEOUT = 300.0
WAIT = ShimLimits(None, workloads=WorkloadPolicy.WAIT, workload_timeout=TIMEOUT, runtime_class="spin", content="v2")
HALT = replace(WAIT, workloads=WorkloadPolicy.HALT)


def pod(name: str = "web-1", node: str = "node-1", **changes: Any) -> RolloutPod:
    found = RolloutPod("shop", name, node, "Deployment", "web", created_at=500, ready=True, ready_since=600)
    return replace(found, **changes)


def unready(name: str = "web-1", node: str = "node-1", **changes: Any) -> RolloutPod:
    return pod(name, node, ready=False, **changes)


BROKEN: dict[str, Any] = {"broken": True, "reason": "ShimError", "message": "container app ended with status 137"}


def before(*pods: RolloutPod, node: str = "node-1") -> Baseline:
    return baseline_of(node, pods, 10.0, BEGAN)


def state(*pods: RolloutPod, **changes: Any) -> WorkloadState:
    """Return the record of node-1, which has ended, with these pods before it began."""
    return replace(WorkloadState("v2", {"uid-1": before(*pods)}, ENDED), **changes)


def judging(
    former: WorkloadState | None,
    *pods: RolloutPod,
    limits: ShimLimits = WAIT,
    now: float = NOW,
    work: Work | None = None,
    unread: bool = False,
) -> Judgement:
    by_class: dict[str, Sequence[RolloutPod]] | None = None if unread else {"spin": pods}
    workloads = Workloads(by_class, "pods is forbidden" if unread else "")
    return judge(limits, former, workloads, work or Work(latest=now + 300), now)


def test_a_record_counts_the_ready_pods_of_each_owner_on_the_node_alone() -> None:
    two = [pod("web-1"), unready("web-2"), pod("web-3", "node-2")]
    others = [pod("api-1", owner_name="api"), unready("dead-1", owner_name="dead")]
    found = before(*two, *others)
    assert (found.node, found.since) == ("node-1", BEGAN)
    assert found.owners == {two[0].owner: (1, 2), others[0].owner: (1, 1)}


@pytest.mark.parametrize(
    "now_there",
    [
        pytest.param([pod()], id="the same pod is ready"),
        pytest.param([unready("web-0"), pod()], id="a pod that was not ready before holds nothing"),
        pytest.param([pod("web-9", "node-2", created_at=1_010)], id="it moved to another node and is ready there"),
        pytest.param([], id="it was scaled down, or its owner was deleted"),
        pytest.param([pod("web-7", "node-2", created_at=1)], id="scaled down to pods that are elsewhere"),
        pytest.param([pod(ready=False, completed=True)], id="it completed"),
        pytest.param([unready(failed=True)], id="a failed pod is replaced by its owner"),
        pytest.param([unready("web-8", "node-2", created_at=1), pod()], id="a pod elsewhere was never on the node"),
    ],
)
def test_pods_are_as_ready_as_before_if(now_there: list[RolloutPod]) -> None:
    extra = [item for item in now_there if item.name == "web-0"]
    found = judging(state(pod(), *extra), *now_there)
    assert found.open
    assert found.waits is None
    assert found.state.is_empty


@pytest.mark.parametrize(
    "now_there",
    [
        pytest.param([unready()], id="the pod is not ready"),
        pytest.param([pod(ready_since=1_095)], id="it is ready for a moment only"),
        pytest.param([unready("web-9", "node-2", created_at=1_010)], id="it moved, and is not ready there"),
        pytest.param([unready("web-9", "", created_at=1_010)], id="it has no node any more"),
        pytest.param([pod(deleting=True)], id="it is still being deleted"),
        pytest.param(
            [unready(), pod("web-9", "node-2", created_at=1_010)],
            id="its owner was scaled up, and it stayed on the node",
        ),
        pytest.param(
            [unready("web-9", "node-2", created_at=1_010), unready(completed=True)],
            id="a shutdown has ended it without an error, and its successor is not ready",
        ),
    ],
)
def test_a_rollout_waits_while(now_there: list[RolloutPod]) -> None:
    found = judging(state(pod()), *now_there)
    assert not found.open
    assert found.state.baselines.keys() == {"uid-1"}
    assert found.state.halt is None
    assert found.waits is not None
    assert found.waits.pod == f"shop/{now_there[0].name}"
    assert found.wake_in == 5.0


@pytest.mark.parametrize(
    ("kind", "is_open"),
    [
        pytest.param("Job", False, id="a Job may not create another"),
        pytest.param("", False, id="nothing replaces a pod without an owner"),
        pytest.param("ReplicaSet", True, id="a ReplicaSet creates another"),
    ],
)
def test_a_pod_that_failed_counts_as_not_ready_unless_its_owner_replaces_it(kind: str, is_open: bool) -> None:
    name = "batch" if kind else ""
    found = judging(
        state(pod(owner_kind=kind, owner_name=name)), unready(owner_kind=kind, owner_name=name, failed=True)
    )
    assert found.open is is_open


def test_a_failed_pod_of_a_job_does_not_count_once_the_job_has_created_another() -> None:
    mine = pod(owner_kind="Job", owner_name="batch", created_at=900)
    failed = replace(mine, ready=False, failed=True)
    retry = replace(mine, name="batch-2", node="node-2", created_at=1_040)
    assert judging(state(mine), failed, retry).open
    assert not judging(state(mine), failed, replace(retry, ready=False)).open
    assert not judging(state(mine), failed, replace(retry, created_at=900)).open, "a parallel one"


def test_a_pod_of_a_daemonset_on_another_node_does_not_count_for_this_one() -> None:
    mine = pod(owner_kind="DaemonSet", owner_name="agent")
    other = replace(mine, name="agent-2", node="node-2", created_at=1_010)
    assert not judging(state(mine), replace(mine, ready=False), other).open


def test_the_node_is_not_evaluated_until_its_kubelet_may_have_reported_the_restart() -> None:
    early = judging(state(pod()), pod(), now=ENDED + 4.0)
    assert (early.open, early.state.halt, early.wake_in) == (False, None, 5.0)
    assert judging(state(pod()), pod(), now=ENDED + 8.0).wake_in == 2.0
    assert judging(state(pod()), pod(), now=ENDED + 10.0).open


def test_wait_halts_at_the_timeout_and_names_the_pod() -> None:
    waiting = judging(state(pod()), unready(**BROKEN), now=ENDED + TIMEOUT - 1)
    assert (waiting.state.halt, waiting.wake_in) == (None, 1.0)
    now = ENDED + TIMEOUT
    halted = judging(state(pod()), unready(**BROKEN), now=now).state.halt
    assert halted is not None
    assert halted.reason == Reason.WORKLOAD_NOT_READY.value
    assert (halted.at, halted.pod, halted.node, halted.cause) == (now, "shop/web-1", "node-1", "ShimError")


def test_halt_halts_at_the_first_pod_that_fails_and_not_at_one_that_starts() -> None:
    starting = unready("web-0", reason="Starting")
    assert judging(state(pod("web-0"), pod()), starting, pod(), limits=HALT).state.halt is None
    halted = judging(state(pod("web-0"), pod()), starting, unready(**BROKEN), limits=HALT).state.halt
    assert halted is not None
    assert halted.pod == "shop/web-1"
    assert judging(state(pod()), unready(**BROKEN), limits=HALT, now=ENDED + 5.0).state.halt is None
    assert judging(state(pod()), unready(), limits=HALT, now=ENDED + TIMEOUT).state.halt is not None


def test_a_halt_keeps_its_time_and_ends_once_the_pods_are_ready() -> None:
    first = judging(state(pod()), unready(**BROKEN), limits=HALT)
    second = judging(first.state, unready(reason="Starting"), limits=HALT, now=NOW + 60)
    assert second.state.halt is not None
    assert second.state.halt.at == NOW
    assert judging(second.state, pod(), limits=HALT, now=NOW + 90).open


def test_resuming_accepts_the_pods_as_they_are() -> None:
    halted = judging(state(pod()), unready(**BROKEN), limits=HALT).state
    resumed = replace(HALT, acknowledged=int(NOW))
    found = judging(halted, unready(**BROKEN), limits=resumed, now=NOW + 1)
    assert found.open
    assert found.state.is_empty
    early = replace(HALT, acknowledged=int(NOW) - 1)
    assert not judging(halted, unready(**BROKEN), limits=early, now=NOW + 1).open
    future = replace(HALT, acknowledged=10**9)
    assert not judging(halted, unready(**BROKEN), limits=future, now=NOW + 1).open


def test_resuming_keeps_the_record_of_a_node_in_progress() -> None:
    both = {"uid-1": before(pod()), "uid-2": before(pod("web-2", "node-2"), node="node-2")}
    halted = judging(replace(state(), baselines=both), unready(**BROKEN), limits=HALT, work=Work({"uid-2": "node-2"}))
    resumed = replace(HALT, acknowledged=int(NOW))
    found = judging(halted.state, unready(**BROKEN), limits=resumed, work=Work({"uid-2": "node-2"}, latest=NOW + 300))
    assert found.state.baselines.keys() == {"uid-2"}


def test_another_version_ends_the_halt_and_repairs_the_nodes_with_such_pods_first() -> None:
    halted = judging(state(pod()), unready(**BROKEN), limits=HALT).state
    undone = replace(HALT, content="v1")
    found = judging(halted, unready(**BROKEN), limits=undone, now=NOW + 5)
    assert found.state.halt is None
    assert found.state.content == "v1"
    assert not found.holds("uid-1")
    assert found.holds("uid-2")


def test_a_pod_on_a_node_in_progress_is_not_blamed() -> None:
    """It moved from node-1 to node-2, whose runtime is restarted just now."""
    moved = unready("web-9", "node-2", created_at=1_010, **BROKEN)
    going = Work({"uid-2": "node-2"}, latest=NOW + 300)
    late = ENDED + TIMEOUT + 100
    found = judging(state(pod()), moved, work=going, now=late, limits=HALT)
    assert (found.open, found.state.halt) == (False, None)
    ended = judging(found.state, moved, work=Work(ended=True, latest=late + 300), now=late)
    assert (ended.state.ended, ended.state.halt) == (late, None)


def test_a_pod_without_a_node_is_not_blamed_while_another_node_is_drained() -> None:
    evicted = unready("web-9", "", created_at=1_010, broken=True, reason="NoNodeWithLabel")
    late = ENDED + TIMEOUT + 100
    waiting = judging(state(pod()), evicted, work=Work({"uid-2": "node-2"}, latest=late), now=late, limits=HALT)
    assert (waiting.open, waiting.state.halt) == (False, None)
    assert judging(state(pod()), evicted, now=late, limits=HALT).state.halt is not None


def test_the_pods_of_a_single_node_that_is_drained_halt_nothing() -> None:
    evicted = unready("web-9", "", created_at=1_010, broken=True, reason="NoNodeWithLabel")
    going = Work({"uid-1": "node-1"}, latest=NOW)
    found = judging(state(pod(), ended=0), evicted, work=going, limits=HALT)
    assert (found.open, found.waits, [*found.state.baselines]) == (True, None, ["uid-1"])
    placed = judging(found.state, pod("web-9", created_at=1_010, ready_since=1_105), work=Work(ended=True), now=1_120.0)
    assert placed.state.halt is None


def test_pods_with_the_program_of_a_former_version_are_named_with_the_command_that_deletes_them() -> None:
    """As after a rollback: neither it nor a restart of the container changes the program of a sandbox."""
    pods = [unready(f"web-{number}", **BROKEN) for number in range(5)]
    waits = judging(state(*(pod(item.name) for item in pods)), *pods).waits
    assert waits is not None
    assert not lacking(waits.message, "`kubectl delete pod -n shop web-0 web-1 web-2`", "2 more")
    assert "web-3" not in waits.message


def test_a_condition_has_reason_pod_node_and_command_of_a_long_cause() -> None:
    name = "checkout-7db8666b59-4mlfl"
    cause = "container main ended with status 137, as after SIGKILL (1 restarts); its log is unknown: `trellis explain`"
    waits = judging(state(pod(name)), unready(name, **BROKEN | {"message": cause})).waits
    assert waits is not None
    shown = make_condition(("Degraded", "True", waits.reason, waits.message), (), 1, "2026-11-28T11:00:00Z")["message"]
    assert not lacking(shown, "ShimError", f"shop/{name}", "node-1", f"`kubectl delete pod -n shop {name}`")


@pytest.mark.parametrize(
    "failing",
    [
        pytest.param(unready(created_at=ENDED, **BROKEN), id="it was created after the change"),
        pytest.param(unready(), id="it may become ready by itself"),
        pytest.param(unready(deleting=True, **BROKEN), id="it is being deleted"),
    ],
)
def test_no_command_deletes_a_pod_that(failing: RolloutPod) -> None:
    waits = judging(state(pod()), failing).waits
    assert waits is not None
    assert "kubectl" not in waits.message


def test_a_pod_that_nothing_would_create_again_is_not_in_the_command() -> None:
    bare = {"owner_kind": "", "owner_name": ""}
    waits = judging(state(pod("bare", **bare)), unready("bare", **bare, **BROKEN)).waits
    assert waits is not None
    assert "kubectl" not in waits.message
    assert waits.message.count("shop/bare") == 2, "as the pod that is not ready, and as the one to create"


def test_the_time_begins_when_a_node_ended_also_if_that_was_not_recorded() -> None:
    found = judging(state(pod(), ended=0), unready())
    assert (found.state.ended, found.state.halt) == (NOW, None)


def test_pods_that_cannot_be_read_are_not_ready() -> None:
    found = judging(state(pod()), unread=True)
    assert found.waits is not None
    assert (found.open, found.waits.reason, found.state.unread) == (False, Reason.WORKLOADS_UNKNOWN.value, NOW)
    late = judging(found.state, unread=True, now=NOW + TIMEOUT)
    assert late.state.halt is not None
    assert late.state.halt.reason == Reason.WORKLOADS_UNKNOWN.value
    assert judging(late.state, pod(), now=NOW + TIMEOUT + 1).open


@pytest.mark.parametrize(
    ("changes", "is_open"),
    [
        pytest.param(True, False, id="a node that has the shim is not started without a record"),
        pytest.param(False, True, id="the first installation needs none"),
    ],
)
def test_without_a_record_unreadable_pods_hold_changes_only(changes: bool, is_open: bool) -> None:
    assert judging(None, unread=True, work=Work(changes=changes)).open is is_open


def test_resuming_continues_without_pods_that_cannot_be_read() -> None:
    halted = judging(WorkloadState("v2", unread=700), unread=True, work=Work(changes=True))
    assert halted.state.halt is not None
    resumed = replace(WAIT, acknowledged=int(NOW))
    found = judging(halted.state, unread=True, limits=resumed, work=Work(changes=True, latest=NOW + 300), now=NOW + 9)
    assert (found.open, found.pods) == (True, None)
