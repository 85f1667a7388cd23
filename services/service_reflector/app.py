"""Wires service_reflector: the only place that builds its clients and joins its parts.

In: settings (and clients, where a test brings its own). Out: a service to run. Called by ``__main__`` and the bundle.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from service_reflector.apply import Effects
from service_reflector.domain import decide as deciding
from service_reflector.domain.actions import RemoveService, Warn, WarnService
from service_reflector.domain.facts import reflected, removed
from service_reflector.domain.snapshot import Snapshot
from service_reflector.following import Following
from service_reflector.gather import Known
from service_reflector.lattices import FollowLattices
from service_reflector.metrics import Measures
from service_reflector.refusals import is_refused
from service_reflector.settings import Settings
from service_reflector.timings import Timings
from service_reflector.watches import Enqueue, Watches
from trellis import names
from trellis.bus.bus import Bus, BusUnavailable
from trellis.bus.consume.queue import KeyedQueue
from trellis.events.envelope import FactData
from trellis.events.services import ServiceReflected, ServiceRemoved
from trellis.events.subjects import SERVICE_REFLECTOR
from trellis.kube.breaker import Breaker, Scope, named
from trellis.kube.client import Kube
from trellis.kube.errors import KubeError
from trellis.kube.recorder import EventRecorder
from trellis.kube.refusals import WRITE_REFUSED, Refusals, noted
from trellis.runtime.run import Base, LedService, Work
from trellis.telemetry import Stories, TraceContext, setup
from trellis.telemetry.health import Health

WORKERS: Final = 16
LATTICE_WORKERS: Final = 4
"""Reason of Events, and of the note of readiness, about writes that the API server refuses."""
PRESERVED: Final = "ServicesPreserved"
"""Of the note of readiness about Services that wait for an answer of a lattice or for a host group."""


def create_app(
    settings: Settings, *, bus: Bus | None = None, kube: Kube | None = None, timings: Timings = Timings()
) -> LedService:
    """Return the service; it connects when it is run."""
    return LedService(
        name=SERVICE_REFLECTOR,
        settings=settings,
        telemetry=setup(
            SERVICE_REFLECTOR, otlp_endpoint=settings.otlp_endpoint, sample_ratio=settings.trace_sample_ratio
        ),
        compose=partial(compose, settings, timings=timings),
        namespaces={settings.namespace: {}},
        kube=kube,
        bus=bus,
    )


def compose(settings: Settings, base: Base, timings: Timings = Timings()) -> Work:
    """Join the parts for one term of leadership."""
    kube, telemetry = base.kube, base.telemetry
    queue = KeyedQueue[str](workers=WORKERS, name="applications", telemetry=telemetry)
    lattices = KeyedQueue[str](workers=LATTICE_WORKERS, name="lattices", telemetry=telemetry)

    def applications_changed(mark: str, applications: Iterable[str] | None, trace: TraceContext | None) -> None:
        for key in {*known.keys_of(mark, applications)}:
            queue.add(key, trace=trace)

    def list_all() -> None:
        for mark in {*known.by_lattice, *known.following.marks}:
            lattices.add(mark)
        for key in known.all_keys():
            queue.add(key)

    def why_groups() -> str | None:
        base.health.note(PRESERVED, known.why_preserved())  # what was noted before they became unknown
        return known.why_groups()

    known = Known(
        kube,
        {},
        {},
        Following(applications_changed, timings),
        settings.service_namespaces,
        let_go=settings.let_go,
        timings=timings,
        groups_known=lambda: watches.groups.known,
    )
    watches = Watches(kube, known, Enqueue(queue.add, lattices.add, list_all), why_groups, timings.watch)
    recorder = EventRecorder(kube, component=names.FIELD_MANAGER_SERVICE_REFLECTOR)
    populations = {deciding.SERVICES: lambda: len(known.ours())}
    scope = Scope(
        SERVICE_REFLECTOR, settings.namespace, populations, {deciding.SERVICES: lambda: named(watches.services)}
    )
    breaker = Breaker(kube, recorder, scope, list_all)
    effects = Effects(kube, recorder, known, watches.services, watches.slices, watches.routes, breaker)
    reflect = Reflect(known, effects, base.bus, Stories(telemetry), base.health)
    refusals = Refusals(queue, noted(base.health), timings.refusals, is_refused)
    measures = Measures(telemetry.metrics, known)
    follow = FollowLattices(known, applications_changed, settings.sources_seconds, measures)
    return Work(
        [*watches],
        {lattices: follow.run, queue: refusals.heeding(reflect.run)},
        list_all,
        known.said.clear,
        prepare=partial(recall, known, base.bus),
        background=[known.following.run, measures.run, breaker.run, refusals.run],
    )


async def recall(known: Known, bus: Bus) -> None:
    """Read back what was said of Services: what went away meanwhile is said now."""
    facts: AsyncIterator[FactData] = bus.last_facts((ServiceReflected, ServiceRemoved))
    async for fact in facts:
        assert isinstance(fact, ServiceReflected | ServiceRemoved)
        key = f"{fact.namespace}/{fact.name}"
        if isinstance(fact, ServiceReflected):
            known.said[key] = fact
        elif (said := known.said.get(key)) is not None and said.uid == fact.uid:
            del known.said[key]


@dataclass(frozen=True, slots=True)
class Reflect:
    """One run of a key: gather, decide, apply, say."""

    known: Known
    effects: Effects
    bus: Bus
    stories: Stories[str]
    health: Health

    async def run(self, key: str, trace: TraceContext | None) -> float | None:
        """Bring one application's Services in one namespace up to date; returns when to say what could not be said.

        Raises:
            KubeError: for the queue to try again.
        """
        if self.known.controller is not None and not self.known.let_go:
            return None
        snapshot = await self._look(key)
        actions = deciding.decide(snapshot)
        removed = {action.target.uid for action in actions if isinstance(action, RemoveService)}
        for service in snapshot.services.values():
            if service.uid not in removed and snapshot.lattice_of(service) not in snapshot.unknown:
                self.effects.breaker.withdraw(deciding.SERVICES, service.uid)
        waits = [snapshot.look_again]
        if actions:
            attributes = {"trellis.application": key, "trellis.actions": [type(action).__name__ for action in actions]}
            with self.stories.span(key, f"reflect {key}", trace, attributes):
                waits.append(await self._act(snapshot, actions))
        writes = any(not isinstance(action, Warn | WarnService) for action in actions)
        if not writes:  # else what was written is news, and then is published
            with self.stories.follow(key):
                waits.append(again := await self._say(snapshot))
            if again is None and _settled(snapshot):
                self.stories.end(key)
        return min((wait for wait in waits if wait is not None), default=None)

    async def _look(self, key: str) -> Snapshot:
        try:
            snapshot = await self.known.snapshot(key)
        except KubeError as error:
            if is_refused(error):
                for one in self.known.services_of(key):
                    await self.effects.report(one, None, WRITE_REFUSED, str(error))
            raise
        self.health.note(PRESERVED, self.known.why_preserved())
        return snapshot

    async def _act(self, snapshot: Snapshot, actions: list[Any]) -> float | None:
        try:
            return await self.effects.apply(snapshot.namespace, actions)
        except KubeError as error:
            # A refusal is reported on the objects that a user looks at, and the write is tried again all the same.
            if is_refused(error):
                for one in snapshot.services.values():
                    await self.effects.report(one if one.application else None, None, WRITE_REFUSED, str(error))
                for claim in snapshot.claims:
                    await self.effects.report(None, claim.group, WRITE_REFUSED, str(error))
            raise

    async def _say(self, snapshot: Snapshot) -> float | None:
        """Say what holds of each Service; returns when to try again if the bus is away."""
        said, known = self.known.said, self.known
        mirrors = {} if known.let_go else deciding.mirrors_of(snapshot)
        try:
            for mirror in mirrors.values():
                service = known.services.get(mirror.key)
                if service is None or service.application != mirror.application or service.deleting:
                    continue
                fact = reflected(mirror, service)
                if said.get(mirror.key) != fact:
                    await self._publish(fact, service.resource_version)
                    said[mirror.key] = fact
            for key, former in list(said.items()):
                about = (former.namespace, former.application)
                if about == (snapshot.namespace, snapshot.name) and key not in known.services:
                    await self._publish(removed(former), "deleted")
                    said.pop(key, None)
        except BusUnavailable:
            return self.known.timings.publish
        return None

    async def _publish(self, fact: ServiceReflected | ServiceRemoved, state: str) -> None:
        await self.bus.publish(fact, dedup=f"{fact.uid}.{state}.{fact.fact}")


def _settled(snapshot: Snapshot) -> bool:
    """Say whether a trace ends here: what is wanted leads to a host that is ready, or nothing is wanted."""
    pieces = [piece for pieces in snapshot.slices.values() for piece in pieces]
    ready = any(one.get("conditions", {}).get("ready") for piece in pieces for one in piece.endpoints)
    return ready or not snapshot.claims
