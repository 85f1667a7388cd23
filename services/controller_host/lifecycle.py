"""One controller's guest from start to end: booted or woken, called, put to disk, given up.

In: what was prepared (module, configuration), keys and objects. Out: results, faults, marks of what is done. Called by
``hosting``, one call at a time, in threads of the pool. Invariants: a guest that failed is never used again; what
counts as done is what the snapshot on disk has seen; a snapshot is of the module and configuration that are wanted, or
of no use; losing any of it costs a cold start.
Source: ADR 51, ADR 57, docs/controller-abi.md.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from opentelemetry import trace
from opentelemetry.context import Context

from controller_host.calling import Calls
from controller_host.deliveries import Delivery, NotPrepared, Served, StartFailed
from controller_host.figures import Figures
from controller_host.guest.faults import FaultKind, GuestFault
from controller_host.guest.instance import Instance
from controller_host.guest.modules import ModuleRefused
from controller_host.guest.snapshots import SnapshotFailed
from controller_host.guests import Prepared
from controller_host.keys import key_text, reference
from controller_host.marks import Marks
from controller_host.progress import NEVER, Mark, Past
from controller_host.results import Result, read_result, reconcile_request, version_of
from controller_host.starting import Parts, Starting
from trellis.telemetry import get_logger

SLICE_SECONDS: Final = 0.05
"""A controller that has called for so long lets others have the thread."""

_log = get_logger(__name__)


class Life:
    """The guest of one controller."""

    __slots__ = (
        "_lock",
        "_parts",
        "_starting",
        "calls",
        "controller",
        "figures",
        "instance",
        "marks",
        "prepared",
        "snapshot",
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
        self.snapshot = False
        """Whether there is one on disk that can be woken."""
        self.marks: Final = Marks(parts.progress, uid)
        self._starting: Final = Starting(parts, controller, uid, calls, self.figures)
        # A run that was cancelled leaves its thread behind, for as long as a call takes.
        self._lock = threading.Lock()

    def adopt(self, prepared: Prepared) -> bool:
        """Be of this module and configuration from now on; returns whether they are others than before.

        What is of others is asked what it saves, and given up.
        """
        with self._lock:
            return self._adopt(prepared)

    def _adopt(self, prepared: Prepared) -> bool:
        former = self.prepared
        if former is not None and (former.sha256, former.config) == (prepared.sha256, prepared.config):
            if former.limits != prepared.limits:
                self._suspend()  # the next instance has them
            self._keep(prepared)
            return False
        past = self._parts.progress.recall(self.uid)
        if former is not None:
            past = Past(former.sha256, former.config)
        if past is not None and past.sha256 != prepared.sha256:
            self._starting.save(self.instance, past, prepared.limits)
        self._drop_instance()
        self.prepared = prepared
        fits = past is not None and (past.sha256, past.config) == (prepared.sha256, prepared.config)
        token = self._parts.guests.note(prepared.owner(self.uid)) if fits else None
        if past is not None and token is not None:
            self.snapshot = True
            self.marks.recall(past, token)
        else:
            self._lose(past if former is None else None)
        self._keep(prepared)
        return True

    def serve(self, deliveries: Sequence[Delivery]) -> Served:
        """Call for one after the other, until all are done, one ends the guest, or the slice of time is over."""
        with self._lock:
            served = self._serve(deliveries)
            self._weigh()
            return served

    def _serve(self, deliveries: Sequence[Delivery]) -> Served:
        served = Served()
        until = time.monotonic() + SLICE_SECONDS
        if not deliveries:
            self._started(served)
        self.marks.meet(key_text(delivery.turn.key) for delivery in deliveries)
        for at, delivery in enumerate(deliveries):
            if at and time.monotonic() >= until:
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
        """Put the instance to disk; returns whether there was one that could be. What cannot is lost: a cold start."""
        with self._lock:
            return self._suspend()

    def interrupt(self) -> None:
        """End the call that is under way; from any thread."""
        if (instance := self.instance) is not None:
            instance.interrupt()

    def _suspend(self) -> bool:
        instance, prepared = self.instance, self.prepared
        if instance is None or prepared is None:
            return False
        self.instance = None
        token = secrets.token_hex(8)
        try:
            size = self._parts.guests.suspend(instance, prepared.owner(self.uid), token)
        except SnapshotFailed as error:
            why = str(error)
            _log.warning("a controller cannot be put to disk: it begins cold", controller=self.controller, error=why)
            instance.close()
            self._lose()
            return False
        self.marks.commit(prepared.sha256, prepared.config, token)
        self.snapshot = True
        self.figures.suspends += 1
        self.figures.resident_bytes = 0
        self._parts.telemetry.metrics.controller_suspends_total.labels(self._parts.telemetry.service).inc()
        self.figures.snapshot_bytes = size
        return True

    def forget(self) -> None:
        """Leave nothing: the controller is gone."""
        with self._lock:
            self._drop_instance()
            self._parts.guests.forget(self.uid)
            self._parts.progress.forget(self.uid)

    def _deliver(self, served: Served, delivery: Delivery) -> Result | None:
        """Call for one key; None if the guest is gone."""
        key, tracer = delivery.turn.key, self._parts.telemetry.tracer
        attributes: dict[str, str | int] = {
            "trellis.controller": self.controller,
            "trellis.attempt": delivery.turn.attempt,
            "k8s.namespace.name": key.namespace,
            "k8s.object.name": key.name,
        }
        # Nobody's child: what led here came by a watch, and that knows of no trace.
        span = tracer.start_span(f"reconcile {key.kind}", context=Context(), attributes=attributes)
        with trace.use_span(span, end_on_exit=True):
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
        metrics, service = self._parts.telemetry.metrics, self._parts.telemetry.service
        assert instance is not None  # it was started
        with self._parts.telemetry.tracer.start_as_current_span("guest") as span:
            self.calls.begin(trace.set_span_in_context(span))
            request = reconcile_request(reference(key), delivery.item, delivery.turn.attempt, _traceparent(span))
            called = instance.call("reconcile", request)
            result = read_result(called.answer, called.requeue_ms)
            if result.error:
                span.set_status(trace.StatusCode.ERROR, "it returned an error")  # whose words may quote a Secret
        self.figures.calls += 1
        metrics.controller_call_seconds.labels(service).observe(called.wall_seconds)
        if result.error:
            self.marks.note(key_text(key), Mark(NEVER))
        else:
            due = None if result.again is None else time.time() + result.again
            self.marks.note(key_text(key), Mark(version_of(delivery.item), due))
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
            self._lose()
            if not prepared.init:
                raise NotPrepared(module=False)
            served.cold = True
            self.instance = self._starting.cold(module, prepared)
            served.abi = self.instance.abi
            if module.abi is None and served.abi is not None:
                self._parts.progress.learn_version(prepared.sha256, served.abi)
        self._keep(prepared)

    def _weigh(self) -> None:
        instance = self.instance
        self.figures.resident_bytes = 0 if instance is None else self._parts.guests.size(instance)

    def _keep(self, prepared: Prepared) -> None:
        """Keep what is to run; what ``init`` is told, Secrets among it, only until that has been."""
        told = self.instance is not None or self.snapshot
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
        self._lose()

    def _drop_instance(self) -> None:
        if self.instance is not None:
            self.instance.close()
            self.instance = None

    def _lose(self, past: Past | None = None) -> None:
        """Forget the snapshot, and what its guest has seen: the next start is cold."""
        self._parts.guests.forget(self.uid)
        self.marks.lose(past)
        self.snapshot = False
        self.figures.snapshot_bytes = 0


def _traceparent(span: trace.Span) -> str | None:
    context = span.get_span_context()
    if not context.is_valid:
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
