"""One process is all there is: controller_host with a bus of its own."""

from __future__ import annotations

import http
from pathlib import Path

import pytest

from support.guests.controllers_world import CONFIG_MAPS, Host, Tenant, prebuilt, until
from support.suite.service_process import get

pytestmark = [pytest.mark.cluster, pytest.mark.nats, pytest.mark.thorough]


@pytest.fixture
def alone(host: Host, tmp_path: Path) -> Host:
    host.nats_url = "nats://127.0.0.1:1"
    host.flags = ("--own-nats", str(tmp_path / "bus"))
    return host


async def test_it_hosts_controllers_on_a_bus_of_its_own_and_sleeps_on_after_a_kill(
    alone: Host, tenant: Tenant, target: Tenant, tmp_path: Path
) -> None:
    tenant.account("mirror", CONFIG_MAPS, namespaces=(tenant.name, target.name))
    tenant.module("mirror", prebuilt("mirror"))
    tenant.controller("mirror", config={"targetNamespace": target.name})
    tenant.config_map("one", x="1")
    async with alone.serving():
        await until(lambda: target.data("one") == {"x": "1"}, "mirrored")
        await until(alone.asleep, "suspended")
        assert get(alone.port, "/readyz")[0] == http.HTTPStatus.OK
        assert any((tmp_path / "bus" / "store").rglob("TRELLIS_EVENTS"))
        await alone.kill()
    tenant.config_map("two", y="1")
    async with alone.serving():
        await until(lambda: target.data("two") == {"y": "1"}, "mirrored by the next process")
        assert alone.metric("trellis_controller_cold_starts_total") == 0
