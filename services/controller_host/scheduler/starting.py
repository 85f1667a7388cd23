"""Start of a guest: woken from disk, or booted and initialised.

In: a compiled module and the prepared input. Out: an instance, or an error. Called by ``lifecycle``, in threads of the
pool. Invariants: a failed start leaves no instance; the saved state of a former version is kept until the state of the
new version, which has migrated it, is on disk; all running guest code can be interrupted.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import orjson
from opentelemetry import trace

from controller_host.domain.results import migrate_request, read_result
from controller_host.guest.abi import EMPTY
from controller_host.guest.faults import FaultKind, GuestFault
from controller_host.guest.limits import Limits
from controller_host.guest.snapshots import SnapshotLost
from controller_host.host_calls.calling import Calls
from controller_host.report.counters import Counters
from controller_host.scheduler.deliveries import StartFailed
from controller_host.scheduler.guests import Guests, Owner, Prepared
from controller_host.state.disk_space import DiskSpace
from controller_host.state.progress import Progress, Saved, SeenVersions
from controller_host.timings import Timings
from trellis.telemetry import Telemetry, get_logger, within

if TYPE_CHECKING:
    from controller_host.guest.instance import Instance
    from controller_host.guest.modules import Module

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Parts:
    """Components that all guests share."""

    guests: Guests
    progress: Progress
    telemetry: Telemetry
    disk_space: DiskSpace = field(default_factory=DiskSpace)
    timings: Timings = field(default_factory=Timings)


@dataclass(frozen=True, slots=True)
class Starting:
    """Starts of the guests of one controller. ``on_start`` receives each instance before guest code runs."""

    parts: Parts
    controller: str
    uid: str
    calls: Calls
    counters: Counters
    on_start: Callable[[Instance], None]

    def wake(self, module: Module, prepared: Prepared) -> Instance | None:
        """Restore the guest from its snapshot; None: there is no usable snapshot."""
        began = time.perf_counter()
        instance = None
        telemetry = self.parts.telemetry
        with within(telemetry, "wake", None):
            try:
                instance = self.parts.guests.wake(module, prepared.limits, self.calls, prepared.owner(self.uid))
            except (GuestFault, SnapshotLost) as error:
                _log.warning("snapshot cannot be restored", controller=self.controller, error=str(error))
        if instance is None:
            _log.info("snapshot missing, starting cold", controller=self.controller)
            return None
        self.on_start(instance)
        seconds = time.perf_counter() - began
        self.counters.woken(seconds)
        telemetry.metrics.controller_wake_seconds.labels(telemetry.service).observe(seconds)
        return instance

    def cold(self, module: Module, prepared: Prepared) -> Instance:
        """Boot the guest, and call ``init`` or ``migrate``.

        Raises:
            GuestFault, ModuleRefused: the start ended the guest.
            StartFailed: the controller returned an error.
        """
        telemetry = self.parts.telemetry
        with telemetry.tracer.start_as_current_span("cold start") as span:
            self.calls.begin(trace.set_span_in_context(span))
            self.counters.cold_starts += 1
            telemetry.metrics.controller_cold_starts_total.labels(telemetry.service).inc()
            instance = self.parts.guests.boot(module, prepared.limits, self.calls, self.on_start)
            if error := self._initialize(module, prepared, instance):
                instance.close()
                raise StartFailed(error)
            return instance

    def save(self, instance: Instance | None, seen: SeenVersions, limits: Limits) -> bool:
        """Call ``save`` of the former version and store its state; without one, the next version starts by ``init``.

        Returns False if the host interrupted the call, True otherwise.

        Raises:
            NotWritten: the state cannot be written; the caller has to retry.
        """
        guests = self.parts.guests
        module = guests.module(seen.sha256)
        if module is None or "save" not in module.exports:
            return True
        awake = None
        try:
            awake = instance or guests.wake(module, limits, self.calls, Owner(self.uid, seen.sha256, seen.config))
            if awake is None:
                return True
            self.on_start(awake)
            self.calls.begin(None)
            answer = awake.call("save", None).answer
        except (GuestFault, SnapshotLost) as error:
            if isinstance(error, GuestFault) and error.kind is FaultKind.INTERRUPTED:
                return False
            _log.warning("former version saved no state", controller=self.controller, error=str(error))
        else:
            self._keep(seen, answer)
        finally:
            if awake is not None and awake is not instance:
                awake.close()
        return True

    def _keep(self, seen: SeenVersions, answer: bytes) -> None:
        if orjson.loads(answer or EMPTY):
            self.parts.progress.save(self.uid, Saved(seen.sha256, answer))
        else:
            self.drop_saved()  # a state of an earlier version is outdated

    def drop_saved(self) -> None:
        """Delete the saved state of a former version, if there is one; raises NotWritten."""
        if self.parts.progress.saved(self.uid) is not None:
            self.parts.progress.drop_saved(self.uid)

    def _initialize(self, module: Module, prepared: Prepared, instance: Instance) -> str:
        """Call ``migrate`` or ``init``; return the error of the controller, or ""."""
        saved = self.parts.progress.saved(self.uid) if "migrate" in module.exports else None
        if saved is not None:
            called = instance.call("migrate", migrate_request(prepared.init, saved.sha256, saved.state))
        elif "init" in module.exports:
            called = instance.call("init", prepared.init)
        else:
            return ""
        return read_result(called.answer).error
