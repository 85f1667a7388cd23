"""The lifecycle of wasmCloud v2 on a real bus, from a real API server to which recorded objects are written."""

from __future__ import annotations

import asyncio
import contextlib
import http
import json
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import nats
import pytest

from host_manager.timings import Timings
from support.lattices.host_world import PATIENCE, HostWorld
from support.nodes.fleet import eventually, is_ours
from support.v2.definitions import RecordedOperator, wasmcloud_v2
from support.v2.recordings import recording
from support.wadm.to_convert import application, strange
from trellis.bus.streams.tail import TailedEvent
from trellis.kube.resources import CONFIGMAPS, SERVICES, WASMCLOUD_V2, WORKLOAD_DEPLOYMENTS
from trellis.lattice.follow.heartbeats import HeartbeatTimings
from trellis.v2.messages import HEARTBEATS
from trellis.v2.timings import V2Timings
from trellis_cli.migrate.model.to_v2.convert import Source, convert
from trellis_dev.localcluster.nats import NatsServer

pytestmark = pytest.mark.cluster

GROUP = WASMCLOUD_V2[0].group
SHORT = Timings(v2_settle=0.05, v2_look=1.0, v2_served=0.5, publish=0.2)
GOLDEN = json.loads((Path(__file__).parents[2] / "data/host_manager/v2_events.json").read_text())
NOUNS = ("workload_deployment", "workload", "wasm_host", "artifact")


@pytest.fixture
def served(hosts: HostWorld) -> Iterator[HostWorld]:
    with wasmcloud_v2(hosts.api):
        yield hosts


async def events(hosts: HostWorld) -> list[TailedEvent]:
    return [event for event in await hosts.fleet.events_until_now() if event.noun in NOUNS]


async def shown(hosts: HostWorld) -> list[str]:
    """Return the events about the objects of the test, as the golden file has them, without the namespace."""
    found = []
    for event in await events(hosts):
        key = [part for part in event.key if part != hosts.namespace]
        reason = event.event["data"].get("reason") or ""
        found.append(" ".join(filter(None, (f"{event.noun}.{event.event_name}", "/".join(key), reason))))
    return found


def expected(situation: str) -> list[str]:
    """Return the golden sequence without the namespaces of the recording."""
    return [line.replace("apps/", "").replace("wasmcloud-system/", "") for line in GOLDEN[situation]]


async def until_published(hosts: HostWorld, wanted: Iterable[str]) -> list[str]:
    """Return the events once all wanted ones are stored; the service that creates the stream is ready."""
    awaited, found = Counter(wanted), list[str]()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE):
            while not awaited <= Counter(found):
                await asyncio.sleep(0.2)
                found = await shown(hosts)
    assert awaited <= Counter(found), f"not published: {awaited - Counter(found)}; published: {found}"
    return found


def written(hosts: HostWorld, offset: int) -> set[str]:
    """Return the API groups of the objects that services of Trellis wrote."""
    return {
        (record.get("objectRef") or {}).get("apiGroup", "") for record in hosts.fleet.writes(offset) if is_ours(record)
    }


async def test_a_failed_rollout_and_its_correction_are_published_once_over_a_restart(served: HostWorld) -> None:
    operator, offset = RecordedOperator(served.api, recording("14b"), served.namespace), served.fleet.audit_offset()
    wanted = expected("14b-rollout-of-a-bad-image")
    operator.write(0.0)
    async with served.service(SHORT) as service:
        await eventually(lambda: service.health.readiness().ok, service.health.readiness, seconds=PATIENCE)
        await until_published(served, wanted[:5])
        operator.write(30.0)
        await until_published(served, wanted[:7])
    operator.write(60.0)  # the failed Workload is replaced while no replica of the service runs
    async with served.service(SHORT):
        operator.write(recording("14b").end)
        found = await until_published(served, wanted)
        assert sorted(found) == sorted(wanted), "nothing is repeated, nothing is missing"
        operator.delete_all()
        gone = {f"wasm_host.gone {name}" for name in ("uppity-country-8876", "uppity-son-5573")}
        await until_published(served, gone)
    traces = [event.event["traceparent"] for event in await events(served)]
    assert all(traces)
    assert GROUP not in written(served, offset)


async def test_the_group_can_be_installed_while_the_service_runs(hosts: HostWorld) -> None:
    offset = hosts.fleet.audit_offset()
    async with hosts.service(SHORT) as service:
        hosts.create("group", hostReplicas=0)
        await hosts.settled("group")
        with wasmcloud_v2(hosts.api):
            operator = RecordedOperator(hosts.api, recording("02"), hosts.namespace)
            operator.write(recording("02").end)
            await until_published(hosts, expected("02-deployment-ready"))
            await eventually(lambda: service.health.readiness().ok, "ready", seconds=PATIENCE)
        hosts.change("group", hostLabels={"zone": "a"})
        await hosts.settled("group")
        await eventually(lambda: service.health.readiness().ok, "ready", seconds=PATIENCE)
    assert "k8s.wasmcloud.dev" in written(hosts, offset)
    assert GROUP not in written(hosts, offset)


async def test_heartbeats_give_numbers_of_hosts_and_an_outage_of_nats_is_one_event(
    served: HostWorld, tmp_path: Path
) -> None:
    hosts = V2Timings(heartbeat=0.8, slack=0.4)
    timings = replace(SHORT, v2=hosts, v2_heartbeats=HeartbeatTimings(first=0.1, most=0.2, hosts=hosts))
    found = recording("03")
    operator = RecordedOperator(served.api, found, served.namespace)
    operator.write(found.end)
    beats = [(subject, payload) for _, subject, payload in found.payloads(0.0, 2.0) if subject.startswith(HEARTBEATS)]
    with NatsServer(tmp_path / "nats") as server:
        async with served.service(timings, v2_nats=server.url) as service:

            def value(name: str, **labels: str) -> float | None:
                labels = {"service": "host_manager", **labels}
                return service.telemetry.metrics.registry.get_sample_value(f"trellis_wasmcloud_{name}", labels)

            await eventually(lambda: value("heartbeats_connected") == 1, "connected", seconds=PATIENCE)

            async def send(until: Callable[[], Awaitable[bool]]) -> None:
                client = await nats.connect(server.url)
                try:
                    async with asyncio.timeout(PATIENCE):
                        while not await until():
                            for subject, payload in beats:
                                await client.publish(subject, payload)
                            await client.flush()
                            await asyncio.sleep(0.1)
                finally:
                    await client.close()

            async def measured() -> bool:
                return value("host_cpu_ratio", host_namespace=served.namespace, host="uppity-son-5573") is not None

            async def heartbeats() -> list[dict[str, Any]]:
                found = [event.event for event in await served.fleet.events_until_now() if event.noun == "heartbeats"]
                data = [event["data"] | {"type": event["type"]} for event in found]
                return [item for item in data if item["scope"] == "Nats"]

            async def restored() -> bool:
                return len(await heartbeats()) > 1

            await send(measured)
            server.stop()
            await eventually(lambda: value("heartbeats_connected") == 0, "NATS is away", seconds=PATIENCE)
            published: list[dict[str, Any]] = []
            async with asyncio.timeout(PATIENCE):
                while not published:
                    await asyncio.sleep(0.1)
                    published = await heartbeats()
            await asyncio.sleep(hosts.silence + 2)  # a dozen of attempts to connect, and two regular runs
            [lost] = await heartbeats()
            assert lost["type"] == "dev.trellis.heartbeats.lost.v1"
            assert (lost["scope"], lost["name"], lost["reason"]) == ("Nats", "host_manager", "ConnectionLost")
            assert (lost["server"], lost["hosts"]) == (server.url, 2)
            assert "wasm_host.silent" not in str(await shown(served))
            await eventually(lambda: service.health.readiness().ok, "ready all the same", seconds=PATIENCE)
            server.start()
            await send(restored)
            [_, end] = await heartbeats()
            assert (end["type"], end["since"]) == ("dev.trellis.heartbeats.restored.v1", lost["since"])


# In this file because its tests define the kinds for the whole cluster, one after another.
def test_the_api_server_accepts_each_converted_application(served: HostWorld) -> None:
    kinds = {res.kind: res for res in (WORKLOAD_DEPLOYMENTS, SERVICES, CONFIGMAPS)}
    refused = []
    plain = [application(random.Random(number)) for number in range(100)]
    odd = [strange(random.Random(number), manifest) for number, manifest in enumerate(plain)]
    for number, manifest in enumerate([*plain, *odd]):
        for item in convert(Source(manifest, manifest["metadata"]["name"], served.namespace)).objects:
            path = f"{kinds[item['kind']].path(served.namespace)}?dryRun=All&fieldValidation=Strict"
            status, answer = served.api.call("POST", path, dict(item))
            if status != http.HTTPStatus.CREATED:
                refused.append((number, item["kind"], answer.get("message")))
    assert refused == []


@pytest.mark.parametrize(
    "entries",
    [
        [{"version": "0.2.0"}, {"version": "0.3.0"}],
        [{"name": "a"}, {"name": "a"}],
        [{"name": "Upper"}],
        [{"name": "a" * 65}],
        [{"interfaces": []}],
    ],
    ids=["two without a name", "duplicates", "an invalid name", "a long name", "no interfaces"],
)
def test_the_api_server_refuses_interfaces_that_the_conversion_never_writes(
    served: HostWorld, entries: list[dict[str, object]]
) -> None:
    interfaces = [{"namespace": "wasi", "package": "keyvalue", "interfaces": ["store"], **item} for item in entries]
    manifest = {
        "apiVersion": WORKLOAD_DEPLOYMENTS.api_version,
        "kind": WORKLOAD_DEPLOYMENTS.kind,
        "metadata": {"name": "shop", "namespace": served.namespace},
        "spec": {"template": {"spec": {"hostInterfaces": interfaces}}},
    }
    status, _ = served.api.call("POST", f"{WORKLOAD_DEPLOYMENTS.path(served.namespace)}?dryRun=All", manifest)
    assert status == http.HTTPStatus.UNPROCESSABLE_ENTITY
