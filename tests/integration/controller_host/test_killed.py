"""The service is killed again and again, while objects change and the disk fills: nothing is lost, and nothing torn.

Two seeds; `python tests/fuzz/controllers.py --seeds 100` runs more of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from controller_host.host_calls import calling
from support.guests.controllers_world import Host, Tenant
from support.guests.killed_controllers import Killed

pytestmark = [pytest.mark.cluster, pytest.mark.nats, pytest.mark.timeout(400), pytest.mark.thorough]

KILLS = 3
SEEDS = [int(seed) for seed in os.environ.get("KILLED_SEEDS", "1,2").split(",")]


@pytest.mark.parametrize("seed", [SEEDS[0], *(pytest.param(seed, marks=pytest.mark.thorough) for seed in SEEDS[1:])])
async def test_kills_and_a_full_disk_cost_repeats_and_nothing_else(
    host: Host, tenants: Callable[[], Tenant], seed: int
) -> None:
    world = Killed(host, tenants(), tenants(), seed)
    world.install()
    for _ in range(KILLS):
        await world.round(kills=True)
    await world.round(kills=False)
    assert list(world.lacking()) == []
    assert host.logged(logger=calling.__name__, level="error") == []
