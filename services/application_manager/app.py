"""Wires application_manager: creates its clients and connects its components.

In: settings (and clients in tests). Out: a service to run. Called by ``__main__`` and
``trellis run``.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from functools import partial
from typing import Final

from application_manager.apply import Effects
from application_manager.cache import Cache
from application_manager.domain import decide as deciding
from application_manager.domain.views import Key
from application_manager.freshness import GroupConditions
from application_manager.gather import Gather
from application_manager.lattice_followers import LatticeFollowers
from application_manager.metrics import ApplicationMetrics
from application_manager.permissions import describe_error, remedy
from application_manager.reconciler import Reconciler
from application_manager.restore import restore
from application_manager.settings import Settings
from application_manager.timings import Timings
from application_manager.tombstones import Tombstones
from application_manager.watches import Enqueue, Watches
from trellis import names
from trellis.bus.bus import Bus
from trellis.bus.consume.queue import KeyedQueue
from trellis.events.subjects import APPLICATION_MANAGER
from trellis.kube.breaker import Breaker, Scope, named
from trellis.kube.client import Kube
from trellis.kube.permissions import MissingPermissions
from trellis.kube.recorder import EventRecorder
from trellis.kube.refusals import WRITE_REFUSED, Refusals, noted
from trellis.lattice.connection.address import LatticeAddress
from trellis.lattice.follow.group_lattices import GroupLattices
from trellis.runtime.run import Base, LedService, Work
from trellis.telemetry import TraceSpans, setup

WORKERS: Final = 16
LATTICE_WORKERS: Final = 4


def create_app(
    settings: Settings, *, bus: Bus | None = None, kube: Kube | None = None, timings: Timings = Timings()
) -> LedService:
    """Return the service; it connects to Kubernetes and NATS when it is run."""
    return LedService(
        name=APPLICATION_MANAGER,
        settings=settings,
        telemetry=setup(
            APPLICATION_MANAGER, otlp_endpoint=settings.otlp_endpoint, sample_ratio=settings.trace_sample_ratio
        ),
        compose=partial(compose, settings, timings=timings),
        namespaces={settings.namespace: {}},
        kube=kube,
        bus=bus,
        describe_error=describe_error,
    )


def compose(settings: Settings, base: Base, timings: Timings = Timings()) -> Work:
    """Connect the components for one leadership term."""
    kube, telemetry = base.kube, base.telemetry
    queue = KeyedQueue[Key](workers=WORKERS, name="applications", telemetry=telemetry)
    lattices = KeyedQueue[str](workers=LATTICE_WORKERS, name="lattices", telemetry=telemetry)
    groups = KeyedQueue[str](workers=LATTICE_WORKERS, name="groups", telemetry=telemetry)

    def applications_changed(lattice_id: str, applications: Iterable[str] | None) -> None:
        if applications is None:
            groups.add(lattice_id)
        for key in {*cache.keys_of(lattice_id, applications)}:
            queue.add(key)

    def list_all() -> None:
        for lattice_id in cache.lattice_ids:
            lattices.add(lattice_id)
        for key in cache.all_keys():
            queue.add(key)

    cache = Cache({}, LatticeFollowers(applications_changed, base.cluster, timings.lattice))
    watches = Watches(kube, cache, Enqueue(queue.add, lattices.add, list_all), timings.watch)
    recorder = EventRecorder(kube, component=names.FIELD_MANAGER_APPLICATION_MANAGER)
    populations = {deciding.APPLICATIONS: lambda: len(cache.applications)}
    present = {deciding.APPLICATIONS: lambda: named(watches.applications)}
    scope = Scope(APPLICATION_MANAGER, settings.namespace, populations, present)
    breaker = Breaker(kube, recorder, scope, list_all)
    tombstones = Tombstones(kube, settings.namespace)
    gather = Gather(
        *(kube, cache, tombstones, lambda: watches.groups.known, lambda: watches.applications.known),
        *(settings.remove_finalizers, timings),
    )
    effects = Effects(kube, recorder, cache, watches.applications, tombstones, breaker, timings)
    permissions = MissingPermissions(base.health, remedy)
    metrics = ApplicationMetrics(telemetry.metrics, cache, timings)
    reconciler = Reconciler(gather, cache, effects, base.bus, TraceSpans(telemetry), permissions, timings)

    async def follow(lattice_id: str, address: LatticeAddress | None) -> None:
        await cache.followers.follow(lattice_id, address)
        metrics.follow(lattice_id, address)
        applications_changed(lattice_id, None)  # the lattice may have other host groups now

    def noted_lattice(lattice_id: str) -> AbstractContextManager[None]:
        return permissions.noted(f"lattice {lattice_id}")

    follow_groups = GroupLattices(kube, cache.groups_to_follow, follow, noted_lattice, settings.sources_interval)
    group_conditions = GroupConditions(kube, cache, permissions, settings.remove_finalizers, timings)
    refused = Refusals(queue, noted(base.health))
    refused_lattices = Refusals(lattices, noted(base.health, f"{WRITE_REFUSED}, lattices"))
    refused_groups = Refusals(groups, noted(base.health, f"{WRITE_REFUSED}, groups"))
    return Work(
        [*watches],
        {
            lattices: refused_lattices.heeding(follow_groups.run),
            groups: refused_groups.heeding(group_conditions.run),
            queue: refused.heeding(reconciler.run),
        },
        list_all,
        cache.published.forget,
        prepare=partial(restore, cache.published, base.bus),
        background=[
            cache.followers.run,
            metrics.run,
            breaker.run,
            refused.run,
            refused_lattices.run,
            refused_groups.run,
        ],
    )
