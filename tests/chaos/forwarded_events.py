"""Compare the events of a lattice with the events on the bus: each of them once.

In: a lattice's NATS, the bus. Out: messages about missing or repeated events. Called by ``crashes``. Events are
received as they are published, as wadm keeps them for 70 s only.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator
from typing import Final

import nats
from nats.aio.msg import Msg

from support.suite.settling import settle

_STREAM: Final = "TRELLIS_LATTICE"
_SECONDS: Final = 0.5
_BATCH: Final = 100


@contextlib.asynccontextmanager
async def received_events(url: str, lattice: str) -> AsyncIterator[set[str]]:
    """Receive wadm's events of a lattice for the time of a block: the set of their ids, which grows."""
    ids: set[str] = set()

    async def take(message: Msg) -> None:
        ids.add(json.loads(message.data)["id"])

    client = await nats.connect(url)
    try:
        await client.subscribe(f"wadm.evt.{lattice}.>", cb=take)
        await settle(client)
        yield ids
    finally:
        await client.close()


async def wrongly_forwarded(event_ids: set[str], url: str, cluster: str, lattice: str) -> AsyncIterator[str]:
    """Yield differences between the lattice's events and the bus."""
    copies = await _ids(url, f"trellis.lattice.{cluster}.{lattice}.>")
    for event in event_ids:
        if not copies[event]:
            yield f"event {event} of the lattice is not on the bus"
    for event, count in copies.items():
        if count > 1:
            yield f"event {event} of the lattice is on the bus {count} times"


async def _ids(url: str, subject: str) -> Counter[str]:
    """Return how often each event's id is among the forwarded events."""
    client = await nats.connect(url)
    try:
        reader = await client.jetstream().pull_subscribe(subject, stream=_STREAM)
        found: Counter[str] = Counter()
        while True:
            try:
                messages = await reader.fetch(_BATCH, timeout=_SECONDS)
            except TimeoutError:
                return found
            for message in messages:
                found[json.loads(message.data)["id"]] += 1
                await message.ack()
    finally:
        await client.close()
