from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trellis.limits.backoff import Attempts, Backoff


@pytest.mark.parametrize(
    ("failures", "bound"), [(1, 1.0), (2, 2.0), (4, 8.0), (9, 256.0), (10, 300.0), (100_000, 300.0)]
)
def test_the_longest_delay_doubles_from_one_second_to_five_minutes(failures: int, bound: float) -> None:
    assert Backoff().bound(failures) == bound


@given(failures=st.integers(min_value=1), chance=st.floats(min_value=0, max_value=1, exclude_max=True))
def test_a_delay_lies_anywhere_between_nothing_and_the_bound(failures: int, chance: float) -> None:
    backoff = Backoff(random=lambda: chance)
    assert backoff.delay(failures) == chance * backoff.bound(failures)
    assert 0 <= backoff.delay(failures) <= backoff.cap


def test_the_waits_double_until_an_attempt_succeeds() -> None:
    attempts = Attempts(Backoff(first=0.5, cap=3.0, random=lambda: 1.0))
    assert [attempts.next() for _ in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    attempts.reset()
    assert attempts.next() == 0.5
