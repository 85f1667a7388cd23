"""Publishes to JetStream: a message is published when the server has stored it.

In: subject, body, headers. Out: the acknowledgement of the server, or an error. Called by ``trellis.bus.bus``.
Invariant: every message has a Nats-Msg-Id, so a repeated send after a lost answer is stored once.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import nats.errors
from faststream.nats import NatsBroker
from nats.js.api import PubAck
from nats.js.errors import APIError, BadRequestError, NoStreamResponseError

from trellis.bus.connection.connection import client_of, describe
from trellis.bus.connection.user_client import PermissionDenied
from trellis.bus.dead_letters.write import header_bytes
from trellis.bus.errors import BusUnavailable, EventRefused, NotAllowed
from trellis.bus.publish.availability import Availability
from trellis.bus.streams.streams import LEAST_MESSAGE
from trellis.bus.timings import BusTimings
from trellis.limits.backoff import Backoff

_AGAIN: Final = Backoff(first=0.1, cap=1.0)
# Error codes of JetStream's API: server/errors.json of nats-server. A message over the max_msg_size of the stream; bad
# requests that do not concern the message: an account over its limits, a sealed stream.
_TOO_LARGE: Final = 10054
_OF_THE_STREAM: Final = frozenset({10002, 10109})


@dataclass(frozen=True, slots=True)
class Publisher:
    """Publishes while the bus is usable, waits while it is not. ``suspect`` is called if a stream may be missing."""

    availability: Availability
    broker: Callable[[], NatsBroker | None]
    suspect: Callable[[], None]
    timings: BusTimings

    async def send(self, stream: str, subject: str, body: bytes, headers: dict[str, str]) -> int:
        """Store one message and return its sequence; safe for concurrent calls.

        Raises:
            BusUnavailable: not stored within the budget (seconds), or NATS has been unreachable for longer; the message
                may still be stored later, once.
            NotAllowed: the NATS user lacks the permission to publish it; raised at once.
            EventRefused: the message can never be stored.
        """
        last = self.availability.reason
        try:
            # A longer outage has used up the budget: callers have work that does not need the bus.
            async with asyncio.timeout(max(0.0, self.timings.publish_budget - self.availability.unavailable_seconds)):
                for attempt in itertools.count(1):
                    await self.availability.usable.wait()
                    try:
                        sequence = await self._attempt(stream, subject, body, headers)
                    except (nats.errors.Error, OSError) as error:
                        last = describe(error)
                        if isinstance(error, NoStreamResponseError):
                            last = f"stream {stream} does not answer"
                            self.suspect()
                        await asyncio.sleep(_AGAIN.delay(attempt))
                    else:
                        self.availability.stored(stream)
                        return sequence
        except TimeoutError:
            pass
        reason = last if self.availability.usable.is_set() else self.availability.reason
        if self.availability.answering_seconds >= self.timings.publish_budget:
            self.availability.unstored(stream, last)
        raise BusUnavailable(f"{subject} could not be published within {self.timings.publish_budget:g} s: {reason}")

    async def _attempt(self, stream: str, subject: str, body: bytes, headers: dict[str, str]) -> int:
        broker = self.broker()
        if broker is None:
            raise nats.errors.ConnectionReconnectingError
        max_bytes = client_of(broker).max_payload
        if len(body) + header_bytes(headers) > max_bytes:
            # The server would close the connection.
            raise EventRefused(f"{subject} has {len(body)} bytes, the max_payload of the NATS server is {max_bytes}")
        try:
            stored: PubAck = await broker.config.connection_state.stream.publish(
                subject, body, timeout=self.timings.publish_attempt, headers=dict(headers)
            )
        except PermissionDenied as error:
            self.availability.refused(str(error))
            raise NotAllowed(str(error)) from error
        except APIError as error:
            if error.err_code == _TOO_LARGE:
                if len(body) > LEAST_MESSAGE:
                    raise EventRefused(
                        f"{subject} has {len(body)} bytes, more than the max_msg_size of stream {stream}"
                    ) from error
            elif isinstance(error, BadRequestError) and error.err_code not in _OF_THE_STREAM:
                raise EventRefused(f"stream {stream} rejected {subject}: {error.description}") from error
            raise
        return stored.seq
