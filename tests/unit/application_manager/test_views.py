"""The view of an Application, and the lattice it belongs to."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from application_manager.domain.sides import Base, Side, Win
from application_manager.domain.views import (
    ApplicationView,
    home_of,
    lattice_of,
    no_lattice_message,
    received_annotation,
    view_application,
)
from support.wadm.application_objects import managed, stored
from trellis import names
from trellis.lattice.domain.group_views import GroupView

DIGEST = "d" * 64
KUBERNETES_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
WADM_NAMES = st.from_regex(r"[-\w]{1,300}", fullmatch=True)


def test_an_object_is_read_in_all_that_a_decision_needs() -> None:
    annotations = {
        "version": "v3",
        names.ANNOTATION_UNDEPLOY: "true",
        names.ANNOTATION_LAST_SYNCED: received_annotation(DIGEST, 4),
        names.ANNOTATION_APP_NAME: "Web_1",
    }
    item = stored(annotations=annotations, labels={names.LABEL_LATTICE: "blue"})
    synced: dict[str, object] = {
        "specDigest": DIGEST,
        "wadmVersion": "v2",
        "deployed": True,
        "newestVersion": "v9",
        "serial": 4,
    }
    wins = [{"side": "wadm", "time": "2026-11-01T00:00:10Z"}]
    item["status"] = {
        "lattice": "red",
        "synced": synced | {"bucket": "b", "time": "2026-11-01T00:00:00Z"},
        "wins": wins,
    }
    view = view_application(item)
    assert (view.application, view.lattice, view.shown, view.problem) == ("Web_1", "blue", "red", "")
    found = view.object
    assert (found.version, found.undeploy, found.others, found.finalizer) == ("v3", True, True, True)
    assert found.base == Base(DIGEST, "v2", deployed=True, newest="v9", serial=4, bucket="b")
    assert found.wins == (Win(Side.WADM, 1793491210.0),)
    assert found.written == (DIGEST, 4)


def test_the_version_and_the_labels_of_trellis_are_no_change_of_the_manifest() -> None:
    marked = stored(annotations={"version": "v3", names.ANNOTATION_UNDEPLOY: "true"}, labels={names.LABEL_LATTICE: "x"})
    assert view_application(marked).object.digest == view_application(stored()).object.digest


@pytest.mark.parametrize(
    ("managers", "others"),
    [
        ([], False),
        ([managed(names.FIELD_MANAGER_WADM)], False),
        ([managed(names.FIELD_MANAGER_WADM), managed("kubectl", "f:metadata")], False),
        ([managed("argocd", "f:spec", "status")], False),
        ([managed(names.FIELD_MANAGER_WADM), managed("kubectl")], True),
    ],
    ids=["nobody", "wadm alone", "somebody of its metadata", "somebody of its status", "somebody of its spec"],
)
def test_other_managers_are_managers_of_spec_fields(managers: list[dict[str, object]], others: bool) -> None:
    assert view_application(stored(managedFields=managers)).object.others is others


@pytest.mark.parametrize(
    "name", ["größe", "a b", "-" * 3001, "x" * 200_000], ids=["letters", "space", "long", "longer"]
)
def test_a_name_invalid_as_a_key_of_wadm_is_reported(name: str) -> None:
    view = view_application(stored(annotations={names.ANNOTATION_APP_NAME: name}))
    assert f"'{name[:64]}'" in view.problem
    assert len(view.problem) < 200


def test_a_name_of_3000_characters_is_one() -> None:
    name = "x" * 3000
    view = view_application(stored(annotations={names.ANNOTATION_APP_NAME: name}))
    assert (view.application, view.problem) == (name, "")


def test_an_unreadable_object_states_the_reason_and_hides_no_other() -> None:
    broken = stored()
    broken["spec"]["components"][0]["type"] = "module"
    view = view_application(broken)
    assert "spec.components[0].type" in view.problem
    assert view.object.finalizer


def test_a_name_that_wadm_refuses_is_reported() -> None:
    view = view_application(stored(annotations={names.ANNOTATION_APP_NAME: "a.b"}))
    assert "a.b" in view.problem


@pytest.mark.parametrize("lattice_id", ["", "x", f"{DIGEST}", f"{DIGEST}/x", f"{DIGEST}/{'9' * 400}"])
def test_an_invalid_annotation_is_ignored(lattice_id: str) -> None:
    assert view_application(stored(annotations={names.ANNOTATION_LAST_SYNCED: lattice_id})).object.written is None


def test_fields_that_wadm_does_not_take_are_named() -> None:
    item = stored()
    item["spec"]["components"][0]["replicas"] = 3
    assert view_application(item).ignored == ("spec.components[0].replicas",)


@given(WADM_NAMES)
def test_each_name_of_wadm_becomes_one_that_kubernetes_takes(name: str) -> None:
    for found in (names.application_object(name), names.second_application_object(name, "l/1")):
        assert KUBERNETES_NAME.fullmatch(found)
        assert len(found) <= 253


@given(st.lists(WADM_NAMES, unique=True, min_size=2, max_size=20))
def test_two_names_of_wadm_never_become_one(given_names: list[str]) -> None:
    assert len({names.application_object(name) for name in given_names}) == len(given_names)


def test_a_name_that_kubernetes_takes_stays() -> None:
    assert names.application_object("web-1") == "web-1"
    assert names.application_object("Web_1") != "web-1"


def group(name: str, lattice_id: str, *, namespace: str = "team", created: str = "1", home: bool = False) -> GroupView:
    return GroupView(namespace, name, name, created, deleting=False, lattice=lattice_id, home=home)


RED, BLUE = group("r", "red/1", created="2"), group("b", "blue/2", created="1")


@pytest.mark.parametrize(
    ("groups", "label", "shown", "lattice_id"),
    [
        ([RED], "", "", "red/1"),
        ([RED, BLUE], "red", "", "red/1"),
        ([RED, BLUE], "", "red", "red/1"),
        ([RED, BLUE], "blue", "red", "blue/2"),
        ([RED, BLUE], "", "", ""),
        ([RED], "blue", "", ""),
        ([RED], "", "blue", ""),
        ([], "", "", ""),
    ],
    ids=[
        "the only one",
        "the one it names",
        "the one it belonged to",
        "what it names before what it belonged to",
        "which of two",
        "none of that name",
        "not another than before",
        "none at all",
    ],
)
def test_an_object_belongs_to_a_lattice_of_its_own_namespace(
    groups: list[GroupView], label: str, shown: str, lattice_id: str
) -> None:
    assert lattice_of(groups, label, shown) == lattice_id
    assert lattice_id or no_lattice_message(groups, label, shown)


def test_two_lattices_of_one_name_are_distinguished_by_age() -> None:
    assert lattice_of([group("a", "red/9", created="3"), RED], "red", "") == "red/1"


def test_the_home_namespace_is_that_of_the_reporting_group_or_of_the_oldest_object() -> None:
    old, new = group("a", "red/1", namespace="one", created="1"), group("b", "red/1", namespace="two", created="2")
    assert home_of([new, old]) == "one"
    assert home_of([old, group("c", "red/1", namespace="two", created="2", home=True)]) == "two"
    assert home_of([]) == ""


def test_a_view_compares_by_all_that_it_has() -> None:
    first, second = stored(), stored()
    second["status"] = {"phase": "Failed"}
    views: list[ApplicationView] = [view_application(first), view_application(second)]
    assert views[0] != views[1]


@pytest.mark.parametrize(
    ("managers", "lattice_id", "version", "of_wadm"),
    [
        ([names.FIELD_MANAGER_WADM], DIGEST, "", True),
        ([names.FIELD_MANAGER_WADM, "kubectl"], DIGEST, "w1", False),
        (["kubectl"], DIGEST, "w1", False),
        ([names.FIELD_MANAGER_WADM], "", "w1", False),
        ([names.FIELD_MANAGER_WADM], "its own", "w1", False),
    ],
    ids=["ours, of another manifest", "ours and somebody's", "somebody's", "made from wash", "ours, of this manifest"],
)
def test_the_version_that_wash_set_counts_only_with_its_manifest(
    managers: list[str], lattice_id: str, version: str, of_wadm: bool
) -> None:
    digest = view_application(stored()).object.digest if lattice_id == "its own" else lattice_id
    annotations = {"version": "w1"} | ({names.ANNOTATION_LAST_SYNCED: received_annotation(digest, 1)} if digest else {})
    fields = {"f:metadata": {"f:annotations": {"f:version": {}}}, "f:spec": {}}
    managed_fields = [{"manager": manager, "operation": "Update", "fieldsV1": fields} for manager in managers]
    view = view_application(stored(annotations=annotations, managedFields=managed_fields))
    assert (view.object.version, view.version_of_wadm) == (version, of_wadm)
