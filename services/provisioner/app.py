"""Wires provisioner: the only place that builds its clients and joins its parts.

In: settings (and clients, where a test brings its own). Out: a service to run. Called by ``__main__`` and the bundle.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from provisioner.apply import Effects
from provisioner.canary_apply import ProofEffects
from provisioner.domain import decide as deciding
from provisioner.domain import shim_decide
from provisioner.domain.actions import Action, CreateJob, Destroy, LookAgain, Snapshot
from provisioner.domain.canary_resources import CANARY_PODS, view_canary
from provisioner.domain.plan import plan
from provisioner.gather import snapshot_of, world_of
from provisioner.handlers import CONSUMED, on_node_fact
from provisioner.known import Known
from provisioner.pod_refusals import FAILED_CREATE, view_pod_refusal
from provisioner.queues import Queues
from provisioner.refused_nodes import RefusedNodes
from provisioner.rollout_apply import RolloutEffects
from provisioner.settings import Settings
from provisioner.shim_apply import ShimEffects
from provisioner.shim_gather import Shims
from provisioner.timings import Timings
from provisioner.watches import on_canary, on_controller, on_job, on_node, on_pod_refusal, on_shim
from trellis import names
from trellis.bus.bus import Bus
from trellis.bus.consume.queue import KeyedQueue
from trellis.events.subjects import PROVISIONER
from trellis.kube.breaker import Breaker, Scope, named
from trellis.kube.client import Kube
from trellis.kube.errors import KubeError, NotFound
from trellis.kube.informer import Informer
from trellis.kube.recorder import EventRecorder
from trellis.kube.refusals import Refusals, is_refused, unready
from trellis.kube.resources import DEPLOYMENTS, EVENTS, JOBS, NODES, PODS, SHIMS
from trellis.kube.rights import words_of
from trellis.provisioning.nodes_and_jobs import view_job, view_node
from trellis.provisioning.other_controllers import Controller, view_controller
from trellis.provisioning.reasons import APPLY_AGAIN
from trellis.provisioning.reasons import Reason as NodeReason
from trellis.provisioning.shim_marks import ShimMarks
from trellis.provisioning.shim_status import Reason
from trellis.provisioning.shims import ShimView, view_shim
from trellis.provisioning.views import INSTALLER_JOBS, newest
from trellis.runtime.run import INSTALLER_NAMESPACE_LABELS, Base, LedService, Work
from trellis.telemetry import Telemetry, TraceContext, caused, current_trace, get_logger, linked, setup, trace_from

WORKERS: Final = 16
SHIM_WORKERS: Final = 4
PLAN_REST: Final = 3.0
"""Times what the last plan took, with writing the ledger: however many nodes there are, and in work, plans take no more
than a quarter of the event loop. Who comes after such a rest waits for nothing but the burst."""

LEDGER_REFUSED: Final = Reason.LEDGER_REFUSED.value
HANDOVER: Final = "InstallationChanged"
SHIM_REFUSED: Final = "ShimUpdateRefused"
"""Parts of readiness: writes that the API server refuses."""

_log = get_logger(__name__)


def create_app(
    settings: Settings, *, bus: Bus | None = None, kube: Kube | None = None, timings: Timings = Timings()
) -> LedService:
    """Return the service; it connects when it is run."""
    return LedService(
        name=PROVISIONER,
        settings=settings,
        telemetry=setup(PROVISIONER, otlp_endpoint=settings.otlp_endpoint, sample_ratio=settings.trace_sample_ratio),
        compose=partial(compose, settings, timings=timings),
        namespaces={settings.namespace: {}, settings.installer_namespace: INSTALLER_NAMESPACE_LABELS},
        kube=kube,
        bus=bus,
        claims=settings.claim_namespace,
        words=partial(words_of, remedy=APPLY_AGAIN),
    )


def compose(settings: Settings, base: Base, timings: Timings = Timings()) -> Work:
    """Join the parts for one term of leadership."""
    kube, bus, telemetry = base.kube, base.bus, base.telemetry
    marks = ShimMarks(lambda: shims.known)
    known = Known(
        kube,
        bus,
        settings,
        {},
        {},
        marks=marks,
        timings=timings,
        refused=RefusedNodes(lambda reason, why: unready(base.health, reason.value)(why)),
        handover_until=time.monotonic() + (base.claim.settles_in if base.claim is not None else 0.0),
    )
    queues = Queues(
        known,
        nodes=KeyedQueue(workers=WORKERS, name="nodes", telemetry=telemetry),
        plans=KeyedQueue(workers=1, name="plans", telemetry=telemetry),
        shims=KeyedQueue(workers=SHIM_WORKERS, name="shims", telemetry=telemetry),
    )
    nodes = Informer(kube, NODES, view_node, on_node(known, queues.wake), objects=known.nodes)
    shims: Informer[ShimView] = Informer(
        kube,
        SHIMS,
        lambda manifest: known.keys.judge(view_shim(manifest)),
        on_shim(known, queues.shims.add, queues.list_all),
        optional=True,
        needed=marks.needed,
        on_known=queues.list_all,
        objects=known.shims,
    )
    jobs = Informer(
        kube,
        JOBS,
        view_job,
        on_job(known, queues.wake, queues.plan_soon),
        namespace=settings.installer_namespace,
        label_selector=INSTALLER_JOBS,
        on_refresh=known.jobs.refresh,
    )
    found: dict[str, Controller | None] = {}
    deployments = Informer(
        kube,
        DEPLOYMENTS,
        view_controller,
        on_controller(known, found, queues.list_all),
        refusable=True,
        objects=found,
    )
    canaries = Informer(
        kube,
        PODS,
        view_canary,
        on_canary(queues.nodes.add),
        namespace=settings.installer_namespace,
        label_selector=CANARY_PODS,
        objects=known.canaries,
    )
    pod_refusals = Informer(
        kube,
        EVENTS,
        view_pod_refusal,
        on_pod_refusal(known, queues.wake),
        namespace=settings.installer_namespace,
        field_selector=FAILED_CREATE,
    )
    bus.subscribe("nodes", CONSUMED, on_node_fact(known, queues.nodes, queues.plan_soon))
    recorder = EventRecorder(kube, component=names.FIELD_MANAGER_PROVISIONER)
    running = {deciding.JOBS: known.jobs.running}
    scope = Scope(PROVISIONER, settings.namespace, running, {deciding.JOBS: lambda: named(jobs)})
    breaker = Breaker(kube, recorder, scope, queues.list_all)
    proof = ProofEffects(kube, known, telemetry)
    show = partial(jobs.wrote, former=None)
    effects = Effects(kube, bus, recorder, known, telemetry, breaker, proof, show, queues.plan_soon)
    planner = Planner(known, RolloutEffects(kube, bus, recorder, known), telemetry, queues.nodes)
    follow = FollowShims(
        Shims(kube, known), ShimEffects(kube, recorder, settings.namespace, known.classes_refused), telemetry
    )
    # The nodes are reported by ``known.refused``.
    refused_nodes = Refusals(
        queues.nodes, lambda _: None, timings.refusals, refuses=lambda one: is_refused(one) or isinstance(one, NotFound)
    )
    refused_plans = Refusals(queues.plans, partial(report_ledger, known, queues.status_soon), timings.refusals)
    refused_shims = Refusals(queues.shims, unready(base.health, SHIM_REFUSED), timings.refusals)
    return Work(
        [nodes, shims, jobs, deployments, canaries, pod_refusals],
        {
            queues.nodes: refused_nodes.heeding(Reconcile(known, effects, telemetry).run),
            queues.plans: refused_plans.heeding(planner.run),
            queues.shims: refused_shims.heeding(follow.run),
        },
        queues.list_all,
        known.forget_said,
        background=[
            breaker.run,
            planner.shown,
            partial(show_handover, known, queues.plan_soon),
            known.refused.run,
            refused_nodes.run,
            refused_plans.run,
            refused_shims.run,
        ],
    )


async def show_handover(known: Known, plan_soon: Callable[[], None]) -> None:
    """Report that another installation provisioned the nodes until a moment ago; plan once that is over."""
    health, seconds = known.kube.health, known.handover_until - time.monotonic()
    try:
        if seconds > 0:
            text = f"nodes with a runtime are not begun for {seconds:.0f} s after another installation gave them up"
            health.note(HANDOVER, text)
            _log.warning("took over from another installation", settle_seconds=round(seconds))
            await asyncio.sleep(seconds)
            health.note(HANDOVER, "")
            plan_soon()
        await asyncio.get_running_loop().create_future()
    finally:
        health.note(HANDOVER, "")


def report_ledger(known: Known, status_soon: Callable[[], None], why: str) -> None:
    """Report in readiness and on all Shims that the ledger is refused; "" takes it back."""
    known.ledger_refused = why
    unready(known.kube.health, LEDGER_REFUSED)(why)
    status_soon()


@dataclass(frozen=True, slots=True)
class Reconcile:
    """One run of a node name's key: gather, decide, apply, in the node's trace."""

    known: Known
    effects: Effects
    telemetry: Telemetry

    async def run(self, name: str, trace: TraceContext | None) -> float | None:
        """Bring one node's Jobs up to date; raises KubeError for the queue to try again."""
        await self.effects.find_begun(name)
        snapshot = await snapshot_of(self.known, name)
        actions = deciding.decide(snapshot)
        asked = {action.target.uid for action in actions if isinstance(action, Destroy)}
        for job in () if snapshot.shims_unknown else snapshot.jobs:
            if job.uid not in asked:
                self.effects.breaker.withdraw(deciding.JOBS, job.uid)
        if all(isinstance(action, LookAgain) for action in actions):
            return await self.effects.apply(actions)
        parent = self._trace_of(snapshot, actions) or trace
        attributes = {"k8s.node.name": name, "trellis.actions": [type(action).__name__ for action in actions]}
        with caused(self.telemetry, f"reconcile jobs {name}", parent, attributes):
            return await self._apply(snapshot, actions)

    async def _apply(self, snapshot: Snapshot, actions: list[Action]) -> float | None:
        try:
            return await self.effects.apply(actions)
        except KubeError as error:
            node = snapshot.node
            if node is not None and is_refused(error) and node.uid not in self.known.refused.by_uid:
                await self.effects.report_refusal(node, NodeReason.INSTALLER_REFUSED, str(error))
            raise

    def _trace_of(self, snapshot: Snapshot, actions: list[Action]) -> TraceContext | None:
        """Return the trace the work belongs to: a new Job's is the node's opting in, a judgement's is its Job."""
        node = snapshot.node
        if node is None:
            return None
        job = newest(tuple(job for job in snapshot.jobs if job.node_uid == node.uid))
        begun = self.known.traces.get(node.uid)
        of_job = trace_from(job.traceparent) if job else None
        creates = any(isinstance(action, CreateJob) for action in actions)
        return (begun or of_job) if creates else (of_job or begun)


@dataclass(frozen=True, slots=True)
class FollowShims:
    """One run of a Shim's key: gather, decide, apply."""

    shims: Shims
    effects: ShimEffects
    telemetry: Telemetry

    async def run(self, name: str, trace: TraceContext | None) -> float | None:
        """Bring one Shim's finalizer, RuntimeClass and status up to date; raises KubeError to be tried again."""
        snapshot = await self.shims.snapshot(name)
        actions = shim_decide.decide(snapshot) if snapshot else []
        if actions:
            attributes = {"trellis.shim": name, "trellis.actions": [type(action).__name__ for action in actions]}
            with caused(self.telemetry, f"reconcile shim {name}", trace, attributes):
                await self.effects.apply(actions)
        return self.shims.known.timings.deleting if snapshot and snapshot.shim.deleting else None


@dataclass(frozen=True, slots=True)
class Planner:
    """The run of the planner's one key: who gets a slot, written to the ledger before any Job is made."""

    known: Known
    effects: RolloutEffects
    telemetry: Telemetry
    nodes: KeyedQueue[str]

    async def run(self, _: str, trace: TraceContext | None) -> float | None:
        """Plan once; raises KubeError when the ledger could not be written, for the queue to try again."""
        del trace
        started = time.monotonic()
        self._rest(started)  # as long as last time: changes come meanwhile, too
        try:
            return await self._plan()
        finally:
            self.known.plan_seconds = time.monotonic() - started
            self._rest(time.monotonic())

    def _rest(self, since: float) -> None:
        self.known.rested_at = since + min(self.known.timings.plan_rest, PLAN_REST * self.known.plan_seconds)

    async def _plan(self) -> float | None:
        just_read = self.known.ledger is None
        world = await world_of(self.known)
        if self.known.undecidable():
            return None  # the informer of Shims calls for a plan as soon as they can be listed
        outcome = plan(world)
        self.telemetry.metrics.rollouts_halted.labels(self.telemetry.service).set(len(outcome.ledger.halted))
        for node in (*outcome.claimed, *outcome.waiting):
            self.known.waiting_since.setdefault(node.uid, world.now)
        if outcome.ledger != world.ledger:
            attributes = {
                "trellis.claimed": len(outcome.claimed),
                "trellis.released": len(outcome.released),
                "trellis.in_work": len(outcome.ledger.entries),
                "trellis.failing": sum(outcome.failing.values()),
            }
            entries = outcome.ledger.entries
            self.known.certain |= {entries[node.uid].tried(node.uid) for node in outcome.claimed}
            begun = [self.known.traces[node.uid] for node in outcome.claimed if node.uid in self.known.traces]
            with linked(self.telemetry, "plan rollout", begun, attributes):
                await self.effects.write_ledger(outcome)
                if (plan_trace := current_trace()) is not None:
                    self.known.plans |= {node.uid: plan_trace for node in outcome.claimed}
                if outcome.ledger.halted != world.ledger.halted:
                    await self.effects.show_rollout(outcome, world.ledger.halted)
        # A slot that a former leader gave, and whose Job it did not live to make, is known to nobody else.
        begin = (
            [node for node in world.nodes if node.uid in outcome.ledger.entries]
            if just_read
            else (*outcome.claimed, *outcome.feared)
        )
        for node in begin:
            self.nodes.add(node.name)
        if await self.effects.tell_rollout(outcome):
            publish = self.known.timings.publish
            return min(publish, outcome.wake_in or publish)
        return outcome.wake_in

    async def shown(self) -> None:
        """Wait until the term ends, and leave no figure of it behind: another replica plans then."""
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            with contextlib.suppress(KeyError):
                self.telemetry.metrics.rollouts_halted.remove(self.telemetry.service)
