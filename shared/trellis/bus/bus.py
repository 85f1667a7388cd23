"""The NATS connection of one service: publishes and receives events, and survives outages of NATS.

In: events and handlers of a service. Out: messages in JetStream, calls of the handlers. Called by each ``app``.
Invariants: an outage is waited out and never raised, except by ``publish``; a missing or re-created stream is detected
within seconds, its messages in flight are dropped, and the service does a full resync.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TypeVar

import nats.errors
from nats.js import JetStreamContext
from opentelemetry.trace import SpanKind

from trellis.bus.accounts.claim import Claim
from trellis.bus.connection import cancellation
from trellis.bus.connection.connection import Address, Connection, client_of, describe
from trellis.bus.consume.ack import Ack
from trellis.bus.consume.message import HEADER_MSG_ID, HEADER_TRACEPARENT, Origin, compose
from trellis.bus.consume.staleness import Listeners
from trellis.bus.consume.subscriber import EventHandler, Reader, Received, Subscription
from trellis.bus.dead_letters.write import DeadLetterMessage
from trellis.bus.errors import BusError, BusUnavailable, EventRefused, NotAllowed, StreamError
from trellis.bus.publish.availability import Availability
from trellis.bus.publish.publisher import Publisher
from trellis.bus.streams.connection_supervisor import ConnectionSupervisor, jetstream_of
from trellis.bus.streams.history import events_in, last_messages
from trellis.bus.streams.streams import DEFAULT_LIMITS, StreamLimits, ensure_streams
from trellis.bus.timings import BusTimings
from trellis.config.nats_credentials import Credentials
from trellis.events.envelope import CONTENT_TYPE, EventData
from trellis.events.subjects import STREAM_DEAD, STREAM_EVENTS, STREAM_LATTICE, copy_subject, event_subject, spec_of
from trellis.telemetry import Telemetry, current_trace, get_logger, trace_from
from trellis.telemetry.health import Health

__all__ = [
    "Ack",
    "Bus",
    "BusError",
    "BusTimings",
    "BusUnavailable",
    "EventHandler",
    "EventRefused",
    "NotAllowed",
    "Received",
    "StreamError",
]

_log = get_logger(__name__)
M = TypeVar("M", bound=EventData)


class Bus:
    """The bus of one service, created once per service (and leadership term); inactive until ``connect``.

    ``cluster`` is the name of the cluster on the bus, ``cluster_uid`` the UID of kube-system: a cluster with the same
    name and another UID is rejected. ``limits`` apply to streams that this bus creates.
    """

    def __init__(  # noqa: PLR0913 (keywords, most of which have defaults)
        self,
        url: str,
        *,
        cluster: str,
        cluster_uid: str,
        service: str,
        telemetry: Telemetry,
        health: Health,
        credentials: Credentials | None = None,
        limits: Mapping[str, StreamLimits] = DEFAULT_LIMITS,
        timings: BusTimings = BusTimings(),
    ) -> None:
        self.on_new_stream: list[Callable[[], None]] = []
        self._origin = Origin(cluster, service)
        self._telemetry = telemetry
        self._limits = limits
        self._timings = timings
        self._availability = Availability(url, health, timings)
        self._connection = Connection(
            Address(url, service, cluster, credentials), self._availability, self._wake, timings.connection
        )
        self._publisher = Publisher(self._availability, lambda: self._connection.broker, self._wake, timings)
        listeners = Listeners(telemetry, health, lambda: self._availability.answering_seconds, timings.stalled_after)
        self._reader = Reader(self._origin, telemetry, self._publish_dead_letter, self._max_payload, listeners, timings)
        self._supervisor = ConnectionSupervisor(
            self._connection,
            self._availability,
            claim=Claim(cluster, cluster_uid, service, timings.claim, limits[STREAM_EVENTS].replicas),
            limits=limits,
            timings=timings,
            missed=self._list_everything,
        )
        self._supervising: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None

    @property
    def connected(self) -> asyncio.Event:
        """Set while NATS is connected and the streams exist."""
        return self._availability.usable

    async def connect(self) -> None:
        """Connect and create missing streams, without a timeout; then supervise the connection in the background."""
        if self._supervising is None:
            self._supervising = asyncio.create_task(self._supervisor.run(), name=f"bus-{self._origin.service}")
        await self.connected.wait()

    async def ensure_streams(self) -> None:
        """Create the missing streams; ``connect`` does so too, and repeats it every few seconds.

        Raises:
            StreamError: a user has to change a stream or the server's limits.
            BusUnavailable: NATS or JetStream did not answer.
        """
        try:
            await ensure_streams(self._jetstream(), self._limits)
        except nats.errors.Error as error:
            raise BusUnavailable(f"streams cannot be inspected: {describe(error)}") from error

    async def publish(self, event: EventData, *, dedup: str) -> None:
        """Publish an event and wait until it is stored; safe for concurrent calls.

        Args:
            event: its data.
            dedup: id of the message: the same id within 120 s is stored once.

        Raises:
            BusUnavailable: not stored within 10 s, or NATS has been unreachable for longer; retry later.
            NotAllowed: the NATS user lacks the permission to publish it; the bus logs a warning.
            EventRefused: too large, or refused by the stream; do not retry.
        """
        spec, subject = spec_of(type(event)), event_subject(self._origin.cluster, event)
        attributes = {
            "messaging.system": "nats",
            "messaging.destination.name": subject,
            "messaging.message.id": dedup,
        }
        with self._telemetry.tracer.start_as_current_span(
            f"publish {spec.tokens}", kind=SpanKind.PRODUCER, attributes=attributes
        ):
            body, headers = compose(
                event, origin=self._origin, dedup=dedup, time=datetime.now(UTC), trace=current_trace()
            )
            sequence = await self._publisher.send(spec.stream, subject, body, headers)
            if spec.stream == STREAM_EVENTS:
                self._supervisor.stored(sequence)
        self._telemetry.metrics.events_published_total.labels(self._origin.service, spec.type).inc()

    async def copy(self, lattice: str, event: str, body: bytes, *, dedup: str, traceparent: str = "") -> None:
        """Publish a forwarded lattice event and wait until it is stored; safe for concurrent calls.

        Args:
            lattice: lattice of the event.
            event: name of the event in the lattice, such as ``manifest_published``.
            body: unchanged body of the event.
            dedup: id of the event: the same id within 120 s is stored once.
            traceparent: W3C trace context of the event, "" if there is none.

        Raises:
            BusUnavailable: not stored within 10 s, or NATS has been unreachable for longer; retry later.
            NotAllowed: the NATS user lacks the permission to publish it; the bus logs a warning.
            EventRefused: too large, or refused by the stream; do not retry.
        """
        headers = {HEADER_MSG_ID: dedup, "Content-Type": CONTENT_TYPE}
        if trace_from(traceparent) is not None:
            headers[HEADER_TRACEPARENT] = traceparent
        subject = copy_subject(self._origin.cluster, lattice, event)
        await self._publisher.send(STREAM_LATTICE, subject, body, headers)

    def subscribe(self, name: str, models: Sequence[type[M]], handler: EventHandler[M]) -> None:
        """Register a handler for events of these models; it is called once the bus is started.

        The handler must return quickly (1 ms): it adds a key to a queue together with ``received.ack``. A message
        without an acknowledgement is redelivered.

        Args:
            name: name of the subscription, unique in the service; also part of the name of its durable consumer.
            models: events of the subject table.
            handler: receives each event at least once.
        """
        if any(subscription.name == name for subscription in self._supervisor.subscriptions):
            raise ValueError(f"{name} is already subscribed")
        self._supervisor.subscriptions.append(Subscription(name, models, handler, self._reader))

    async def start(self) -> None:
        """Start consuming; the caller lists everything afterwards, as events before the consumer are not delivered.

        Does not wait for an unreachable bus: consuming starts after the reconnect, and ``on_new_stream`` is called.
        """
        await self._supervisor.start()

    async def stop(self) -> None:
        """Stop consuming; unacknowledged messages are returned at once for the next consumer.

        Work in progress may still be finished and acknowledged; then it is not redelivered. ``start`` resumes
        consuming. If the server does not answer, the timeout is one second.
        """
        await self._supervisor.stop()

    async def close(self) -> None:
        """Stop and close the connection permanently; if the caller is cancelled, closing continues in the background.

        An incomplete close would leave a client that reconnects forever and reports NATS as unreachable.
        """
        self._availability.forget()
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(), name=f"bus-{self._origin.service}-closes")
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        keeping, self._supervising = self._supervising, None
        if keeping is not None:
            self._supervisor.end()
            self._connection.abandon()
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
        await self.stop()
        await self._connection.close()

    async def last_events(self, models: Sequence[type[M]]) -> AsyncIterator[M]:
        """Yield the last event on each subject of these models, oldest first; waits while NATS is unreachable."""
        while True:
            cancellation.check()
            await self.connected.wait()
            try:
                messages = await last_messages(self._jetstream(), self._origin, models, self._timings.history)
            except (BusUnavailable, nats.errors.Error):
                await asyncio.sleep(self._timings.history.again)
                continue
            for event in events_in(messages, models):
                yield event
            return

    def _jetstream(self) -> JetStreamContext:
        if (broker := self._connection.broker) is None:
            raise BusUnavailable(self._availability.reason)
        return jetstream_of(broker)

    def _max_payload(self) -> int:
        broker = self._connection.broker
        return client_of(broker).max_payload if broker is not None else 0

    async def _publish_dead_letter(self, dead_letter: DeadLetterMessage) -> None:
        await self._publisher.send(STREAM_DEAD, dead_letter.subject, dead_letter.body, dead_letter.headers)

    def _wake(self) -> None:
        self._supervisor.wake()

    def _list_everything(self) -> None:
        for call in list(self.on_new_stream):
            try:
                call()
            except Exception as error:  # noqa: BLE001 (isolates the callbacks from each other)
                _log.error("full resync failed", error=repr(error), exc_info=error)
