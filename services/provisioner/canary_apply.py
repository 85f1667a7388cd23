"""Side effects of verifying a Job: canary pods, their RuntimeClasses, annotations, rollback Jobs.

In: actions of ``decide``. Out: writes to Kubernetes. Called by ``apply``. Invariant: each write has preconditions; an
object that exists from an earlier write without an answer is reused.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import assert_never

from provisioner.admission_changes import create_job
from provisioner.cache import Cache
from provisioner.domain.actions import CreateCanary, CreateUndo, DeleteCanary, VerifyJob
from provisioner.domain.canary import Canary, class_of
from provisioner.domain.canary_resources import make_canary_class, make_canary_pod
from provisioner.domain.resources import make_installer_job
from trellis import names
from trellis.kube.client import Kube
from trellis.kube.errors import AlreadyExists, NotFound
from trellis.kube.resources import JOBS, PODS, RUNTIME_CLASSES
from trellis.telemetry import Telemetry, current_trace, get_logger

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class VerificationEffects:
    """The targets of the actions of a verification."""

    kube: Kube
    cache: Cache
    telemetry: Telemetry

    async def apply(self, action: CreateCanary | DeleteCanary | VerifyJob | CreateUndo) -> float | None:
        """Apply one action; return the seconds until its retry, None if it is done.

        Raises:
            KubeError: a write was refused or not answered.
        """
        match action:
            case CreateCanary():
                await self._begin(action)
            case DeleteCanary():
                await self._end(action)
            case VerifyJob():
                await self._verify(action)
            case CreateUndo():
                return await self._roll_back(action)
            case _:
                assert_never(action)
        return None

    async def _begin(self, action: CreateCanary) -> None:
        """Create a canary pod, and the RuntimeClass that it needs."""
        job, canary = action.job, action.canary
        await self._ensure_class(canary)
        seconds = 2 * self.cache.settings.verify_timeout
        manifest = make_canary_pod(self.cache.installer, job, canary, seconds)
        # It exists from a create whose response was lost, or is being deleted: the watch reports it.
        with contextlib.suppress(AlreadyExists):
            await self.kube.create(PODS, manifest)
        _log.info("canary pod created", node=job.node, shim=canary.shim, pod=manifest["metadata"]["name"])

    async def _end(self, action: DeleteCanary) -> None:
        """Delete a canary pod in any phase."""
        pod = action.pod
        with contextlib.suppress(NotFound):
            await self.kube.delete(PODS, pod.name, pod.namespace, uid=pod.uid, resource_version=pod.resource_version)
        _log.info("canary pod deleted", node=pod.node, shim=pod.shim, pod=pod.name, reason=action.reason.value)

    async def _verify(self, action: VerifyJob) -> None:
        """Write the verification by canaries to the Job."""
        job = action.job
        read = {"uid": job.uid, "resourceVersion": job.resource_version}
        patch = {"metadata": read | {"annotations": {names.ANNOTATION_VERIFIED: action.verified_by.value}}}
        await self.kube.merge_patch(JOBS, job.name, patch, job.namespace, field_manager=names.FIELD_MANAGER_PROVISIONER)
        _log.info("installer job verified", node=job.node, job=job.name, verified=action.verified_by.value)

    async def _roll_back(self, action: CreateUndo) -> float | None:
        """Create the Job that rolls back another Job."""
        job, task = action.job, action.task
        with self.telemetry.tracer.start_as_current_span(
            "create rollback job", attributes={"k8s.node.name": action.node.name, "trellis.reason": action.reason.value}
        ):
            trace = current_trace()
            manifest = make_installer_job(
                self.cache.installer, action.node, task, job.attempt, trace.traceparent if trace else None
            )
            try:
                await create_job(self.kube, manifest)
            except AlreadyExists:  # from a lost response, or without labels and thus not watched
                return self.cache.timings.nodes.name_taken
        _log.warning("verification failed, rolling back", node=job.node, shims=task.blamed, message=task.reason)
        return None

    async def _ensure_class(self, canary: Canary) -> None:
        name = class_of(canary)
        if self.cache.has_canary_class(name):
            return
        with contextlib.suppress(AlreadyExists):
            await self.kube.create(RUNTIME_CLASSES, make_canary_class(canary))
        self.cache.canary_class_made(name)
