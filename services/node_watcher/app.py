"""Wires node_watcher: creates its clients and connects its components.

In: settings (and clients in tests). Out: a service to run. Called by ``__main__`` and ``trellis run``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from node_watcher.apply import Effects
from node_watcher.domain import decide as deciding
from node_watcher.domain.actions import Reason
from node_watcher.domain.node_patch import labelled_ready
from node_watcher.gather import Cache
from node_watcher.handlers import CONSUMED, on_provision
from node_watcher.reconciler import Reconciler
from node_watcher.restore import restore
from node_watcher.settings import Settings
from node_watcher.timings import Timings
from node_watcher.watches import on_job, on_node, on_slots
from trellis import names
from trellis.bus.bus import Bus
from trellis.bus.consume.queue import KeyedQueue
from trellis.events.subjects import NODE_WATCHER
from trellis.kube.breaker import Breaker, Scope, named
from trellis.kube.client import Kube
from trellis.kube.informer import Informer
from trellis.kube.mass_deletions import Deletions
from trellis.kube.permissions import describe_error
from trellis.kube.recorder import EventRecorder
from trellis.kube.refusals import Refusals, unready
from trellis.kube.resources import CONFIGMAPS, JOBS, NODES, SHIMS
from trellis.provisioning.ledger import Entry, read_slots
from trellis.provisioning.node_shape import NODE_SHAPE
from trellis.provisioning.nodes_and_jobs import view_job, view_node
from trellis.provisioning.reasons import APPLY_AGAIN
from trellis.provisioning.shim_references import ShimReferences
from trellis.provisioning.shims import ShimView, view_shim
from trellis.provisioning.views import INSTALLER_JOBS
from trellis.runtime.run import INSTALLER_NAMESPACE_LABELS, Base, LedService, Work
from trellis.telemetry import setup

WORKERS = 16


def create_app(
    settings: Settings, *, bus: Bus | None = None, kube: Kube | None = None, timings: Timings = Timings()
) -> LedService:
    """Return the service; it connects when it runs."""
    return LedService(
        name=NODE_WATCHER,
        settings=settings,
        telemetry=setup(NODE_WATCHER, otlp_endpoint=settings.otlp_endpoint, sample_ratio=settings.trace_sample_ratio),
        compose=partial(compose, settings, timings=timings),
        namespaces={settings.namespace: {}, settings.installer_namespace: INSTALLER_NAMESPACE_LABELS},
        kube=kube,
        bus=bus,
        claims=settings.claim_namespace,
        describe_error=partial(describe_error, remedy=APPLY_AGAIN),
    )


def compose(settings: Settings, base: Base, timings: Timings = Timings()) -> Work:
    """Build the components of one leadership term."""
    kube, bus = base.kube, base.bus
    queue = KeyedQueue[str](workers=WORKERS, name="nodes", telemetry=base.telemetry)
    shim_references = ShimReferences(lambda: shims.known)
    cache = Cache({}, {}, settings.auto_provision, Deletions(kube, SHIMS, timings.deletions), shim_references, timings)

    def list_all() -> None:
        for name in cache.names():
            queue.add(name)

    def shims_served() -> None:
        cache.missing.clear()
        list_all()

    nodes = Informer(kube, NODES, view_node, on_node(cache, queue.add), shape=NODE_SHAPE, objects=cache.nodes)
    shims: Informer[ShimView] = Informer(
        kube,
        SHIMS,
        view_shim,
        lambda _: list_all(),
        optional=True,
        needed=shim_references.needed,
        on_known=shims_served,
        objects=cache.shims,
    )
    jobs = Informer(
        kube,
        JOBS,
        view_job,
        on_job(cache, queue.add),
        namespace=settings.installer_namespace,
        label_selector=INSTALLER_JOBS,
        on_refresh=cache.jobs.refresh,
    )
    # Without the permission no label is removed, and provisioner reports that and drains no node.
    slots: Informer[Mapping[str, Entry]] = Informer(
        kube,
        CONFIGMAPS,
        read_slots,
        on_slots(cache, queue.add),
        namespace=settings.namespace,
        field_selector=f"metadata.name={names.LEDGER}",
        refusable=True,
        objects=cache.slots,
    )
    bus.subscribe("provision", CONSUMED, on_provision(cache.jobs, queue))
    recorder = EventRecorder(kube, component=names.FIELD_MANAGER_NODE_WATCHER)
    ready = {deciding.NODES: lambda: sum(map(labelled_ready, cache.nodes.values()))}
    scope = Scope(NODE_WATCHER, settings.namespace, ready, {deciding.NODES: lambda: named(nodes)})
    breaker = Breaker(kube, recorder, scope, list_all)
    reconcile = Reconciler(cache, Effects(kube, bus, recorder, cache, breaker, nodes.wrote), base.telemetry, queue)
    refusals = Refusals(queue, unready(base.health, Reason.UPDATE_REFUSED.value), timings.refusals)
    return Work(
        [nodes, shims, jobs, slots],
        {queue: refusals.heeding(reconcile.run)},
        list_all,
        cache.forget_published,
        prepare=partial(restore, cache, bus),
        background=[breaker.run, refusals.run],
    )
