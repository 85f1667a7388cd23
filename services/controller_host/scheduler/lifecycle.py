"""One controller's guest from start to end: booted or woken, called, suspended to disk, given up.

In: what was prepared (module, configuration), keys and objects. Out: results, faults, marks of what is done. Called by
``hosting``, one call at a time, in threads of the pool. Invariants: a guest that failed is never used again; what
counts as done is what the snapshot on disk has seen; a snapshot is of the module and configuration that are wanted, or
of no use; losing any of it costs a cold start; a guest that the disk does not take stays in memory as it was.
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
from controller_host.report.figures import Figures
from controller_host.scheduler.deliveries import Delivery, NotPrepared, Served, StartFailed
from controller_host.scheduler.guests import Prepared
from controller_host.scheduler.reconciling import call_span, reconcile
from controller_host.scheduler.starting import Parts, Starting
from controller_host.state.guest_state import Kept
from controller_host.state.marks import Marks
from controller_host.state.progress import NEVER, Mark, SeenVersions
from trellis.telemetry import current_trace, get_logger

if TYPE_CHECKING:
    from controller_host.guest.instance import Instance

_log = get_logger(__name__)


class GuestLifecycle:
    """The guest of one controller."""

    __slots__ = (
        "_began_cold",
        "_begun",
        "_kept",
        "_lock",
        "_parts",
        "_starting",
        "_stopped",
        "calls",
        "controller",
        "figures",
        "instance",
        "prepared",
        "uid",
    )

    def __init__(self, parts: Parts, controller: str, uid: str, calls: Calls) -> None:
        self._parts = parts
        self.controller: Final = controller
        self.uid: Final = uid
        self.calls: Final = calls
        self.figures: Final = Figures()
        self.prepared: Prepared | None = None
        self.instance: Instance | None = None
        self._kept: Final = Kept(parts, uid, self.figures)
        self._starting: Final = Starting(parts, controller, uid, calls, self.figures, self._begin)
        self._begun: Instance | None = None
        """What runs, or ran last: it may be interrupted before it is the instance."""
        self._began_cold = False
        """Whether the instance has not been on disk yet."""
        self._stopped = False
        # A run that was cancelled leaves its thread behind, for as long as a call takes.
        self._lock = threading.Lock()

    @property
    def snapshot(self) -> bool:
        """Whether there is one on disk that can be woken."""
        return self._kept.snapshot

    @property
    def marks(self) -> Marks:
        """What it has seen."""
        return self._kept.marks

    def adopt(self, prepared: Prepared) -> bool:
        """Be of this module and configuration from now on; returns whether they are others than before.

        What is of others is asked what it saves, and given up.

        Raises:
            NotWritten: the disk does not take what it saves; nothing has changed.
            EngineUnavailable: no guest can be run; nothing has changed.
        """
        with self._lock:
            self._parts.guests.require()  # whether what is on disk is of any use, nobody can tell without
            return self._adopt(prepared)

    def _adopt(self, prepared: Prepared) -> bool:
        former = self.prepared
        if former is not None and (former.sha256, former.config) == (prepared.sha256, prepared.config):
            if former.limits != prepared.limits and self.instance is not None and not self._suspend():
                self._give_up()  # the next instance has them
            self._keep(prepared)
            return False
        past = self._parts.progress.recall(self.uid)
        if former is not None:
            past = SeenVersions(former.sha256, former.config)
        if past is not None and past.sha256 != prepared.sha256:
            if not self._starting.save(self.instance, past, prepared.limits):
                return False  # the host ends: the next one asks again
            if self._stopped:
                return False
        self._drop_instance()
        self.prepared = prepared
        if past is None or not self._kept.recall(past, prepared):
            self._kept.lose(past if former is None else None)
        self._keep(prepared)
        return True

    def serve(self, deliveries: Sequence[Delivery], leaves: Callable[[], bool] = lambda: False) -> Served:
        """Call for one after the other, until all are done, one ends the guest, or the slice of time is over.

        ``leaves``: asked here once nothing is left to call for: whether it goes to disk at once. A turn of the event
        loop and of a thread for that alone would be most of what it costs.
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
        deliveries = self._kept.meet(served, deliveries)
        for at, delivery in enumerate(deliveries):
            if self._stopped or (at and time.monotonic() >= until):
                served.rest = [one.turn for one in deliveries[at:]]
                break
            result = self._deliver(served, delivery)
            if result is None:
                served.rest = [one.turn for one in deliveries[at + 1 :]]
                if served.faulted is None:
                    served.rest.insert(0, delivery.turn)
                break
            served.done.append((delivery.turn, result))
        return served

    def suspend(self) -> bool:
        """Put the instance to disk; returns whether there was one that could be. What cannot be stays as it is."""
        with self._lock:
            return self._suspend()

    def give_up(self) -> None:
        """Leave memory although the disk does not take the instance: the next start is cold."""
        with self._lock:
            self._give_up()

    def settle(self) -> None:
        """Write what the snapshot on disk has seen, if the disk did not take that with it."""
        with self._lock:
            self._kept.settle()

    def interrupt(self) -> None:
        """End what runs of the guest, also its start, and let nothing of it run any more; from any thread."""
        self._stopped = True
        if (instance := self._begun) is not None:
            instance.interrupt()

    def _suspend(self) -> bool:
        if self.instance is None or self.prepared is None or not self._kept.put(self.instance, self.prepared):
            return False
        self.instance = self._begun = None
        self._began_cold = False
        self.figures.suspends += 1
        self.figures.resident_bytes = 0
        self._parts.telemetry.metrics.controller_suspends_total.labels(self._parts.telemetry.service).inc()
        return True

    def _give_up(self) -> None:
        if self.instance is not None:
            _log.warning("controller state lost, starting cold", controller=self.controller)
            self._drop_instance()
            self._kept.lose()

    def forget(self) -> None:
        """Leave nothing: the controller is gone."""
        with self._lock:
            self._drop_instance()
            self._kept.forget()

    def _deliver(self, served: Served, delivery: Delivery) -> Result | None:
        """Call for one key; None if the guest is gone."""
        with call_span(self._parts.telemetry, self.controller, delivery):
            self.figures.last_call = current_trace()
            if not self._started(served):
                return None
            try:
                return self._reconcile(delivery)
            except GuestFault as fault:
                self._failed(served, fault)
                served.faulted = delivery.turn
                return None

    def _started(self, served: Served) -> bool:
        """See to it that there is an instance; returns whether there is."""
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
        assert instance is not None  # it was started
        result = reconcile(instance, self.calls, delivery, self.figures, self._parts.telemetry)
        if result.error:
            self.marks.note(key_text(key), Mark(NEVER))
        else:
            due = None if result.again is None else time.time() + result.again
            self.marks.note(key_text(key), Mark(delivery.version, due))
        return result

    def _start(self, served: Served) -> None:
        """See to it that there is an instance.

        Raises:
            GuestFault: it ended while it started.
            StartFailed: it says that it cannot.
            NotPrepared: there is nothing to start.
        """
        prepared = self.prepared
        if self.instance is not None:
            return
        if prepared is None or (module := self._parts.guests.module(prepared.sha256)) is None:
            raise NotPrepared(module=True)
        if self.snapshot:
            self.instance = self._starting.wake(module, prepared)
        if self.instance is None:
            self._kept.lose()
            if not prepared.init:
                raise NotPrepared(module=False)
            served.cold = True
            self.instance = self._starting.cold(module, prepared)
            self._began_cold = True
            served.abi = self.instance.abi
            if module.abi is None and served.abi is not None:
                self._kept.on_disk(partial(self._parts.progress.learn_version, prepared.sha256, served.abi))
        self.marks.awake()
        self._keep(prepared)

    def _weigh(self) -> None:
        instance = self.instance
        self.figures.resident_bytes = 0 if instance is None else self._parts.guests.size(instance)

    def _keep(self, prepared: Prepared) -> None:
        """Keep what is to run; what ``init`` is told, Secrets among it, only until that has been."""
        told = prepared.init and (self.instance is not None or self.snapshot)
        self.prepared = replace(prepared, init=b"") if told else prepared

    def _failed(self, served: Served, fault: GuestFault) -> None:
        trace.get_current_span().set_status(trace.StatusCode.ERROR, str(fault))
        served.fault = fault
        telemetry = self._parts.telemetry
        telemetry.metrics.controller_faults_total.labels(telemetry.service, fault.kind.value).inc()
        self._drop_instance()
        if fault.kind is FaultKind.INTERRUPTED:
            return  # we end, not it: what it was before this stands on disk, with the marks of that time
        self.figures.traps += 1
        if self._began_cold:
            self._kept.on_disk(self._starting.drop_saved)  # it began with that, and did not stand it
        self._kept.lose()

    def _begin(self, instance: Instance) -> None:
        self._begun = instance
        if self._stopped:  # after the line above: whoever interrupts sees the one or the other
            instance.interrupt()

    def _drop_instance(self) -> None:
        if self.instance is not None:
            self.instance.close()
        self.instance = self._begun = None
        self.figures.resident_bytes = 0
