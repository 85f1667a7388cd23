"""When a second reader of one durable counts as one, and for how long."""

from __future__ import annotations

import pytest

from trellis.bus.consume.other_reader import OtherReader

PATIENCE, LOOK = 30.0, 5.0


@pytest.fixture
def seen() -> OtherReader:
    return OtherReader("own", PATIENCE)


def test_a_change_of_leader_is_no_other_cluster(seen: OtherReader) -> None:
    assert not seen.look("next leader", 0.0)
    assert not seen.look("next leader", PATIENCE - 1)
    assert not seen.there


def test_a_reader_that_stays_is_another_cluster_and_is_shown_this_one(seen: OtherReader) -> None:
    seen.look("other", 0.0)
    assert seen.look("other", PATIENCE)
    assert seen.there


def test_a_consumer_without_a_name_is_an_older_version_of_this_service(seen: OtherReader) -> None:
    seen.look("", 0.0)
    assert not seen.look("", 10 * PATIENCE)
    assert not seen.there


def test_two_readers_see_each_other_without_a_break_and_one_that_is_left_recovers() -> None:
    first, second, named, now = OtherReader("first", PATIENCE), OtherReader("second", PATIENCE), "second", 0.0
    both: list[bool] = []
    while now < 20 * PATIENCE:
        for each in (first, second):
            if each.look(named, now):
                named = each.own
        both.append(first.there and second.there)
        now += LOOK
    assert all(both[both.index(True) :])
    for _ in range(60):  # the second is gone
        if first.look(named, now):
            named = first.own
        now += LOOK
    assert not first.there
