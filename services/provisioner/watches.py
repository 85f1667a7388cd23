"""What wakes provisioner from Kubernetes: Nodes, its Jobs, canary pods, Shims, and controllers of others change.

In: changes from the informers. Out: keys in the queues. Called by the informers, in the event loop.
Invariant: nothing is decided here; each change wakes the node's key and, a moment later, the planner.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from provisioner.domain.canary import CanaryPod
from provisioner.known import Known
from provisioner.pod_refusals import PodRefusal
from trellis.kube.informer import Change
from trellis.provisioning.other_controllers import Controller, in_charge
from trellis.provisioning.shims import ShimView
from trellis.provisioning.views import JobView, NodeView
from trellis.telemetry import TraceContext, get_logger

Wake = Callable[[str], None]
_log = get_logger(__name__)


def on_node(known: Known, wake: Wake, trace_of: Callable[[str], TraceContext]) -> Callable[[Change[NodeView]], None]:
    """Return the handler of Node changes. ``trace_of``: the trace that an opting in begins (ADR 102)."""

    def handle(change: Change[NodeView]) -> None:
        known.marks.take_node(change.key, change.new)
        known.fleet.take(change.key)
        if change.old is not None and (change.new is None or change.new.uid != change.old.uid):
            known.traces.pop(change.old.uid, None)
            known.plans.pop(change.old.uid, None)
            known.waiting_since.pop(change.old.uid, None)
            known.in_use.pop(change.old.uid, None)
            known.refused.end(change.old.uid)
            known.told_unserved.discard(change.old.uid)
            known.told_skipped.pop(change.old.uid, None)
            known.begun.end(change.old.uid)
        if change.new is not None and change.new.skip is None:
            known.told_skipped.pop(change.new.uid, None)
        if change.new is not None:
            known.opted_in(change.old, change.new, trace_of)
        wake(change.key)

    return handle


def on_job(known: Known, wake: Wake, plan_soon: Callable[[], None]) -> Callable[[Change[JobView]], None]:
    """Return the handler of Job changes; what was said of a Job is forgotten with it."""

    def handle(change: Change[JobView]) -> None:
        known.jobs.change(change.old, change.new)
        known.clock.change(change.old, change.new)
        known.pod_refusals.take_job(change.old, change.new)
        known.marks.take_job(change.old, change.new)
        new = change.new
        if new and known.begun.jobs.get(new.node_uid) == new.name and known.begun.end(new.node_uid):
            plan_soon()
        job = change.new or change.old
        if job is None:
            return
        if change.new is None:
            known.created_ns.pop(job.name, None)
            for what in ("started", "succeeded", "failed", "removed"):
                known.said.discard(f"{job.uid}.{what}")
        if job.node:
            wake(job.node)

    return handle


def on_pod_refusal(known: Known, wake: Wake) -> Callable[[Change[PodRefusal]], None]:
    """Return the handler of Events about refused pods: each wakes the node of its Job."""

    def handle(change: Change[PodRefusal]) -> None:
        uid = known.pod_refusals.take(change)
        for jobs in known.jobs.by_uid().values():
            for job in jobs:
                if job.uid == uid:
                    wake(job.node)

    return handle


def on_shim(known: Known, follow: Wake, list_all: Callable[[], None]) -> Callable[[Change[ShimView]], None]:
    """Return the handler of Shim changes; what nodes are to have may be something else for all of them."""

    def handle(change: Change[ShimView]) -> None:
        follow(change.key)
        if wishes_differ(change):
            known.unsettle()
        list_all()

    return handle


def wishes_differ(change: Change[ShimView]) -> bool:
    """Say whether nodes may be to have something else now; our own finalizer is none of their business."""
    old, new = (replace(view, finalizers=()) if view else None for view in (change.old, change.new))
    return old != new


def on_controller(
    known: Known, controllers: Mapping[str, Controller | None], list_all: Callable[[], None]
) -> Callable[[Change[Controller | None]], None]:
    """Return the handler of changes of Deployments; most of them run no controller that matters here."""

    def handle(change: Change[Controller | None]) -> None:
        if change.old is None and change.new is None:
            return
        before, known.controllers = known.controllers, in_charge(controllers.values())
        for controller in known.controllers:
            if controller not in before:
                _log.warning("another controller is active: hands off", advice=controller.advice)
        for controller in before:
            if controller not in known.controllers:
                _log.info("another controller is gone or taken over", controller=controller.place)
        if before != known.controllers:
            list_all()

    return handle


def on_canary(wake: Wake) -> Callable[[Change[CanaryPod]], None]:
    """Return the handler of changes of canary pods: each wakes the node that it is on."""

    def handle(change: Change[CanaryPod]) -> None:
        pod = change.new or change.old
        if pod is not None and pod.node:
            wake(pod.node)

    return handle
