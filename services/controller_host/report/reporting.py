"""Reports the state of controllers: status, Kubernetes Events, events on the bus.

In: controllers that changed. Out: writes of their status, as few as possible; Kubernetes Events; events on the bus.
Called by ``hosting`` and a queue. Invariants: a changed condition is written immediately, unless it keeps changing:
then, like counters, once a minute; the writes per second of all controllers are limited; an event on the bus covers all
occurrences of its type since the last one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Literal

import orjson
from opentelemetry.trace import Span

from controller_host.domain.views import ControllerView, view_controller
from controller_host.report.status import Before, Seen, Status, before_of, is_urgent, patch_of, status_of
from controller_host.scheduler.hosted import Hosted, Trouble
from controller_host.scheduler.turns import Line
from controller_host.timings import ReportTimings
from trellis import names
from trellis.bus.bus import Bus
from trellis.bus.errors import BusUnavailable
from trellis.crds.wasm_controllers import ControllerState
from trellis.events.controllers import ControllerEventData, ControllerSuspended, ControllerTrapped, ControllerWoken
from trellis.kube.client import Kube
from trellis.kube.errors import Conflict, NotFound
from trellis.kube.informer import Informer
from trellis.kube.recorder import EventRecorder, ObjectRef
from trellis.kube.resources import WASM_CONTROLLERS
from trellis.limits.token_bucket import TokenBucket
from trellis.telemetry import TraceContext, linked

COUNTERS_PER_SECOND: Final = 20.0
"""Writes of counters only."""
CONDITIONS_PER_SECOND: Final = 100.0
"""Writes with changed conditions, which do not wait for writes of counters."""
CHANGES_AT_ONCE: Final = 10.0
"""Burst of writes with changed conditions per controller and generation of its spec."""
CHANGES_PER_SECOND: Final = 1 / 60
"""Rate after the burst."""
EVENTS_PER_SECOND: Final = 1.0
"""Bus events and Kubernetes Events about woken or suspended controllers; a later one counts the rest."""
_LONGEST: Final = 1024


@dataclass(slots=True)
class _LastReport:
    """The last reports about a controller; times are monotonic seconds."""

    uid: str
    stored: bytes
    """The status in the API server, as JSON: the one of the view until it is written, and a fourth of the memory."""
    before: Before
    at: float = 0.0
    due: bool = False
    wakes: int = 0
    suspends: int = 0
    traps: int = 0
    events_at: float = 0.0
    traps_at: float = field(default=-math.inf)
    fault: tuple[str, str] = ("", "")
    standing: tuple[object, ...] = ()
    """State that ``status`` covers, without counters; () if unknown."""
    turns: dict[bool, float] = field(default_factory=dict)
    """Reserved time of its next write, for urgent changes and for counters: avoids polling by all that wait."""
    changes: TokenBucket = field(default_factory=lambda: TokenBucket(CHANGES_PER_SECOND, CHANGES_AT_ONCE))

    def status(self) -> Status:
        """Return the status in the API server."""
        found: Status = orjson.loads(self.stored)
        return found

    def turn(self, urgent: bool, line: Line, now: float) -> float:
        """Return the seconds until its write; its place in the line is kept since the first request."""
        at = self.turns.setdefault(urgent, now + line.stand(now))
        if at > now:
            return at - now
        self.turns.clear()
        return 0.0

    def settle(self, patch: Status, now: float) -> float:
        """Return the seconds until the next write of a condition that keeps changing."""
        if "observedGeneration" in patch:
            self.changes = TokenBucket(self.changes.rate, self.changes.burst)  # report a new spec immediately
        return self.changes.wait(now)


@dataclass(eq=False)
class Reporting:
    """Reports of controllers. ``hosted``: the controllers; ``not_watched``: reason why watches of one do not work."""

    kube: Kube
    bus: Bus
    recorder: EventRecorder
    hosted: Mapping[str, Hosted]
    informer: Informer[ControllerView]
    not_watched: Callable[[Hosted], Trouble | None]
    add: Callable[[str], None]
    add_after: Callable[[str, float], None]
    counters: Line = field(default_factory=lambda: Line(COUNTERS_PER_SECOND))
    conditions: Line = field(default_factory=lambda: Line(CONDITIONS_PER_SECOND))
    events: TokenBucket = field(default_factory=lambda: TokenBucket(EVENTS_PER_SECOND))
    timings: ReportTimings = field(default_factory=ReportTimings)
    _last: dict[str, _LastReport] = field(default_factory=dict)

    def changed(self, hosted: Hosted) -> None:
        """Schedule a report: immediately for a change, otherwise with the next counters."""
        last = self._last.get(hosted.key)
        if last is None or last.uid != hosted.view.uid or self._is_changed(hosted, last):
            self.add(hosted.key)
        elif not last.due:
            last.due = True
            self.add_after(hosted.key, max(0.0, last.at + self.timings.counters - time.monotonic()))

    def _is_changed(self, hosted: Hosted, last: _LastReport) -> bool:
        """Return whether more than counters changed. After most calls only counters have changed."""
        standing = standing_of(hosted, self.not_watched(hosted))
        if standing == last.standing:
            return False
        if is_urgent(self._patch(hosted, last)):
            return True
        last.standing = standing
        return False

    def faulted(self, hosted: Hosted) -> None:
        """Schedule a report of a fault: an Event is recorded if it differs from the last one."""
        self.add(hosted.key)

    def removed(self, hosted: Hosted) -> None:
        """Remove a controller."""
        self._last.pop(hosted.key, None)

    async def run(self, key: str, trace: TraceContext | None) -> float | None:
        """Write the status and publish the events of a controller; return the seconds until the next run.

        Raises:
            KubeError: the status could not be written.
        """
        del trace
        item = self.hosted.get(key)
        if item is None:
            return None
        last = self._last.get(key)
        if last is None or last.uid != item.view.uid:
            before = before_of(orjson.loads(item.view.status))
            last = self._last[key] = _LastReport(item.view.uid, item.view.status, before)
        last.due = False
        await self._event(item, last)
        waits = [await self._write(item, last), await self._publish_due(item, last)]
        return min((wait for wait in waits if wait is not None), default=None)

    async def _write(self, hosted: Hosted, last: _LastReport) -> float | None:
        now = time.monotonic()
        patch = self._patch(hosted, last)
        if not patch:
            return None
        urgent = is_urgent(patch)
        if not urgent and (left := last.at + self.timings.counters - now) > 0 and last.at:
            return left
        if urgent and (left := last.settle(patch, now)) > 0:
            return left
        if (left := last.turn(urgent, self.conditions if urgent else self.counters, now)) > 0:
            return left
        view = self.informer.objects.get(hosted.key)
        if view is None or view.uid != hosted.view.uid:
            return None
        body = {"metadata": {"uid": view.uid, "resourceVersion": view.resource_version}, "status": patch}
        try:
            with self._telling(hosted):
                written = await self.kube.merge_patch(
                    WASM_CONTROLLERS,
                    view.name,
                    body,
                    view.namespace,
                    field_manager=names.FIELD_MANAGER_CONTROLLER_HOST,
                    subresource="status",
                )
        except NotFound:
            return None
        except Conflict:
            return self.timings.conflict
        last.stored, last.standing, last.at = view_controller(written).status, (), now
        if urgent:
            last.changes.take(now)
        self.informer.wrote(written, view)
        return None

    async def _event(self, hosted: Hosted, last: _LastReport) -> None:
        trouble = hosted.refused or hosted.stopped or self.not_watched(hosted)
        fault = hosted.fault
        if fault is not None and trouble is None:
            trouble = Trouble(fault.kind, fault.message)
        current = ("", "") if trouble is None else (trouble.reason, trouble.message)
        if current == last.fault or trouble is None:
            last.fault = current
            return
        last.fault = current
        await self._record(hosted, "Warning", trouble)

    async def _record(self, hosted: Hosted, kind: Literal["Normal", "Warning"], what: Trouble) -> None:
        view = hosted.view
        regarding = ObjectRef(WASM_CONTROLLERS.api_version, WASM_CONTROLLERS.kind, view.name, view.uid, view.namespace)
        await self.recorder.record(regarding=regarding, type=kind, reason=what.reason, message=what.message)

    async def _publish_due(self, hosted: Hosted, last: _LastReport) -> float | None:
        """Publish due events; return the seconds until the next are due."""
        now, counters = time.monotonic(), hosted.lifecycle.counters
        try:
            traps = counters.traps - last.traps
            if traps > 0 and now - last.traps_at >= self.timings.traps and hosted.fault is not None:
                fault = {"reason": hosted.fault.kind, "message": hosted.fault.message[:_LONGEST]}
                await self._publish(hosted, ControllerTrapped, counters.traps, {"count": traps, **fault})
                last.traps, last.traps_at = counters.traps, now
            wakes, suspends = counters.wakes - last.wakes, counters.suspends - last.suspends
            is_due = now - last.events_at >= self.timings.events or not last.events_at
            if is_due and (wakes > 0 or suspends > 0) and self.events.take(now):
                last.events_at = now
                if wakes > 0:
                    await self._publish(hosted, ControllerWoken, counters.wakes, {"count": wakes})
                    await self._record(
                        hosted, "Normal", Trouble("Woken", "the controller was restored from its snapshot")
                    )
                    last.wakes = counters.wakes
                if suspends > 0:
                    size = {"bytes_on_disk": counters.snapshot_bytes}
                    await self._publish(hosted, ControllerSuspended, counters.suspends, {"count": suspends, **size})
                    last.suspends = counters.suspends
        except BusUnavailable:
            return self.timings.bus_retry
        return self.timings.traps if counters.traps > last.traps else None

    async def _publish(
        self, hosted: Hosted, model: type[ControllerEventData], number: int, fields: dict[str, object]
    ) -> None:
        event = model.model_validate(
            {"namespace": hosted.view.namespace, "name": hosted.view.name, "uid": hosted.view.uid, **fields}
        )
        with self._telling(hosted):
            await self.bus.publish(event, dedup=f"{hosted.view.uid}/{model.event_name}/{number}/{int(time.time())}")

    def _telling(self, hosted: Hosted) -> AbstractContextManager[Span]:
        """Start a span for all calls since the last report, with a link to the most recent call."""
        calls = [hosted.lifecycle.counters.last_call] if hosted.lifecycle.counters.last_call is not None else []
        return linked(self.kube.telemetry, f"update status {hosted.key}", calls, {"trellis.controller": hosted.key})

    def _patch(self, hosted: Hosted, last: _LastReport) -> Status:
        """Return the patch from the status in the API server to the current state."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        former = last.status()
        return patch_of(former, status_of(seen_of(hosted, self.not_watched(hosted), last.before), former, now))


def standing_of(hosted: Hosted, not_watched: Trouble | None) -> tuple[object, ...]:
    """Return the state of a controller that its status reports, without counters."""
    paused = hosted.wanted is not None and hosted.wanted.paused
    conditions = (hosted.ready, hosted.refused, hosted.stopped, not_watched, paused, hosted.fetching is not None)
    return (hosted.view.generation, hosted.module, bool(hosted.work_queue.failing), *conditions)


def seen_of(hosted: Hosted, not_watched: Trouble | None, before: Before) -> Seen:
    """Return the state of a controller; ``before``: counters from before this process."""
    counters, paused = hosted.lifecycle.counters, hosted.wanted is not None and hosted.wanted.paused
    as_before = hosted.lifecycle.snapshot and not counters.suspends and before.snapshot_bytes
    return Seen(
        generation=hosted.view.generation,
        state=state_of(hosted).value,
        ready=hosted.ready,
        refused=hosted.refused,
        stopped=hosted.stopped,
        not_watched=not_watched,
        paused=paused,
        fetching=hosted.fetching is not None,
        module=hosted.module,
        fault=hosted.fault,
        failing=hosted.work_queue.failing,
        resident_bytes=counters.resident_bytes,
        snapshot_bytes=before.snapshot_bytes if as_before else counters.snapshot_bytes,
        wakes=before.wakes + counters.wakes,
        wake_p99=counters.wake_p99(),
        calls=before.calls + counters.calls,
        traps=before.traps + counters.traps,
    )


def state_of(hosted: Hosted) -> ControllerState:
    """Return the state of a controller for its status and the metrics."""
    if hosted.wanted is not None and hosted.wanted.paused:
        return ControllerState.PAUSED
    if hosted.refused is not None or hosted.stopped is not None:
        return ControllerState.FAILED
    if hosted.lifecycle.instance is not None:
        return ControllerState.RESIDENT
    return ControllerState.SUSPENDED if hosted.lifecycle.snapshot else ControllerState.COLD
