"""Shims that cannot be listed, that were just deleted, or that disappeared without an uninstallation."""

from __future__ import annotations

from dataclasses import replace

import pytest

from node_watcher.domain.actions import GuardedDeletion, PatchNode, PublishedState, Reason, RecordEvent, Snapshot
from node_watcher.domain.decide import decide
from node_watcher.gather import Cache
from trellis import names
from trellis.config.timings import DeletionTimings
from trellis.kube.mass_deletions import STANDS, Deletions
from trellis.kube.resources import SHIMS
from trellis.provisioning.shim_references import ShimReferences
from trellis.provisioning.shims import ShimView
from trellis.provisioning.views import KWASM, JobState, NodeView, Target, encode_digests
from trellis_dev.fakes.fake import FakeKube
from trellis_dev.testing.builders import a_job, a_node, a_shim, opted_in, verified_node

SPIN = a_shim()
TIMINGS = DeletionTimings(settle=2.0, grace=300.0)


def having(**digests: str) -> NodeView:
    digest = Target(tuple(sorted(digests.items()))).digest
    labels = tuple((names.shim_label(name), names.SHIM_PROVISIONED) for name in digests)
    node = replace(verified_node(a_node(), digest, "handler"), shims=encode_digests(digests), labels=labels)
    return replace(node, handlers=frozenset({"runc", *digests}))


class Parts:
    """A world of one node; ``now`` is its clock, ``known`` whether Shims can be listed."""

    def __init__(self, node: NodeView, *shims: ShimView, known: bool = True) -> None:
        self.now, self.known = 100.0, known
        self.shims = {shim.name: shim for shim in shims}
        self.deletions = Deletions(FakeKube(), SHIMS, TIMINGS, lambda: self.now)
        self.deletions.definition = STANDS
        shim_references = ShimReferences(lambda: self.known)
        shim_references.take_node(node.name, node)
        self.cache = Cache({node.name: node}, self.shims, False, self.deletions, shim_references)
        self.cache.remember(node.name, PublishedState(node.uid, opted_in=True, ready=node.marked_digest))

    def snapshot(self) -> Snapshot:
        return self.cache.snapshot("node-1")

    def delete(self, *, after: float = 0.0) -> None:
        self.shims["spin"] = replace(SPIN, deleting=True, deleted_at=1000)
        self.deletions.seen[SPIN.uid] = self.now
        self.now += after


@pytest.mark.parametrize(
    "node",
    [
        pytest.param(having(spin="1"), id="it has a Shim"),
        pytest.param(replace(having(spin="1"), opt_in="false"), id="it is opted out"),
        pytest.param(replace(having(spin="1"), marked_uid="former"), id="its marks are of a former Node"),
    ],
)
def test_nothing_is_decided_while_shims_cannot_be_listed(node: NodeView) -> None:
    parts = Parts(node, known=False)
    assert decide(parts.snapshot()) == []
    for state in JobState:
        job = a_job(node, state, digest="2", installs="spin=2", operation="remove", failure="it broke")
        assert decide(replace(parts.snapshot(), job=job)) == []
    parts.known = True
    assert decide(parts.snapshot()) != []


def test_without_the_crd_the_legacy_image_works_as_long_as_nothing_names_a_shim() -> None:
    node = verified_node(a_node())
    assert decide(Parts(node, known=False).snapshot()) == decide(Parts(node).snapshot()) != []
    assert KWASM in Parts(opted_in(a_node()), known=False).snapshot().wanted


def test_a_node_keeps_a_shim_deleted_without_uninstallation_for_a_while_and_reports_it_once() -> None:
    parts = Parts(having(spin="1"))
    snapshot = parts.snapshot()
    assert (snapshot.missing, snapshot.look_in) == ({"spin"}, 300.0)
    [event] = decide(snapshot)
    assert isinstance(event, RecordEvent)
    assert (event.reason, event.warning) == (Reason.SHIM_MISSING, True)
    parts.cache.remember("node-1", event.then)
    parts.now += 299.0
    assert decide(parts.snapshot()) == []
    assert parts.snapshot().look_in == 1.0
    parts.now += 1.0
    [_, removal] = decide(parts.snapshot())
    assert isinstance(removal, GuardedDeletion), "the circuit breaker is asked"


def test_a_shim_that_returns_leaves_the_node_unchanged_and_the_next_deletion_counts_again() -> None:
    parts = Parts(having(spin="1"))
    parts.snapshot()
    parts.now += 200.0
    parts.shims["spin"] = replace(SPIN, uid="another")
    assert decide(parts.snapshot()) == []
    del parts.shims["spin"]
    assert parts.snapshot().look_in == 300.0


def test_an_opted_out_node_does_not_wait_for_a_deleted_shim() -> None:
    snapshot = Parts(replace(having(spin="1"), opt_in="false")).snapshot()
    assert (snapshot.missing, snapshot.look_in) == (frozenset(), None)


def test_labels_stay_until_it_is_known_whether_a_shim_was_deleted_alone() -> None:
    parts = Parts(having(spin="1"), SPIN)
    parts.delete()
    assert decide(parts.snapshot()) == []
    assert parts.snapshot().look_in == 2.0
    parts.now += 2.0
    [_, patch] = decide(parts.snapshot())
    assert isinstance(patch, PatchNode), "a fact about all of its nodes: no circuit breaker"


def test_the_deletion_of_several_shims_is_paused_by_the_circuit_breaker() -> None:
    parts = Parts(having(spin="1"), SPIN)
    parts.shims["slight"] = a_shim("slight", deleting=True, deleted_at=1001)
    parts.delete(after=2.0)
    [_, removal] = decide(parts.snapshot())
    assert isinstance(removal, GuardedDeletion)
