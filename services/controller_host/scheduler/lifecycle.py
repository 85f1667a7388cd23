"""Lifecycle of one controller's guest: booted or woken, called, suspended to disk, discarded.

In: the prepared module and configuration, keys and objects. Out: results, faults, processed versions. Called by
``hosting``, one call at a time, in threads of the pool. Invariants: a failed guest is not reused; a version counts as
processed only if the snapshot on disk includes it; a snapshot is used only with its module and configuration; any loss
causes a cold start; a guest that cannot be written to its snapshot stays in memory.
Source: ADR 51, ADR 57, ADR 60, docs/controller-abi.md.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from opentelemetry import trace

from controller_host.domain.keys import key_text
from controller_host.domain.results import Result
from controller_host.guest.faults import FaultKind, GuestFault
from controller_host.guest.refusals import ModuleRefused
from controller_host.host_calls.calling import Calls
from controller_host.report.counters import Counters
from controller_host.scheduler.deliveries import Delivery, NotPrepared, Served, StartFailed
from controller_host.scheduler.guests import Prepared
from controller_host.scheduler.reconciling import call_span, reconcile
from controller_host.scheduler.starting import Parts, Starting
from controller_host.state.guest_state import GuestState
from controller_host.state.processed_versions import ProcessedVersions
from controller_host.state.progress import NEVER, LastCall, SeenVersions
from trellis.telemetry import current_trace, get_logger

if TYPE_CHECKING:
    from controller_host.guest.instance import Instance

_log = get_logger(__name__)


class GuestLifecycle:
    """The guest of one controller."""

    __slots__ = (
        "_began_cold",
        "_guest_state",
        "_lock",
        "_parts",
        "_running",
        "_starting",
        "_stopped",
        "calls",
        "controller",
        "counters",
        "instance",
        "prepared",
        "uid",
    )

    def __init__(self, parts: Parts, controller: str, uid: str, calls: Calls) -> None:
        self._parts = parts
        self.controller: Final = controller
        self.uid: Final = uid
        self.calls: Final = calls
        self.counters: Final = Counters()
        self.prepared: Prepared | None = None
        self.instance: Instance | None = None
        self._guest_state: Final = GuestState(parts, uid, self.counters)
        self._starting: Final = Starting(parts, controller, uid, calls, self.counters, self._begin)
        self._running: Instance | None = None
        """The running or last instance: it can be interrupted before ``instance`` is set."""
        self._began_cold = False
        """True if the instance has not been suspended since its cold start."""
        self._stopped = False
        # The thread of a cancelled run continues until its call ends.
        self._lock = threading.Lock()

    @property
    def snapshot(self) -> bool:
        """True if there is a snapshot on disk."""
        return self._guest_state.snapshot

    @property
    def processed(self) -> ProcessedVersions:
        """Versions that the guest has processed."""
        return self._guest_state.processed

    def adopt(self, prepared: Prepared) -> bool:
        """Set the module and configuration; return whether they changed.

        After a change of the module, call ``save`` of the former version; then discard the former guest.

        Raises:
            NotWritten: the saved state cannot be written; nothing has changed.
            EngineUnavailable: no guest can run; nothing has changed.
        """
        with self._lock:
            self._parts.guests.require()  # without the engine, snapshots cannot be validated
            return self._adopt(prepared)

    def _adopt(self, prepared: Prepared) -> bool:
        former = self.prepared
        if former is not None and (former.sha256, former.config) == (prepared.sha256, prepared.config):
            if former.limits != prepared.limits and self.instance is not None and not self._suspend():
                self._discard()  # the next instance has the new limits
            self._keep(prepared)
            return False
        seen = self._parts.progress.load(self.uid)
        if former is not None:
            seen = SeenVersions(former.sha256, former.config)
        if seen is not None and seen.sha256 != prepared.sha256:
            if not self._starting.save(self.instance, seen, prepared.limits):
                return False  # the host is shutting down: the next one retries
            if self._stopped:
                return False
        self._drop_instance()
        self.prepared = prepared
        if seen is None or not self._guest_state.restore(seen, prepared):
            self._guest_state.lose(seen if former is None else None)
        self._keep(prepared)
        return True

    def serve(self, deliveries: Sequence[Delivery], leaves: Callable[[], bool] = lambda: False) -> Served:
        """Call for each delivery until all are done, a fault ends the guest, or the time slice is over.

        ``leaves`` is called when no delivery is left: if true, suspend the guest. This avoids a turn of the event loop
        and of a thread, most of the duration of a suspension.
        """
        with self._lock:
            served = self._serve(deliveries)
            if self.instance is not None and served.is_settled and leaves():
                served.to_disk = self._suspend()
            self._weigh()
            return served

    def _serve(self, deliveries: Sequence[Delivery]) -> Served:
        served = Served()
        until = time.monotonic() + self._parts.timings.turns.slice
        if not deliveries:
            self._started(served)
        deliveries = self._guest_state.meet(served, deliveries)
        for at, delivery in enumerate(deliveries):
            if self._stopped or (at and time.monotonic() >= until):
                served.rest = [item.turn for item in deliveries[at:]]
                break
            result = self._deliver(served, delivery)
            if result is None:
                served.rest = [item.turn for item in deliveries[at + 1 :]]
                if served.faulted is None:
                    served.rest.insert(0, delivery.turn)
                break
            served.done.append((delivery.turn, result))
        return served

    def suspend(self) -> bool:
        """Suspend the instance to disk; return whether it succeeded. After a failure, it stays in memory."""
        with self._lock:
            return self._suspend()

    def discard(self) -> None:
        """Discard the instance without a snapshot: the next start is cold."""
        with self._lock:
            self._discard()

    def settle(self) -> None:
        """Write the processed versions of the snapshot, if this failed at the suspension."""
        with self._lock:
            self._guest_state.settle()

    def interrupt(self) -> None:
        """End the running call or start of the guest, and prevent further ones; thread-safe."""
        self._stopped = True
        if (instance := self._running) is not None:
            instance.interrupt()

    def _suspend(self) -> bool:
        if self.instance is None or self.prepared is None or not self._guest_state.put(self.instance, self.prepared):
            return False
        self.instance = self._running = None
        self._began_cold = False
        self.counters.suspends += 1
        self.counters.resident_bytes = 0
        self._parts.telemetry.metrics.controller_suspends_total.labels(self._parts.telemetry.service).inc()
        return True

    def _discard(self) -> None:
        if self.instance is not None:
            _log.warning("controller state lost, starting cold", controller=self.controller)
            self._drop_instance()
            self._guest_state.lose()

    def forget(self) -> None:
        """Remove all state of a deleted controller."""
        with self._lock:
            self._drop_instance()
            self._guest_state.forget()

    def _deliver(self, served: Served, delivery: Delivery) -> Result | None:
        """Call for one key; return None if the guest ended."""
        with call_span(self._parts.telemetry, self.controller, delivery):
            self.counters.last_call = current_trace()
            if not self._started(served):
                return None
            try:
                return self._reconcile(delivery)
            except GuestFault as fault:
                self._failed(served, fault)
                served.faulted = delivery.turn
                return None

    def _started(self, served: Served) -> bool:
        """Start an instance unless there is one; return whether there is one."""
        if self._stopped:
            return False
        try:
            self._start(served)
        except GuestFault as fault:
            self._failed(served, fault)
            return False
        except ModuleRefused as refused:
            served.refused = refused
            return False
        except NotPrepared as missing:
            served.missing = missing
            return False
        except StartFailed as failed:
            served.unwilling = str(failed)
            return False
        return True

    def _reconcile(self, delivery: Delivery) -> Result:
        key, instance = delivery.turn.key, self.instance
        assert instance is not None  # set by _started
        result = reconcile(instance, self.calls, delivery, self.counters, self._parts.telemetry)
        if result.error:
            self.processed.note(key_text(key), LastCall(NEVER))
        else:
            due = None if result.again is None else time.time() + result.again
            self.processed.note(key_text(key), LastCall(delivery.version, due))
        return result

    def _start(self, served: Served) -> None:
        """Start an instance unless there is one.

        Raises:
            GuestFault: a fault ended the start.
            StartFailed: the controller returned an error.
            NotPrepared: the module or the input of ``init`` is missing.
        """
        prepared = self.prepared
        if self.instance is not None:
            return
        if prepared is None or (module := self._parts.guests.module(prepared.sha256)) is None:
            raise NotPrepared(module=True)
        if self.snapshot:
            self.instance = self._starting.wake(module, prepared)
        if self.instance is None:
            self._guest_state.lose()
            if not prepared.init:
                raise NotPrepared(module=False)
            served.cold = True
            self.instance = self._starting.cold(module, prepared)
            self._began_cold = True
            served.abi = self.instance.abi
            if module.abi is None and served.abi is not None:
                self._guest_state.on_disk(partial(self._parts.progress.learn_version, prepared.sha256, served.abi))
        self.processed.awake()
        self._keep(prepared)

    def _weigh(self) -> None:
        instance = self.instance
        self.counters.resident_bytes = 0 if instance is None else self._parts.guests.size(instance)

    def _keep(self, prepared: Prepared) -> None:
        """Store the prepared input; without the request of ``init``, which contains Secrets, once it was used."""
        init_used = prepared.init and (self.instance is not None or self.snapshot)
        self.prepared = replace(prepared, init=b"") if init_used else prepared

    def _failed(self, served: Served, fault: GuestFault) -> None:
        trace.get_current_span().set_status(trace.StatusCode.ERROR, str(fault))
        served.fault = fault
        telemetry = self._parts.telemetry
        telemetry.metrics.controller_faults_total.labels(telemetry.service, fault.kind.value).inc()
        self._drop_instance()
        if fault.kind is FaultKind.INTERRUPTED:
            return  # the host is shutting down: the last snapshot stays, with its processed versions
        self.counters.traps += 1
        if self._began_cold:
            self._guest_state.on_disk(self._starting.drop_saved)  # the saved state may have caused the fault
        self._guest_state.lose()

    def _begin(self, instance: Instance) -> None:
        self._running = instance
        if self._stopped:  # after the line above: a concurrent `interrupt` saw the instance, or set the flag before
            instance.interrupt()

    def _drop_instance(self) -> None:
        if self.instance is not None:
            self.instance.close()
        self.instance = self._running = None
        self.counters.resident_bytes = 0
