"""A ring of controllers, each passing a nonce on.

``python bench/controllers/ring.py [--controllers N] [--distinct] [MODE…]``

In: nothing; it starts a control plane of its own. Out: for each mode how long it takes until all work, what all of them
hold in memory while nothing happens, and how long a nonce takes from one ConfigMap to the next, on stdout with the
machine; exit status 1 if a target is missed. It is the test of the paper on wasm-operator (each controller watches one
resource and writes the nonce of the next one). Modes: ``suspended`` (each instance is suspended after its call),
``resident`` (none ever is), ``native`` (a process each, with client-go; left out, with a word, without Go).
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import http
import itertools
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[1]))

import psutil

from machine import describe
from provision import free_port, http_ready, process
from reflect_world import until
from trellis.crds.kinds import KINDS, make_definition
from trellis.kube.access import Access
from trellis.kube.client import Kube
from trellis.kube.informer import Change, Informer
from trellis.kube.resources import CONFIGMAPS, DEFINITIONS, NAMESPACES
from trellis.telemetry import setup
from trellis.telemetry.health import Health
from trellis_dev.localcluster import ClusterInfo, owned_cluster
from trellis_dev.localcluster.api import Api
from trellis_dev.localcluster.errors import ToolError
from trellis_dev.localcluster.gobuild import Go

ROOT: Final = Path(__file__).parents[2]
MODULE: Final = ROOT / "deploy" / "examples" / "controllers" / "ring.wasm"
MODES: Final = ("suspended", "resident", "native")
LAPS: Final = 3
WAIT_SECONDS: Final = 600.0
QUIET_SECONDS: Final = 40.0
MIB: Final = 2**20
TARGET_IDLE_MIB: Final = 150.0
"""Of the whole process, with 1,000 suspended controllers."""
TARGET_HOP: Final = 0.020
"""Median, woken from disk."""

Manifest = dict[str, Any]


@dataclass
class Seen:
    """A watch of ConfigMaps: by name and nonce the time at which each came."""

    at: dict[tuple[str, str, str], float] = field(default_factory=dict)

    def take(self, change: Change[str]) -> None:
        """Note when a nonce came."""
        if change.new:
            namespace, _, name = change.key.partition("/")
            self.at.setdefault((namespace, name, change.new), time.monotonic())


@dataclass(frozen=True)
class Ring:
    """A ring in a namespace of its own."""

    info: ClusterInfo
    api: Api
    seen: Seen
    namespace: str
    size: int
    distinct: bool = False
    """Each member has a module of its own: the same code, another checksum."""

    def member(self, number: int) -> str:
        """Name of a member; after the last comes the first."""
        return f"ring-{number % self.size}"


def post(api: Api, path: str, manifest: Manifest) -> None:
    status, answer = api.call("POST", path, manifest)
    # What is there already was made by a request whose answer got lost.
    if status not in {http.HTTPStatus.CREATED, http.HTTPStatus.CONFLICT}:
        raise SystemExit(f"{path}: {status} {answer}")


def prepare(ring: Ring) -> None:
    """Make the ring's namespace, its ConfigMaps, and the account of its members."""
    api, namespace = ring.api, ring.namespace
    post(api, NAMESPACES.path(), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    base = f"/api/v1/namespaces/{namespace}"
    permissions = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    post(api, f"{base}/serviceaccounts", {"metadata": {"name": "ring"}})
    verbs = ["get", "list", "watch", "create", "patch"]
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs}]
    post(api, f"{permissions}/roles", {"metadata": {"name": "ring"}, "rules": rules})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "ring"}
    subjects = [{"kind": "ServiceAccount", "name": "ring", "namespace": namespace}]
    post(api, f"{permissions}/rolebindings", {"metadata": {"name": "ring"}, "roleRef": role, "subjects": subjects})
    for number in range(ring.size if ring.distinct else 1):
        content = MODULE.read_bytes() + custom_section(str(number).encode())
        binary = {"ring.wasm": base64.b64encode(content).decode()}
        post(api, f"{base}/configmaps", {"metadata": {"name": f"module-{number}"}, "binaryData": binary})
    for number in range(ring.size):
        metadata = {"name": ring.member(number), "labels": {"ring": str(number)}}
        post(api, f"{base}/configmaps", {"metadata": metadata})


def custom_section(content: bytes) -> bytes:
    """Return a section that means nothing: WebAssembly core specification 5.5.4. For less than 100 bytes."""
    body = b"\x05bench" + content
    return bytes([0, len(body)]) + body


def controller(ring: Ring, number: int, idle: Mapping[str, str]) -> Manifest:
    """Return a member as a WasmController."""
    return {
        "apiVersion": "trellis.dev/v1alpha1",
        "kind": "WasmController",
        "metadata": {"name": ring.member(number)},
        "spec": {
            "module": {
                "configMap": {"name": f"module-{number if ring.distinct else 0}", "key": "ring.wasm"},
            },
            "serviceAccountName": "ring",
            "watches": [
                {
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "labelSelector": {"matchLabels": {"ring": str(number)}},
                }
            ],
            "config": {"next": ring.member(number + 1)},
            "idle": dict(idle),
        },
    }


@contextlib.contextmanager
def hosted(ring: Ring, data: Path, port: int) -> Iterator[list[psutil.Process]]:
    """Run controller_host."""
    environment = {
        "TRELLIS_KUBECONFIG": ring.info.kubeconfig,
        "TRELLIS_NATS_URL": ring.info.nats_url,
        "TRELLIS_CONTROLLER_RESOURCES": "v1/ConfigMap",
        "TRELLIS_CONTROLLER_DATA_DIR": str(data),
        "TRELLIS_CONTROLLER_PINNED_PER_NAMESPACE": "1099511627776",
        "TRELLIS_HEALTH_PORT": str(port),
        "TRELLIS_NAMESPACE": ring.namespace,
        "TRELLIS_LOG_LEVEL": "warning",
    }
    with process([sys.executable, "-m", "controller_host"], environment) as started:
        yield [started]


@contextlib.contextmanager
def native(ring: Ring, program: Path) -> Iterator[list[psutil.Process]]:
    """Run a process for each member."""
    started = [
        subprocess.Popen(
            [str(program), ring.info.kubeconfig, ring.namespace, str(number), ring.member(number + 1)],
            env={"PATH": os.environ["PATH"]},
        )
        for number in range(ring.size)
    ]
    try:
        yield [psutil.Process(item.pid) for item in started]
    finally:
        for item in started:
            item.kill()
        for item in started:
            item.wait()


def memory(processes: list[psutil.Process]) -> tuple[float, float]:
    """Return MiB in all: resident memory, and their share of it (pages that several map are divided)."""
    infos = [item.memory_full_info() for item in processes]
    return sum(info.rss for info in infos) / MIB, sum(info.pss for info in infos) / MIB


def processor(processes: list[psutil.Process]) -> float:
    """Return seconds of processor time so far."""
    return sum(sum(item.cpu_times()[:2]) for item in processes)


async def lap(ring: Ring, nonce: str) -> list[float]:
    """Send a nonce around; returns how long it took from each member to the next."""
    path = CONFIGMAPS.path(ring.namespace, ring.member(0))
    await asyncio.to_thread(ring.api.call, "PATCH", path, {"data": {"nonce": nonce}})
    last = (ring.namespace, ring.member(ring.size - 1), nonce)
    await until(lambda: last in ring.seen.at, f"nonce {nonce} at the last member", WAIT_SECONDS)
    at = [ring.seen.at[ring.namespace, ring.member(number), nonce] for number in range(ring.size)]
    return [later - earlier for earlier, later in itertools.pairwise(at)]


async def measure(
    ring: Ring, mode: str, processes: list[psutil.Process], since: float, idle: Callable[[], Awaitable[None]]
) -> bool:
    """Send nonces around and print the durations; return whether the targets are met."""
    await lap(ring, "1")
    started = time.monotonic() - since
    await idle()
    used = processor(processes)
    await asyncio.sleep(QUIET_SECONDS)
    used = processor(processes) - used
    resident, own = memory(processes)
    hops = [hop for number in range(LAPS) for hop in await lap(ring, str(number + 2))]
    p50, p99 = statistics.median(hops), sorted(hops)[int(len(hops) * 0.99)]
    members = f"{ring.size} controllers{' of as many modules' if ring.distinct else ''}"
    print(
        f"{mode}, {members}: work after {started:.1f} s; idle {own:.0f} MiB ({resident:.0f} MiB resident), "
        f"{used / QUIET_SECONDS * 100:.1f} % of a processor; from one to the next p50 {p50 * 1000:.1f} ms, "
        f"p99 {p99 * 1000:.1f} ms",
        flush=True,
    )
    return mode != "suspended" or (p50 <= TARGET_HOP and (ring.size < 1000 or resident <= TARGET_IDLE_MIB))


async def run_hosted(ring: Ring, mode: str, data: Path) -> bool:
    """Measure controller_host with all members suspended after each call, or none ever."""
    idle = {"suspendAfter": "0s"} if mode == "suspended" else {"policy": "Pinned"}
    path = f"/apis/trellis.dev/v1alpha1/namespaces/{ring.namespace}/wasmcontrollers"
    for number in range(ring.size):
        await asyncio.to_thread(post, ring.api, path, controller(ring, number, idle))
    port = free_port()
    started = time.monotonic()
    with hosted(ring, data, port) as processes:
        await http_ready(port)

        async def quiet() -> None:
            await asyncio.sleep(QUIET_SECONDS / 2)

        return await measure(ring, mode, processes, started, quiet)


async def run_native(ring: Ring, program: Path) -> bool:
    """Measure a process for each member."""
    started = time.monotonic()
    with native(ring, program) as processes:

        async def quiet() -> None:
            await asyncio.sleep(QUIET_SECONDS / 2)

        return await measure(ring, "native", processes, started, quiet)


def build_native(folder: Path) -> Path | None:
    """Compile the native member; None, with a word, where that cannot be."""
    go = shutil.which("go")
    if go is None:
        print("native: left out, no Go on the PATH")
        return None
    module = folder / "clientgo"
    shutil.copytree(ROOT / "bench" / "peers" / "clientgo", module)
    program = folder / "ring"
    try:
        Go(Path(go), module, folder / "go.log", threading.Event()).run(
            ["build", "-mod=readonly", "-trimpath", "-ldflags", "-s -w", "-o", str(program), "./ring"]
        )
    except ToolError as error:
        print(f"native: left out, {error}")
        return None
    return program


async def looking(info: ClusterInfo, seen: Seen, work: Callable[[], Awaitable[bool]]) -> bool:
    """Do the work while another client's watch notes what it sees."""
    telemetry = setup("bench", otlp_endpoint=None)
    health = Health("bench")
    kube = await Kube.connect(Access(Path(info.kubeconfig), None), telemetry=telemetry, health=health)

    def nonce(manifest: Manifest) -> str:
        return str((manifest.get("data") or {}).get("nonce", ""))

    informer = Informer[str](kube, CONFIGMAPS, nonce, on_change=seen.take)
    task = asyncio.create_task(informer.run())
    try:
        await informer.synced.wait()
        return await work()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await kube.close()


async def run(info: ClusterInfo, options: argparse.Namespace, folder: Path) -> bool:
    """Measure all modes, each in a namespace of its own."""
    modes = options.modes or list(MODES)
    api = Api.of_kubeconfig(Path(info.kubeconfig))
    for kind in KINDS:
        api.call("POST", DEFINITIONS.path(), make_definition(kind))
    seen = Seen()
    program = build_native(folder) if "native" in modes else None

    async def all_modes() -> bool:
        good = True
        for mode in modes:
            ring = Ring(info, api, seen, f"ring-{mode}", options.controllers, options.distinct)
            if mode == "native" and program is None:
                continue
            await asyncio.to_thread(prepare, ring)
            if mode == "native" and program is not None:
                good = await run_native(ring, program) and good
            else:
                good = await run_hosted(ring, mode, folder / mode) and good
                # What this mode made must not be hosted in the next.
                path = f"/apis/trellis.dev/v1alpha1/namespaces/{ring.namespace}/wasmcontrollers"
                await asyncio.to_thread(api.call, "DELETE", path)
        return good

    return await looking(info, seen, all_modes)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modes", nargs="*", choices=[*MODES, []], metavar="MODE", help="of " + ", ".join(MODES))
    parser.add_argument("--controllers", type=int, default=100, help="how many (default 100)")
    parser.add_argument("--distinct", action="store_true", help="each has a module of its own")
    options = parser.parse_args()
    print(f"machine: {describe()}", flush=True)
    with tempfile.TemporaryDirectory() as folder, owned_cluster() as info:
        good = asyncio.run(run(info, options, Path(folder)))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
