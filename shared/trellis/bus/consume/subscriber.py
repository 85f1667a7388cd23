"""A subscription: a durable consumer whose messages are parsed, handed over, or dead-lettered.

In: messages of the event stream. Out: ``Received`` for the handler of the service, dead letters for invalid messages.
Called by ``trellis.bus.streams.connection_supervisor``. Invariants: a message is acknowledged only after its work is
done, or after its dead letter is stored; no exception reaches FastStream, which would drop the message silently.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar, cast

import nats.errors
from faststream import AckPolicy as FastStreamAckPolicy
from faststream.message import StreamMessage
from faststream.nats import JStream, NatsBroker, PullSub
from faststream.nats.subscriber.usecases import PullStreamSubscriber
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from opentelemetry.trace import SpanKind

from trellis.bus.connection.connection import client_of
from trellis.bus.consume.ack import Ack
from trellis.bus.consume.consumer import Consumer, crashes, reader_of
from trellis.bus.consume.in_flight import MAX_DELIVERIES, InFlight
from trellis.bus.consume.message import NewerVersion, Origin, Reason, UnreadableMessage, read, trace_of
from trellis.bus.consume.other_reader import OtherReader
from trellis.bus.consume.pull_subscription import PullLoop
from trellis.bus.consume.staleness import Listeners, Staleness
from trellis.bus.dead_letters.write import DeadLetterMessage, Delivered, make_dead_letter
from trellis.bus.errors import BusError
from trellis.bus.streams.specification import payload_of
from trellis.bus.streams.streams import Epoch
from trellis.bus.timings import BusTimings
from trellis.events.envelope import EventData, RawCloudEvent
from trellis.events.subjects import STREAM_EVENTS, event_filter, spec_of
from trellis.telemetry import Telemetry, TraceContext, context_from, current_trace, get_logger

# A batch is handed over as soon as the server has no more messages, so a single message does not wait.
_BATCH: Final = 100

_log = get_logger(__name__)
M = TypeVar("M", bound=EventData)


@dataclass(frozen=True, slots=True)
class Received(Generic[M]):
    """A received event. ``trace`` is the context of its handling: the parent of the resulting spans."""

    data: M
    event: RawCloudEvent
    trace: TraceContext | None
    sequence: int
    deliveries: int
    ack: Ack


EventHandler = Callable[[Received[M]], None]


@dataclass(frozen=True, slots=True)
class Reader:
    """The shared parts of a service's subscriptions. ``dead_letter`` stores a dead letter, or raises BusError."""

    origin: Origin
    telemetry: Telemetry
    dead_letter: Callable[[DeadLetterMessage], Awaitable[None]]
    max_bytes: Callable[[], int]
    listeners: Listeners
    timings: BusTimings


class Subscription(Generic[M]):
    """The events of some models, for one purpose (``name``) of one service."""

    def __init__(self, name: str, models: Sequence[type[M]], handler: EventHandler[M], reader: Reader) -> None:
        self.name: Final = name
        self._models = {spec_of(model).type: model for model in models}
        self._handler = handler
        self._reader = reader
        self._subscriber: PullStreamSubscriber | None = None
        self._epoch: Epoch | None = None
        self._began = False
        self._reported: set[str] = set()
        self._fetching: PullLoop | None = None
        self._consumer = Consumer(
            reader.origin.service,
            reader.origin.cluster,
            name,
            [event_filter(reader.origin.cluster, model) for model in models],
            reader.timings.ack_wait,
            reader.timings.sign_off,
            secrets.token_hex(8),
        )
        self._other = OtherReader(self._consumer.reader, reader.timings.other_reader)
        self._holding = InFlight()
        self._signed_on = False
        self.paused = False
        self.staleness: Final = Staleness(name, reader.listeners)

    @property
    def shared(self) -> bool:
        """True if another cluster reads with the same consumer."""
        return self._other.there

    @property
    def durable(self) -> str:
        """Name of the consumer on the server, "" while there is none."""
        return self._consumer.durable(self._epoch) if self._epoch is not None else ""

    @property
    def running(self) -> bool:
        """True while messages are being fetched."""
        return self._subscriber is not None

    async def start(self, broker: NatsBroker, epoch: Epoch) -> bool:
        """Create the consumer if it is missing, and start fetching from it.

        Returns:
            True if the consumer was removed since the last start, so that events may have been missed.

        Raises:
            nats.errors.Error: NATS or JetStream did not answer, or refused.
        """
        jetstream = broker.config.connection_state.stream
        former = await self._consumer.info(jetstream, epoch)
        if not self._signed_on:
            self._holding.crashes = crashes(former)
        # Created or updated here: FastStream does not update the filters of an existing consumer.
        await self._consumer.sign_on(jetstream, epoch, self._holding.crashes)
        self._signed_on = True
        # FastStream does not pass the client's prefix on.
        prefix = bytes(client_of(broker)._inbox_prefix) + b"."  # noqa: SLF001 (no public accessor)
        subscriber = self.register(broker, epoch, inbox_prefix=prefix)
        self._epoch = epoch
        await subscriber.start()
        fetching = PullLoop(
            cast("JetStreamContext.PullSubscription", subscriber.subscription),
            self.staleness,
            self._reader.timings.fetch,
        )
        subscriber.subscription = cast("Any", fetching)  # its loop has not started: no await in between
        self._fetching, self._subscriber = fetching, subscriber
        self.staleness.made()
        again, self._began = self._began, True
        return again and former is None

    def register(self, broker: NatsBroker, epoch: Epoch, *, inbox_prefix: bytes = b"_INBOX.") -> PullStreamSubscriber:
        """Return the FastStream subscription, registered and not started; the broker may be disconnected."""
        config = self._consumer.config(epoch)
        subscriber = broker.subscriber(
            durable=config.durable_name,
            config=config,
            stream=JStream(STREAM_EVENTS, declare=False),
            pull_sub=PullSub(batch_size=_BATCH, timeout=self._reader.listeners.fetch_seconds),
            inbox_prefix=inbox_prefix,
            ack_policy=FastStreamAckPolicy.MANUAL,
            decoder=_undecoded,
            persistent=False,
            title=self.name,
        )

        async def receive(message: StreamMessage[Msg]) -> None:
            if self._fetching is not None:
                self._fetching.took(message.raw_message)
                await self._receive(message)

        # Only for FastStream's AsyncAPI document: with ``apply_types`` off it has no effect on messages.
        receive.__annotations__["message"] = payload_of(self._models.values())
        subscriber(receive)
        return subscriber

    async def works(self, jetstream: JetStreamContext) -> bool:
        """Return True if the consumer exists and makes progress; raises nats.errors.Error without an answer."""
        epoch = self._epoch
        info = await self._consumer.info(jetstream, epoch) if epoch is not None else None
        if info is None or epoch is None:
            return False
        if self._other.look(reader_of(info), time.monotonic()):
            await self._consumer.sign_on(jetstream, epoch, self._holding.crashes)
        self.paused = bool(info.paused)
        if self.paused or not info.num_pending:
            self.staleness.received()
        if stalled := self.staleness.needs_repair:
            seconds, waiting = round(self.staleness.staleness()), info.num_pending
            _log.warning(
                "subscription receives nothing, re-creating it", name=self.name, seconds=seconds, waiting=waiting
            )
        return not stalled

    async def stop(self) -> None:
        """Stop fetching, in any state of the connection. Fetched messages that were not handled are returned."""
        subscriber, self._subscriber = self._subscriber, None
        fetching, self._fetching = self._fetching, None
        if subscriber is None or fetching is None:
            return
        await fetching.finish()
        with contextlib.suppress(nats.errors.Error):
            await subscriber.stop()
        for task in subscriber.tasks:
            task.cancel()
        with contextlib.suppress(nats.errors.Error):
            for raw in fetching.untaken():
                if (ack := self._ack_of(raw)) is not None:
                    await ack.give_back()

    async def hand_over(self, jetstream: JetStreamContext | None) -> None:
        """Return the messages in progress at once and sign off; without a server, only stop tracking them.

        Returned messages are no longer reported as in progress: the next reader gets them, and work here only ends.
        """
        acks = list(self._holding)
        self._holding.release()
        if jetstream is None or self._epoch is None or not self._signed_on:
            return
        self._signed_on = False
        for ack in acks:
            await ack.give_back()
        await self._consumer.sign_off(jetstream, self._epoch)

    async def keep_alive(self) -> None:
        """Report every message in progress, so that redeliveries indicate crashes and not long runs."""
        for ack in self._holding:
            await ack.in_progress()

    async def _receive(self, message: StreamMessage[Msg]) -> None:
        """Handle one delivery. FastStream swallows exceptions, so they are logged; the message is redelivered."""
        try:
            await self._handle(message.raw_message)
        except Exception as error:  # noqa: BLE001
            _log.error("message handler failed", subject=message.raw_message.subject, exc_info=error)

    async def _handle(self, raw: Msg) -> None:
        epoch, ack, meta = self._epoch, self._ack_of(raw), raw.metadata
        if epoch is None or ack is None:
            return
        sequence, headers = meta.sequence.stream, raw.headers or {}
        epoch.saw(sequence)
        delivered = Delivered(raw.subject, STREAM_EVENTS, epoch.token, sequence, meta.num_delivered, raw.data, headers)
        if self._holding.hopeless(ack.token, delivered.deliveries):
            await self._give_up(delivered, ack, Reason.NO_RESULT, f"delivered {MAX_DELIVERIES} times without a result")
            return
        try:
            event, data = read(raw.data, self._models)
        except NewerVersion as newer:
            await self._leave_alone(newer, ack)
            return
        except UnreadableMessage as unreadable:
            await self._give_up(delivered, ack, unreadable.reason, str(unreadable))
            return
        self._hand_over(delivered, event, data, ack)

    def _ack_of(self, raw: Msg) -> Ack | None:
        """Return the acknowledgement of the message, or None if its stream was deleted."""
        if self._epoch is None or self._epoch.over:
            return None
        return Ack(raw._client, raw.reply, self._epoch, raw.metadata.sequence.stream)  # noqa: SLF001 (no public accessor)

    def _hand_over(self, delivered: Delivered, event: RawCloudEvent, data: M, ack: Ack) -> None:
        telemetry, spec = self._reader.telemetry, spec_of(type(data))
        telemetry.metrics.events_received_total.labels(telemetry.service, spec.type).inc()
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
                data, event, current_trace(), delivered.sequence, delivered.deliveries, ack
            )
            try:
                self._handler(received)
            except Exception as error:  # noqa: BLE001 (an error must not stop the next message)
                # Unacknowledged: redelivered, and finally dead-lettered.
                self._holding.drop(ack.token)
                span.record_exception(error)
                _log.error("event handler failed", type=spec.type, error=repr(error), exc_info=error)
                return
        self._holding.take(ack)

    async def _leave_alone(self, newer: NewerVersion, ack: Ack) -> None:
        """Acknowledge an event of an unsupported version; it is also published in the version that is read here."""
        telemetry = self._reader.telemetry
        telemetry.metrics.events_unsupported_version_total.labels(telemetry.service, newer.known).inc()
        if newer.known not in self._reported:
            self._reported.add(newer.known)
            _log.info("skipped events of an unsupported version", subscription=self.name, reason=str(newer))
        await ack()

    async def _give_up(self, delivered: Delivered, ack: Ack, reason: Reason, error: str) -> None:
        origin, metrics = self._reader.origin, self._reader.telemetry.metrics
        try:
            await self._reader.dead_letter(
                make_dead_letter(
                    delivered,
                    cluster=origin.cluster,
                    reader=(origin.service, self.name),
                    reason=reason,
                    error=error,
                    max_bytes=self._reader.max_bytes(),
                )
            )
            await ack()
        except (BusError, nats.errors.Error) as failure:
            _log.warning("dead letter not stored, retrying", subject=delivered.subject, error=str(failure))
            return
        self._holding.forget(ack.token)
        metrics.dead_letters_total.labels(origin.service, reason).inc()
        _log.error("message dead-lettered", subject=delivered.subject, reason=str(reason), error=error)


async def _undecoded(message: StreamMessage[Msg]) -> StreamMessage[Msg]:
    """Return the message unchanged: FastStream would silently drop a body that it cannot decode."""
    return message
