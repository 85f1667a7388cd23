"""Forwards the events of lattices to the bus, as the lattice keeps them for only 70 s.

In: a lattice's address and connection. Out: forwarded events with their original ids; the lag as a metric. Called by
``trellis.lattice.follow.lattice_watches`` for each lattice that a host group names. Invariants: an event is
acknowledged to the lattice after the bus has stored it; while the bus is unavailable, events wait; an event that the
bus rejects permanently does not block later ones.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from host_manager.timings import Timings
from trellis.bus.accounts.naming import consumer_name
from trellis.bus.bus import Bus, BusUnavailable, EventRefused
from trellis.bus.connection import cancellation
from trellis.events.subjects import HOST_MANAGER
from trellis.installer_api.redaction import redact_url
from trellis.lattice.connection.address import LatticeAddress
from trellis.lattice.connection.lattice_connection import LatticeConnection
from trellis.lattice.follow.forwarder import Forwarder, LatticeEvent
from trellis.telemetry import Telemetry, get_logger

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class EventForwarder:
    """Forwards events to the bus."""

    bus: Bus
    telemetry: Telemetry
    cluster: str
    timings: Timings = Timings()

    async def run(self, address: LatticeAddress, connection: LatticeConnection) -> None:
        """Forward a lattice's events until cancelled."""
        name = f"trellis-{consumer_name(HOST_MANAGER, address.token, self.cluster)}"
        forwarder = Forwarder(connection, address, name, self._take, self.timings.lattice.forwarder)
        metrics, nats = self.telemetry.metrics, redact_url(address.nats.url)
        forgets = [
            metrics.lattice_lag(HOST_MANAGER, (nats, address.name, stream), lag.count, lag.seconds)
            for stream, lag in forwarder.lags.items()
        ]
        try:
            await forwarder.run()
        finally:
            for forget in forgets:
                forget()

    async def _take(self, event: LatticeEvent) -> None:
        while True:
            cancellation.check()
            try:
                await self.bus.copy(
                    event.lattice, event.event, event.body, dedup=event.id, traceparent=event.traceparent
                )
            except BusUnavailable:
                await asyncio.sleep(self.timings.copy_again)
            except EventRefused as error:
                _log.warning(
                    "lattice event not forwarded", lattice=event.lattice, event_name=event.event, reason=str(error)
                )
                return
            else:
                counter = self.telemetry.metrics.lattice_forwarded_events_total
                counter.labels(HOST_MANAGER, event.lattice, event.event).inc()
                return
