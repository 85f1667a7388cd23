"""The rate of answered secrets: ``python bench/secret_requests.py [--peer BINARY] [--cases]``.

In: nothing; it starts control planes and NATS servers of its own, with secrets_backend in a process of its own, and
asks as hosts do: each request sealed with a fresh key, 16 at once, every answer opened and compared. Every read is
live. Out: figures and the machine they were measured on, on stdout; exit status 1 if a target is missed.
With ``--peer`` it does the same in the same run, in turns, each time on a control plane and a NATS that are new, and
the medians count. BINARY is ``secrets-kubernetes``, which ``go build`` makes of its public source. ``--cases`` sends
all cases of the protocol (``tests/support/secrets/secrets_conformance``) to both as well. The client is a program built
from the crates that hosts are made of; the share of the processor that it takes is printed.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import http
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from machine import describe
from trellis_dev.localcluster import ClusterInfo, owned_cluster
from trellis_dev.localcluster.api import Api
from trellis_dev.localcluster.nats import NatsServer

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
from support.secrets.secrets_client import Key, SecretsClient
from support.secrets.secrets_conformance.judging import judge
from support.secrets.secrets_conformance.table import CASES
from support.secrets.secrets_conformance.world import READER, World, policy_of
from support.secrets.secrets_server import Place, define_kinds, groups, until_served

AT_ONCE = 16
COUNT = 10_000
WARM = 1_000
SECRETS, ENTITIES = 50, 40
ROUNDS = 3
TARGET_RATE, TARGET_P99, TARGET_GROWTH = 400.0, 60.0, 5.0
TEAM, HOME, OUTSIDE = "team-a", "trellis-system", "outside"
RECORDED = "376 gets/s, p50 40.6 ms, p99 84.4 ms"


@dataclass(frozen=True)
class Figures:
    """Gets a second, milliseconds, MiB before and after all, cores in use by the server and by who asks."""

    rate: float
    p50: float
    p99: float
    before: float
    after: float
    cores: float
    asking: float

    def __str__(self) -> str:
        return (
            f"{self.rate:.0f} gets/s, p50 {self.p50:.1f} ms, p99 {self.p99:.1f} ms; memory {self.before:.1f} -> "
            f"{self.after:.1f} MiB over {COUNT} requests; it takes {self.cores:.2f} cores, who asks {self.asking:.2f}"
        )


@dataclass(frozen=True)
class Bench:
    """A control plane, a lattice's NATS and what is asked for."""

    info: ClusterInfo
    lattice: NatsServer
    bus: NatsServer
    world: World
    directory: Path


@contextlib.contextmanager
def bench() -> Iterator[Bench]:
    """Have all that a server needs, new."""
    with (
        tempfile.TemporaryDirectory() as folder,
        owned_cluster() as info,
        NatsServer(Path(folder) / "lattice") as lattice,
        NatsServer(Path(folder) / "bus") as bus,
        SecretsClient(lattice.url) as client,
    ):
        api = Api.of_kubeconfig(Path(info.kubeconfig))
        for namespace in (TEAM, HOME, OUTSIDE):
            api.call("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        define_kinds(api)
        world = World(client, api, TEAM, "kube", "app", OUTSIDE)
        world.prepare()
        for number in range(SECRETS):
            data = {"password": base64.b64encode(value_of(number).encode()).decode()}
            status, answer = api.call(
                "POST", f"/api/v1/namespaces/{TEAM}/secrets", {"metadata": {"name": f"load-{number}"}, "data": data}
            )
            assert status == http.HTTPStatus.CREATED, answer
        yield Bench(info, lattice, bus, world, Path(folder))


def value_of(number: int) -> str:
    return f"password-{number:04d}-" + "x" * 32


def requests(world: World) -> list[tuple[str, str]]:
    """Return requests of many components for many Secrets, and the value of each."""
    host = world.token("host")
    subjects = [world.client.make_key("component").public for _ in range(ENTITIES)]
    tokens = [world.client.make_token("component", world.account, subject) for subject in subjects]
    found = []
    for number in range(SECRETS * ENTITIES):
        context = {
            "entity_jwt": tokens[number % ENTITIES],
            "host_jwt": host,
            "application": {"name": f"app-{number % ENTITIES}", "policy": policy_of(TEAM, READER)},
        }
        secret = number % SECRETS
        requested = {"key": f"load-{secret}", "field": "password", "version": None, "context": context}
        found.append((json.dumps(requested), value_of(secret)))
    return found


@contextlib.contextmanager
def peer(binary: str, on: Bench, key: Key) -> Iterator[psutil.Process]:
    """Run the peer's server."""
    command = [str(Path(binary).resolve()), "-nats-url", on.lattice.url, "-backend-seed", key.seed]
    with (on.directory / "peer.log").open("ab") as log:
        process = subprocess.Popen(
            command, env={**os.environ, "KUBECONFIG": str(on.info.kubeconfig)}, stdout=log, stderr=log
        )
    try:
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(30)


@contextlib.contextmanager
def ours(on: Bench, replicas: int = 1) -> Iterator[list[psutil.Process]]:
    """Run secrets_backend."""
    place = Place(on.info, on.bus, HOME, on.directory)
    with contextlib.ExitStack() as stack:
        stack.enter_context(groups(on.world.api, "bench", on.lattice, TEAM, "default"))
        servers = [stack.enter_context(place.replica()) for _ in range(replicas)]
        yield [psutil.Process(server.process.pid) for server in servers]


def measure(on: Bench, running: list[psutil.Process]) -> Figures:
    """Ask for many."""
    world = on.world
    world.server_xkey = until_served(world.client, world.subject("server_xkey"))
    requested = requests(world)

    def load(count: int) -> tuple[list[float], float]:
        done = world.client.load(world.subject("get"), world.server_xkey, requested, at_once=AT_ONCE, count=count)
        if done["wrong"]:
            raise SystemExit(f"not all were given: {done['wrong']}")
        return [took / 1e6 for took in done["took"]], done["elapsed"] / 1e9

    load(WARM)
    before, spent, asking = memory(running), processor(running), world.client.processor_seconds()
    took, elapsed = load(COUNT)
    spent, asking = processor(running) - spent, world.client.processor_seconds() - asking
    took.sort()
    p50, p99 = statistics.median(took), took[int(len(took) * 0.99)]
    return Figures(COUNT / elapsed, p50, p99, before, memory(running), spent / elapsed, asking / elapsed)


def memory(running: list[psutil.Process]) -> float:
    return sum(item.memory_info().rss for item in running) / 2**20


def processor(running: list[psutil.Process]) -> float:
    return sum(sum(item.cpu_times()[:2]) for item in running)


def of_ours(replicas: int = 1) -> Figures:
    with bench() as on, ours(on, replicas) as running:
        return measure(on, running)


def of_peer(binary: str) -> Figures:
    with bench() as on, peer(binary, on, on.world.client.make_key("curve")) as running:
        return measure(on, [running])


def cases_of_ours() -> None:
    with bench() as on, ours(on):
        on.world.server_xkey = until_served(on.world.client, on.world.subject("server_xkey"))
        verdicts = [judge(on.world, case) for case in CASES]
        failed = [verdict for verdict in verdicts if not verdict.good]
        print(f"cases, secrets_backend: {len(failed)} of {len(verdicts)} failed", flush=True)
        for verdict in failed:
            print(f"  {verdict}")


def cases_of_peer(binary: str) -> None:
    """Send it all cases of the protocol; restart it after a case that ended it."""
    requested = [case for case in CASES if not case.ours]
    failed, ended = [], 0
    with bench() as on, contextlib.ExitStack() as stack:
        key, world = on.world.client.make_key("curve"), on.world
        stack.enter_context(peer(binary, on, key))
        world.server_xkey = until_served(world.client, world.subject("server_xkey"))
        for case in requested:
            verdict = judge(world, case)
            if not verdict.alive:
                ended += 1
                stack.enter_context(peer(binary, on, key))
                until_served(world.client, world.subject("server_xkey"))
            if not verdict.good:
                failed.append(verdict)
    print(f"cases, secrets-kubernetes: {len(failed)} of {len(requested)} failed, {ended} of them ended its process")
    for verdict in failed:
        print(f"  {verdict}", flush=True)


def compared(found: list[Figures], peers: list[Figures]) -> bool:
    """Print the medians, and whether they are as good as they have to be."""
    rate, p99 = (statistics.median(getattr(item, name) for item in found) for name in ("rate", "p99"))
    growth = max(item.after - item.before for item in found)
    print(
        f"secrets_backend: {rate:.0f} gets/s (allowed {TARGET_RATE:.0f}), p99 {p99:.1f} ms (allowed {TARGET_P99:.0f})"
    )
    print(f"  memory over {COUNT} requests: {growth:+.1f} MiB (allowed {TARGET_GROWTH:+.0f})")
    if peers:
        theirs = [statistics.median(getattr(item, name) for item in peers) for name in ("rate", "p50", "p99")]
        print(f"secrets-kubernetes: {theirs[0]:.0f} gets/s, p50 {theirs[1]:.1f} ms, p99 {theirs[2]:.1f} ms")
    else:
        print(f"secrets-kubernetes, as recorded once: {RECORDED}; give --peer BINARY to measure it")
    good = rate >= TARGET_RATE and p99 <= TARGET_P99 and growth <= TARGET_GROWTH
    print("all targets met" if good else "MISSED")
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", metavar="BINARY", default="", help="secrets-kubernetes to measure beside it")
    parser.add_argument("--rounds", type=int, help=f"how often in turns ({ROUNDS} with --peer, else 1)")
    parser.add_argument("--cases", action="store_true", help="send all cases of the protocol, too")
    options = parser.parse_args()
    print(f"machine: {describe()}", flush=True)
    found, peers = [], []
    for _ in range(options.rounds or (ROUNDS if options.peer else 1)):
        if options.peer:
            peers.append(of_peer(options.peer))
            print(f"secrets-kubernetes: {peers[-1]}", flush=True)
        found.append(of_ours())
        print(f"secrets_backend: {found[-1]}", flush=True)
    print(f"secrets_backend, two replicas: {of_ours(replicas=2)}; no request failed", flush=True)
    if options.cases:
        cases_of_ours()
        if options.peer:
            cases_of_peer(options.peer)
    return 0 if compared(found, peers) else 1


if __name__ == "__main__":
    sys.exit(main())
