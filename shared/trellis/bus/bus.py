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
from trellis.bus.consume.subscriber import FactHandler, Reader, Received, Subscription
from trellis.bus.dead_letters.write import Letter
from trellis.bus.errors import BusError, BusUnavailable, FactRefused, NotAllowed, StreamError
from trellis.bus.publish.availability import Availability
from trellis.bus.publish.publisher import Publisher
from trellis.bus.streams.connection_supervisor import ConnectionSupervisor, jetstream_of
from trellis.bus.streams.history import last_facts
from trellis.bus.streams.streams import DEFAULT_LIMITS, StreamLimits, ensure_streams
from trellis.bus.timings import BusTimings
from trellis.config.nats_credentials import Credentials
from trellis.events.envelope import CONTENT_TYPE, FactData
from trellis.events.subjects import STREAM_DEAD, STREAM_EVENTS, STREAM_LATTICE, copy_subject, fact_subject, spec_of
from trellis.telemetry import Telemetry, current_trace, get_logger, trace_from
from trellis.telemetry.health import Health

__all__ = [
    "Ack",
    "Bus",
    "BusError",
    "BusTimings",
    "BusUnavailable",
    "FactHandler",
    "FactRefused",
    "NotAllowed",
    "Received",
    "StreamError",
]

_log = get_logger(__name__)
M = TypeVar("M", bound=FactData)


class Bus:
    """Made once per service (and term of leadership); nothing happens before ``connect``.

    ``cluster`` is the cluster's name on the bus, ``cluster_uid`` kube-system's uid: who else comes with this name and
    another uid is not let in. ``limits`` count for streams that are made here.
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
        listeners = Listeners(telemetry, health, lambda: self._availability.answering_seconds, timings.deaf)
        self._reader = Reader(self._origin, telemetry, self._bury, self._room, listeners, timings)
        self._keeper = ConnectionSupervisor(
            self._connection,
            self._availability,
            claim=Claim(cluster, cluster_uid, service, timings.claim, limits[STREAM_EVENTS].replicas),
            limits=limits,
            timings=timings,
            missed=self._list_everything,
        )
        self._keeping: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None

    @property
    def connected(self) -> asyncio.Event:
        """Set while NATS is connected and the streams are there."""
        return self._availability.usable

    async def connect(self) -> None:
        """Connect and see to the streams, however long that takes; from then on the bus looks after itself."""
        if self._keeping is None:
            self._keeping = asyncio.create_task(self._keeper.run(), name=f"bus-{self._origin.service}")
        await self.connected.wait()

    async def ensure_streams(self) -> None:
        """Make the streams that are missing; ``connect`` has done so, and it is repeated every few seconds.

        Raises:
            StreamError: a user has to change a stream or the server's limits.
            BusUnavailable: NATS or JetStream did not answer.
        """
        try:
            await ensure_streams(self._jetstream(), self._limits)
        except nats.errors.Error as error:
            raise BusUnavailable(f"streams cannot be inspected: {describe(error)}") from error

    async def publish(self, fact: FactData, *, dedup: str) -> None:
        """Say an event, and wait until it is stored; safe to call any number of times at once.

        Args:
            fact: what happened.
            dedup: id of the message: the same id within 120 s is stored once.

        Raises:
            BusUnavailable: not stored within 10 s, or NATS is unreachable for longer already; say it again later.
            NotAllowed: this is so because NATS does not let this user say it; the bus warns of that itself.
            FactRefused: too large, or refused by the stream; saying it again is of no use.
        """
        spec, subject = spec_of(type(fact)), fact_subject(self._origin.cluster, fact)
        attributes = {
            "messaging.system": "nats",
            "messaging.destination.name": subject,
            "messaging.message.id": dedup,
        }
        with self._telemetry.tracer.start_as_current_span(
            f"publish {spec.tokens}", kind=SpanKind.PRODUCER, attributes=attributes
        ):
            body, headers = compose(
                fact, origin=self._origin, dedup=dedup, time=datetime.now(UTC), trace=current_trace()
            )
            sequence = await self._publisher.send(spec.stream, subject, body, headers)
            if spec.stream == STREAM_EVENTS:
                self._keeper.stored(sequence)
        self._telemetry.metrics.events_published_total.labels(self._origin.service, spec.type).inc()

    async def copy(self, lattice: str, event: str, body: bytes, *, dedup: str, traceparent: str = "") -> None:
        """Keep the copy of a lattice's event, and wait until it is stored; safe to call any number of times at once.

        Args:
            lattice: where it was said.
            event: its name there: ``manifest_published``.
            body: as it was said.
            dedup: id of the event: the same id within 120 s is stored once.
            traceparent: of the trace it belongs to, if it belongs to one.

        Raises:
            BusUnavailable: not stored within 10 s, or NATS is unreachable for longer already; say it again later.
            NotAllowed: this is so because NATS does not let this user say it; the bus warns of that itself.
            FactRefused: too large, or refused by the stream; saying it again is of no use.
        """
        headers = {HEADER_MSG_ID: dedup, "Content-Type": CONTENT_TYPE}
        if trace_from(traceparent) is not None:
            headers[HEADER_TRACEPARENT] = traceparent
        subject = copy_subject(self._origin.cluster, lattice, event)
        await self._publisher.send(STREAM_LATTICE, subject, body, headers)

    def subscribe(self, name: str, models: Sequence[type[M]], handler: FactHandler[M]) -> None:
        """Have the handler called with events of these models once the bus is started.

        The handler is quick (1 ms): it puts a key into a queue together with ``received.ack``. Whoever drops the
        acknowledgement gets the message again.

        Args:
            name: of the subscription, unique in the service; its consumer keeps its place under this name.
            models: events of the subject table.
            handler: gets each event at least once.
        """
        if any(subscription.name == name for subscription in self._keeper.subscriptions):
            raise ValueError(f"{name} is already subscribed")
        self._keeper.subscriptions.append(Subscription(name, models, handler, self._reader))

    async def start(self) -> None:
        """Consume; list everything after it returned: events said before the consumer existed are not heard.

        Does not wait for a bus that is unreachable: once it is back consuming begins, and ``on_new_stream`` is called.
        """
        await self._keeper.start()

    async def stop(self) -> None:
        """Consume no more; what is not acknowledged is given back at once, for whoever consumes next.

        Work that is in progress may still be finished and acknowledged: then it does not come again. ``start`` begins
        again. Takes a second at most if the server does not answer.
        """
        await self._keeper.stop()

    async def close(self) -> None:
        """Stop and close the connection, for good. Whoever does not wait for the end of it leaves it to end by itself.

        It is not given up half done: the client would come back by itself, forever, and say that NATS is unreachable.
        """
        self._availability.forget()
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(), name=f"bus-{self._origin.service}-closes")
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        keeping, self._keeping = self._keeping, None
        if keeping is not None:
            self._keeper.end()
            self._connection.abandon()
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
        await self.stop()
        await self._connection.close()

    async def last_facts(self, models: Sequence[type[M]]) -> AsyncIterator[M]:
        """Yield the last event on each subject of these models, oldest first; waits while NATS is unreachable."""
        while True:
            cancellation.check()
            await self.connected.wait()
            try:
                facts = await last_facts(self._jetstream(), self._origin, models, self._timings.history)
            except (BusUnavailable, nats.errors.Error):
                await asyncio.sleep(self._timings.history.again)
                continue
            for fact in facts:
                yield fact
            return

    def _jetstream(self) -> JetStreamContext:
        if (broker := self._connection.broker) is None:
            raise BusUnavailable(self._availability.why)
        return jetstream_of(broker)

    def _room(self) -> int:
        broker = self._connection.broker
        return client_of(broker).max_payload if broker is not None else 0

    async def _bury(self, letter: Letter) -> None:
        await self._publisher.send(STREAM_DEAD, letter.subject, letter.body, letter.headers)

    def _wake(self) -> None:
        self._keeper.wake()

    def _list_everything(self) -> None:
        for call in list(self.on_new_stream):
            try:
                call()
            except Exception as error:  # noqa: BLE001 (one listener must not keep the others from theirs)
                _log.error("full resync failed", error=repr(error), exc_info=error)
