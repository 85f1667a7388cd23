"""HTTP components on the published runtime of wasmCloud v2: routes by host name, replicas, replacement, removal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import nats
import pytest

from support.v2.host_behaviour import ENVIRONMENT
from support.v2.operator import NAMESPACE, StandInOperator
from support.v2.real_host import Images, StartHost, get
from trellis.kube.resources import NAMESPACES, WASM_HOSTS, WORKLOADS
from trellis_dev.fakes.fake import FakeKube
from trellis_dev.localcluster.nats import NatsServer
from trellis_dev.localcluster.v2host import V2Host, V2HostOptions

SERVICE = "hello"
SERVED = ("hello.test", f"{SERVICE}.{ENVIRONMENT}", f"{SERVICE}.{ENVIRONMENT}.svc", "hello.test:8180", "HELLO.test")
"""Names in ``Host`` that the recorded host serves; a port has no effect."""
NOT_SERVED = (SERVICE, f"{SERVICE}.{ENVIRONMENT}.svc.cluster.local", "127.0.0.1", "other.test")
Manifest = dict[str, Any]


@pytest.fixture
def host(start_host: StartHost, bus: NatsServer) -> V2Host:
    return start_host(V2HostOptions(nats_url=bus.url, environment=ENVIRONMENT, heartbeat=0.5))


@pytest.fixture
def kube() -> FakeKube:
    kube = FakeKube()
    for resource in (WASM_HOSTS, WORKLOADS):
        kube.define(resource)
    for namespace in (NAMESPACE, ENVIRONMENT):
        kube.put(NAMESPACES, {"metadata": {"name": namespace}})
    return kube


@pytest.fixture
async def operator(bus: NatsServer, kube: FakeKube) -> AsyncIterator[StandInOperator]:
    client = await nats.connect(bus.url)
    async with StandInOperator.on(client, kube) as operator:
        yield operator
    await client.close()


def workload(kube: FakeKube, name: str, image: str) -> Manifest:
    """Create a Workload of one HTTP component behind a Service."""
    interface = {"namespace": "wasi", "package": "http", "interfaces": ["incoming-handler"]}
    spec = {
        "components": [{"name": "web", "image": image}],
        "hostInterfaces": [{**interface, "config": {"host": SERVED[0]}}],
        "kubernetes": {"service": {"name": SERVICE}},
    }
    return kube.put(WORKLOADS, {"metadata": {"name": name, "namespace": ENVIRONMENT}, "spec": spec})


async def get_all(host: V2Host, names: tuple[str, ...] = SERVED) -> set[tuple[int, str]]:
    address = f"{host.options.address}:{host.port}"
    return set(await asyncio.gather(*(asyncio.to_thread(get, address, name) for name in names)))


async def test_component_serves_the_names_of_its_workload_until_it_stops(
    operator: StandInOperator, kube: FakeKube, host: V2Host, images: Images
) -> None:
    on = await operator.look_at_host(await operator.host(host.id))
    assert (on["metadata"]["name"], on["httpPort"]) == (host.friendly_name, host.port)
    placed = await operator.place(workload(kube, "hello-1", f"{images.registry}/demo/hello:1"), on)
    assert {condition["status"] for condition in placed["status"]["conditions"]} == {"True"}
    assert await get_all(host) == {(200, "hello-1")}
    assert await get_all(host, NOT_SERVED) == {(404, "")}
    await operator.remove(placed)
    assert await get_all(host, (*SERVED, *NOT_SERVED)) == {(404, "")}


async def test_both_versions_answer_until_the_former_stops(
    operator: StandInOperator, kube: FakeKube, host: V2Host, images: Images
) -> None:
    on = await operator.host(host.id)
    former = await operator.place(workload(kube, "hello-1", f"{images.registry}/demo/hello:1"), on)
    await operator.place(workload(kube, "hello-2", f"{images.registry}/demo/hello:2"), on)
    assert await get_all(host) == {(200, "hello-1"), (200, "hello-2")}
    await operator.remove(former)
    assert await get_all(host) == {(200, "hello-2")}


async def test_component_without_a_handler_is_ready_and_serves_nothing(
    operator: StandInOperator, kube: FakeKube, host: V2Host, images: Images
) -> None:
    image = f"{images.registry}/demo/nohandler:1"
    placed = await operator.place(workload(kube, "nothing", image), await operator.host(host.id))
    assert {condition["status"] for condition in placed["status"]["conditions"]} == {"True"}
    assert await get_all(host) == {(404, "")}
