from __future__ import annotations

import pytest

from trellis.bus.consume.lanes import Lanes


def taken(lanes: Lanes[str]) -> str:
    return "".join(lanes.take() for _ in range(len(lanes)))


def test_the_lanes_take_turns_and_each_is_first_come_first_served() -> None:
    lanes = Lanes[str]()
    for key in "xyz":
        lanes.add(key, retry=True)
    for key in "abc":
        lanes.add(key)
    assert taken(lanes) == "axbycz"


def test_a_lone_lane_does_not_wait_for_the_other() -> None:
    lanes = Lanes[str]()
    for key in "abc":
        lanes.add(key)
    assert taken(lanes) == "abc"
    for key in "xyz":
        lanes.add(key, retry=True)
    assert taken(lanes) == "xyz"


def test_a_key_waits_once_and_keeps_its_place() -> None:
    lanes = Lanes[str]()
    for key in "abab":
        lanes.add(key)
    lanes.add("a", retry=True)
    assert taken(lanes) == "ab"


def test_a_message_for_a_key_that_waits_for_its_retry_makes_it_new() -> None:
    lanes = Lanes[str]()
    for key in "xyz":
        lanes.add(key, retry=True)
    lanes.add("z")
    assert taken(lanes) == "zxy"


def test_from_nothing_nothing_is_taken() -> None:
    with pytest.raises(KeyError):
        Lanes[str]().take()
