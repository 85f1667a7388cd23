"""Side effects of provisioner on nodes: Jobs and their failures, Kubernetes Events, events.

In: actions. Out: writes to Kubernetes and NATS. Called by ``app``; ``rollout_apply`` has those of plans. Invariants: a
Job is not deleted before its events are published; nothing is deleted without permission of the circuit breaker; an
unreachable NATS blocks no other write.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

from provisioner.admission_changes import JobUnusable, create_job, delete_unusable, is_usable
from provisioner.cache import Cache
from provisioner.canary_apply import VerificationEffects
from provisioner.domain.actions import (
    Action,
    ClearRefusal,
    CreateCanary,
    CreateJob,
    CreateUndo,
    DeleteCanary,
    DeleteJob,
    EndJob,
    EvictPod,
    GiveBackSlot,
    GuardedDeletion,
    JudgeFailed,
    LookAgain,
    Publish,
    ReportRefusal,
    Step,
    VerifyJob,
    WarnNode,
)
from provisioner.domain.resources import make_installer_job
from trellis import names
from trellis.bus.bus import Bus, BusUnavailable, EventRefused
from trellis.events.provision import ProvisionFailed, ProvisionSucceeded
from trellis.kube.breaker import Breaker
from trellis.kube.client import Kube
from trellis.kube.errors import AlreadyExists, Forbidden, Invalid, KubeError, NotFound, TooManyRequests
from trellis.kube.permissions import missing_right
from trellis.kube.recorder import EventRecorder, ObjectRef
from trellis.kube.resources import JOBS, Manifest
from trellis.provisioning.reasons import APPLY_AGAIN, Reason
from trellis.provisioning.views import END_NOW_SECONDS, JobView, NodeView, recorded_on
from trellis.telemetry import Telemetry, context_from, current_trace, get_logger, links_to, trace_from

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Effects:
    """The targets of actions."""

    kube: Kube
    bus: Bus
    recorder: EventRecorder
    cache: Cache
    telemetry: Telemetry
    breaker: Breaker
    verification: VerificationEffects
    show: Callable[[Manifest], None]
    """Receives a Job that the API server returned, which the watch may not report yet."""
    plan_soon: Callable[[], None]

    async def apply(self, actions: Sequence[Action]) -> float | None:
        """Apply the actions on one node, in order; return the seconds until the next run, if any.

        Raises:
            KubeError: a write was refused or not answered; the actions after it were not applied.
            EventRefused: the bus refuses an event; all actions but the deletion of its Job were applied.
        """
        steps, again = await self._with_leave(actions)
        unpublished, refused = False, None
        for action in steps:
            if isinstance(action, DeleteJob) and (unpublished or refused):
                continue
            try:
                if (wait := await self._apply_action(action)) is not None:
                    again.append(wait)
            except BusUnavailable:
                unpublished = True  # the bus itself logs its outage, once
            except EventRefused as error:
                refused = error
        if refused is not None:
            raise refused
        if unpublished:
            again.append(self.cache.timings.publish)
        return min(again, default=None)

    async def _with_leave(self, actions: Sequence[Action]) -> tuple[list[Step], list[float]]:
        """Return the permitted steps, and the seconds until the retry of each remaining action."""
        steps: list[Step] = []
        again: list[float] = []
        for action in actions:
            match action:
                case GuardedDeletion():
                    if (wait := await self.breaker.admit(action.target)) is None:
                        steps += action.steps
                    else:
                        again.append(wait)
                case LookAgain():
                    again.append(action.seconds)
                case GiveBackSlot():
                    self.cache.slot_given_back(action.node.uid, action.seconds, action.reason)
                    again.append(action.seconds)
                    self.plan_soon()
                case _:
                    steps.append(action)
        return steps, again

    async def report_refusal(self, node: NodeView, reason: Reason, message: str) -> None:
        """Report a refusal on the Node, with its present record, on its Shims and in readiness."""
        if self.cache.refusal_reported(node, reason, message):
            self.plan_soon()
        there = self.cache.nodes.get(node.name, node)
        await self._warn(WarnNode(node, reason, message), recorded_on(there))

    async def _refusal(self, action: ReportRefusal | ClearRefusal) -> None:
        if isinstance(action, ReportRefusal):
            await self.report_refusal(action.node, action.reason, action.message)
        elif self.cache.refusal_ended(action.node.uid):
            self.plan_soon()

    async def _apply_action(self, action: Step) -> float | None:
        """Apply one action; return the seconds until its retry, None if it is done."""
        match action:
            case CreateJob():
                return await self._create(action)
            case DeleteJob():
                await self._delete(action)
            case EndJob():
                await self._end(action)
            case JudgeFailed():
                await self._judge(action)
            case Publish():
                await self._publish_event(action)
            case WarnNode():
                await self._warn(action)
            case ReportRefusal() | ClearRefusal():
                await self._refusal(action)
            case EvictPod():
                await self._evict(action)
            case CreateCanary() | DeleteCanary() | VerifyJob() | CreateUndo():
                return await self.verification.apply(action)
            case _:
                assert_never(action)
        return None

    async def _create(self, action: CreateJob) -> float | None:
        node, task = action.node, action.task
        names_of = (node.name, node.uid, task.digest, task.operation, action.attempt)
        job = names.installer_job_name(*names_of)
        what = (task.target.digest, action.attempt)
        if (noted := self.cache.job_begins(node, what, job)) is None:
            _log.info("slot taken by another node", node=node.name, attempt=action.attempt)
            return None
        waited = self.kube.now() - noted.waiting_since if noted.waiting_since is not None else 0.0
        with self.telemetry.tracer.start_as_current_span(
            "create installer job",
            attributes={"k8s.node.name": node.name, "trellis.waited_seconds": round(waited, 3)},
            links=links_to([noted.plan] if noted.plan is not None else []),
        ):
            trace = current_trace()
            manifest = make_installer_job(
                self.cache.installer, node, task, action.attempt, trace.traceparent if trace else None
            )
            try:
                await self._take(node, manifest, what)
            except AlreadyExists:
                # The watch reports a Job from a create whose response was lost. It does not report one whose labels
                # admission removed: that one is being deleted.
                self.cache.job_created(job)
                return self.cache.timings.nodes.name_taken
        self.cache.job_created(job)
        _log.info("installer job created", node=node.name, job=job, attempt=action.attempt)
        return None

    async def _take(self, node: NodeView, manifest: Manifest, what: tuple[str, int]) -> None:
        """Create a Job; a refusal is reported on the Node, and the queue retries.

        Causes: a quota, a policy, or a namespace that was deleted, or re-created without its Roles.
        """
        try:
            made, changed = await create_job(self.kube, manifest)
        except (Forbidden, Invalid, NotFound) as error:
            self._request_settled(node.uid)
            self.cache.left_nothing((node.uid, *what))
            reason = Reason.JOB_CHANGED if isinstance(error, JobUnusable) else Reason.JOB_REFUSED
            remedy = f"; {APPLY_AGAIN}" if isinstance(error, NotFound) or missing_right(error) else ""
            await self.report_refusal(node, reason, f"its installer Job is rejected: {error.message}{remedy}")
            raise
        if changed:
            text = "; ".join(f"{item.what.value}: {item.text}" for item in changed)
            _log.warning("admission changed the installer job", node=node.name, changes=text)
            message = f"admission changed its installer Job {manifest['metadata']['name']}: {text}"
            await self._warn(WarnNode(node, Reason.JOB_CHANGED, message))
        self._made(node.uid, made)

    async def find_requested_job(self, name: str) -> None:
        """Find a node's Job whose create had no certain answer, before any decision on the node.

        Raises:
            KubeError: the Jobs could not be listed.
        """
        node = self.cache.nodes.get(name)
        if node is None or (job := self.cache.requested_job(node.uid)) is None:
            return
        # A list, because the permission to list Jobs exists anyway.
        place = self.cache.settings.installer_namespace
        listing = await self.kube.list(JOBS, place, field_selector=f"metadata.name={job}")
        for found in listing.items:
            if is_usable(found):
                self._made(node.uid, found)
            else:
                await delete_unusable(self.kube, found)
        self._request_settled(node.uid)

    def _made(self, uid: str, job: Manifest) -> None:
        """Cache a Job as it was created, unless the watch was faster, which may have reported its end by now."""
        if self.cache.requested_job(uid) is not None:
            self.show(job)
            self._request_settled(uid)

    def _request_settled(self, uid: str) -> None:
        if self.cache.request_settled(uid):
            self.plan_soon()

    async def _delete(self, action: DeleteJob) -> None:
        job = action.job
        propagation = "Foreground" if action.foreground else "Background"
        self.cache.left_nothing(job.tried)
        try:
            await self.kube.delete(
                JOBS,
                job.name,
                job.namespace,
                uid=job.uid,
                resource_version=job.resource_version,
                propagation=propagation,
            )
        except NotFound:
            return
        except KubeError:
            self.cache.left_nothing(job.tried, certain=False)
            raise
        _log.info("installer job deleted", node=job.node, job=job.name, reason=action.reason.value)

    async def _end(self, action: EndJob) -> None:
        job = action.job
        read = {"uid": job.uid, "resourceVersion": job.resource_version}
        patch = {"metadata": read, "spec": {"activeDeadlineSeconds": END_NOW_SECONDS}}
        await self.kube.merge_patch(JOBS, job.name, patch, job.namespace, field_manager=names.FIELD_MANAGER_PROVISIONER)
        _log.info("installer job terminated", node=job.node, job=job.name, reason=action.reason.value)

    async def _judge(self, action: JudgeFailed) -> None:
        job = action.job
        _log.warning(
            "provisioning failed", node=job.node, job=job.name, reason=action.reason.value, message=action.message
        )
        annotations = {names.ANNOTATION_JOB_FAILURE: f"{action.reason.value}: {action.message}"}
        if action.disruptive:
            annotations[names.ANNOTATION_DISRUPTIVE] = "true"
        if action.blamed:
            annotations[names.ANNOTATION_BLAMED] = action.blamed
        read = {"uid": job.uid, "resourceVersion": job.resource_version}
        patch = {"metadata": read | {"annotations": annotations}}
        await self.kube.merge_patch(JOBS, job.name, patch, job.namespace, field_manager=names.FIELD_MANAGER_PROVISIONER)

    async def _publish_event(self, action: Publish) -> None:
        if isinstance(action.event, ProvisionSucceeded | ProvisionFailed):
            self._draw_installer(action.job)
        await self.bus.publish(action.event, dedup=action.dedup_id)
        self.cache.event_published(action.dedup_id)

    async def _warn(self, action: WarnNode, annotations: Mapping[str, str] | None = None) -> None:
        self.cache.node_warned(action.node, action.reason)
        node = ObjectRef("v1", "Node", action.node.name, action.node.uid)
        await self.recorder.record(
            regarding=node,
            type="Warning",
            reason=action.reason.value,
            message=action.message,
            annotations=annotations,
        )

    async def _evict(self, action: EvictPod) -> None:
        user = action.user
        try:
            await self.kube.evict(user.namespace, user.name, uid=user.uid)
        except NotFound:
            return  # already deleted
        except TooManyRequests as error:
            done = "changed" if action.reason is Reason.CLAIMED else "removed"
            message = f"{user.shim} cannot be {done}: pod {user} runs with it and is not evicted: {error}"
            await self._warn(WarnNode(action.node, Reason.DRAIN_BLOCKED, message))
            return
        _log.info("pod evicted", pod=str(user), shim=user.shim)

    def _draw_installer(self, job: JobView) -> None:
        """Add the observed duration of the installer to the trace: a legacy image sends no spans."""
        began_ns = self.cache.job_drawn(job.name) or (job.started_at or job.created_at) * 10**9
        span = self.telemetry.tracer.start_span(
            "installer job",
            context=context_from(trace_from(job.traceparent)),
            start_time=began_ns,
            attributes={"k8s.job.name": job.name, "k8s.node.name": job.node, "trellis.job.state": job.state.value},
        )
        span.end()
