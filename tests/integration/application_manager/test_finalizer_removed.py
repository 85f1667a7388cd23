"""An object whose finalizer was removed before its model stays recorded, with the permissions of ``deploy/rbac``."""

from __future__ import annotations

import pytest

from support.lattices.real_lattice import Wadm
from support.wadm.application_world import ApplicationWorld, spec
from trellis import names
from trellis.kube.resources import CONFIGMAPS, HOST_CONFIGS, Manifest

pytestmark = [pytest.mark.cluster, pytest.mark.nats]

GOING = ("first", "second")


def tombstones(apps: ApplicationWorld) -> Manifest:
    _, found = apps.hosts.api.call("GET", CONFIGMAPS.path(apps.hosts.fleet.system, names.TOMBSTONES))
    return dict(found.get("data") or {})


async def test_each_that_goes_with_its_lattice_is_remembered(apps: ApplicationWorld, wadm: Wadm) -> None:
    apps.group(secretName="credentials-that-are-not-there")
    async with apps.manager():
        for name in GOING:
            apps.apply(name, spec())
            await apps.synced(name)
        apps.hosts.call("DELETE", HOST_CONFIGS, "group")
        for count, name in enumerate(GOING, start=1):
            await apps.condition(name, "Synced", "False", "NoLattice")
            apps.delete(name)
            await apps.deleted(name)
            assert len(tombstones(apps)) == count
        assert await wadm.names() == {*GOING}
