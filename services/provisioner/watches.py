"""Watch handlers of provisioner: Nodes, its Jobs, canary pods, Shims, RuntimeClasses, other controllers; its queues.

In: changes from the informers. Out: keys in the queues: node names, Shim names, and one key for the plan. Called by the
informers, in the event loop, and by ``app``. Invariants: a handler decides nothing; every change that may affect a plan
causes one a moment later, one for a burst.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from provisioner.cache import Cache
from provisioner.domain.canary import CanaryPod
from provisioner.domain.shim_snapshot import RuntimeClassView
from provisioner.refusals import PodRefusal
from trellis.bus.consume.queue import KeyedQueue
from trellis.kube.informer import Change
from trellis.provisioning.other_controllers import Controller, in_charge
from trellis.provisioning.shims import ShimView
from trellis.provisioning.views import JobView, NodeView
from trellis.telemetry import TraceContext, get_logger

Wake = Callable[[str], None]
PLAN: Final = "plan"

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Queues:
    """Queues of the keys to reconcile after a change."""

    cache: Cache
    nodes: KeyedQueue[str]
    plans: KeyedQueue[str]
    shims: KeyedQueue[str]

    def wake(self, node: str) -> None:
        """Enqueue a node, and a plan."""
        self.nodes.add(node)
        self.plan_soon()

    def plan_soon(self) -> None:
        """Enqueue a plan after a delay, or after the pause of the last one; the status of all Shims follows it."""
        self.plans.add_after(PLAN, max(self.cache.timings.plan_delay, self.cache.rested_at - time.monotonic()))
        self.status_soon()

    def status_soon(self) -> None:
        """Enqueue all Shims after a delay."""
        for name in self.cache.shims:
            self.shims.add_after(name, self.cache.timings.status_delay)

    def follow_later(self, shim: str) -> None:
        """Enqueue a Shim after a delay: another client may write its RuntimeClass repeatedly."""
        self.shims.add_after(shim, self.cache.timings.status_delay)

    def list_all(self) -> None:
        """Enqueue all keys, and invalidate the ledger."""
        self.cache.invalidate_ledger()
        for name in {*self.cache.nodes, *self.cache.jobs.names()}:
            self.nodes.add(name)
        self.plans.add(PLAN)
        for name in self.cache.shims:
            self.shims.add(name)


def on_node(cache: Cache, wake: Wake, trace_of: Callable[[str], TraceContext]) -> Callable[[Change[NodeView]], None]:
    """Return the handler of Node changes. ``trace_of``: the trace that an opt-in starts (ADR 102)."""

    def handle(change: Change[NodeView]) -> None:
        cache.node_changed(change, trace_of)
        wake(change.key)

    return handle


def on_job(cache: Cache, wake: Wake, plan_soon: Callable[[], None]) -> Callable[[Change[JobView]], None]:
    """Return the handler of Job changes."""

    def handle(change: Change[JobView]) -> None:
        if cache.job_changed(change):
            plan_soon()
        if (job := change.new or change.old) is not None and job.node:
            wake(job.node)

    return handle


def on_pod_refusal(cache: Cache, wake: Wake) -> Callable[[Change[PodRefusal]], None]:
    """Return the handler of Events about refused pods: each enqueues the node of its Job."""

    def handle(change: Change[PodRefusal]) -> None:
        for node in cache.pod_refusal_changed(change):
            wake(node)

    return handle


def on_shim(cache: Cache, follow: Wake, list_all: Callable[[], None]) -> Callable[[Change[ShimView]], None]:
    """Return the handler of Shim changes; the targets of all nodes may change."""

    def handle(change: Change[ShimView]) -> None:
        follow(change.key)
        if targets_differ(change):
            cache.targets_changed()
        list_all()

    return handle


def targets_differ(change: Change[ShimView]) -> bool:
    """Return whether targets of nodes may have changed; the finalizer does not affect them."""
    old, new = (replace(view, finalizers=()) if view else None for view in (change.old, change.new))
    return old != new


def on_controller(
    cache: Cache, controllers: Mapping[str, Controller], list_all: Callable[[], None]
) -> Callable[[Change[Controller]], None]:
    """Return the handler of changes of Deployments that run a relevant controller."""

    def handle(_: Change[Controller]) -> None:
        now = in_charge(controllers.values())
        before = cache.controllers_changed(now)
        for controller in now:
            if controller not in before:
                _log.warning("another controller is active, writing nothing", advice=controller.advice)
        for controller in before:
            if controller not in now:
                _log.info("other controller stopped or taken over", controller=controller.place)
        if before != now:
            list_all()

    return handle


def on_runtime_class(cache: Cache, follow: Wake) -> Callable[[Change[RuntimeClassView]], None]:
    """Return the handler of changes of RuntimeClasses: each enqueues the Shims that have its name."""

    def handle(change: Change[RuntimeClassView]) -> None:
        for shim in cache.shims.values():
            if shim.runtime_class == change.key:
                follow(shim.name)

    return handle


def on_canary(wake: Wake) -> Callable[[Change[CanaryPod]], None]:
    """Return the handler of changes of canary pods: each enqueues its node."""

    def handle(change: Change[CanaryPod]) -> None:
        pod = change.new or change.old
        if pod is not None and pod.node:
            wake(pod.node)

    return handle
