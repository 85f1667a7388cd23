"""The speed at which kubectl and wash agree on applications: ``python bench/applications.py [--applications N]``.

In: nothing; it starts a control plane and a real wadm of its own, with application_manager in a process of its own.
Out: figures and the machine they were measured on, on stdout; exit status 1 if a target is missed. Measured are
`kubectl apply` until wadm has stored and deployed it, and until the object shows it; `wash app deploy`, from wadm's
answer until another client's watch shows the object with it; the start with many applications on both sides, two of
them changed and deleted with wash meanwhile; and what is written in a time in which nothing changes, by the API
server's audit log. Without wadm, it measures nothing and prints the reason.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nats
import orjson
import psutil

from machine import describe
from provision import process
from reflect_world import NAMESPACE, create, create_group, until
from trellis.crds import kinds
from trellis.crds.kinds import KINDS, make_definition
from trellis.kube.access import Access
from trellis.kube.client import Kube
from trellis.kube.informer import Change, Informer
from trellis.kube.resources import APPLICATIONS, DEFINITIONS
from trellis.lattice.connection.address import LatticeAddress, NatsAddress
from trellis.lattice.connection.lattice_connection import LatticeConnection, NatsUnavailableError
from trellis.lattice.storage.bucket import Bucket
from trellis.lattice.storage.lattice_store import LatticeStore
from trellis.lattice.wadm.probe import WadmProbe
from trellis.telemetry import setup
from trellis.telemetry.health import Health
from trellis_dev.localcluster import ClusterInfo, lattice_servers, owned_cluster
from trellis_dev.localcluster.api import Api
from trellis_dev.localcluster.building import How
from trellis_dev.localcluster.progress import Lines

LATTICE = "bench"
SINGLE = 60
PAUSE = 0.1
BUCKET = "wadm_manifests"
READS = {"get", "list", "watch"}
QUIET_SECONDS = 60.0
TARGET_WASH_P99, TARGET_START = 0.5, 10.0

Manifest = dict[str, Any]


@dataclass
class Seen:
    """The watch of another client: by name the base of an object, "" before there is one."""

    bases: dict[str, str] = field(default_factory=dict)

    def take(self, change: Change[str]) -> None:
        """Note an object."""
        name = change.key.partition("/")[2]
        if change.new is None:
            self.bases.pop(name, None)
        else:
            self.bases[name] = change.new


@dataclass(frozen=True)
class World:
    """A control plane, a lattice, and what is seen of both without application_manager."""

    info: ClusterInfo
    api: Api
    store: LatticeStore
    seen: Seen


def base_of(manifest: Manifest) -> str:
    """Return what both sides last had of an object, as ``version/deployed``, "" if that was never recorded."""
    synced = (manifest.get("status") or {}).get("synced")
    return f"{synced['wadmVersion']}/{bool(synced.get('deployed'))}" if synced else ""


def application(name: str, version: str) -> Manifest:
    """Return a manifest of the common form, for hosts that do not exist."""
    component = {
        "name": "component",
        "type": "component",
        "properties": {"image": f"example.com/{name}:{version}"},
        "traits": [{"type": "spreadscaler", "properties": {"instances": 1}}],
    }
    server = {
        "name": "server",
        "type": "capability",
        "properties": {"image": "example.com/http-server:0.27.0"},
        "traits": [{"type": "daemonscaler", "properties": {"instances": 1}}],
    }
    metadata = {"name": name, "annotations": {"version": version}}
    spec = {"components": [component, server]}
    return {"apiVersion": "core.oam.dev/v1beta1", "kind": "Application", "metadata": metadata, "spec": spec}


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def duration_text(what: str, took: list[float]) -> float:
    """Print a figure; returns the 99th percentile."""
    p50, p99 = statistics.median(took), percentile(took, 0.99)
    print(f"{what}: p50 {p50 * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms, {len(took)} applications", flush=True)
    return p99


def deployed(world: World, name: str, version: str) -> bool:
    found = world.store.find(name)
    return found is not None and found.deployed == version


async def apply_with_kubectl(world: World) -> None:
    acknowledged, recorded = [], []
    for number in range(SINGLE):
        name = f"kubectl-{number}"
        started = time.monotonic()
        path = f"{APPLICATIONS.path(NAMESPACE)}?fieldManager=kubectl"
        await asyncio.to_thread(create, world.api, path, application(name, "v1"))
        await until(lambda name=name: deployed(world, name, "v1"), name)  # type: ignore[misc]
        acknowledged.append(time.monotonic() - started)
        await until(lambda name=name: world.seen.bases.get(name) == "v1/True", name)  # type: ignore[misc]
        recorded.append(time.monotonic() - started)
        await asyncio.sleep(PAUSE)
    duration_text("kubectl apply -> stored and deployed in wadm", acknowledged)
    duration_text("kubectl apply -> the object shows it", recorded)


async def deploy_with_wash(world: World) -> bool:
    took = []
    for number in range(SINGLE):
        name = f"wash-{number}"
        await world.store.wadm.put(application(name, "v1"))
        await until(lambda name=name: world.seen.bases.get(name) == "v1/False", name)  # type: ignore[misc]
        started = time.monotonic()
        await world.store.wadm.deploy(name, "v1")
        await until(lambda name=name: world.seen.bases.get(name) == "v1/True", name)  # type: ignore[misc]
        took.append(time.monotonic() - started)
        await asyncio.sleep(PAUSE)
    return duration_text("wash app deploy -> the object shows it", took) <= TARGET_WASH_P99


async def seed(info: ClusterInfo, names: list[str]) -> None:
    """Have wadm hold applications, as it writes them: its own `put` reads all that there is each time."""
    client = await nats.connect(info.nats_url)
    try:
        bucket = await client.jetstream().key_value(BUCKET)
        for name in names:
            stored = {"manifests": {"v1": application(name, "v1")}, "deployed_version": "v1"}
            await bucket.put(f"{LATTICE}-{name}", orjson.dumps(stored))
        former = orjson.loads((await bucket.get(LATTICE)).value or b"[]")
        await bucket.put(LATTICE, orjson.dumps(sorted({*former, *names})))
    finally:
        await client.close()


async def show_many(world: World, names: list[str]) -> None:
    started = time.monotonic()
    await seed(world.info, names)
    stored = time.monotonic() - started
    await until(lambda: all(world.seen.bases.get(name) == "v1/True" for name in names), "all objects exist", 600)
    took = time.monotonic() - started
    print(f"{len(names)} applications stored in {stored:.1f} s: all objects after {took:.1f} s", flush=True)


async def start_with_many(world: World, names: list[str]) -> bool:
    """Start the service with a change and a deletion to be found among applications that are equal."""
    changed, removed = names[len(names) // 2], names[-1]
    await world.store.wadm.put(application(changed, "v2"))
    await world.store.wadm.deploy(changed, "v2")
    await world.store.wadm.delete(removed)
    started = time.monotonic()
    with manager(world.info) as running:
        await until(lambda: world.seen.bases.get(changed) == "v2/True" and removed not in world.seen.bases, "compared")
        took, memory = time.monotonic() - started, running.memory_info().rss / 2**20
        print(f"start of the process -> {len(names)} applications compared: {took:.1f} s, {memory:.0f} MiB resident")
        return await stays_quiet(world.info) and took <= TARGET_START


def written_so_far(info: ClusterInfo) -> int:
    """Return where the audit log ends."""
    assert info.audit_log is not None
    return Path(info.audit_log).stat().st_size


def written(info: ClusterInfo, since: int) -> Counter[str]:
    """Return what application_manager wrote since a place in the audit log, by resource."""
    assert info.audit_log is not None
    with Path(info.audit_log).open("rb") as log:
        log.seek(since)
        records = [orjson.loads(line) for line in log if line.endswith(b"\n")]
    return Counter(
        str(record["objectRef"]["resource"])
        for record in records
        if "trellis-application-manager" in str(record.get("userAgent", "")) and record["verb"] not in READS
    )


async def stays_quiet(info: ClusterInfo) -> bool:
    await asyncio.sleep(5)  # what follows the last change is written, too
    offset = written_so_far(info)
    await asyncio.sleep(QUIET_SECONDS)
    quiet = written(info, offset)
    print(f"written in {QUIET_SECONDS:.0f} s in which nothing changed: {dict(quiet)}", flush=True)
    return set(quiet) <= {"leases"}


def manager(info: ClusterInfo) -> contextlib.AbstractContextManager[psutil.Process]:
    """Run application_manager."""
    environment = {"TRELLIS_KUBECONFIG": info.kubeconfig, "TRELLIS_NATS_URL": info.nats_url}
    environment |= {"TRELLIS_HEALTH_PORT": "0", "TRELLIS_LOG_LEVEL": "warning"}
    return process([sys.executable, "-m", "application_manager"], environment)


@contextlib.asynccontextmanager
async def looking(info: ClusterInfo, api: Api) -> AsyncIterator[World]:
    """See both sides by connections of their own."""
    seen = Seen()
    address = LatticeAddress(NatsAddress(info.nats_url), LATTICE)
    link = LatticeConnection(address.nats, "bench", lambda: store.connection_changed())  # noqa: PLW0108 (it is made below)
    bucket = Bucket(link, "bench")
    store = LatticeStore(address, link, bucket, WadmProbe(link), lambda _: None)
    kube = await Kube.connect(Access(Path(info.kubeconfig)), telemetry=setup("bench"), health=Health("bench"))
    informer: Informer[Any] = Informer(kube, APPLICATIONS, base_of, seen.take, NAMESPACE)
    tasks = [asyncio.create_task(item) for item in (link.run(), bucket.run(), store.run(), informer.run())]
    try:
        await informer.synced.wait()
        await until(lambda: store.synced_at is not None, "wadm's storage is read")
        await answers(store)
        yield World(info, api, store, seen)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await kube.close()


async def answers(store: LatticeStore) -> None:
    """Wait until wadm answers."""
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(NatsUnavailableError):
                await store.wadm.models()
                return
            await asyncio.sleep(PAUSE)


async def measure(info: ClusterInfo, applications: int) -> bool:
    api = Api.of_kubeconfig(Path(info.kubeconfig))
    for kind in (*KINDS, kinds.APPLICATIONS):
        api.call("POST", DEFINITIONS.path(), make_definition(kind))
    await until(lambda: api.ok(APPLICATIONS.path()), "the kind is served")
    create_group(api, LATTICE, int(info.nats_url.rpartition(":")[2]))
    async with looking(info, api) as world:
        names = [f"many-{number}" for number in range(applications)]
        with manager(info):
            await world.store.wadm.put(application("first", "v1"))
            await until(lambda: "first" in world.seen.bases, "the service works")
            await apply_with_kubectl(world)
            good = await deploy_with_wash(world)
            await show_many(world, names)
        return await start_with_many(world, names) and good


@contextlib.contextmanager
def wadm(info: ClusterInfo) -> Iterator[None]:
    """Run wadm on the cluster's NATS."""
    programs = lattice_servers.lattice_servers(How(Lines(), threading.Event()))
    server = info.nats_url.partition("://")[2]
    with process([str(programs[lattice_servers.WADM]), "--nats-server", server], {"RUST_LOG": "error"}):
        yield


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--applications", type=int, default=1000, help="how many at the start (default 1000)")
    options = parser.parse_args()
    print(f"machine: {describe()}", flush=True)
    if (reason := lattice_servers.missing()) is not None:
        print(f"not measured: {reason}")
        return 0
    with owned_cluster(audit=True) as info, wadm(info):
        good = asyncio.run(measure(info, options.applications))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
