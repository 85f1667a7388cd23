"""Audit of secret requests: a log line at once, and an event when NATS accepts it.

In: events of answers. Out: log lines, and events on the bus. Called by ``answering``. Invariants: no request waits for
NATS; equal waiting events become one with a count; above ``MOST`` those of the source with most events are dropped and
counted; no source can fill the stream and displace events about other sources; no value of a Secret reaches this
module.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import secrets
import time
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

from secrets_backend.timings import AuditTimings
from trellis.bus.bus import Bus, BusUnavailable, EventRefused
from trellis.events.secrets import SecretAnswered, SecretDenied, SecretGranted
from trellis.limits.token_bucket import TokenBucket
from trellis.telemetry import Telemetry, TraceContext, caused, current_trace, get_logger, joined

MOST: Final = 10_000
"""Maximum number of waiting events, some 10 MB."""
EVENTS_PER_SECOND: Final = 20.0
"""Rate limit of one source. Tokens and keys can be forged, each with its own event: at this rate it fills a stream of
1 GiB only after 14 hours."""
EVENTS_AT_ONCE: Final = 2_000.0
_PACES_KEPT: Final = 4096

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Number of answers that an event represents, and their traces."""

    count: int
    trace: TraceContext | None

    def after(self, former: _Waiting | None) -> _Waiting:
        """Return both merged."""
        if former is None:
            return self
        return _Waiting(former.count + self.count, joined(former.trace, self.trace))


class Audit:
    """The audit of one process; its event ids are independent of other replicas."""

    def __init__(
        self,
        bus: Bus,
        telemetry: Telemetry,
        timings: AuditTimings = AuditTimings(),  # noqa: B008 - frozen
    ) -> None:
        self._timings: Final = timings
        self._bus = bus
        self._telemetry = telemetry
        self._dedup_prefix = secrets.token_hex(8)
        self._dropped_total = telemetry.metrics.secrets_audit_dropped_total.labels(telemetry.service)
        self._dropped = 0
        self._waiting: OrderedDict[Hashable, OrderedDict[SecretAnswered, _Waiting]] = OrderedDict()
        self._paces: OrderedDict[Hashable, TokenBucket] = OrderedDict()
        self._numbers = itertools.count(1)
        self._arrival = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()

    def __len__(self) -> int:
        """Return the number of waiting events."""
        return sum(len(events) for events in self._waiting.values())

    def record(self, event: SecretGranted | SecretDenied, source: Hashable = "") -> None:
        """Log an answer, and enqueue its event; ``source``: requests that share a limit."""
        what = event.model_dump(exclude={"count"}, exclude_defaults=True)
        _log.info(f"secret {event.event_name}", **what)
        own = self._waiting.setdefault(source, OrderedDict())
        if event not in own and len(self) >= MOST:
            self._drop_newest()
            own = self._waiting.setdefault(source, OrderedDict())
        own[event] = _Waiting(1, current_trace()).after(own.get(event))
        self._empty.clear()
        self._arrival.set()

    async def run(self) -> None:
        """Publish events until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._send(), name="audit")
            tasks.create_task(self._report(), name="audit report")

    async def close(self, seconds: float) -> None:
        """Wait until all events are published, for at most ``seconds``."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._empty.wait()
        if self._waiting:
            left = sum(sum(event.count for event in events.values()) for events in self._waiting.values())
            _log.error("secret events not published before the shutdown", count=left)

    async def _send(self) -> None:
        while True:
            await self._arrival.wait()
            while self._waiting:
                source = self._due()
                if source is None:
                    await asyncio.sleep(self._timings.pace)
                    continue
                event, waiting = self._take(source)
                if not await self._published(event, waiting):
                    events = self._waiting.setdefault(source, OrderedDict())
                    events[event] = waiting if event not in events else events[event].after(waiting)
                    events.move_to_end(event, last=False)
                    await asyncio.sleep(self._timings.bus_retry)
                await asyncio.sleep(self._timings.gap)
            self._arrival.clear()
            self._empty.set()

    def _due(self) -> Hashable | None:
        """Return the next source to publish, None if all waiting ones have reached their rate limit."""
        now = time.monotonic()
        for source in self._waiting:
            pace = self._paces.setdefault(source, TokenBucket(EVENTS_PER_SECOND, EVENTS_AT_ONCE))
            self._paces.move_to_end(source)
            if pace.take(now):
                return source
        while len(self._paces) > max(_PACES_KEPT, len(self._waiting)):
            self._paces.popitem(last=False)
        return None

    def _take(self, source: Hashable) -> tuple[SecretAnswered, _Waiting]:
        """Remove and return the oldest event of a source; all other sources come before its next event."""
        events = self._waiting.pop(source)
        event, waiting = events.popitem(last=False)
        if events:
            self._waiting[source] = events
        return event, waiting

    def _drop_newest(self) -> None:
        """Drop the newest event of the source with the most events, so that a flood displaces no other source."""
        source, events = max(self._waiting.items(), key=lambda item: len(item[1]))
        _, waiting = events.popitem()
        if not events:
            del self._waiting[source]
        self._drop(waiting.count)

    async def _published(self, event: SecretAnswered, waiting: _Waiting) -> bool:
        counted = event.model_copy(update={"count": waiting.count})
        try:
            with caused(self._telemetry, "audit", waiting.trace, {"trellis.answers": waiting.count}):
                await self._bus.publish(counted, dedup=f"{self._dedup_prefix}.{next(self._numbers)}")
        except BusUnavailable:
            return False
        except (EventRefused, ValueError) as error:  # too large, or not valid in JSON
            _log.error("secret event rejected", namespace=event.namespace, name=event.name, error=str(error))
            self._drop(waiting.count)
        return True

    def _drop(self, count: int) -> None:
        self._dropped += count
        self._dropped_total.inc(count)

    async def _report(self) -> None:
        reported = 0
        while True:
            await asyncio.sleep(self._timings.report)
            if self._dropped > reported:
                _log.error("secret events dropped, see the log entries of the answers", count=self._dropped - reported)
                reported = self._dropped
