"""An object whose finalizer was removed before its model stays recorded, with the permissions of ``deploy/rbac``."""

from __future__ import annotations

import pytest

from support.lattices.real_lattice import Wadm
from support.wadm.kept import KeptWorld, spec
from trellis import names
from trellis.kube.resources import CONFIGMAPS, HOST_CONFIGS, Manifest

pytestmark = [pytest.mark.cluster, pytest.mark.nats]

GOING = ("first", "second")


def tombstones(kept: KeptWorld) -> Manifest:
    _, found = kept.hosts.api.call("GET", CONFIGMAPS.path(kept.hosts.fleet.system, names.TOMBSTONES))
    return dict(found.get("data") or {})


async def test_each_that_goes_with_its_lattice_is_remembered(kept: KeptWorld, wadm: Wadm) -> None:
    kept.group(secretName="credentials-that-are-not-there")
    async with kept.manager():
        for name in GOING:
            kept.apply(name, spec())
            await kept.synced(name)
        kept.hosts.call("DELETE", HOST_CONFIGS, "group")
        for count, name in enumerate(GOING, start=1):
            await kept.condition(name, "Synced", "False", "NoLattice")
            kept.delete(name)
            await kept.deleted(name)
            assert len(tombstones(kept)) == count
        assert await wadm.names() == {*GOING}
