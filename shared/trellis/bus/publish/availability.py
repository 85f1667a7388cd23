"""Reports the availability of NATS, of permissions and of streams to health, and logs each outage once.

In: observations of the connection, the connection supervisor and the publisher. Out: parts of the health of the
service, one warning per outage, an event that publishers wait for. Called by ``trellis.bus``. Invariant: a failed part
is not ready until it was seen to work, or until nothing of it was rejected for a minute.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from trellis.bus.timings import BusTimings
from trellis.events.subjects import STREAM_EVENTS
from trellis.installer_api.redaction import redact_url
from trellis.telemetry import get_logger
from trellis.telemetry.health import Health

HEALTH: Final = "bus"
RIGHTS: Final = "bus permissions"
STORAGE: Final = "bus storage"
SHARED: Final = "bus consumers"
PAUSED: Final = "bus consumers paused"

_log = get_logger(__name__)


class Availability:
    """Whether the bus can be used: said to health, and to people once per outage."""

    def __init__(self, url: str, health: Health, timings: BusTimings = BusTimings()) -> None:
        self._timings = timings
        self._address = redact_url(url)
        self._health = health
        self._warned = False
        self._since = time.monotonic()
        self._refused_at: float | None = None
        self._unstored: set[str] = set()
        self._unstored_at = 0.0
        self._shared = self._paused = ""
        self._over = False
        self.why = "not connected yet"
        self.usable = asyncio.Event()
        health.not_ready(HEALTH, f"{self.why} to {self._address}")

    @property
    def away_seconds(self) -> float:
        """For how long the bus could not be used, 0 if it can."""
        return 0.0 if self.usable.is_set() else time.monotonic() - self._since

    @property
    def answering_seconds(self) -> float:
        """For how long the bus could be used without a break, 0 if it cannot."""
        return time.monotonic() - self._since if self.usable.is_set() else 0.0

    def lost(self, why: str) -> None:
        """The bus cannot be used, for this reason."""
        if self._over:
            return
        if self.usable.is_set():
            self._since = time.monotonic()
        self.why = why
        self.usable.clear()
        self._health.not_ready(HEALTH, f"{why} ({self._address})")
        if not self._warned:
            self._warned = True
            _log.warning("NATS unreachable, retrying", url=self._address, reason=why)

    def back(self) -> None:
        """The bus can be used."""
        if self._over:
            return
        if not self.usable.is_set():
            self._since = time.monotonic()
        self.usable.set()
        self._health.ready(HEALTH)
        if self._warned:
            self._warned = False
            _log.info("NATS reachable again", url=self._address)
        if self._refused_at is not None and time.monotonic() - self._refused_at > self._timings.refused:
            self._refused_at = None
            self._health.forget(RIGHTS)
            _log.info("NATS permissions restored", url=self._address)
        if self._unstored and time.monotonic() - self._unstored_at > self._timings.unstored:
            # What was to be stored is not wanted any more, perhaps: then nothing is, that would show that it works.
            _log.info("publishing to all streams works again", streams=sorted(self._unstored))
            self._unstored.clear()
            self._health.forget(STORAGE)

    def refused(self, why: str) -> None:
        """NATS is there, and does not let this user do something that it needs."""
        if self._over:
            return
        if self._refused_at is None:
            _log.warning("NATS permission denied, retrying", url=self._address, reason=why)
        self._refused_at = time.monotonic()
        self._health.not_ready(RIGHTS, f"{why} ({self._address})")

    def unstored(self, stream: str, why: str) -> None:
        """NATS is there, and a stream takes nothing."""
        if self._over:
            return
        if stream not in self._unstored:
            _log.warning("publishing to the stream fails, retrying", stream=stream, reason=why)
        self._unstored.add(stream)
        self._unstored_at = time.monotonic()
        # Source: nats-server 2.15 answers nobody once a write failed, also when there is room again.
        advice = "raise the named limit, or free space; if the volume was full, restart that server"
        self._health.not_ready(STORAGE, f"{', '.join(sorted(self._unstored))} stores nothing: {why}; {advice}")

    def stored(self, stream: str) -> None:
        """A stream took something."""
        if stream in self._unstored:
            self._unstored.remove(stream)
            _log.info("publishing to the stream works again", stream=stream)
            if not self._unstored:
                self._health.forget(STORAGE)

    def shared(self, subscription: str) -> None:
        """Another cluster reads with the consumer of this subscription; "" if none does."""
        if self._over or subscription == self._shared:
            return
        self._shared = subscription
        if not subscription:
            self._health.forget(SHARED)
            _log.info("no other cluster uses the consumers of this cluster any more", url=self._address)
            return
        why = (
            f"another cluster with the same name and UID of kube-system reads subscription "
            f"{subscription}: each receives a part of the events; set TRELLIS_CLUSTER to another name in one of them"
        )
        _log.warning("another cluster uses the consumers of this cluster", url=self._address, reason=why)
        self._health.not_ready(SHARED, why)

    def paused(self, consumer: str) -> None:
        """A user paused this consumer; "" if none is. A restart would not resume it, so liveness is not concerned."""
        if self._over or consumer == self._paused:
            return
        self._paused = consumer
        if not consumer:
            self._health.forget(PAUSED)
            _log.info("all consumers resumed", url=self._address)
            return
        why = f"{consumer} is paused, events are waiting: resume it (nats consumer resume {STREAM_EVENTS} {consumer})"
        _log.warning("consumer paused", url=self._address, reason=why)
        self._health.not_ready(PAUSED, why)

    def forget(self) -> None:
        """The bus is closed on purpose: it is no part of the service any more, whatever its connection still meets.

        The service may have another one by then, and the part of its health is that one's.
        """
        if self._over:
            return
        self._over = True
        self.usable.clear()
        for part in (HEALTH, RIGHTS, STORAGE, SHARED, PAUSED):
            self._health.forget(part)
