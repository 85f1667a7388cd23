"""Restores from NATS the published events of Services, so that a new leader publishes changes only.

In: the last event of each subject. Out: the memory of what was published. Called once, before the first run of a key.
Invariant: a lost stream is no trouble: then all is published again, which readers take without harm.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from service_reflector.gather import Cache
from trellis.bus.bus import Bus
from trellis.events.envelope import FactData
from trellis.events.services import ServiceReflected, ServiceRemoved


async def recall(cache: Cache, bus: Bus) -> None:
    """Read back the last event about each Service; the removal of one that is gone is published afterwards."""
    facts: AsyncIterator[FactData] = bus.last_facts((ServiceReflected, ServiceRemoved))
    async for fact in facts:
        assert isinstance(fact, ServiceReflected | ServiceRemoved)
        key = f"{fact.namespace}/{fact.name}"
        said = cache.said.setdefault(f"{fact.namespace}/{fact.application}", {})
        if isinstance(fact, ServiceReflected):
            said[key] = fact
        elif key in said and said[key].uid == fact.uid:
            del said[key]
