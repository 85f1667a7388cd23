"""The example `mirror`, the same in every language: it copies, and touches nothing that it did not make."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.guests.guest_api import FakeApi, Json, config_map
from support.guests.sdk_worlds import UNUSUAL, Boot, Start

pytestmark = pytest.mark.timeout(900)

MIRROR_OF = "examples.trellis.dev/mirror-of"
COPIED_FROM = "examples.trellis.dev/mirrored-from"


def test_makes_changes_and_removes_a_mirror(start: Start) -> None:
    world = start("mirror", targetNamespace="copies")
    source = config_map("settings", data={"a": "1", UNUSUAL[:4]: UNUSUAL})
    assert world.changed(source) == {}
    mirror = world.api.find("ConfigMap", "copies", "settings")
    assert mirror["data"] == source["data"]
    assert mirror["metadata"]["annotations"] == {MIRROR_OF: "team-a/settings"}
    assert mirror["metadata"]["labels"] == {COPIED_FROM: "team-a"}
    assert world.changed(config_map("settings", data={"a": "2"})) == {}
    assert world.api.find("ConfigMap", "copies", "settings")["data"] == {"a": "2"}
    assert world.deleted(source) == {}
    assert world.api.find("ConfigMap", "copies", "settings") is None


def test_takes_binary_data_along(start: Start) -> None:
    world = start("mirror", targetNamespace="copies")
    world.changed(config_map("settings") | {"binaryData": {"b": "AAEC"}})
    assert world.api.find("ConfigMap", "copies", "settings")["binaryData"] == {"b": "AAEC"}


def test_writes_nothing_if_nothing_differs(start: Start) -> None:
    world = start("mirror", targetNamespace="copies")
    world.changed(config_map("settings", data={"a": "1", "b": "2"}))
    assert world.changed(config_map("settings", data={"b": "2", "a": "1"}, labels={"new": "label"})) == {}
    assert {request["op"] for request in world.api.requests[2:]} == {"get"}


@pytest.mark.parametrize("annotations", [{}, {MIRROR_OF: "team-b/settings"}], ids=["a person's", "another's"])
def test_never_touches_what_it_did_not_make(start: Start, annotations: Json) -> None:
    world = start("mirror", targetNamespace="copies")
    world.api.put(config_map("settings", "copies", {"not": "ours"}, annotations=annotations))
    source = config_map("settings", data={"a": "1"})
    answer = world.changed(source)
    assert list(answer) == ["error"]
    for named in ("ConfigMap copies/settings", "team-a/settings"):
        assert named in answer["error"]
    assert world.deleted(source) == {}
    assert {request["op"] for request in world.api.requests} == {"get"}
    assert world.api.find("ConfigMap", "copies", "settings")["data"] == {"not": "ours"}


@pytest.mark.parametrize("annotations", [{}, {MIRROR_OF: "team-a/other"}, {MIRROR_OF: "settings"}])
def test_leaves_what_is_no_mirror_in_the_mirrors_namespace_alone(start: Start, annotations: Json) -> None:
    world = start("mirror", targetNamespace="copies")
    assert world.changed(config_map("settings", "copies", annotations=annotations)) == {}
    assert world.deleted(config_map("settings", "copies")) == {}
    assert not world.api.requests


SELECTED = {"mirror": "yes"}


@pytest.mark.parametrize("labels", [SELECTED, {}], ids=["gone", "not selected any more"])
def test_removes_a_mirror_whose_source_went_while_it_was_unavailable(start: Start, labels: Json) -> None:
    world = start("mirror", targetNamespace="copies", selector="mirror=yes")
    assert world.changed(config_map("settings", data={"a": "1"}, labels=SELECTED)) == {}
    world.api.objects = {place: kept for place, kept in world.api.objects.items() if place[2] == "copies"}
    if not labels:
        world.api.put(config_map("settings", data={"a": "1"}))
    world.restart()
    assert world.changed(world.api.find("ConfigMap", "copies", "settings")) == {}
    assert world.api.find("ConfigMap", "copies", "settings") is None


def test_makes_a_mirror_right_that_a_user_changed(start: Start) -> None:
    world = start("mirror", targetNamespace="copies", selector="mirror=yes")
    world.changed(config_map("settings", data={"a": "1"}, labels=SELECTED))
    world.api.put(config_map("other", data={"a": "9"}, labels=SELECTED))
    spoilt = world.api.find("ConfigMap", "copies", "settings") | {"data": {"a": "2"}}
    assert world.changed(spoilt) == {}
    assert world.api.find("ConfigMap", "copies", "settings")["data"] == {"a": "1"}
    before = len(world.api.requested("update"))
    assert world.changed(world.api.find("ConfigMap", "copies", "settings")) == {}
    assert len(world.api.requested("update")) == before, "what is right is not written"


def test_deletes_and_changes_only_what_it_has_looked_at(start: Start) -> None:
    world = start("mirror", targetNamespace="copies")
    world.changed(config_map("settings", data={"a": "1"}))
    made = world.api.find("ConfigMap", "copies", "settings")["metadata"]
    world.changed(config_map("settings", data={"a": "2"}))
    [update] = world.api.requested("update")
    assert update["object"]["metadata"]["resourceVersion"] == made["resourceVersion"]
    changed = world.api.find("ConfigMap", "copies", "settings")["metadata"]
    world.deleted(config_map("settings"))
    [deletion] = world.api.requested("delete")
    assert {name: deletion[name] for name in ("uid", "resourceVersion")} == {
        name: changed[name] for name in ("uid", "resourceVersion")
    }


@pytest.mark.parametrize("op", ["get", "create", "update", "delete"])
def test_is_tried_again_with_the_servers_own_words(start: Start, op: str) -> None:
    world = start("mirror", targetNamespace="copies")
    if op in {"update", "delete"}:
        world.changed(config_map("settings", data={"a": "0"}))
    world.api.refusals[op] = {"code": 409, "reason": "Conflict", "message": "the object has been modified"}
    source = config_map("settings", data={"a": "1"})
    answer = world.deleted(source) if op == "delete" else world.changed(source)
    assert answer == {"error": f"{op} ConfigMap copies/settings: Conflict: the object has been modified"}


def test_does_not_start_without_a_namespace(boot: Callable[[str], Boot]) -> None:
    host = boot("mirror")(FakeApi())
    assert host.init({})["error"].startswith("config.targetNamespace is missing")
