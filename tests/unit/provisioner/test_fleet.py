"""The nodes of a plan: its outcome is that of a plan of all nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from provisioner.domain.fleet import Fleet
from provisioner.domain.plan import FleetSnapshot, plan
from provisioner.domain.shim_nodes import Member, ShimNodes, member_of
from trellis.provisioning.attempts import Retries, ShimLimits
from trellis.provisioning.excluded_nodes import Skip
from trellis.provisioning.int_or_percent import CountOrPercent
from trellis.provisioning.ledger import Entry, Ledger
from trellis.provisioning.reasons import Reason
from trellis.provisioning.shims import ShimView
from trellis.provisioning.targets import target_of
from trellis.provisioning.views import KWASM, JobState, JobView, NodeView, Target
from trellis_dev.testing.builders import DIGEST, OTHER_DIGEST, a_job, a_node, a_shim, failed, opted_in, verified_node

NOW = 10_000.0
SKIPPED = Skip(Reason.OTHER_CONTROLLER, "nobody can run an installer there")


def target(node: NodeView, shims: tuple[ShimView, ...]) -> Target | None:
    return target_of(node, shims, DIGEST, auto_provision=False, require_checksum=True)


def member(shim: ShimView, node: NodeView, shims: tuple[ShimView, ...]) -> Member | None:
    return member_of(shim, node, shims, auto_provision=False, require_checksum=True)


def variants(name: str) -> st.SearchStrategy[NodeView]:
    plain = a_node(name)
    own = opted_in(plain)
    return st.sampled_from(
        [
            plain,
            own,
            verified_node(own),
            verified_node(plain),
            verified_node(own, OTHER_DIGEST),
            failed(own),
            failed(verified_node(own, OTHER_DIGEST), at=9_999),
            replace(own, skip=SKIPPED),
            replace(verified_node(own), skip=SKIPPED),
            replace(own, ready=False),
            replace(own, uid=f"uid-{name}-again"),
        ]
    )


def names() -> list[str]:
    return [f"node-{number}" for number in range(6)]


FLEETS = st.tuples(*map(variants, names())).map(lambda views: {view.name: view for view in views})
SHIMS = st.sampled_from([(), (a_shim(),), (a_shim(selector=(("zone", "1"),)),), (a_shim(deleting=True),)])
LIMITS = st.sampled_from([CountOrPercent.parse(text) for text in ("1", "34%", "50%", "100%")])
WORK = st.dictionaries(st.sampled_from(names()), st.sampled_from(["slot", "job", "both", "done"]))


def all_of_it(
    nodes: Mapping[str, NodeView], shims: tuple[ShimView, ...], limit: CountOrPercent, work: Mapping[str, str]
) -> FleetSnapshot:
    """Return the world of all nodes."""
    found = {node.uid: target(node, shims) for node in nodes.values()}
    entries, jobs = dict[str, Entry](), dict[str, tuple[JobView, ...]]()
    for name, what in work.items():
        node = nodes[name]
        if what in {"slot", "both"}:
            entries[node.uid] = Entry(DIGEST, 1, 9_990)
        if what != "slot":
            jobs[node.uid] = (a_job(node, JobState.COMPLETE if what == "done" else JobState.ACTIVE),)
    return FleetSnapshot(
        tuple(nodes.values()),
        {uid: item for uid, item in found.items() if item is not None},
        jobs,
        Ledger(entries),
        {name: ShimLimits(limit, 2) for name in (KWASM, "spin")},
        Retries(10.0, 300.0),
        NOW,
    )


@given(FLEETS, SHIMS, LIMITS, WORK)
def test_a_plan_of_what_is_looked_at_is_the_plan_of_all_nodes(
    nodes: dict[str, NodeView], shims: tuple[ShimView, ...], limit: CountOrPercent, work: dict[str, str]
) -> None:
    world = all_of_it(nodes, shims, limit, work)
    fleet = Fleet(nodes, {shim.name: shim for shim in shims}, target, member)
    looked_at, resting = fleet.look_at({**world.jobs, **world.ledger.entries})
    part = replace(world, nodes=tuple(node for node, _ in looked_at), resting=resting)
    assert plan(part) == plan(world)


def by_name(found: tuple[NodeView, Target | None]) -> str:
    return found[0].name


def in_order(nodes: ShimNodes) -> ShimNodes:
    """Return it with nodes by name: their order does not matter."""

    def named(found: tuple[NodeView, ...]) -> tuple[NodeView, ...]:
        return tuple(sorted(found, key=lambda node: node.name))

    return replace(
        nodes,
        skipped=named(nodes.skipped),
        to_remove=named(nodes.to_remove),
        unavailable=named(nodes.unavailable),
        refused={reason: named(found) for reason, found in nodes.refused.items()},
    )


@given(FLEETS, st.lists(st.one_of(*map(variants, names()))), SHIMS, SHIMS, st.sets(st.sampled_from(names())))
def test_after_any_changes_it_knows_what_it_would_know_from_the_start(
    nodes: dict[str, NodeView],
    changes: list[NodeView],
    before: tuple[ShimView, ...],
    after: tuple[ShimView, ...],
    deleted: set[str],
) -> None:
    shims = {shim.name: shim for shim in before}
    fleet = Fleet(nodes, shims, target, member)
    fleet.look_at([])
    for node in changes:
        nodes[node.name] = node
        fleet.take(node.name)
    shims.clear()
    shims.update({shim.name: shim for shim in after})
    for name in deleted:
        del nodes[name]
        fleet.take(name)
    uids = [f"uid-{name}" for name in names()]
    found, others = fleet.look_at(uids)
    again, resting = Fleet(nodes, shims, target, member).look_at(uids)
    assert (sorted(found, key=by_name), others) == (sorted(again, key=by_name), resting)
    for node in nodes.values():
        assert fleet.target(node) == target(node, after)
    for shim in after:
        assert in_order(fleet.tally(shim).nodes()) == in_order(Fleet(nodes, {}, target, member).tally(shim).nodes())


def test_nodes_at_rest_are_counted_and_not_looked_at() -> None:
    nodes = {node.name: node for node in (verified_node(opted_in(a_node(name))) for name in names())}
    nodes["new"] = opted_in(a_node("new"))
    looked_at, resting = Fleet(nodes, {}, target, member).look_at(["uid-node-1"])
    assert {node.name for node, _ in looked_at} == {"new", "node-1"}
    assert resting == {KWASM: 5}
