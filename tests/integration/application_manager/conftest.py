"""A lattice with a stand-in for wadm on a real NATS, and its applications on a real API server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from support.lattices.real_lattice import Wadm
from support.wadm.application_world import ApplicationWorld
from support.wadm.wadm_stand_in import WadmStandIn


@pytest.fixture
def apps(apps_by_stand_in: ApplicationWorld) -> ApplicationWorld:
    return apps_by_stand_in


@pytest.fixture
async def wadm(stand_in: WadmStandIn) -> AsyncIterator[Wadm]:
    async with Wadm.of(stand_in.url, stand_in.lattice) as client:
        yield client
