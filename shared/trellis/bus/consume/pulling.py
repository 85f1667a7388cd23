"""Fetches messages of a JetStream consumer as soon as they arrive.

In: a pull subscription of the NATS client. Out: messages, in order. Called by ``pull_subscription``, ``stream_reader``
and the readers of lattices. The batch fetch of the client is not used: if a message arrives for an earlier request
while the client asks without waiting, it keeps the message until the batch is full or the timeout expires.
"""

from __future__ import annotations

import contextlib
import json

import nats.errors
from nats.aio.msg import Msg
from nats.js import JetStreamContext

from trellis.bus.timings import FetchTimings


async def fetch(
    subscription: JetStreamContext.PullSubscription,
    batch: int,
    seconds: float,
    timings: FetchTimings = FetchTimings(),
) -> list[Msg]:
    """Wait for a message, and return it with the other available messages, at most ``batch`` in total.

    Raises:
        nats.errors.TimeoutError: no message arrived in time, or the consumer no longer exists.
        nats.errors.Error: the server is unreachable.
    """
    found: list[Msg] = await subscription.fetch(1, seconds)
    return found + await more(subscription, batch - len(found), timings.more)


async def more(subscription: JetStreamContext.PullSubscription, batch: int, within: float) -> list[Msg]:
    """Return at most ``batch`` available messages without waiting; after an error, those that were read.

    ``within``: timeout in seconds for one message.

    The next fetch returns a message that arrives later.
    """
    found: list[Msg] = []
    if batch < 1:
        return found
    inbox = subscription._sub  # noqa: SLF001 (no public API)
    with contextlib.suppress(nats.errors.Error, OSError):
        request = json.dumps({"batch": batch, "no_wait": True}).encode()
        await subscription._nc.publish(subscription._nms, request, subscription._deliver)  # noqa: SLF001
        while len(found) < batch:
            message = await inbox.next_msg(within)
            if "Status" in (message.headers or {}):
                break
            found.append(message)
    return found
