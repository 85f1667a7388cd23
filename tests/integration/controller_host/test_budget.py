"""The memory of controllers in memory stays within the budget, of guests whose size is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller_host.timings import ReportTimings, Timings
from support.guests import built as guests
from support.guests.controllers_world import CONFIG_MAPS, Host, Tenant, until
from support.guests.wat_guests import beats

pytestmark = [pytest.mark.cluster, pytest.mark.nats, pytest.mark.timeout(240), pytest.mark.thorough]

SIZE = 5_000_000
BUDGET = 17_000_000
"""Room for three, with what else they have in memory; not for four."""
QUICK = Timings(reports=ReportTimings(counters=0.1))


class Several:
    """Controllers that hold memory, each with an object of its own that it is called for."""

    def __init__(self, host: Host, tenant: Tenant) -> None:
        guests.needed("c")
        self.host, self.tenant = host, tenant
        self.uids: dict[str, str] = {}
        self.calls: dict[str, int] = {}
        host.settings["TRELLIS_CONTROLLER_MEMORY_BUDGET"] = str(BUDGET)
        tenant.account("holds", CONFIG_MAPS)
        tenant.module("stateful", guests.example("c", "stateful").read_bytes())

    def add(self, name: str, module: str = "stateful", policy: str = "Suspend") -> None:
        selector = {"matchLabels": {"for": name}}
        watched = {"apiVersion": "v1", "kind": "ConfigMap", "labelSelector": selector}
        idle = {"policy": policy} if policy == "Pinned" else {"suspendAfter": "1h"}
        self.tenant.controller(
            name, module, serviceAccountName="holds", watches=[watched], idle=idle, config={"bytes": SIZE}
        )
        self.uids[name] = self.tenant.found(name)["metadata"]["uid"]

    async def called(self, name: str) -> None:
        """Have one called, and wait until it was; it has to know all that it was called for before."""
        count = self.calls[name] = self.calls.get(name, 0) + 1
        metadata = {"namespace": self.tenant.name, "name": f"{name}-{count}", "labels": {"for": name}}
        self.tenant.make({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
        report = f"{name}-{count}-seen"
        await until(lambda: self.tenant.data(report) is not None, f"{name} is called")
        data = self.tenant.data(report) or {}
        assert (data["calls"], data["memory"]) == (str(count), "whole")

    def on_disk(self) -> set[str]:
        """Return those that were suspended at some time."""
        directory = Path(self.host.directory / "data" / "snapshots")
        return {name for name, uid in self.uids.items() if (directory / f"{uid}.snapshot").exists()}

    def resident(self, count: int) -> bool:
        """Return whether so many are in memory, and within the budget."""
        metric = self.host.metric
        return metric("trellis_controllers", state="Resident") == count and self.bytes() <= BUDGET

    def bytes(self) -> float:
        return self.host.metric("trellis_controllers_resident_bytes")


async def test_the_least_recently_used_goes_to_disk_and_a_pinned_one_never(host: Host, tenant: Tenant) -> None:
    several = Several(host, tenant)
    async with host.serving_here(QUICK):
        several.add("pinned", policy="Pinned")
        await several.called("pinned")
        for name in ("a", "b"):
            several.add(name)
            await several.called(name)
        await until(lambda: several.resident(3) and several.bytes() > 3 * SIZE, "three fit")
        assert several.on_disk() == set()
        several.add("c")
        await several.called("c")
        await until(lambda: several.resident(3) and several.on_disk() == {"a"}, "the oldest of them went")
        await several.called("a")
        # What a guest only reads again is the file's: awake it counts little.
        await until(lambda: several.resident(4) and several.bytes() < 3.5 * SIZE, "it is back beside the others")
        assert several.on_disk() == {"a"}
        several.add("d")
        await several.called("d")
        await until(lambda: several.resident(4) and several.on_disk() == {"a", "b"}, "then the next")
        await several.called("pinned")
        assert host.metric("trellis_controller_cold_starts_total") == 5
        await until(lambda: adds_up(several), "the status says the same")


def adds_up(several: Several) -> bool:
    status = {name: several.tenant.status(name) for name in several.uids}
    states = {name: item.get("state") for name, item in status.items()}
    total = sum(item.get("residentBytes", 0) for item in status.values())
    resident = dict.fromkeys(("pinned", "a", "c", "d"), "Resident")
    return states == resident | {"b": "Suspended"} and total == several.bytes()


async def test_a_guest_in_a_call_is_never_suspended(host: Host, tenant: Tenant) -> None:
    several = Several(host, tenant)
    tenant.module("beats", beats(tenant.name, "beat", before=1, pages=SIZE // 65536))
    async with host.serving():
        several.add("busy", "beats")
        await until(lambda: tenant.condition("busy", "Ready")[0] == "True", "it is prepared")
        for number in (1, 2):
            metadata = {"namespace": tenant.name, "name": f"busy-{number}", "labels": {"for": "busy"}}
            tenant.make({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
            await until(lambda: host.metric("trellis_controller_call_seconds_count") == 1, "its first call ended")
        await until(lambda: tenant.data("beat") is not None, "its second does not end")
        for name in ("a", "b", "c", "d"):
            several.add(name)
            await several.called(name)
        await until(lambda: several.resident(3), "others went")
        assert several.on_disk() == {"a", "b"}
        calls = host.metric("trellis_controller_host_calls_total", op="list")
        await until(lambda: host.metric("trellis_controller_host_calls_total", op="list") > calls, "it is in its call")
        assert host.metric("trellis_controller_faults_total") == 0
