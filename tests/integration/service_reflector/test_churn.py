"""Hosts come, go and move while applications change: every slice ends as the model has it, and none stays behind."""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from support.lattices.host_world import PATIENCE
from support.lattices.reflected import ReflectedWorld, Wadm
from support.nodes.fleet import eventually
from support.wadm.manifests import ANY_HOST, capability, link, manifest
from trellis import names
from trellis.kube.resources import ENDPOINT_SLICES, PODS, SERVICES

pytestmark = [pytest.mark.cluster, pytest.mark.thorough]

SEED = 20_261_122
APPLICATIONS = 100
LATTICES = {"churn-east": ("east-1", "east-2"), "churn-west": ("west-1", "west-2")}
ZONES = ("a", "b", "c")
ROUNDS = 25
STALE_SECONDS = 20.0
"""For so long a slice may name a pod that is gone: much more than it takes, as the machine may have other work."""
Endpoint = tuple[str, str, str, bool]
"""Pod, address, node, readiness."""


@dataclass
class Pod:
    """The pod of a host, as it is to be."""

    name: str
    group: str
    zone: str
    node: str
    address: str
    ready: bool = True


class Model:
    """The expected Services and the time of each deletion; its changes are made in Kubernetes and lattices, too."""

    def __init__(self, world: ReflectedWorld, wadms: dict[str, Wadm], nodes: list[str]) -> None:
        self.world = world
        self.wadms = wadms
        self.nodes = nodes
        self.random = random.Random(SEED)
        self.pods: dict[str, Pod] = {}
        self.deleted: dict[str, float] = {}
        self.ports: dict[str, tuple[str, int, str]] = {}
        """By application its lattice, its port, and the zone that it asks of hosts ("" for none)."""
        self._numbers: Iterator[int] = iter(range(1, 60_000))
        self._free: list[str] = []

    async def add(self, group: str) -> None:
        """Let there be one more host; its address may have been another's."""
        number = next(self._numbers)
        reuse = self._free and self.random.random() < 0.5
        address = self._free.pop(0) if reuse else f"10.78.{number // 250}.{number % 250 + 1}"
        pod = Pod(f"{group}-{number}", group, self.random.choice(ZONES), self.random.choice(self.nodes), address)
        self._create(pod)
        await eventually(lambda: self._runs(pod), f"the simulated kubelet starts {pod.name}", seconds=PATIENCE)
        self.world.ready(pod.name, ready=True, address=pod.address)
        self.pods[pod.name] = pod

    def _runs(self, pod: Pod) -> bool:
        status = self.world.hosts.call("GET", PODS, pod.name).get("status") or {}
        return str(status.get("phase")) == "Running"

    def _create(self, pod: Pod) -> None:
        labels = {
            names.LABEL_MANAGED_BY: names.WADM_OPERATOR,
            names.LABEL_INSTANCE: pod.group,
            f"{names.HOST_LABEL_PREFIX}zone": pod.zone,
        }
        containers = [{"name": "host", "image": "example.com/host:1"}]
        spec = {"nodeName": pod.node, "terminationGracePeriodSeconds": 0, "containers": containers}
        body = {"metadata": {"name": pod.name, "labels": labels}, "spec": spec}
        self.world.hosts.call("POST", PODS, body={"apiVersion": "v1", "kind": "Pod", **body})

    async def kill(self, pod: Pod) -> None:
        """End a host at once."""
        del self.pods[pod.name]
        self.world.hosts.call("DELETE", PODS, pod.name)
        self.deleted[pod.name] = time.monotonic()
        self._free.append(pod.address)

    async def move(self, pod: Pod) -> None:
        """End a host, and let there be one of its group elsewhere."""
        await self.kill(pod)
        await self.add(pod.group)

    async def flip(self, pod: Pod) -> None:
        """Let a host be ready, or not."""
        pod.ready = not pod.ready
        self.world.ready(pod.name, ready=pod.ready)

    async def deploy(self, name: str, lattice: str) -> None:
        """Deploy an application, or another version of it."""
        port, zone = self.random.randrange(8000, 9000), self.random.choice(("", *ZONES))
        spread = [{"name": "zone", "requirements": {"zone": zone}}]
        scaler = {"type": "spreadscaler", "properties": {"instances": 1, "spread": spread}} if zone else ANY_HOST
        version = f"v{next(self._numbers)}"
        self.ports[name] = (lattice, port, zone)
        made = manifest(name, capability("httpserver", link(f"0.0.0.0:{port}"), scaler), version=version)
        await self.wadms[lattice].deploy(made)

    async def undeploy(self, name: str) -> None:
        """Undeploy an application."""
        lattice, _, _ = self.ports.pop(name)
        await self.wadms[lattice].undeploy(name)

    async def change_an_application(self) -> None:
        """Undeploy one, or deploy one again."""
        name = f"app-{self.random.randrange(APPLICATIONS)}"
        if name in self.ports and self.random.random() < 0.3:
            await self.undeploy(name)
        else:
            lattice = self.ports[name][0] if name in self.ports else self.random.choice(list(LATTICES))
            await self.deploy(name, lattice)

    async def round(self) -> None:
        """Change some hosts and some applications at once."""
        chosen = self.random.sample(sorted(self.pods), min(4, len(self.pods)))
        changes = [self.random.choice((self.kill, self.move, self.move, self.flip))(self.pods[item]) for item in chosen]
        added = [self.add(self.random.choice(groups)) for groups in LATTICES.values()]
        await asyncio.gather(*changes, *added, *(self.change_an_application() for _ in range(4)))

    def wanted(self) -> dict[str, tuple[int, set[Endpoint]]]:
        """Return by application the port, and the endpoints, that its Service is to have."""
        return {
            name: (
                port,
                {
                    (pod.name, pod.address, pod.node, pod.ready)
                    for pod in self.pods.values()
                    if pod.group in LATTICES[lattice] and zone in {"", pod.zone}
                },
            )
            for name, (lattice, port, zone) in self.ports.items()
        }


def led(world: ReflectedWorld) -> dict[str, tuple[int, set[Endpoint]]]:
    """Return the same as it is; a port is what the one Service and all of its slices say, else 0.

    By application and not by Service: one that left a lattice for another before its Service was deleted has the
    second name there, and keeps it.
    """
    found: dict[str, set[Endpoint]] = defaultdict(set)
    ports: dict[str, list[set[int]]] = defaultdict(list)
    applications: dict[str, str] = {}
    for service in world.hosts.call("GET", SERVICES)["items"]:
        name = service["metadata"]["name"]
        applications[name] = service["metadata"]["labels"][names.LABEL_NAME]
        ports[applications[name]].append({port["port"] for port in service["spec"]["ports"]})
    for piece in world.hosts.call("GET", ENDPOINT_SLICES)["items"]:
        service = piece["metadata"]["labels"].get(names.LABEL_SERVICE_NAME, "")
        application = applications.get(service, service)
        for numbers in ports[application]:
            numbers.update(port["port"] for port in piece["ports"])
        found[application].update(endpoint(item) for item in piece.get("endpoints") or ())
    return {
        name: (numbers[0].pop() if [len(item) for item in numbers] == [1] else 0, found[name])
        for name, numbers in ports.items()
    }


def endpoint(one: dict[str, Any]) -> Endpoint:
    return one["targetRef"]["name"], one["addresses"][0], one.get("nodeName", ""), one["conditions"]["ready"]


async def watch_for_deleted_pods(model: Model, stale: dict[str, float]) -> None:
    """Record for how long a slice named a deleted pod."""
    while True:
        deleted = dict(model.deleted)
        started = time.monotonic()  # what is named now was named then, too
        named = {pod for _, of in led(model.world).values() for pod, *_ in of}
        for pod in named & deleted.keys():
            stale[pod] = max(stale.get(pod, 0.0), started - deleted[pod])
        await asyncio.sleep(0.5)


async def test_slices_follow_hosts_that_come_go_and_move_while_applications_change(world: ReflectedWorld) -> None:
    for lattice, groups in LATTICES.items():
        for group in groups:
            world.group(group, lattice)
    nodes = world.hosts.fleet.add("churn", "churn", "churn", opted_in=False)
    stale: dict[str, float] = {}
    world.permit_deletions()
    async with world.wadm("churn-east") as east, world.wadm("churn-west") as west, world.reflector():
        model = Model(world, {"churn-east": east, "churn-west": west}, nodes)
        watching = asyncio.create_task(watch_for_deleted_pods(model, stale))
        await asyncio.gather(*(model.add(group) for groups in LATTICES.values() for group in (*groups, *groups)))
        for number in range(APPLICATIONS):
            await model.deploy(f"app-{number}", list(LATTICES)[number % 2])
        for _ in range(ROUNDS):
            await model.round()
        try:
            await eventually(lambda: led(world) == model.wanted(), "as in the model", seconds=PATIENCE)
        except AssertionError:
            pytest.fail(difference(led(world), model.wanted()))
        assert not watching.done(), watching.exception()
        watching.cancel()
        await asyncio.wait({watching})
    assert len(model.deleted) >= ROUNDS
    assert max(stale.values(), default=0.0) <= STALE_SECONDS, stale


def difference(found: dict[str, Any], wanted: dict[str, Any]) -> str:
    names_ = sorted(name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name))
    return "\n".join(f"{name}: {found.get(name)}, not {wanted.get(name)}" for name in names_[:5])
