"""A group of hosts whose lattice is a real one: host_manager as a process, wadm, a wasmCloud host, and a stub."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import host_manager.settings
from support.lattices.host_behaviour import own_lattice
from support.lattices.host_world import HostWorld
from support.lattices.real_lattice import RealLattice, Wadm, application, http_server, wasm_component
from support.lattices.stub_host import Options, StubHost, stub_host
from support.nodes.fleet import eventually
from support.suite.service_process import running

PATIENCE = 150.0
"""A host of wasmCloud beats each 30 s, wadm is asked each 60 s if it says nothing."""
SOON = 45.0
"""Less than the 70 s after which a host is taken for gone."""
EMPTY_COMPONENT = b"\0asm\x0d\0\x01\0"
"""The smallest component: it exports nothing, and can be started all the same."""


@contextlib.asynccontextmanager
async def host_manager_process(hosts: HostWorld, directory: Path) -> AsyncIterator[None]:
    """Run host_manager as in a cluster, as a process of its own."""
    log = directory / "host-manager.log"
    known = {f"TRELLIS_{name.upper()}" for name in host_manager.settings.Settings.model_fields}
    environment = {name: value for name, value in hosts.fleet.environment().items() if name in known}
    async with running(log, "host-manager", **environment) as process:
        yield
        assert process.returncode is None, log.read_text()


async def shown(hosts: HostWorld, what: str, holds: Any) -> dict[str, Any]:
    """Wait until the status of the group is so; return it."""
    try:
        await eventually(lambda: holds(hosts.status("group")), what, seconds=PATIENCE)
    except AssertionError:
        pytest.fail(f"not within {PATIENCE:.0f} s: {what}: {hosts.status('group')}")
    return hosts.status("group")


def condition_of(status: dict[str, Any], kind: str) -> tuple[str, str]:
    """Return status and reason of a condition."""
    found = (condition for condition in status.get("conditions") or () if condition["type"] == kind)
    return next(((item["status"], item["reason"]) for item in found), ("", ""))


def of_lattice(status: dict[str, Any], host: str) -> dict[str, Any]:
    """Return what the status says of a host of the lattice, {} if nothing."""
    return next((lattice_host for lattice_host in status.get("latticeHosts") or () if lattice_host["id"] == host), {})


async def pods(hosts: HostWorld, count: int) -> list[str]:
    await shown(hosts, f"{count} ready pods", lambda status: status.get("readyReplicas") == count)
    return sorted(pod["metadata"]["name"] for pod in hosts.pods("group"))


async def test_the_state_of_a_real_lattice_is_in_the_status_of_the_group_and_survives_a_restart_of_wadm(
    hosts: HostWorld, real_lattice: RealLattice, tmp_path: Path
) -> None:
    lattice = own_lattice()
    component = tmp_path / "empty.wasm"
    component.write_bytes(EMPTY_COMPONENT)
    async with host_manager_process(hosts, tmp_path), Wadm.of(real_lattice.url, lattice) as wadm:
        at = {"natsAddress": "nats://127.0.0.1", "natsClientPort": real_lattice.nats.port}
        hosts.create("group", hostReplicas=2, lattice=lattice, **at)
        first, second = await pods(hosts, 2)
        options = Options(lattice=lattice, labels={"kubernetes_pod": second}, heartbeat=1, url=real_lattice.url)
        labels = {"kubernetes_pod": first, "zone": "a"}
        real = await asyncio.to_thread(real_lattice.start_host, lattice, labels, 1)
        try:
            async with stub_host(options) as stub:
                await _hosts_are_shown(hosts, real.id, stub, (first, second))
                await _an_application_comes_and_goes(hosts, wadm, real.id, component)
                await _wadm_goes_and_comes(hosts, real_lattice)
                await asyncio.to_thread(real.terminate)
                await eventually(
                    lambda: of_lattice(hosts.status("group"), real.id) == {}, "it said that it stops", seconds=SOON
                )
        finally:
            await asyncio.to_thread(real.kill)
        assert await pods(hosts, 2) == [first, second], "no pod was restarted for any of this"


async def _hosts_are_shown(hosts: HostWorld, real: str, stub: StubHost, pods: tuple[str, str]) -> None:
    status = await shown(
        hosts, "both hosts", lambda status: condition_of(status, "HostsReporting") == ("True", "AllReporting")
    )
    first, second = status["hosts"]
    assert [(item["pod"], item["id"], item["reported"]) for item in (first, second)] == [
        (pods[0], real, "Yes"),
        (pods[1], stub.id, "Yes"),
    ]
    assert first["version"].startswith("1.9.")
    assert (first["labels"]["zone"], second["labels"]["kubernetes_pod"]) == ("a", pods[1])
    assert first["startedAt"] <= second["startedAt"]
    assert {lattice_host["id"]: lattice_host["pod"] for lattice_host in status["latticeHosts"]} == {
        real: pods[0],
        stub.id: pods[1],
    }


async def _an_application_comes_and_goes(hosts: HostWorld, wadm: Wadm, real: str, component: Path) -> None:
    only_there = {"type": "spreadscaler", "properties": {"instances": 1, "spread": [
        {"name": "there", "requirements": {"zone": "a"}}]}}  # fmt: skip
    empty = wasm_component("empty", f"file://{component}") | {"traits": [only_there]}
    await wadm.put(application("web", http_server(zone="a"), empty, version="v1"))
    await shown(hosts, "it is put", lambda status: status["app_count"] == 1)
    await wadm.deploy("web")
    await wadm.until("web", "deployed")
    status = await shown(hosts, "it runs", lambda status: of_lattice(status, real).get("applications") == ["web"])
    assert status["apps"] == [{"name": "web", "version": "v1"}]
    status = await shown(
        hosts,
        "all of it",
        lambda status: of_lattice(status, real).get("providers") and of_lattice(status, real).get("components"),
    )
    reported = of_lattice(status, real)
    assert reported["providers"] == [{"id": "web-httpserver", "image": "http-server"}]
    assert reported["components"] == [{"id": "web-empty", "image": f"file://{component}"}]

    await wadm.undeploy("web")
    await wadm.until("web", "undeployed")
    await shown(
        hosts,
        "nothing runs",
        lambda status: not of_lattice(status, real).keys() & {"components", "providers", "applications"},
    )
    assert hosts.status("group")["app_count"] == 1, "it can be deployed again"
    await wadm.put(application("other", http_server(zone="a"), version="v7"))
    await wadm.delete("web")
    await shown(hosts, "it is gone", lambda status: status["apps"] == [{"name": "other", "version": "v7"}])


async def _wadm_goes_and_comes(hosts: HostWorld, real_lattice: RealLattice) -> None:
    before = hosts.status("group")
    await asyncio.to_thread(real_lattice.kill_wadm)
    try:
        status = await shown(
            hosts,
            "it is missed",
            lambda status: condition_of(status, "ApplicationsKnown") == ("Unknown", "WadmUnavailable"),
        )
        assert (status["apps"], status["app_count"]) == (before["apps"], 1)
        assert condition_of(status, "HostsReporting") == ("True", "AllReporting"), "hosts need no wadm"
        assert condition_of(status, "Ready") == ("True", "HostsReady")
    finally:
        await asyncio.to_thread(real_lattice.start_wadm)
    await shown(hosts, "it is back", lambda status: condition_of(status, "ApplicationsKnown") == ("True", "Healthy"))
    assert hosts.status("group")["apps"] == before["apps"]
