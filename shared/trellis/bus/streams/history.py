"""Reads the last event on each subject, in the order of publication.

In: JetStream and the requested models. Out: messages, and their events. Called by ``trellis.bus.bus`` for services that
restore their published events from the stream. Invariants: invalid messages are skipped; events are hints, not the
source of truth; a message is parsed when its event is needed, because gaps that thousands of events leave between the
restored state are not returned to the system.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

import nats.errors
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.errors import NotFoundError

from trellis.bus.accounts.naming import LAST_EVENTS, consumer_name
from trellis.bus.consume.message import Origin, UnreadableMessage, read
from trellis.bus.timings import HistoryTimings
from trellis.events.envelope import EventData
from trellis.events.subjects import STREAM_EVENTS, event_filter, spec_of

_BATCH: Final = 500

M = TypeVar("M", bound=EventData)


async def last_messages(
    jetstream: JetStreamContext, origin: Origin, models: Sequence[type[EventData]], timings: HistoryTimings
) -> list[bytes]:
    """Return the last message of these models on each subject of a cluster, oldest first.

    The consumer has a fixed name, which the permissions of the NATS user include; two concurrent readers would share
    the messages. Only the leader reads, so that is possible only until a former leader detects its loss of the Lease:
    events are hints, and a missed event is published again.

    Raises:
        nats.errors.Error: NATS or JetStream did not answer, or became unreachable in between.
    """
    name = consumer_name(origin.service, LAST_EVENTS, origin.cluster)
    with contextlib.suppress(NotFoundError):
        await jetstream.delete_consumer(STREAM_EVENTS, name)  # of an interrupted reader: it would continue
    config = ConsumerConfig(
        name=name,
        filter_subjects=[event_filter(origin.cluster, model) for model in models],
        deliver_policy=DeliverPolicy.LAST_PER_SUBJECT,
        ack_policy=AckPolicy.NONE,
        inactive_threshold=timings.inactive,
        mem_storage=True,
    )
    await jetstream.add_consumer(STREAM_EVENTS, config)
    subscription = await jetstream.pull_subscribe_bind(stream=STREAM_EVENTS, name=name)
    found: list[bytes] = []
    try:
        left = (await subscription.consumer_info()).num_pending or 0
        while left > 0:
            for message in await subscription.fetch(min(left, _BATCH), timeout=timings.fetch):
                left = message.metadata.num_pending
                found.append(message.data)
    finally:
        with contextlib.suppress(nats.errors.Error):
            await subscription.unsubscribe()
    return found


def events_in(messages: list[bytes], models: Sequence[type[M]]) -> Iterator[M]:
    """Yield the event of each message; removes the messages."""
    by_type = {spec_of(model).type: model for model in models}
    messages.reverse()
    while messages:
        try:
            _, event = read(messages.pop(), by_type)
        except UnreadableMessage:
            continue
        yield event
