"""The time from applications to Services, and from hosts to endpoints: ``python bench/reflect.py [--peer BINARY]``.

In: nothing; it starts control planes and a NATS of its own, with service_reflector in a process of its own, and is the
lattices' wadm. Out: figures and the machine they were measured on, on stdout; exit status 1 if a target is missed. The
watch of another client sees the results. Targets are ratios to wasmcloud-operator: with ``--peer`` it does the same in
the same run, in turns with service_reflector, each time on a control plane and a NATS that are new, and the medians
count. BINARY is ``wadm-operator``, which ``cargo build --release`` makes of its public source at tag v0.5.1. Without it
what 0.5.1 was measured to take once on a machine of this kind counts: 9.8 ms for one application, 30 s for 300 at
once (it lists pods after each one, which an API server with etcd 3.6 answers ten times a second), 3.65 s to remove
these.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nats
import psutil
from prometheus_client.parser import text_string_to_metric_families

from machine import describe
from provision import free_port, process
from reflect_world import NAMESPACE, Seen, Wadm, create_group, create_pod, ready_addresses, set_ready, until
from trellis.crds.kinds import KINDS, make_definition
from trellis.events.subjects import SERVICE_REFLECTOR
from trellis.kube.access import Access
from trellis.kube.client import Kube
from trellis.kube.informer import Informer
from trellis.kube.resources import CONFIGMAPS, DEFINITIONS, ENDPOINT_SLICES, HOST_CONFIGS, NAMESPACES, SERVICES
from trellis.limits.breaker import Limits, State, close
from trellis.limits.breaker_record import make_breakers
from trellis.telemetry import setup
from trellis.telemetry.health import Health
from trellis_dev.localcluster import ClusterInfo, owned_cluster
from trellis_dev.localcluster.api import Api
from trellis_dev.localcluster.nats import NatsServer

FIRST = "bench"
SYSTEM = "trellis-system"
SINGLE = 40
MANY = 300
PAUSE = 0.1
CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager")
LATTICES = 50
CHANGES = 40
ROUNDS = 3
RATIO_ONE, RATIO_MANY, RATIO_REMOVED, TARGET_POD = 0.9, 0.3, 0.35, 1.0
PEER_REGISTRATION = "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.core.oam.dev"


@dataclass(frozen=True)
class Figures:
    """Seconds: one application (median), 300 at once, 300 removed."""

    one: float
    many: float
    removed: float


RECORDED = Figures(0.0098, 30.0, 3.65)
ALLOWED = Figures(RATIO_ONE, RATIO_MANY, RATIO_REMOVED)


@dataclass(frozen=True)
class World:
    """A control plane, a NATS and what is measured on them; ``port``: of its metrics, None if it has none."""

    info: ClusterInfo
    api: Api
    server: NatsServer
    wadm: Wadm
    seen: Seen
    running: psutil.Process
    port: int | None


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


async def one_by_one(world: World) -> float:
    took, used = [], spent(world)
    for number in range(SINGLE):
        name = f"single-{number}"
        started = time.monotonic()
        await world.wadm.deploy(FIRST, name)
        await until(lambda name=name: name in world.seen.services, name)  # type: ignore[misc]
        took.append(world.seen.services[name] - started)
        await asyncio.sleep(PAUSE)
    p50, p90 = statistics.median(took), percentile(took, 0.9)
    print(
        f"  manifest_published -> Service, one at a time: p50 {p50 * 1000:.1f} ms, p90 {p90 * 1000:.1f} ms; processor "
        f"time for each: {each(world, used, SINGLE)}"
    )
    return p50


def writes(port: int | None) -> Counter[str]:
    """Return what service_reflector has written since its start, by verb and resource, as its metrics count it.

    The API server's audit log has the same times, but slows it by a fifth of the measured time.
    """
    found: Counter[str] = Counter()
    if port is None:
        return found
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        families = text_string_to_metric_families(answer.read().decode())
        samples = [
            sample for family in families for sample in family.samples if sample.name == "trellis_kube_requests_total"
        ]
    for sample in samples:
        verb, resource = sample.labels["verb"].lower(), sample.labels["resource"]
        if verb in {"create", "patch", "delete"} and resource in {"services", "endpointslices", "events"}:
            found[f"{verb} {resource}"] += int(sample.value)
    return found


def spent(world: World) -> dict[str, float]:
    """Return the seconds of processor that what is measured ("it"), and the control plane, have had until now.

    On a machine with other work this is more reliable than the elapsed time.
    """
    of = {tool: world.info.pids[tool] for tool in CONTROL_PLANE} | {"it": world.running.pid}
    return {name: float(sum(psutil.Process(pid).cpu_times()[:2])) for name, pid in of.items()}


def each(world: World, before: dict[str, float], count: int) -> str:
    """Return the processor time for each application since then."""
    return ", ".join(f"{name} {1000 * (now - before[name]) / count:.1f} ms" for name, now in spent(world).items())


def cores(since: tuple[float, Any]) -> float:
    """Return the cores that this machine had since then: other tenants use a shared machine, too."""
    now = psutil.cpu_times()
    return float(now.user + now.system + now.idle - since[1].user - since[1].system - since[1].idle) / (
        time.monotonic() - since[0]
    )


async def many(world: World) -> tuple[float, float]:
    wanted = [f"many-{number}" for number in range(MANY)]
    seen, wadm = world.seen, world.wadm
    figures = []
    for what, act, done in (
        ("become Services", wadm.deploy, lambda name: name in seen.services),
        ("are removed", wadm.undeploy, lambda name: name not in seen.services),
    ):
        before, started, used = writes(world.port), time.monotonic(), spent(world)
        machine = started, psutil.cpu_times()
        for name in wanted:
            await act(FIRST, name)
        await until(lambda done=done: all(map(done, wanted)), what)  # type: ignore[misc]
        took, had, until_then = time.monotonic() - started, cores(machine), each(world, used, MANY)
        if act == wadm.deploy:
            await until(lambda: all(name in seen.slices for name in wanted), "all have endpoints")
            print(f"  {MANY} at once have endpoints: {time.monotonic() - started:.2f} s")
        await asyncio.sleep(2)  # what follows the last one is written, too
        counted = {key: f"{number / MANY:.2f}" for key, number in sorted((writes(world.port) - before).items())}
        print(
            f"  {MANY} at once {what}: {took:.2f} s, the machine had {had:.1f} cores; processor time for each: "
            f"{until_then}; with what follows: {each(world, used, MANY)}"
            + (f"; writes for each: {counted}" if counted else ""),
            flush=True,
        )
        figures.append(took)
    return figures[0], figures[1]


async def pods(world: World, applications: int) -> bool:
    api, wadm, seen = world.api, world.wadm, world.seen
    lattices = [f"l{number}" for number in range(LATTICES)]
    each = applications // LATTICES
    for number, lattice in enumerate(lattices):
        await asyncio.to_thread(create_group, api, lattice, world.server.port)
        for copy in (0, 1):
            await asyncio.to_thread(create_pod, api, lattice, f"{lattice}-{copy}", 2 * number + copy)
        for application_ in range(each):
            await wadm.deploy(lattice, f"{lattice}-a{application_}")
    await until(lambda: sum(found.count(",") == 1 for found, _ in seen.slices.values()) >= each * LATTICES, "all lead")
    took = []
    for number in range(CHANGES):
        lattice = lattices[number % LATTICES]
        services = [f"{lattice}-a{item}" for item in range(each)]
        address = f"10.80.{2 * (number % LATTICES) // 250}.{2 * (number % LATTICES) % 250 + 1}"
        started = time.monotonic()
        await asyncio.to_thread(set_ready, api, f"{lattice}-0", address, ready=False)
        await until(lambda: all("," not in seen.slices[service][0] for service in services), "slices")  # noqa: B023 - at once
        took += [seen.slices[service][1] - started for service in services]
    p50, p99 = statistics.median(took), percentile(took, 0.99)
    print(
        f"host pod change -> EndpointSlice, {each * LATTICES} applications on {LATTICES} lattices, {CHANGES} changes "
        f"of {each} slices each: p50 {p50 * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms (peer: never; allowed "
        f"{TARGET_POD:.0f} s)"
    )
    return p99 <= TARGET_POD


@contextlib.asynccontextmanager
async def watching(info: ClusterInfo) -> AsyncIterator[Seen]:
    """Watch Services and slices from a connection of its own."""
    seen = Seen()
    kube = await Kube.connect(Access(Path(info.kubeconfig)), telemetry=setup("bench"), health=Health("bench"))
    informers: list[Informer[Any]] = [
        Informer(kube, SERVICES, lambda item: str(item["metadata"]["uid"]), seen.service, NAMESPACE),
        Informer(kube, ENDPOINT_SLICES, ready_addresses, seen.slice, NAMESPACE),
    ]
    tasks = [asyncio.create_task(informer.run()) for informer in informers]
    try:
        for informer in informers:
            await informer.synced.wait()
        yield seen
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await kube.close()


def ours(info: ClusterInfo, api: Api, port: int) -> AbstractContextManager[psutil.Process]:
    """Run service_reflector; its circuit breaker lets all of them be removed at once."""
    state = close(State(), by="bench", now=time.time(), everything_for=86_400.0, limits=Limits())
    api.call("POST", NAMESPACES.path(), {"metadata": {"name": SYSTEM}})
    api.call("POST", CONFIGMAPS.path(SYSTEM), make_breakers(SERVICE_REFLECTOR, SYSTEM, {SERVICES.plural: state}, None))
    for kind in KINDS:
        api.call("POST", DEFINITIONS.path(), make_definition(kind))
    environment = {
        "TRELLIS_KUBECONFIG": str(info.kubeconfig),
        "TRELLIS_NATS_URL": info.nats_url,
        "TRELLIS_HEALTH_PORT": str(port),
    }
    return process([sys.executable, "-m", "service_reflector"], environment)


@contextlib.contextmanager
def peer(binary: str, info: ClusterInfo, api: Api) -> Iterator[psutil.Process]:
    """Run wasmcloud-operator, which creates its CRD."""
    environment = {"KUBECONFIG": str(info.kubeconfig), "RUST_LOG": "error"}
    with process([str(Path(binary).resolve())], environment) as running:
        # Nobody answers for the API that it registers: its Service is not there. Left alone that costs the API server.
        while not api.ok(PEER_REGISTRATION):
            time.sleep(PAUSE)
        api.call("DELETE", PEER_REGISTRATION)
        yield running


async def measure(
    binary: str, applications: int, info: ClusterInfo, server: NatsServer, port: int
) -> tuple[Figures, bool]:
    """Measure service_reflector, or wasmcloud-operator if its ``binary`` is given; pods if there are applications."""
    print("wasmcloud-operator:" if binary else "service_reflector:", flush=True)
    api = Api.of_kubeconfig(Path(info.kubeconfig))
    client = await nats.connect(server.url)
    wadm = Wadm(client)
    await wadm.start()
    try:
        with peer(binary, info, api) if binary else ours(info, api, port) as running:
            await until(lambda: api.ok(HOST_CONFIGS.path(NAMESPACE)), "groups are defined")
            async with watching(info) as seen:
                world = World(info, api, server, wadm, seen, running, None if binary else port)
                create_pod(api, FIRST, "first-host", 999)
                create_group(api, FIRST, server.port)
                await wadm.deploy(FIRST, "first")
                await until(lambda: "first" in seen.services and "first" in seen.slices, "the service works")
                await asyncio.sleep(2)
                figures = Figures(await one_by_one(world), *await many(world))
                good = await pods(world, applications) if applications else True
                print(f"  memory: {running.memory_info().rss / 2**20:.0f} MiB resident", flush=True)
    finally:
        await client.close()
    return figures, good


def run(binary: str, applications: int) -> tuple[Figures, bool]:
    """Measure once, on a control plane and a NATS that are new."""
    with (
        tempfile.TemporaryDirectory() as folder,
        owned_cluster() as info,
        NatsServer(Path(folder) / "nats") as server,
    ):
        return asyncio.run(measure(binary, applications, info, server, free_port()))


def compared(what: str, figure: Callable[[Figures], float], of: list[Figures], peers: list[Figures]) -> bool:
    """Print a figure beside the peer's; returns whether it is as small as it has to be."""
    ours_, theirs = (statistics.median(map(figure, found)) for found in (of, peers))
    ratio, allowed = ours_ / theirs, figure(ALLOWED)
    missed = "" if ratio <= allowed else "  MISSED"
    beside = f"{ours_ * 1000:.1f} ms, wasmcloud-operator {theirs * 1000:.1f} ms"
    print(f"{what}: {beside}, ratio {ratio:.2f}, allowed {allowed}{missed}")
    return ratio <= allowed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--applications", type=int, default=1000, help="of the part with pods (default 1000, 0: none)")
    parser.add_argument("--peer", metavar="BINARY", default="", help="wasmcloud-operator to measure beside it")
    parser.add_argument("--rounds", type=int, help=f"how often in turns ({ROUNDS} with --peer, else 1)")
    options = parser.parse_args()
    print(f"machine: {describe()}", flush=True)
    rounds = options.rounds or (ROUNDS if options.peer else 1)
    found, peers, good = [], [], True
    for left in reversed(range(rounds)):
        if options.peer:
            peers.append(run(options.peer, 0)[0])
        figures, good_ = run("", 0 if left else options.applications)
        found.append(figures)
        good = good and good_
    if not options.peer:
        peers = [RECORDED]
        print("wasmcloud-operator: as recorded once; give --peer BINARY (built from its public source) to measure it")
    good &= compared("manifest_published -> Service", lambda item: item.one, found, peers)
    good &= compared(f"{MANY} at once become Services", lambda item: item.many, found, peers)
    good &= compared(f"{MANY} at once are removed", lambda item: item.removed, found, peers)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
