"""The slices that hold the addresses of a missing Service, by the watches."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from service_reflector.gather import Cache
from service_reflector.lattice_followers import LatticeFollowers
from service_reflector.watches import on_service, on_slice
from trellis.kube.changes import Change, ChangeKind
from trellis.lattice.domain.preserved import write_preserved
from trellis.lattice.domain.service_views import ServiceView, SliceView

SERVICE = ServiceView("g", "shop-2", "uid-shop", "1", "shop", "east/1")
PIECE = SliceView(
    "g", "shop-2-0", "uid-slice", "1", "shop-2", "", "IPv4", b"{}", write_preserved("shop", "east/1", SERVICE)
)
KEY = "g/shop"
DELETED = ChangeKind.DELETED


class World:
    """The known objects, and the keys that run."""

    def __init__(self) -> None:
        self.cache = Cache(cast("Any", None), {}, {}, LatticeFollowers(lambda *_: None))
        self.woken: list[str] = []

    def service(self, old: ServiceView | None, new: ServiceView | None) -> None:
        if new is None:
            self.cache.services.pop(SERVICE.key, None)
        else:
            self.cache.services[SERVICE.key] = new
        on_service(self.cache, self.woken.append)(
            Change(DELETED if new is None else ChangeKind.ADDED, SERVICE.key, old, new)
        )

    def slice(self, old: SliceView | None, new: SliceView | None) -> None:
        on_slice(self.cache, self.woken.append)(
            Change(DELETED if new is None else ChangeKind.ADDED, "g/shop-2-0", old, new)
        )


@pytest.mark.parametrize("first", ["service", "slice"])
def test_a_slice_belongs_to_a_service_from_its_deletion_on(first: str) -> None:
    world = World()
    if first == "service":
        world.service(None, SERVICE)
        world.slice(None, PIECE)
    else:
        world.slice(None, PIECE)
        assert (list(world.cache.preserved_slices), world.woken) == ([KEY], [KEY]), "nobody may make it again"
        world.service(None, SERVICE)
    assert world.cache.preserved_slices == {}, "news of a lattice runs no key because of it"
    world.woken.clear()
    world.service(SERVICE, None)
    assert list(world.cache.preserved_slices) == [KEY]
    assert set(world.woken) == {KEY}
    world.slice(PIECE, None)
    assert world.cache.preserved_slices == {}


def test_the_service_may_have_lost_its_marks_before_it_went() -> None:
    world = World()
    edited = replace(SERVICE, application="", lattice="", of_other_controller=True)
    world.service(None, edited)
    world.slice(None, PIECE)
    world.woken.clear()
    world.service(edited, None)
    assert KEY in world.woken
