"""Applications while servers are unavailable: a real API server, a real NATS that is killed, a stand-in for wadm.

The suite is held by the real wadm, too, in ``tests/e2e/lattice/test_outages.py``.
"""

from __future__ import annotations

import asyncio

import pytest

from support.wadm.outage_behaviour import OutageBehaviour, Servers
from support.wadm.wadm_stand_in import WadmStandIn
from trellis_dev.localcluster.nats import NatsServer

pytestmark = [pytest.mark.cluster, pytest.mark.nats]


@pytest.fixture
def servers(stand_in: WadmStandIn, nats_server: NatsServer) -> Servers:
    async def start_wadm() -> None:
        await stand_in.__aenter__()

    return Servers(
        nats_server.url,
        kill_wadm=stand_in.__aexit__,
        start_wadm=start_wadm,
        kill_nats=lambda: asyncio.to_thread(nats_server.kill),
        start_nats=lambda: asyncio.to_thread(nats_server.start),
    )


class TestStandIn(OutageBehaviour):
    """With the stand-in."""
