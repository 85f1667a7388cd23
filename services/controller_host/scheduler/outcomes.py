"""Applies the results of a turn: keys that succeeded, wait or failed; controllers that back off as a whole.

In: results of deliveries. Out: changes of a controller's work queue, faults, reports. Called by ``hosting``, in the
event loop. Invariants: a failure is reported immediately; failed work is retried forever, with backoff.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

from controller_host.domain.keys import ObjectKey, key_text
from controller_host.guest.faults import FaultKind, GuestFault
from controller_host.guest.refusals import ModuleRefused
from controller_host.module.loading import ENGINE_UNAVAILABLE, EngineUnavailable
from controller_host.scheduler.deliveries import Served
from controller_host.scheduler.hosted import Fault, Hosted, Trouble
from controller_host.scheduler.turns import Turn
from controller_host.state.disk_space import DISK_FULL, DiskSpace
from controller_host.timings import TurnTimings
from trellis.kube.timings import RefusalTimings
from trellis.limits.backoff import Backoff
from trellis.telemetry import get_logger

INIT_FAILED: Final = "InitFailed"
RECONCILE_FAILED: Final = "ReconcileFailed"

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Callbacks:
    """Callbacks for changes of controllers; they must not block."""

    changed: Callable[[Hosted], None]
    faulted: Callable[[Hosted], None]
    removed: Callable[[Hosted], None]


def _fits(hosted: Hosted, abi: int | None) -> None:
    """Record that a module can run; ``abi``: its version, if it was started cold."""
    if hosted.unfit:
        hosted.unfit, hosted.refused = "", None
    if abi is not None and hosted.module is not None:
        hosted.module = replace(hosted.module, abi=abi)


@dataclass(slots=True)
class Outcomes:
    """Results of turns. ``closing``: the host is shutting down and ends guests itself."""

    callbacks: Callbacks
    backoff: Backoff = field(default_factory=Backoff)
    refusals: RefusalTimings = field(default_factory=RefusalTimings)
    timings: TurnTimings = field(default_factory=TurnTimings)
    closing: bool = False

    def take(self, hosted: Hosted, served: Served) -> None:
        """Apply the results of deliveries."""
        now = hosted.used_at = time.monotonic()
        for turn, result in served.done:
            if result.error:
                most = self.refusals.bound(hosted.work_queue.refused + 1) if result.refused else None
                hosted.work_queue.failed(turn.key, now, most=most)
                self._note(hosted, RECONCILE_FAILED, f"{key_text(turn.key)}: {result.error}")
            else:
                hosted.work_queue.done(turn.key, now, result.again)
        if served.done or (served.cold and served.fault is None and not served.unwilling):
            hosted.failures, hosted.stopped, hosted.disk_full = 0, None, 0
            _fits(hosted, served.abi)
        hosted.work_queue.put_back(served.rest)
        for turn in served.later:
            hosted.work_queue.postpone(turn.key, now, self.timings.unwritten)
        if served.cold or served.fault is not None:
            hosted.listed = False
        if served.missing is not None:
            hosted.ready, hosted.fetch = False, served.missing.module
        if served.refused is not None:
            self._refused(hosted, served.refused)
        if served.unwilling:
            self._note(hosted, INIT_FAILED, served.unwilling)
            hosted.stopped, hosted.ready = Trouble(INIT_FAILED, served.unwilling), False
            self.wait(hosted)
        if served.fault is not None:
            self._on_end(hosted, served.fault, served.faulted, now)

    def wait(self, hosted: Hosted) -> float:
        """Back off a controller that did not start; return the delay in seconds."""
        hosted.failures += 1
        delay = self.backoff.delay(hosted.failures)
        hosted.not_before = time.monotonic() + delay
        return delay

    def _refused(self, hosted: Hosted, refused: ModuleRefused) -> None:
        trouble = Trouble(refused.reason, refused.message)
        if hosted.refused != trouble:
            _log.warning("module rejected", controller=hosted.key, reason=str(refused.reason), message=refused.message)
        hosted.refused, hosted.ready = trouble, False
        hosted.unfit = "" if hosted.module is None else hosted.module.sha256
        self.wait(hosted)

    def without_disk(self, hosted: Hosted, disk_space: DiskSpace, what: str) -> float:
        """Back off a controller that requires the disk; return the delay in seconds."""
        hosted.stopped = disk_full(disk_space, what)
        return self.wait(hosted)

    def without_engine(self, hosted: Hosted, error: EngineUnavailable) -> float:
        """Back off a controller while the engine is unavailable; return the delay in seconds."""
        hosted.stopped = Trouble(ENGINE_UNAVAILABLE, str(error))
        return self.wait(hosted)

    def engine_found(self, hosted: Hosted) -> None:
        """Clear the problem of a controller that waited for the engine."""
        if hosted.stopped is not None and hosted.stopped.reason == ENGINE_UNAVAILABLE:
            hosted.stopped, hosted.failures = None, 0

    def _on_end(self, hosted: Hosted, fault: GuestFault, turn: Turn[ObjectKey] | None, now: float) -> None:
        if fault.kind is FaultKind.INTERRUPTED and self.closing:
            return
        where = "" if turn is None else f"{key_text(turn.key)}: "
        self._note(hosted, fault.kind, f"{where}{fault.message}")
        if turn is not None:
            hosted.work_queue.failed(turn.key, now)
        hosted.ready = False
        hosted.stopped = Trouble(fault.kind, fault.message)
        self.wait(hosted)

    def _note(self, hosted: Hosted, kind: str, message: str) -> None:
        first = hosted.fault is None or (hosted.fault.kind, hosted.fault.message) != (kind, message)
        hosted.fault = Fault(str(kind), message, datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
        if first and (left_out := hosted.log_allowance.take(time.monotonic())) is not None:
            more = {"failures_left_out": left_out} if left_out else {}
            _log.warning("controller failed", controller=hosted.key, reason=str(kind), message=message, **more)
        self.callbacks.faulted(hosted)


def disk_full(disk_space: DiskSpace, what: str) -> Trouble:
    """Return the problem of a controller while the disk refuses writes; ``what``: the effect."""
    return Trouble(
        disk_space.reason or DISK_FULL, f"{what}: the disk of controller_host refuses writes ({disk_space.reason})"
    )
