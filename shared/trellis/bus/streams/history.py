"""Reads the last event on each subject, in the order of publication.

In: JetStream and the requested models. Out: events. Called by ``trellis.bus.bus`` for services that restore their
published events from the stream. Invariant: invalid messages are skipped; events are hints, not the source of truth.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
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


async def last_events(
    jetstream: JetStreamContext, origin: Origin, models: Sequence[type[M]], timings: HistoryTimings
) -> list[M]:
    """Return the last event of these models on each subject of a cluster, oldest first.

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
    by_type = {spec_of(model).type: model for model in models}
    await jetstream.add_consumer(STREAM_EVENTS, config)
    subscription = await jetstream.pull_subscribe_bind(stream=STREAM_EVENTS, name=name)
    events: list[M] = []
    try:
        left = (await subscription.consumer_info()).num_pending or 0
        while left > 0:
            for message in await subscription.fetch(min(left, _BATCH), timeout=timings.fetch):
                left = message.metadata.num_pending
                with contextlib.suppress(UnreadableMessage):
                    events.append(read(message.data, by_type)[1])
    finally:
        with contextlib.suppress(nats.errors.Error):
            await subscription.unsubscribe()
    return events
