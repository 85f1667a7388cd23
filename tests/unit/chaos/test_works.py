"""Steps of users on applications, groups and mirrored objects: possible in their order, and with the expected end."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos import controller_work, lattice_work
from chaos.lattice_work import App, LatticeModel
from chaos.model import expected
from chaos.schedule import make_schedule
from chaos.steps import Schedule, Step

FEW = settings(max_examples=30)
SEEDS = st.integers(min_value=0, max_value=10**9)


def of(part: str, *steps: tuple[str, str, str]) -> Schedule:
    """Return a schedule of one part, a second apart."""
    return Schedule(1, 60.0, 1, tuple(Step(float(at), part, *step) for at, step in enumerate(steps)))


@FEW
@given(SEEDS)
def test_each_step_is_possible_and_few_applications_cease_to_run(seed: int) -> None:
    model, taken = LatticeModel(), list[float]()
    for step in make_schedule(seed, 120).of(lattice_work.PART):
        act = lattice_work.Act(step.act)
        assert (step.on, step.value) in model.possible(act)
        if act in lattice_work.DESTRUCTIVE:
            taken.append(step.at)
        model.do(step)
    for first, next_but in zip(taken, taken[lattice_work.MOST_DESTRUCTIVE :], strict=False):
        assert next_but - first >= 60


@FEW
@given(SEEDS)
def test_no_version_of_an_application_has_the_content_of_another(seed: int) -> None:
    acts = {lattice_work.Act.APPLY, lattice_work.Act.PUT}
    versions = [(step.on, step.value) for step in make_schedule(seed, 120).of(lattice_work.PART) if step.act in acts]
    assert len(versions) == len(set(versions))


@FEW
@given(SEEDS)
def test_no_step_deletes_a_missing_object(seed: int) -> None:
    there: set[str] = set()
    for step in make_schedule(seed, 120).of(controller_work.PART):
        if step.act == controller_work.Act.SET:
            there.add(step.on)
        else:
            there.remove(step.on)


@pytest.mark.parametrize(
    ("steps", "end"),
    [
        pytest.param([("apply", "k0", "1")], App("1"), id="what is applied runs"),
        pytest.param(
            [("apply", "k0", "1"), ("mark-undeployed", "k0", ""), ("apply", "k0", "2")],
            App("2", runs=False),
            id="what is marked stays so in its next version",
        ),
        pytest.param(
            [("apply", "k0", "1"), ("mark-undeployed", "k0", ""), ("delete", "k0", ""), ("apply", "k0", "2")],
            App("2"),
            id="the mark goes with the object",
        ),
        pytest.param(
            [("wash-put", "k0", "1"), ("wash-undeploy", "k0", ""), ("wash-put", "k0", "2")],
            App("2"),
            id="what wash puts it deploys",
        ),
        pytest.param([("wash-put", "k0", "1"), ("wash-delete", "k0", "")], None, id="what is deleted is not there"),
    ],
)
def test_an_application_ends_as_requested(steps: list[tuple[str, str, str]], end: App | None) -> None:
    assert expected(of(lattice_work.PART, *steps)).apps.get("k0") == end


def test_a_group_has_as_many_hosts_as_requested_last() -> None:
    steps = [
        ("scale-group", "g0", "2"),
        ("scale-group", "g1", "1"),
        ("scale-group", "g0", "3"),
        ("delete-group", "g1", ""),
    ]
    assert expected(of(lattice_work.PART, *steps)).groups == {"g0": 3}


def test_a_copy_equals_its_object() -> None:
    steps = [("set", "a", "1"), ("set", "b", "2"), ("set", "a", "3"), ("delete-object", "b", "")]
    assert expected(of(controller_work.PART, *steps)).copies == {"a": "3"}
