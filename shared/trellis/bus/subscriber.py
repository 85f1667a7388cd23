"""One subscription: a durable consumer, its messages read, handed over, or given up on.

In: messages of the facts' stream. Out: ``Received`` for the service's handler, dead letters for what cannot be read.
Called by ``trellis.bus.keeper``. Invariants: a message is acknowledged only by who did the work, or once its dead
letter is stored; no exception reaches FastStream, which would drop the message without a word.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import nats.errors
from faststream import AckPolicy as FastStreamAckPolicy
from faststream.message import StreamMessage
from faststream.nats import JStream, NatsBroker, PullSub
from faststream.nats.subscriber.usecases import PullStreamSubscriber
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.errors import NotFoundError
from opentelemetry.trace import SpanKind

from trellis.bus.ack import Ack
from trellis.bus.connection import client_of
from trellis.bus.dead import Delivered, Letter, letter
from trellis.bus.errors import BusError
from trellis.bus.message import NewerVersion, Origin, Reason, UnreadableMessage, read, trace_of
from trellis.bus.naming import consumer_name
from trellis.bus.specification import payload_of
from trellis.bus.streams import Epoch
from trellis.events.envelope import FactData, RawCloudEvent
from trellis.events.subjects import STREAM_EVENTS, fact_filter, spec_of
from trellis.telemetry import Telemetry, TraceContext, context_from, current_trace, get_logger

ACK_WAIT_SECONDS: Final = 60.0
MAX_DELIVERIES: Final = 5
# Durables of a service that is gone vanish by themselves.
_INACTIVE_SECONDS: Final = 7 * 86_400.0
# A batch is handed over as soon as the server has no more, so a lone message does not wait for others.
_BATCH: Final = 100
_FETCH_SECONDS: Final = 5.0

_log = get_logger(__name__)
M = TypeVar("M", bound=FactData)


@dataclass(frozen=True, slots=True)
class Received(Generic[M]):
    """A fact that was heard. ``trace`` is where its handling begins: the parent for the work it causes."""

    fact: M
    event: RawCloudEvent
    trace: TraceContext | None
    sequence: int
    deliveries: int
    ack: Ack


FactHandler = Callable[[Received[M]], None]


@dataclass(frozen=True, slots=True)
class Reader:
    """What all subscriptions of a service share. ``bury`` stores a dead letter and raises BusError if it cannot."""

    origin: Origin
    telemetry: Telemetry
    bury: Callable[[Letter], Awaitable[None]]
    room: Callable[[], int]
    ack_wait: float = ACK_WAIT_SECONDS


class Subscription(Generic[M]):
    """The facts of some models, for one purpose (``name``) of one service."""

    def __init__(self, name: str, models: Sequence[type[M]], handler: FactHandler[M], reader: Reader) -> None:
        self.name: Final = name
        self._models = {spec_of(model).type: model for model in models}
        self._handler = handler
        self._reader = reader
        self._subscriber: PullStreamSubscriber | None = None
        self._epoch: Epoch | None = None
        self._began = False
        self._told: set[str] = set()
        # Weak: what nobody holds any more is nobody's work, and is to come again.
        self._open: weakref.WeakSet[Ack] = weakref.WeakSet()

    @property
    def running(self) -> bool:
        """Whether messages are being fetched."""
        return self._subscriber is not None

    def durable(self, epoch: Epoch) -> str:
        """Return the consumer's name; where sequences begin again it is another one in another life of the stream."""
        name = consumer_name(self._reader.origin.service, self.name, self._reader.origin.cluster)
        return name if epoch.distinct else f"{name}-{epoch.token}"

    async def start(self, broker: NatsBroker, epoch: Epoch) -> bool:
        """Make the consumer if it is missing, and fetch from it.

        Returns:
            Whether the consumer was gone since the last start: facts may have been missed in between.

        Raises:
            nats.errors.Error: NATS or JetStream did not answer, or refused.
        """
        config = self.config(epoch)
        # Created or updated here: FastStream leaves the filters of a consumer that exists as they were.
        jetstream = broker.config.connection_state.stream
        existed = await self._exists(jetstream, epoch)
        await jetstream.add_consumer(STREAM_EVENTS, config)
        # FastStream does not pass the client's prefix on.
        subscriber = self.register(broker, config, inbox_prefix=bytes(client_of(broker)._inbox_prefix) + b".")  # noqa: SLF001
        self._epoch = epoch
        await subscriber.start()
        self._subscriber = subscriber
        again, self._began = self._began, True
        return again and not existed

    def register(
        self, broker: NatsBroker, config: ConsumerConfig, *, inbox_prefix: bytes = b"_INBOX."
    ) -> PullStreamSubscriber:
        """Return the subscription as FastStream has it; it does nothing, and the broker may be one without a server."""
        subscriber = broker.subscriber(
            durable=config.durable_name,
            config=config,
            stream=JStream(STREAM_EVENTS, declare=False),
            pull_sub=PullSub(batch_size=_BATCH, timeout=_FETCH_SECONDS),
            inbox_prefix=inbox_prefix,
            ack_policy=FastStreamAckPolicy.MANUAL,
            decoder=_undecoded,
            persistent=False,
            title=self.name,
        )

        async def receive(message: StreamMessage[Msg]) -> None:
            await self._receive(message)

        # For FastStream's AsyncAPI document alone: with ``apply_types`` off nothing is made of it when a message comes.
        receive.__annotations__["message"] = payload_of(self._models.values())
        subscriber(receive)
        return subscriber

    async def consumer_exists(self, jetstream: JetStreamContext) -> bool:
        """Return whether the consumer is still there; raises nats.errors.Error if that cannot be known."""
        return self._epoch is not None and await self._exists(jetstream, self._epoch)

    async def _exists(self, jetstream: JetStreamContext, epoch: Epoch) -> bool:
        try:
            await jetstream.consumer_info(STREAM_EVENTS, self.durable(epoch))
        except NotFoundError:
            return False
        return True

    async def stop(self) -> None:
        """Fetch no more, whatever state the connection is in. What is not acknowledged will come again."""
        subscriber, self._subscriber = self._subscriber, None
        if subscriber is None:
            return
        with contextlib.suppress(nats.errors.Error):
            await subscriber.stop()
        for task in subscriber.tasks:
            task.cancel()

    def let_go(self) -> None:
        """Report no message as worked on any more: whoever consumes next is to get it, though it is still held here."""
        self._open.clear()

    async def keep_alive(self) -> None:
        """Say of every message that is still worked on that it is: deliveries count crashes, not patience."""
        for ack in list(self._open):
            if ack.open:
                await ack.in_progress()
            else:
                self._open.discard(ack)

    def config(self, epoch: Epoch) -> ConsumerConfig:
        """Return the consumer as it is to be in this life of the stream."""
        durable = self.durable(epoch)
        return ConsumerConfig(
            name=durable,
            durable_name=durable,
            filter_subjects=[fact_filter(self._reader.origin.cluster, model) for model in self._models.values()],
            deliver_policy=DeliverPolicy.NEW,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=self._reader.ack_wait,
            # Messages that wait for a retry must not hold up healthy ones.
            max_ack_pending=-1,
            max_deliver=-1,
            inactive_threshold=_INACTIVE_SECONDS,
        )

    async def _receive(self, message: StreamMessage[Msg]) -> None:
        """Handle one delivery. An exception would vanish in FastStream: the message is left to come again."""
        try:
            await self._handle(message.raw_message)
        except Exception as error:  # noqa: BLE001
            _log.error("a message could not be handled", subject=message.raw_message.subject, exc_info=error)

    async def _handle(self, raw: Msg) -> None:
        epoch = self._epoch
        if epoch is None or epoch.over:
            return
        meta = raw.metadata
        ack = Ack(raw._client, raw.reply, epoch, meta.sequence.stream)  # noqa: SLF001 (no public accessor)
        delivered = Delivered(
            raw.subject,
            STREAM_EVENTS,
            epoch.token,
            meta.sequence.stream,
            meta.num_delivered,
            raw.data,
            raw.headers or {},
        )
        if delivered.deliveries > MAX_DELIVERIES:
            await self._give_up(delivered, ack, Reason.NO_RESULT, f"delivered {MAX_DELIVERIES} times without a result")
            return
        try:
            event, fact = read(raw.data, self._models)
        except NewerVersion as newer:
            await self._leave_alone(newer, ack)
            return
        except UnreadableMessage as unreadable:
            await self._give_up(delivered, ack, unreadable.reason, str(unreadable))
            return
        self._hand_over(delivered, event, fact, ack)

    def _hand_over(self, delivered: Delivered, event: RawCloudEvent, fact: M, ack: Ack) -> None:
        telemetry, spec = self._reader.telemetry, spec_of(type(fact))
        telemetry.metrics.facts_received_total.labels(telemetry.service, spec.type).inc()
        with telemetry.tracer.start_as_current_span(
            f"receive {spec.tokens}",
            context=context_from(trace_of(delivered.headers, event)),
            kind=SpanKind.CONSUMER,
            attributes={
                "messaging.system": "nats",
                "messaging.destination.name": delivered.subject,
                "messaging.message.id": event.id,
                "messaging.consumer.group.name": self.name,
            },
        ) as span:
            received: Received[M] = Received(
                fact, event, current_trace(), delivered.sequence, delivered.deliveries, ack
            )
            try:
                self._handler(received)
            except Exception as error:  # noqa: BLE001 (whatever the handler does wrong, the next message is heard)
                # Not acknowledged: it comes again, and in the end becomes a dead letter.
                span.record_exception(error)
                _log.error("a fact could not be handled", type=spec.type, error=repr(error), exc_info=error)
                return
        self._open.add(ack)

    async def _leave_alone(self, newer: NewerVersion, ack: Ack) -> None:
        """What it says is said in the version read here too, beside it: there is nothing to do, nor to keep."""
        telemetry = self._reader.telemetry
        telemetry.metrics.facts_too_new_total.labels(telemetry.service, newer.known).inc()
        if newer.known not in self._told:
            self._told.add(newer.known)
            _log.info("facts of a newer version are left to newer readers", subscription=self.name, reason=str(newer))
        await ack()

    async def _give_up(self, delivered: Delivered, ack: Ack, reason: Reason, error: str) -> None:
        origin, metrics = self._reader.origin, self._reader.telemetry.metrics
        try:
            await self._reader.bury(
                letter(
                    delivered,
                    cluster=origin.cluster,
                    reader=(origin.service, self.name),
                    reason=reason,
                    error=error,
                    room=self._reader.room(),
                )
            )
            await ack()
        except (BusError, nats.errors.Error) as failure:
            _log.warning("a dead letter could not be stored yet", subject=delivered.subject, error=str(failure))
            return
        metrics.dead_letters_total.labels(origin.service, reason).inc()
        _log.error("gave up on a message", subject=delivered.subject, reason=str(reason), error=error)


async def _undecoded(message: StreamMessage[Msg]) -> StreamMessage[Msg]:
    """Leave the message as it came: FastStream would drop a body it cannot decode without a word."""
    return message
