"""Schedules of chaos: the same from the same seed, possible, over in time; and what they have to end in."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chaos import fault_plan, node_work, run
from chaos.fault_plan import Fault
from chaos.model import expected
from chaos.node_work import NodeEnd, NodeModel
from chaos.schedule import make_schedule
from chaos.steps import Schedule, Step

FEW = settings(max_examples=30)
SEEDS = st.integers(min_value=0, max_value=10**9)
SECONDS = st.floats(min_value=5, max_value=120)


def of(*steps: tuple[str, str, str]) -> Schedule:
    """Return a schedule of what people do to nodes, a second apart."""
    made = (Step(float(at), node_work.PART, *step) for at, step in enumerate(steps))
    return Schedule(1, 60.0, 1, tuple(made))


@FEW
@given(SEEDS, SECONDS)
def test_a_seed_is_a_schedule(seed: int, seconds: float) -> None:
    assert make_schedule(seed, seconds) == make_schedule(seed, seconds)


@FEW
@given(SEEDS, SECONDS)
@example(5164, 8.80859375)
def test_steps_come_in_order_and_every_fault_is_over_in_time(seed: int, seconds: float) -> None:
    schedule = make_schedule(seed, seconds)
    assert all(before.at <= after.at for before, after in pairwise(schedule.steps))
    assert all(step.at >= 0 and step.until <= seconds for step in schedule.steps)


@FEW
@given(SEEDS, SECONDS)
def test_a_part_that_is_left_out_changes_nothing_of_the_others(seed: int, seconds: float) -> None:
    alone = make_schedule(seed, seconds, parts=())
    assert alone.steps == tuple(make_schedule(seed, seconds).of(fault_plan.PART))


@FEW
@given(SEEDS, SECONDS)
@example(2251075, 54.0)
def test_a_target_has_one_fault_of_a_place_at_a_time(seed: int, seconds: float) -> None:
    by_place: dict[tuple[str, str], list[Step]] = {}
    for step in make_schedule(seed, seconds).of(fault_plan.PART):
        by_place.setdefault((fault_plan.place_of(step), step.on), []).append(step)
    for steps in by_place.values():
        assert all(before.until <= after.at for before, after in pairwise(steps))


@FEW
@given(SEEDS, SECONDS)
def test_user_actions_are_possible_and_within_the_limits_of_the_circuit_breaker(seed: int, seconds: float) -> None:
    model, taken = NodeModel(), list[float]()
    for step in make_schedule(seed, seconds).of(node_work.PART):
        act = node_work.Act(step.act)
        assert (step.on, step.value) in model.possible(act)
        if act in node_work.DESTRUCTIVE:
            taken.append(step.at)
        model.do(step)
    for first, fifth in zip(taken, taken[node_work.MOST_DESTRUCTIVE :], strict=False):
        assert fifth - first >= 60


@FEW
@given(SEEDS)
def test_faults_do_not_change_the_expected_end(seed: int) -> None:
    schedule = make_schedule(seed, 60)
    calm = Schedule(seed, 60, schedule.servers, tuple(schedule.of(node_work.PART)))
    assert (expected(schedule).nodes, expected(schedule).shims) == (expected(calm).nodes, expected(calm).shims)


def test_every_fault_comes_up_in_some_seed() -> None:
    seen = {step.act for seed in range(200) for step in make_schedule(seed, 60, parts=()).steps}
    assert seen == set(Fault)


@FEW
@given(SEEDS, SECONDS)
def test_omitted_faults_change_no_other_steps(seed: int, seconds: float) -> None:
    whole = make_schedule(seed, seconds)
    less = make_schedule(seed, seconds, without=(Fault.KILL, Fault.NATS_PARTED))
    assert less.steps == tuple(step for step in whole.steps if step.act not in {Fault.KILL, Fault.NATS_PARTED})


@FEW
@given(SEEDS)
def test_features_missing_on_the_machine_are_skipped_and_reported(seed: int) -> None:
    wanted = make_schedule(seed, 60)
    acts = {Fault.NATS_FULL, Fault.WADM_RESTART}
    schedule, left_out = run.without_what_is_missing(wanted, mounts=False, wadm=False)
    assert left_out == tuple(step for step in wanted.steps if step.act in acts)
    assert schedule.steps == tuple(step for step in wanted.steps if step.act not in acts)
    assert run.without_what_is_missing(wanted, mounts=True, wadm=True) == (wanted, ())


def test_only_one_of_three_servers_is_parted_from_others() -> None:
    parted = {Fault.NATS_PARTED, Fault.NATS_PARTED_SILENTLY}
    schedules = [make_schedule(seed, 12, parts=()) for seed in range(300)]
    steps = [(schedule.servers, step) for schedule in schedules for step in schedule.steps if step.act in parted]
    assert {step.act for _, step in steps} == parted
    assert {servers for servers, _ in steps} == {3}
    assert {step.value for _, step in steps} == {"0", "1", "2"}


@pytest.mark.parametrize(
    ("steps", "end"),
    [
        pytest.param([], NodeEnd(False, {}), id="a node of which nobody asks anything has nothing"),
        pytest.param([("opt-in", "n0", "")], NodeEnd(True, {}), id="an annotated node is labelled"),
        pytest.param(
            [("opt-in", "n0", ""), ("opt-out", "n0", "")], NodeEnd(False, {}), id="one that was is not any more"
        ),
        pytest.param([("select", "n0", "spin")], NodeEnd(False, {}), id="a Shim that nobody made is on no node"),
        pytest.param(
            [("select", "n0", "spin"), ("apply-shim", "spin", "1"), ("apply-shim", "spin", "2")],
            NodeEnd(True, {"spin": "2"}),
            id="a selected node has the newest version",
        ),
        pytest.param(
            [("select", "n0", "spin"), ("apply-shim", "spin", "1"), ("delete-shim", "spin", "")],
            NodeEnd(False, {}),
            id="a deleted Shim is on no node",
        ),
        pytest.param(
            [("opt-in", "n0", ""), ("replace", "n0", "")],
            NodeEnd(True, {}),
            id="a node that is made anew as it was gets the same again",
        ),
    ],
)
def test_the_end_is_the_requested_state(steps: list[tuple[str, str, str]], end: NodeEnd) -> None:
    assert expected(of(*steps)).nodes["n0"] == end
