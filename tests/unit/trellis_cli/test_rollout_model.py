"""The state of a rollout, and the changes of a command to it: worlds in, standings and changes out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from support.suite.naming import lacking
from trellis import names
from trellis.installer_api.spec import WantedShim
from trellis.provisioning.ledger import Entry, Ledger
from trellis.provisioning.revisions import Revision
from trellis.provisioning.shim_status import OTHER_CONTROLLER, Condition, Counts, Reason, Status
from trellis.provisioning.shims import ShimView, content_of, wanted_shim_for
from trellis.provisioning.views import NodeView, Target, encode_digests
from trellis.provisioning.workload_state import WorkloadHalt, WorkloadState
from trellis.read_model.tables.rollout import NodeStage, Phase, RolloutSnapshot, Standing, document, standing_of
from trellis_cli.common.errors import CommandError
from trellis_cli.rollout.change import pause, resume, undo
from trellis_cli.rollout.read import Found
from trellis_cli.rollout.views import summary
from trellis_dev.testing.builders import a_node, a_shim, failed, opted_in, verified_node

SPIN = a_shim()
SEEN = Status(observed_generation=1)


def digest() -> str:
    wanted = wanted_shim_for(SPIN, "amd64", require_checksum=True)
    assert isinstance(wanted, WantedShim)
    return wanted.digest


WANTED = Target((("spin", digest()),))


def having(node: NodeView, version: str) -> NodeView:
    shims = {"spin": version}
    return replace(verified_node(node, Target(tuple(shims.items())).digest, "handler"), shims=encode_digests(shims))


DONE = having(a_node("done"), digest())
OLD = having(a_node("old"), "older")
BROKEN = failed(a_node("broken"), WANTED.digest, at=500)
LEDGER = Ledger({"uid-busy": Entry(WANTED.digest, 1, 9, ("spin",))})
HALTED = Ledger({}, halted=("spin",))


def world(*nodes: NodeView, shim: ShimView = SPIN, ledger: Ledger | None = None, **changes: Any) -> RolloutSnapshot:
    return replace(RolloutSnapshot(shim, SEEN, (shim,), nodes, ledger or Ledger({})), **changes)


def standing(*nodes: NodeView, **changes: Any) -> Standing:
    return standing_of(world(*nodes, **changes))


def degraded(reason: str, generation: int = 1) -> Status:
    condition = Condition("Degraded", "True", reason, "so it is", observed_generation=generation)
    return Status(Counts(), (condition,), 1)


PAUSED = replace(SPIN, paused=True)
BESIDE = Status(Counts(), (Condition(OTHER_CONTROLLER, "True", "RuntimeClassManagerRuns", "so it is"),), 1)
PHASES: dict[str, tuple[RolloutSnapshot, Phase]] = {
    "every node has it": (world(DONE), Phase.COMPLETE),
    "no node is to have it": (world(), Phase.COMPLETE),
    "every node has it, the spec was not looked at": (world(DONE, status=Status()), Phase.PROGRESSING),
    "one waits": (world(DONE, a_node("b")), Phase.PROGRESSING),
    "one has an older version": (world(DONE, OLD), Phase.PROGRESSING),
    "paused": (world(DONE, a_node("b"), shim=PAUSED), Phase.PAUSED),
    "paused and complete": (world(DONE, shim=PAUSED), Phase.COMPLETE),
    "another controller is active": (world(DONE, a_node("b"), status=BESIDE), Phase.PAUSED),
    "another controller was active": (
        world(
            DONE,
            a_node("b"),
            status=Status(Counts(), (Condition(OTHER_CONTROLLER, "False", "NoOtherController", ""),), 1),
        ),
        Phase.PROGRESSING,
    ),
    "another controller is active, and all is done": (world(DONE, status=BESIDE), Phase.DEGRADED),
    "halted": (world(BROKEN, a_node("b"), ledger=HALTED), Phase.HALTED),
    "halted, all of it acknowledged": (
        world(BROKEN, a_node("b"), shim=replace(SPIN, acknowledged=500), ledger=HALTED),
        Phase.PROGRESSING,
    ),
    "halted by an older version": (world(failed(OLD, "another"), ledger=HALTED), Phase.PROGRESSING),
    "one failed, another waits": (world(BROKEN, a_node("b")), Phase.PROGRESSING),
    "one failed, all others are done": (world(BROKEN, DONE), Phase.DEGRADED),
    "one failed and is tried again": (
        world(BROKEN, ledger=Ledger({BROKEN.uid: Entry(WANTED.digest, 2, 9, ("spin",))})),
        Phase.PROGRESSING,
    ),
    "nothing may be installed": (world(a_node(), status=degraded("ChecksumMissing")), Phase.DEGRADED),
    "nothing might be installed of an older spec": (
        world(a_node(), status=degraded("ChecksumMissing", 0)),
        Phase.PROGRESSING,
    ),
    "its RuntimeClass is another's": (world(DONE, status=degraded("RuntimeClassConflict")), Phase.DEGRADED),
    "it cannot be read": (world(shim=replace(SPIN, invalid="spec: bad")), Phase.DEGRADED),
    "it is being deleted": (world(DONE, shim=replace(SPIN, deleting=True)), Phase.REMOVING),
}


def test_a_deletion_names_no_number_of_nodes_that_cannot_be_read() -> None:
    deleting = replace(SPIN, deleting=True)
    unread = standing(shim=deleting, status=Status(Counts(nodes=3), (), 1))
    assert unread.phase is Phase.REMOVING
    assert "0" not in unread.message
    assert "1" in standing(DONE, shim=deleting).message


@pytest.mark.parametrize(("given", "phase"), PHASES.values(), ids=PHASES.keys())
def test_each_world_has_its_phase(given: RolloutSnapshot, phase: Phase) -> None:
    assert standing_of(given).phase is phase


def test_each_node_has_its_stage_and_the_reason() -> None:
    found = standing(DONE, BROKEN, a_node("busy"), a_node("waits"), a_node("arm", architecture="arm64"), ledger=LEDGER)
    assert {node.name: (node.stage, node.message) for node in found.nodes} == {
        "done": (NodeStage.UPDATED, ""),
        "broken": (NodeStage.FAILED, "it broke"),
        "busy": (NodeStage.IN_PROGRESS, ""),
        "waits": (NodeStage.WAITING, ""),
        "arm": (NodeStage.BLOCKED, "NoSourceForPlatform"),
    }
    assert summary(found) == "spin: Progressing: 1 of 5 nodes updated, 1 in progress, 1 failed, 1 blocked, 1 waiting"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        pytest.param({"shim": PAUSED}, "Paused", id="paused"),
        pytest.param({"ledger": HALTED}, "RolloutHalted", id="halted"),
        pytest.param({"status": degraded("ChecksumMissing")}, "ChecksumMissing", id="no checksum"),
        pytest.param({"status": BESIDE}, OTHER_CONTROLLER, id="another controller"),
    ],
)
def test_a_node_that_may_not_start_is_shown_as_waiting_with_the_reason(changes: dict[str, Any], reason: str) -> None:
    nodes = {node.name: node for node in standing(a_node("waits"), BROKEN, **changes).nodes}
    assert (nodes["waits"].stage, nodes["waits"].message) == (NodeStage.BLOCKED, reason)


def test_a_node_that_is_to_lose_it_is_leaving_and_not_counted_as_wanted() -> None:
    found = standing(DONE, replace(OLD, opt_in="false"))
    assert (found.counts[NodeStage.REMOVING], found.desired, found.phase) == (1, 1, Phase.PROGRESSING)


def test_nodes_of_another_shim_are_no_concern() -> None:
    assert standing(a_node("b"), shim=replace(SPIN, selector=(("a", "b"),))).nodes == ()


def test_a_failure_of_an_older_version_does_not_count() -> None:
    [node] = standing(failed(OLD, "another")).nodes
    assert node.stage is NodeStage.WAITING


@pytest.mark.parametrize(
    ("digest_of_failure", "stage"),
    [
        (Target((("kwasm", "legacy"), ("spin", digest()))).digest, NodeStage.FAILED),
        ("another", NodeStage.WAITING),
    ],
)
def test_beside_the_legacy_image_a_failure_counts_if_it_is_of_both(digest_of_failure: str, stage: NodeStage) -> None:
    shims = {"kwasm": "legacy"}
    node = replace(
        verified_node(opted_in(a_node("b")), Target(tuple(shims.items())).digest, "job"), shims=encode_digests(shims)
    )
    [found] = standing(failed(node, digest_of_failure)).nodes
    assert found.stage is stage


def test_auto_provisioned_nodes_are_known_by_the_services_count() -> None:
    shim = replace(SPIN, default=True)
    counted = Status(Counts(nodes=1), (), 1)
    assert [node.name for node in standing(a_node("b"), shim=shim, status=counted).nodes] == ["b"]
    assert standing(a_node("b"), shim=shim).nodes == ()


def test_every_stopped_phase_names_the_remedy() -> None:
    for given, _ in PHASES.values():
        found = standing_of(given)
        assert bool(found.advice) == (found.phase in {Phase.PAUSED, Phase.HALTED, Phase.DEGRADED}) or (
            given.status.observed_generation == 0
        )


def test_text_of_the_cluster_stays_on_its_line() -> None:
    conflict = replace(degraded("RuntimeClassConflict").conditions[0], message="a\nb\x1b[31m")
    found = standing(DONE, status=Status(Counts(), (conflict,), 1))
    assert "\n" not in summary(found)
    assert "\x1b" not in summary(found)


def revision(number: int, content: str) -> Revision:
    return Revision(f"r{number}", f"u{number}", "1", number, {"fetchStrategy": content}, "2026-01-31T08:00:00Z")


def found(*nodes: NodeView, annotations: dict[str, str] | None = None, content: str = "b", **changes: Any) -> Found:
    metadata = {"name": "spin"} | ({} if annotations is None else {"annotations": annotations})
    manifest = {"metadata": metadata, "spec": {"fetchStrategy": content}}
    return Found(manifest, world(*nodes, **changes))


def test_pausing_is_one_field_and_pausing_twice_nothing() -> None:
    assert pause(found()).ops == ({"op": "add", "path": "/spec/paused", "value": True},)
    again = pause(found(shim=PAUSED))
    assert (again.ops, lacking(again.message, "trellis rollout resume spin")) == ((), [])


def test_resuming_a_paused_rollout_acknowledges_nothing() -> None:
    assert resume(found(BROKEN, shim=PAUSED)).ops == ({"op": "add", "path": "/spec/paused", "value": False},)


@pytest.mark.parametrize(
    ("annotations", "path", "value"),
    [
        (None, "/metadata/annotations", {names.ANNOTATION_ACKNOWLEDGED: "600"}),
        ({}, "/metadata/annotations/trellis.dev~1failures-acknowledged-at", "600"),
    ],
)
def test_resuming_a_halted_rollout_acknowledges_failures_up_to_its_last_failure(
    annotations: dict[str, str] | None, path: str, value: object
) -> None:
    later = failed(a_node("later"), WANTED.digest, at=600)
    done = resume(found(BROKEN, later, a_node("b"), annotations=annotations, ledger=HALTED))
    assert done.ops == ({"op": "add", "path": path, "value": value},)


def test_nodes_that_fail_are_tried_at_once_also_where_the_rollout_goes_on() -> None:
    done = resume(found(BROKEN, a_node("b")))
    assert [op["path"] for op in done.ops] == ["/metadata/annotations"]


@pytest.mark.parametrize("node", [a_node("b"), DONE], ids=["waits", "updated"])
def test_there_is_nothing_to_resume_where_nothing_fails(node: NodeView) -> None:
    assert resume(found(node)).ops == ()


def test_resuming_needs_to_know_whether_it_is_halted() -> None:
    with pytest.raises(CommandError, match="not yours to read"):
        resume(found(ledger_known=False, notes=("not yours to read",)))


def test_undoing_is_to_the_version_before_or_to_the_one_that_was_named() -> None:
    revisions = (revision(1, "a"), revision(2, "c"), revision(3, "b"))
    assert undo(None)(found(revisions=revisions)).ops[0]["value"] == "c"
    assert undo(1)(found(revisions=revisions)).ops[0]["value"] == "a"
    same = undo(3)(found(revisions=revisions))
    assert (same.ops, "already" in same.message) == ((), True)


def test_a_rollout_waits_for_the_pods_of_its_last_node() -> None:
    waits = Condition("Progressing", "True", Reason.WAITING_FOR_PODS.value, "pod shop/web-1", observed_generation=1)
    found_standing = standing(DONE, status=Status(Counts(), (waits,), 1))
    assert (found_standing.phase, found_standing.settled) == (Phase.PROGRESSING, False)
    assert "shop/web-1" in found_standing.message


def test_undoing_a_version_that_broke_pods_reports_that_they_are_to_be_deleted() -> None:
    revisions = (revision(1, "a"),)
    assert "delete" in undo(None)(found(revisions=revisions, ledger=halted_for_pods())).message
    assert "delete" not in undo(None)(found(revisions=revisions)).message


def test_undoing_a_paused_rollout_reports_that_it_waits() -> None:
    done = undo(None)(found(revisions=(revision(1, "a"),), shim=PAUSED))
    assert done.ops
    assert "trellis rollout resume spin" in done.message


@pytest.mark.parametrize(
    ("number", "changes", "text"),
    [
        pytest.param(None, {"revisions": (revision(1, "b"),)}, r'"spin"', id="only this one"),
        pytest.param(7, {"revisions": (revision(1, "a"), revision(4, "b"))}, r"\b7\b.*: 1, 4$", id="gone"),
        pytest.param(2, {}, r"\b2\b", id="none"),
        pytest.param(None, {"notes": ("not yours to read",)}, "not yours to read", id="forbidden"),
    ],
)
def test_an_impossible_undo_states_the_reason(number: int | None, changes: dict[str, Any], text: str) -> None:
    with pytest.raises(CommandError, match=text):
        undo(number)(found(**changes))


def test_the_document_has_every_stage_and_the_revisions() -> None:
    given = world(DONE, revisions=(revision(2, "a"),), current=revision(2, "a"))
    shown = document(standing_of(given), given)
    assert shown["revision"] == 2
    assert shown["counts"] == {stage.value: int(stage is NodeStage.UPDATED) for stage in NodeStage}
    assert shown["revisions"] == [{"revision": 2, "created": "2026-01-31T08:00:00Z"}]


def test_a_node_with_the_handler_of_another_shim_is_shown_as_waiting_with_the_reason() -> None:
    rival, younger = a_shim("zzz", handler=SPIN.handler, created_at=1000), replace(SPIN, created_at=1001)
    [node] = standing(a_node("shared"), shim=younger, shims=(younger, rival)).nodes
    assert (node.stage, node.message) == (NodeStage.BLOCKED, "HandlerConflict")
    [node] = standing(a_node("shared"), shim=rival, shims=(younger, rival)).nodes
    assert node.stage is NodeStage.WAITING


def test_a_failure_of_another_shim_is_none_of_a_refused_one() -> None:
    unpinned = replace(SPIN, sources=())
    [node] = standing(failed(a_node("n"), "digest-of-another"), shim=unpinned).nodes
    assert (node.stage, node.message) == (NodeStage.BLOCKED, "NoSourceForPlatform")


def test_the_text_of_a_failure_of_another_shim_is_not_shown() -> None:
    other = a_shim("other")
    wanted = wanted_shim_for(other, "amd64", require_checksum=True)
    assert isinstance(wanted, WantedShim)
    blamed = encode_digests({"spin": digest(), "other": wanted.digest})
    tried = replace(failed(a_node("n"), Target((("other", wanted.digest),)).digest, attempt=2), failed_shims=blamed)
    stages = {shim.name: standing(tried, shim=shim, shims=(SPIN, other)).nodes[0] for shim in (SPIN, other)}
    assert {node.stage for node in stages.values()} == {NodeStage.FAILED}
    assert stages["other"].message == "it broke"
    assert stages["spin"].message != tried.failure


def test_a_failure_beside_a_paused_shim_is_shown() -> None:
    other = replace(a_shim("zzz"), paused=True)
    [node] = standing(BROKEN, shims=(SPIN, other)).nodes
    assert node.stage is NodeStage.FAILED


def test_a_node_with_a_shim_that_cannot_be_read_is_blocked_and_not_leaving() -> None:
    [node] = standing(OLD, shim=replace(SPIN, invalid="spec: bad")).nodes
    assert (node.stage, node.message) == (NodeStage.BLOCKED, "InvalidShim")


def halted_for_pods(**changes: Any) -> Ledger:
    halt = WorkloadHalt("WorkloadNotReady", 700, "pod shop/web-1 is not ready", "shop/web-1", "done", "ShimError")
    state = replace(WorkloadState(content_of(SPIN), halt=halt), **changes)
    return Ledger({}, halted=("spin",), workloads={"spin": state})


def test_a_halt_for_pods_names_the_pod_and_is_resumed() -> None:
    ledger = halted_for_pods()
    found_standing = standing(DONE, a_node("b"), ledger=ledger)
    assert found_standing.phase is Phase.HALTED
    assert "shop/web-1" in found_standing.message
    [change] = resume(found(DONE, a_node("b"), ledger=ledger)).ops
    assert "700" in str(change["value"])


@pytest.mark.parametrize(
    ("ledger", "shim"),
    [
        pytest.param(halted_for_pods(content="former"), SPIN, id="of another version"),
        pytest.param(halted_for_pods(), replace(SPIN, acknowledged=700), id="that a user acknowledged"),
    ],
)
def test_a_halt_for_pods_does_not_count(ledger: Ledger, shim: ShimView) -> None:
    assert standing(DONE, a_node("b"), ledger=ledger, shim=shim).phase is Phase.PROGRESSING
