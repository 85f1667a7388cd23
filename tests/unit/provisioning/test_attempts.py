"""A shim that fails keeps no other from its nodes: what is tried next, and whose failure it is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from provisioner.domain.plan import FleetSnapshot, Plan, plan
from trellis.provisioning.attempts import (
    Retries,
    ShimLimits,
    failing_on,
    failure_text,
    next_attempt,
    permitted_target,
    spared_of,
)
from trellis.provisioning.ledger import Ledger
from trellis.provisioning.views import NodeView, Target, encode_digests
from trellis_dev.testing.builders import a_node, failed, verified_node

NODE = a_node()
NOW = 10_000.0


def target(**digests: str) -> Target:
    return Target(tuple(sorted(digests.items())))


def having(**digests: str) -> NodeView:
    return replace(verified_node(NODE, target(**digests).digest, "handler"), shims=encode_digests(digests))


def blamed(node: NodeView, tried: Target, attempt: int = 1, **digests: str) -> NodeView:
    """Return the node after a try that failed because of these."""
    return replace(failed(node, tried.digest, attempt, int(NOW) - 1), failed_shims=encode_digests(digests))


def requested(node: NodeView, wanted: Target) -> Target:
    return permitted_target(node, wanted, {}, ())


BOTH = target(good="1", bad="1")


def test_without_anyone_to_blame_all_of_it_is_tried_again() -> None:
    node = failed(NODE, BOTH.digest)
    assert requested(node, BOTH) == BOTH
    assert failing_on(node, BOTH, BOTH) == ("bad", "good")


def test_the_next_try_leaves_out_what_the_last_one_was_blamed_on() -> None:
    node = blamed(NODE, BOTH, bad="1")
    assert requested(node, BOTH) == target(good="1")
    assert next_attempt(node, target(good="1")) == 1  # it is no second try of the same, and waits for nothing
    assert failing_on(node, BOTH, requested(node, BOTH)) == ("bad",)


def test_the_installed_version_of_a_blamed_shim_stays_meanwhile() -> None:
    node = blamed(having(bad="0"), BOTH, bad="1")
    assert requested(node, BOTH) == target(good="1", bad="0")


def test_a_failed_shim_is_retried_as_a_further_attempt_once_the_others_are_installed() -> None:
    node = blamed(having(good="1"), BOTH, 3, bad="1")
    assert requested(node, BOTH) == BOTH
    assert next_attempt(node, BOTH) == 4
    assert failing_on(node, BOTH, BOTH) == ("bad",)


def test_of_several_that_failed_one_at_a_time_is_tried_each_in_its_turn() -> None:
    wanted = target(good="1", bad="1", worse="1")
    seen = []
    tried = wanted
    for attempt in (1, 2, 3):
        node = blamed(having(good="1"), tried, attempt, bad="1", worse="1")
        tried = requested(node, wanted)
        seen.append(tried)
        assert next_attempt(node, tried) == attempt + 1  # and each waits longer
        assert failing_on(node, wanted, tried) == ("bad", "worse")
    assert seen == [target(good="1", worse="1"), target(good="1", bad="1"), target(good="1", worse="1")]


def test_another_version_is_blamed_for_nothing() -> None:
    node = blamed(NODE, BOTH, bad="0")
    assert spared_of(node, BOTH) == frozenset()
    assert failing_on(replace(node, failed_attempt=None), BOTH, BOTH) == ()


def test_an_unattributed_failure_beside_an_attributed_one() -> None:
    node = blamed(NODE, target(good="1"), bad="1")  # the try of the others failed too, for another reason
    assert requested(node, BOTH) == target(good="1")
    assert failing_on(node, BOTH, target(good="1")) == ("bad", "good")
    assert next_attempt(node, target(good="1")) == 2


def planned(*nodes: NodeView, wanted: Target = BOTH) -> Plan:
    limits = {name: ShimLimits(None, halt_after=1) for name in ("good", "bad")}
    targets = {node.uid: wanted for node in nodes}
    return plan(FleetSnapshot(nodes, targets, {}, Ledger({}), limits, Retries(10.0, 300.0), NOW))


def test_only_the_shim_that_fails_is_halted_and_the_other_goes_on() -> None:
    fresh = a_node("fresh")
    outcome = planned(blamed(NODE, BOTH, bad="1"), fresh)
    assert outcome.ledger.halted == ("bad",)
    assert outcome.failing == {"bad": 1}
    only_good = target(good="1").digest
    assert {uid: entry.digest for uid, entry in outcome.ledger.entries.items()} == {
        NODE.uid: only_good,
        fresh.uid: only_good,
    }


def test_a_halted_shim_is_tried_again_where_it_failed_when_its_time_has_come() -> None:
    node = blamed(having(good="1"), BOTH, bad="1")
    assert planned(node).claimed == ()
    later = replace(node, failed_attempt=f"{BOTH.digest}/1/1000")
    assert planned(later).claimed == (later,)


TRIED = {
    "both at once": (blamed(NODE, target(a="1", b="1"), a="1", b="1"), ("a", "b")),
    "both, of which one failed": (blamed(NODE, target(a="1", b="1"), a="1"), ("a",)),
    "the other one alone": (blamed(NODE, target(b="1"), 2, a="1", b="1"), ("b",)),
    "the first one, in its turn": (blamed(NODE, target(a="1"), 3, a="1", b="1"), ("a",)),
    "the other one, and none is blamed": (blamed(NODE, target(b="1"), 2, a="1"), ("b",)),
    "the other one, beside a former version": (
        blamed(having(a="0"), target(a="0", b="1"), 2, a="1", b="1"),
        ("b",),
    ),
}


@pytest.mark.parametrize(("node", "of"), TRIED.values(), ids=TRIED)
def test_the_text_of_the_last_attempt_is_of_the_shims_that_it_tried(node: NodeView, of: tuple[str, ...]) -> None:
    wanted = target(a="1", b="1")
    shims = failing_on(node, wanted, requested(node, wanted))
    assert tuple(name for name in shims if failure_text(node, wanted, name) == node.failure) == of
