"""Wires provisioner: creates its clients and connects its components.

In: settings (and clients in tests). Out: a service to run. Called by ``__main__`` and
``trellis run``.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Final

from provisioner.apply import Effects
from provisioner.cache import Cache
from provisioner.canary_apply import VerificationEffects
from provisioner.domain import decide as deciding
from provisioner.domain.canary import CanaryPod
from provisioner.domain.canary_resources import CANARY_PODS, view_canary
from provisioner.domain.shim_resources import view_runtime_class
from provisioner.domain.shim_snapshot import RuntimeClassView
from provisioner.gather import Gather
from provisioner.handlers import CONSUMED, on_node_event
from provisioner.planner import FleetReconciler, report_ledger, show_handover
from provisioner.reconciler import Reconciler, ShimReconciler
from provisioner.refusals import FAILED_CREATE, RefusedNodes, view_pod_refusal
from provisioner.rollout_apply import RolloutEffects
from provisioner.rollout_pods import RolloutPods
from provisioner.settings import Settings
from provisioner.shim_apply import ShimEffects
from provisioner.shim_gather import ShimGather
from provisioner.timings import Timings
from provisioner.watches import (
    Queues,
    on_canary,
    on_controller,
    on_job,
    on_node,
    on_pod_refusal,
    on_runtime_class,
    on_shim,
)
from provisioner.workloads.wiring import Workloads
from trellis import names
from trellis.bus.bus import Bus
from trellis.bus.consume.queue import KeyedQueue
from trellis.events.subjects import PROVISIONER
from trellis.kube.breaker import Breaker, Scope, named
from trellis.kube.client import Kube
from trellis.kube.errors import NotFound
from trellis.kube.informer import Informer
from trellis.kube.permissions import describe_error
from trellis.kube.recorder import EventRecorder
from trellis.kube.refusals import Refusals, is_refused, unready
from trellis.kube.resources import DEPLOYMENTS, EVENTS, JOBS, NODES, PODS, RUNTIME_CLASSES, SHIMS
from trellis.provisioning.node_shape import NODE_SHAPE
from trellis.provisioning.nodes_and_jobs import view_job, view_node
from trellis.provisioning.other_controllers import Controller, view_controller
from trellis.provisioning.reasons import APPLY_AGAIN
from trellis.provisioning.shims import ShimView, view_shim
from trellis.provisioning.views import INSTALLER_JOBS, NodeView
from trellis.runtime.run import INSTALLER_NAMESPACE_LABELS, Base, LedService, Work
from trellis.telemetry import setup

WORKERS: Final = 16
SHIM_WORKERS: Final = 4

SHIM_REFUSED: Final = "ShimUpdateRefused"
"""Key of the readiness note about writes that the API server refuses."""


def create_app(
    settings: Settings, *, bus: Bus | None = None, kube: Kube | None = None, timings: Timings = Timings()
) -> LedService:
    """Return the service; it connects when it runs."""
    return LedService(
        name=PROVISIONER,
        settings=settings,
        telemetry=setup(PROVISIONER, otlp_endpoint=settings.otlp_endpoint, sample_ratio=settings.trace_sample_ratio),
        compose=partial(compose, settings, timings=timings),
        namespaces={settings.namespace: {}, settings.installer_namespace: INSTALLER_NAMESPACE_LABELS},
        kube=kube,
        bus=bus,
        claims=settings.claim_namespace,
        describe_error=partial(describe_error, remedy=APPLY_AGAIN),
    )


def compose(settings: Settings, base: Base, timings: Timings = Timings()) -> Work:
    """Build the components of one leadership term."""
    kube, bus, telemetry = base.kube, base.bus, base.telemetry
    node_views, shim_views, canary_pods = dict[str, NodeView](), dict[str, ShimView](), dict[str, CanaryPod]()
    cache = Cache(
        *(kube, settings, node_views, shim_views, canary_pods, timings),
        shims_known=lambda: shims.known,
        refused=RefusedNodes(lambda reason, cause: unready(base.health, reason.value)(cause)),
        handover_until=time.monotonic() + (base.claim.settles_in if base.claim is not None else 0.0),
    )
    queues = Queues(
        cache,
        nodes=KeyedQueue(workers=WORKERS, name="nodes", telemetry=telemetry),
        plans=KeyedQueue(workers=1, name="plans", telemetry=telemetry),
        shims=KeyedQueue(workers=SHIM_WORKERS, name="shims", telemetry=telemetry),
    )
    recorder = EventRecorder(kube, component=names.FIELD_MANAGER_PROVISIONER)
    runtime_classes = dict[str, RuntimeClassView]()
    workloads = Workloads(base, cache, recorder, runtime_classes, lambda: classes.known)
    reported = settings.watch_workloads

    def list_all() -> None:
        queues.list_all()
        if reported:
            workloads.list_all()

    def forget_published() -> None:
        cache.stream_lost()
        workloads.reconciler.forget_published()

    on_nodes = on_node(cache, queues.wake, telemetry.trace_of)
    nodes = Informer(kube, NODES, view_node, on_nodes, shape=NODE_SHAPE, objects=node_views)
    shims: Informer[ShimView] = Informer(
        kube,
        SHIMS,
        lambda manifest: cache.keys.judge(view_shim(manifest)),
        workloads.followed(on_shim(cache, queues.shims.add, queues.list_all)),
        optional=True,
        states=True,
        needed=cache.shim_references.needed,
        on_known=queues.list_all,
        objects=shim_views,
    )
    jobs = Informer(
        kube,
        JOBS,
        view_job,
        on_job(cache, queues.wake, queues.plan_soon),
        namespace=settings.installer_namespace,
        label_selector=INSTALLER_JOBS,
        on_refresh=cache.job_refreshed,
    )
    found: dict[str, Controller] = {}
    deployments = Informer(
        kube,
        DEPLOYMENTS,
        view_controller,
        on_controller(cache, found, queues.list_all),
        refusable=True,
        objects=found,
    )
    classes: Informer[RuntimeClassView] = Informer(
        kube,
        RUNTIME_CLASSES,
        view_runtime_class,
        workloads.followed(on_runtime_class(cache, queues.follow_later)),
        refusable=True,
        objects=runtime_classes,
    )
    canaries = Informer(
        kube,
        PODS,
        view_canary,
        on_canary(queues.nodes.add),
        namespace=settings.installer_namespace,
        label_selector=CANARY_PODS,
        objects=canary_pods,
    )
    pod_refusals = Informer(
        kube,
        EVENTS,
        view_pod_refusal,
        on_pod_refusal(cache, queues.wake),
        namespace=settings.installer_namespace,
        field_selector=FAILED_CREATE,
    )
    bus.subscribe("nodes", CONSUMED, on_node_event(cache, queues.nodes, queues.plan_soon))
    running = {deciding.JOBS: cache.jobs.running}
    scope = Scope(PROVISIONER, settings.namespace, running, {deciding.JOBS: lambda: named(jobs)})
    breaker = Breaker(kube, recorder, scope, queues.list_all)
    verification = VerificationEffects(kube, cache, telemetry)
    show = partial(jobs.wrote, former=None)
    effects = Effects(kube, bus, recorder, cache, telemetry, breaker, verification, show, queues.plan_soon)
    rollout = RolloutEffects(kube, bus, recorder, cache)
    pods = RolloutPods(kube, timings.rollout_pods)
    planner = FleetReconciler(kube, cache, rollout, telemetry, queues.nodes, pods, queues.status_soon)
    follow = ShimReconciler(ShimGather(kube, cache), cache, ShimEffects(kube, recorder, cache), telemetry)
    # The nodes are reported by ``cache.refused``.
    refused_nodes = Refusals(
        queues.nodes,
        lambda _: None,
        timings.refusals,
        refuses=lambda item: is_refused(item) or isinstance(item, NotFound),
    )
    report = partial(report_ledger, base.health, cache, queues.status_soon)
    refused_plans = Refusals(queues.plans, report, timings.refusals)
    refused_shims = Refusals(queues.shims, unready(base.health, SHIM_REFUSED), timings.refusals)
    return Work(
        [nodes, shims, jobs, deployments, classes, canaries, pod_refusals],
        {
            queues.nodes: refused_nodes.heeding(Reconciler(Gather(kube, cache), cache, effects, telemetry).run),
            queues.plans: refused_plans.heeding(planner.run),
            queues.shims: refused_shims.heeding(follow.run),
            **({workloads.queue: workloads.reconciler.run} if reported else {}),
        },
        list_all,
        forget_published,
        background=[
            breaker.run,
            planner.shown,
            partial(show_handover, base.health, cache.handover_until, queues.plan_soon),
            refused_nodes.run,
            refused_plans.run,
            refused_shims.run,
            *([workloads.run] if reported else []),
        ],
    )
