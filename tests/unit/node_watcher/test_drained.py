"""Labels of a node that a rollout drains: removed for the changed Shim alone, and restored with the outcome."""

from __future__ import annotations

from dataclasses import replace

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
from node_watcher.gather import Cache
from node_watcher.watches import on_slots
from support.suite.naming import lacking
from trellis import names
from trellis.kube.informer import Change, ChangeKind
from trellis.kube.mass_deletions import Deletions
from trellis.kube.resources import SHIMS
from trellis.provisioning.ledger import Entry
from trellis.provisioning.shim_references import ShimReferences
from trellis.provisioning.shims import ShimView
from trellis.provisioning.targets import wanted_on
from trellis.provisioning.views import JobState, JobView, NodeView, Target, encode_digests
from trellis_dev.fakes.fake import FakeKube
from trellis_dev.testing.builders import a_job, a_node, a_shim, failed, verified_node

SPIN, SLIGHT = a_shim(drain=True), a_shim("slight", drain=True)
BOTH = Target((("slight", "1"), ("spin", "1")))
NEXT = Target((("slight", "1"), ("spin", "2")))
SLOT = Entry(NEXT.digest, 1, 1_000, ("spin",))
SPIN_LABEL, SLIGHT_LABEL = ((names.shim_label(name), names.SHIM_PROVISIONED) for name in ("spin", "slight"))
HANDLERS = frozenset({"", "spin", "slight"})


def having(target: Target = BOTH, *labels: tuple[str, str]) -> NodeView:
    node = verified_node(a_node(handlers=HANDLERS, resource_version="9"), target.digest, "handler")
    return replace(node, shims=encode_digests(dict(target.shims)), labels=labels or (SLIGHT_LABEL, SPIN_LABEL))


DRAINED = having(BOTH, SLIGHT_LABEL)
"""The node after its label was removed."""


def deciding(
    node: NodeView, *shims: ShimView, job: JobView | None = None, drained: frozenset[str] = frozenset({"spin"})
) -> list[Action]:
    shims = shims or (SPIN, SLIGHT)
    wanted = wanted_on(node, shims, auto_provision=False)
    published = PublishedState(node.uid, opted_in=True, ready=node.marked_digest)
    handlers = {shim.name: shim.handler for shim in shims if shim.name in node.installed}
    return decide(Snapshot(node.name, node, job, published, wanted, handlers, shims, drained=drained & wanted))


def patch(actions: list[Action]) -> PatchNode:
    each = (action.steps if isinstance(action, GuardedDeletion) else (action,) for action in actions)
    [found] = [step for steps in each for step in steps if isinstance(step, PatchNode)]
    return found


def changed(actions: list[Action]) -> dict[str, str | None]:
    """Return the labels that the one patch changes; None for a label that it removes."""
    prefix = "/metadata/labels/"
    ops = (op for op in patch(actions).ops if op["path"].startswith(prefix))
    return {op["path"].removeprefix(prefix).replace("~1", "/"): op.get("value") for op in ops}


def a_result(node: NodeView, state: JobState = JobState.COMPLETE, target: Target = NEXT) -> JobView:
    failure = "InstallerFailed: no space left" if state is JobState.FAILED else None
    installs, handlers = encode_digests(dict(target.shims)), frozenset({"spin"})
    return a_job(node, state, digest=target.digest, installs=installs, handlers=handlers, failure=failure)


def test_the_label_of_a_drained_shim_is_removed_and_nothing_else() -> None:
    actions = deciding(having())
    assert changed(actions) == {"spin": None}
    assert [op["op"] for op in patch(actions).ops] == ["test", "test", "remove"]
    assert patch(actions).reason is Reason.DRAINED
    [event] = [action for action in actions if isinstance(action, RecordEvent)]
    assert (event.warning, event.reason) == (False, Reason.DRAINED)
    assert not lacking(event.message, "spin")


def test_the_circuit_breaker_does_not_pause_a_drain() -> None:
    assert not [action for action in deciding(having()) if isinstance(action, GuardedDeletion)]


def test_a_drained_node_is_not_changed_while_its_job_runs() -> None:
    assert deciding(DRAINED) == []
    assert deciding(DRAINED, job=a_result(DRAINED, JobState.ACTIVE)) == []


def test_the_label_returns_in_the_patch_that_records_the_success() -> None:
    actions = deciding(DRAINED, job=a_result(DRAINED))
    assert changed(actions) == {"spin": names.SHIM_PROVISIONED}
    assert patch(actions).reason is Reason.PROVISION_SUCCEEDED


def test_the_label_returns_with_the_former_version_after_a_failure() -> None:
    job = a_result(DRAINED, JobState.FAILED)
    assert patch(deciding(DRAINED, job=job)).reason is Reason.FAILED
    recorded = failed(DRAINED, NEXT.digest, at=1_010)
    actions = deciding(recorded, job=job, drained=frozenset())
    assert changed(actions) == {"spin": names.SHIM_PROVISIONED}
    assert patch(actions).reason is Reason.LABELS_RESTORED


def test_a_version_that_could_not_be_rolled_back_gets_no_label() -> None:
    unverified = replace(DRAINED, shims="slight=1 spin=?1")
    assert deciding(unverified, drained=frozenset()) == []


def test_the_result_of_a_job_for_another_shim_ends_no_drain() -> None:
    target = Target((("slight", "2"), ("spin", "1")))
    job = replace(a_result(DRAINED, target=target), handlers=frozenset({"slight"}))
    assert "spin" not in changed(deciding(DRAINED, job=job))


def test_a_shim_that_is_deleted_meanwhile_loses_its_label_as_any_other() -> None:
    actions = deciding(having(), SLIGHT)
    assert changed(actions) == {"spin": None}
    assert patch(actions).reason is Reason.OPTED_OUT
    assert isinstance(actions[0], GuardedDeletion)


def a_cache(*nodes: NodeView) -> Cache:
    by_name = {node.name: node for node in nodes}
    deletions = Deletions(FakeKube(), SHIMS)
    return Cache(by_name, {"spin": SPIN, "slight": SLIGHT}, False, deletions, ShimReferences(lambda: True))


def test_a_snapshot_has_the_drained_shims_by_the_slot_of_its_node() -> None:
    cache = a_cache(having())
    assert cache.snapshot("node-1").drained == frozenset()
    cache.slots["trellis-system/ledger"] = {"uid-node-1": SLOT}
    assert cache.snapshot("node-1").drained == {"spin"}
    assert cache.snapshot("node-2").drained == frozenset()


@pytest.mark.parametrize(
    ("old", "new", "enqueued"),
    [
        pytest.param(None, {"uid-node-1": SLOT}, ["node-1"], id="assigned"),
        pytest.param({"uid-node-1": SLOT}, {}, ["node-1"], id="released"),
        pytest.param({"uid-node-1": SLOT}, None, ["node-1"], id="the ledger was deleted"),
        pytest.param({"uid-node-1": SLOT}, {"uid-node-1": replace(SLOT, attempt=2)}, ["node-1"], id="another attempt"),
        pytest.param({"uid-node-1": SLOT}, {"uid-node-1": SLOT}, [], id="unchanged"),
        pytest.param({}, {"uid-gone": SLOT}, [], id="of a node that is deleted"),
        pytest.param({}, {"uid-node-1": replace(SLOT, shims=("lunatic",))}, [], id="of a Shim without a drain"),
    ],
)
def test_a_changed_slot_enqueues_its_node(
    old: dict[str, Entry] | None, new: dict[str, Entry] | None, enqueued: list[str]
) -> None:
    found: list[str] = []
    other = replace(having(), name="node-2", uid="uid-node-2")
    handle = on_slots(a_cache(having(), other), found.append)
    handle(Change(ChangeKind.MODIFIED, "trellis-system/ledger", old, new))
    assert found == enqueued
