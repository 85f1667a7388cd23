"""Applications that were let go do not come back, until wadm's model changes."""

from __future__ import annotations

import json

import pytest

from application_manager.tombstones import KEPT, Tombstone, Tombstones
from trellis import names
from trellis.kube.errors import Unavailable
from trellis.kube.resources import CONFIGMAPS
from trellis_dev.fakes.fake import FakeKube

PLACE = "default"


def tombstone(application: str = "web", revision: int = 7) -> Tombstone:
    return Tombstone("red", application, "b1", revision)


async def test_a_tombstone_holds_until_its_model_changes_and_survives_a_restart() -> None:
    kube = FakeKube()
    await Tombstones(kube, PLACE).store_tombstone(tombstone("Web_ü"))
    found = Tombstones(kube, PLACE)
    assert await found.holds("red", "Web_ü", "b1", 7)
    assert not await found.holds("red", "Web_ü", "b1", 8)
    assert not await found.holds("red", "Web_ü", "b2", 7)
    assert not await found.holds("blue", "Web_ü", "b1", 7)
    assert not await found.holds("red", "other", "b1", 7)


async def test_the_oldest_tombstones_are_dropped_and_damaged_ones_are_ignored() -> None:
    kube = FakeKube()
    data = {f"{number:010x}": tombstone(str(number)).text() for number in range(KEPT)}
    broken = {tombstone().key: "{", "notes": "mine"}
    metadata = {"name": names.TOMBSTONES, "namespace": PLACE}
    kube.put(CONFIGMAPS, {"metadata": metadata, "data": data | broken})
    found = Tombstones(kube, PLACE)
    assert not await found.holds("red", "web", "b1", 1)
    await found.store_tombstone(tombstone("new"))
    (kept,) = kube.objects(CONFIGMAPS)
    assert len(kept["data"]) == KEPT
    assert json.loads(kept["data"][tombstone("new").key])["application"] == "new"
    assert "0000000000" not in kept["data"]


async def test_an_unreadable_tombstone_is_requested_again() -> None:
    kube = FakeKube()
    await Tombstones(kube, PLACE).store_tombstone(tombstone())
    found = Tombstones(kube, PLACE)
    kube.fail_next(100, when=lambda request: request.method == "GET")
    with pytest.raises(Unavailable):
        await found.holds("red", "web", "b1", 7)
    kube.fail_next(0)
    assert await found.holds("red", "web", "b1", 7)
