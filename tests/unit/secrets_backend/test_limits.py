"""The permitted rate of one entity."""

from __future__ import annotations

from secrets_backend.domain.limits import MOST_ENTITIES, Limits


def test_as_many_as_the_rate_come_at_once_and_then_one_for_each_share_of_a_second() -> None:
    limits = Limits(10.0)
    assert [limits.allows("M1", 5.0) for _ in range(11)] == [True] * 10 + [False]
    assert not limits.allows("M1", 5.05)
    assert limits.allows("M1", 5.16)
    assert not limits.allows("M1", 5.16)


def test_one_entity_takes_nothing_from_another() -> None:
    limits = Limits(1.0)
    assert limits.allows("M1", 0.0)
    assert not limits.allows("M1", 0.0)
    assert limits.allows("M2", 0.0)


def test_a_pause_saves_no_more_than_one_second() -> None:
    limits = Limits(2.0)
    limits.allows("M1", 0.0)
    assert [limits.allows("M1", 1000.0) for _ in range(3)] == [True, True, False]


def test_a_rate_below_one_lets_one_through_at_a_time() -> None:
    limits = Limits(0.5)
    assert limits.allows("M1", 0.0)
    assert not limits.allows("M1", 1.0)
    assert limits.allows("M1", 2.1)


def test_without_a_rate_there_is_no_limit_and_no_memory() -> None:
    limits = Limits(0.0)
    assert all(limits.allows("M1", 0.0) for _ in range(10_000))
    assert len(limits) == 0


def test_names_that_are_made_up_take_no_more_memory_after_a_while() -> None:
    limits = Limits(1.0)
    for number in range(3 * MOST_ENTITIES):
        limits.allows(f"M{number}", 0.0)
    assert len(limits) == MOST_ENTITIES


def test_a_clock_that_went_back_gives_nothing() -> None:
    limits = Limits(1.0)
    assert limits.allows("M1", 10.0)
    assert not limits.allows("M1", 0.0)
