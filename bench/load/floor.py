"""New nodes beside what their writes alone take: ``python bench/load/floor.py [--existing N] [--new N]``.

In: nothing; it starts a control plane with simulated nodes twice. Out, on stdout with the machine: the seconds until
all new nodes are labelled, by Trellis, and by a client that only does what the API server has to do in any case: create
the Job of each node as Trellis does, label the node when its Job is complete, delete the Job. It decides nothing,
records nothing and publishes nothing. In both, the same number of nodes is provisioned already. Exit status 1 if the
ratio exceeds what is allowed.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import dataclasses
import sys
import time
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[1]))

from load import sizes
from load.bundle import Bundle, running, until_ready
from load.measuring import measure
from load.seen import until
from load.sizes import Size
from load.world import World, world
from trellis import names
from trellis.kube.access import Access
from trellis.kube.client import Kube
from trellis.kube.informer import Change, Informer
from trellis.kube.resources import JOBS, NAMESPACES, NODES
from trellis.telemetry import setup
from trellis.telemetry.health import Health

Manifest = dict[str, Any]
RATIO: Final = 1.3
EXISTING: Final = 2500
NEW: Final = 2500
_IN_FLIGHT: Final = 16
_INSTALLERS: Final = "trellis-installers"
_MANAGER: Final = "floor"
_PAUSE: Final = 0.05
_LEFT_PAUSE: Final = 0.5


async def provisioned(made: World, count: int) -> None:
    """Wait until so many nodes are labelled."""
    await until(
        lambda: len(made.seen.labelled) >= count,
        lambda: f"{len(made.seen.labelled)} of {count} nodes are labelled",
        pause=_PAUSE,
    )


async def by_trellis(made: World, directory: Path, count: int) -> tuple[float, Manifest]:
    """Let Trellis provision all nodes; return the seconds from its start, and one of its Jobs."""
    job: Manifest = {}
    with running(made.environment(directory), directory, made.monitors, separate=False) as bundle:
        await asyncio.to_thread(until_ready, bundle)
        await until(lambda: bool(made.seen.jobs), lambda: "the first Job exists")
        while not job:
            _, listed = await asyncio.to_thread(made.api.call, "GET", f"{JOBS.path(_INSTALLERS)}?limit=1")
            job = next(iter(listed.get("items") or ()), {})
        await provisioned(made, count)
        took = time.monotonic() - bundle.began
        await _without_jobs(made, bundle)
    return took, job


async def _without_jobs(made: World, bundle: Bundle) -> None:
    """Wait until the Jobs are deleted, so that nothing is left to do."""

    def left() -> int:
        _, listed = made.api.call("GET", f"{JOBS.path(_INSTALLERS)}?limit=1")
        return len(listed.get("items") or ()) + int(bundle.waiting())

    await until(lambda: not left(), lambda: "all Jobs are deleted", pause=_LEFT_PAUSE)


def job_for(node: str, template: Manifest) -> Manifest:
    """Return the Job of Trellis for another node."""
    spec = copy.deepcopy(template["spec"])
    for generated in ("selector", "manualSelector"):
        spec.pop(generated, None)
    metadata = spec["template"]["metadata"]
    metadata["labels"] = {
        key: value
        for key, value in (metadata.get("labels") or {}).items()
        if "controller-uid" not in key and "job-name" not in key
    }
    spec["template"]["spec"]["nodeName"] = node
    former = template["metadata"]
    kept = {key: former[key] for key in ("labels", "annotations") if key in former}
    labels = {
        key: value
        for key, value in (kept.get("labels") or {}).items()
        if "controller-uid" not in key and "job-name" not in key
    }
    owned = kept | {"labels": labels, "name": f"floor-{node}", "namespace": _INSTALLERS}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": owned, "spec": spec}


@dataclasses.dataclass
class Floor:
    """A client that only writes. ``complete``: the nodes of completed Jobs, with their Jobs."""

    kube: Kube
    template: Manifest
    complete: asyncio.Queue[tuple[str, str, str]] = dataclasses.field(default_factory=asyncio.Queue)

    def job(self, change: Change[tuple[str, str, bool]]) -> None:
        """Queue the node of a completed Job."""
        if change.new is not None and change.new[2] and (change.old is None or not change.old[2]):
            self.complete.put_nowait((change.key.partition("/")[2], change.new[0], change.new[1]))

    async def create(self, nodes: list[str]) -> None:
        """Create the Jobs of nodes."""
        limit = asyncio.Semaphore(_IN_FLIGHT)

        async def one(node: str) -> None:
            async with limit:
                await self.kube.create(JOBS, job_for(node, self.template))

        await asyncio.gather(*map(one, nodes))

    async def follow(self) -> None:
        """Label the node of each completed Job, and delete the Job, until cancelled."""
        while True:
            name, uid, node = await self.complete.get()
            labels = {"metadata": {"labels": {names.LABEL_PROVISIONED: "true"}}}
            await self.kube.merge_patch(NODES, node, labels, field_manager=_MANAGER)
            await self.kube.delete(JOBS, name, _INSTALLERS, uid=uid)


def _job(manifest: Manifest) -> tuple[str, str, bool]:
    done = any(
        (item["type"], item["status"]) == ("Complete", "True")
        for item in (manifest.get("status") or {}).get("conditions") or ()
    )
    return str(manifest["metadata"]["uid"]), str(manifest["spec"]["template"]["spec"]["nodeName"]), done


async def by_writes(made: World, template: Manifest, nodes: list[str], count: int) -> float:
    """Provision nodes by their writes alone; return the seconds."""
    made.api.call("POST", NAMESPACES.path(), {"metadata": {"name": _INSTALLERS}})
    kube = await Kube.connect(Access(Path(made.info.kubeconfig)), telemetry=setup(_MANAGER), health=Health(_MANAGER))
    floor = Floor(kube, template)
    informer: Informer[tuple[str, str, bool]] = Informer(kube, JOBS, _job, floor.job, _INSTALLERS)
    tasks = [asyncio.create_task(informer.run()), *(asyncio.create_task(floor.follow()) for _ in range(_IN_FLIGHT))]
    try:
        await informer.synced.wait()
        began = time.monotonic()
        await floor.create(nodes)
        await provisioned(made, count)
        return time.monotonic() - began
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await kube.close()


async def run(options: argparse.Namespace, directory: Path) -> tuple[float, float]:
    """Return the seconds of Trellis and of the writes alone."""
    took: list[float] = []
    job: Manifest = {}
    full = Size(options.existing + options.new, 0, 0, 0)
    for part in ("Trellis", "the writes alone"):
        place = directory / part.replace(" ", "-")
        place.mkdir()
        async with world(full, place) as made:
            await made.grow(Size(options.existing, 0, 0, 0), [])
            _, job = await by_trellis(made, place, options.existing)
            await made.grow(full, [])
            if part == "Trellis":
                took.append((await by_trellis(made, place, full.nodes))[0])
            else:
                nodes = [sizes.node(number) for number in range(options.existing, full.nodes)]
                took.append(await by_writes(made, job, nodes, full.nodes))
        print(f"{options.new} new nodes beside {options.existing}, by {part}: {took[-1]:.1f} s", flush=True)
    return took[0], took[1]


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--existing", type=int, default=EXISTING, help=f"nodes that are provisioned ({EXISTING})")
    parser.add_argument("--new", type=int, default=NEW, help=f"nodes to provision ({NEW})")
    options = parser.parse_args()
    took = measure("floor", lambda directory: run(options, directory))
    if took is None:
        return 0
    trellis, floor = took
    good = trellis <= RATIO * floor
    print(f"ratio {trellis / floor:.2f}, allowed {RATIO}{'' if good else '  MISSED'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
