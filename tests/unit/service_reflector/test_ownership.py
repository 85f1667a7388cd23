"""The lattice of a Service, and the time from which the Service may be deleted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

import pytest

from service_reflector.domain.ownership import HostGroups, Owner, Undecided, owner_of
from trellis import names
from trellis.lattice.domain.group_views import GroupView, view_group
from trellis.lattice.domain.service_views import ServiceView
from trellis.limits.compact import compact

SPEC = {"lattice": "east", "version": "1", "natsAddress": "nats://localhost"}


def group(name: str = "group", lattice: str = "east/2", namespace: str = "a") -> GroupView:
    return GroupView(namespace, name, f"uid-{name}", "2026-01-01T00:00:00Z", deleting=False, lattice=lattice)


def service(*recorded: str, namespace: str = "a") -> ServiceView:
    manifest = {"annotations": {names.ANNOTATION_HOST_GROUPS: " ".join(recorded)}}
    return ServiceView(namespace, "shop", "uid", "1", "shop", "east/1", stored=compact(manifest))


def owner(
    one: ServiceView,
    *groups: GroupView,
    answers: Mapping[str, bool] | None = None,
    known: bool = True,
    grace_left: float = 1.0,
) -> Owner:
    by_lattice: dict[str, dict[str, GroupView]] = defaultdict(dict)
    by_namespace: dict[str, dict[str, GroupView]] = defaultdict(dict)
    for each in groups:
        by_namespace[each.namespace][each.key] = each
        if each.lattice:
            by_lattice[each.lattice][each.key] = each
    found = {each.key: each for each in groups}
    world = HostGroups(lambda: known, found, dict(by_lattice), dict(by_namespace), lambda _: grace_left)
    return owner_of(one, world, lambda lattice_id, _: (answers or {}).get(lattice_id))


MINE = service("a/group")
NAMED = group(lattice="east/1")


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (owner(MINE, NAMED, answers={"east/1": True}), Owner("east/1")),
        (owner(MINE, NAMED, answers={"east/1": False}), Owner("east/1")),
        (owner(MINE, NAMED), Owner("east/1", Undecided.NO_ANSWER)),
        (owner(MINE, known=False, grace_left=0), Owner("east/1", Undecided.GROUPS_UNKNOWN)),
        (owner(MINE), Owner("east/1", Undecided.GROUP_MISSING)),
        (owner(MINE, grace_left=0), Owner("east/1")),
        (owner(MINE, answers={"east/1": False}), Owner("east/1")),
        (owner(replace(MINE, deleting=True)), Owner("east/1")),
        (owner(MINE, group(), grace_left=0), Owner("east/1", Undecided.LATTICE_UNREACHABLE, (group(),))),
        (owner(MINE, group(), answers={"east/2": True}), Owner("east/2")),
        (owner(MINE, group(), answers={"east/2": False}), Owner("east/1")),
        (owner(MINE, group(lattice="west/3"), answers={"west/3": True}), Owner("west/3")),
        (owner(MINE, group(lattice=""), grace_left=0), Owner("east/1", Undecided.GROUP_INVALID, (group(lattice=""),))),
    ],
    ids=[
        "deployed",
        "not deployed",
        "no answer",
        "groups unknown",
        "group missing",
        "grace over",
        "undeployed meanwhile",
        "deleted by hand",
        "another address, silent",
        "another address, deployed",
        "another address, not deployed",
        "another lattice, deployed",
        "invalid spec",
    ],
)
def test_a_service_goes_only_after_an_answer_or_the_grace(found: Owner, wanted: Owner) -> None:
    assert found == wanted


def test_of_several_groups_one_answer_that_it_is_deployed_is_enough_and_one_that_it_is_not_is_none() -> None:
    item, other = group("one", "east/2"), group("other", "east/3")
    both = service("a/one", "a/other")
    assert owner(both, item, other, answers={"east/3": True}).lattice == "east/3"
    assert owner(both, item, other, answers={"east/3": False}).undecided is Undecided.LATTICE_UNREACHABLE
    assert owner(both, item, other, answers={"east/2": False, "east/3": False}).undecided is None


def test_a_renamed_group_of_the_namespace_follows_and_none_of_another_namespace() -> None:
    renamed = group("renamed")
    assert owner(MINE, renamed, answers={"east/2": True}).lattice == "east/2"
    foreign = group("group", namespace="b")
    assert owner(MINE, foreign, answers={"east/2": True}) == Owner("east/1", Undecided.GROUP_MISSING)
    elsewhere = service("a/group", namespace="b")
    assert owner(elsewhere, foreign, answers={"east/2": True}).undecided is Undecided.GROUP_MISSING


@pytest.mark.parametrize("broken", [{"version": None}, {"hostReplicas": "many"}, {"lattice": 5}], ids=str)
def test_a_spec_that_cannot_be_read_names_no_lattice(broken: dict[str, object]) -> None:
    metadata = {"namespace": "a", "name": "group", "uid": "uid"}
    assert view_group({"metadata": metadata, "spec": SPEC}).lattice
    assert view_group({"metadata": metadata, "spec": SPEC | broken}).lattice == ""
