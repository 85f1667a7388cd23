"""The keys that run after a change of a host group or an Application."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from application_manager.apply import Effects
from application_manager.cache import Cache
from application_manager.domain.views import ApplicationView, Key, view_application
from application_manager.lattice_followers import LatticeFollowers
from application_manager.watches import on_application, on_group
from support.wadm.application_objects import stored
from trellis.kube.informer import Change, ChangeKind
from trellis.kube.resources import APPLICATIONS, Manifest
from trellis.lattice.domain.group_views import GroupView
from trellis_dev.fakes.fake import FakeKube

VIEW = view_application(stored())
GROUP = GroupView("team", "hosts", "u", "1", deleting=False, lattice="red/1")


@pytest.mark.parametrize(
    ("new", "key"),
    [(replace(GROUP, lattice="red/2"), Key("red/2", "web")), (None, Key("", "team/web"))],
    ids=["it names another address", "it is deleted"],
)
def test_an_application_runs_under_the_key_that_it_has_now_and_the_one_that_it_had(
    new: GroupView | None, key: Key
) -> None:
    cache = Cache({VIEW.key: VIEW}, cast("LatticeFollowers", None))
    cache.group_changed(Change(ChangeKind.ADDED, GROUP.key, None, GROUP))
    keys: list[Key] = []
    lattices: list[str] = []
    kind = ChangeKind.DELETED if new is None else ChangeKind.MODIFIED
    on_group(cache, keys.append, lattices.append)(Change(kind, GROUP.key, GROUP, new))
    assert sorted(keys) == sorted({Key("red/1", "web"), key})
    assert set(lattices) == {"red/1"} | ({new.lattice} if new is not None else set())


async def test_a_status_that_this_service_wrote_causes_no_further_run() -> None:
    kube, keys = FakeKube(), list[Key]()
    found = view_application(kube.put(APPLICATIONS, stored(namespace="default", resourceVersion=None)))
    cache = Cache({found.key: found}, cast("LatticeFollowers", None))
    cache.group_changed(Change(ChangeKind.ADDED, GROUP.key, None, replace(GROUP, namespace="default")))
    handle = on_application(cache, keys.append)

    def taken(written: Manifest, former: ApplicationView) -> None:
        handle(Change(ChangeKind.MODIFIED, former.key, former, view_application(written)))

    parts: Any = (Mock(), cache, SimpleNamespace(wrote=taken), Mock(), Mock())
    await Effects(kube, *parts).status(cache.key_of(found), found, {"phase": "Deployed"})
    assert keys == []
    [item] = kube.objects(APPLICATIONS)
    written = view_application(item)
    handle(Change(ChangeKind.MODIFIED, found.key, written, replace(written, resource_version="99", phase="Failed")))
    assert keys == [Key("red/1", "web")], "another writer changed it"


def test_a_reported_lattice_that_changes_the_key_causes_a_run_of_both() -> None:
    cache, keys = Cache({VIEW.key: VIEW}, cast("LatticeFollowers", None)), list[Key]()
    for group in (GROUP, replace(GROUP, name="more", lattice="blue/1")):
        cache.group_changed(Change(ChangeKind.ADDED, group.key, None, group))
    cache.reported(VIEW.uid, "8")
    now = replace(VIEW, resource_version="8", shown="blue")
    on_application(cache, keys.append)(Change(ChangeKind.MODIFIED, VIEW.key, VIEW, now))
    assert sorted(keys) == [Key("", VIEW.key), Key("blue/1", "web")]
