"""What a connection to the NATS of lattices hears: subjects, and who is told.

In: subjects and handlers, connections as they come. Out: calls of the handlers. Called by ``link``. Invariant: what is
to be heard outlives every connection; one that goes takes only its subscriptions along.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Final

import nats.errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from trellis.lattice.client import StrangerClient

Heard = Callable[[str, bytes], None]
"""What is done with a message: subject, payload. It is called in the event loop and must not raise or wait."""
TROUBLE: Final = (nats.errors.Error, OSError, TimeoutError)
"""What a call of the library may raise when the connection is not as it should be."""
_PENDING_BYTES: Final = 16 * 2**20


class Hearing:
    """Subjects of one link. ``client``: the connection of now, None while there is none."""

    def __init__(self) -> None:
        self._listeners: dict[str, list[Heard]] = {}
        self._subscriptions: dict[str, Subscription] = {}

    async def add(self, subject: str, heard: Heard, client: StrangerClient | None) -> None:
        """Hear a subject from now on, also after every outage."""
        self._listeners.setdefault(subject, []).append(heard)
        if client is not None and subject not in self._subscriptions:
            with contextlib.suppress(*TROUBLE):  # it is heard from the next connection on
                await self._subscribe(client, subject)

    async def drop(self, subject: str, heard: Heard) -> None:
        """Do not hear a subject any more."""
        listeners = self._listeners.get(subject, [])
        if heard in listeners:
            listeners.remove(heard)
        if listeners:
            return
        self._listeners.pop(subject, None)
        subscription = self._subscriptions.pop(subject, None)
        if subscription is not None:
            with contextlib.suppress(*TROUBLE):
                await subscription.unsubscribe()

    async def open(self, client: StrangerClient) -> None:
        """Hear everything by a new connection; raises one of ``TROUBLE``."""
        for subject in list(self._listeners):
            await self._subscribe(client, subject)

    def closed(self) -> None:
        """Note that the connection is gone."""
        self._subscriptions.clear()

    async def _subscribe(self, client: StrangerClient, subject: str) -> None:
        async def take(message: Msg) -> None:
            for heard in tuple(self._listeners.get(subject, ())):
                heard(message.subject, message.data)

        self._subscriptions[subject] = await client.subscribe(subject, cb=take, pending_bytes_limit=_PENDING_BYTES)
