"""Receives the heartbeats of hosts of wasmCloud v2 until cancelled.

In: a source of the address. Out: the heartbeats of the last seconds. Created by host_manager, by ``trellis top``, and
by the console for all viewers, where a viewer sees the numbers of a host only together with its Host. Invariants: one
subject, ``runtime.operator.heartbeat.>``; nothing is published; without uninterrupted reception, a missing heartbeat
proves nothing.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Container
from dataclasses import dataclass, field, replace
from typing import Final

from trellis.config.settings import HostNatsSettings, SettingsError
from trellis.installer_api.redaction import redact_url
from trellis.lattice.connection.address import NatsAddress
from trellis.lattice.connection.host_nats import host_nats
from trellis.lattice.connection.listen import Listened, listen
from trellis.lattice.timings import ListenTimings
from trellis.limits.backoff import Attempts, Backoff
from trellis.telemetry import get_logger
from trellis.v2.host_messages import Collector, HostMessages
from trellis.v2.messages import HEARTBEATS
from trellis.v2.reception import Reception, ReceptionState
from trellis.v2.timings import V2Timings

HEARTBEAT_SUBJECT: Final = f"{HEARTBEATS}.>"
_CONNECTING: Final = "not connected yet"

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class HeartbeatTimings:
    """Timings of the reception. ``first`` and ``most``: bounds of the delay before the next connection, in seconds."""

    first: float = 1.0
    most: float = 60.0
    listen: ListenTimings = field(default_factory=lambda: ListenTimings(listen=math.inf, look=1.0))
    hosts: V2Timings = field(default_factory=V2Timings)


class Heartbeats:
    """Heartbeats from one NATS. ``name``: name of the connection in the monitoring of NATS.

    ``address``: reads the address with its files, for each connection: certificates are renewed. It raises
    SettingsError if a file cannot be used.
    """

    def __init__(
        self,
        address: Callable[[], NatsAddress],
        name: str,
        timings: HeartbeatTimings | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._address: Final = address
        self._name: Final = name
        self._timings: Final = timings or HeartbeatTimings()
        self._clock: Final = clock
        self._collector: Final = Collector()
        self._state = ReceptionState.CONNECTING
        self._since = clock()
        """Begin of the state."""
        self._server = ""
        self._count = 0
        self._error = _CONNECTING
        self._lost: tuple[int, float] = (0, -math.inf)
        """Number of dropped messages, and the time at which it was last seen to grow."""
        self.on_message: Callable[[], None] | None = None
        """Called for each message, in the event loop."""

    @property
    def connected(self) -> bool:
        """True while heartbeats are received."""
        return self._state is ReceptionState.RECEIVING

    @property
    def reception(self) -> Reception:
        """State of the reception."""
        return Reception(self._state, self._clock() - self._since, self._server, self._error, self._count)

    async def run(self) -> None:
        """Receive, with unlimited retries, until cancelled."""
        attempts = Attempts(Backoff(self._timings.first, self._timings.most))
        try:
            while True:
                found = await self._receive()
                if self.connected:
                    attempts.reset()
                self._end(found)
                await asyncio.sleep(attempts.next())
        finally:
            self._enter(ReceptionState.CONNECTING)

    def messages(self, now: float, wanted: Container[str] | None = None) -> HostMessages:
        """Return the heartbeats of the last 35 s; ``now``: Unix seconds by the clock of the API server.

        ``wanted``: IDs of the hosts whose heartbeats are parsed, None for all.
        """
        clock, window = self._clock(), self._timings.hosts.silence
        self._collector.forget(clock - window)
        if not self.connected:
            return HostMessages(error=self._error)
        count, at = self._lost
        if self._collector.dropped > count:
            self._lost = count, at = self._collector.dropped, clock
        found = self._collector.result(min(clock - self._since, window), wanted=wanted)
        hosts = {id_: replace(last, at=last.at - clock + now) for id_, last in found.hosts.items()}
        return replace(found, hosts=hosts, dropped=1 if clock - at < window else 0)

    async def _receive(self) -> Listened:
        try:
            address = self._address()
        except SettingsError as error:
            return Listened(error=str(error))
        self._server = redact_url(address.url)
        handlers = {HEARTBEAT_SUBJECT: self._take}
        return await listen(address, self._name, handlers, self._receiving, self._timings.listen)

    def _take(self, subject: str, payload: bytes) -> None:
        self._collector.heartbeat(subject, payload, self._clock())
        self._count += 1
        if self.on_message is not None:
            self.on_message()

    def _receiving(self) -> bool:
        """Note the begin of the reception: called as soon as the subscription is confirmed. It has no end."""
        if not self.connected:
            self._enter(ReceptionState.RECEIVING)
            self._error = ""
            _log.info("receiving heartbeats of wasmCloud v2")
        return False

    def _end(self, found: Listened) -> None:
        self._enter(ReceptionState.DENIED if found.refused else ReceptionState.LOST)
        error = found.error or "connection lost"
        if error != self._error:
            _log.warning("NATS of wasmCloud v2 unavailable, retrying", error=error)
        self._error = error

    def _enter(self, state: ReceptionState) -> None:
        """Note a state; a failed attempt to connect continues the former one."""
        if state is not self._state:
            self._state, self._since = state, self._clock()
            if state is not ReceptionState.RECEIVING:  # a heartbeat can arrive before the subscription is confirmed
                self._count = 0


def heartbeats_of(settings: HostNatsSettings, name: str, timings: HeartbeatTimings | None = None) -> Heartbeats | None:
    """Return the receiver of the configured NATS, None if none is configured; ``name``: of the connection.

    A file that cannot be used is reported and retried, so that host_manager continues with host groups. A program that
    has to refuse it calls ``host_nats`` at its start.
    """
    if settings.v2_nats is None:
        return None

    def address() -> NatsAddress:
        found = host_nats(settings)
        assert found is not None  # a URL is set
        return found

    return Heartbeats(address, name, timings)
