"""Shims that are drained on a node: from the assignment of a slot that changes them until the outcome is recorded."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trellis.provisioning.drain import drained_on
from trellis.provisioning.ledger import Entry
from trellis.provisioning.shims import ShimView
from trellis.provisioning.views import NodeView, Target, encode_digests
from trellis_dev.testing.builders import a_node, a_shim, failed, verified_node

FORMER, NEXT = Target((("spin", "1"),)), Target((("spin", "2"),))
SLOT = Entry(NEXT.digest, 1, 1_000, ("spin",))
SPIN, SLIGHT = a_shim(drain=True), a_shim("slight", drain=True)


def having(target: Target = FORMER) -> NodeView:
    return replace(verified_node(a_node(), target.digest, "handler"), shims=encode_digests(dict(target.shims)))


def test_a_shim_is_drained_while_a_slot_changes_it() -> None:
    assert drained_on(having(), SLOT, [SPIN]) == {"spin"}


@pytest.mark.parametrize(
    ("node", "slot", "shims"),
    [
        pytest.param(having(), None, [SPIN], id="no slot, or one that was released"),
        pytest.param(having(), SLOT, [replace(SPIN, drain=False)], id="it is not to be drained"),
        pytest.param(having(), SLOT, [], id="it is to be removed"),
        pytest.param(having(), replace(SLOT, shims=("slight",)), [SPIN], id="the slot changes another Shim"),
        pytest.param(a_node(), SLOT, [SPIN], id="the first installation on the node"),
        pytest.param(having(NEXT), SLOT, [SPIN], id="the success is recorded"),
        pytest.param(failed(having(), NEXT.digest), SLOT, [SPIN], id="the failure is recorded"),
    ],
)
def test_no_shim_is_drained_because_of(node: NodeView, slot: Entry | None, shims: list[ShimView]) -> None:
    assert drained_on(node, slot, shims) == frozenset()


def test_the_failure_of_an_earlier_attempt_ends_no_drain() -> None:
    assert drained_on(failed(having(), NEXT.digest), replace(SLOT, attempt=2), [SPIN]) == {"spin"}


def test_of_two_shims_on_a_node_only_the_changed_one_is_drained() -> None:
    both = Target((("slight", "1"), ("spin", "1")))
    target = Target((("slight", "1"), ("spin", "2")))
    assert drained_on(having(both), Entry(target.digest, 1, 1_000, ("spin",)), [SPIN, SLIGHT]) == {"spin"}
