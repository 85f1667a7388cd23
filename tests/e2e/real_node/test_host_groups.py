"""Host groups on a real node: pods with a real NATS leaf in the cluster's lattice, and their faults.

The hosts are stubs: they are in their lattice and run nothing. host_manager is a process beside the cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nats
import nats.errors
import pytest
from nats.aio.msg import Msg

from support.lattices.host_behaviour import Lattice, own_lattice
from support.lattices.host_images import NATS, NEW_VERSION, OLD_VERSION, host_image
from support.nodes.fleet import eventually
from support.nodes.real_nodes import Kubectl
from support.suite.service_process import running
from support.suite.settling import settle
from trellis_dev.localcluster import ClusterInfo, kill, restart

NODE = "real-0"
PATIENCE = 240.0
DRAIN = 3
"""Seconds that a host takes to stop: longer than a leaf lives that is told to stop at the same moment."""
CHILDREN = "deployment,replicaset,pod,configmap,serviceaccount,role,rolebinding,service,poddisruptionbudget"
Status = dict[str, Any]


@dataclass(frozen=True)
class World:
    """A cluster of one real node that has the images, and knows groups of hosts."""

    info: ClusterInfo
    kubectl: Kubectl

    def group(self, name: str, lattice: str, **spec: Any) -> None:
        """Create a group of stubs that beat each second."""
        env = [{"name": "STUB_HEARTBEAT", "value": "1"}, {"name": "STUB_DRAIN", "value": str(DRAIN)}]
        spec = {
            "lattice": lattice,
            "version": OLD_VERSION,
            "image": host_image(OLD_VERSION),
            "natsLeafImage": NATS,
            "natsAddress": self.info.lattice_nats,
            "drainSeconds": DRAIN + 2,
            "hostLabels": {"zone": "a"},
            "schedulingOptions": {"containerTemplateAdditions": {"wasmcloud": {"env": env}}},
            **spec,
        }
        metadata = {"name": name}
        self.kubectl.create(
            {
                "apiVersion": "k8s.wasmcloud.dev/v1alpha1",
                "kind": "WasmCloudHostConfig",
                "metadata": metadata,
                "spec": spec,
            }
        )

    @contextlib.asynccontextmanager
    async def host_manager(self, directory: Path) -> AsyncIterator[None]:
        """Run host_manager as a process of its own, with the cluster's NATS as its bus."""
        log = directory / "host-manager.log"
        settings = {"KUBECONFIG": str(self.info.kubeconfig), "NATS_URL": self.info.nats_url, "HEALTH_PORT": "0"}
        settings |= {"NAMESPACE": "trellis-system", "SOURCES_SECONDS": "2"}
        async with running(
            log, "host-manager", **{f"TRELLIS_{key}": value for key, value in settings.items()}
        ) as process:
            yield
            assert process.returncode is None, log.read_text()

    async def shown(self, name: str, what: str, holds: Callable[[Status], object]) -> Status:
        """Wait until the status of a group is so; return it."""
        status: Status = {}

        def look() -> object:
            nonlocal status
            status = self.kubectl.get("whc", name).get("status") or {}
            return holds(status)

        try:
            await eventually(look, what, seconds=PATIENCE)
        except AssertionError:
            pods = self.kubectl("get", "pods", "-o", "wide")
            pytest.fail(f"not within {PATIENCE:.0f} s: {what}: {json.dumps(status)}\n{pods}")
        return status

    async def reported(self, name: str, count: int, version: str = OLD_VERSION) -> dict[str, str]:
        """Wait until a group has so many hosts, each in its pod and with heartbeats; return their ids by pod."""

        def all_received(status: Status) -> bool:
            hosts = status.get("hosts") or []
            reporting = [host for host in hosts if (host["reported"], host.get("version")) == ("Yes", version)]
            return len(reporting) == len(hosts) == count == status.get("readyReplicas") == status.get("updatedReplicas")

        status = await self.shown(name, f"{count} hosts of version {version}", all_received)
        return {host["pod"]: host["id"] for host in status["hosts"]}

    def pods(self, name: str) -> list[str]:
        """Return the names of a group's pods."""
        listed = self.kubectl("get", "pods", "-l", f"app.kubernetes.io/instance={name}", "-o", "name")
        return sorted(line.removeprefix("pod/") for line in listed.split())

    def children(self, name: str) -> list[str]:
        """Return all that there is of a group besides itself."""
        listed = self.kubectl("get", CHILDREN, "-o", "name").split()
        return [item for item in listed if item.split("/")[1] == name or item.split("/")[1].startswith(f"{name}-")]


@pytest.fixture(scope="module")
def world(host_cluster: ClusterInfo) -> World:
    """One real node whose pods reach the lattices of the cluster."""
    return World(host_cluster, Kubectl(host_cluster))


async def test_hosts_are_shown_scale_stop_in_good_order_and_go(world: World, tmp_path: Path) -> None:
    lattice, kubectl = own_lattice(), world.kubectl
    async with world.host_manager(tmp_path), Lattice.of(world.info.nats_url, lattice) as watched:
        world.group("group", lattice)
        ((pod, first),) = (await world.reported("group", 1)).items()
        status = await world.shown("group", "all well", lambda status: _conditions(status) >= WELL)
        (host,) = status["hosts"]
        assert (host["node"], host["ip"]) == (NODE, kubectl.get("pod", pod)["status"]["podIP"])
        assert (host["labels"]["kubernetes_pod"], host["labels"]["zone"]) == (pod, "a")
        assert host["startedAt"] >= kubectl.get("pod", pod)["metadata"]["creationTimestamp"]
        assert [(lattice_host["id"], lattice_host["pod"]) for lattice_host in status["latticeHosts"]] == [(first, pod)]

        kubectl("scale", "whc/group", "--replicas=2")
        two = await world.reported("group", 2)
        assert two[pod] == first, "the first runs on"

        kill(world.info.name, "lattice-nats")
        status = await world.shown("group", "it is missed", lambda status: "LatticeUnreachable" in _reasons(status))
        assert {host["reported"] for host in status["hosts"]} == {"Unknown"}
        assert {host["id"] for host in status["latticeHosts"]} == set(two.values())
        await asyncio.to_thread(restart, world.info.name, "lattice-nats")
        assert await world.reported("group", 2) == two, "the same hosts in the same pods"

        # The only way out of the pod is its leaf: what the host says at the end of its drain gets through it.
        kubectl("delete", "pod", pod, "--wait=false")
        await watched.event("host_stopped", first)
        await eventually(lambda: pod not in world.pods("group"), "the pod is gone", seconds=PATIENCE)
        after = await world.reported("group", 2)
        assert first not in after.values()

        kubectl("delete", "whc", "group", "--timeout=300s")
        for host_id in after.values():
            await watched.event("host_stopped", host_id)
        await eventually(lambda: world.children("group") == [], "nothing is left of it", seconds=PATIENCE)


async def test_another_image_rolls_the_hosts_and_each_stops_in_good_order(world: World, tmp_path: Path) -> None:
    lattice, kubectl = own_lattice(), world.kubectl
    async with world.host_manager(tmp_path), Lattice.of(world.info.nats_url, lattice) as watched:
        world.group("rolled", lattice, hostReplicas=2)
        old = await world.reported("rolled", 2)
        patch = json.dumps({"spec": {"image": host_image(NEW_VERSION), "version": NEW_VERSION}})
        kubectl("patch", "whc", "rolled", "--type=merge", "-p", patch)
        new = await world.reported("rolled", 2, NEW_VERSION)
        assert not old.items() & new.items()
        for host_id in old.values():
            await watched.event("host_stopped", host_id)
        await world.shown("rolled", "all well", lambda status: _conditions(status) >= WELL)
        status = await world.shown(
            "rolled", "the old ones left", lambda status: len(status["latticeHosts"]) == len(new)
        )
        assert {host["version"] for host in status["latticeHosts"]} == {NEW_VERSION}

        patch = json.dumps({"spec": {"image": "trellis.local/no-such-host:1"}})
        kubectl("patch", "whc", "rolled", "--type=merge", "-p", patch)
        status = await world.shown(
            "rolled", "it says why", lambda status: "no-such-host" in _message(status, "Degraded")
        )
        assert status["readyReplicas"] >= 1, "an image that is none ends no more hosts than a drain would"
        kubectl("delete", "whc", "rolled", "--timeout=300s")
        await eventually(lambda: world.children("rolled") == [], "nothing is left of it", seconds=PATIENCE)


async def test_hosts_without_heartbeat_are_reported_and_restarted_one_at_a_time_if_configured(
    world: World, tmp_path: Path
) -> None:
    lattice, kubectl = own_lattice(), world.kubectl
    env = [{"name": "STUB_HEARTBEAT", "value": "100000"}, {"name": "STUB_DRAIN", "value": "0"}]
    quiet = {"containerTemplateAdditions": {"wasmcloud": {"env": env}}}
    async with world.host_manager(tmp_path):
        world.group("silent", lattice, hostReplicas=2, schedulingOptions=quiet)
        # They say that they start, and nothing after that.
        status = await world.shown("silent", "they are silent", lambda status: "HeartbeatMissing" in _reasons(status))
        before = world.pods("silent")
        assert {host["ready"] for host in status["hosts"]} == {True}, "to Kubernetes they are well"
        assert any(pod in _message(status, "HostsReporting") for pod in before)
        both = await world.shown(
            "silent", "both", lambda found: [item["reported"] for item in found["hosts"]] == ["No"] * 2
        )
        assert [item["pod"] for item in both["hosts"]] == before == world.pods("silent"), "nobody asked for a restart"

        kubectl("patch", "whc", "silent", "--type=merge", "-p", '{"spec": {"hostRecycling": "OneAtATime"}}')
        status = await world.shown(
            "silent",
            "one is another, and heard",
            lambda found: _others(found, before) == ["Yes"] and len(found["hosts"]) == len(before),
        )
        kept = [host for host in status["hosts"] if host["pod"] in before]
        assert [host["reported"] for host in kept] == ["No"], "the next one waits until this is known to help"
        reporting = kubectl(
            "get", "events", "--field-selector=reason=HostRecycled", "-o", "jsonpath={.items[*].message}"
        )
        assert reporting.count(" 70 s") == 1
        kubectl("delete", "whc", "silent", "--timeout=300s")
        await eventually(lambda: world.children("silent") == [], "nothing is left of it", seconds=PATIENCE)


async def test_messages_do_not_cross_between_the_bus_and_the_nodes(world: World) -> None:
    inside = await nats.connect(world.info.nats_url)
    outside = await nats.connect(f"{world.info.lattice_nats}:4222")
    try:
        for here, there in ((inside, outside), (outside, inside)):
            reported: list[str] = []

            async def receive(message: Msg, reported: list[str] = reported) -> None:
                reported.append(message.subject)

            for subject in ("trellis.>", "wasmbus.evt.probe.>"):
                await there.subscribe(subject, cb=receive)
            await settle(there)
            async with asyncio.timeout(60):
                # More than once: servers tell each other by and by what is listened to.
                while reported.count("wasmbus.evt.probe.x") < 3:
                    await here.publish("trellis.evt.c.node.opted_in.x", b"{}")
                    await here.publish("wasmbus.evt.probe.x", b"{}")
                    await settle(here)
                    await asyncio.sleep(0.1)
            assert set(reported) == {"wasmbus.evt.probe.x"}
        assert await inside.request("$JS.API.INFO", b"", timeout=30), "it has JetStream"
        with pytest.raises((nats.errors.NoRespondersError, nats.errors.TimeoutError)):
            await outside.request("$JS.API.INFO", b"", timeout=3)
    finally:
        await inside.close()
        await outside.close()


def _others(status: Status, pods: list[str]) -> list[str]:
    """Return the heartbeats of the hosts in other pods than these."""
    return [host["reported"] for host in status.get("hosts") or () if host["pod"] not in pods]


WELL = {("Ready", "True"), ("Progressing", "False"), ("Degraded", "False"), ("HostsReporting", "True")}


def _conditions(status: Status) -> set[tuple[str, str]]:
    return {(condition["type"], condition["status"]) for condition in status.get("conditions") or ()}


def _reasons(status: Status) -> set[str]:
    return {str(condition["reason"]) for condition in status.get("conditions") or ()}


def _message(status: Status, kind: str) -> str:
    found = (str(condition["message"]) for condition in status.get("conditions") or () if condition["type"] == kind)
    return next(found, "")
