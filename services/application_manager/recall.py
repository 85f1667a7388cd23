"""Restores from NATS the published events of Applications, so that a new leader publishes changes only.

In: the last event of each subject. Out: the memory of what was published. Called once, before the first run of a key.
Invariant: a lost stream is no trouble: then all is published again, which readers take without harm.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from application_manager.domain.facts import Published
from trellis.bus.bus import Bus
from trellis.events.applications import (
    ApplicationDeleted,
    ApplicationFact,
    ApplicationOverridden,
    ApplicationRejected,
    ApplicationSynced,
)


async def recall(published: Published, bus: Bus) -> None:
    """Read back the last event about each Application; the deletion of one that is gone is published afterwards."""
    kinds = (ApplicationSynced, ApplicationOverridden, ApplicationRejected, ApplicationDeleted)
    facts: AsyncIterator[ApplicationFact] = bus.last_facts(kinds)
    async for fact in facts:
        published.note(fact)
