"""Resources of host_manager for wasmCloud v2: ``python bench/v2.py [--hosts N] [--deployments N] [--silence]``.

In: nothing; it starts a control plane and a NATS of its own, with host_manager in a process of its own, and writes the
objects of wasmCloud v2 as its runtime-operator does. Out: figures and the machine they were measured on, on stdout;
exit status 1 if one exceeds what is allowed. Measured are the way from a change of a status to the event on
TRELLIS_EVENTS, ``trellis explain``, the memory beside that of host_manager without wasmCloud v2, and many heartbeats.
``--silence``: also how late a host without heartbeats is published, which takes two to three minutes more.
"""

from __future__ import annotations

import argparse
import asyncio
import http
import json
import random
import statistics
import sys
import tempfile
import time
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import nats
import psutil
from nats.aio.client import Client
from prometheus_client.parser import text_string_to_metric_families

from host_manager.timings import Timings
from hosts import wait
from machine import describe
from provision import free_port, http_ready, process
from trellis.bus.streams.tail import Selection, tail
from trellis.crds.kinds import KINDS, make_definition
from trellis.kube.resources import (
    DEFINITIONS,
    HOST_CONFIGS,
    NAMESPACES,
    WASM_HOSTS,
    WORKLOAD_DEPLOYMENTS,
    WORKLOAD_REPLICA_SETS,
    WORKLOADS,
    Manifest,
    Resource,
)
from trellis.v2.messages import HEARTBEATS
from trellis.v2.timings import V2Timings
from trellis_dev.localcluster import ClusterInfo, owned_cluster
from trellis_dev.localcluster.api import Api
from trellis_dev.localcluster.nats import NatsServer
from v2_objects import (
    HOSTS_NAMESPACE,
    NAMESPACE,
    deployment_status,
    host_id,
    host_name,
    host_status,
    make_deployment,
    make_heartbeat,
    make_host,
    make_replica_set,
    make_workload,
    recorded,
    replica_set_name,
    replica_set_status,
    template,
    workload_name,
    workload_status,
)

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
from support.v2.definitions import wasmcloud_v2

PATIENCE: Final = 300.0
IN_FLIGHT: Final = 8
PAUSE: Final = 0.5
"""Longest pause between two changes, which come at any time of the service's intervals."""
TARGET_EVENT: Final = 1.0
TARGET_EXPLAIN: Final = 1.0
TARGET_MIB: Final = 15.0
TRUST: Final = V2Timings().host_look + V2Timings().slack
"""Seconds for which the operator must have worked before silence proves anything."""
READY: Final = "workload_deployment.ready"
_RECEIVED: Final = "trellis_wasmcloud_heartbeats_total"
_REPORTING: Final = "trellis_wasmcloud_hosts_reporting"
Json = dict[str, Any]
Metric = tuple[str, str]
"""Event and name of its object."""


@dataclass(frozen=True)
class Row:
    """A figure of the table. ``allowed``: the largest one, None if none is fixed."""

    what: str
    figure: float
    unit: str
    allowed: float | None = None

    @property
    def good(self) -> bool:
        """True if the figure is allowed."""
        return self.allowed is None or self.figure <= self.allowed

    def shown(self, width: int) -> str:
        """Return its line of the table."""
        allowed = "" if self.allowed is None else f"{self.allowed:g} {self.unit}"
        line = f"{self.what:<{width}}  {self.figure:>10.3f} {self.unit:<4}  {allowed:>8}"
        return line.rstrip() if self.good else f"{line}  MISSED"


def table(rows: Iterable[Row]) -> str:
    """Return the rows below each other."""
    found = [*rows]
    width = max(len(row.what) for row in found)
    return "\n".join([f"{'':<{width}}  {'measured':>15}  {'allowed':>8}", *(row.shown(width) for row in found)])


def percentile(values: Iterable[float], share: float) -> float:
    found = sorted(values)
    return found[min(len(found) - 1, int(len(found) * share))]


def latency_rows(took: dict[str, list[float]]) -> list[Row]:
    """Return p50 of each event, and p50 and p99 of all; only the p99 of all has a limit."""
    every = [value for values in took.values() for value in values]
    rows = [Row(f"  {event}, p50 of {len(values)}", statistics.median(values), "s") for event, values in took.items()]
    return [
        Row(f"change of a status -> event, p50 of {len(every)}", statistics.median(every), "s"),
        Row(f"change of a status -> event, p99 of {len(every)}", percentile(every, 0.99), "s", TARGET_EVENT),
        Row("  of which host_manager collects changes", Timings().v2_settle, "s"),
        *rows,
    ]


@dataclass
class Events:
    """When which event was stored, in Unix seconds by the NATS server, whose clock is the one of this machine."""

    stored: dict[Metric, list[float]] = field(default_factory=lambda: defaultdict(list))
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def read(self, url: str) -> None:
        """Note the events of TRELLIS_EVENTS until cancelled."""
        async for event in tail(url, Selection()):
            data = event.event.get("data") or {}
            name = data.get("owner") or data.get("name") or ""
            self.stored[f"{event.noun}.{event.event_name}", name].append(event.stored.timestamp())
            self.changed.set()

    def count(self, event: str) -> int:
        """Return how many were stored."""
        return sum(len(times) for (found, _), times in self.stored.items() if found == event)

    def first(self, event: str, name: str, since: float) -> float | None:
        """Return when the first one about an object since a time was stored, None if there is none."""
        return next((at for at in self.stored.get((event, name), ()) if at >= since), None)

    async def wait(self, event: str, name: str, since: float, seconds: float = PATIENCE) -> float:
        """Return when the event about an object was stored."""
        await self.until(lambda: self.first(event, name, since) is not None, f"{event} of {name}", seconds)
        found = self.first(event, name, since)
        assert found is not None  # it was waited for
        return found

    async def until(self, done: Callable[[], bool], what: str, seconds: float = PATIENCE) -> None:
        """Wait until the check holds, which is made for each event.

        Raises:
            TimeoutError: it did not hold within these seconds.
        """
        try:
            async with asyncio.timeout(seconds):
                while not done():
                    self.changed.clear()
                    await self.changed.wait()
        except TimeoutError:
            raise TimeoutError(f"not within {seconds} s: {what}") from None


class Operator:
    """Writes objects as the runtime-operator does: object, then status. ``uids``: by kind and name."""

    def __init__(self, api: Api, hosts: int, deployments: int, replicas: int) -> None:
        self._api = api
        self.hosts = hosts
        self.deployments = [f"shop-{number:04d}" for number in range(deployments)]
        self.replicas = replicas
        self._uids: dict[tuple[str, str], str] = {}
        self._versions = dict.fromkeys(self.deployments, 1)

    def write_all(self) -> None:
        """Write the Hosts, then the WorkloadDeployments with all that belongs to them, Ready."""
        with ThreadPoolExecutor(IN_FLIGHT) as threads:
            for _ in threads.map(self._write_host, range(self.hosts)):
                pass
            for _ in threads.map(self._write_deployment, self.deployments):
                pass

    def record_heartbeat(self, number: int) -> None:
        """Record the heartbeat of a host, as the operator does for each."""
        self._status(WASM_HOSTS, host_name(number), recorded(time.time()))

    def fail(self, name: str) -> float:
        """Have the Workloads of a WorkloadDeployment fail; return when the first request began, in Unix seconds."""
        return self._report(name, fails=True)

    def recover(self, name: str) -> float:
        """Make them run; return when the first request began."""
        return self._report(name, fails=False)

    def roll(self, name: str) -> float:
        """Roll out another version; return when the first request began that reports the new Workloads as running."""
        former = self._versions[name]
        version = self._versions[name] = former + 1
        self._patch(WORKLOAD_DEPLOYMENTS, name, {"spec": {"template": template(name, version)}})
        self._write_replica_set(name, version)
        now = time.time()
        status = deployment_status(now, name, version, self.replicas, self.replicas)
        status |= {"previousReplicaSet": {"name": replica_set_name(name, former)}}
        self._status(WORKLOAD_DEPLOYMENTS, name, status)
        for replica in range(self.replicas):
            self._write_workload(name, version, replica)
        began = self._report(name, fails=False)
        for replica in range(self.replicas):
            self._delete(WORKLOADS, workload_name(name, former, replica))
        self._delete(WORKLOAD_REPLICA_SETS, replica_set_name(name, former))
        return began

    def _report(self, name: str, *, fails: bool) -> float:
        """Write the statuses of the Workloads, of their WorkloadReplicaSet and of the WorkloadDeployment, in turn."""
        began, version = time.time(), self._versions[name]
        for replica in range(self.replicas):
            found = workload_name(name, version, replica)
            uid = self._uids[WORKLOADS.kind, found]
            self._status(WORKLOADS, found, workload_status(began, self._host(name, replica), uid, fails=fails))
        failed = self.replicas if fails else 0
        replica_set = replica_set_status(began, self.replicas, failed)
        self._status(WORKLOAD_REPLICA_SETS, replica_set_name(name, version), replica_set)
        status = deployment_status(began, name, version, self.replicas, failed)
        self._status(WORKLOAD_DEPLOYMENTS, name, status | {"previousReplicaSet": None})
        return began

    def _host(self, name: str, replica: int) -> str:
        return host_id((int(name.rpartition("-")[2]) * self.replicas + replica) % self.hosts)

    def _write_host(self, number: int) -> None:
        self._create(WASM_HOSTS, make_host(number))
        self._status(WASM_HOSTS, host_name(number), host_status(time.time()))

    def _write_deployment(self, name: str) -> None:
        self._create(WORKLOAD_DEPLOYMENTS, make_deployment(name, 1, self.replicas))
        self._write_replica_set(name, 1)
        for replica in range(self.replicas):
            self._write_workload(name, 1, replica)
        self._report(name, fails=False)

    def _write_replica_set(self, name: str, version: int) -> None:
        owner = self._uids[WORKLOAD_DEPLOYMENTS.kind, name]
        self._create(WORKLOAD_REPLICA_SETS, make_replica_set(name, version, self.replicas, owner))

    def _write_workload(self, name: str, version: int, replica: int) -> None:
        owner = self._uids[WORKLOAD_REPLICA_SETS.kind, replica_set_name(name, version)]
        self._create(WORKLOADS, make_workload(name, version, replica, owner))

    def _create(self, res: Resource, manifest: Manifest) -> None:
        metadata = manifest["metadata"]
        status, answer = self._api.call("POST", res.path(metadata["namespace"]), manifest)
        assert status == http.HTTPStatus.CREATED, answer
        self._uids[res.kind, metadata["name"]] = answer["metadata"]["uid"]

    def _patch(self, res: Resource, name: str, patch: Json) -> None:
        self._call("PATCH", res.path(_namespace(res), name), patch)

    def _status(self, res: Resource, name: str, status: Json) -> None:
        self._call("PATCH", res.path(_namespace(res), name, "status"), {"status": status})

    def _delete(self, res: Resource, name: str) -> None:
        self._call("DELETE", res.path(_namespace(res), name))

    def _call(self, method: str, path: str, body: Json | None = None) -> None:
        status, answer = self._api.call(method, path, body)
        assert status == http.HTTPStatus.OK, answer


def _namespace(res: Resource) -> str:
    return HOSTS_NAMESPACE if res is WASM_HOSTS else NAMESPACE


@dataclass
class Hosts:
    """The heartbeats of all hosts, each in its interval: on NATS, and recorded by the operator.

    ``silent``: hosts without heartbeats; ``last``: by host the time of the last one, in Unix seconds.
    """

    operator: Operator
    client: Client
    interval: float = V2Timings().heartbeat
    stopped: set[int] = field(default_factory=set)
    last: dict[int, float] = field(default_factory=dict)
    published: int = 0

    async def run(self) -> None:
        """Send heartbeats until cancelled, evenly distributed."""
        count = self.operator.hosts
        due = time.monotonic()
        while True:
            for number in range(count):
                if number not in self.stopped:
                    await self.beat(number)
                due += self.interval / count
                await asyncio.sleep(max(0.0, due - time.monotonic()))

    async def beat(self, number: int) -> None:
        """Send the heartbeat of one host, and record it."""
        self.last[number] = time.time()
        await self.client.publish(f"{HEARTBEATS}.{host_id(number)}", json.dumps(make_heartbeat(number, 5)).encode())
        self.published += 1
        await asyncio.to_thread(self.operator.record_heartbeat, number)


@dataclass(frozen=True)
class World:
    """The measured processes and their servers; ``port``: of the metrics of host_manager."""

    info: ClusterInfo
    v2_nats: str
    operator: Operator
    hosts: Hosts
    events: Events
    running: psutil.Process
    port: int
    options: argparse.Namespace

    def resident(self) -> float:
        """Return the MiB of host_manager."""
        return float(self.running.memory_info().rss) / 2**20

    def metric(self, name: str) -> float:
        """Return the sum of the samples of a metric of host_manager."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as answer:
            families = text_string_to_metric_families(answer.read().decode())
            return sum(sample.value for family in families for sample in family.samples if sample.name == name)


async def changes(world: World) -> dict[str, list[float]]:
    """Return by event the seconds from a change to the event: failures, recoveries and rollouts, one after another."""
    operator, events = world.operator, world.events
    took: dict[str, list[float]] = defaultdict(list)
    kinds: tuple[tuple[Callable[[str], float], str, str], ...] = (
        (operator.fail, "workload.failed", "workload_deployment.degraded"),
        (operator.recover, READY, READY),
        (operator.roll, "workload_deployment.rolled", "workload_deployment.rolled"),
    )
    for number in range(world.options.changes):
        act, event, last = kinds[number % len(kinds)]
        name = operator.deployments[number // len(kinds) % len(operator.deployments)]
        await asyncio.sleep(random.uniform(0, PAUSE))
        began = await asyncio.to_thread(act, name)
        took[event].append(await events.wait(event, name, began) - began)
        await events.wait(last, name, began)  # without it the deployment is not ready again
    return took


async def explained(world: World) -> list[float]:
    """Return the seconds that ``trellis explain`` takes, with the start of its process."""
    took = []
    command = [sys.executable, "-m", "trellis_cli", "explain"]
    for number in range(world.options.explains):
        name = world.operator.deployments[number % len(world.operator.deployments)]
        asked = [*command, f"workloaddeployment/{name}", "-n", NAMESPACE, "--kubeconfig", str(world.info.kubeconfig)]
        started = time.monotonic()
        running = await asyncio.create_subprocess_exec(
            *asked, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        output, _ = await running.communicate()
        took.append(time.monotonic() - started)
        assert running.returncode == 0, output.decode()
    return took


async def many_heartbeats(world: World) -> list[Row]:
    """Return the CPU time of many heartbeats; beside them, each host sends its own."""
    rate, seconds, hosts = world.options.rate, world.options.seconds, world.hosts
    script = str(Path(__file__).with_name("v2_heartbeats.py"))
    received, own, used = world.metric(_RECEIVED), hosts.published, sum(world.running.cpu_times()[:2])
    started, peak = time.monotonic(), world.resident()
    running = await asyncio.create_subprocess_exec(
        *(sys.executable, script, world.v2_nats, str(rate), str(seconds)),
        str(world.operator.hosts),
        stdout=asyncio.subprocess.PIPE,
    )
    answer = asyncio.create_task(running.communicate())
    while not answer.done():
        peak = max(peak, world.resident())
        await asyncio.sleep(0.1)
    output, _ = answer.result()
    found = json.loads(output)
    took = time.monotonic() - started
    share = (sum(world.running.cpu_times()[:2]) - used) / found["seconds"]
    await asyncio.sleep(2)  # what was published last is received
    sent = found["published"] + hosts.published - own
    lost = sent - (world.metric(_RECEIVED) - received)
    print(f"heartbeats: {found['published']} in {found['seconds']:.1f} s, publisher's process {took:.1f} s", flush=True)
    return [
        Row("heartbeats published each second", found["published"] / found["seconds"], ""),
        Row("  CPU of host_manager meanwhile, share of a core", share, ""),
        Row("  heartbeats lost", lost, "", 0.0),
        Row("  hosts without one, of those that send", world.operator.hosts - world.metric(_REPORTING), "", 0.0),
        Row("  memory of host_manager, peak", peak, "MiB"),
    ]


async def silence(world: World, since: float) -> list[Row]:
    """Return how late a host without heartbeats is published, and one that resumes them.

    ``since``: when host_manager was ready, in Unix seconds. Before TRUST silence proves nothing, which is waited for.
    """
    events, hosts, number = world.events, world.hosts, 0
    await asyncio.sleep(max(0.0, since + TRUST + 20 - time.time()))
    hosts.stopped.add(number)
    await asyncio.sleep(1)  # one that was on its way is recorded
    last = hosts.last[number]
    silent = await events.wait("wasm_host.silent", host_name(number), last)
    again = time.time()
    hosts.stopped.discard(number)
    await hosts.beat(number)
    ready = await events.wait("wasm_host.ready", host_name(number), again)
    return [
        Row("last heartbeat -> wasm_host.silent; by the rule 36 to 60 s", silent - last, "s"),
        Row("first heartbeat again -> wasm_host.ready", ready - again, "s", TARGET_EVENT),
    ]


def host_manager(info: ClusterInfo, v2_nats: str, port: int) -> AbstractContextManager[psutil.Process]:
    environment = {
        "TRELLIS_KUBECONFIG": str(info.kubeconfig),
        "TRELLIS_NATS_URL": info.nats_url,
        "TRELLIS_V2_NATS": v2_nats,
        "TRELLIS_HEALTH_PORT": str(port),
    }
    return process([sys.executable, "-m", "host_manager"], environment)


async def without_v2(info: ClusterInfo, v2_nats: str, settle: float) -> float:
    """Return the MiB of host_manager where the CRDs of wasmCloud v2 are absent."""
    port = free_port()
    with host_manager(info, v2_nats, port) as running:
        await http_ready(port)
        await asyncio.sleep(settle)
        return float(running.memory_info().rss) / 2**20


async def figures(world: World, before: float) -> list[Row]:
    """Return all figures with wasmCloud v2, from the start of host_manager; ``before``: MiB without it."""
    events, options, started = world.events, world.options, time.monotonic()
    await http_ready(world.port)
    since = time.time()
    await events.until(lambda: events.count(READY) >= len(world.operator.deployments), "all are published")
    print(f"all published {time.monotonic() - started:.1f} s after the start of host_manager", flush=True)
    await asyncio.sleep(options.settle)
    steady = world.resident()
    rows = latency_rows(await changes(world))
    worked = world.resident()
    rows += [
        Row("trellis explain, p50", statistics.median(await explained(world)), "s", TARGET_EXPLAIN),
        Row("memory of host_manager without wasmCloud v2", before, "MiB"),
        Row("  with it", steady, "MiB"),
        Row("  with it, after the changes", worked, "MiB"),
        Row("  difference, of the greater one", max(steady, worked) - before, "MiB", TARGET_MIB),
    ]
    rows += await silence(world, since) if options.silence else []
    # Hosts are counted once heartbeats were received for two intervals, and at the next look.
    await asyncio.sleep(max(0.0, since + V2Timings().silence + 20 - time.time()))
    return [*rows, *await many_heartbeats(world)]


async def with_v2(
    info: ClusterInfo, server: NatsServer, operator: Operator, before: float, options: argparse.Namespace
) -> list[Row]:
    """Return the figures with wasmCloud v2; ``before``: MiB without it."""
    started = time.monotonic()
    await asyncio.to_thread(operator.write_all)
    print(
        f"{operator.hosts} Hosts, {len(operator.deployments)} WorkloadDeployments with {operator.replicas} Workloads "
        f"each, all Ready: written in {time.monotonic() - started:.1f} s",
        flush=True,
    )
    client, events, port = await nats.connect(server.url), Events(), free_port()
    hosts = Hosts(operator, client)
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(hosts.run()), group.create_task(events.read(info.nats_url))]
            with host_manager(info, server.url, port) as running:
                rows = await figures(World(info, server.url, operator, hosts, events, running, port, options), before)
            for task in tasks:
                task.cancel()
        return rows
    finally:
        await client.close()


async def measure(info: ClusterInfo, server: NatsServer, options: argparse.Namespace) -> list[Row]:
    api = Api.of_kubeconfig(Path(info.kubeconfig))
    for kind in KINDS:
        await asyncio.to_thread(api.call, "POST", DEFINITIONS.path(), make_definition(kind))
    for namespace in (NAMESPACE, HOSTS_NAMESPACE):
        await asyncio.to_thread(api.call, "POST", NAMESPACES.path(), {"metadata": {"name": namespace}})
    await asyncio.to_thread(wait, lambda: api.ok(HOST_CONFIGS.path(NAMESPACE)), "the CRDs are served")
    before = await without_v2(info, server.url, options.settle)
    operator = Operator(api, options.hosts, options.deployments, options.replicas)
    with wasmcloud_v2(api):
        rows = await with_v2(info, server, operator, before, options)
        print(table(rows), flush=True)
        return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=100)
    parser.add_argument("--deployments", type=int, default=500)
    parser.add_argument("--replicas", type=int, default=1, help="Workloads of each WorkloadDeployment (default 1)")
    parser.add_argument("--changes", type=int, default=200, help="failures, recoveries and rollouts (default 200)")
    parser.add_argument("--explains", type=int, default=5)
    parser.add_argument("--rate", type=int, default=10_000, help="heartbeats each second (default 10000)")
    parser.add_argument("--seconds", type=float, default=10.0, help="of these heartbeats (default 10)")
    parser.add_argument("--settle", type=float, default=20.0, help="seconds before memory is measured (default 20)")
    parser.add_argument("--silence", action="store_true", help="measure wasm_host.silent, too")
    options = parser.parse_args()
    print(f"machine: {describe()}", flush=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        owned_cluster() as info,
        NatsServer(Path(folder) / "nats") as server,
    ):
        rows = asyncio.run(measure(info, server, options))
    return 0 if all(row.good for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
