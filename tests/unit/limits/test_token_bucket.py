"""A rate with a burst."""

from __future__ import annotations

import pytest

from trellis.limits.token_bucket import TokenBucket


@pytest.mark.parametrize(("rate", "at_once"), [(50, 50), (1, 1), (0.5, 1)])
def test_a_bucket_gives_its_rate_at_once_and_then_so_many_a_second(rate: float, at_once: int) -> None:
    bucket = TokenBucket(rate)
    assert sum(bucket.take(0) for _ in range(200)) == at_once
    assert bucket.wait(0) == pytest.approx(1 / rate)
    assert not bucket.take(0.9 / rate)
    assert bucket.take(1.0 / rate)


def test_a_bucket_without_a_rate_is_no_limit() -> None:
    bucket = TokenBucket(0)
    assert all(bucket.take(0) for _ in range(1000))
    assert bucket.wait(0) == 0


def test_many_tokens_are_waited_for_as_long_as_they_take_to_come() -> None:
    bucket = TokenBucket(10, 100)
    assert bucket.take(0, 100)
    assert bucket.wait(0, 50) == pytest.approx(5)
    assert not bucket.take(4.9, 50)
    assert bucket.take(5, 50)


def test_a_clock_that_goes_back_gives_nothing() -> None:
    bucket = TokenBucket(10, 1)
    assert bucket.take(100)
    assert not bucket.take(50)
    assert bucket.take(50.1)
