"""Decides which events about wasmCloud v2 to publish.

Pure. In: published events, trust, a snapshot. Out: events in the order in which they are to be published. Called by
``host_manager.v2.reconciler``. Invariants: after all events are noted, the same snapshot causes none; kinds that are
not known cause none, because a missing object is not a deleted one then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from host_manager.domain.v2.deployments import artifact_events, deployment_events
from host_manager.domain.v2.hosts import host_events
from host_manager.domain.v2.published import Published, object_of
from host_manager.domain.v2.trust import Evidence, Trust
from host_manager.domain.v2.workloads import Owners, failure_events, failures, lifecycle_events
from trellis.events.envelope import EventData
from trellis.events.wasmcloud_v2 import WorkloadStarted
from trellis.v2.cluster import Cluster
from trellis.v2.snapshot import Part

REQUIRED: Final = (Part.DEPLOYMENTS, Part.REPLICA_SETS, Part.WORKLOADS, Part.ARTIFACTS)
"""Kinds without which no cause is known. Without the Hosts, only causes that concern no host are published."""


def knows_enough(cluster: Cluster) -> bool:
    """Return whether everything is known that causes depend on."""
    return all(cluster.snapshot.knows(part) for part in REQUIRED)


def decide(
    cluster: Cluster, published: Published, trust: Trust, unknown: Collection[str] = frozenset()
) -> list[EventData]:
    """Return the events to publish, those about one object together; ``unknown``: namespaces that cannot be read."""
    if not knows_enough(cluster):
        return []
    by_object: dict[str, list[EventData]] = {}
    for event in _events(cluster, published, trust):
        if event.key()[0] not in unknown:
            by_object.setdefault(object_of(event), []).append(event)
    return [event for events in by_object.values() for event in events]


def forget_deleted(cluster: Cluster, published: Published, unknown: Collection[str] = frozenset()) -> None:
    """Drop the records of deleted objects whose deletion has no event; ``unknown``: as for ``decide``."""
    if not knows_enough(cluster):
        return
    snapshot = cluster.snapshot
    names: dict[str, set[str]] = {}
    for item in snapshot.replica_sets:
        names.setdefault(item.meta.namespace, set()).add(item.meta.name)
    metas = [item.meta for item in snapshot.deployments]
    owners = [*metas, *(item.meta for item in snapshot.replica_sets), *(item.meta for item in snapshot.workloads)]
    published.keep(
        {meta.uid for meta in metas},
        {item.meta.uid for item in snapshot.artifacts},
        {meta.uid: names.get(meta.namespace, set()) for meta in owners},
        unknown,
    )


def _events(cluster: Cluster, published: Published, trust: Trust) -> Iterator[EventData]:
    owners, evidence = Owners(cluster), Evidence(cluster, trust)
    failing = failures(cluster, evidence, owners)
    yield from artifact_events(cluster, published)
    yield from host_events(cluster, published, evidence)
    lifecycle = [*lifecycle_events(cluster, published, owners)]
    yield from lifecycle
    # Starts of a WorkloadDeployment end no failures. Without them, a large rollout is not compared with each failure.
    started = [event for event in lifecycle if isinstance(event, WorkloadStarted) and not event.deployment]
    yield from failure_events(cluster, failing, published, started)
    yield from deployment_events(cluster, published, failing)
