"""Reads back from the bus which pods and host groups were ready, so that a new leader publishes changes only.

In: the last event of each subject. Out: the memory of what was published. Called once, before the first run of a key.
Invariant: a lost stream is no trouble: then all is published again, which readers take without harm.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from host_manager.gather import Cache
from trellis.bus.bus import Bus
from trellis.events.envelope import FactData
from trellis.events.hosts import HostPodGone, HostPodReady, HostsReady


async def recall(cache: Cache, bus: Bus) -> None:
    """Read back which pods were published as ready; the end of one that is gone is published afterwards."""
    facts: AsyncIterator[FactData] = bus.last_facts((HostPodReady, HostPodGone, HostsReady))
    async for fact in facts:
        if isinstance(fact, HostsReady):
            cache.said.groups[f"{fact.namespace}/{fact.name}"] = f"{fact.uid}.{fact.generation}.ready"
            continue
        assert isinstance(fact, HostPodReady | HostPodGone)
        key = f"{fact.namespace}/{fact.name}"
        if isinstance(fact, HostPodReady):
            cache.said.ready[key] = fact
        elif (said := cache.said.ready.get(key)) is not None and said.uid == fact.uid:
            del cache.said.ready[key]
