"""Applies the results of a turn: keys that succeeded, wait or failed; controllers that back off as a whole.

In: results of deliveries. Out: changes of a controller's agenda, faults, reports. Called by ``hosting``, in the event
loop. Invariants: a failure is reported immediately; failed work is retried forever, with backoff.
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
from controller_host.state.disk_space import DISK_FULL, Room
from controller_host.timings import TurnTimings
from trellis.kube.timings import RefusalTimings
from trellis.limits.backoff import Backoff
from trellis.telemetry import get_logger

INIT_FAILED: Final = "InitFailed"
RECONCILE_FAILED: Final = "ReconcileFailed"

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Told:
    """Callbacks for changes of controllers; they must not block."""

    changed: Callable[[Hosted], None]
    faulted: Callable[[Hosted], None]
    gone: Callable[[Hosted], None]


def _fits(one: Hosted, abi: int | None) -> None:
    """Record that a module can run; ``abi``: its version, if it was started cold."""
    if one.unfit:
        one.unfit, one.refused = "", None
    if abi is not None and one.module is not None:
        one.module = replace(one.module, abi=abi)


@dataclass(slots=True)
class Outcomes:
    """Results of turns. ``closing``: the host is shutting down and ends guests itself."""

    told: Told
    backoff: Backoff = field(default_factory=Backoff)
    refusals: RefusalTimings = field(default_factory=RefusalTimings)
    timings: TurnTimings = field(default_factory=TurnTimings)
    closing: bool = False

    def take(self, one: Hosted, served: Served) -> None:
        """Apply the results of deliveries."""
        now = one.used_at = time.monotonic()
        for turn, result in served.done:
            if result.error:
                most = self.refusals.bound(one.agenda.refused + 1) if result.refused else None
                one.agenda.failed(turn.key, now, most=most)
                self._note(one, RECONCILE_FAILED, f"{key_text(turn.key)}: {result.error}")
            else:
                one.agenda.done(turn.key, now, result.again)
        if served.done or (served.cold and served.fault is None and not served.unwilling):
            one.failures, one.stopped, one.no_room = 0, None, 0
            _fits(one, served.abi)
        one.agenda.put_back(served.rest)
        for turn in served.later:
            one.agenda.postpone(turn.key, now, self.timings.unwritten)
        if served.cold or served.fault is not None:
            one.listed = False
        if served.missing is not None:
            one.ready, one.fetch = False, served.missing.module
        if served.refused is not None:
            self._refused(one, served.refused)
        if served.unwilling:
            self._note(one, INIT_FAILED, served.unwilling)
            one.stopped, one.ready = Trouble(INIT_FAILED, served.unwilling), False
            self.wait(one)
        if served.fault is not None:
            self._ended(one, served.fault, served.faulted, now)

    def wait(self, one: Hosted) -> float:
        """Back off a controller that did not start; return the delay in seconds."""
        one.failures += 1
        delay = self.backoff.delay(one.failures)
        one.not_before = time.monotonic() + delay
        return delay

    def _refused(self, one: Hosted, refused: ModuleRefused) -> None:
        trouble = Trouble(refused.reason, refused.message)
        if one.refused != trouble:
            _log.warning("module rejected", controller=one.key, reason=str(refused.reason), message=refused.message)
        one.refused, one.ready = trouble, False
        one.unfit = "" if one.module is None else one.module.sha256
        self.wait(one)

    def without_disk(self, one: Hosted, room: Room, what: str) -> float:
        """Back off a controller that requires the disk; return the delay in seconds."""
        one.stopped = no_room(room, what)
        return self.wait(one)

    def without_engine(self, one: Hosted, error: EngineUnavailable) -> float:
        """Back off a controller while the engine is unavailable; return the delay in seconds."""
        one.stopped = Trouble(ENGINE_UNAVAILABLE, str(error))
        return self.wait(one)

    def engine_found(self, one: Hosted) -> None:
        """Clear the problem of a controller that waited for the engine."""
        if one.stopped is not None and one.stopped.reason == ENGINE_UNAVAILABLE:
            one.stopped, one.failures = None, 0

    def _ended(self, one: Hosted, fault: GuestFault, turn: Turn[ObjectKey] | None, now: float) -> None:
        if fault.kind is FaultKind.INTERRUPTED and self.closing:
            return
        where = "" if turn is None else f"{key_text(turn.key)}: "
        self._note(one, fault.kind, f"{where}{fault.message}")
        if turn is not None:
            one.agenda.failed(turn.key, now)
        one.ready = False
        one.stopped = Trouble(fault.kind, fault.message)
        self.wait(one)

    def _note(self, one: Hosted, kind: str, message: str) -> None:
        first = one.fault is None or (one.fault.kind, one.fault.message) != (kind, message)
        one.fault = Fault(str(kind), message, datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
        if first and (left_out := one.said.take(time.monotonic())) is not None:
            more = {"failures_left_out": left_out} if left_out else {}
            _log.warning("controller failed", controller=one.key, reason=str(kind), message=message, **more)
        self.told.faulted(one)


def no_room(room: Room, what: str) -> Trouble:
    """Return the problem of a controller while the disk refuses writes; ``what``: the effect."""
    return Trouble(room.reason or DISK_FULL, f"{what}: the disk of controller_host refuses writes ({room.why})")
