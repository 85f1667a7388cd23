"""Reports the availability of NATS, of permissions and of streams to health, and logs each outage once.

In: observations of the connection, the connection supervisor and the publisher. Out: parts of the health of the
service, one warning per outage, an event that publishers wait for. Called by ``trellis.bus``. Invariant: a failed part
is not ready until it succeeded, or until none of its requests was rejected for a minute.
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
PERMISSIONS: Final = "bus permissions"
STORAGE: Final = "bus storage"
SHARED: Final = "bus consumers"
PAUSED: Final = "bus consumers paused"

_log = get_logger(__name__)


class Availability:
    """The availability of the bus: reported to health, and logged once per outage."""

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
        self.reason = "not connected yet"
        self.usable = asyncio.Event()
        health.not_ready(HEALTH, f"{self.reason} to {self._address}")

    @property
    def unavailable_seconds(self) -> float:
        """Seconds since the bus became unusable, 0 if it is usable."""
        return 0.0 if self.usable.is_set() else time.monotonic() - self._since

    @property
    def answering_seconds(self) -> float:
        """Seconds since the bus became usable, 0 if it is unusable."""
        return time.monotonic() - self._since if self.usable.is_set() else 0.0

    def lost(self, reason: str) -> None:
        """Report the bus as unusable, with a reason."""
        if self._over:
            return
        if self.usable.is_set():
            self._since = time.monotonic()
        self.reason = reason
        self.usable.clear()
        self._health.not_ready(HEALTH, f"{reason} ({self._address})")
        if not self._warned:
            self._warned = True
            _log.warning("NATS unreachable, retrying", url=self._address, reason=reason)

    def back(self) -> None:
        """Report the bus as usable."""
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
            self._health.forget(PERMISSIONS)
            _log.info("NATS permissions restored", url=self._address)
        if self._unstored and time.monotonic() - self._unstored_at > self._timings.unstored:
            # The messages may be obsolete by now: then no publish will show that the stream works.
            _log.info("publishing to all streams works again", streams=sorted(self._unstored))
            self._unstored.clear()
            self._health.forget(STORAGE)

    def refused(self, reason: str) -> None:
        """Report a missing permission of the NATS user."""
        if self._over:
            return
        if self._refused_at is None:
            _log.warning("NATS permission denied, retrying", url=self._address, reason=reason)
        self._refused_at = time.monotonic()
        self._health.not_ready(PERMISSIONS, f"{reason} ({self._address})")

    def unstored(self, stream: str, reason: str) -> None:
        """Report a stream that stores no messages although NATS is reachable."""
        if self._over:
            return
        if stream not in self._unstored:
            _log.warning("publishing to the stream fails, retrying", stream=stream, reason=reason)
        self._unstored.add(stream)
        self._unstored_at = time.monotonic()
        # Source: nats-server 2.15 does not answer after a failed write, even when there is free space.
        advice = "raise the named limit, or free space; if the volume was full, restart that server"
        self._health.not_ready(STORAGE, f"{', '.join(sorted(self._unstored))} stores nothing: {reason}; {advice}")

    def stored(self, stream: str) -> None:
        """Report that a stream stored a message."""
        if stream in self._unstored:
            self._unstored.remove(stream)
            _log.info("publishing to the stream works again", stream=stream)
            if not self._unstored:
                self._health.forget(STORAGE)

    def shared(self, subscription: str) -> None:
        """Report the subscription whose consumer another cluster reads with; "" if there is none."""
        if self._over or subscription == self._shared:
            return
        self._shared = subscription
        if not subscription:
            self._health.forget(SHARED)
            _log.info("no other cluster uses the consumers of this cluster any more", url=self._address)
            return
        reason = (
            f"another cluster with the same name and UID of kube-system reads subscription "
            f"{subscription}: each receives a part of the events; set TRELLIS_CLUSTER to another name in one of them"
        )
        _log.warning("another cluster uses the consumers of this cluster", url=self._address, reason=reason)
        self._health.not_ready(SHARED, reason)

    def paused(self, consumer: str) -> None:
        """Report a consumer that a user paused, "" if none; not a liveness failure, as a restart does not resume it."""
        if self._over or consumer == self._paused:
            return
        self._paused = consumer
        if not consumer:
            self._health.forget(PAUSED)
            _log.info("all consumers resumed", url=self._address)
            return
        reason = (
            f"{consumer} is paused, events are waiting: resume it (nats consumer resume {STREAM_EVENTS} {consumer})"
        )
        _log.warning("consumer paused", url=self._address, reason=reason)
        self._health.not_ready(PAUSED, reason)

    def forget(self) -> None:
        """Stop reporting because the bus is closed; later events of its connection are ignored.

        The service may have a new bus by then, which reports the same parts of its health.
        """
        if self._over:
            return
        self._over = True
        self.usable.clear()
        for part in (HEALTH, PERMISSIONS, STORAGE, SHARED, PAUSED):
            self._health.forget(part)
