"""The durable consumer of one subscription on the server.

In: JetStream and the epoch of the stream. Out: the consumer, created, updated or inspected. Called by ``subscriber``.
Invariants: the server limits neither deliveries nor messages in flight, because Trellis does the retries. A reader
registers when it starts and deregisters when it hands over, so that the next reader detects crashes of former ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, ConsumerInfo, DeliverPolicy
from nats.js.errors import NotFoundError

from trellis.bus.accounts.naming import consumer_name
from trellis.bus.streams.streams import Epoch
from trellis.events.subjects import STREAM_EVENTS
from trellis.installer_api.parse_int import whole

# Seconds of inactivity after which the server removes the durable consumer.
_KEPT_INACTIVE: Final = 7 * 86_400.0
# On the consumer: number of consecutive readers that ended without signing off. Incremented at start, to count crashes.
_CRASHES: Final = "trellis-readers-crashed"
# On the consumer: the reader that signed on last. Two that alternate are two clusters.
_READER: Final = "trellis-reader"


@dataclass(frozen=True, slots=True)
class Consumer:
    """The desired consumer on the server. ``ack_wait`` and ``sign_off_within``, the timeout, are in seconds."""

    service: str
    cluster: str
    purpose: str
    filters: Sequence[str]
    ack_wait: float
    sign_off_within: float
    reader: str = ""

    def durable(self, epoch: Epoch) -> str:
        """Return the durable name; it includes the epoch if the sequences of a re-created stream could repeat."""
        name = consumer_name(self.service, self.purpose, self.cluster)
        return name if epoch.distinct else f"{name}-{epoch.token}"

    def config(self, epoch: Epoch) -> ConsumerConfig:
        """Return the desired configuration in this epoch of the stream."""
        durable = self.durable(epoch)
        return ConsumerConfig(
            name=durable,
            durable_name=durable,
            filter_subjects=list(self.filters),
            deliver_policy=DeliverPolicy.NEW,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=self.ack_wait,
            # Messages that wait for a retry must not delay healthy ones.
            max_ack_pending=-1,
            max_deliver=-1,
            inactive_threshold=_KEPT_INACTIVE,
        )

    async def info(self, jetstream: JetStreamContext, epoch: Epoch) -> ConsumerInfo | None:
        """Return the consumer's state, or None if it does not exist; raises nats.errors.Error without an answer."""
        try:
            found: ConsumerInfo = await jetstream.consumer_info(STREAM_EVENTS, self.durable(epoch))
        except NotFoundError:
            return None
        return found

    async def sign_on(self, jetstream: JetStreamContext, epoch: Epoch, crashes: int) -> None:
        """Create or update the consumer; this reader counts as crashed until it signs off."""
        await jetstream.add_consumer(STREAM_EVENTS, self.config(epoch), metadata=self._metadata(crashes + 1))

    async def sign_off(self, jetstream: JetStreamContext, epoch: Epoch) -> None:
        """Record that this reader ended in order; raises nats.errors.Error if the server did not answer in time."""
        await jetstream.add_consumer(
            STREAM_EVENTS, self.config(epoch), timeout=self.sign_off_within, metadata=self._metadata(0)
        )

    def _metadata(self, crashes: int) -> dict[str, str]:
        return {_CRASHES: str(crashes), _READER: self.reader}


def reader_of(info: ConsumerInfo) -> str:
    """Return the reader that signed on last, or "" if the consumer names none."""
    return (info.config.metadata or {}).get(_READER, "")


def crashes(info: ConsumerInfo | None) -> int:
    """Return the number of consecutive last readers of a consumer that ended without signing off."""
    value = ((info.config.metadata if info else None) or {}).get(_CRASHES, "")
    return whole(value) or 0
