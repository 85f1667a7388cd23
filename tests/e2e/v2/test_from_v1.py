"""hello and counter answer over HTTP on wasmCloud v1 and, after the conversion, on v2: the example of the guide.

Real: NATS, wadm, the host of v1, the API server, service_reflector, the command, the published runtime of v2.
Stand-ins: the provider keyvalue-nats, which is no crate; the pod of the host of v1, which is a process; the operator
of v2.
"""

from __future__ import annotations

import asyncio
import contextlib
import http
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import nats
import pytest

from support.cluster import local_address
from support.lattices.host_behaviour import own_lattice
from support.lattices.provider_archive import keyvalue_archive
from support.lattices.real_lattice import RealLattice, Wadm
from support.lattices.reflected import ReflectedWorld
from support.nodes.real_nodes import eventually
from support.v2.component_images import ARCHIVE, RECORDED, counter, push
from support.v2.definitions import wasmcloud_v2
from support.v2.deployments import Deployments
from support.v2.operator import NAMESPACE, StandInOperator
from support.v2.real_host import Images, StartHost, get
from support.wadm.migration_page import manifests
from trellis.kube.access import Access
from trellis.kube.client import Kube
from trellis.kube.resources import NAMESPACES, WORKLOAD_DEPLOYMENTS
from trellis.telemetry import setup
from trellis.telemetry.health import Health
from trellis_dev.localcluster.nats import NatsServer
from trellis_dev.localcluster.ports import free_ports
from trellis_dev.localcluster.v2host import V2Host, V2HostOptions

SECONDS: Final = 120.0
NAMES: Final = ("counter", "hello")
BUCKET: Final = "default"
HELLO: Final = "hello-1"
"""The answer of the component that is recorded as demo/hello:1."""
Json = dict[str, Any]


@dataclass(frozen=True)
class Command:
    """``trellis migrate to-v2`` for the namespace of a test, as a process that reads the applications from wadm."""

    kubeconfig: Path
    namespace: str

    async def __call__(self, *options: str, status: int = 0) -> Json:
        """Run it; return its document."""
        words = ["migrate", "to-v2", "--namespace", self.namespace, "--from-wadm", *options, "--output", "json"]
        argv = [sys.executable, "-m", "trellis_cli", *words, "--kubeconfig", str(self.kubeconfig)]
        done = await asyncio.to_thread(
            subprocess.run, argv, capture_output=True, text=True, check=False, timeout=SECONDS
        )
        assert done.returncode == status, done.stderr + done.stdout
        found: Json = json.loads(done.stdout)
        return found


@dataclass(frozen=True)
class Sides:
    """Both versions: the addresses of the applications on v1, by name; the host of v2, and its operator."""

    v1: Mapping[str, str]
    v2: V2Host
    v2_object: Json
    deployments: Deployments
    kube: Kube
    command: Command

    async def ask_v1(self, name: str) -> tuple[int, str]:
        """Return the answer of an application on v1, by its reflected Service."""
        return await asyncio.to_thread(get, self.v1[name], name)

    async def ask_v2(self, name: str) -> tuple[int, str]:
        """Return the answer of an application on v2."""
        address = f"{self.v2.options.address}:{self.v2.port}"
        return await asyncio.to_thread(get, address, config_host(await self.deployment(name)))

    async def deployment(self, name: str) -> Json:
        """Return a converted application."""
        return await self.kube.get(WORKLOAD_DEPLOYMENTS, name, self.command.namespace)

    async def convert(self) -> None:
        """Convert the applications, write the objects, and run them."""
        applied = await self.command("--apply")
        assert {item["done"] for item in applied["applied"]} == {"created"}
        for name in NAMES:
            await self.deployments.deploy(await self.deployment(name), self.v2_object)

    async def change_image(self, name: str, old: str, new: str) -> None:
        """Run another image on v2, as a user does who changes the WorkloadDeployment."""
        found = await self.deployment(name)
        [component] = found["spec"]["template"]["spec"]["components"]
        component["image"] = component["image"].replace(old, new)
        patch = {"spec": found["spec"]}
        changed = await self.kube.merge_patch(
            WORKLOAD_DEPLOYMENTS, name, patch, self.command.namespace, field_manager="kubectl-edit"
        )
        await self.deployments.deploy(changed, self.v2_object)

    async def differences(self, status: int) -> dict[str, str | None]:
        """Return the differences that the check reports, by application; ``status`` is its exit status."""
        found = await self.command("--check", status=status)
        assert found["ok"] is (status == 0)
        return {route["application"].partition("/")[2]: route["difference"] for route in found["routes"]}


def config_host(deployment: Json) -> str:
    """Return the host name by which v2 routes to a workload."""
    [interface] = [
        item for item in deployment["spec"]["template"]["spec"]["hostInterfaces"] if item["package"] == "http"
    ]
    found: str = interface["config"]["host"]
    return found


@pytest.fixture
def address() -> Iterator[str]:
    """An address of this machine that an EndpointSlice may have."""
    if (reason := local_address.missing()) is not None:
        pytest.skip(f"NOT RUN: {reason}")
    with local_address.local_address() as found:
        yield found


@pytest.fixture
async def kube(world: ReflectedWorld) -> AsyncIterator[Kube]:
    """The connection of the operator of v2."""
    name, access = "runtime-operator", Access(Path(world.hosts.fleet.info.kubeconfig))
    kube = await Kube.connect(access, telemetry=setup(name), health=Health(name))
    yield kube
    await kube.close()


@pytest.fixture
def registry(images: Images) -> str:
    """Return the registry with the images of the example."""
    for tag in ("1", "2"):
        push(images.registry, f"hello:{tag}", RECORDED[f"demo/hello:{tag}"].data)
    push(images.registry, "counter:1", counter())
    push(images.registry, "wasmcloud/keyvalue-nats:0.3.1", keyvalue_archive(), ARCHIVE)
    return images.registry


@pytest.fixture
async def v1(
    real_lattice: RealLattice,
    world: ReflectedWorld,
    address: str,
    registry: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[dict[str, str]]:
    """The applications on v1: their addresses, by name, in the Services that service_reflector has for them."""
    lattice = own_lattice()
    # A host stores images and providers there.
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    host = await asyncio.to_thread(real_lattice.start_host, lattice, None, 1, ("--insecure-registry", registry))
    client = await nats.connect(real_lattice.url)
    stream = client.jetstream()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(client.close)
        stack.push_async_callback(asyncio.to_thread, host.terminate)
        await stream.create_key_value(bucket=BUCKET)
        stack.push_async_callback(stream.delete_key_value, BUCKET)
        world.group("hosts", lattice, natsClientPort=real_lattice.nats.port)
        world.pod("hosts", "host-1", address=address)
        ports = dict(zip(("8080", "8081"), free_ports(2), strict=True))
        changes = {
            "ghcr.io/wasmcloud/http-server:0.27.0": "wasmcloud+builtin://http-server",
            "ghcr.io": registry,
            "registry.example.com": registry,
            "nats://nats.data:4222": real_lattice.url,
            **{f"0.0.0.0:{there}": f"{address}:{here}" for there, here in ports.items()},
        }
        wadm = await stack.enter_async_context(Wadm.of(real_lattice.url, lattice))
        await stack.enter_async_context(world.reflector())
        for application in manifests("applications"):
            await wadm.put(on_this_machine(application, changes))
            await wadm.deploy(application["metadata"]["name"])
        for name in NAMES:
            await wadm.until(name, "deployed", seconds=SECONDS)
            await asyncio.to_thread(eventually, partial(world.addresses, name), f"endpoints of {name}", SECONDS)
        yield {name: reflected_address(world, name) for name in NAMES}


def on_this_machine(application: Json, changes: Mapping[str, str]) -> Json:
    """Return an application of the guide with the addresses of this machine."""
    text = json.dumps(application)
    for there, here in changes.items():
        text = text.replace(there, here)
    found: Json = json.loads(text)
    del found["metadata"]["namespace"]
    return found


def reflected_address(world: ReflectedWorld, service: str) -> str:
    """Return ``address:port`` of the endpoint of a reflected Service."""
    [piece] = [item for item in world.slices(service) if item.get("endpoints")]
    return f"{piece['endpoints'][0]['addresses'][0]}:{piece['ports'][0]['port']}"


@pytest.fixture
async def sides(
    v1: dict[str, str],
    world: ReflectedWorld,
    address: str,
    kube: Kube,
    bus: NatsServer,
    start_host: StartHost,
) -> AsyncIterator[Sides]:
    """Both versions beside each other, before the conversion."""
    status, answer = world.hosts.api.call("POST", NAMESPACES.path(), {"metadata": {"name": NAMESPACE}})
    assert status in {http.HTTPStatus.CREATED, http.HTTPStatus.CONFLICT}, answer
    options = V2HostOptions(nats_url=bus.url, environment=world.namespace, address=address, heartbeat=0.5)
    with wasmcloud_v2(world.hosts.api):
        client = await nats.connect(bus.url)
        async with StandInOperator.on(client, kube) as operator:
            host = await asyncio.to_thread(start_host, options)
            on = await operator.look_at_host(await operator.host(host.id))
            command = Command(Path(world.hosts.fleet.info.kubeconfig), world.namespace)
            yield Sides(v1, host, on, Deployments(operator, kube), kube, command)
            await asyncio.to_thread(host.kill)
        await client.close()


async def counted(sides: Sides) -> None:
    """Wait until counter has its link on v1: until then the host closes the connection, and nothing is counted."""
    found: list[tuple[int, str]] = []

    def counts() -> bool:
        with contextlib.suppress(ConnectionError):
            found.append(get(sides.v1["counter"], "counter"))
        return bool(found)

    await asyncio.to_thread(eventually, counts, "counter counts on v1", SECONDS)
    assert found == [(http.HTTPStatus.OK, "1")]


async def test_the_applications_of_the_guide_answer_alike_on_both_versions(sides: Sides) -> None:
    assert await sides.ask_v1("hello") == (http.HTTPStatus.OK, HELLO)
    await counted(sides)
    assert await sides.ask_v1("counter") == (http.HTTPStatus.OK, "2")

    shown = await sides.command()
    assert [item["kind"] for item in shown["objects"]] == ["Service", "WorkloadDeployment"] * 2
    await sides.convert()
    assert await sides.ask_v2("hello") == (http.HTTPStatus.OK, HELLO)
    assert [await sides.ask_v2("counter") for _ in range(2)] == [(http.HTTPStatus.OK, text) for text in "12"]

    assert await sides.differences(0) == dict.fromkeys(NAMES)
    # The check was the third request on each side.
    assert await sides.ask_v1("counter") == await sides.ask_v2("counter") == (http.HTTPStatus.OK, "4")


async def test_another_answer_of_one_side_is_reported(sides: Sides) -> None:
    await counted(sides)
    await sides.convert()
    await sides.change_image("hello", "hello:1", "hello:2")
    assert (await sides.ask_v2("hello"))[1] != HELLO
    # v1 has counted one request more.
    assert {name: bool(found) for name, found in (await sides.differences(1)).items()} == dict.fromkeys(NAMES, True)
    await sides.ask_v2("counter")
    differing = await sides.differences(1)
    assert (differing["counter"], bool(differing["hello"])) == (None, True)


async def test_a_side_without_an_answer_is_reported(sides: Sides) -> None:
    await sides.convert()
    await asyncio.to_thread(sides.v2.kill)
    assert all((await sides.differences(1)).values())
