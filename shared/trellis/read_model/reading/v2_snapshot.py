"""Reads the objects of wasmCloud v2 into a snapshot.

In: a reader with its permissions, the namespace of the object. Out: the snapshot without messages and answers. Called
by pages of ``trellis explain`` and of the console, and by the row of ``trellis status``. Writes nothing. Invariant: a
kind that is forbidden or not served is in ``unread`` with the reason; an account that can list one namespace only gets
that one. A page lists only the resources and objects that it needs: a cluster can have thousands.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from trellis.kube.errors import Forbidden, NotFound
from trellis.kube.permissions import missing_right
from trellis.kube.resources import (
    ARTIFACTS,
    ENDPOINT_SLICES,
    PODS,
    SERVICES,
    WASM_HOSTS,
    WORKLOAD_DEPLOYMENTS,
    WORKLOAD_REPLICA_SETS,
    WORKLOADS,
    Manifest,
    Resource,
)
from trellis.read_model.reading.cluster import Reading
from trellis.v2.deployments import view_artifact, view_deployment, view_replica_set
from trellis.v2.hosts import view_host
from trellis.v2.pods import POD_SELECTOR, view_host_pod
from trellis.v2.routes import SLICE_SELECTOR, view_service, view_slice
from trellis.v2.snapshot import Part, Snapshot
from trellis.v2.workloads import WorkloadView, view_workload

V = TypeVar("V")

RESOURCES: Final = {
    Part.HOSTS: WASM_HOSTS,
    Part.WORKLOADS: WORKLOADS,
    Part.REPLICA_SETS: WORKLOAD_REPLICA_SETS,
    Part.DEPLOYMENTS: WORKLOAD_DEPLOYMENTS,
    Part.ARTIFACTS: ARTIFACTS,
    Part.SERVICES: SERVICES,
    Part.SLICES: ENDPOINT_SLICES,
    Part.PODS: PODS,
}
"""Everything that is listed; docs/v2/permissions.md has the permissions for it."""
_IN_ALL_NAMESPACES: Final = frozenset({Part.HOSTS, Part.WORKLOADS, Part.PODS})
"""Parts that show the state of hosts and of the operator. The other parts concern only objects of one namespace."""
_EVERYWHERE: Final = frozenset({Part.HOSTS, Part.PODS})
"""Parts that are in the namespaces of the operator and its hosts, and not in that of the object."""


@dataclass(frozen=True, slots=True)
class Selector:
    """The objects of a kind to list; None selects all."""

    labels: str | None = None
    fields: str | None = None


EVERYTHING: Final[Mapping[Part, Selector]] = {
    **dict.fromkeys(RESOURCES, Selector()),
    Part.SLICES: Selector(SLICE_SELECTOR),
    Part.PODS: Selector(POD_SELECTOR),
}
"""All objects that a page about any number of objects needs."""


@dataclass(frozen=True, slots=True)
class _Found:
    """Objects of a kind. ``unread``: why there are none; ``limited``: why they are of one namespace only."""

    items: Sequence[Manifest]
    unread: str = ""
    limited: str = ""


async def read_snapshot(
    reading: Reading, namespace: str | None, parts: Mapping[Part, Selector] = EVERYTHING
) -> Snapshot:
    """Return the snapshot of a cluster.

    Args:
        reading: connection and notes.
        namespace: namespace of the object of a page; None for a row about all namespaces.
        parts: what to list. The other parts are empty, and must not be used.

    Raises:
        KubeError: the API server is unavailable.
    """
    results = await asyncio.gather(*(_read(reading, part, namespace, which) for part, which in parts.items()))
    found = dict.fromkeys(RESOURCES, _Found(())) | dict(zip(parts, results, strict=True))
    found[Part.PODS] = await _beside_hosts(reading, found[Part.PODS], found[Part.HOSTS])

    def views(part: Part, view: Callable[[object], V]) -> list[V]:
        return [view(item) for item in found[part].items]

    return Snapshot(
        now=reading.kube.now(),
        hosts=views(Part.HOSTS, view_host),
        workloads=views(Part.WORKLOADS, view_workload),
        replica_sets=views(Part.REPLICA_SETS, view_replica_set),
        deployments=views(Part.DEPLOYMENTS, view_deployment),
        artifacts=views(Part.ARTIFACTS, view_artifact),
        services=views(Part.SERVICES, view_service),
        slices=views(Part.SLICES, view_slice),
        pods=views(Part.PODS, view_host_pod),
        unread={part: item.unread for part, item in found.items() if item.unread},
        limited={part: item.limited for part, item in found.items() if item.limited},
    )


async def read_workloads(reading: Reading, namespace: str | None) -> list[WorkloadView]:
    """Return the Workloads that this account can read, none if it cannot; raises KubeError."""
    return [view_workload(item) for item in (await _read(reading, Part.WORKLOADS, namespace, Selector())).items]


async def _read(reading: Reading, part: Part, namespace: str | None, which: Selector) -> _Found:
    res = RESOURCES[part]
    if part not in _IN_ALL_NAMESPACES:
        return await _listed(reading, res, namespace, which)
    found = await _listed(reading, res, None, which)
    if not found.unread or namespace is None or part in _EVERYWHERE:
        return found
    own = await _listed(reading, res, namespace, which)
    return own if own.unread else _Found(own.items, limited=found.unread)


async def _beside_hosts(reading: Reading, pods: _Found, hosts: _Found) -> _Found:
    """Return the pods; without permission for all namespaces, those in the namespaces of the Hosts."""
    namespaces = sorted({str(item["metadata"]["namespace"]) for item in hosts.items})
    if not pods.unread or not namespaces:
        return pods
    found = await asyncio.gather(*(_listed(reading, PODS, name, Selector(POD_SELECTOR)) for name in namespaces))
    if unread := next((item.unread for item in found if item.unread), ""):
        return _Found((), unread=unread)
    return _Found([item for each in found for item in each.items], limited=pods.unread)


async def _listed(reading: Reading, res: Resource, namespace: str | None, which: Selector) -> _Found:
    try:
        found = await reading.kube.list(res, namespace, label_selector=which.labels, field_selector=which.fields)
        return _Found(found.items)
    except Forbidden as error:
        reading.lacks(error, res)
        right = missing_right(error)
        return _Found((), unread=f"this account cannot {right}" if right else str(error))
    except NotFound:
        return _Found((), unread=f"the API server does not serve {res.definition}")
