"""Requests received over a lattice connection: one member of a queue group answers each.

In: a connected client, a subject, a handler. Out: requests, and their answers. Called by
``trellis.lattice.connection.lattice_connection``. Invariants: the handler is called in the order of arrival and does
not block; sending an answer has a deadline.
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
from trellis.lattice.domain.errors import require_payload_limit

_PENDING_BYTES: Final = 16 * 2**20
_PENDING_MESSAGES: Final = 20_000
"""Limit on messages: the library counts payloads only, and accepts 500,000 messages without payload."""
_SYSTEM: Final = "$"
"""Prefix of subjects of servers and JetStream: a message to ``$KV.<bucket>.<key>`` is a write. The server does not
check whether a requester may publish to its reply subject, so an answer there would write on its behalf."""
_TROUBLE: Final = (nats.errors.Error, OSError, ValueError)


class AnswerLost(Exception):  # noqa: N818 - names the event
    """An answer was not sent: the connection is lost, or the reply subject is invalid."""


@dataclass(frozen=True, slots=True)
class IncomingRequest:
    """A request. ``at``: its arrival, in seconds of the monotonic clock."""

    subject: str
    payload: bytes = field(repr=False)
    headers: Mapping[str, str] | None = field(repr=False)
    at: float
    reply: str = field(repr=False)
    client: UserClient = field(repr=False)

    async def answer(self, body: bytes, headers: dict[str, str] | None = None) -> None:
        """Send the answer; a request without a reply subject gets none.

        Raises:
            TooLargeError: nothing was sent; a smaller answer can be sent.
            AnswerLost: nothing was sent, and the request cannot be answered.
        """
        if not self.reply:
            return
        if self.reply.startswith(_SYSTEM):
            raise AnswerLost("the reply subject is reserved by NATS")
        require_payload_limit(self.client.max_payload, self.reply, body, headers)
        try:
            await self.client.publish(self.reply, body, headers=headers)
        except _TROUBLE as error:
            raise AnswerLost(type(error).__name__) from None


RequestHandler = Callable[[IncomingRequest], None]
"""Handler of requests. It is called in the event loop and must not raise or block."""


@dataclass(slots=True)
class RequestSubscription:
    """A subject with a handler of its requests, on the current connection."""

    subject: str
    queue: str
    handler: RequestHandler
    _client: UserClient | None = None
    _subscription: Subscription | None = None

    async def open(self, client: UserClient) -> None:
        """Subscribe once per connection; if that connection fails, the next call subscribes on a new one."""
        if client is self._client:
            return
        self._client = client

        async def take(message: Msg) -> None:
            at = time.monotonic()
            self.handler(IncomingRequest(message.subject, message.data, message.headers, at, message.reply, client))

        with contextlib.suppress(*_TROUBLE):
            self._subscription = await client.subscribe(
                self.subject,
                queue=self.queue,
                cb=take,
                pending_bytes_limit=_PENDING_BYTES,
                pending_msgs_limit=_PENDING_MESSAGES,
            )

    async def close(self, seconds: float) -> None:
        """Unsubscribe; requests that already arrived are delivered first, for at most ``seconds``."""
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            with contextlib.suppress(*_TROUBLE, TimeoutError):
                async with asyncio.timeout(seconds):
                    await subscription.drain()  # type: ignore[no-untyped-call] # the library lacks the annotation
