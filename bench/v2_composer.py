"""Resources for many Workloads of wasmCloud v2, without servers: ``python bench/v2_composer.py [--workloads N]``.

The composer of one viewer of the console or of ``trellis top``: memory of its views and entities, and the time of its
runs; and one run of host_manager, with and without its events. Out: figures and the machine; exit status 1 if one
exceeds what is allowed. CPU time counts, because other processes may use the machine.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import psutil

from host_manager.domain.v2.decide import decide, forget_deleted
from host_manager.domain.v2.outages import Outages
from host_manager.domain.v2.published import Published
from host_manager.domain.v2.trust import Trust
from host_manager.v2.reconciler import healths
from machine import describe
from trellis.read_model.entities.composing_v2 import PARTS, V2Composer
from trellis.read_model.entities.entities import PartStatus
from trellis.read_model.entities.journal import Journal
from trellis.read_model.live.parts_v2 import SharedSpecs
from trellis.v2.cluster import Cluster
from trellis.v2.deployments import view_deployment, view_replica_set
from trellis.v2.hosts import view_host
from trellis.v2.snapshot import Part, Snapshot
from v2 import Row, table
from v2_objects import (
    deployment_status,
    host_id,
    host_status,
    make_deployment,
    make_host,
    make_replica_set,
    make_workload,
    replica_set_status,
    workload_status,
)

NOW: Final = 1_800_000_000.0
PER_DEPLOYMENT: Final = 20
PER_HOST: Final = 100
TARGET_RUN: Final = 0.5
"""Seconds of one run: the other viewers of a console wait meanwhile."""
TARGET_ALL: Final = 3.0
TARGET_MIB: Final = 40.0
TARGET_EVENTS: Final = 3.0
_UNWATCHED: Final = dict.fromkeys((Part.SERVICES, Part.SLICES, Part.PODS), "not watched")
Views = dict[str, dict[str, Any]]
"""Views by the name of their part, and key."""


@dataclass(frozen=True)
class Size:
    """``workloads`` of WorkloadDeployments with PER_DEPLOYMENT replicas, on hosts with PER_HOST of them each."""

    workloads: int

    @property
    def deployments(self) -> int:
        """Number of WorkloadDeployments."""
        return self.workloads // PER_DEPLOYMENT

    @property
    def hosts(self) -> int:
        """Number of Hosts."""
        return max(self.workloads // PER_HOST, 1)


def objects(size: Size, *, fails: bool, since: float) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the objects by part, as the operator wrote them at a time; with ``fails``, no Workload runs."""
    for number in range(size.hosts):
        yield "whosts", _stored(make_host(number), f"h{number}", host_status(NOW - 5))
    failed = PER_DEPLOYMENT if fails else 0
    for number in range(size.deployments):
        name, uid = f"shop-{number:05d}", f"d{number}"
        status = deployment_status(since, name, 1, PER_DEPLOYMENT, failed)
        yield "workloaddeployments", _stored(make_deployment(name, 1, PER_DEPLOYMENT), uid, status)
        replica_set = make_replica_set(name, 1, PER_DEPLOYMENT, uid)
        yield (
            "workloadreplicasets",
            _stored(replica_set, f"r{number}", replica_set_status(since, PER_DEPLOYMENT, failed)),
        )
        for replica in range(PER_DEPLOYMENT):
            own = f"w{number}-{replica}"
            host = host_id((number * PER_DEPLOYMENT + replica) % size.hosts)
            found = make_workload(name, 1, replica, f"r{number}")
            yield "workloads", _stored(found, own, workload_status(since, host, own, fails=fails))


def _stored(manifest: dict[str, Any], uid: str, status: dict[str, Any]) -> dict[str, Any]:
    metadata = {**manifest["metadata"], "uid": uid, "generation": 1}
    return {**manifest, "metadata": metadata, "status": status}


def views(size: Size, *, fails: bool = False, since: float = NOW - 600) -> Views:
    """Return the views of all objects."""
    projections: dict[str, Callable[[dict[str, Any]], Any]] = {
        "whosts": view_host,
        "workloads": SharedSpecs().view,
        "workloadreplicasets": view_replica_set,
        "workloaddeployments": view_deployment,
    }
    found: Views = {name: {} for name in projections}
    for name, manifest in objects(size, fails=fails, since=since):
        view = projections[name](manifest)
        found[name][view.meta.key] = view
    return found


class Viewer:
    """The composer of one viewer, and its journal."""

    def __init__(self) -> None:
        self.composer, self.journal = V2Composer(), Journal(1000)

    def take(self, found: Views) -> None:
        """Give all views to the composer."""
        for name, held in found.items():
            for key, view in held.items():
                self.composer.take(name, key, view)
        self.composer.report([PartStatus(name, True, {}) for name in PARTS])

    def runs(self, now: float) -> list[float]:
        """Return the CPU seconds of the runs until the composer is not behind any more."""
        took = [self._run(now)]
        while self.composer.behind:
            took.append(self._run(now))
        return took

    def _run(self, now: float) -> float:
        began = time.process_time()
        self.journal.write(self.composer.flush(now, None))
        return time.process_time() - began


def resident() -> float:
    """Return the MiB of this process, after a collection."""
    gc.collect()
    return float(psutil.Process().memory_info().rss) / 2**20


def of_viewer(size: Size) -> Iterator[Row]:
    """Yield the figures of a viewer: all run, one changes, all heartbeats are missing, none runs."""
    before, viewer = resident(), Viewer()
    found = views(size)
    viewer.take(found)
    took = viewer.runs(NOW)
    yield Row("first evaluation of all, CPU", sum(took), "s", TARGET_ALL)
    yield Row(f"  longest of {len(took)} runs", max(took), "s", TARGET_RUN)
    yield Row("  memory of views and entities", resident() - before, "MiB", TARGET_MIB)
    yield Row("a run without a change", max(viewer.runs(NOW + 1)), "s", TARGET_RUN)
    name = next(iter(found["workloads"]))
    viewer.composer.take("workloads", name, None)
    yield Row("a run after the deletion of a Workload", max(viewer.runs(NOW + 2)), "s", TARGET_RUN)
    took = viewer.runs(NOW + 90)
    yield Row("all hosts silent, CPU", sum(took), "s", TARGET_ALL)
    yield Row(f"  longest of {len(took)} runs", max(took), "s", TARGET_RUN)
    viewer.take(views(size, fails=True))
    took = viewer.runs(NOW)
    yield Row("no Workload runs, CPU", sum(took), "s", TARGET_ALL)
    yield Row(f"  longest of {len(took)} runs", max(took), "s", TARGET_RUN)
    yield Row("  a run whose texts become older", max(viewer.runs(NOW + 11)), "s", TARGET_RUN)


def of_host_manager(size: Size) -> Iterator[Row]:
    """Yield the figures of host_manager: the first run, a regular one, one in which no Workload runs."""
    published, outages = Published(), Outages()
    trust = Trust({"wasmcloud-system": 0.0})

    def run(found: Views, now: float) -> tuple[float, int]:
        began = time.process_time()
        cluster = Cluster(
            Snapshot(
                now=now,
                hosts=[*found["whosts"].values()],
                workloads=[*found["workloads"].values()],
                replica_sets=[*found["workloadreplicasets"].values()],
                deployments=[*found["workloaddeployments"].values()],
                unread=_UNWATCHED,
            )
        )
        healths(cluster)
        outages.observe(cluster, published, None, now)
        events = [*outages.due(published), *decide(cluster, published, trust)]
        for event in events:
            published.note(event)
            outages.note(event)
        forget_deleted(cluster, published)
        return time.process_time() - began, len(events)

    healthy = views(size)
    first, count = run(healthy, NOW)
    yield Row(f"host_manager: first run, {count} events, CPU", first, "s", TARGET_EVENTS)
    later, count = run(healthy, NOW + 10)
    yield Row(f"  a regular run, {count} events", later, "s", TARGET_EVENTS)
    failing, count = run(views(size, fails=True, since=NOW - 60), NOW + 10)
    yield Row(f"  no Workload runs, {count} events", failing, "s", TARGET_EVENTS)
    silent = [run(healthy, NOW + seconds) for seconds in (60, 90, 120)]
    yield Row(
        f"  all hosts silent, {sum(count for _, count in silent)} event",
        max(it for it, _ in silent),
        "s",
        TARGET_EVENTS,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", type=int, default=10_000)
    options = parser.parse_args()
    size = Size(options.workloads)
    print(f"machine: {describe()}")
    print(f"{size.workloads} Workloads of {size.deployments} WorkloadDeployments on {size.hosts} hosts", flush=True)
    rows = [*of_viewer(size), *of_host_manager(size)]
    print(table(rows))
    return 0 if all(row.good for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
