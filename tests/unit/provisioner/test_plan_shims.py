"""Several Shims on the same nodes: each has limits of its own, and a node that changes two needs a slot of both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from provisioner.domain.plan import FleetSnapshot, Plan, plan
from trellis.provisioning.attempts import Retries, ShimLimits, changes_of, failing_on
from trellis.provisioning.int_or_percent import CountOrPercent
from trellis.provisioning.ledger import Entry, Ledger, target_of_slot
from trellis.provisioning.views import JobState, JobView, NodeView, Target, encode_digests
from trellis_dev.testing.builders import a_job, a_node, failed, verified_node

NOW = 10_000.0
RETRIES = Retries(10.0, 300.0)


def target(**digests: str) -> Target:
    return Target(tuple(sorted(digests.items())))


def having(node: NodeView, **digests: str) -> NodeView:
    return replace(verified_node(node, target(**digests).digest, "handler"), shims=encode_digests(digests))


def at_most(limit: str | None, halt_after: int = 0, *, paused: bool = False) -> ShimLimits:
    return ShimLimits(CountOrPercent.parse(limit) if limit else None, halt_after, paused)


def planning(
    targets: list[tuple[NodeView, Target]],
    limits: Mapping[str, ShimLimits],
    ledger: Ledger | None = None,
    jobs: Mapping[str, tuple[JobView, ...]] | None = None,
) -> Plan:
    return plan(
        FleetSnapshot(
            tuple(node for node, _ in targets),
            {node.uid: wanted for node, wanted in targets},
            jobs or {},
            ledger or Ledger({}),
            limits,
            RETRIES,
            NOW,
        )
    )


def fleet(count: int) -> list[NodeView]:
    return [a_node(f"node-{index:02}") for index in range(count)]


def claimed(outcome: Plan) -> list[str]:
    return [node.name for node in outcome.claimed]


def test_a_shim_without_a_limit_goes_to_all_nodes_at_once() -> None:
    outcome = planning([(node, target(spin="1")) for node in fleet(7)], {"spin": at_most(None)})
    assert len(outcome.claimed) == 7
    assert {entry.shims for entry in outcome.ledger.entries.values()} == {("spin",)}


def test_two_shims_on_a_node_are_one_entry_and_the_tighter_limit_holds() -> None:
    both = target(spin="1", slight="1")
    outcome = planning([(node, both) for node in fleet(10)], {"spin": at_most("50%"), "slight": at_most("2")})
    assert claimed(outcome) == ["node-00", "node-01"]
    assert outcome.ledger.entries["uid-node-00"] == Entry(both.digest, 1, int(NOW), ("slight", "spin"))


def test_only_the_shim_that_changes_takes_a_slot() -> None:
    nodes = [having(node, spin="1", slight="1") for node in fleet(4)]
    outcome = planning(
        [(node, target(spin="2", slight="1")) for node in nodes], {"spin": at_most("2"), "slight": at_most("1")}
    )
    assert len(outcome.claimed) == 2
    assert changes_of(nodes[0], target(spin="2", slight="1")) == ("spin",)


def test_a_percentage_is_of_the_nodes_that_are_to_have_the_shim() -> None:
    nodes = fleet(40)
    targets = [(node, target(spin="1") if index < 20 else target(slight="1")) for index, node in enumerate(nodes)]
    outcome = planning(targets, {"spin": at_most("10%"), "slight": at_most("25%")})
    assert Counter(entry.shims for entry in outcome.ledger.entries.values()) == {("spin",): 2, ("slight",): 5}


def test_a_paused_shim_begins_nothing_and_another_goes_on() -> None:
    nodes = fleet(4)
    targets = [(node, target(spin="1") if index < 2 else target(slight="1")) for index, node in enumerate(nodes)]
    outcome = planning(targets, {"spin": at_most(None, paused=True), "slight": at_most(None)})
    assert claimed(outcome) == ["node-02", "node-03"]


def test_a_shim_that_fails_too_often_is_halted_and_another_goes_on() -> None:
    nodes = fleet(6)
    targets = [(node, target(spin="1") if index < 4 else target(slight="1")) for index, node in enumerate(nodes)]
    broken = [(failed(node, wanted.digest, at=int(NOW)), wanted) for node, wanted in targets[:2]]
    outcome = planning([*broken, *targets[2:]], {"spin": at_most(None, 2), "slight": at_most(None, 2)})
    assert outcome.ledger.halted == ("spin",)
    assert claimed(outcome) == ["node-04", "node-05"]
    assert outcome.failing == {"spin": 2}


def halted_world(*, acknowledged: int, failed_at: tuple[int, ...] = (9_998, 9_999)) -> Plan:
    nodes, wanted = fleet(5), target(spin="1")
    broken = [failed(node, wanted.digest, at=at) for node, at in zip(nodes, failed_at, strict=False)]
    targets = [(node, wanted) for node in (*broken, *nodes[len(broken) :])]
    return planning(targets, {"spin": replace(at_most(None, 2), acknowledged=acknowledged)})


def test_acknowledging_failures_resumes_a_halted_rollout_and_retries_them_at_once() -> None:
    assert (halted_world(acknowledged=0).ledger.halted, claimed(halted_world(acknowledged=0))) == (("spin",), [])
    outcome = halted_world(acknowledged=9_999)
    assert outcome.ledger.halted == ()
    assert claimed(outcome) == [f"node-0{index}" for index in (2, 3, 4, 0, 1)]


def test_failures_after_the_acknowledged_ones_count_and_halt_again() -> None:
    assert halted_world(acknowledged=9_998).failing == {"spin": 1}
    outcome = halted_world(acknowledged=9_997, failed_at=(9_997, 9_998, 9_999))
    assert outcome.ledger.halted == ("spin",)
    assert claimed(outcome) == ["node-00"]  # the acknowledged one is tried, nothing new is started


def test_an_acknowledgement_from_the_far_future_has_no_effect() -> None:
    assert halted_world(acknowledged=int(NOW) + 301).ledger.halted == ("spin",)


@pytest.mark.parametrize("has", [{}, {"spin": "1"}], ids=["nothing is there", "a former version is there"])
@pytest.mark.parametrize("held", ["paused", "halted"])
def test_a_halted_shim_halts_no_other(has: dict[str, str], held: str) -> None:
    nodes = [having(node, **has) if has else node for node in fleet(3)]
    wanted = target(spin="2", slight="1")
    limits = {"spin": at_most("5", 1, paused=held == "paused"), "slight": at_most("2")}
    if held == "halted":
        nodes[2] = failed(nodes[2], wanted.digest, at=int(NOW))
    outcome = planning([(node, wanted) for node in nodes], limits, Ledger({}, ("spin",) if held == "halted" else ()))
    assert claimed(outcome) == ["node-00", "node-01"]
    assert {entry.shims for entry in outcome.ledger.entries.values()} == {("slight",)}
    assert {entry.digest for entry in outcome.ledger.entries.values()} == {target(**has, slight="1").digest}


def test_work_started_without_a_paused_shim_equals_the_target_of_the_node() -> None:
    [node] = fleet(1)
    wanted = target(spin="1", slight="1")
    outcome = planning([(node, wanted)], {"spin": at_most("1", paused=True)})
    entry = outcome.ledger.entries[node.uid]
    assert target_of_slot(node, wanted, entry) == target(slight="1")
    assert target_of_slot(node, wanted, None) == wanted
    assert target_of_slot(node, None, entry) is None
    later = planning([(node, target(spin="9", slight="1"))], {"spin": at_most("1", paused=True)}, outcome.ledger)
    assert later.ledger == outcome.ledger  # another version of what is paused changes nothing
    resumed = planning([(having(node, slight="1"), wanted)], {"spin": at_most("1")}, outcome.ledger)
    assert resumed.ledger.entries[node.uid].shims == ("spin",)


def test_a_failure_beside_a_paused_shim_is_the_others_and_waits_for_its_retry() -> None:
    nodes = fleet(2)
    wanted = target(spin="1", slight="1")
    limits = {"spin": at_most("5", paused=True), "slight": at_most("5", 1)}
    nodes[0] = failed(nodes[0], target(slight="1").digest, at=int(NOW))
    outcome = planning([(node, wanted) for node in nodes], limits)
    assert outcome.failing == {"slight": 1}
    assert outcome.ledger.halted == ("slight",)
    assert claimed(outcome) == []
    assert outcome.wake_in


def test_a_failing_shim_that_is_paused_still_fails() -> None:
    [node] = fleet(1)
    wanted = target(spin="1")
    node = failed(node, wanted.digest, at=int(NOW))
    outcome = planning([(node, wanted)], {"spin": at_most("5", 1, paused=True)}, Ledger({}, ("spin",)))
    assert outcome.failing == {"spin": 1}
    assert outcome.ledger.halted == ("spin",)  # pausing must not be what resumes it


def test_a_failure_beside_a_halted_shim_counts_too() -> None:
    broken, others, fresh = fleet(3)
    wanted = target(spin="1", slight="1")
    limits = {"spin": at_most("5", 1), "slight": at_most("5", 1)}
    broken = failed(broken, wanted.digest, at=int(NOW))
    others = failed(others, target(slight="1").digest, at=int(NOW))
    targets = [(node, wanted) for node in (broken, others, fresh)]
    outcome = planning(targets, limits, Ledger({}, ("spin",)))
    assert outcome.failing == {"spin": 1, "slight": 2}
    assert claimed(outcome) == []


def test_a_removal_takes_a_slot_of_what_is_removed() -> None:
    nodes = [having(node, spin="1") for node in fleet(5)]
    outcome = planning([(node, target()) for node in nodes], {"spin": at_most("2")})
    assert claimed(outcome) == ["node-00", "node-01"]
    assert outcome.ledger.entries["uid-node-00"].shims == ("spin",)


@pytest.mark.parametrize(
    "limits",
    [at_most("5", paused=True), at_most("5", halt_after=1)],
    ids=["paused", "halted"],
)
def test_a_removal_waits_for_no_pause_and_no_halt(limits: ShimLimits) -> None:
    nodes = [having(node, spin="1") for node in fleet(3)]
    broken = failed(nodes[0], target().digest, at=int(NOW))
    outcome = planning([(node, target()) for node in (broken, *nodes[1:])], {"spin": limits})
    assert claimed(outcome) == ["node-01", "node-02"]


@pytest.mark.parametrize("state", [JobState.COMPLETE, JobState.FAILED])
def test_a_next_version_that_ended_when_the_shim_is_to_go_gives_its_slot_to_the_removal(state: JobState) -> None:
    [node] = [having(node, spin="1") for node in fleet(1)]
    job = a_job(node, state, digest=target(spin="2").digest, installs="spin=2")
    ledger = Ledger({node.uid: Entry(job.digest, 1, 1000, ("spin",))})
    for held in (ledger, Ledger({})):
        outcome = planning([(node, target())], {"spin": at_most("1")}, held, {node.uid: (job,)})
        assert outcome.ledger.entries[node.uid].digest == target().digest


def test_a_removal_that_is_done_frees_the_slot_though_the_shim_is_wanted_again() -> None:
    [node] = fleet(1)
    job = a_job(node, JobState.COMPLETE, digest=target().digest, installs="", operation="remove")
    ledger = Ledger({node.uid: Entry(job.digest, 1, 1000, ("spin",))})
    outcome = planning([(node, target(spin="1"))], {"spin": at_most("1")}, ledger, {node.uid: (job,)})
    assert outcome.ledger.entries[node.uid].digest == target(spin="1").digest


def test_remains_of_a_job_hold_its_slot_until_the_node_names_them() -> None:
    [node] = fleet(1)
    job = a_job(node, JobState.COMPLETE, digest=target(spin="1").digest, installs="spin=1")
    held = Ledger({node.uid: Entry(job.digest, 1, 1000, ("spin",))})
    for ledger in (held, Ledger({})):
        world = FleetSnapshot((node,), {}, {node.uid: (job,)}, ledger, {}, RETRIES, NOW)
        assert set(plan(world).ledger.entries) == {node.uid}
    named = replace(node, shims="spin=1", digest=job.digest, verified="job", marked_uid=node.uid)
    assert plan(replace(world, nodes=(named,), ledger=held)).ledger.entries == {}


def test_jobs_without_a_ledger_are_adopted_with_what_they_change() -> None:
    nodes = [having(node, spin="1", slight="1") for node in fleet(4)]
    wanted = target(spin="2", slight="1")
    installs = encode_digests(dict(wanted.shims))
    jobs = {node.uid: (a_job(node, digest=wanted.digest, installs=installs),) for node in nodes[:2]}
    outcome = planning([(node, wanted) for node in nodes], {"spin": at_most("2")}, jobs=jobs)
    assert claimed(outcome) == []
    assert {entry.shims for entry in outcome.ledger.entries.values()} == {("spin",)}


shim_names = st.sampled_from(["spin", "slight", "lunatic"])
digests = st.dictionaries(shim_names, st.sampled_from(["1", "2"]), max_size=3)
sizes = st.one_of(st.none(), st.integers(1, 5).map(str), st.integers(1, 100).map("{}%".format))


@given(
    worlds=st.lists(st.tuples(digests, digests, st.sampled_from([None, *JobState]), st.booleans()), max_size=20),
    limits=st.dictionaries(shim_names, st.builds(at_most, sizes, st.integers(0, 3)), max_size=3),
)
@example(worlds=[({}, {"spin": "1"}, None, False)] * 3, limits={"spin": at_most("1")})
def test_no_plan_ever_exceeds_the_limit_of_any_shim(
    worlds: list[tuple[dict[str, str], dict[str, str], JobState | None, bool]], limits: dict[str, ShimLimits]
) -> None:
    targets: list[tuple[NodeView, Target]] = []
    entries: dict[str, Entry] = {}
    jobs: dict[str, tuple[JobView, ...]] = {}
    for index, (has, wants, state, in_ledger) in enumerate(worlds):
        node = a_node(f"node-{index:02}")
        node = having(node, **has) if has else node
        wanted = target(**wants)
        targets.append((node, wanted))
        if state is not None:
            installs = encode_digests(wants)
            jobs[node.uid] = (a_job(node, state, digest=wanted.digest, installs=installs),)
        if in_ledger:
            entries[node.uid] = Entry(wanted.digest, 1, 9_000, changes_of(node, wanted) or ("spin",))
    outcome = planning(targets, limits, Ledger(entries), jobs)
    new = {node.uid for node in outcome.claimed}
    for name, held_to in limits.items():
        began = sum(name in outcome.ledger.entries[uid].shims for uid in new)
        before = sum(name in entry.shims for uid, entry in outcome.ledger.entries.items() if uid not in new)
        total = sum(name in {*dict(wanted.shims), *changes_of(node, wanted)} for node, wanted in targets)
        if held_to.max_update is not None:
            assert began <= max(0, held_to.max_update.resolve(total) - before)
    again = planning(targets, limits, outcome.ledger, jobs)
    assert again.claimed == ()
    assert again.ledger == outcome.ledger


def test_a_failure_counts_only_for_what_the_node_is_to_have_now() -> None:
    [node] = fleet(1)
    node = having(node, spin="1", slight="1")
    wanted = target(spin="2", slight="1")
    less = target(spin="1")
    assert failing_on(failed(node, wanted.digest), wanted, wanted) == ("spin",)
    assert failing_on(failed(node, target(spin="0", slight="1").digest), wanted, wanted) == ()
    assert failing_on(failed(node, wanted.digest), less, less) == ()
    assert failing_on(failed(node, less.digest), less, less) == ("slight",)  # its removal


def test_the_slot_of_a_removal_is_free_once_its_job_is_deleted_for_any_target() -> None:
    [node] = fleet(1)
    removal = Ledger({node.uid: Entry(Target(()).digest, 1, 9_000, ("spin",))})
    outcome = planning([(node, target(slight="v1"))], {"spin": at_most(None), "slight": at_most(None)}, removal)
    assert outcome.ledger.entries[node.uid].shims == ("slight",)
