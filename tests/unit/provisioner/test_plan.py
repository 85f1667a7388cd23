"""The rollout limit, retries and the halt: worlds of many nodes in, the next ledger out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.domain.plan import FleetSnapshot, Plan, plan
from trellis.provisioning.attempts import Retries, ShimLimits, next_attempt, retry_at
from trellis.provisioning.int_or_percent import CountOrPercent
from trellis.provisioning.ledger import Entry, Ledger, make_ledger
from trellis.provisioning.targets import target_of
from trellis.provisioning.views import KWASM, FailedAttempt, JobState, JobView, NodeView, Target
from trellis_dev.testing.builders import DIGEST, OTHER_DIGEST, a_job, a_node, failed, opted_in, verified_node

NOW = 10_000.0


RETRIES = Retries(10.0, 300.0)


def limits(max_update: str = "10%", halt_after: int = 0) -> ShimLimits:
    return ShimLimits(CountOrPercent.parse(max_update), halt_after)


def kwasm(nodes: list[NodeView]) -> dict[str, Target]:
    """Return what nodes are to have while there are no Shims: the legacy image, if they opted in and run Linux."""
    targets = ((node.uid, target_of(node, [], DIGEST, auto_provision=False, require_checksum=True)) for node in nodes)
    return {uid: target for uid, target in targets if target is not None}


def planning(
    nodes: list[NodeView],
    *,
    jobs: list[JobView] | None = None,
    ledger: Mapping[str, Entry] | None = None,
    held_to: ShimLimits | None = None,
    now: float = NOW,
    blocked: frozenset[str] = frozenset(),
    settles_in: float = 0.0,
    other_controller: frozenset[str] = frozenset(),
) -> Plan:
    by_uid: dict[str, tuple[JobView, ...]] = {}
    for job in jobs or []:
        by_uid[job.node_uid] = (*by_uid.get(job.node_uid, ()), job)
    held_to = held_to or limits()
    targets, before = kwasm(nodes), Ledger(ledger or {})
    world = FleetSnapshot(tuple(nodes), targets, by_uid, before, {KWASM: held_to}, RETRIES, now, blocked, settles_in)
    return plan(replace(world, other_controller=other_controller))


def fleet(count: int) -> list[NodeView]:
    return [opted_in(a_node(f"node-{index:03}")) for index in range(count)]


def claimed(outcome: Plan) -> list[str]:
    return [node.name for node in outcome.claimed]


def entry(attempt: int = 1, digest: str = DIGEST) -> Entry:
    return Entry(digest, attempt, 9_000)


def test_ten_percent_of_thirty_nodes_are_three_by_name() -> None:
    outcome = planning(fleet(30))
    assert claimed(outcome) == ["node-000", "node-001", "node-002"]
    assert len(outcome.waiting) == 27
    assert set(outcome.ledger.entries) == {"uid-node-000", "uid-node-001", "uid-node-002"}


def test_nodes_that_have_what_they_are_to_have_count_for_a_percentage() -> None:
    rest = [verified_node(node) for node in fleet(27)]
    fresh = [opted_in(a_node(f"fresh-{index}")) for index in range(5)]
    outcome = planning([*rest, *fresh])
    assert claimed(outcome) == ["fresh-0", "fresh-1", "fresh-2"], "a tenth of 32, not of the 5 that lack something"


def test_a_percentage_of_few_nodes_is_still_one() -> None:
    assert claimed(planning(fleet(3))) == ["node-000"]


def test_nodes_without_opt_in_and_windows_nodes_get_no_slot() -> None:
    nodes = [a_node("plain"), opted_in(a_node("win", operating_system="windows"))]
    assert claimed(planning(nodes)) == []


def test_a_slot_in_use_is_counted() -> None:
    nodes = fleet(10)
    assert claimed(planning(nodes, ledger={nodes[4].uid: entry()})) == []


@pytest.mark.parametrize(
    "node",
    [
        pytest.param(verified_node(fleet(1)[0]), id="verification is recorded"),
        pytest.param(failed(fleet(1)[0], attempt=1, at=9_999), id="failure is recorded"),
        pytest.param(a_node("node-000"), id="opted out and nothing at work"),
    ],
)
def test_a_slot_is_freed_when(node: NodeView) -> None:
    outcome = planning([node], ledger={node.uid: entry()})
    assert outcome.released == (node.uid,)
    assert outcome.ledger.entries == {}


def test_a_slot_is_freed_when_the_node_is_deleted() -> None:
    assert planning([], ledger={"uid-gone": entry()}).released == ("uid-gone",)


def test_a_failure_of_an_earlier_attempt_frees_nothing() -> None:
    node = failed(fleet(1)[0], attempt=1)
    assert planning([node], ledger={node.uid: entry(attempt=2)}).released == ()


def test_an_opted_out_node_keeps_its_slot_while_its_installer_works() -> None:
    node = a_node()
    outcome = planning([node], jobs=[a_job(node)], ledger={node.uid: entry()})
    assert outcome.released == ()


def test_jobs_without_a_ledger_are_adopted_before_anything_new_begins() -> None:
    nodes = fleet(20)
    jobs = [a_job(node) for node in nodes[:5]]
    outcome = planning(nodes, jobs=jobs, held_to=limits("5"))
    assert claimed(outcome) == []
    assert len(outcome.ledger.entries) == 5


def test_failed_work_on_an_unavailable_node_is_not_adopted_again() -> None:
    node = failed(replace(fleet(1)[0], ready=False), at=1000)
    job = a_job(node, failure_target="DeadlineExceeded", failure="NodeNotReady: DeadlineExceeded")
    assert planning([node], jobs=[job], ledger={node.uid: entry()}).ledger.entries == {}


def test_a_node_that_is_not_ready_is_passed_by_until_it_is() -> None:
    unavailable, *others = fleet(3)
    unavailable = replace(unavailable, ready=False)
    outcome = planning([unavailable, *others], held_to=limits("1"))
    assert claimed(outcome) == ["node-001"]
    assert planning([failed(unavailable, at=1)]).claimed == ()
    assert planning([unavailable]).wake_in is None  # its next change wakes us
    assert claimed(planning([replace(unavailable, ready=True)])) == ["node-000"]


def test_a_node_in_progress_that_disappears_keeps_its_slot() -> None:
    unavailable, *others = fleet(3)
    unavailable = replace(unavailable, ready=False)
    outcome = planning(
        [unavailable, *others], jobs=[a_job(unavailable)], ledger={unavailable.uid: entry()}, held_to=limits("1")
    )
    assert (outcome.released, claimed(outcome)) == ((), [])


def test_no_node_is_started_while_earlier_starts_are_unconfirmed() -> None:
    nodes = [*fleet(2), failed(opted_in(a_node("node-010")), at=1)]
    outcome = planning(nodes, held_to=limits("100%"), settles_in=0.7)
    assert (claimed(outcome), outcome.wake_in) == ([], 0.7)
    assert len(claimed(planning(nodes, held_to=limits("100%")))) == 3


def test_a_failed_node_waits_and_is_then_tried_again_with_the_next_attempt() -> None:
    node = failed(fleet(1)[0], attempt=2, at=9_995)
    outcome = planning([node])
    assert claimed(outcome) == []
    assert outcome.wake_in is not None
    later = planning([node], now=NOW + outcome.wake_in)
    assert claimed(later) == ["node-000"]
    assert later.ledger.entries[node.uid].attempt == 3


def test_a_failure_recorded_far_in_the_future_does_not_wait_for_it() -> None:
    node = failed(fleet(1)[0], at=int(NOW) + 100_000)
    assert claimed(planning([node])) == ["node-000"]


def test_a_new_digest_starts_with_the_first_attempt_at_once() -> None:
    node = failed(fleet(1)[0], OTHER_DIGEST, attempt=7, at=int(NOW))
    assert next_attempt(node, Target(((KWASM, DIGEST),))) == 1
    assert claimed(planning([node])) == ["node-000"]


def test_a_node_verified_with_another_digest_is_provisioned_again() -> None:
    assert claimed(planning([verified_node(fleet(1)[0], OTHER_DIGEST)])) == ["node-000"]


def test_a_slot_for_a_digest_no_longer_wanted_is_freed_unless_a_job_is_at_work() -> None:
    node = fleet(1)[0]
    old = {node.uid: entry(digest=OTHER_DIGEST)}
    freed = planning([node], ledger=old)
    assert freed.released == (node.uid,)  # and claimed again in the same plan, now for what is wanted
    assert freed.ledger.entries[node.uid].digest == DIGEST
    busy = planning([node], ledger=old, jobs=[a_job(node, digest=OTHER_DIGEST)])
    assert busy.ledger.entries[node.uid].digest == OTHER_DIGEST


def test_enough_failing_nodes_halt_new_ones_but_not_retries() -> None:
    nodes = fleet(20)
    broken = [failed(node, at=1) for node in nodes[:3]]
    outcome = planning([*broken, *nodes[3:]], held_to=limits("100%", halt_after=3))
    assert outcome.ledger.halted == (KWASM,)
    assert claimed(outcome) == ["node-000", "node-001", "node-002"]
    healed = [verified_node(node) for node in nodes[:1]]
    resumed = planning([*healed, *broken[1:], *nodes[3:]], held_to=limits("100%", halt_after=3))
    assert resumed.ledger.halted == ()
    assert len(resumed.claimed) == 19


def test_first_tries_go_before_retries() -> None:
    nodes = fleet(3)
    outcome = planning([failed(nodes[0], at=1), *nodes[1:]], held_to=limits("1"))
    assert claimed(outcome) == ["node-001"]


@given(attempt=st.integers(1, 500), uid=st.text(min_size=1))
def test_the_wait_before_a_retry_grows_to_its_limit_and_is_the_same_for_every_replica(attempt: int, uid: str) -> None:
    failure = FailedAttempt(DIGEST, attempt, 1_000)
    wait = retry_at(uid, failure, RETRIES) - 1_000
    full = min(300.0, 10.0 * 2 ** (attempt - 1))
    assert full / 2 <= wait <= full
    assert retry_at(uid, failure, RETRIES) - 1_000 == wait


@given(attempt=st.integers(1, 500))
def test_a_try_that_disrupted_a_node_waits_the_longest_from_the_start(attempt: int) -> None:
    wait = retry_at("uid", FailedAttempt(DIGEST, attempt, 1_000, disruptive=True), RETRIES) - 1_000
    full = min(3600.0, 300.0 * 2 ** (attempt - 1))
    assert full / 2 <= wait <= full


node_states = st.sampled_from(["plain", "in", "verified", "failed", "due", "gone"])
job_states = st.sampled_from([None, *JobState])


@given(
    worlds=st.lists(st.tuples(node_states, job_states, st.booleans()), max_size=30),
    size=st.one_of(st.integers(1, 40).map(str), st.integers(1, 100).map("{}%".format)),
    halt_after=st.integers(0, 5),
)
def test_no_plan_ever_exceeds_its_limit(
    worlds: list[tuple[str, JobState | None, bool]], size: str, halt_after: int
) -> None:
    nodes: list[NodeView] = []
    jobs: list[JobView] = []
    ledger: dict[str, Entry] = {}
    for index, (state, job, in_ledger) in enumerate(worlds):
        node = a_node(f"node-{index:03}") if state == "plain" else opted_in(a_node(f"node-{index:03}"))
        node = verified_node(node) if state == "verified" else node
        node = failed(node, at=int(NOW)) if state == "failed" else node
        node = failed(node, at=1) if state == "due" else node
        if job is not None:
            jobs.append(a_job(node, job))
        if in_ledger:
            ledger[node.uid] = entry()
        if state != "gone":
            nodes.append(node)
    held_to = limits(size, halt_after)
    outcome = planning(nodes, jobs=jobs, ledger=ledger, held_to=held_to)
    wanted = sum(1 for node in nodes if node.opt_in == "true")
    before = len(outcome.ledger.entries) - len(outcome.claimed)
    assert held_to.max_update is not None
    assert len(outcome.claimed) <= max(0, held_to.max_update.resolve(wanted) - before)
    # planning again in the world that the plan made changes nothing
    again = plan(
        FleetSnapshot(tuple(nodes), kwasm(nodes), _grouped(jobs), outcome.ledger, {KWASM: held_to}, RETRIES, NOW)
    )
    assert again.claimed == ()
    assert again.ledger == outcome.ledger


def test_a_slot_with_a_requested_job_is_kept_for_any_new_target() -> None:
    first, second = fleet(2)
    nodes, held_to = (replace(first, opt_in="false"), second), {KWASM: limits("1")}
    ledger = Ledger({first.uid: entry()})
    world = FleetSnapshot(
        nodes, kwasm(list(nodes)), {}, ledger, held_to, RETRIES, NOW, in_progress={first.uid: entry()}
    )
    assert plan(world).ledger == ledger
    assert plan(replace(world, ledger=Ledger({}))).ledger == ledger, "also one that somebody deleted"
    assert claimed(plan(replace(world, in_progress={}))) == ["node-001"]


def test_the_failed_job_of_an_earlier_attempt_keeps_no_slot_of_a_cancelled_one() -> None:
    """The Shim changed between the claim of the second try and its Job: the slot was never free again."""
    node = failed(fleet(1)[0], OTHER_DIGEST)
    job = a_job(node, JobState.FAILED, digest=OTHER_DIGEST, failure="InstallerFailed: it broke")
    outcome = planning([node], jobs=[job], ledger={node.uid: entry(2, OTHER_DIGEST)})
    assert outcome.released == (node.uid,)
    assert outcome.ledger.entries[node.uid] == Entry(DIGEST, 1, int(NOW)), "and what it is to have now is begun"


def _grouped(jobs: list[JobView]) -> dict[str, tuple[JobView, ...]]:
    return {job.node_uid: (job,) for job in jobs}


def test_the_target_may_change_the_limit_and_never_stops_work_in_progress() -> None:
    nodes = fleet(10)
    ledger = {node.uid: entry() for node in nodes[:6]}
    outcome = planning(nodes, ledger=ledger, held_to=limits("2"))
    assert outcome.released == ()
    assert claimed(outcome) == []


def test_replacing_a_node_gives_the_new_one_a_slot_of_its_own() -> None:
    node = fleet(1)[0]
    new = replace(node, uid="uid-new")
    outcome = planning([new], ledger={node.uid: entry()})
    assert outcome.released == (node.uid,)
    assert claimed(outcome) == ["node-000"]


def test_a_deferred_node_is_evaluated_again_soon() -> None:
    nodes = fleet(2)
    outcome = planning(nodes, held_to=limits("100%"), blocked=frozenset({nodes[0].uid}))
    assert claimed(outcome) == ["node-001"]
    assert outcome.wake_in is not None
    assert outcome.wake_in < 1


def test_nothing_is_started_beside_another_controller_and_no_timer_polls() -> None:
    nodes = [*fleet(2), failed(opted_in(a_node("node-007")), at=1)]
    outcome = planning(nodes, other_controller=frozenset(node.uid for node in nodes))
    assert (claimed(outcome), outcome.wake_in, outcome.waiting) == ([], None, ())


def test_a_slot_goes_back_where_another_controller_works_unless_a_job_is_under_way() -> None:
    [first, second] = fleet(2)
    ledger = {first.uid: entry(), second.uid: entry()}
    outcome = planning(
        [first, second], jobs=[a_job(second)], ledger=ledger, other_controller=frozenset({first.uid, second.uid})
    )
    assert set(outcome.ledger.entries) == {second.uid}
    assert outcome.released == (first.uid,)


def test_without_a_limit_no_more_nodes_are_in_progress_than_fit_the_ledger() -> None:
    """A ConfigMap that is too large would be refused at each try, and nothing would ever be installed again."""
    nodes = [opted_in(a_node(f"node-{index:05}", uid=f"{index:036}")) for index in range(9_000)]
    outcome = planning(nodes, held_to=limits("100%"))
    assert 5_000 < len(outcome.claimed) < 9_000
    assert len(outcome.claimed) + len(outcome.waiting) == 9_000
    written = make_ledger("trellis-system", outcome.ledger, "42")["data"]
    assert sum(len(uid) + len(value) for uid, value in written.items()) < 2**20
    done = planning(nodes, held_to=limits("100%"), ledger=dict(list(outcome.ledger.entries.items())[:10]))
    assert len(done.claimed) > 5_000, "what is released has room for others"
