"""Publishes what changed in workloads: gather, decide, publish, warn.

In: the one key of its queue, and the controllers whose pods, or refusals, changed. Out: events, Warning Events,
metrics. Called by the queue of ``wiring``: soon after a change, and regularly, because Nodes and Shims change causes.
Invariants: nothing is decided before all pods, the Events about refused pods and the published events are known; an
event counts as published once the bus has stored it; a run evaluates a bounded number of controllers, then other work
gets its turn.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from typing import Final
from uuid import uuid4

from provisioner.domain.workloads.decide import Observed, Workload, decide
from provisioner.domain.workloads.published import EVENTS, Published
from provisioner.timings import WorkloadTimings
from provisioner.workloads.finished_owners import FinishedOwners
from provisioner.workloads.gather import Gather
from provisioner.workloads.metrics import PodNumbers
from provisioner.workloads.owners import Owners
from provisioner.workloads.pods import WorkloadPod
from provisioner.workloads.refused_creations import RefusedCreation
from provisioner.workloads.warnings import Warnings
from provisioner.workloads.watches import PodWatch
from trellis.bus.bus import Bus, BusUnavailable, EventRefused
from trellis.events.wasm_workloads import WasmWorkloadEventData, WasmWorkloadFailed
from trellis.kube.changes import Change
from trellis.kube.client import Kube
from trellis.read_model.wasm_pods.snapshot import Snapshot
from trellis.telemetry import Telemetry, TraceContext, get_logger
from trellis.telemetry.tracing import context_from

_log = get_logger(__name__)
KEY: Final = "workloads"
"""The only key: a change of a Node or a Shim can be the cause of any workload."""
BATCH: Final = 200
"""Controllers in one run."""


@dataclass(eq=False)
class WorkloadReconciler:
    """One run over the changed controllers. ``term``: unique part of the IDs of the events of this leadership term."""

    kube: Kube
    bus: Bus
    telemetry: Telemetry
    watch: PodWatch
    owners: Owners
    gather: Gather
    warnings: Warnings
    numbers: PodNumbers
    finished: FinishedOwners
    timings: WorkloadTimings
    term: str = field(default_factory=lambda: uuid4().hex[:8])
    published: Published = field(default_factory=Published)
    streams: int = 1
    """Number of streams of this term: a stream can be re-created, or restored from a backup."""
    _recalled: int = 0
    _changed: dict[str, None] = field(default_factory=dict)
    """UIDs of the controllers to evaluate, in the order of their changes."""
    _later: dict[str, float] = field(default_factory=dict)
    """UIDs of controllers to evaluate from a monotonic time on."""
    _members: dict[Workload, set[str]] = field(default_factory=dict)
    """By owner, the UIDs of its controllers."""
    _stored: dict[str, int] = field(default_factory=dict)
    """Number of events of this term by UID of the owner, part of the IDs of its next ones."""
    _looked_at: float = -math.inf
    _measured_at: float = -math.inf

    def take(self, change: Change[WorkloadPod]) -> None:
        """Record a change of a pod."""
        self.numbers.take(change)
        old, new = change.old, change.new
        if old is not None and (new is None or new.works or new.uid != old.uid):
            self.gather.forget(old)
        for pod in (old, new):
            if pod is not None:
                self._changed[pod.controller.uid] = None

    def take_refusal(self, change: Change[RefusedCreation]) -> None:
        """Record a change of an Event about refused pods."""
        self._evaluate_again(self.gather.refused.take(change))

    def forget_published(self) -> None:
        """Have the published events re-read: another stream has other ones."""
        self.streams += 1

    def list_all(self) -> None:
        """Evaluate all controllers in the next runs."""
        self._changed.update(dict.fromkeys(item.uid for item in self.watch.pods.controllers()))

    async def run(self, key: str, trace: TraceContext | None) -> float | None:
        """Publish the events that are due; return seconds until the next run.

        Raises:
            KubeError: controllers or Events cannot be read, because the API server does not answer.
        """
        del key, trace
        if not self.watch.known:
            self.numbers.show(())
            return self.timings.look
        now = time.monotonic()
        self._look(now)
        self._measure(now)
        self._changed.update(dict.fromkeys(await self.gather.refused.read()))
        for uid in [uid for uid, at in self._later.items() if at <= now]:
            del self._later[uid]
            self._changed[uid] = None
        batch = [*islice(self._changed, BATCH)]
        for uid in batch:  # a change during the run is for the next one
            del self._changed[uid]
        try:
            await self._evaluate(batch)
        except BusUnavailable:
            self._changed.update(dict.fromkeys(batch))
            return self.timings.publish
        except BaseException:
            self._changed.update(dict.fromkeys(batch))
            raise
        if self._changed:
            return self.timings.settle
        wait = self.timings.events_wait if self.gather.refused.waiting else self.timings.measure
        return max(0.0, min([wait, *(at - now for at in self._later.values())]))

    def _look(self, now: float) -> None:
        """Add the controllers with pods that do not work, regularly; drop what belongs to deleted ones."""
        if now - self._looked_at < self.timings.look:
            return
        self._looked_at = now
        pods, refused = self.watch.pods, self.gather.refused
        self._changed.update(dict.fromkeys(pod.controller.uid for pod in pods.objects.values() if not pod.works))
        for owner in refused.expire():
            self._evaluate_again(owner)
        there = {*(item.uid for item in pods.controllers()), *refused.uids()}
        self.owners.keep(there)
        self.finished.keep(there)
        self.gather.keep(pods.objects)
        self._members = {owner: kept for owner, found in self._members.items() if (kept := found & there)}
        self._stored = {owner.uid: self._stored[owner.uid] for owner in self._members if owner.uid in self._stored}
        self.published.keep({owner.key for owner in self._members}, self.kube.now(), self.timings.forget)

    async def _recall(self) -> None:
        """Read the published events from a stream that was not read yet.

        Raises:
            BusUnavailable: NATS is unavailable. Without its events, all of them would be published again.
            KubeError: owners cannot be read, because the API server does not answer.
        """
        while self._recalled != self.streams:
            if not self.bus.connected.is_set():
                raise BusUnavailable("the published events cannot be read")
            number = self.streams
            try:
                async with asyncio.timeout(self.timings.recall):
                    published = await self._read_published()
            except TimeoutError as error:
                raise BusUnavailable("the published events were not read in time") from error
            self.published, self._recalled = published, number
            self.list_all()

    async def _read_published(self) -> Published:
        published, complete = Published(), False
        there = {*(item.uid for item in self.watch.pods.controllers()), *self.watch.refused.uids()}
        events: AsyncIterator[WasmWorkloadEventData] = self.bus.last_events(EVENTS)
        async for event in events:
            if not complete and published.needs_owners(event, there):
                there |= {owner.uid for uid in [*there] if (owner := await self._owner_of(uid)) is not None}
                complete = True
            published.restore(event, there)
        return published

    async def _evaluate(self, uids: Sequence[str]) -> None:
        """Decide about the owners of the pods of these controllers; causes and Warning Events do not wait for the bus.

        Raises:
            BusUnavailable: published events cannot be read, or an event is not stored; those before it are.
        """
        unavailable: BusUnavailable | None = None
        try:
            await self._recall()
        except BusUnavailable as unread:
            unavailable = unread
        owners, snapshot = await self._owners_of(uids), self.gather.snapshot()
        for owner in owners:
            members = {uid: self.watch.pods.of_controller(uid) for uid in sorted(self._members[owner])}
            if not await self.finished.read(owner, members):
                self._evaluate_in(owner, self.timings.events_wait)
                continue
            pods = [pod for those in members.values() for pod in those if not self.finished.is_needless(pod)]
            now = self.kube.now()
            snapshot, observed = await self._observe(owner, snapshot, pods, now)
            published = self.published.states.get(owner.key)
            missing = self.gather.refused.observe(snapshot, members, published.failing if published is not None else ())
            observed += missing
            decision = decide(owner, observed, published, now, self.timings.steady)
            for event in decision.events if unavailable is None else ():
                try:
                    await self._publish(owner, event, pods)
                except BusUnavailable as error:
                    unavailable = error
                    break
            await self.warnings.warn(owner, observed)
            if decision.look_in is not None:
                self._evaluate_in(owner, decision.look_in)
            elif missing:
                self._evaluate_in(owner, self.timings.look)
            await asyncio.sleep(0)
        if unavailable is not None:
            raise unavailable

    async def _owners_of(self, uids: Sequence[str]) -> Sequence[Workload]:
        """Return the owners of the pods of these controllers, each once."""
        owners: dict[Workload, None] = {}
        for uid in uids:
            if (owner := await self._owner_of(uid)) is not None:
                self._members.setdefault(owner, set()).add(uid)
                owners[owner] = None
        return [*owners]

    async def _observe(
        self, owner: Workload, snapshot: Snapshot, pods: Sequence[WorkloadPod], now: float
    ) -> tuple[Snapshot, list[Observed]]:
        """Return the pods with their causes, and a newer snapshot if the Events of pods that do not run were due."""
        observed, read = await self.gather.observe(snapshot, pods), False
        for pod in self.gather.to_read(pods, now):
            if not await self.gather.evidence.read(pod):
                self._evaluate_in(owner, self.timings.events_wait)
                break
            self.gather.invalidate(pod)
            read = True
        if not read:
            return snapshot, observed
        snapshot = self.gather.snapshot()
        return snapshot, await self.gather.observe(snapshot, pods)

    async def _owner_of(self, uid: str) -> Workload | None:
        """Return the owner of a controller that has pods, or whose pods are refused."""
        if found := self.watch.pods.of_controller(uid):
            return await self.owners.of(found[0].controller, found[0].namespace)
        return self.gather.refused.owner_of(uid)

    def _evaluate_again(self, owner: Workload | None) -> None:
        """Evaluate an owner in the next run."""
        if owner is not None:
            self._changed.update(dict.fromkeys(self._members.get(owner, ())))

    def _evaluate_in(self, owner: Workload, seconds: float) -> None:
        at = time.monotonic() + seconds
        for uid in self._members[owner]:
            self._later[uid] = min(at, self._later.get(uid, at))

    async def _publish(self, owner: Workload, event: WasmWorkloadEventData, pods: Sequence[WorkloadPod]) -> None:
        """Publish an event in the trace that the creation of its pod, or the first refusal of its pods, starts.

        Raises:
            BusUnavailable: it is not stored.
        """
        subject, cause = f"pod {event.pod}", f"{event.pod_uid}/created"
        attributes = {"k8s.namespace.name": event.namespace, "trellis.object": owner.text}
        if event.pod_uid:
            attributes["k8s.pod.name"] = event.pod
        else:
            subject, cause = f"refused pods of {owner.kind} {owner.name}", f"{event.uid}/refused"
        former = self.published.states.get(owner.key)
        uid = event.pod_uid or event.uid
        known = former is not None and former.uid == event.uid and uid in former.pods
        with ExitStack() as spans:
            if not known:
                created = next((pod.created_at for pod in pods if pod.uid == event.pod_uid), 0.0)
                start_ns = int(created * 1e9) or None
                spans.enter_context(self.telemetry.begin(subject, cause, start_ns=start_ns, attributes=attributes))
            context = context_from(self.telemetry.trace_of(cause)) if known else None
            spans.enter_context(
                self.telemetry.tracer.start_as_current_span(
                    f"observe {owner.kind} {owner.namespace}/{owner.name}", context=context, attributes=attributes
                )
            )
            try:
                await self.bus.publish(event, dedup=self._dedup(event))
            except EventRefused as error:
                _log.warning("event about a workload not published", workload=owner.text, reason=str(error))
        self.published.note(event)
        self._stored[owner.uid] = self._stored.get(owner.uid, 0) + 1

    def _dedup(self, event: WasmWorkloadEventData) -> str:
        """Return the ID: the same for a retry, another one if the same state returns."""
        reason = event.reason if isinstance(event, WasmWorkloadFailed) else ""
        number = self._stored.get(event.uid, 0)
        return ".".join(filter(None, (event.noun, event.event_name, event.uid, reason, self.term, str(number))))

    def _measure(self, now: float) -> None:
        """Set the metrics, at most once per ``measure`` seconds."""
        if now - self._measured_at >= self.timings.measure:
            self._measured_at = now
            self.numbers.show([*self.watch.pods.objects.values()])
