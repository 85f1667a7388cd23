"""Wires node_watcher: the only place that builds its clients and joins its parts.

In: settings (and clients, where a test brings its own). Out: a service to run. Called by ``__main__`` and the bundle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from node_watcher.apply import Effects
from node_watcher.domain import decide as deciding
from node_watcher.domain.actions import Action, Destroy, Reason, SayFact, Snapshot
from node_watcher.domain.marks import labelled_ready
from node_watcher.gather import World, recall
from node_watcher.handlers import CONSUMED, on_provision
from node_watcher.settings import Settings
from node_watcher.timings import Timings
from node_watcher.watches import on_job, on_node
from trellis import names
from trellis.bus.bus import Bus
from trellis.bus.consume.queue import KeyedQueue
from trellis.events.node import NodeReady
from trellis.events.subjects import NODE_WATCHER
from trellis.kube.breaker import Breaker, Scope, named
from trellis.kube.client import Kube
from trellis.kube.errors import KubeError
from trellis.kube.informer import Informer
from trellis.kube.mass_deletions import Deletions
from trellis.kube.recorder import EventRecorder
from trellis.kube.refusals import Refusals, is_refused, unready
from trellis.kube.resources import JOBS, NODES, SHIMS
from trellis.kube.rights import words_of
from trellis.provisioning.nodes_and_jobs import view_job, view_node
from trellis.provisioning.reasons import APPLY_AGAIN
from trellis.provisioning.shim_marks import ShimMarks
from trellis.provisioning.shims import ShimView, view_shim
from trellis.provisioning.views import INSTALLER_JOBS
from trellis.runtime.run import INSTALLER_NAMESPACE_LABELS, Base, LedService, Work
from trellis.telemetry import Telemetry, TraceContext, context_from, current_trace, links_of, setup, trace_from

WORKERS = 16


def create_app(
    settings: Settings, *, bus: Bus | None = None, kube: Kube | None = None, timings: Timings = Timings()
) -> LedService:
    """Return the service; it connects when it is run."""
    return LedService(
        name=NODE_WATCHER,
        settings=settings,
        telemetry=setup(NODE_WATCHER, otlp_endpoint=settings.otlp_endpoint, sample_ratio=settings.trace_sample_ratio),
        compose=partial(compose, settings, timings=timings),
        namespaces={settings.namespace: {}, settings.installer_namespace: INSTALLER_NAMESPACE_LABELS},
        kube=kube,
        bus=bus,
        claims=settings.claim_namespace,
        words=partial(words_of, remedy=APPLY_AGAIN),
    )


def compose(settings: Settings, base: Base, timings: Timings = Timings()) -> Work:
    """Join the parts for one term of leadership."""
    kube, bus = base.kube, base.bus
    queue = KeyedQueue[str](workers=WORKERS, name="nodes", telemetry=base.telemetry)
    marks = ShimMarks(lambda: shims.known)
    world = World({}, {}, settings.auto_provision, Deletions(kube, SHIMS, timings.deletions), marks, timings)

    def list_all() -> None:
        for name in world.names():
            queue.add(name)

    def shims_served() -> None:
        world.missing.clear()
        list_all()

    nodes = Informer(kube, NODES, view_node, on_node(world, queue.add), objects=world.nodes)
    shims: Informer[ShimView] = Informer(
        kube,
        SHIMS,
        view_shim,
        lambda _: list_all(),
        optional=True,
        needed=marks.needed,
        on_known=shims_served,
        objects=world.shims,
    )
    jobs = Informer(
        kube,
        JOBS,
        view_job,
        on_job(world, queue.add),
        namespace=settings.installer_namespace,
        label_selector=INSTALLER_JOBS,
        on_refresh=world.jobs.refresh,
    )
    bus.subscribe("provision", CONSUMED, on_provision(queue))
    recorder = EventRecorder(kube, component=names.FIELD_MANAGER_NODE_WATCHER)
    ready = {deciding.NODES: lambda: sum(map(labelled_ready, world.nodes.values()))}
    scope = Scope(NODE_WATCHER, settings.namespace, ready, {deciding.NODES: lambda: named(nodes)})
    breaker = Breaker(kube, recorder, scope, list_all)
    reconcile = Reconcile(world, Effects(kube, bus, recorder, world, breaker, nodes.wrote), base.telemetry)
    refusals = Refusals(queue, unready(base.health, Reason.UPDATE_REFUSED.value), timings.refusals)
    return Work(
        [nodes, shims, jobs],
        {queue: refusals.heeding(reconcile.run)},
        list_all,
        world.forget_said,
        prepare=partial(recall, world, bus),
        background=[breaker.run, refusals.run],
    )


@dataclass(frozen=True, slots=True)
class Reconcile:
    """One run of a node name's key: gather, decide, apply, in the node's trace."""

    world: World
    effects: Effects
    telemetry: Telemetry

    async def run(self, name: str, trace: TraceContext | None) -> float | None:
        """Bring one node up to date; raises KubeError for the queue to try again."""
        observed_ns = self.world.observed_ns.pop(name, None)
        await self.world.deletions.look(self.world.shims.values())
        snapshot = self.world.snapshot(name)
        actions = deciding.decide(snapshot)
        destroys = any(isinstance(action, Destroy) for action in actions)
        undecided = snapshot.unknown or snapshot.look_in is not None
        if snapshot.node is not None and not (destroys or undecided):
            self.effects.breaker.withdraw(deciding.NODES, snapshot.node.uid)
        if not actions:
            if snapshot.node is None:
                self.world.forget(name)
            return snapshot.look_in
        parent = self._trace_of(snapshot) or trace
        with self.telemetry.tracer.start_as_current_span(
            f"reconcile node {name}",
            context=context_from(parent),
            links=links_of(parent),
            start_time=observed_ns if parent is None else None,
            attributes={"k8s.node.name": name, "trellis.actions": [type(action).__name__ for action in actions]},
        ):
            if (current := current_trace()) is not None:
                self.world.traces[name] = current
            again = await self._apply(snapshot, actions)
        if any(isinstance(action, SayFact) and isinstance(action.fact, NodeReady) for action in actions):
            self.world.traces.pop(name, None)  # what happens to the node from now on is another story
        return min((one for one in (again, snapshot.look_in) if one is not None), default=None)

    async def _apply(self, snapshot: Snapshot, actions: Sequence[Action]) -> float | None:
        try:
            return await self.effects.apply(snapshot.name, actions)
        except KubeError as error:
            if snapshot.node is not None and is_refused(error):
                await self.effects.report_refusal(snapshot.node, snapshot.job, error)
            raise

    def _trace_of(self, snapshot: Snapshot) -> TraceContext | None:
        """Return the trace a change belongs to: the Job's, else the one the node's opting in began."""
        node, said = snapshot.node, snapshot.said
        if node is None or said is None or not said.opted_in or said.uid != node.uid:
            self.world.traces.pop(snapshot.name, None)
        if snapshot.job is not None and snapshot.job.traceparent:
            return trace_from(snapshot.job.traceparent)
        return self.world.traces.get(snapshot.name)
