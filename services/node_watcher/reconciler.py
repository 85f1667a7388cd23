"""A run of the key of a node: gather, decide, apply, in the trace of the node.

In: names of Nodes. Out: writes and events by ``apply``. Called by the queue of ``app``. Invariant: a deletion withdrawn
from the circuit breaker is never one of this run.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from node_watcher.apply import Effects
from node_watcher.domain import decide as deciding
from node_watcher.domain.actions import Action, GuardedDeletion, PatchNode, Publish, Snapshot
from node_watcher.gather import Cache
from trellis.bus.consume.queue import KeyedQueue
from trellis.events.node import NodeReady
from trellis.kube.errors import KubeError
from trellis.kube.refusals import is_refused
from trellis.telemetry import Telemetry, TraceContext, context_from, current_trace, links_of, trace_from


@dataclass(frozen=True, slots=True)
class Reconciler:
    """Reconciler of a node name: gather, decide, apply, in the trace of the node."""

    cache: Cache
    effects: Effects
    telemetry: Telemetry
    queue: KeyedQueue[str]

    async def run(self, name: str, trace: TraceContext | None) -> float | None:
        """Reconcile one node; raises KubeError, upon which the queue retries."""
        observed_ns = self.cache.observed_ns.pop(name, None)
        await self.cache.deletions.look(self.cache.shims.values())
        snapshot = self.cache.snapshot(name)
        actions = deciding.decide(snapshot)
        deletes = any(isinstance(action, GuardedDeletion) for action in actions)
        undecided = snapshot.unknown or snapshot.look_in is not None
        if snapshot.node is not None and not (deletes or undecided):
            self.effects.breaker.withdraw(deciding.NODES, snapshot.node.uid)
        if not actions:
            if snapshot.node is None:
                self.cache.forget(name)
            if not undecided:
                self.cache.causes.pop(name, None)  # the state is published: no trace starts
            return snapshot.look_in
        with self._span(snapshot, trace, observed_ns, actions):
            if (current := current_trace()) is not None:
                self.cache.traces[name] = current
            again = await self._apply(snapshot, actions)
            if any(isinstance(action, PatchNode) for action in actions) and self.queue.cancel_pending(name):
                # The events about the Node that the API server returned; any other work is that of the next run.
                snapshot = self.cache.snapshot(name)
                actions = deciding.decide(snapshot)
                if all(isinstance(action, Publish) for action in actions):
                    again = _soonest(again, await self._apply(snapshot, actions))
                else:
                    self.queue.add(name)
        if (published := self.cache.published.get(name)) is not None and published.opted_in:
            self.cache.causes.pop(name, None)  # until then, a retry belongs to the same trace
        if any(isinstance(action, Publish) and isinstance(action.event, NodeReady) for action in actions):
            self.cache.traces.pop(name, None)  # later changes of the node belong to another trace
        return _soonest(again, snapshot.look_in)

    def _span(
        self, snapshot: Snapshot, trace: TraceContext | None, observed_ns: int | None, actions: Sequence[Action]
    ) -> AbstractContextManager[object]:
        """Return the span of a run with actions: the first one of the trace that an opt-in starts, or a further one.

        ``observed_ns``: when the watch reported the change, for a run that starts a trace.
        """
        name, cause = f"reconcile node {snapshot.name}", self.cache.causes.get(snapshot.name)
        done = [type(action).__name__ for action in actions]
        attributes = {"k8s.node.name": snapshot.name, "trellis.actions": done}
        former = self.cache.traces.get(snapshot.name)
        started = self.telemetry.trace_of(cause) if cause is not None else None
        again = former is not None and started is not None and former.trace_id == started.trace_id
        parent = started if again else self._trace_of(snapshot)
        if parent is None and cause is not None:
            return self.telemetry.begin(name, cause, start_ns=observed_ns, attributes=attributes)
        parent = parent or trace
        return self.telemetry.tracer.start_as_current_span(
            name,
            context=context_from(parent),
            links=links_of(parent),
            start_time=observed_ns if parent is None else None,
            attributes=attributes,
        )

    async def _apply(self, snapshot: Snapshot, actions: Sequence[Action]) -> float | None:
        try:
            return await self.effects.apply(snapshot.name, actions)
        except KubeError as error:
            if snapshot.node is not None and is_refused(error):
                await self.effects.report_refusal(snapshot.node, snapshot.job, error)
            raise

    def _trace_of(self, snapshot: Snapshot) -> TraceContext | None:
        """Return the trace of a change: that of the Job, else the one that the opt-in of the node started."""
        node, published = snapshot.node, snapshot.published
        if node is None or (published is not None and not (published.opted_in and published.uid == node.uid)):
            self.cache.traces.pop(snapshot.name, None)
        if snapshot.job is not None and snapshot.job.traceparent:
            return trace_from(snapshot.job.traceparent)
        return self.cache.traces.get(snapshot.name)


def _soonest(*waits: float | None) -> float | None:
    return min((wait for wait in waits if wait is not None), default=None)
