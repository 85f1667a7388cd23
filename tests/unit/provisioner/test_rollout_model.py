"""The rollout keeps its promises in every order of its steps: the limit, one installer a node, and an end.

Each world is explored whole (``support.nodes.rollout_model``); what may go wrong in it is listed. The figures are kept:
fewer states than before mean that a step was lost.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from provisioner.domain import plan as planning
from provisioner.domain.plan import FleetSnapshot
from support.nodes import rollout_decisions
from support.nodes.exploring import HOPELESS, BrokenPromise, Explored, Promises, explore
from support.nodes.rollout_model import MOST_AT_ONCE, ONE_INSTALLER, TOO_LATE, Left, Rollout
from trellis.provisioning import leftovers as unfinished
from trellis.provisioning.ledger import Entry
from trellis.provisioning.views import PROVISION, JobState, JobView


def explored(rollout: Rollout, nodes: int, left: Left) -> Explored:
    return explore(rollout.first(nodes, left), rollout.steps, Promises(rollout.broken, rollout.goal), most=50_000)


@pytest.fixture
def decisions() -> Iterator[pytest.MonkeyPatch]:
    """Decisions that are broken on purpose; what was remembered of the true ones is forgotten, and back."""
    with pytest.MonkeyPatch.context() as broken:
        rollout_decisions.forget()
        yield broken
    rollout_decisions.forget()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("nodes", "left", "states"),
    [
        (2, Left(failures=1, crashes=1), 3_902),
        pytest.param(2, Left(versions=1, lost_answers=1), 7_768, marks=pytest.mark.thorough),
        (2, Left(lost_ledgers=1, lost_answers=1), 2_953),
        (2, Left(replaced=1), 3_430),
        (3, Left(), 3_335),
        pytest.param(2, Left(opt_outs=1), 15_715, marks=pytest.mark.thorough),
        pytest.param(1, Left(jobs_deleted=1, opt_outs=1, crashes=1), 10_745, marks=pytest.mark.thorough),
        pytest.param(1, Left(jobs_deleted=1, opt_outs=1, failures=1), 18_174, marks=pytest.mark.thorough),
    ],
    ids=[
        "a Job fails and the leader is killed",
        "the Shim changes and an answer gets lost",
        "the ledger is deleted and an answer gets lost",
        "a node is replaced",
        "three nodes",
        "a node opts out",
        "a Job is deleted by hand, the node opts out and the leader is killed",
        "a Job is deleted by hand, the node opts out and a Job fails",
    ],
)
def test_the_limit_holds_and_every_node_gets_its_shim_in_any_order(nodes: int, left: Left, states: int) -> None:
    assert explored(Rollout(), nodes, left).states >= states


@pytest.mark.parametrize(
    ("broken", "left", "promise"),
    [
        (Rollout(keeps_requested=False), Left(opt_outs=1), MOST_AT_ONCE),
        (Rollout(keeps_requested=False), Left(versions=1), ONE_INSTALLER),
    ],
    ids=[
        "a Job on its way keeps no slot",
        "a Job that the watch does not show is not known",
    ],
)
def test_a_protocol_without_one_of_its_rules_is_caught(broken: Rollout, left: Left, promise: str) -> None:
    with pytest.raises(BrokenPromise, match=promise):
        explored(broken, 2, left)


def test_a_lost_ledger_that_lets_a_second_wave_begin_is_caught(decisions: pytest.MonkeyPatch) -> None:
    decisions.setattr(planning, "_adopted", lambda *_: {})
    with pytest.raises(BrokenPromise, match=MOST_AT_ONCE):
        explored(Rollout(), 2, Left(lost_ledgers=1, versions=1, crashes=1))


def test_a_job_whose_deletion_makes_the_leader_forget_what_it_did_is_caught(decisions: pytest.MonkeyPatch) -> None:
    """As it was once: only the Job knew what is on the disk."""
    decisions.setattr(rollout_decisions, "unconfirmed_shims", lambda *_: frozenset())
    with pytest.raises(BrokenPromise, match=rf"{HOPELESS}[\s\S]*{TOO_LATE}"):
        explored(Rollout(), 1, Left(jobs_deleted=1, opt_outs=1))


def test_a_repeated_job_without_the_possible_leftovers_is_detected(
    decisions: pytest.MonkeyPatch,
) -> None:
    """It may be ended, and take back what it did itself: what the one before it did stays."""
    decisions.setattr(unfinished, "_there_after", _of_its_own_doing)
    with pytest.raises(BrokenPromise, match=HOPELESS):
        explored(Rollout(), 1, Left(jobs_deleted=1, opt_outs=1))


def _of_its_own_doing(job: JobView) -> frozenset[str]:
    return frozenset(job.shims) if job.operation == PROVISION and job.state is JobState.COMPLETE else frozenset()


def test_a_limit_that_is_not_counted_is_caught(decisions: pytest.MonkeyPatch) -> None:
    decisions.setattr(planning.Slots, "_free", lambda *_: True)
    with pytest.raises(BrokenPromise, match=rf"{MOST_AT_ONCE}: 2 of spin.*\b1\n"):
        explored(Rollout(), 2, Left())


def test_a_slot_kept_for_a_cancelled_attempt_is_detected(decisions: pytest.MonkeyPatch) -> None:
    """As it was once: the failed Job of an earlier try kept the slot of the next one when the Shim changed."""
    kept = planning._kept

    def with_older_jobs(world: FleetSnapshot) -> dict[str, Entry]:
        older = {uid: entry for uid, entry in world.ledger.entries.items() if world.jobs.get(uid)}
        return older | kept(world)

    decisions.setattr(planning, "_kept", with_older_jobs)
    with pytest.raises(BrokenPromise, match=HOPELESS):
        explored(Rollout(), 2, Left(failures=1, versions=1))
