"""Records on a Node about failed rollbacks, and the effect of a deleted Shim on many Nodes at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from node_watcher.domain.actions import (
    Action,
    GuardedDeletion,
    PatchNode,
    PublishedState,
    Reason,
    RecordEvent,
    Snapshot,
)
from node_watcher.domain.decide import decide
from trellis import names
from trellis.events.node import NodeReady
from trellis.provisioning.shims import ShimView
from trellis.provisioning.targets import wanted_on
from trellis.provisioning.views import KWASM, UNDO, JobState, JobView, NodeView, Target, encode_digests
from trellis_dev.testing.builders import a_job, a_node, a_shim, opted_in, verified_node

SPIN, SLIGHT = a_shim(), a_shim("slight")
IN = PublishedState("uid-node-1", opted_in=True)


def having(**digests: str) -> NodeView:
    """Return a node with the marks of these Shims, and the labels of those that are verified."""
    digest = Target(tuple(sorted(digests.items()))).digest
    node = replace(verified_node(a_node(), digest, "handler"), shims=encode_digests(digests))
    ready = [name for name, of in digests.items() if not of.startswith("?")]
    labels = tuple((names.shim_label(name), names.SHIM_PROVISIONED) for name in ready)
    node = node if ready else replace(node, provisioned=None, wasm=None)
    return replace(node, labels=labels, handlers=frozenset({"runc", *digests}))


def undo(node: NodeView, blamed: str, state: JobState = JobState.FAILED, **after: str) -> JobView:
    """Return a Job that was to take back what is blamed, judged."""
    return a_job(
        node, state, digest="tried", operation=UNDO, installs=encode_digests(after), blamed=blamed, failure="it broke"
    )


def deciding(node: NodeView, job: JobView | None, *shims: ShimView) -> list[Action]:
    wanted = wanted_on(node, shims, auto_provision=False)
    published = replace(IN, opted_in=bool(wanted), ready=node.marked_digest)
    handlers = {shim.name: shim.handler for shim in shims}
    deleting = frozenset(shim.name for shim in shims if shim.deleting)
    of_node = tuple(shim for shim in shims if shim.name in wanted)
    return decide(Snapshot(node.name, node, job, published, wanted, handlers, of_node, deleting))


def written(actions: list[Action]) -> dict[str, Any]:
    """Return what the one patch writes, by the key's last path element; None for what it removes."""
    steps = [
        step for action in actions for step in (action.steps if isinstance(action, GuardedDeletion) else (action,))
    ]
    [patch] = [step for step in steps if isinstance(step, PatchNode)]
    return {op["path"].rsplit("/", 1)[1].replace("~1", "/"): op.get("value") for op in patch.ops[2:]}


# --- what could not be taken back ---


def test_a_remaining_shim_is_recorded_on_the_node_with_the_failure_and_without_a_label() -> None:
    actions = deciding(a_node(handlers=frozenset({"spin"})), undo(a_node(), "spin=1"), SPIN)
    assert [type(action) for action in actions] == [PatchNode, RecordEvent]
    patch = written(actions)
    assert patch[names.ANNOTATION_SHIMS] == "spin=?"
    assert patch[names.ANNOTATION_FAILURE] == "attempt 1: it broke"
    assert patch[names.ANNOTATION_VERIFIED] == "job"
    assert not {"spin", names.LABEL_PROVISIONED, names.LABEL_WASM_READY} & patch.keys()


def test_a_record_of_an_unneeded_shim_is_kept_and_its_failure_follows() -> None:
    node, job = a_node(), undo(a_node(), "spin=1")
    assert written(deciding(node, job))[names.ANNOTATION_SHIMS] == "spin=?"
    named = having(spin="?")
    assert written(deciding(named, job))[names.ANNOTATION_FAILURE] == "attempt 1: it broke"


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(undo(a_node(), "spin=2", JobState.COMPLETE, spin="?1", slight="1"), id="no version to go back to"),
        pytest.param(undo(a_node(), "spin=2", spin="1", slight="1"), id="the way back failed"),
    ],
)
def test_a_version_that_replaced_another_in_vain_loses_the_label_as_permitted(
    job: JobView,
) -> None:
    node = having(spin="1", slight="1")
    [held] = deciding(node, job, SPIN, SLIGHT)
    assert isinstance(held, GuardedDeletion)
    patch = written([held])
    assert patch["spin"] is None
    assert patch[names.ANNOTATION_SHIMS] == "slight=1 spin=?1"
    assert not {"slight", names.LABEL_PROVISIONED, names.LABEL_WASM_READY} & patch.keys()


def test_a_restored_shim_keeps_its_label() -> None:
    node = having(spin="1")
    actions = deciding(node, undo(node, "spin=2", JobState.COMPLETE, spin="1"), SPIN)
    assert [type(action) for action in actions] == [PatchNode, RecordEvent]
    assert not {"spin", names.ANNOTATION_SHIMS} & written(actions).keys()


def test_a_completed_rollback_leaves_only_the_failure() -> None:
    node = having(spin="?")
    patch = written(deciding(node, undo(node, "spin=2", JobState.COMPLETE), SPIN))
    for deleted in (names.ANNOTATION_SHIMS, names.ANNOTATION_DIGEST, names.ANNOTATION_VERIFIED):
        assert patch[deleted] is None
    assert patch[names.ANNOTATION_FAILURE]
    assert names.ANNOTATION_NODE_UID not in patch


def test_a_node_with_nothing_verified_is_not_ready_and_nothing_more_is_written() -> None:
    node = replace(having(spin="?1"), failure="x", failed_attempt="tried/1/1010")
    published = replace(IN, ready=None)
    wanted = frozenset({"spin"})
    assert decide(Snapshot(node.name, node, None, published, wanted, {"spin": "spin"}, (SPIN,))) == []
    ready = having(spin="1")
    events = decide(Snapshot(ready.name, ready, None, published, wanted, {"spin": "spin"}, (SPIN,)))
    assert [type(getattr(event, "event", None)) for event in events] == [NodeReady]


def test_an_unverified_shim_is_not_missed_when_its_handler_disappears() -> None:
    node = replace(having(spin="?1", slight="1"), handlers=frozenset({"runc", "slight"}))
    assert deciding(node, None, SPIN, SLIGHT) == []


def test_a_label_set_by_hand_is_removed_from_an_unverified_node() -> None:
    node = replace(having(spin="?1", slight="1"), labels=(("spin", "provisioned"), ("slight", "provisioned")))
    assert written(deciding(node, None, SPIN, SLIGHT)) == {"spin": None}


# --- a deleted Shim ---


def test_a_deleted_shim_loses_its_labels_without_the_circuit_breaker() -> None:
    [patch] = deciding(having(spin="1", slight="1"), None, replace(SPIN, deleting=True), SLIGHT)
    assert isinstance(patch, PatchNode)
    assert patch.reason is Reason.OPTED_OUT
    assert written([patch]) == {"spin": None}
    actions = deciding(having(spin="1"), None, replace(SPIN, deleting=True))
    assert not any(isinstance(action, GuardedDeletion) for action in actions)
    assert written(actions)[names.LABEL_WASM_READY] is None


@pytest.mark.parametrize(
    ("node", "shims"),
    [
        pytest.param(replace(having(spin="1"), opt_in="false"), (SPIN,), id="annotated false"),
        pytest.param(having(spin="1"), (replace(SPIN, selector=(("pool", "wasm"),)),), id="its selector was narrowed"),
        pytest.param(having(spin="1"), (), id="its object is gone and nobody saw it being deleted"),
        pytest.param(
            having(spin="1", slight="1"),
            (replace(SPIN, deleting=True), replace(SLIGHT, selector=(("pool", "wasm"),))),
            id="one is deleted and the other is not for the node any more",
        ),
        pytest.param(
            replace(opted_in(having(spin="1", kwasm="1")), opt_in=None),
            (replace(SPIN, deleting=True, default=True),),
            id=f"what {KWASM} brought goes too, as the node is opted out",
        ),
    ],
)
def test_a_node_that_loses_its_opt_in_is_counted_by_the_circuit_breaker(
    node: NodeView, shims: tuple[ShimView, ...]
) -> None:
    assert any(isinstance(action, GuardedDeletion) for action in deciding(node, None, *shims))


# --- the circuit breaker is asked only when a label goes ---


def test_leftovers_of_a_deleted_shim_are_recorded_without_the_circuit_breaker() -> None:
    node = having(slight="1")
    job = a_job(node, JobState.COMPLETE, digest="both", installs="slight=1 spin=1", handlers=frozenset({"spin"}))
    [patch] = deciding(node, job, replace(SPIN, deleting=True), SLIGHT)
    assert isinstance(patch, PatchNode)
    assert written([patch])[names.ANNOTATION_SHIMS] == "slight=1 spin=?"
    assert not any(op["path"].startswith("/metadata/labels/") for op in patch.ops)


def test_a_patch_that_removes_a_label_of_a_ready_node_counts_for_any_record() -> None:
    node = replace(having(slight="1"), labels=(("slight", "provisioned"), ("spin", "provisioned")))
    job = a_job(node, JobState.COMPLETE, digest="both", installs="slight=1 spin=1", handlers=frozenset({"spin"}))
    [held] = deciding(node, job, replace(SPIN, deleting=True), SLIGHT)
    assert isinstance(held, GuardedDeletion)
    assert written([held])["spin"] is None


def test_the_verification_of_one_shim_removes_the_label_of_no_other_one() -> None:
    node = replace(having(slight="1"), handlers=frozenset({"runc", "slight", "spin"}))
    job = a_job(node, JobState.COMPLETE, digest="both", installs="slight=1 spin=1", handlers=frozenset({"spin"}))
    [patch, event] = deciding(node, job, SPIN)
    assert isinstance(patch, PatchNode)
    assert (patch.reason, written([patch]).get("slight", "stays")) == (Reason.PROVISION_SUCCEEDED, "stays")
    assert isinstance(event, RecordEvent)
    assert (event.reason, event.warning) == (Reason.PROVISION_SUCCEEDED, False)
    after = replace(having(slight="1", spin="1"), handlers=node.handlers)
    [held] = deciding(after, None, SPIN)
    assert isinstance(held, GuardedDeletion)
    assert written([held]) == {"slight": None}
