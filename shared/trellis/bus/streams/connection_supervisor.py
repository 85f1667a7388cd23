"""Supervises the NATS connection: connected, streams exist, consumers of the current stream run.

In: connection, limits, subscriptions. Out: repaired state, and a notification when events may have been missed. Called
by ``trellis.bus.bus``. Invariants: no outage ends the supervision; no consumer fetches without a stream
(the loop of FastStream would request without a pause); acknowledgements for a former stream are dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import nats.errors
from faststream.nats import NatsBroker
from nats.js import JetStreamContext

from trellis.bus.accounts.claim import Claim
from trellis.bus.accounts.permissions import ADVISORIES
from trellis.bus.connection.connection import Connection, client_of, describe
from trellis.bus.connection.user_client import UserClient
from trellis.bus.consume.subscriber import Subscription
from trellis.bus.errors import BusError, ClusterNameInUse, ServerTooNarrow
from trellis.bus.publish.availability import Availability
from trellis.bus.streams.streams import LEAST_MESSAGE, Epoch, StreamLimits, ensure_streams
from trellis.bus.timings import BusTimings
from trellis.events.subjects import STREAM_EVENTS
from trellis.telemetry import get_logger

_TROUBLE: Final = (BusError, nats.errors.Error, OSError, TimeoutError)

_log = get_logger(__name__)


def jetstream_of(broker: NatsBroker) -> JetStreamContext:
    """Return the broker's JetStream context."""
    jetstream: JetStreamContext = broker.config.connection_state.stream
    return jetstream


def _require_payload_size(broker: NatsBroker) -> None:
    max_bytes = client_of(broker).max_payload
    if max_bytes < LEAST_MESSAGE:
        raise ServerTooNarrow(f"max_payload of NATS is {max_bytes} bytes: raise it to at least {LEAST_MESSAGE}")


async def _see_to_permissions(broker: NatsBroker, within: int) -> None:
    """Retry denied subscriptions; each new denial is reported, so readiness names it."""
    client = client_of(broker)
    if isinstance(client, UserClient) and client.denied:
        await client.subscribe_again(within)


class ConnectionSupervisor:
    """The supervisor of one connection. It calls ``missed`` if events may have been missed, for a full resync."""

    def __init__(
        self,
        connection: Connection,
        availability: Availability,
        *,
        claim: Claim,
        limits: Mapping[str, StreamLimits],
        timings: BusTimings,
        missed: Callable[[], None],
    ) -> None:
        self.subscriptions: Final[list[Subscription[Any]]] = []
        self._connection = connection
        self._availability = availability
        self._claim = claim
        self._limits = limits
        self._timings = timings
        self._notify_missed = missed
        self._consuming = False
        self._missed = False
        self._ending = False
        self._epoch: Epoch | None = None
        self._watched: NatsBroker | None = None
        self._reconnect_at = 0.0
        self._look = asyncio.Event()
        self._settling = asyncio.Lock()

    def stored(self, sequence: int) -> None:
        """Record that the event stream has a message of this sequence."""
        if self._epoch is not None:
            self._epoch.saw(sequence)

    def wake(self) -> None:
        """Check now, because a problem is suspected."""
        self._look.set()

    async def run(self) -> None:
        """Supervise until cancelled after ``end``."""
        report = asyncio.create_task(self._report_work())
        try:
            while not self._ending:
                self._look.clear()
                if self._connection.dead:
                    await self._pause()
                    await self._connection.open()
                await self._settle_safely()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._pace):
                        await self._look.wait()
        finally:
            report.cancel()

    @property
    def _pace(self) -> float:
        usable = self._availability.usable.is_set()
        return self._timings.check if usable else min(self._timings.again, self._timings.check)

    def end(self) -> None:
        """Stop after the current check. A cancellation alone may be lost: wait_for of Python 3.11, which the NATS
        client uses, drops one that arrives together with the answer.
        """
        self._ending = True
        self._answer_no_more()
        self.wake()

    async def start(self) -> None:
        """Start consuming, or as soon as the bus is usable; in that case ``missed`` is called after the start."""
        self._consuming = True
        for subscription in self.subscriptions:
            subscription.staleness.begin()
        await self.settle()
        self._missed = not all(subscription.running for subscription in self.subscriptions)

    async def stop(self) -> None:
        """Stop consuming and return messages. Does not wait for a check in progress: its server may be frozen."""
        self._consuming = False
        self._answer_no_more()
        await self._pause()
        broker = self._connection.broker
        for subscription in self.subscriptions:
            try:
                await subscription.hand_over(jetstream_of(broker) if broker is not None else None)
            except _TROUBLE as error:
                broker = None  # it will not answer for the remaining subscriptions
                _log.info(
                    "messages not returned, NATS redelivers them after the acknowledgement timeout",
                    error=describe(error),
                )

    def _answer_no_more(self) -> None:
        """Stop reporting staleness, so that no restart is requested; called before the first await."""
        for subscription in self.subscriptions:
            subscription.staleness.end()

    async def settle(self) -> None:
        """Reconcile name, streams and subscriptions with the desired state, as far as possible now."""
        async with self._settling:
            broker = self._connection.broker
            if broker is None:
                await self._pause()
                return
            try:
                _require_payload_size(broker)
                await _see_to_permissions(broker, self._timings.subscribe_again)
                renewed = await self._see_to_streams(broker)
                await self._see_to_name(broker)
                renewed |= await self._see_to_subscriptions(broker)
            except _TROUBLE as error:
                await self._pause()
                if self._connection.broker is broker:
                    self._availability.lost(str(error) if isinstance(error, BusError) else describe(error))
                if isinstance(error, ServerTooNarrow):
                    await self._reconnect()
                return
            if self._connection.broker is not broker:
                return
            self._availability.back()
        if renewed or (self._missed and self._consuming):
            self._missed = False
            self._notify_missed()

    async def _reconnect(self) -> None:
        """Reconnect at an interval: a server sends its max_payload only to new connections."""
        if (now := time.monotonic()) >= self._reconnect_at:
            self._reconnect_at = now + self._timings.reconnect
            await self._connection.close()

    async def _settle_safely(self) -> None:
        try:
            await self.settle()
        except Exception as error:  # noqa: BLE001 (the supervision must not end; the next check may succeed)
            _log.error("NATS connection check failed", error=repr(error), exc_info=error)
            self._availability.lost(repr(error))

    async def _see_to_streams(self, broker: NatsBroker) -> bool:
        """Return True if the event stream was re-created or restored since the last check."""
        if self._watched is not broker:
            for subject in ADVISORIES:
                await client_of(broker).subscribe(subject, cb=self._advised)
            self._watched = broker
        former = self._epoch
        seen = former.last if former is not None else 0  # before the request: messages may arrive before the answer
        epoch = await ensure_streams(jetstream_of(broker), self._limits)
        same = former is not None and former.created == epoch.created
        went_back = same and epoch.last < seen
        if former is not None and same and not went_back and not former.over:
            former.saw(epoch.last)
            return False
        self._epoch = epoch
        if former is None:
            return False
        former.over = True
        epoch.restored = former.restored + went_back
        if went_back or not same:
            cause = "restored from a backup" if went_back else "re-created"
            _log.warning("event stream replaced, starting a full resync", stream=STREAM_EVENTS, cause=cause)
        await self._pause()
        return True

    async def _see_to_name(self, broker: NatsBroker) -> None:
        """Claim the name of the cluster; raises ClusterNameInUse while another cluster holds it."""
        try:
            await self._claim.hold(jetstream_of(broker))
        except ClusterNameInUse:
            if self._epoch is not None:
                # The other cluster reads with a durable of the same name: messages in progress here belong to it.
                self._epoch.over = True
            raise

    async def _see_to_subscriptions(self, broker: NatsBroker) -> bool:
        """Return True if a consumer had to be re-created, so that events may have been missed."""
        renewed = False
        for subscription in self.subscriptions:
            if not self._consuming or self._epoch is None:
                break
            if subscription.running and not await subscription.works(jetstream_of(broker)):
                await subscription.stop()
            if not subscription.running:
                renewed |= await subscription.start(broker, self._epoch)
        self._availability.paused(next((each.durable for each in self.subscriptions if each.paused), ""))
        self._availability.shared(next((each.name for each in self.subscriptions if each.shared), ""))
        if not self._consuming:
            await self._pause()  # stopped in the meantime
        return renewed

    async def _advised(self, _: object) -> None:
        self.wake()

    async def _pause(self) -> None:
        for subscription in self.subscriptions:
            await subscription.stop()

    async def _report_work(self) -> None:
        while not self._ending:
            await asyncio.sleep(self._timings.keep_alive)
            if self._connection.broker is None:
                continue
            for subscription in self.subscriptions:
                with contextlib.suppress(nats.errors.Error):
                    await subscription.keep_alive()
