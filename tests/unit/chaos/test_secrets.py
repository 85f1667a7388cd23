"""Steps of users on Secrets, the expected answers, and the permitted answers meanwhile."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos import secret_work
from chaos.model import expected
from chaos.schedule import make_schedule
from chaos.secret_witness import DECIDED_SECONDS, GRANT_SECONDS, Answer, Witness
from chaos.secret_work import SecretModel
from chaos.steps import Schedule, Step

SET, ALLOW, GRANT = ("set-secret", "s0", "1"), ("let-read", "reader", "s0"), ("grant", "reader", "")
LATE = DECIDED_SECONDS + 1.0


def steps_of(*steps: tuple[str, str, str]) -> list[Step]:
    """Return steps of this part, a second apart."""
    return [Step(float(at), secret_work.PART, *step) for at, step in enumerate(steps)]


def answers(*steps: tuple[str, str, str]) -> dict[tuple[str, str], str]:
    """Return what is given after some steps."""
    return dict(expected(Schedule(1, 60.0, 1, tuple(steps_of(*steps)))).answers)


@settings(max_examples=30)
@given(st.integers(min_value=0, max_value=10**9))
def test_each_step_is_possible_where_it_stands(seed: int) -> None:
    model = SecretModel()
    for step in make_schedule(seed, 120).of(secret_work.PART):
        assert (step.on, step.value) in model.possible(step.act)
        model.do(step)


def test_seeds_end_in_answers_as_well_as_in_refusals() -> None:
    ends = [expected(make_schedule(seed, 30)).answers for seed in range(40)]
    assert any(ends)
    assert any(len(end) < len(secret_work.ACCOUNTS) * len(secret_work.SECRETS) for end in ends)


@pytest.mark.parametrize(
    ("steps", "given_"),
    [
        pytest.param([SET, ALLOW, GRANT], {("reader", "s0"): "1"}, id="what is there, allowed and granted is given"),
        pytest.param([SET, ALLOW], {}, id="what is not granted is not"),
        pytest.param([SET, GRANT], {}, id="what the account may not read is not"),
        pytest.param([ALLOW, GRANT], {}, id="what is not there is not"),
        pytest.param([SET, ALLOW, GRANT, ("set-secret", "s0", "5")], {("reader", "s0"): "5"}, id="the newest is given"),
        pytest.param([SET, ALLOW, GRANT, ("forbid-reading", "reader", "s0")], {}, id="a right that was taken is gone"),
        pytest.param([SET, ALLOW, GRANT, ("revoke-grant-of", "reader", "")], {}, id="a grant that was taken is gone"),
        pytest.param([SET, ALLOW, GRANT, ("delete-secret", "s0", "")], {}, id="a deleted Secret is gone"),
    ],
)
def test_the_end_is_the_requested_state(steps: list[tuple[str, str, str]], given_: dict[tuple[str, str], str]) -> None:
    assert answers(*steps) == given_


def seen(*steps: tuple[str, str, str]) -> Witness:
    """Return who saw these steps: the first at 0 s, a second apart, each taken half a second later."""
    witness = Witness()
    for step in steps_of(*steps):
        witness.requested_for(step, step.at)
        witness.accepted(step, step.at + 0.5)
    return witness


def answered(at: float, value: str = "1", account: str = "reader") -> Answer:
    return Answer(account, "s0", value, at, at + 0.1)


def test_a_permitted_answer_is_no_problem() -> None:
    assert seen(SET, ALLOW, GRANT).wrong(answered(2.0)) == []


@pytest.mark.parametrize(
    ("ends", "after", "lacks"),
    [
        pytest.param(("forbid-reading", "reader", "s0"), LATE, "right reader s0", id="without the right"),
        pytest.param(("delete-secret", "s0", ""), LATE, "value s0 1", id="of a deleted Secret"),
        pytest.param(("set-secret", "s0", "9"), LATE, "value s0 1", id="in an old version"),
        pytest.param(("revoke-grant-of", "reader", ""), GRANT_SECONDS + 1.0, "grant reader", id="without the grant"),
    ],
)
def test_an_answer_after_its_permission_ended_is_wrong_unless_it_was_on_its_way(
    ends: tuple[str, str, str], after: float, lacks: str
) -> None:
    witness = seen(SET, ALLOW, GRANT, ends)
    assert witness.wrong(answered(3.6)) == []
    [problem] = witness.wrong(answered(3.5 + after))
    assert problem.endswith(f"without {lacks}")


def test_an_answer_that_was_never_granted_is_wrong_at_any_time() -> None:
    assert len(seen(SET, ALLOW, GRANT).wrong(answered(2.0, account="nobody"))) == 2
    assert len(Witness().wrong(answered(0.0))) == 3


def test_a_requested_secret_not_yet_taken_may_be_served() -> None:
    witness = seen(SET, ALLOW)
    witness.requested_for(Step(3.0, secret_work.PART, *GRANT), 3.0)
    assert witness.wrong(answered(3.1)) == []
    assert witness.wrong(answered(2.5)) != []
