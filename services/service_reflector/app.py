"""Wires service_reflector: creates its clients and connects its components.

In: settings (and clients in tests). Out: a service to run. Called by ``__main__`` and ``trellis run``.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

from service_reflector.apply import Effects
from service_reflector.domain import decide as deciding
from service_reflector.gather import Cache
from service_reflector.lattice_followers import LatticeFollowers
from service_reflector.lattice_reconciler import LatticeReconciler
from service_reflector.metrics import ServiceMetrics
from service_reflector.reconciler import PRESERVED, Reconciler, is_refused
from service_reflector.restore import restore
from service_reflector.settings import Settings
from service_reflector.timings import Timings
from service_reflector.watches import Enqueue, Watches
from trellis import names
from trellis.bus.bus import Bus
from trellis.bus.consume.queue import KeyedQueue
from trellis.events.subjects import SERVICE_REFLECTOR
from trellis.kube.breaker import Breaker, Scope, named
from trellis.kube.client import Kube
from trellis.kube.recorder import EventRecorder
from trellis.kube.refusals import Refusals, noted
from trellis.runtime.run import Base, LedService, Work
from trellis.telemetry import TraceContext, TraceSpans, setup

WORKERS: Final = 16
LATTICE_WORKERS: Final = 4


def create_app(
    settings: Settings, *, bus: Bus | None = None, kube: Kube | None = None, timings: Timings = Timings()
) -> LedService:
    """Return the service; it connects when it runs."""
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
    """Build the components of one leadership term."""
    kube, telemetry = base.kube, base.telemetry
    queue = KeyedQueue[str](workers=WORKERS, name="applications", telemetry=telemetry)
    lattices = KeyedQueue[str](workers=LATTICE_WORKERS, name="lattices", telemetry=telemetry)

    def applications_changed(lattice_id: str, applications: Iterable[str] | None, trace: TraceContext | None) -> None:
        for key in {*cache.keys_of(lattice_id, applications)}:
            queue.add(key, trace=trace)

    def list_all() -> None:
        for lattice_id in {*cache.by_lattice, *cache.followers.lattice_ids}:
            lattices.add(lattice_id)
        for key in cache.all_keys():
            queue.add(key)

    def groups_required_by() -> str | None:
        base.health.note(PRESERVED, cache.preserved_text())  # replaces the note from before they became unknown
        return cache.groups_required_by()

    cache = Cache(
        kube,
        {},
        {},
        LatticeFollowers(applications_changed, timings),
        settings.service_namespaces,
        remove_finalizers=settings.remove_finalizers,
        timings=timings,
        groups_known=lambda: watches.groups.known,
    )
    watches = Watches(kube, cache, Enqueue(queue.add, lattices.add, list_all), groups_required_by, timings.watch)
    recorder = EventRecorder(kube, component=names.FIELD_MANAGER_SERVICE_REFLECTOR)
    populations = {deciding.SERVICES: cache.count}
    scope = Scope(
        SERVICE_REFLECTOR, settings.namespace, populations, {deciding.SERVICES: lambda: named(watches.services)}
    )
    breaker = Breaker(kube, recorder, scope, list_all)
    effects = Effects(kube, recorder, cache, watches.services, watches.slices, watches.routes, breaker)
    reflect = Reconciler(cache, effects, base.bus, TraceSpans(telemetry), base.health, queue)
    refusals = Refusals(queue, noted(base.health), timings.refusals, is_refused)
    metrics = ServiceMetrics(telemetry.metrics, cache)
    follow = LatticeReconciler(cache, applications_changed, settings.sources_interval, metrics)
    return Work(
        [*watches],
        {lattices: follow.run, queue: refusals.heeding(reflect.run)},
        list_all,
        cache.published.clear,
        prepare=partial(restore, cache, base.bus),
        background=[cache.followers.run, metrics.run, breaker.run, refusals.run],
    )
