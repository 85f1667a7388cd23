"""Side effects of provisioner on Shims: finalizer, RuntimeClass, status, Kubernetes Events.

In: actions of ``shim_decide``. Out: writes to Kubernetes. Called by ``app``. Invariant: each write has preconditions of
the object that was read; the queue retries conflicts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, assert_never

from provisioner.cache import Cache
from provisioner.domain.shim_decide import (
    Action,
    ApplyRuntimeClass,
    DeleteRuntimeClass,
    DropRevision,
    KeepRevision,
    RecordShimEvent,
    SetFinalizer,
    WriteStatus,
)
from provisioner.domain.shim_resources import make_runtime_class, patch_runtime_class, view_runtime_class
from provisioner.domain.shim_snapshot import RuntimeClassView
from trellis import names
from trellis.kube.client import Kube
from trellis.kube.errors import Forbidden, Invalid, NotFound
from trellis.kube.recorder import EventRecorder, ObjectRef
from trellis.kube.resources import CONTROLLER_REVISIONS, RUNTIME_CLASSES, SHIMS
from trellis.provisioning.revisions import Revision, make_revision
from trellis.provisioning.shim_status import make_status
from trellis.provisioning.shims import ShimView
from trellis.telemetry import get_logger

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ShimEffects:
    """The targets of actions on Shims."""

    kube: Kube
    recorder: EventRecorder
    cache: Cache

    async def apply(self, actions: Sequence[Action]) -> None:
        """Apply the actions on one Shim, in order.

        Raises:
            KubeError: a write was refused or not answered. The actions after it were not applied, except after a
                refused RuntimeClass: the status does not wait for it.
        """
        version, refusal = "", None
        for action in actions:
            try:
                version = await self._apply_action(action, version) or version
            except (Invalid, Forbidden) as error:
                if not isinstance(action, ApplyRuntimeClass):
                    raise
                refusal = error
                self.cache.class_refused(action.shim.name, str(error))
            else:
                if isinstance(action, ApplyRuntimeClass):
                    self.cache.class_refused(action.shim.name, "")
        if refusal is not None:
            raise refusal

    async def _apply_action(self, action: Action, version: str) -> str | None:
        """Apply one action; return the Shim's resource version if it wrote the Shim."""
        match action:
            case SetFinalizer():
                return await self._finalizer(action)
            case ApplyRuntimeClass():
                await self._runtime_class(action)
                return None
            case DeleteRuntimeClass():
                await self._delete_class(action.former)
                return None
            case WriteStatus():
                patch = {"metadata": _read(action.shim, version), "status": make_status(action.status)}
                return await self._patch(action.shim, patch, subresource="status")
            case RecordShimEvent():
                await self.recorder.record(
                    regarding=ObjectRef(SHIMS.api_version, SHIMS.kind, action.shim.name, action.shim.uid),
                    type="Warning" if action.warning else "Normal",
                    reason=action.reason,
                    message=action.message,
                )
                return None
            case KeepRevision():
                await self._keep(action)
                return None
            case DropRevision():
                await self._drop(action.former)
                return None
            case _:
                assert_never(action)

    async def _finalizer(self, action: SetFinalizer) -> str | None:
        shim = action.shim
        others = [name for name in shim.finalizers if name != names.FINALIZER]
        finalizers = [*others, names.FINALIZER] if action.present else others
        if not action.present:
            await self._delete_canary_class(shim)
        _log.info("shim finalizer changed", shim=shim.name, present=action.present, message=action.message)
        return await self._patch(shim, {"metadata": _read(shim, "") | {"finalizers": finalizers}})

    async def _runtime_class(self, action: ApplyRuntimeClass) -> None:
        shim, former = action.shim, action.former
        if former is not None and (former.handler != shim.handler or former.owner not in {"", shim.uid}):
            # The handler is immutable. A RuntimeClass of a former Shim is about to be garbage-collected.
            await self._delete_class(former)
            former = None
        if former is None:
            await self.kube.create(RUNTIME_CLASSES, make_runtime_class(shim))
        else:
            await self.kube.json_patch(
                RUNTIME_CLASSES,
                former.name,
                patch_runtime_class(shim, former),
                field_manager=names.FIELD_MANAGER_PROVISIONER,
            )
        _log.info("runtime class written", runtime_class=shim.runtime_class, shim=shim.name)

    async def _delete_class(self, former: RuntimeClassView) -> None:
        with contextlib.suppress(NotFound):
            await self.kube.delete(
                RUNTIME_CLASSES, former.name, uid=former.uid, resource_version=former.resource_version
            )
        _log.info("runtime class deleted", runtime_class=former.name)

    async def _delete_canary_class(self, shim: ShimView) -> None:
        """Delete the RuntimeClass of the Shim's canaries, if there is one: the garbage collector is slow."""
        with contextlib.suppress(NotFound):
            found = await self.kube.get(RUNTIME_CLASSES, names.canary_class(shim.uid, shim.handler))
            await self._delete_class(view_runtime_class(found))

    async def _keep(self, action: KeepRevision) -> None:
        shim, former = action.shim, action.former
        if former is None:
            manifest = make_revision(shim.name, shim.uid, action.version, action.number, self.cache.settings.namespace)
            await self.kube.create(CONTROLLER_REVISIONS, manifest)
        else:
            read = {"uid": former.uid, "resourceVersion": former.resource_version}
            await self.kube.merge_patch(
                CONTROLLER_REVISIONS,
                former.name,
                {"metadata": read, "revision": action.number},
                self.cache.settings.namespace,
                field_manager=names.FIELD_MANAGER_PROVISIONER,
            )
        _log.info("shim revision stored", shim=shim.name, revision=action.number)

    async def _drop(self, former: Revision) -> None:
        with contextlib.suppress(NotFound):
            await self.kube.delete(
                CONTROLLER_REVISIONS,
                former.name,
                self.cache.settings.namespace,
                uid=former.uid,
                resource_version=former.resource_version,
            )

    async def _patch(self, shim: ShimView, patch: dict[str, Any], subresource: str | None = None) -> str:
        written = await self.kube.merge_patch(
            SHIMS, shim.name, patch, field_manager=names.FIELD_MANAGER_PROVISIONER, subresource=subresource
        )
        return str(written["metadata"]["resourceVersion"])


def _read(shim: ShimView, version: str) -> dict[str, Any]:
    """Return the preconditions of a write: the object, and its version as read, or as the last write returned it."""
    return {"uid": shim.uid, "resourceVersion": version or shim.resource_version}
