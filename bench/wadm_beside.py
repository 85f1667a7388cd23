"""The load of Trellis on a real wadm: ``python bench/wadm_beside.py [--rounds N] [--own-core] [--peer BINARY]``.

In: nothing; for each measurement it starts a control plane, a NATS and a real wadm that are new. Out: figures and the
machine they were measured on, on stdout; exit status 1 if a target is missed. N applications are put, then all
deployed, then all undeployed, 16 requests at a time: by wadm alone, beside host-manager and service-reflector, beside
all services, and with ``--peer`` beside wasmcloud-operator (``reflect`` describes its binary). Each phase
begins when wadm has no requests. Counted are the requests to wadm that the measurement did not send itself. With
``--own-core``, wadm and its NATS have the first core and everything else has the rest, also for wadm alone: that
shows the load of requests and messages, without the load of other processes on the same cores. Without wadm, it
measures nothing and prints the reason.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nats
import orjson
from nats.aio.client import Client
from nats.aio.msg import Msg

from machine import describe
from provision import process
from reflect import peer
from reflect_world import NAMESPACE, application, create_group, until
from trellis.crds import kinds
from trellis.crds.kinds import KINDS, make_definition
from trellis.events.subjects import HOST_MANAGER, SERVICE_REFLECTOR
from trellis.kube.resources import APPLICATIONS, DEFINITIONS, HOST_CONFIGS, SERVICES
from trellis.services import SERVICES as REGISTRY
from trellis_dev.localcluster import ClusterInfo, lattice_servers, owned_cluster
from trellis_dev.localcluster.api import Api
from trellis_dev.localcluster.building import How
from trellis_dev.localcluster.nats import NatsServer
from trellis_dev.localcluster.progress import Lines

LATTICE = "bench"
AT_ONCE = 16
QUIET = 15.0
"""Seconds between two phases, and without a request to wadm before one."""
REQUESTED = "trellis-asks"
"""The application that application_manager asks about to see whether wadm answers; there is none of this name."""
RATIO_DEPLOYED, SECONDS_REMOVED, LISTS = 1.10, 4.0, 10
PEER = "wasmcloud-operator"
PAIR = (HOST_MANAGER, SERVICE_REFLECTOR)
ALL = tuple(name for name, service in REGISTRY.items() if service.installed and not service.only_if_named)


@dataclass(frozen=True)
class Phase:
    """Seconds, and by verb the requests to wadm beside the measurement's own."""

    seconds: float
    requests: Counter[str]


def manifest(name: str) -> dict[str, Any]:
    """Return a manifest that the real wadm takes: the component that its link names is in it."""
    found = application(name)
    traits = [{"type": "spreadscaler", "properties": {"instances": 1}}]
    image = {"image": f"example.com/{name}:v1"}
    component = {"name": "component", "type": "component", "properties": image, "traits": traits}
    found["spec"]["components"].append(component)
    return found


class Requests:
    """Counts the requests to wadm that are not the measurement's own."""

    def __init__(self) -> None:
        self.all: Counter[str] = Counter()
        self.last = 0.0

    async def take(self, message: Msg) -> None:
        """Count a request; whether wadm answers at all is asked every few seconds."""
        tokens = message.subject.split(".")
        self.all[tokens[4]] += 1
        if tokens[-1] != REQUESTED:
            self.last = time.monotonic()


class Wadm:
    """A client of wadm that counts the requests of other clients."""

    def __init__(self, client: Client, requests: Requests) -> None:
        self._client = client
        self._requests = requests

    async def ask(self, verb: str, name: str, body: object) -> None:
        """Ask wadm, and fail if it refuses."""
        subject = ".".join(part for part in ("wadm.api", LATTICE, "model", verb, name) if part)
        answer = await self._client.request(subject, orjson.dumps(body), timeout=60)
        if orjson.loads(answer.data)["result"] == "error":
            raise SystemExit(f"{subject}: {answer.data!r}")

    async def phase(self, names: Iterable[str], verb: str, item: Callable[[str], Awaitable[None]]) -> Phase:
        """Do something with each application, some at a time."""
        left, before, started = iter(names), Counter(self._requests.all), time.monotonic()

        async def work() -> None:
            nonlocal own
            for name in left:
                own += 1
                await item(name)

        own = 0
        async with asyncio.TaskGroup() as tasks:
            for _ in range(AT_ONCE):
                tasks.create_task(work())
        took = time.monotonic() - started
        await self.quiet()
        return Phase(took, self._requests.all - before - Counter({verb: own}))

    async def quiet(self) -> None:
        """Wait until wadm has no requests for a while."""
        started = time.monotonic()
        while True:
            until_ = min(max(started, self._requests.last) + QUIET, started + 8 * QUIET)  # some ask once in a while
            if (left := until_ - time.monotonic()) <= 0:
                return
            await asyncio.sleep(left)


@contextlib.contextmanager
def beside(what: str, info: ClusterInfo, api: Api, binary: str) -> Iterator[None]:
    """Run what is measured."""
    if what == PEER:
        with peer(binary, info, api):
            yield
        return
    environment = {
        "TRELLIS_KUBECONFIG": str(info.kubeconfig),
        "TRELLIS_NATS_URL": info.nats_url,
        "TRELLIS_HEALTH_PORT": "0",
        "TRELLIS_LOG_LEVEL": "warning",
    }
    with contextlib.ExitStack() as stack:
        for name in () if what == "alone" else PAIR if what == "pair" else ALL:
            stack.enter_context(process([sys.executable, "-m", name], environment))
        yield


async def measure(what: str, info: ClusterInfo, server: NatsServer, applications: int, binary: str) -> list[Phase]:
    """Measure the three phases: put, deploy, undeploy."""
    api = Api.of_kubeconfig(Path(info.kubeconfig))
    if what != PEER:
        for kind in (*KINDS, kinds.APPLICATIONS):
            api.call("POST", DEFINITIONS.path(), make_definition(kind))
    names = [f"many-{number}" for number in range(applications)]
    requests = Requests()
    client = await nats.connect(server.url)
    await client.subscribe("wadm.api.>", cb=requests.take)
    wadm = Wadm(client, requests)
    try:
        with beside(what, info, api, binary):
            await until(lambda: api.ok(HOST_CONFIGS.path(NAMESPACE)), "groups are defined")
            create_group(api, LATTICE, server.port)
            await wadm.quiet()
            put = await wadm.phase(names, "put", lambda name: wadm.ask("put", "", manifest(name)))
            if what == "all":
                await until(lambda: count(api, APPLICATIONS.path(NAMESPACE)) >= applications, "objects", 300)
                await wadm.quiet()
            deployed = await wadm.phase(names, "deploy", lambda name: wadm.ask("deploy", name, {"version": "v1"}))
            if what != "alone":
                await until(lambda: count(api, SERVICES.path(NAMESPACE)) >= applications, "Services", 300)
                await wadm.quiet()
            removed = await wadm.phase(names, "undeploy", lambda name: wadm.ask("undeploy", name, {}))
    finally:
        await client.close()
    for verb, phase in (("put", put), ("deployed", deployed), ("undeployed", removed)):
        print(f"  {applications} {verb}: {phase.seconds:.1f} s; other requests: {dict(phase.requests)}", flush=True)
    return [put, deployed, removed]


def count(api: Api, path: str) -> int:
    """Return how many objects there are."""
    status, answer = api.call("GET", path)
    return len(answer["items"]) if status == 200 else 0


@contextlib.contextmanager
def wadm_on(cores: set[int], rest: set[int]) -> Iterator[NatsServer]:
    """Run wadm and its NATS on these cores; processes that start later have the rest."""
    wadm = lattice_servers.lattice_servers(How(Lines(), threading.Event()))[lattice_servers.WADM]
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        os.sched_setaffinity(0, cores)
        server = stack.enter_context(NatsServer(Path(folder) / "nats"))
        command = [str(wadm), "--nats-server", f"127.0.0.1:{server.port}"]
        stack.enter_context(process(command, {"RUST_LOG": "error"}))
        os.sched_setaffinity(0, rest)
        yield server


def run(what: str, applications: int, binary: str, *, own_core: bool) -> list[Phase]:
    """Measure once, on servers that are new."""
    print(f"{what}:", flush=True)
    cores = os.sched_getaffinity(0)
    first = {min(cores)} if own_core else cores
    try:
        with wadm_on(first, cores - first or cores) as server, owned_cluster() as info:
            return asyncio.run(measure(what, info, server, applications, binary))
    finally:
        os.sched_setaffinity(0, cores)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--applications", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=1, help="in turns; medians count")
    parser.add_argument("--only", default="", help="alone, pair, all")
    parser.add_argument("--peer", metavar="BINARY", default="", help="wasmcloud-operator to measure beside it")
    parser.add_argument("--own-core", action="store_true", help="wadm and its NATS have a core of their own")
    options = parser.parse_args()
    print(f"machine: {describe()}", flush=True)
    if (reason := lattice_servers.missing()) is not None:
        print(f"not measured: {reason}")
        return 0
    kinds_ = ["alone", *([PEER] if options.peer else []), "pair", "all"]
    found: dict[str, list[list[Phase]]] = {what: [] for what in kinds_ if options.only in what}
    for _ in range(options.rounds):
        for what, phases in found.items():
            phases.append(run(what, options.applications, options.peer, own_core=options.own_core))
    return 0 if good(found) else 1


def good(found: dict[str, list[list[Phase]]]) -> bool:
    """Print the medians beside wadm alone and the targets; return whether all are met."""

    def median(what: str, phase: int) -> float:
        return statistics.median(phases[phase].seconds for phases in found[what])

    met = True
    for what, rounds in found.items():
        lists = max(phases[1].requests["list"] for phases in rounds)
        ratio = median(what, 1) / median("alone", 1) if "alone" in found else 1.0
        print(
            f"{what}: deployed in {median(what, 1):.1f} s ({ratio:.2f} of wadm alone), undeployed in "
            f"{median(what, 2):.1f} s, {lists} model lists while they are deployed"
        )
        if what == "all":
            missed = [
                f"{text}: MISSED"
                for text, ok in (
                    (f"deployed within {RATIO_DEPLOYED} of wadm alone", ratio <= RATIO_DEPLOYED),
                    (f"undeployed within {SECONDS_REMOVED} s", median(what, 2) <= SECONDS_REMOVED),
                    (f"at most {LISTS} lists", lists <= LISTS),
                )
                if not ok
            ]
            print("\n".join(missed) or "all targets are met")
            met = not missed
    return met


if __name__ == "__main__":
    sys.exit(main())
