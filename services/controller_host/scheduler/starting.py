"""How a guest comes into being: woken from disk, or booted and told what it has to know.

In: a compiled module and what was prepared. Out: an instance, or why there is none. Called by ``lifecycle``, in threads
of the pool. Invariants: what does not begin well leaves no instance behind; what a former version saved is kept until
the state of a new one, which has taken it, is on disk; whatever runs of a guest can be interrupted.
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
from controller_host.report.figures import Figures
from controller_host.scheduler.deliveries import StartFailed
from controller_host.scheduler.guests import Guests, Owner, Prepared
from controller_host.state.disk_space import Room
from controller_host.state.progress import Progress, Saved, SeenVersions
from controller_host.timings import Timings
from trellis.telemetry import Telemetry, get_logger, within

if TYPE_CHECKING:
    from controller_host.guest.instance import Instance
    from controller_host.guest.modules import Module

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Parts:
    """What all guests share."""

    guests: Guests
    progress: Progress
    telemetry: Telemetry
    room: Room = field(default_factory=Room)
    timings: Timings = field(default_factory=Timings)


@dataclass(frozen=True, slots=True)
class Starting:
    """Starts the guests of one controller. ``begun`` gets each instance before anything of it runs."""

    parts: Parts
    controller: str
    uid: str
    calls: Calls
    figures: Figures
    begun: Callable[[Instance], None]

    def wake(self, module: Module, prepared: Prepared) -> Instance | None:
        """Bring it back from disk; None: what is there is of no use."""
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
        self.begun(instance)
        seconds = time.perf_counter() - began
        self.figures.woken(seconds)
        telemetry.metrics.controller_wake_seconds.labels(telemetry.service).observe(seconds)
        return instance

    def cold(self, module: Module, prepared: Prepared) -> Instance:
        """Boot it, and tell it what the spec says.

        Raises:
            GuestFault, ModuleRefused: it ended.
            StartFailed: it says that it cannot start.
        """
        telemetry = self.parts.telemetry
        with telemetry.tracer.start_as_current_span("cold start") as span:
            self.calls.begin(trace.set_span_in_context(span))
            self.figures.cold_starts += 1
            telemetry.metrics.controller_cold_starts_total.labels(telemetry.service).inc()
            instance = self.parts.guests.boot(module, prepared.limits, self.calls, self.begun)
            if error := self._tell(module, prepared, instance):
                instance.close()
                raise StartFailed(error)
            return instance

    def save(self, instance: Instance | None, past: SeenVersions, limits: Limits) -> bool:
        """Ask the former version what it saves for the next; without an answer that begins with ``init``.

        Returns whether it has said what it has to say: not, if the host ended it.

        Raises:
            NotWritten: the disk does not take it: it has to be asked again.
        """
        guests = self.parts.guests
        module = guests.module(past.sha256)
        if module is None or "save" not in module.exports:
            return True
        awake = None
        try:
            awake = instance or guests.wake(module, limits, self.calls, Owner(self.uid, past.sha256, past.config))
            if awake is None:
                return True
            self.begun(awake)
            self.calls.begin(None)
            answer = awake.call("save", None).answer
        except (GuestFault, SnapshotLost) as error:
            if isinstance(error, GuestFault) and error.kind is FaultKind.INTERRUPTED:
                return False
            _log.warning("former version saved no state", controller=self.controller, error=str(error))
        else:
            self._keep(past, answer)
        finally:
            if awake is not None and awake is not instance:
                awake.close()
        return True

    def _keep(self, past: SeenVersions, answer: bytes) -> None:
        if orjson.loads(answer or EMPTY):
            self.parts.progress.save(self.uid, Saved(past.sha256, answer))
        else:
            self.drop_saved()  # what one before it may have said is old

    def drop_saved(self) -> None:
        """Forget what a former version saved, if anything is kept; raises NotWritten."""
        if self.parts.progress.saved(self.uid) is not None:
            self.parts.progress.drop_saved(self.uid)

    def _tell(self, module: Module, prepared: Prepared, instance: Instance) -> str:
        """Call ``migrate`` or ``init``; returns why it cannot start, if it says so."""
        saved = self.parts.progress.saved(self.uid) if "migrate" in module.exports else None
        if saved is not None:
            called = instance.call("migrate", migrate_request(prepared.init, saved.sha256, saved.state))
        elif "init" in module.exports:
            called = instance.call("init", prepared.init)
        else:
            return ""
        return read_result(called.answer).error
