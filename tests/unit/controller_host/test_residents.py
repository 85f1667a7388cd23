"""Who goes to disk when memory gets short."""

from __future__ import annotations

from controller_host.residents import Residents


def test_the_least_recently_used_go_first_and_no_more_than_needed() -> None:
    residents = Residents(100)
    for key in "abcd":
        residents.used(key, 30)
    residents.used("a", 30)
    assert residents.surplus(lambda _: True) == ["b"]
    residents.used("c", 60)
    assert residents.surplus(lambda _: True) == ["b", "d"]


def test_who_may_not_go_stays() -> None:
    residents = Residents(10)
    residents.used("pinned", 30)
    residents.used("b", 30)
    assert residents.surplus(lambda key: key != "pinned") == ["b"]
    residents.gone("b")
    assert residents.surplus(lambda key: key != "pinned") == []
    assert (residents.total, len(residents)) == (30, 1)


def test_without_a_budget_all_stay_and_who_is_gone_twice_counts_once() -> None:
    residents = Residents(0)
    residents.used("a", 2**40)
    assert residents.surplus(lambda _: True) == []
    residents.gone("a")
    residents.gone("a")
    assert residents.total == 0
