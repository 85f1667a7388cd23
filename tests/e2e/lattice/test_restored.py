"""The store of JetStream beneath a lattice is restored from a backup, with a real wadm."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from support.lattices.host_behaviour import own_lattice
from support.lattices.host_world import HostWorld
from support.lattices.real_lattice import RealLattice, Wadm
from support.wadm.application_world import ApplicationWorld, application_world
from support.wadm.restored_behaviour import Restored, RestoredBehaviour
from trellis_dev.localcluster import lattice_servers

pytestmark = pytest.mark.cluster


@pytest.fixture
def restored(tmp_path: Path) -> Iterator[Restored]:
    """NATS of its own with a wadm: a restored store is everybody's."""
    if (reason := lattice_servers.missing()) is not None:
        pytest.skip(f"NOT RUN: {reason}")
    with RealLattice(tmp_path) as servers:
        yield Restored(servers.nats, tmp_path / "nats")


@pytest.fixture
def apps(hosts: HostWorld, restored: Restored) -> Iterator[ApplicationWorld]:
    with application_world(hosts, restored.server.port, own_lattice()) as made:
        yield made


@pytest.fixture
async def wadm(apps: ApplicationWorld, restored: Restored) -> AsyncIterator[Wadm]:
    async with Wadm.of(restored.server.url, apps.lattice) as client:
        yield client


class TestRestored(RestoredBehaviour):
    """With the real one; the stand-in is held to the same."""
