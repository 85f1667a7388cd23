"""Guests that loop wherever a guest can, and a host that is asked to end: it does, in its grace period."""

from __future__ import annotations

import asyncio

import pytest

from support.guests import wat
from support.guests.controllers_world import CONFIG_MAPS, Host, Tenant, until
from support.guests.lifetimes import COUNTING, LOOPING
from trellis.runtime import shutdown as stopping

pytestmark = [pytest.mark.cluster, pytest.mark.nats, pytest.mark.thorough]

GRACE = 10


async def test_a_host_with_guests_that_loop_ends_in_its_grace_period(host: Host, tenant: Tenant) -> None:
    host.settings["TRELLIS_SHUTDOWN_GRACE_PERIOD"] = f"{GRACE}s"
    host.settings |= {"TRELLIS_CONTROLLER_MAX_CPU_PER_CALL": "300s", "TRELLIS_CONTROLLER_MAX_TIME_PER_CALL": "300s"}
    tenant.account("one", CONFIG_MAPS)
    tenant.module("good", wat.text(COUNTING))
    limits = {"cpuPerCall": "300s", "timePerCall": "300s"}
    tenant.config_map("x")
    async with host.serving() as process:
        for where in ("good", "migrate"):
            tenant.controller(where, "good", serviceAccountName="one", limits=limits)
        await until(lambda: host.asleep(2), "two are suspended")
        for where, module in LOOPING.items():
            tenant.module(where.strip("_"), wat.text(module))
            if where == "migrate":
                tenant.change("migrate", {"module": {"configMap": {"name": "migrate", "key": "module.wasm"}}})
            else:
                tenant.controller(where.strip("_"), serviceAccountName="one", limits=limits)
        await until(lambda: host.metric("trellis_controller_cold_starts_total") >= 2 + len(LOOPING), "all of them loop")
        process.terminate()
        assert await asyncio.wait_for(process.wait(), GRACE) == 0
    assert host.logged(logger=stopping.__name__, level="warning") == []
