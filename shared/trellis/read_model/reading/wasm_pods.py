"""Reads all workloads of Wasm pods of a cluster, for a table.

In: a reader with its permissions. Out: workloads with their health. Called by ``trellis status``. Writes nothing.
Invariants: one list for each kind, read page by page into views; logs are read of a few pods only; a kind that cannot
be read has a note, and the rest is shown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from trellis.kube.errors import Forbidden
from trellis.kube.reader import Selection
from trellis.kube.resources import (
    CRON_JOBS,
    DAEMON_SETS,
    DEPLOYMENTS,
    EVENTS,
    JOBS,
    PODS,
    SPIN_APP_EXECUTORS,
    SPIN_APPS,
    STATEFUL_SETS,
    Manifest,
    Resource,
)
from trellis.read_model.health import Verdict
from trellis.read_model.reading.cluster import Reading
from trellis.read_model.reading.explained_pods import LOGS_MOST
from trellis.read_model.reading.wasm_parts import WARNING, PartReads, read_logs, read_shared
from trellis.read_model.wasm_pods.explain.containers import failing
from trellis.read_model.wasm_pods.owners import OwnerView, view_executor, view_owner
from trellis.read_model.wasm_pods.pods import WasmPod, view_pod
from trellis.read_model.wasm_pods.reasons import Reason
from trellis.read_model.wasm_pods.snapshot import Part, Snapshot
from trellis.read_model.wasm_pods.workloads import Inventory, Workload, view_cause, wasm_classes

V = TypeVar("V")
OWNERS: Final = (DEPLOYMENTS, STATEFUL_SETS, DAEMON_SETS, JOBS, CRON_JOBS)
LOGGED_MOST: Final = 10
"""Workloads of which logs are read; further ones have the reason without it."""
_ENDED: Final = frozenset({Reason.EXITED, Reason.SHIM_ERROR})
"""Reasons that the log of a container can make more precise."""


@dataclass(frozen=True, slots=True)
class WasmPods:
    """Workloads with their health, by namespace and name; ``snapshot``: what they were evaluated with."""

    snapshot: Snapshot
    workloads: Sequence[tuple[Workload, Verdict]] = ()


async def read_wasm_pods(reading: Reading) -> WasmPods:
    """Return the workloads; ``reading.notes`` names kinds that could not be read. Without a Shim no pod is read.

    Raises:
        KubeError: the API server is unavailable.
    """
    read = PartReads(reading)
    shared = replace(await read_shared(read), unread=read.unread)
    classes = wasm_classes(shared)
    if not classes:
        return WasmPods(shared)
    (pods, events), (apps, executors), owners = await asyncio.gather(
        asyncio.gather(_views(read, PODS, _wasm_pod), _views(read, EVENTS, view_cause, WARNING)),
        asyncio.gather(reading.list(SPIN_APPS), reading.list(SPIN_APP_EXECUTORS)),
        asyncio.gather(*(_views(read, res, _owner_of(res)) for res in OWNERS)),
    )
    inventory = Inventory(unread=_unread_kinds(reading))
    for owner in (owner for of_kind in owners for owner in of_kind or ()):
        inventory.put_owner(owner.kind, owner.meta.key, owner)
    for item in apps:
        app = view_owner(SPIN_APPS.kind, item)
        inventory.put_owner(app.kind, app.meta.key, app)
    for item in executors:
        executor = view_executor(item)
        inventory.put_executor(f"{executor.namespace}/{executor.name}", executor)
    for pod in pods or ():
        inventory.put_pod(pod.meta.key, pod)
    _note_unread(read)
    snapshot = replace(shared, events=events or (), unread=read.unread)
    there = [found for id_ in inventory.ids() if (found := inventory.workload(id_, classes)) is not None]
    return await _evaluated(read, snapshot, sorted(there, key=lambda item: (item.id[1], item.id[0])))


async def _evaluated(read: PartReads, snapshot: Snapshot, there: Sequence[Workload]) -> WasmPods:
    """Return workloads with their health. Those whose containers ended are evaluated again, with the logs of a few."""
    health = {workload.id: workload.health(snapshot) for workload in there}
    ended = [workload for workload in there if health[workload.id].reason in _ENDED][:LOGGED_MOST]
    wanted = [pod for workload in ended for pod in [pod for pod in workload.pods if failing(pod)][:LOGS_MOST]]
    if wanted:
        snapshot = replace(snapshot, logs=await read_logs(read, wanted), unread=read.unread)
        health |= {workload.id: workload.health(snapshot) for workload in ended}
    return WasmPods(snapshot, [(workload, health[workload.id]) for workload in there])


async def _views(
    read: PartReads, res: Resource, view: Callable[[Manifest], V | None], fields: str | None = None
) -> list[V] | None:
    """Return the views of a kind of Kubernetes, None with a note if it is forbidden; raises KubeError."""
    found: list[V] = []
    try:
        async for page in read.reading.kube.pages(Selection(res, None, None, fields)):
            found = [] if page.first else found
            found += [item for manifest in page.items if (item := view(manifest)) is not None]
    except Forbidden as error:
        read.reading.lacks(error, res)
        return None
    return found


def _wasm_pod(manifest: Mapping[str, Any]) -> WasmPod | None:
    pod = view_pod(manifest)
    return pod if pod.runtime_class else None


def _owner_of(res: Resource) -> Callable[[Manifest], OwnerView]:
    return lambda manifest: view_owner(res.kind, manifest)


def _unread_kinds(reading: Reading) -> list[str]:
    return [res.kind for res in OWNERS if not reading.knows(res)]


_PARTS: Final = (
    (Part.PODS, PODS),
    (Part.EVENTS, EVENTS),
    (Part.DEPLOYMENTS, DEPLOYMENTS),
    (Part.EXECUTORS, SPIN_APP_EXECUTORS),
)


def _note_unread(read: PartReads) -> None:
    """Copy the notes of the reader to the parts of the snapshot."""
    for part, res in _PARTS:
        if not read.reading.knows(res):
            read.unread[part] = read.reading.unread[res]
