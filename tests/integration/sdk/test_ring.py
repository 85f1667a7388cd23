"""The example `ring`, the same in every language: its requests and its writes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.guests.guest_api import FakeApi, Json, config_map, key_of
from support.guests.sdk_worlds import UNUSUAL, Boot, Start

pytestmark = pytest.mark.timeout(900)


def test_passes_a_newer_nonce_on_to_the_next(start: Start) -> None:
    world = start("ring", next="ring-2")
    assert world.changed(config_map("ring-1", data={"nonce": "7"})) == {}
    assert world.api.find("ConfigMap", "team-a", "ring-2")["data"] == {"nonce": "7"}
    assert world.changed(config_map("ring-1", data={"nonce": "12"})) == {}
    assert world.api.find("ConfigMap", "team-a", "ring-2")["data"] == {"nonce": "12"}


def test_keeps_what_else_the_next_has(start: Start) -> None:
    world = start("ring", next="ring-2")
    world.api.put(config_map("ring-2", data={"nonce": "3", "other": "kept"}))
    world.changed(config_map("ring-1", data={"nonce": "4"}))
    assert world.api.find("ConfigMap", "team-a", "ring-2")["data"] == {"nonce": "4", "other": "kept"}


@pytest.mark.parametrize("there", ["7", "8", "100"])
def test_never_takes_the_next_back_to_an_older_one(start: Start, there: str) -> None:
    world = start("ring", next="ring-2")
    world.api.put(config_map("ring-2", data={"nonce": there}))
    assert world.changed(config_map("ring-1", data={"nonce": "7"})) == {}
    assert not world.api.requested("apply")


def test_asks_nothing_for_what_it_has_passed_on(start: Start) -> None:
    world = start("ring", next="ring-2")
    world.changed(config_map("ring-1", data={"nonce": "7"}))
    requested = len(world.api.requests)
    assert world.changed(config_map("ring-1", data={"nonce": "7"})) == {}
    assert world.changed(config_map("ring-1", data={"nonce": "6"})) == {}
    assert len(world.api.requests) == requested


def test_a_cold_start_leads_to_the_same_end(start: Start) -> None:
    world = start("ring", next="ring-2")
    world.changed(config_map("ring-1", data={"nonce": "7"}))
    world.restart()
    assert world.changed(config_map("ring-1", data={"nonce": "7"})) == {}
    assert len(world.api.requested("apply")) == 1


@pytest.mark.parametrize("data", [{}, {"other": "x"}], ids=["no data", "other data"])
def test_does_nothing_without_a_nonce(start: Start, data: Json) -> None:
    world = start("ring", next="ring-2")
    assert world.changed(config_map("ring-1", data=data)) == {}
    assert world.deleted(config_map("ring-1")) == {}
    assert not world.api.requests


def test_does_nothing_if_it_is_shown_the_next_itself(start: Start) -> None:
    world = start("ring", next="ring-2")
    assert world.changed(config_map("ring-2", data={"nonce": "9"})) == {}
    assert not world.api.requests


@pytest.mark.parametrize(
    "nonce", ["", "x", "-1", "1.5", "1e3", "99999999999999999999", " 1", "1 ", "+1", "0x1", UNUSUAL]
)
def test_reports_an_invalid_nonce(start: Start, nonce: str) -> None:
    world = start("ring", next="ring-2")
    error = world.changed(config_map("ring-1", data={"nonce": nonce}))["error"]
    assert error.startswith("data.nonce ")


def test_does_not_remember_what_it_could_not_pass_on(start: Start) -> None:
    world = start("ring", next="ring-2")
    world.api.refusals["apply"] = {"code": 403, "reason": "Forbidden", "message": "may not"}
    refused = world.changed(config_map("ring-1", data={"nonce": "7"}))
    assert refused == {"error": "apply ConfigMap team-a/ring-2: Forbidden: may not"}
    del world.api.refusals["apply"]
    assert world.changed(config_map("ring-1", data={"nonce": "7"})) == {}
    assert world.api.find("ConfigMap", "team-a", "ring-2")["data"] == {"nonce": "7"}


def test_does_not_start_without_a_next(boot: Callable[[str], Boot]) -> None:
    host = boot("ring")(FakeApi())
    answer = host.init({})
    assert list(answer) == ["error"]
    assert "config.next" in answer["error"]


def test_a_nonce_goes_once_around(boot: Callable[[str], Boot]) -> None:
    api, size = FakeApi(), 10
    members = [boot("ring")(api) for _ in range(size)]
    for number, member in enumerate(members):
        assert member.init({"next": f"ring-{(number + 1) % size}"}) == {}
    api.put(config_map("ring-0", data={"nonce": "1"}))
    for number in [*range(size), 0]:
        shown = api.find("ConfigMap", "team-a", f"ring-{number}")
        assert members[number].reconcile(key_of(shown), shown) == {}
    assert [request["object"]["metadata"]["name"] for request in api.requested("apply")] == [
        f"ring-{number}" for number in range(1, size)
    ]
