"""The example `stateful`, the same in every language: what it holds in memory, it holds asleep, too."""

from __future__ import annotations

import json

import pytest

from support.guests.guest_api import config_map, key_of
from support.guests.sdk_worlds import Start

pytestmark = [pytest.mark.timeout(900), pytest.mark.thorough]


def test_counts_and_remembers_in_memory(start: Start) -> None:
    world = start("stateful", bytes=100_000)
    for name in ("b", "a", "b"):
        assert world.changed(config_map(name)) == {}
    assert world.api.find("ConfigMap", "team-a", "b-seen")["data"] == {
        "calls": "3", "seen": '{"a": 1, "b": 2}', "memory": "whole", "clock": "forward",
    }  # fmt: skip


def test_sleeps_a_hundred_times_and_knows_all(start: Start, request: pytest.FixtureRequest) -> None:
    world = start("stateful", bytes=1_000_000)
    for number in range(100):
        assert world.changed(config_map(f"name-{number % 7}", data={"text": "x" * 1000 * number})) == {}
        report = world.api.find("ConfigMap", "team-a", f"name-{number % 7}-seen")["data"]
        assert (report["calls"], report["memory"], report["clock"]) == (str(number + 1), "whole", "forward")
    assert json.loads(report["seen"]) == {f"name-{number}": 14 + (number < 2) for number in range(7)}
    assert world.host.wakes == (101 if "suspended" in request.node.name else 0)


def test_a_new_version_takes_over_what_the_former_saved(start: Start) -> None:
    world = start("stateful")
    for name in ("b", "a", "b"):
        world.changed(config_map(name))
    saved = world.host.save()
    assert saved == {"calls": 3, "seen": {"a": 1, "b": 2}}
    world.host = world.boot(world.api)
    assert world.host.migrate(saved) == {}
    world.changed(config_map("a"))
    report = world.api.find("ConfigMap", "team-a", "a-seen")["data"]
    assert (report["calls"], report["seen"]) == ("4", '{"a": 2, "b": 2}')


def test_restarts_if_the_former_version_saved_nothing(start: Start) -> None:
    world = start("stateful")
    world.host = world.boot(world.api)
    assert world.host.migrate({}, {"bytes": 1000}) == {}
    world.changed(config_map("a"))
    report = world.api.find("ConfigMap", "team-a", "a-seen")["data"]
    assert (report["calls"], report["seen"], report["memory"]) == ("1", '{"a": 1}', "whole")


def test_uses_the_memory_of_a_call_again(start: Start) -> None:
    world = start("stateful")
    key, large = key_of(config_map("a")), config_map("a", data={"text": "x" * 1_000_000})
    for _ in range(100):
        world.host.reconcile(key, large)
    # A collector may let some calls' worth pile up; a leak would keep all hundred.
    assert world.host.memory_bytes < 40_000_000
