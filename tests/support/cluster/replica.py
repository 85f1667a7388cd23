"""A replica of a small service that is like the real ones: a lease, a watch, a keyed queue, writes with preconditions.

Run as a program, twice or more, by tests and measurements that stop it, kill it, cut it off and step its clock:
``python replica.py '<json of Part>'``. Its keys are the labelled ConfigMaps of a namespace; it writes its name into
each, over and over. Beginning and end of each run of a key, and each write that was accepted (with the time at which
it was asked for: its answer may be read much later, by a process that was stopped) go to a journal, by CLOCK_BOOTTIME,
which is the same for all processes of a machine and goes on while one is stopped.
"""

from __future__ import annotations

import support.suite.stepped_clock  # noqa: F401  # isort: skip - before anything that reads the clock

import asyncio
import copy
import json
import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from trellis.bus.consume.queue import KeyedQueue
from trellis.config.settings import ServiceSettings
from trellis.config.timings import ServiceTimings
from trellis.kube.client import Kube
from trellis.kube.informer import Change, Informer
from trellis.kube.resources import CONFIGMAPS, Manifest
from trellis.kube.timings import KubeTimings, LeaderTimings
from trellis.kube.watch_timings import WatchTimings
from trellis.runtime.run import Base, LedService, Work, run_services
from trellis.telemetry import TraceContext, setup, setup_logging

SERVICE = "keeper"
LEASE = f"trellis-{SERVICE}"
LABEL = "trellis.test/worked"
FIELD_MANAGER = "trellis.test/keeper"
LEADER = LeaderTimings(duration=5, renew_deadline=3.2, renew=0.9, retry=0.4, call_timeout=1.8)
"""In the proportions of production, with room for the part of a second that a busy machine takes from a process."""
WATCH = WatchTimings(backoff_most=1.0)
TIMINGS = ServiceTimings(bus_head_start=0.5, kube=KubeTimings(call=5.0, leader=LEADER, watch=WATCH))


@dataclass(frozen=True)
class Part:
    """The configuration of a replica. ``fenced``: whether its writes name what was read, as every service's must."""

    name: str
    kubeconfig: str
    nats_url: str
    namespace: str
    journal: str
    pace: float = 0.25
    fenced: bool = True


@dataclass(frozen=True)
class ConfigMapView:
    """A ConfigMap as the replica sees it."""

    name: str
    uid: str
    count: int
    resource_version: str = field(compare=False)


def view(manifest: Manifest) -> ConfigMapView:
    metadata = manifest["metadata"]
    count = int((manifest.get("data") or {}).get("count", 0))
    return ConfigMapView(metadata["name"], metadata["uid"], count, metadata["resourceVersion"])


def now() -> float:
    """Return the seconds since the machine started: one clock for all its processes, which no test steps or stops."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Journal:
    """Appends lines that survive any end of the writer."""

    def __init__(self, part: Part) -> None:
        self._replica = part.name
        self._file = os.open(part.journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(self, what: str, key: str = "", at: float | None = None) -> None:
        line = {"replica": self._replica, "what": what, "key": key, "at": now() if at is None else at}
        os.write(self._file, json.dumps(line).encode() + b"\n")


@dataclass(frozen=True)
class Worker:
    """Works the keys of one term."""

    part: Part
    journal: Journal
    kube: Kube
    objects: Informer[ConfigMapView]

    async def run(self, key: str, _: TraceContext | None) -> None:
        """Write this replica's name into one object: what is read, then work, then the write, then more work."""
        config_map = self.objects.objects.get(key)
        if config_map is None:
            return
        self.journal.note("began", key)
        try:
            await asyncio.sleep(self.part.pace)
            patch = {"data": {"writer": self.part.name, "count": str(config_map.count + 1)}}
            if self.part.fenced:
                patch |= {"metadata": {"uid": config_map.uid, "resourceVersion": config_map.resource_version}}
            requested = now()
            written = await self.kube.merge_patch(
                CONFIGMAPS, config_map.name, patch, self.part.namespace, field_manager=FIELD_MANAGER
            )
            self.journal.note("wrote", key, requested)
            self.objects.wrote(written, config_map)
            await asyncio.sleep(self.part.pace)
        finally:
            self.journal.note("ended", key)


def compose(part: Part, journal: Journal, base: Base) -> Work:
    kube = base.kube if part.fenced else careless(base.kube)
    queue = KeyedQueue[str](workers=8, name="kept", telemetry=base.telemetry)

    def woken(change: Change[ConfigMapView]) -> None:
        queue.add(change.key)

    objects = Informer(kube, CONFIGMAPS, view, woken, namespace=part.namespace, label_selector=LABEL)

    def list_all() -> None:
        for key in objects.objects:
            queue.add(key)

    return Work([objects], {queue: Worker(part, journal, kube, objects).run}, list_all, lambda: None)


def careless(kube: Kube) -> Kube:
    """Return the lie the experiments must catch: a client that asks the guard, and lets a write name nothing."""
    view = copy.copy(kube)
    view._expect = lambda *_: None  # type: ignore[method-assign]
    return view


async def main(part: Part) -> None:
    journal = Journal(part)
    settings = ServiceSettings(
        kubeconfig=Path(part.kubeconfig),
        nats_url=part.nats_url,
        cluster=part.namespace,
        namespace=part.namespace,
        identity=part.name,
    )
    service = LedService(
        name=SERVICE,
        settings=settings,
        telemetry=setup(SERVICE),
        compose=lambda base: compose(part, journal, base),
        namespaces={},
        timings=TIMINGS,
    )
    standing = asyncio.create_task(note_standing(service, journal))
    await run_services([service], health_port=0)
    standing.cancel()


async def note_standing(service: LedService, journal: Journal) -> None:
    """Note when this replica leads, or knows that another does."""
    while not service.health.readiness().ok:  # noqa: ASYNC110 - health has no event
        await asyncio.sleep(0.05)
    journal.note("standing")


if __name__ == "__main__":
    setup_logging(log_format="json", level="info")
    asyncio.run(main(Part(**json.loads(sys.argv[1]))))
