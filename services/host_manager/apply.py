"""Side effects of host_manager: children, finalizer, status, Events.

In: actions of ``decide``. Out: writes to Kubernetes. Called by ``app``. Invariants: writes and deletions have the
preconditions uid and resourceVersion of the object that was read; a missing child is created by server-side apply, so
that host_manager owns its fields from the start.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from host_manager.domain.children import fingerprint
from host_manager.domain.decide import (
    Action,
    ApplyChild,
    DeleteChild,
    RecordGroupEvent,
    RecyclePod,
    RetryPods,
    SetFinalizers,
    WriteStatus,
)
from host_manager.domain.group import API_VERSION, KIND, Manifest
from host_manager.domain.snapshot import Head
from host_manager.gather import RESOURCES, Cache
from trellis import names
from trellis.kube.client import Kube
from trellis.kube.errors import Conflict, Invalid, KubeError, NotFound
from trellis.kube.preconditions import only_if
from trellis.kube.recorder import EventRecorder, ObjectRef
from trellis.kube.resources import HOST_CONFIGS, ROLE_BINDINGS
from trellis.telemetry import get_logger

_log = get_logger(__name__)
_NOT_DECLARED = "field not declared in schema"
"""Message of the API server, with status 500, for a field that pods do not have."""


@dataclass(frozen=True, slots=True)
class Effects:
    """Executes actions."""

    kube: Kube
    recorder: EventRecorder
    cache: Cache

    async def tried(self, actions: Sequence[Action]) -> tuple[list[Action], str]:
        """Validate the workload by a dry run; return the actions, and the message of the API server if it rejects it.

        Before that, the field ownership is transferred, which changes no values; otherwise omitted fields would remain.

        Raises:
            KubeError: the dry run failed.
        """
        done: list[Action] = []
        refusal = ""
        for action in actions:
            if isinstance(action, ApplyChild) and action.is_workload:
                async with self.cache.calls:
                    ready = replace(action, found=await self._with_managed_fields(action), managed_fields=None)
                    refusal = await self._refusal(ready)
                done.append(ready)
            else:
                done.append(action)
        return done, refusal

    async def _refusal(self, action: ApplyChild) -> str:
        try:
            await self._apply(action, action.found, dry_run=True)
        except Conflict:
            raise
        except KubeError as error:
            if isinstance(error, Invalid) or _NOT_DECLARED in error.message:
                return error.message
            raise
        return ""

    async def apply(self, key: str, actions: Sequence[Action]) -> None:
        """Apply the actions on one host group, in order.

        Raises:
            KubeError: a write was rejected or not answered; later actions were not applied.
        """
        version = ""
        for step in _steps(actions):
            if len(step) == 1:
                version = await self._in_turn(key, step[0], version) or version
                continue
            writes = (self._in_turn(key, action, "") for action in step)
            done = await asyncio.gather(*writes, return_exceptions=True)
            for outcome in done:
                if isinstance(outcome, BaseException):
                    raise outcome
        _log_actions(key, actions)

    async def _in_turn(self, key: str, action: Action, version: str) -> str | None:
        async with self.cache.calls:
            return await self._apply_action(key, action, version)

    async def _apply_action(self, key: str, action: Action, version: str) -> str | None:
        """Apply one action; return the resourceVersion of the host group if it was changed."""
        match action:
            case SetFinalizers():
                patch = {"metadata": _read(action.head, version) | {"finalizers": list(action.finalizers)}}
                return await self._patch(action.head, patch)
            case ApplyChild():
                await self._write(key, action)
            case DeleteChild():
                await self._delete(key, action)
            case WriteStatus():
                # Fields of the former status that are not in the new one are removed.
                patch = {"metadata": _read(action.head, version), "status": action.status}
                return await self._patch(action.head, patch, subresource="status")
            case RecordGroupEvent():
                head = action.head
                await self.recorder.record(
                    regarding=ObjectRef(API_VERSION, KIND, head.name, head.uid, head.namespace),
                    type="Warning" if action.warning else "Normal",
                    reason=action.reason,
                    message=action.message,
                )
            case RecyclePod():
                await self._recycle(key, action)
            case RetryPods():
                await self._retry(key, action)
            case _:
                assert_never(action)
        return None

    async def _recycle(self, key: str, action: RecyclePod) -> None:
        """Evict the pod, and record an Event on the host group; a disruption budget may delay the eviction.

        A failed request starts no pause: it may have restarted nothing, and its repetition evicts the same pod only.
        """
        with contextlib.suppress(NotFound):
            await self.kube.evict(action.pod.namespace, action.pod.name, uid=action.pod.uid)
        self.cache.lattices.recycling.note_restart(key, time.monotonic())
        _log.info("pod of a host without heartbeat evicted", group=key, pod=action.pod.name)
        await self._apply_action(key, RecordGroupEvent(action.head, "HostRecycled", action.message), "")

    async def _retry(self, key: str, action: RetryPods) -> None:
        """Set an annotation on the workload, on which the controller that creates the pods retries at once."""
        metadata = action.found["metadata"]
        patch = {name: metadata[name] for name in ("uid", "resourceVersion")}
        patch["annotations"] = {names.ANNOTATION_PODS_RETRIED: action.at}
        with contextlib.suppress(NotFound, Conflict):  # the workload changed in the meantime: the retry remains due
            await self.kube.merge_patch(
                RESOURCES[action.found["kind"]],
                metadata["name"],
                {"metadata": patch},
                metadata["namespace"],
                field_manager=names.FIELD_MANAGER_HOST_MANAGER,
            )
            self.cache.retries.tried(key)

    async def _write(self, key: str, action: ApplyChild) -> None:
        found = await self._with_managed_fields(action)
        written = await self._apply(action, found)
        self.cache.applied.setdefault(key, {})[action.key] = (fingerprint(action.wanted), fingerprint(written))

    async def _with_managed_fields(self, action: ApplyChild) -> Manifest | None:
        """Write the managedFields of a child if they are to change; return the child after the write."""
        if action.managed_fields is None or action.found is None:
            return action.found
        metadata = action.found["metadata"]
        return await self.kube.json_patch(
            RESOURCES[action.key[0]],
            metadata["name"],
            [
                *only_if(metadata["uid"], metadata["resourceVersion"]),
                {"op": "replace", "path": "/metadata/managedFields", "value": action.managed_fields},
            ],
            metadata["namespace"],
            field_manager=names.FIELD_MANAGER_HOST_MANAGER,
        )

    async def _apply(self, action: ApplyChild, found: Manifest | None, *, dry_run: bool = False) -> Manifest:
        wanted = action.wanted
        if found is not None:
            read = {name: found["metadata"][name] for name in ("uid", "resourceVersion")}
            wanted = wanted | {"metadata": wanted["metadata"] | read}
        for wait in (*self.cache.timings.role, None):
            try:
                return await self.kube.apply(
                    RESOURCES[wanted["kind"]],
                    wanted,
                    field_manager=names.FIELD_MANAGER_HOST_MANAGER,
                    create_if_missing=found is None,
                    dry_run=dry_run,
                )
            except NotFound as error:
                if wait is None or found is not None or wanted["kind"] != ROLE_BINDINGS.kind:
                    raise
                _log.debug("Role of a RoleBinding not found yet", error=str(error))
            await asyncio.sleep(wait)
        raise AssertionError("the last attempt returns or raises")

    async def _delete(self, key: str, action: DeleteChild) -> None:
        found = action.found
        metadata = found["metadata"]
        with contextlib.suppress(NotFound):
            await self.kube.delete(
                RESOURCES[found["kind"]],
                metadata["name"],
                metadata["namespace"],
                uid=metadata["uid"],
                resource_version=metadata["resourceVersion"],
            )
        self.cache.applied.get(key, {}).pop((found["kind"], metadata["name"]), None)

    async def _patch(self, head: Head, patch: Manifest, subresource: str | None = None) -> str:
        written = await self.kube.merge_patch(
            HOST_CONFIGS,
            head.name,
            patch,
            head.namespace,
            field_manager=names.FIELD_MANAGER_HOST_MANAGER,
            subresource=subresource,
        )
        return str(written["metadata"]["resourceVersion"])


def _steps(actions: Sequence[Action]) -> list[list[Action]]:
    """Return the actions in steps; a step consists of children that are written concurrently.

    A RoleBinding has a step of its own: without admin permissions it can be created only after its Role.
    """
    steps: list[list[Action]] = []
    for action in actions:
        before = steps[-1][-1] if steps else None
        if _goes_along(action) and before is not None and _goes_along(before):
            steps[-1].append(action)
        else:
            steps.append([action])
    return steps


def _goes_along(action: Action) -> bool:
    return isinstance(action, ApplyChild) and not action.is_workload and action.key[0] != ROLE_BINDINGS.kind


def _log_actions(key: str, actions: Sequence[Action]) -> None:
    """Log the actions on a host group, in one line."""
    changes = {
        "made": [action.key[0] for action in actions if isinstance(action, ApplyChild) and action.found is None],
        "changed": [action.key[0] for action in actions if isinstance(action, ApplyChild) and action.found is not None],
        "deleted": [action.found["kind"] for action in actions if isinstance(action, DeleteChild)],
        "finalizers": [action.message for action in actions if isinstance(action, SetFinalizers)],
    }
    if any(changes.values()):
        _log.info("host group updated", group=key, **{name: what for name, what in changes.items() if what})


def _read(head: Head, version: str) -> Manifest:
    """Return the preconditions of a write: the host group, and its resourceVersion as read or after the last write."""
    return {"uid": head.uid, "resourceVersion": version or head.resource_version}
