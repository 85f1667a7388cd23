"""The keys that run after a change of a host group."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest

from application_manager.cache import Cache
from application_manager.domain.placement import Key
from application_manager.domain.views import view_application
from application_manager.lattice_followers import LatticeFollowers
from application_manager.watches import on_group
from support.wadm.application_objects import stored
from trellis.kube.informer import Change, ChangeKind
from trellis.lattice.domain.group_views import GroupView

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
