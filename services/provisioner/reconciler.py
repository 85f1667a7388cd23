"""A run of the key of a node or Shim: gather, decide, apply, in the trace of the opt-in of the node.

In: names of Nodes and Shims. Out: Jobs by ``apply``; finalizers, RuntimeClasses and status by ``shim_apply``. Called by
the queues of ``app``. Invariant: a rejected write is reported on the node before the retry.
"""

from __future__ import annotations

from dataclasses import dataclass

from provisioner.apply import Effects
from provisioner.cache import Cache
from provisioner.domain import decide as deciding
from provisioner.domain import shim_decide
from provisioner.domain.actions import Action, CreateJob, GuardedDeletion, LookAgain, Snapshot
from provisioner.gather import Gather
from provisioner.shim_apply import ShimEffects
from provisioner.shim_gather import ShimGather
from trellis.kube.errors import KubeError
from trellis.kube.refusals import is_refused
from trellis.provisioning.reasons import Reason as NodeReason
from trellis.provisioning.views import newest
from trellis.telemetry import Telemetry, TraceContext, caused, trace_from


@dataclass(frozen=True, slots=True)
class Reconciler:
    """Reconciler of a node name: gather, decide, apply, in the trace of the node."""

    gather: Gather
    cache: Cache
    effects: Effects
    telemetry: Telemetry

    async def run(self, name: str, trace: TraceContext | None) -> float | None:
        """Reconcile the Jobs of one node; raises KubeError, upon which the queue retries."""
        await self.effects.find_requested_job(name)
        await self.cache.deletions.look(self.cache.shims.values())
        snapshot = await self.gather.snapshot(name)
        try:
            return await self._act(await self.gather.with_former(snapshot), trace)
        except KubeError as error:
            node = snapshot.node
            if node is not None and is_refused(error) and node.uid not in self.cache.refused.by_uid:
                await self.effects.report_refusal(node, NodeReason.INSTALLER_REFUSED, str(error))
            raise

    async def _act(self, snapshot: Snapshot, trace: TraceContext | None) -> float | None:
        actions = deciding.decide(snapshot)
        guarded = {action.target.uid for action in actions if isinstance(action, GuardedDeletion)}
        for job in () if snapshot.shims_unknown else snapshot.jobs:
            if job.uid not in guarded:
                self.effects.breaker.withdraw(deciding.JOBS, job.uid)
        if all(isinstance(action, LookAgain) for action in actions):
            return await self.effects.apply(actions)
        parent = self._trace_of(snapshot, actions) or trace
        attributes = {"k8s.node.name": snapshot.name, "trellis.actions": [type(action).__name__ for action in actions]}
        with caused(self.telemetry, f"reconcile jobs {snapshot.name}", parent, attributes):
            return await self.effects.apply(actions)

    def _trace_of(self, snapshot: Snapshot, actions: list[Action]) -> TraceContext | None:
        """Return the trace of the work: for a new Job that of the node's opt-in, for a judgement that of its Job."""
        node = snapshot.node
        if node is None:
            return None
        job = newest(tuple(job for job in snapshot.jobs if job.node_uid == node.uid))
        requested = self.cache.noted(node.uid).trace
        of_job = trace_from(job.traceparent) if job else None
        creates = any(isinstance(action, CreateJob) for action in actions)
        return (requested or of_job) if creates else (of_job or requested)


@dataclass(frozen=True, slots=True)
class ShimReconciler:
    """Reconciler of a Shim: gather, decide, apply."""

    gather: ShimGather
    cache: Cache
    effects: ShimEffects
    telemetry: Telemetry

    async def run(self, name: str, trace: TraceContext | None) -> float | None:
        """Reconcile finalizer, RuntimeClass and status of one Shim; raises KubeError, upon which the queue retries."""
        await self.cache.deletions.look(self.cache.shims.values())
        snapshot = await self.gather.snapshot(name)
        self.cache.versions_read(name, snapshot)
        actions = shim_decide.decide(snapshot) if snapshot else []
        if actions:
            attributes = {"trellis.shim": name, "trellis.actions": [type(action).__name__ for action in actions]}
            with caused(self.telemetry, f"reconcile shim {name}", trace, attributes):
                await self.effects.apply(actions)
        return self.cache.timings.deleting if snapshot and snapshot.shim.deleting else None
