"""A Shim's former versions: no more than ten are kept, and the garbage collector takes them away with the Shim."""

from __future__ import annotations

import pytest

from support.nodes.fleet import Fleet, eventually
from support.nodes.shims import Shim
from trellis.provisioning.revisions import KEPT, label_selector

pytestmark = pytest.mark.cluster


async def test_ten_versions_are_kept_and_go_with_their_shim(fleet: Fleet, shim: Shim) -> None:
    listed = f"/apis/apps/v1/namespaces/{fleet.system}/controllerrevisions?labelSelector={label_selector(shim.name)}"

    def kept() -> list[int]:
        _, found = fleet.api.call("GET", listed)
        return sorted(item["revision"] for item in found.get("items", []))

    newest = KEPT + 2
    async with fleet.services():
        for number in range(1, newest + 1):
            shim.apply(sha256=f"{number:064x}")
            await eventually(lambda number=number: kept()[-1:] == [number], f"version {number} is kept", seconds=60)
        await eventually(lambda: kept() == list(range(newest - KEPT + 1, newest + 1)), "the last ten are left")
        shim.delete()
        await eventually(lambda: shim.found() is None, "the Shim is gone", seconds=60)
    # The services are no more: this is the garbage collector's doing.
    await eventually(lambda: not kept(), "its versions are gone", seconds=90)


async def test_a_version_that_comes_back_is_kept_as_the_newest(fleet: Fleet, shim: Shim) -> None:
    """The same content under a new number, as a Deployment does it: a PATCH of the revision, no second object."""
    listed = f"/apis/apps/v1/namespaces/{fleet.system}/controllerrevisions?labelSelector={label_selector(shim.name)}"

    def kept() -> dict[int, str]:
        _, found = fleet.api.call("GET", listed)
        return {item["revision"]: item["metadata"]["name"] for item in found.get("items", [])}

    async with fleet.services():
        for number in (1, 2):
            shim.apply(sha256=f"{number:064x}")
            await eventually(lambda number=number: number in kept(), f"version {number} is kept", seconds=60)
        former = kept()
        shim.apply(sha256=f"{1:064x}")
        await eventually(lambda: kept() == {2: former[2], 3: former[1]}, "version 1 is revision 3", seconds=60)
        shim.delete()
        await eventually(lambda: shim.found() is None, "the Shim is gone", seconds=60)
