"""The time in which a host of controllers starts: ``python bench/controllers/start.py [--controllers N]``.

In: nothing; it starts a control plane of its own. Out: how long N controllers take until each has run once and is
suspended, and until its status shows it; how long the next process takes until it has all of them and nothing is left
to do, with what it holds, and how often each of both wrote a status, on stdout with the machine; exit status 1 if a
target is missed. The controllers are the example ``ring``, of one module
below the platform's directory, each with a ConfigMap that has nothing to pass on.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import shutil
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[1]))

import psutil
from ring import MIB, MODULE, Ring, Seen, controller, memory, post, prepare, processor

from machine import describe
from provision import free_port, http_ready, process
from trellis.crds.kinds import KINDS, make_definition
from trellis.kube.resources import DEFINITIONS, WASM_CONTROLLERS
from trellis_dev.localcluster import ClusterInfo, owned_cluster
from trellis_dev.localcluster.api import Api

NAMESPACE: Final = "start"
WAIT_SECONDS: Final = 3600.0
QUIET_SECONDS: Final = 20.0
FIGURES_SECONDS: Final = 60.0
"""After which figures of a status are written."""
CREATORS: Final = 8
LOOK_SECONDS: Final = 0.5
TARGET_SECONDS: Final = 30.0
"""For 10,000."""


def figure(port: int, name: str, label: str = "") -> float:
    """Return a metric of the process, the sum of its series with this label."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            text = answer.read().decode()
    except OSError:
        return -1.0
    found = [line.rpartition(" ") for line in text.splitlines() if line.startswith(name) and label in line]
    return sum(float(value) for series, _, value in found if series.partition("{")[0] == name)


def create(ring: Ring) -> None:
    """Create the controllers."""
    module = {"path": MODULE.name, "sha256": hashlib.sha256(MODULE.read_bytes()).hexdigest()}
    path = WASM_CONTROLLERS.path(ring.namespace)

    def one(number: int) -> None:
        manifest: dict[str, Any] = controller(ring, number, {"suspendAfter": "0s"})
        post(ring.api, path, manifest | {"spec": manifest["spec"] | {"module": module}})

    with ThreadPoolExecutor(CREATORS) as pool:
        list(pool.map(one, range(ring.size)))


@asynccontextmanager
async def hosted(ring: Ring, folder: Path, port: int) -> AsyncIterator[psutil.Process]:
    """Run the service."""
    environment = {
        "TRELLIS_KUBECONFIG": ring.info.kubeconfig,
        "TRELLIS_NATS_URL": ring.info.nats_url,
        "TRELLIS_CONTROLLER_RESOURCES": "v1/ConfigMap",
        "TRELLIS_CONTROLLER_DATA_DIR": str(folder / "data"),
        "TRELLIS_CONTROLLER_MODULES_DIR": str(folder / "modules"),
        "TRELLIS_HEALTH_PORT": str(port),
        "TRELLIS_LOG_LEVEL": "warning",
    }
    with process([sys.executable, "-m", "controller_host"], environment) as started:
        yield started


async def all_on_disk(ring: Ring, port: int) -> None:
    """Wait until every controller is suspended and none waits for anything."""
    deadline = time.monotonic() + WAIT_SECONDS
    while (
        figure(port, "trellis_controllers", 'state="Suspended"') != ring.size
        or figure(port, "trellis_queue_depth", 'queue="controllers"') != 0
    ):
        if time.monotonic() > deadline:
            raise SystemExit(f"not within {WAIT_SECONDS:.0f} s: all controllers are on disk")
        await asyncio.sleep(LOOK_SECONDS)


def writes(port: int) -> float:
    """Return how often the process wrote a status."""
    return figure(
        port, "trellis_kube_requests_total", 'resource="wasmcontrollers",service="controller_host",verb="PATCH"'
    )


async def all_reported(ring: Ring, port: int) -> None:
    """Wait until the status of every controller was written."""
    deadline = time.monotonic() + WAIT_SECONDS
    while writes(port) < ring.size:
        if time.monotonic() > deadline:
            raise SystemExit(f"not within {WAIT_SECONDS:.0f} s: all statuses are written")
        await asyncio.sleep(LOOK_SECONDS)


def ready(ring: Ring) -> int:
    """Return how many controllers are ready, by their statuses."""
    found, after = 0, ""
    while True:
        page = ring.api.call("GET", f"{WASM_CONTROLLERS.path(ring.namespace)}?limit=500&continue={after}")[1]
        for item in page["items"]:
            conditions = item.get("status", {}).get("conditions", ())
            found += any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
        after = page["metadata"].get("continue", "")
        if not after:
            return found


async def measure(info: ClusterInfo, size: int, folder: Path) -> bool:
    """Start twice and print the durations; return whether the target is met."""
    api = Api.of_kubeconfig(Path(info.kubeconfig))
    for kind in KINDS:
        api.call("POST", DEFINITIONS.path(), make_definition(kind))
    ring = Ring(info, api, Seen(), NAMESPACE, size)
    await asyncio.to_thread(prepare, ring)
    await asyncio.to_thread(create, ring)
    (folder / "modules").mkdir()
    shutil.copy(MODULE, folder / "modules")
    port = free_port()
    start = time.monotonic()
    async with hosted(ring, folder, port):
        await http_ready(port)
        await all_on_disk(ring, port)
        first = time.monotonic() - start
        await all_reported(ring, port)
        reported = time.monotonic() - start
        await asyncio.sleep(FIGURES_SECONDS + 2 * QUIET_SECONDS)
        written = writes(port)
    start = time.monotonic()
    async with hosted(ring, folder, port) as started:
        await http_ready(port)
        await all_on_disk(ring, port)
        again = time.monotonic() - start
        good = await asyncio.to_thread(ready, ring)
        calls = figure(port, "trellis_controller_call_seconds_count")
        used = processor([started])
        await asyncio.sleep(QUIET_SECONDS)
        used = processor([started]) - used
        resident, own = memory([started])
        rewritten = max(0.0, writes(port))
    size_on_disk = sum(path.stat().st_blocks * 512 for path in (folder / "data").rglob("*") if path.is_file())
    print(
        f"{size} controllers: each ran once and is on disk after {first:.1f} s, its status shows it after "
        f"{reported:.1f} s ({written:.0f} writes in all); the next process has them all after {again:.1f} s, "
        f"{good} ready ({calls:.0f} calls, {rewritten:.0f} writes), then idle: {own:.0f} MiB "
        f"({resident:.0f} MiB resident), {used / QUIET_SECONDS * 100:.1f} % of a processor; "
        f"{size_on_disk / MIB:.0f} MiB on disk"
    )
    return again <= TARGET_SECONDS and good == size


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--controllers", type=int, default=10000, help="how many (default 10000)")
    options = parser.parse_args()
    print(f"machine: {describe()}", flush=True)
    with tempfile.TemporaryDirectory() as folder, owned_cluster() as info:
        good = asyncio.run(measure(info, options.controllers, Path(folder)))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
