"""The stand-in for upstream's operator with a stand-in host: objects and conditions as recorded."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client

from support.v2.operator import StandInOperator
from support.v2.stand_in_host import Component, Options, StandInHost
from trellis.kube.resources import NAMESPACES, WASM_HOSTS, WORKLOADS
from trellis_dev.fakes.fake import FakeKube
from trellis_dev.localcluster.nats import NatsServer

pytestmark = pytest.mark.nats

RECORDED = json.loads((Path(__file__).parents[2] / "data/v2/host/objects.json").read_text())
CREATED = RECORDED["workload"]["created"]
IMAGE = CREATED["spec"]["components"][0]["image"]


@pytest.fixture
async def client(nats_server: NatsServer) -> AsyncIterator[Client]:
    client = await nats.connect(nats_server.url)
    yield client
    await client.close()


@pytest.fixture
def kube() -> FakeKube:
    kube = FakeKube()
    for resource in (WASM_HOSTS, WORKLOADS):
        kube.define(resource)
    for namespace in ("wasmcloud-system", "apps"):
        kube.put(NAMESPACES, {"metadata": {"name": namespace}})
    return kube


@pytest.fixture
async def operator(client: Client, kube: FakeKube) -> AsyncIterator[StandInOperator]:
    async with StandInOperator.on(client, kube) as operator:
        yield operator


@pytest.fixture
async def host(client: Client) -> AsyncIterator[StandInHost]:
    options = Options(images={IMAGE: Component()}, environment="apps", heartbeat=60.0)
    async with StandInHost(client, options) as host:
        yield host


def workload(kube: FakeKube, **spec: Any) -> dict[str, Any]:
    """Return the recorded Workload as it is when it was just created."""
    metadata = {key: CREATED["metadata"][key] for key in ("name", "namespace", "annotations")}
    return kube.put(WORKLOADS, {"metadata": metadata, "spec": {**CREATED["spec"], **spec}})


def statuses(found: dict[str, Any]) -> dict[str, str]:
    return {condition["type"]: condition["status"] for condition in found["status"]["conditions"]}


async def test_host_is_written_on_its_first_heartbeat_and_has_numbers_when_asked(
    operator: StandInOperator, host: StandInHost
) -> None:
    found = await operator.host(host.id)
    assert found.keys() == RECORDED["host"]["created"].keys() | {"status"}
    assert found["metadata"]["name"] == host.friendly_name
    assert found["metadata"]["finalizers"] == ["runtime.wasmcloud.dev/host-finalizer"]
    assert found["status"].keys() == RECORDED["host"]["afterPublished"].keys()
    assert found["status"]["version"] == RECORDED["host"]["afterPublished"]["version"]
    asked = await operator.look_at_host(found)
    assert asked["status"].keys() == RECORDED["host"]["afterAnswered"].keys()
    assert asked["status"]["version"] == RECORDED["host"]["afterAnswered"]["version"]
    assert statuses(asked) == {"Reporting": "True", "Ready": "True"}


async def test_workload_becomes_ready_and_goes(operator: StandInOperator, host: StandInHost, kube: FakeKube) -> None:
    on = await operator.host(host.id)
    placed = await operator.place(workload(kube), on)
    assert placed["status"].keys() == RECORDED["workload"]["ready"].keys()
    assert [it["type"] for it in placed["status"]["conditions"]] == [
        it["type"] for it in RECORDED["workload"]["ready"]["conditions"]
    ]
    assert {*statuses(placed).values()} == {"True"}
    assert placed["status"]["workloadId"] == placed["metadata"]["uid"]
    assert host.workloads == {placed["metadata"]["uid"]: 1}
    await operator.remove(placed)
    assert host.workloads == {}
    assert kube.objects(WORKLOADS) == []


@pytest.mark.parametrize(
    ("spec", "state"),
    [
        ({"components": [{"image": "nowhere", "name": "web"}]}, "NOT_FOUND"),
        ({"hostInterfaces": [{"namespace": "wasi", "package": "http", "interfaces": ["incoming-handler"]}]}, "ERROR"),
    ],
    ids=["image", "no host name"],
)
async def test_failed_start_is_seen_at_the_next_look(
    operator: StandInOperator, host: StandInHost, kube: FakeKube, spec: dict[str, Any], state: str
) -> None:
    made = workload(kube, kubernetes={}, **spec)
    placed = await operator.place(made, await operator.host(host.id))
    expected = {"Config": "True", "HostSelection": "True", "Placement": "True", "Sync": "False", "Ready": "False"}
    assert statuses(placed) == expected
    [sync] = [it for it in placed["status"]["conditions"] if it["type"] == "Sync"]
    assert sync["message"].endswith(f"WORKLOAD_STATE_{state}")


async def test_host_that_ended_is_seen_when_it_is_asked(
    operator: StandInOperator, host: StandInHost, kube: FakeKube
) -> None:
    on = await operator.look_at_host(await operator.host(host.id))
    placed = await operator.place(workload(kube), on)
    await host.__aexit__()
    assert statuses(await operator.look_at(placed))["Sync"] == "False"
    assert statuses(await operator.look_at_host(on)) == {"Reporting": "False", "Ready": "Unknown"}
    other = kube.put(WORKLOADS, {"metadata": {"name": "later", "namespace": "apps"}, "spec": CREATED["spec"]})
    assert statuses(await operator.place(other, on))["Placement"] == "False"
