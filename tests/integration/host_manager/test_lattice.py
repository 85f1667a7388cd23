"""Groups and their lattice: what hosts report, and that no outage of it takes anything away."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from host_manager.timings import Timings
from support.cluster.exclusion import place
from support.lattices.host_world import PATIENCE, HostWorld
from support.lattices.lattice_speaker import LatticeSpeaker
from support.nodes.fleet import eventually, is_ours
from trellis.kube.resources import DEPLOYMENTS
from trellis.lattice.timings import LatticeTimings
from trellis_dev.localcluster.nats import NatsServer

pytestmark = pytest.mark.cluster


@pytest.fixture
async def lattice(tmp_path: Path) -> AsyncIterator[tuple[NatsServer, LatticeSpeaker]]:
    with NatsServer(tmp_path / "nats") as server:
        models = [{"name": "shop", "version": "v1", "deployed_version": "v1"}]
        async with LatticeSpeaker(server.url, "default", models=models) as speaker:
            yield server, speaker


def at(server: NatsServer) -> dict[str, Any]:
    return {"natsAddress": "nats://127.0.0.1", "natsClientPort": server.port}


async def settled_pods(hosts: HostWorld, name: str, count: int) -> list[str]:
    await eventually(lambda: hosts.status(name).get("readyReplicas") == count, "ready pods", seconds=PATIENCE)
    return sorted(pod["metadata"]["name"] for pod in hosts.pods(name))


async def shown(hosts: HostWorld, name: str, status: str, reason: str) -> None:
    def holds() -> bool:
        return hosts.condition(name, "HostsReporting")[:2] == (status, reason)

    try:
        await eventually(holds, reason, seconds=PATIENCE)
    except AssertionError:
        pytest.fail(f"not {status}/{reason}: {hosts.status(name)}")


async def test_hosts_are_shown_beside_pods_and_an_outage_removes_nothing(
    hosts: HostWorld, lattice: tuple[NatsServer, LatticeSpeaker]
) -> None:
    server, speaker = lattice
    async with hosts.service():
        hosts.create("group", hostReplicas=2, **at(server))
        pods = await settled_pods(hosts, "group", 2)
        for number, pod in enumerate(pods):
            speaker.add(f"N{number}", labels={"kubernetes_pod": pod, "kubernetes": "true"})
            await speaker.beat(f"N{number}")
        speaker.add("N7", labels={"kubernetes_pod": "of-another-cluster"}, version="1.8.0")
        await speaker.beat("N7")
        await shown(hosts, "group", "True", "AllReporting")
        status = hosts.status("group")
        assert [(host["pod"], host["id"], host["reported"]) for host in status["hosts"]] == [
            (pods[0], "N0", "Yes"),
            (pods[1], "N1", "Yes"),
        ]
        await eventually(lambda: len(hosts.status("group")["latticeHosts"]) == 3, "all hosts", seconds=PATIENCE)
        other = next(host for host in hosts.status("group")["latticeHosts"] if host["id"] == "N7")
        assert (other["version"], other["applications"]) == ("1.8.0", ["hello-world"])
        await eventually(lambda: hosts.status("group")["app_count"] == 1, "applications", seconds=PATIENCE)
        assert hosts.status("group")["apps"] == [{"name": "shop", "version": "v1"}]

        server.kill()
        await shown(hosts, "group", "Unknown", "LatticeUnreachable")
        status = hosts.status("group")
        assert [host["reported"] for host in status["hosts"]] == ["Unknown", "Unknown"]
        assert [host["id"] for host in status["latticeHosts"]] == ["N0", "N1", "N7"]
        assert status["app_count"] == 1
        hosts.change("group", hostReplicas=3)
        await settled_pods(hosts, "group", 3)
        assert hosts.condition("group", "Available")[0] == "True"

        server.start()
        await eventually(lambda: speaker.client.is_connected, "it is back", seconds=PATIENCE)
        new = next(name for name in await settled_pods(hosts, "group", 3) if name not in pods)
        speaker.add("N2", labels={"kubernetes_pod": new})
        await speaker.beat("N2")
        await shown(hosts, "group", "True", "AllReporting")


async def test_heartbeats_write_nothing(hosts: HostWorld, lattice: tuple[NatsServer, LatticeSpeaker]) -> None:
    server, speaker = lattice
    async with hosts.service() as service:
        hosts.create("group", **at(server))
        (pod,) = await settled_pods(hosts, "group", 1)
        speaker.add("N0", labels={"kubernetes_pod": pod}, uptime_seconds=100)
        await speaker.beat("N0")
        await shown(hosts, "group", "True", "AllReporting")
        await eventually(lambda: hosts.status("group")["app_count"] == 1, "applications", seconds=PATIENCE)
        await hosts.settled("group")

        def runs() -> float:
            labels = {"service": service.name, "queue": "groups"}
            return service.telemetry.metrics.registry.get_sample_value("trellis_handler_seconds_count", labels) or 0

        offset, start = hosts.fleet.audit_offset(), runs()
        for seconds in (101, 102, 103):
            speaker.hosts["N0"]["uptime_seconds"] = seconds
            await speaker.beat("N0")
        await eventually(lambda: runs() > start + 2, "it is looked at", seconds=PATIENCE)
        written = [place(write) for write in hosts.fleet.writes(offset) if is_ours(write)]
        assert [where for where in written if where[1] == hosts.namespace] == []


async def test_a_host_without_heartbeat_is_reported_and_restarted_if_configured(
    hosts: HostWorld, lattice: tuple[NatsServer, LatticeSpeaker]
) -> None:
    server, _ = lattice
    async with hosts.service(Timings(lattice=LatticeTimings(silence=2.0))):
        hosts.create("group", **at(server))
        (pod,) = await settled_pods(hosts, "group", 1)
        await shown(hosts, "group", "False", "HeartbeatMissing")
        assert pod in hosts.condition("group", "HostsReporting")[2]
        assert await settled_pods(hosts, "group", 1) == [pod], "nobody asked for a restart"
        generation = hosts.call("GET", DEPLOYMENTS, "group")["metadata"]["generation"]
        hosts.change("group", hostRecycling="OneAtATime")
        await eventually(
            lambda: [item["metadata"]["name"] for item in hosts.pods("group")] not in ([pod], []),
            "another pod",
            seconds=PATIENCE,
        )
        assert hosts.call("GET", DEPLOYMENTS, "group")["metadata"]["generation"] == generation


@pytest.mark.thorough
async def test_a_lattice_with_an_invalid_name_does_not_prevent_hosts_from_running(hosts: HostWorld) -> None:
    async with hosts.service():
        hosts.create("group", lattice="a.b")
        await hosts.settled("group")
        status, reason, message = hosts.condition("group", "HostsReporting")
        assert (status, reason) == ("Unknown", "LatticeNotConnected")
        assert "'a.b'" in message
