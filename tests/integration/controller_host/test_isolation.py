"""Guests that do everything wrong that can be done: each fault is named, and a neighbour is called as ever."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from support.guests.controllers_world import CONFIG_MAPS, Host, Tenant, prebuilt, until
from support.guests.neighbours import BAD, EACH, Neighbourhood
from support.guests.wat_guests import FAULTS, guest, sleeping, with_version
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.api import Api

pytestmark = [pytest.mark.cluster, pytest.mark.nats]


@pytest.mark.thorough
async def test_a_faulty_guest_is_named_and_its_neighbour_continues(host: Host, tenant: Tenant, target: Tenant) -> None:
    tenant.account("mirror", CONFIG_MAPS, namespaces=(tenant.name, target.name))
    tenant.module("mirror", prebuilt("mirror"))
    for name in FAULTS:
        tenant.module(name, guest(name))
        limits = {"cpuPerCall": "200ms", "memory": "4Mi"}
        tenant.controller(name, serviceAccountName="mirror", limits=limits)
    tenant.controller("mirror", config={"targetNamespace": target.name})
    tenant.config_map("x", round="0")
    async with host.serving() as process:
        for name, kind in FAULTS.items():
            await until(
                lambda name=name, kind=kind: (tenant.status(name).get("lastFault") or {}).get("kind") == kind,
                f"{name} ends as {kind}: {tenant.status(name).get('lastFault')}",
            )
            await until(lambda name=name: tenant.condition(name, "Accepted")[0] == "True", f"{name} stays accepted")
        for number in range(1, 6):
            tenant.config_map("x", round=str(number))
            await until(lambda number=number: target.data("x") == {"round": str(number)}, "the neighbour goes on")
        assert process.returncode is None
        assert tenant.condition("mirror", "Ready") == ("True", "Running")
        assert host.metric("trellis_controller_faults_total") >= len(FAULTS)
        reasons = {event["reason"] for event in tenant.events() if event["involvedObject"]["kind"] == "WasmController"}
        assert set(FAULTS.values()) <= reasons


async def test_a_module_that_is_refused_states_the_reason_and_the_next_one_runs(host: Host, tenant: Tenant) -> None:
    tenant.account("broken", CONFIG_MAPS)
    tenant.module("broken", b"\0asm\1\0\0\0")
    tenant.module("good", guest("good"))
    tenant.controller("broken")
    tenant.config_map("x")
    async with host.serving():
        await until(lambda: tenant.condition("broken", "Accepted") == ("False", "MissingExport"), "refused")
        assert tenant.condition("broken", "Stalled")[0] == "True"
        tenant.change("broken", {"module": {"configMap": {"name": "good", "key": "module.wasm"}}})
        await until(lambda: tenant.condition("broken", "Ready") == ("True", "Running"), "runs")
        await until(lambda: host.metric("trellis_controller_call_seconds_count") >= 1, "is called")
        tenant.remove("broken")
        await until(lambda: host.metric("trellis_controllers") == 0, "gone")
        snapshots = host.directory / "data" / "snapshots"
        await until(lambda: not list(snapshots.glob("*.snapshot")), "its snapshot is gone")


async def test_a_module_that_reports_another_version_at_start_is_refused_and_the_next_one_runs(
    host: Host, tenant: Tenant
) -> None:
    tenant.account("later", CONFIG_MAPS)
    for version in (1, 2):
        tenant.module(f"version-{version}", with_version(version))
    tenant.controller("later", module="version-2")
    tenant.config_map("x")
    async with host.serving():
        await until(lambda: tenant.condition("later", "Accepted") == ("False", "UnsupportedAbi"), "refused")
        assert "abi" not in tenant.status("later")["module"]
        assert "lastFault" not in tenant.status("later")
        tenant.change("later", {"module": {"configMap": {"name": "version-1", "key": "module.wasm"}}})
        await until(lambda: tenant.condition("later", "Ready") == ("True", "Running"), "runs")
        await until(lambda: tenant.status("later")["module"].get("abi") == 1, "its version is told")


@pytest.mark.thorough
async def test_objects_that_the_account_may_not_see_do_not_reach_a_guest(
    host: Host, tenant: Tenant, target: Tenant
) -> None:
    to_write = CONFIG_MAPS | {"verbs": ["get", "create", "update", "patch"]}
    tenant.account("blind", to_write, namespaces=(tenant.name, target.name))
    tenant.account("mirror", CONFIG_MAPS, namespaces=(tenant.name, target.name))
    tenant.module("mirror", prebuilt("mirror"))
    tenant.controller("blind", module="mirror", config={"targetNamespace": target.name})
    tenant.config_map("plans", x="1")
    async with host.serving():
        await until(lambda: tenant.condition("blind", "WatchesGranted") == ("False", "AccountForbidden"), "said so")
        tenant.config_map("plans", x="2")
        tenant.controller("sees", module="mirror", serviceAccountName="mirror", config={"targetNamespace": target.name})
        await until(lambda: target.data("plans") == {"x": "2"}, "who may see it is called")
        assert tenant.status("blind").get("calls") == 0
        assert host.metric("trellis_controller_call_seconds_count") >= 1


@pytest.mark.thorough
async def test_watches_that_the_platform_does_not_permit_are_reported(host: Host, tenant: Tenant) -> None:
    tenant.account("wide", CONFIG_MAPS)
    tenant.module("wide", guest("good"))
    tenant.controller("wide", watches=[{"apiVersion": "v1", "kind": "Pod"}])
    async with host.serving():
        await until(lambda: tenant.condition("wide", "WatchesGranted") == ("False", "WatchNotGranted"), "said")
        assert tenant.condition("wide", "Ready") == ("False", "WatchNotGranted")


@pytest.mark.thorough
async def test_the_neighbour_is_served_while_the_bad_ones_go_on(
    host: Host, cluster: ClusterInfo, tenant: Tenant, target: Tenant
) -> None:
    async with host.serving() as process:
        await asyncio.to_thread(serve_beside_each, host, cluster, tenant.name, target.name)
        assert process.returncode is None


def serve_beside_each(host: Host, cluster: ClusterInfo, tenant: str, target: str) -> None:
    api = Api.of_kubeconfig(Path(cluster.kubeconfig))
    try:
        neighbourhood = Neighbourhood(cluster, Tenant(api, tenant), Tenant(api, target))
        neighbourhood.settle()
        for kind in BAD:
            with neighbourhood.beside(kind, limits={"cpuPerCall": "200ms"}):
                started = bad_things(host)
                rounds = 0
                # Not one change that slips through before it begins: some, and then some while it surely goes on.
                while rounds < 5 or bad_things(host) - rounds < started + 2 * EACH:
                    neighbourhood.served()
                    rounds += 1
    finally:
        api.close()


def bad_things(host: Host) -> float:
    """Return how often guests were ended, asked for a list, which the neighbour never does, or returned, as it does."""
    requested = host.metric("trellis_controller_host_calls_total", op="list")
    returned = host.metric("trellis_controller_call_seconds_count")
    return host.metric("trellis_controller_faults_total") + requested + returned


@pytest.mark.thorough
async def test_a_namespace_whose_guests_keep_their_threads_leaves_some_to_its_neighbour(
    host: Host, tenants: Callable[[], Tenant]
) -> None:
    hostile, good, target = tenants(), tenants(), tenants()
    host.settings |= {"TRELLIS_CONTROLLER_THREADS": "8", "TRELLIS_CONTROLLER_MAX_TIME_PER_CALL": "10m"}
    hostile.account("sleeps", CONFIG_MAPS)
    hostile.module("sleeps", sleeping(600))
    hostile.config_map("x")
    for number in range(30):
        hostile.controller(
            f"sleeps-{number}", module="sleeps", serviceAccountName="sleeps", limits={"timePerCall": "10m"}
        )
    hostile.controller(
        "greedy", module="sleeps", serviceAccountName="sleeps", limits={"timePerCall": "10m", "memory": "1Gi"}
    )
    good.account("mirror", CONFIG_MAPS, namespaces=(good.name, target.name))
    good.module("mirror", prebuilt("mirror"))
    async with host.serving():
        await until(lambda: host.metric("trellis_controllers", state="Resident") >= 4, "threads are kept")
        await until(lambda: hostile.condition("greedy", "Accepted") == ("False", "AboveMaximum"), "named")
        good.controller("mirror", config={"targetNamespace": target.name})
        seconds = []
        for number in range(10):
            began = time.monotonic()
            good.config_map("x", round=str(number))
            await until(lambda number=number: target.data("x") == {"round": str(number)}, "the neighbour is served")
            seconds.append(time.monotonic() - began)
        print(f"beside 30 that sleep: first {seconds[0]:.2f} s, then {max(seconds[1:]):.2f} s at most")  # noqa: T201 - for people
        assert host.metric("trellis_controller_call_seconds_count") == len(seconds), "no hostile call has ended"
