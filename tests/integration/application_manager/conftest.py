"""A lattice with a stand-in for wadm on a real NATS, and its applications on a real API server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from support.lattices.real_lattice import Wadm
from support.wadm.kept import KeptWorld
from support.wadm.wadm_stand_in import WadmStandIn


@pytest.fixture
def kept(kept_by_stand_in: KeptWorld) -> KeptWorld:
    return kept_by_stand_in


@pytest.fixture
async def wadm(stand_in: WadmStandIn) -> AsyncIterator[Wadm]:
    async with Wadm.of(stand_in.url, stand_in.lattice) as client:
        yield client
