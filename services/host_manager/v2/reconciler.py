"""Publishes what changed in wasmCloud v2: gather, decide, publish.

In: the one key of its queue. Out: events, metrics. Called by the queue of ``app``: soon after a change, and regularly,
because a missing heartbeat changes nothing. Invariants: an event counts as published once the bus has stored it; an
outage of the operator or of its NATS is one log line, one metric and one event, without events about hosts; it is
observed also while the bus is unavailable; a metric never has a state that is not known any more.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final
from uuid import uuid4

from host_manager.domain.v2.decide import decide, forget_deleted, knows_enough
from host_manager.domain.v2.published import EVENTS, OUTAGES, Published, namespace_of, object_of, objects_of
from host_manager.domain.v2.trust import namespaces_without_heartbeats
from host_manager.timings import Timings
from host_manager.v2.gather import V2Cache
from host_manager.v2.metrics import HostKey
from trellis.bus.bus import Bus, BusUnavailable, EventRefused
from trellis.events.envelope import EventData
from trellis.telemetry import Telemetry, TraceContext, get_logger, linked
from trellis.v2.cluster import Cluster
from trellis.v2.explain.artifact import artifact_health
from trellis.v2.explain.deployment import deployment_health
from trellis.v2.explain.host import host_health
from trellis.v2.explain.workload import workload_health
from trellis.v2.messages import HostHeartbeat
from trellis.v2.operator import State
from trellis.v2.snapshot import Part

_log = get_logger(__name__)
KEY: Final = "wasmcloud-v2"
"""The only key: a change of a Host can be the cause of any WorkloadDeployment."""
_WORKING: Final = {
    State.WORKING: 1.0,
    State.UNAVAILABLE: 0.0,
    State.CUT_OFF: 0.0,
    State.HEARTBEATS_MISSING: 0.0,
    State.UNKNOWN: -1.0,
}


@dataclass(slots=True)
class V2Reconciler:
    """One run over all objects. ``term``: unique part of the IDs of the events of this leadership term."""

    cache: V2Cache
    bus: Bus
    telemetry: Telemetry
    timings: Timings
    term: str = field(default_factory=lambda: uuid4().hex[:8])

    async def run(self, key: str, trace: TraceContext | None) -> float | None:
        """Publish the events that are due; return seconds until the next run, None while the group is not served."""
        del key, trace
        snapshot, unknown = self.cache.snapshot(), self.cache.unknown()
        if snapshot is None:
            return None
        cluster = Cluster(snapshot)
        self._measure(cluster)
        self.cache.trust = self.cache.trust.next(cluster)
        reception = self.cache.heartbeats.reception if self.cache.heartbeats is not None else None
        self.cache.outages.observe(cluster, self.cache.published, reception, self.cache.watched())
        try:
            await self._recall()
            due = decide(cluster, self.cache.published, self.cache.trust, unknown)
            for key, events in groupby([*self.cache.outages.due(self.cache.published), *due], key=object_of):
                await self._publish(key, events)
        except BusUnavailable:
            return self.timings.publish
        forget_deleted(cluster, self.cache.published, unknown)
        if knows_enough(cluster) and cluster.snapshot.knows(Part.HOSTS) and not unknown:
            self._forget_counts(cluster)
        return self.timings.v2_look

    def _measure(self, cluster: Cluster) -> None:
        """Set the metrics; they do not depend on the bus, and a kind that cannot be read has no value."""
        self._report_operator(cluster)
        self.cache.healths = healths(cluster)
        self.cache.numbers.show(numbers_of(cluster))

    async def _recall(self) -> None:
        """Read the published events from a stream that was not read yet: in a new term, and after it was replaced.

        Raises:
            BusUnavailable: NATS is unavailable. Without its events, all of them would be published again.
        """
        cache = self.cache
        while cache.recalled != cache.streams:
            if not self.bus.connected.is_set():
                raise BusUnavailable("the published events cannot be read")
            number, published = cache.streams, Published()
            events: AsyncIterator[EventData] = self.bus.last_events((*EVENTS, *OUTAGES))
            async for event in events:
                if cache.covers(namespace_of(event)):
                    published.note(event)
            cache.published, cache.recalled = published, number

    async def _publish(self, key: str, events: Iterable[EventData]) -> None:
        """Publish consecutive events about one object, in one trace.

        Raises:
            BusUnavailable: an event is not stored; those before it are.
        """
        with linked(self.telemetry, f"observe {key}", (), {"trellis.object": key}):
            for event in events:
                try:
                    await self.bus.publish(event, dedup=self._dedup(event))
                except EventRefused as error:
                    _log.warning("event about wasmCloud v2 not published", object=key, reason=str(error))
                self.cache.published.note(event)
                self.cache.outages.note(event)
                self.cache.stored[key] = self.cache.stored.get(key, 0) + 1

    def _dedup(self, event: EventData) -> str:
        """Return the ID: the same for a retry, another one if the same state returns."""
        # Messages contain ages, which change until the retry; the name of a host can arrive later.
        content = event.model_dump_json(exclude={"message", "workloads", "host_name"}).encode()
        digest = hashlib.sha256(content).hexdigest()[:12]
        number = self.cache.stored.get(object_of(event), 0)
        return f"{event.noun}.{event.event_name}.{digest}.{self.term}.{number}"

    def _forget_counts(self, cluster: Cluster) -> None:
        """Drop the counts of deleted objects. A later object of the same name has another UID, so another ID."""
        there, stored = objects_of(cluster.snapshot), self.cache.stored
        self.cache.stored = {key: stored[key] for key in stored if key in there}

    def _report_operator(self, cluster: Cluster) -> None:
        """Log once that the operator does not work, and once that it does again."""
        former, without = self.cache.working, namespaces_without_heartbeats(cluster)
        states = [part.operator.state for part in cluster.parts]
        found = {_WORKING[state] for state in states}
        working = 0.0 if 0.0 in found else min(found)
        self.cache.working = 0.0 if working == 1.0 and without else working
        if self.cache.working == 0.0 and former != 0.0:
            _log.warning(
                "runtime-operator does not record heartbeats, missing ones are not published",
                state=", ".join(state.value for state in states),
                namespaces=sorted(without),
                hosts=len(cluster.hosts),
            )
        elif self.cache.working == 1.0 and former == 0.0:
            _log.info("runtime-operator works again", hosts=len(cluster.hosts))


def numbers_of(cluster: Cluster) -> dict[HostKey, HostHeartbeat]:
    """Return the last heartbeats of the Hosts, as far as received and parsed."""
    found = ((host.meta, cluster.description(host.id)) for host in cluster.hosts)
    return {(meta.namespace, meta.name): beat for meta, beat in found if beat is not None}


def healths(cluster: Cluster) -> dict[str, Counter[str]]:
    """Return the number of objects by health, as ``trellis explain`` computes it, of each kind that is known."""
    snapshot, knows = cluster.snapshot, cluster.snapshot.knows
    found: dict[str, Counter[str]] = {}
    if knows_enough(cluster):
        found["WorkloadDeployment"] = Counter(deployment_health(cluster, it).health for it in snapshot.deployments)
        found["Workload"] = Counter(workload_health(cluster, it).health for it in snapshot.workloads)
        found["Artifact"] = Counter(artifact_health(cluster, it).health for it in snapshot.artifacts)
    if knows(Part.HOSTS) and knows(Part.WORKLOADS):
        found["Host"] = Counter(host_health(cluster, it).health for it in snapshot.hosts)
    return found
