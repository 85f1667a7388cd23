"""Gauges of controllers for Prometheus.

In: the controllers. Out: gauges that are computed at each scrape. Called by ``app``. Invariants: a guest cannot choose
the value of a label; a scrape reads each controller once.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial

from controller_host.report.reporting import state_of
from controller_host.scheduler.hosted import Hosted
from trellis.crds.wasm_controllers import ControllerState
from trellis.telemetry.metrics import Metrics


class Gauges:
    """Gauges over all controllers; ``hosted`` returns them, ``refuses`` returns whether the disk refuses writes.

    The values are cached for ``fresh`` seconds.
    """

    def __init__(
        self,
        metrics: Metrics,
        service: str,
        hosted: Callable[[], Iterable[Hosted]],
        refuses: Callable[[], bool],
        *,
        fresh: float,
    ) -> None:
        self._fresh = fresh
        self._metrics = metrics
        self._service = service
        self._hosted = hosted
        self._refuses = refuses
        self._at = 0.0
        self._states: Counter[str] = Counter()
        self._bytes = self._pending = 0
        self._oldest = 0.0

    async def run(self) -> None:
        """Register the gauges until cancelled."""
        metrics, service = self._metrics, self._service
        for state in ControllerState:
            metrics.controllers.labels(service, state.value).set_function(partial(self._of, state.value))
        metrics.controllers_resident_bytes.labels(service).set_function(self._of_bytes)
        metrics.controllers_pending_keys.labels(service).set_function(self._of_pending)
        metrics.controllers_oldest_seconds.labels(service).set_function(self._of_oldest)
        metrics.controllers_disk_full.labels(service).set_function(lambda: float(self._refuses()))
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            for state in ControllerState:
                metrics.controllers.remove(service, state.value)
            metrics.controllers_resident_bytes.remove(service)
            metrics.controllers_pending_keys.remove(service)
            metrics.controllers_oldest_seconds.remove(service)
            metrics.controllers_disk_full.remove(service)

    def _of(self, state: str) -> float:
        self._look()
        return self._states[state]

    def _of_bytes(self) -> float:
        self._look()
        return self._bytes

    def _of_pending(self) -> float:
        self._look()
        return self._pending

    def _of_oldest(self) -> float:
        self._look()
        return self._oldest

    def _look(self) -> None:
        """Read all controllers, once for all gauges of a scrape."""
        now = time.monotonic()
        if now - self._at < self._fresh:
            return
        self._at = now
        self._states, self._bytes, self._pending, oldest = Counter(), 0, 0, now
        for item in list(self._hosted()):
            self._states[state_of(item).value] += 1
            self._pending += len(item.work_queue)
            oldest = min(oldest, item.work_queue.oldest() or now)
            self._bytes += item.lifecycle.counters.resident_bytes
        self._oldest = now - oldest
