"""The guests that are suspended to disk when memory gets short."""

from __future__ import annotations

from controller_host.domain.residents import Residents


def no_guest(_: str) -> bool:
    return False


def test_the_least_recently_used_go_first_and_no_more_than_needed() -> None:
    residents = Residents(100)
    for key in "abcd":
        residents.used(key, 30)
    residents.used("a", 30)
    assert residents.surplus(lambda _: True, no_guest) == ["b"]
    residents.used("c", 60)
    assert residents.surplus(lambda _: True, no_guest) == ["b", "d"]


def test_a_leaving_guest_counts_as_evicted() -> None:
    residents = Residents(60)
    for key in "abcd":
        residents.used(key, 30)
    assert residents.surplus(lambda key: key != "a", lambda key: key == "a") == ["b"]
    assert residents.surplus(lambda key: key not in "ab", lambda key: key in "ab") == []


def test_a_pinned_guest_stays() -> None:
    residents = Residents(10)
    residents.used("pinned", 30)
    residents.used("b", 30)
    assert residents.surplus(lambda key: key != "pinned", no_guest) == ["b"]
    residents.remove("b")
    assert residents.surplus(lambda key: key != "pinned", no_guest) == []
    assert (residents.total, len(residents)) == (30, 1)


def test_without_a_budget_all_guests_stay_and_a_double_removal_counts_once() -> None:
    residents = Residents(0)
    residents.used("a", 2**40)
    assert residents.surplus(lambda _: True, no_guest) == []
    residents.remove("a")
    residents.remove("a")
    assert residents.total == 0


def test_inspection_does_not_change_the_last_use() -> None:
    residents = Residents(70)
    for key in "abc":
        residents.used(key, 30)
    residents.weighed("a", 40)
    assert (residents.total, residents.surplus(lambda _: True, no_guest)) == (100, ["a"])
    residents.weighed("new", 10)
    assert residents.total == 110
