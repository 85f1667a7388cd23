"""Wires host_manager: creates its clients and connects its components.

In: settings (and clients in tests). Out: a service to run. Called by ``__main__`` and
``trellis run``.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from host_manager.apply import Effects
from host_manager.domain.pods import PodView
from host_manager.domain.views import GroupView
from host_manager.finalizer_release import HOSTS, FinalizerRelease, hosts_removed_with
from host_manager.gather import Cache
from host_manager.handlers import CONSUMED, SecretReconciler, on_secret
from host_manager.lattice_events import EventForwarder
from host_manager.lattice_follower import LatticeFollower
from host_manager.permissions import Advice
from host_manager.pod_reconciler import PodReconciler
from host_manager.pod_retries import PodRetries
from host_manager.reconciler import Reconciler
from host_manager.restore import restore
from host_manager.settings import Settings
from host_manager.timings import Timings
from host_manager.v2.gather import V2Cache
from host_manager.v2.heartbeats import CONNECTION, CompleteHeartbeats
from host_manager.v2.reconciler import KEY, V2Reconciler
from host_manager.v2.watches import V2Watches
from host_manager.watches import Enqueue, Watches
from trellis import names
from trellis.bus.bus import Bus
from trellis.bus.consume.queue import KeyedQueue
from trellis.events.subjects import HOST_MANAGER
from trellis.kube.breaker import Breaker, Scope
from trellis.kube.client import Kube
from trellis.kube.mass_deletions import Deletions
from trellis.kube.permissions import MissingPermissions
from trellis.kube.recorder import EventRecorder
from trellis.kube.refusals import Refusals, noted
from trellis.kube.resources import HOST_CONFIGS
from trellis.lattice.follow.heartbeats import heartbeats_of
from trellis.runtime.run import Base, LedService, Work
from trellis.telemetry import TraceSpans, setup

WORKERS: Final = 16
POD_WORKERS: Final = 4
SECRET_WORKERS: Final = 16


def create_app(
    settings: Settings, *, bus: Bus | None = None, kube: Kube | None = None, timings: Timings = Timings()
) -> LedService:
    """Return the service; it connects to Kubernetes and NATS when it is run."""
    return LedService(
        name=HOST_MANAGER,
        settings=settings,
        telemetry=setup(HOST_MANAGER, otlp_endpoint=settings.otlp_endpoint, sample_ratio=settings.trace_sample_ratio),
        compose=partial(compose, settings, timings=timings),
        namespaces={settings.namespace: {}},
        kube=kube,
        bus=bus,
        confined=bool(settings.watch_namespaces),
        describe_error=Advice(settings).describe_error,
    )


def compose(settings: Settings, base: Base, timings: Timings = Timings()) -> Work:
    """Connect the components for one leadership term."""
    kube, bus, telemetry = base.kube, base.bus, base.telemetry
    queue = KeyedQueue[str](workers=WORKERS, name="groups", telemetry=telemetry)
    followed = KeyedQueue[str](workers=POD_WORKERS, name="pods", telemetry=telemetry)
    secrets = KeyedQueue[str](workers=SECRET_WORKERS, name="secrets", telemetry=telemetry)
    lifecycle = KeyedQueue[str](workers=1, name="wasmcloud_v2", telemetry=telemetry)
    groups: dict[str, GroupView] = {}
    pods: dict[str, PodView] = {}

    def group_soon(key: str) -> None:
        if key in groups:
            queue.add_after(key, timings.status_delay)

    lattices = LatticeFollower(group_soon, EventForwarder(bus, telemetry, base.cluster, timings).run, timings)
    retries = PodRetries(timings.refusals)
    cache = Cache(kube, groups, pods, settings.sources_interval, timings, lattices=lattices, retries=retries)

    def list_all() -> None:
        for key in groups:
            cache.invalidate(key)
            queue.add(key)
        for key in filter(watches.covers, {*pods, *cache.published.ready}):
            followed.add(key)
        lifecycle.add(KEY)

    def forget_published() -> None:
        cache.published.forget()
        v2.forget_published()

    v2 = V2Cache(kube, timings.v2, places=settings.watch_namespaces)
    if (received := heartbeats_of(settings, CONNECTION, timings.v2_heartbeats)) is not None:
        v2.heartbeats = CompleteHeartbeats(received, kube, timings.v2.silence)
    v2_watches = V2Watches(v2, lambda: lifecycle.add_after(KEY, timings.v2_settle), timings)
    watches = Watches(kube, cache, settings.watch_namespaces, Enqueue(queue.add, group_soon, followed.add, list_all))
    bus.subscribe("secrets", CONSUMED, on_secret(cache.changes, secrets))
    recorder = EventRecorder(kube, component=names.FIELD_MANAGER_HOST_MANAGER)
    effects = Effects(kube, recorder, cache)
    present = {HOSTS: lambda: hosts_removed_with(groups, pods) if watches.complete else None}
    scope = Scope(HOST_MANAGER, settings.namespace, {HOSTS: lambda: len(pods)}, present)
    breaker = Breaker(kube, recorder, scope, list_all)
    defined = None if settings.watch_namespaces else HOST_CONFIGS  # a confined service has no permission for the CRD
    release = FinalizerRelease(groups, Deletions(kube, defined, timings.deletions), breaker)
    permissions = MissingPermissions(base.health, Advice(settings).remedy)
    traces: TraceSpans[str] = TraceSpans(telemetry)
    reconcile = Reconciler(cache, effects, bus, traces, watches.knows, permissions, release)
    follow = PodReconciler(cache, bus, traces, watches.knows)
    changed = SecretReconciler(cache.changes, groups, lambda key, trace: queue.add(key, trace=trace), timings)
    refusals = Refusals(queue, noted(base.health), timings.refusals)
    return Work(
        [*watches],
        {
            queue: refusals.heeding(reconcile.run),
            followed: follow.run,
            secrets: changed.run,
            lifecycle: V2Reconciler(v2, bus, telemetry, timings).run,
        },
        list_all,
        forget_published,
        prepare=partial(restore, cache, bus),
        background=[lattices.run, breaker.run, refusals.run, v2_watches.run],
        apart=bool(settings.watch_namespaces),
    )
