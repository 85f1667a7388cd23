"""Wires host_manager: the only place that builds its clients and joins its parts.

In: settings (and clients, where a test brings its own). Out: a service to run. Called by ``__main__`` and the bundle.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from host_manager.apply import Effects
from host_manager.copying import Copying
from host_manager.domain import decide as deciding
from host_manager.domain.facts import due
from host_manager.domain.inputs import Problem
from host_manager.domain.pods import PodView
from host_manager.domain.snapshot import Snapshot
from host_manager.domain.status import refused_by
from host_manager.domain.views import GroupView
from host_manager.gather import Known
from host_manager.handlers import CONSUMED, FollowSecrets, on_secret
from host_manager.lattice_status import due_in, silent_pods
from host_manager.leave import HOSTS, Leave, going_with
from host_manager.listening import Listening
from host_manager.pod_retries import PodRetries
from host_manager.rights import Advice
from host_manager.settings import Settings
from host_manager.timings import Timings
from host_manager.watches import Enqueue, Watches
from trellis import names
from trellis.bus.bus import Bus, BusUnavailable
from trellis.bus.consume.queue import KeyedQueue
from trellis.events.envelope import FactData
from trellis.events.hosts import HostPodGone, HostPodReady, HostsReady, HostsRemoved
from trellis.events.subjects import HOST_MANAGER
from trellis.kube.breaker import Breaker, Scope
from trellis.kube.client import Kube
from trellis.kube.errors import Conflict, Invalid, KubeError, TooManyRequests, Unauthorized, Unavailable
from trellis.kube.mass_deletions import Deletions
from trellis.kube.recorder import EventRecorder
from trellis.kube.refusals import WRITE_REFUSED, Refusals, is_refused, noted
from trellis.kube.resources import HOST_CONFIGS
from trellis.kube.rights import MissingRights
from trellis.runtime.run import Base, LedService, Work
from trellis.telemetry import Stories, TraceContext, setup

WORKERS: Final = 16
POD_WORKERS: Final = 4
SECRET_WORKERS: Final = 16
_PASSING: Final = (Conflict, Unavailable, TooManyRequests, Unauthorized)
"""What passes by itself, and is no news about the group."""


def create_app(
    settings: Settings, *, bus: Bus | None = None, kube: Kube | None = None, timings: Timings = Timings()
) -> LedService:
    """Return the service; it connects when it is run."""
    return LedService(
        name=HOST_MANAGER,
        settings=settings,
        telemetry=setup(HOST_MANAGER, otlp_endpoint=settings.otlp_endpoint, sample_ratio=settings.trace_sample_ratio),
        compose=partial(compose, settings, timings=timings),
        namespaces={settings.namespace: {}},
        kube=kube,
        bus=bus,
        confined=bool(settings.watch_namespaces),
        words=Advice(settings).words,
    )


def compose(settings: Settings, base: Base, timings: Timings = Timings()) -> Work:
    """Join the parts for one term of leadership."""
    kube, bus, telemetry = base.kube, base.bus, base.telemetry
    queue = KeyedQueue[str](workers=WORKERS, name="groups", telemetry=telemetry)
    followed = KeyedQueue[str](workers=POD_WORKERS, name="pods", telemetry=telemetry)
    secrets = KeyedQueue[str](workers=SECRET_WORKERS, name="secrets", telemetry=telemetry)
    groups: dict[str, GroupView] = {}
    pods: dict[str, PodView] = {}

    def group_soon(key: str) -> None:
        if key in groups:
            queue.add_after(key, timings.status_delay)

    listening = Listening(group_soon, Copying(bus, telemetry, base.cluster, timings).run, timings)
    known = Known(kube, groups, pods, timings, listening=listening, retries=PodRetries(timings.refusals))

    def list_all() -> None:
        for key in groups:
            known.doubt(key)
            queue.add(key)
        for key in filter(watches.covers, {*pods, *known.said.ready}):
            followed.add(key)

    watches = Watches(kube, known, settings.watch_namespaces, Enqueue(queue.add, group_soon, followed.add, list_all))
    bus.subscribe("secrets", CONSUMED, on_secret(known.changes, secrets))
    recorder = EventRecorder(kube, component=names.FIELD_MANAGER_HOST_MANAGER)
    effects = Effects(kube, recorder, known)
    present = {HOSTS: lambda: going_with(groups, pods) if watches.complete else None}
    scope = Scope(HOST_MANAGER, settings.namespace, {HOSTS: lambda: len(pods)}, present)
    breaker = Breaker(kube, recorder, scope, list_all)
    defined = None if settings.watch_namespaces else HOST_CONFIGS  # a confined service may not read the CRD
    leave = Leave(groups, Deletions(kube, defined, timings.deletions), breaker)
    rights = MissingRights(base.health, Advice(settings).remedy)
    stories: Stories[str] = Stories(telemetry)
    reconcile = Reconcile(known, effects, bus, stories, settings.sources_seconds, watches.knows, rights, leave)
    follow = FollowPods(known, bus, stories, watches.knows)
    changed = FollowSecrets(known.changes, groups, lambda key, trace: queue.add(key, trace=trace), timings)
    refusals = Refusals(queue, noted(base.health), timings.refusals)
    return Work(
        [*watches],
        {queue: refusals.heeding(reconcile.run), followed: follow.run, secrets: changed.run},
        list_all,
        known.said.forget,
        prepare=partial(recall, known, bus),
        background=[listening.run, breaker.run, refusals.run],
        apart=bool(settings.watch_namespaces),
    )


async def recall(known: Known, bus: Bus) -> None:
    """Read back which pods were said to be ready: of those that went away meanwhile it is said now."""
    facts: AsyncIterator[FactData] = bus.last_facts((HostPodReady, HostPodGone, HostsReady))
    async for fact in facts:
        if isinstance(fact, HostsReady):
            known.said.groups[f"{fact.namespace}/{fact.name}"] = f"{fact.uid}.{fact.generation}.ready"
            continue
        assert isinstance(fact, HostPodReady | HostPodGone)
        key = f"{fact.namespace}/{fact.name}"
        if isinstance(fact, HostPodReady):
            known.said.ready[key] = fact
        elif (said := known.said.ready.get(key)) is not None and said.uid == fact.uid:
            del known.said.ready[key]


@dataclass(frozen=True, slots=True)
class Reconcile:
    """One run of a group's key: gather, decide, apply.

    While groups wait that nobody has looked at yet, a new one is made in two runs: first all that lets its hosts start.
    """

    known: Known
    effects: Effects
    bus: Bus
    stories: Stories[str]
    sources_seconds: float
    knows: Callable[[str], bool]
    rights: MissingRights
    leave: Leave

    async def run(self, key: str, trace: TraceContext | None) -> float | None:
        """Bring one group up to date; raises KubeError for the queue to try again."""
        if not self.knows(key):
            self.known.waiting.discard(key)
            return self.known.timings.unknown
        try:
            again = await self._run(key, trace)
        except BaseException as error:
            self.known.doubt(key)
            self.rights.failed(key, error)
            raise
        self.rights.worked(key)
        return again

    async def _run(self, key: str, trace: TraceContext | None) -> float | None:
        if self.known.gives_way(key):
            return self.known.timings.give_way
        changes = self.known.changes.of(key)
        snapshot = await self.known.snapshot(key)
        if snapshot is None:
            return None
        if (wait := await self._stays(snapshot)) is not None:
            return wait
        if not snapshot.glance:
            # Whatever changes from now on takes another look.
            self.known.knows(snapshot, self.sources_seconds)
        actions = deciding.decide(snapshot)
        if actions:
            done = [type(action).__name__ for action in actions]
            attributes = {"trellis.group": key, "trellis.actions": done}
            with self.stories.span(key, f"reconcile hosts {key}", trace, attributes):
                actions, again = await self._act(key, snapshot, actions)
                if again is not None:
                    return again
        self.known.changes.looked_at(key, changes, deciding.changes_over(snapshot))
        status = next((one.status for one in actions if isinstance(one, deciding.WriteStatus)), snapshot.status)
        if refused_by(status):
            self.known.doubt(key)  # what is refused is no part of what a look finds
        if status.get("hosts") and not silent_pods(snapshot) and due_in(snapshot) is None:
            self.known.listening.recycling.calm(key)
        again = await self._say(snapshot, status, deleted=False)
        if again is not None:
            return again
        soon = self.known.look_in(key)
        # What was to be waited for may have come, and the time be over, while the rest was written.
        first = self.known.early_for(key) or 0.0 if snapshot.early and not status else None
        undecided = self.known.timings.undecided if self.known.changes.of(key) else None
        retry = self.known.retries.left(key)
        looks = (self.sources_seconds if soon is None else soon, due_in(snapshot), first, undecided, retry)
        return min(one for one in looks if one is not None) + self.known.timings.late

    async def _stays(self, snapshot: Snapshot) -> float | None:
        """Return how long a group stays that is being deleted and that finalizers keep; None if it may go.

        A group that the circuit breaker holds reports it.
        """
        head = snapshot.head
        if not head.deleting or not deciding.decide(snapshot):
            return None
        wait = await self.leave.wait(head.key, snapshot.pods)
        if wait is None:
            return None
        if wait.held:
            await self.effects.apply(head.key, deciding.decide(replace(snapshot, held=True)))
        return wait.seconds

    async def _act(
        self, key: str, snapshot: Snapshot, actions: list[deciding.Action]
    ) -> tuple[list[deciding.Action], float | None]:
        """Carry out what was decided; return what was done, and when to go on.

        What the API server refuses for good is said on the group before it is tried again.
        """
        try:
            if deciding.may_be_refused(snapshot):
                actions, refused = await self.effects.tried(actions)
                if refused:
                    actions = deciding.decide(replace(snapshot, refused=refused))
            # A group that is to go has to be told of before it can be gone.
            again = await self._say(snapshot, snapshot.status, deleted=True)
            half = deciding.first_half(actions) if snapshot.fresh and self.known.waiting else actions
            await self.effects.apply(key, half)
            if len(half) < len(actions):
                self.known.half_made(snapshot)
                return half, self.known.timings.give_way
        except KubeError as error:
            if isinstance(error, _PASSING) and not is_refused(error):
                raise
            self.known.doubt(key)
            if snapshot.fresh and isinstance(error, Invalid):
                # Something in its way was not looked for: now it is.
                self.known.begun(key)
                return actions, 0.0
            now = await self.known.snapshot(key)
            if now is not None:
                await self.effects.apply(key, deciding.report(now, Problem(WRITE_REFUSED, str(error))))
            raise
        return actions, again

    async def _say(self, snapshot: Snapshot, status: Mapping[str, Any], *, deleted: bool) -> float | None:
        """Say what holds of a group; returns when to try again if the bus is away."""
        head, said = snapshot.head, self.known.said.groups
        if snapshot.other is not None or snapshot.group is None or deleted != head.deleting:
            return None
        about = {
            "namespace": head.namespace,
            "name": head.name,
            "uid": head.uid,
            "lattice": snapshot.group.spec.lattice,
        }
        fact: HostsReady | HostsRemoved
        if head.deleting:
            mark, fact = f"{head.uid}.removed", HostsRemoved(**about)
        else:
            conditions = {one["type"]: one for one in status.get("conditions") or ()}
            mine = status.get("observedGeneration") == head.generation
            done = (conditions.get("Ready", {}).get("status"), conditions.get("Progressing", {}).get("status"))
            if not mine or done != ("True", "False"):
                said.pop(head.key, None)  # once it is so again, it is said again
                return None
            mark = f"{head.uid}.{head.generation}.ready"
            fact = HostsReady(**about, generation=head.generation, hosts=status.get("readyReplicas") or 0)
        if said.get(head.key) == mark:
            self.stories.end(head.key)
            return None
        try:
            with self.stories.follow(head.key):
                await self.bus.publish(fact, dedup=f"{head.uid}.{head.resource_version}.{fact.fact}")
        except BusUnavailable:
            return None if head.deleting else self.known.timings.publish  # a group that is deleted must be able to go
        said[head.key] = mark
        self.stories.end(head.key)
        return None


@dataclass(frozen=True, slots=True)
class FollowPods:
    """One run of a pod's key: say what became of it."""

    known: Known
    bus: Bus
    stories: Stories[str]
    knows: Callable[[str], bool]

    async def run(self, key: str, trace: TraceContext | None) -> float | None:
        """Say the facts that are due; returns when to try again if the bus is away."""
        del trace
        if not self.knows(key):
            return self.known.timings.unknown  # a pod that is not seen need not be gone
        said = self.known.said.ready
        pod = self.known.pods.get(key)
        for fact in due(pod, said.get(key)):
            state = pod.resource_version if pod is not None and pod.uid == fact.uid else "deleted"
            try:
                with self.stories.follow(f"{fact.namespace}/{fact.group}"):
                    await self.bus.publish(fact, dedup=f"{fact.uid}.{state}.{fact.fact}")
            except BusUnavailable:
                return self.known.timings.publish
            if isinstance(fact, HostPodReady):
                said[key] = fact
            else:
                said.pop(key, None)
        return None
