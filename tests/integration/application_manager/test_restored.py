"""The store of JetStream beneath a lattice is restored from a backup, with the stand-in for wadm."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from support.lattices.host_behaviour import own_lattice
from support.lattices.host_world import HostWorld
from support.wadm.application_world import QUICK, ApplicationWorld, application_world
from support.wadm.restored_behaviour import Restored, RestoredBehaviour
from support.wadm.wadm_stand_in import WadmStandIn
from trellis_dev.localcluster.nats import NatsServer

pytestmark = [pytest.mark.cluster, pytest.mark.nats]


@pytest.fixture
def restored(tmp_path: Path) -> Iterator[Restored]:
    with NatsServer(tmp_path / "nats") as server:
        yield Restored(server, tmp_path / "nats")


@pytest.fixture
async def stand_in(restored: Restored) -> AsyncIterator[WadmStandIn]:
    async with WadmStandIn(restored.server.url, own_lattice()) as started:
        yield started


@pytest.fixture
def apps(hosts: HostWorld, restored: Restored, stand_in: WadmStandIn) -> Iterator[ApplicationWorld]:
    with application_world(hosts, restored.server.port, stand_in.lattice, timings=QUICK) as made:
        yield made


class TestRestored(RestoredBehaviour):
    """With the stand-in; a real wadm is held to the same."""
