"""Requests received over a lattice connection: one member of a queue group answers each.

In: a connected client, a subject, a handler. Out: requests, and their answers. Called by
``trellis.lattice.connection.link``. Invariants: the handler is called in the order of arrival and does not block;
sending an answer has a deadline.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import nats.errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from trellis.bus.connection.user_client import UserClient
from trellis.lattice.domain.errors import require_room

_PENDING_BYTES: Final = 16 * 2**20
_PENDING_MESSAGES: Final = 20_000
"""The library counts payloads alone, and takes half a million messages without one."""
_SYSTEM: Final = "$"
"""What subjects of servers and of JetStream begin with: what is published to ``$KV.<bucket>.<key>`` is written. A
server does not ask whether who names a place for an answer may publish there: who answers would do it for them."""
_TROUBLE: Final = (nats.errors.Error, OSError, ValueError)


class AnswerLost(Exception):  # noqa: N818 - says what happened
    """An answer did not leave: the connection is gone, or where it was to go is no subject."""


@dataclass(frozen=True, slots=True)
class Question:
    """What was asked. ``at`` is when it came, in seconds of the monotonic clock."""

    subject: str
    payload: bytes = field(repr=False)
    headers: Mapping[str, str] | None = field(repr=False)
    at: float
    reply: str = field(repr=False)
    client: UserClient = field(repr=False)

    async def answer(self, body: bytes, headers: dict[str, str] | None = None) -> None:
        """Answer; a question that names no place for it is not answered.

        Raises:
            TooLargeError: nothing was sent, something smaller can be.
            AnswerLost: nothing was sent, and nothing will be.
        """
        if not self.reply:
            return
        if self.reply.startswith(_SYSTEM):
            raise AnswerLost("the reply subject is reserved by NATS")
        require_room(self.client.max_payload, self.reply, body, headers)
        try:
            await self.client.publish(self.reply, body, headers=headers)
        except _TROUBLE as error:
            raise AnswerLost(type(error).__name__) from None


Asked = Callable[[Question], None]
"""Who is asked. It is called in the event loop and must not raise or wait."""


@dataclass(slots=True)
class Counter:
    """One subject at which questions are taken, on the connection of now."""

    subject: str
    queue: str
    asked: Asked
    _client: UserClient | None = None
    _subscription: Subscription | None = None

    async def open(self, client: UserClient) -> None:
        """Take questions on a connection, once; on one that breaks in the meantime it is opened on the next."""
        if client is self._client:
            return
        self._client = client

        async def take(message: Msg) -> None:
            at = time.monotonic()
            self.asked(Question(message.subject, message.data, message.headers, at, message.reply, client))

        with contextlib.suppress(*_TROUBLE):
            self._subscription = await client.subscribe(
                self.subject,
                queue=self.queue,
                cb=take,
                pending_bytes_limit=_PENDING_BYTES,
                pending_msgs_limit=_PENDING_MESSAGES,
            )

    async def close(self, seconds: float) -> None:
        """Take no more; what has arrived is handed over before this returns, or the seconds are over."""
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            with contextlib.suppress(*_TROUBLE, TimeoutError):
                async with asyncio.timeout(seconds):
                    await subscription.drain()  # type: ignore[no-untyped-call] # the library lacks the annotation
