"""Subscriptions of a lattice connection: subjects and their handlers, over reconnects.

In: subjects and handlers, connections. Out: calls of the handlers, and reports that the message rate exceeds the bound.
Called by ``lattice_connection``. Invariants: subscriptions outlive connections; messages above the bound are dropped
and reported, because absence of a dropped message proves nothing.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Final

import nats.errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from trellis.lattice.connection.client import UntrustedNatsClient
from trellis.limits.token_bucket import TokenBucket

MessageHandler = Callable[[str, bytes], None]
"""Handler of a message: subject, payload. It is called in the event loop and must not raise or block."""
TROUBLE: Final = (nats.errors.Error, OSError, TimeoutError)
"""Errors of calls of the library on a failed connection."""
MESSAGES_PER_SECOND: Final = 2_000.0
"""Limit of one connection for all its lattices; 5,000 hosts send 167 heartbeats per second."""
MESSAGES_AT_ONCE: Final = 20_000.0
BYTES_PER_SECOND: Final = 4.0 * 2**20
"""Limit of one connection. Parsing: up to 0.14 s for a heartbeat of 1 MiB (measured), 0.01 ms for a real one."""
BYTES_AT_ONCE: Final = 64.0 * 2**20
PENDING_BYTES: Final = 16 * 2**20
PENDING_MESSAGES: Final = 20_000
"""Limit of one subscription: the library counts payloads only, and accepts 500,000 messages without payload."""

ANSWERS_BYTES: Final = 16 * 2**20
"""Limit on all answers to one request that every host answers; one answer has some hundred bytes."""
_STATUS: Final = "Status"
_MOST: Final = f"{MESSAGES_PER_SECOND:,.0f} messages and {BYTES_PER_SECOND / 2**20:.0f} MiB a second"


class Subscriptions:
    """Subscriptions of one lattice connection. ``client``: the current connection, None if there is none.

    ``too_much`` is called with a message for users when at least one message was dropped because of the limits.
    """

    def __init__(self, too_much: Callable[[str], None]) -> None:
        self._too_much = too_much
        self._listeners: dict[str, list[MessageHandler]] = {}
        self._subscriptions: dict[str, Subscription] = {}
        self._messages = TokenBucket(MESSAGES_PER_SECOND, MESSAGES_AT_ONCE)
        self._bytes = TokenBucket(BYTES_PER_SECOND, BYTES_AT_ONCE)

    async def add(self, subject: str, handler: MessageHandler, client: UntrustedNatsClient | None) -> None:
        """Subscribe to a subject; the subscription is restored after each outage."""
        self._listeners.setdefault(subject, []).append(handler)
        if client is not None and subject not in self._subscriptions:
            with contextlib.suppress(*TROUBLE):  # the next connection subscribes
                await self._subscribe(client, subject)

    async def drop(self, subject: str, handler: MessageHandler) -> None:
        """Unsubscribe a handler from a subject."""
        listeners = self._listeners.get(subject, [])
        if handler in listeners:
            listeners.remove(handler)
        if listeners:
            return
        self._listeners.pop(subject, None)
        subscription = self._subscriptions.pop(subject, None)
        if subscription is not None:
            with contextlib.suppress(*TROUBLE):
                await subscription.unsubscribe()

    async def open(self, client: UntrustedNatsClient) -> None:
        """Subscribe to all subjects on a new connection; raises one of ``TROUBLE``."""
        for subject in list(self._listeners):
            await self._subscribe(client, subject)

    def closed(self) -> None:
        """Drop the subscriptions of a lost connection."""
        self._subscriptions.clear()

    def has(self, subscription: Subscription) -> bool:
        """Return whether a subscription belongs to this connection."""
        return any(item is subscription for item in self._subscriptions.values())

    async def _subscribe(self, client: UntrustedNatsClient, subject: str) -> None:
        async def take(message: Msg) -> None:
            if not self._within_limits(message):
                self._too_much(f"message rate on {subject} exceeds the limit: {_MOST}")
                return
            for handler in tuple(self._listeners.get(subject, ())):
                handler(message.subject, message.data)

        self._subscriptions[subject] = await client.subscribe(
            subject, cb=take, pending_bytes_limit=PENDING_BYTES, pending_msgs_limit=PENDING_MESSAGES
        )

    def _within_limits(self, message: Msg) -> bool:
        now = time.monotonic()
        return self._messages.take(now) and self._bytes.take(now, len(message.data))


class Answers:
    """The answers to one request to all hosts: at most ``most`` answers, and ``ANSWERS_BYTES``, are kept."""

    def __init__(self, most: int) -> None:
        self.taken: list[bytes] = []
        self._most = most
        self._room = ANSWERS_BYTES

    async def take(self, message: Msg) -> None:
        """Store an answer, or drop it if a limit is reached."""
        if _STATUS in (message.headers or {}) or len(self.taken) >= self._most:  # a status means: no responders
            return
        self._room -= len(message.data)
        if self._room >= 0:
            self.taken.append(message.data)
