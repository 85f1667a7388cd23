"""Side effects of host_manager: children, finalizer, status, Events.

In: actions of ``decide``. Out: writes to Kubernetes. Called by ``app``. Invariants: what is changed or deleted is the
very object that was read; a child that is missing is made by an apply, so that its fields are ours from the beginning.
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
from trellis.kube.errors import Conflict, Invalid, KubeError, NotFound, TooManyRequests
from trellis.kube.preconditions import only_if
from trellis.kube.recorder import EventRecorder, ObjectRef
from trellis.kube.resources import HOST_CONFIGS, ROLE_BINDINGS
from trellis.telemetry import get_logger

_log = get_logger(__name__)
_NOT_DECLARED = "field not declared in schema"
"""What the API server says, with status 500, of a field that no pod has."""


@dataclass(frozen=True, slots=True)
class Effects:
    """Where actions go."""

    kube: Kube
    recorder: EventRecorder
    cache: Cache

    async def tried(self, actions: Sequence[Action]) -> tuple[list[Action], str]:
        """Try by a dry run what runs the pods; return the actions, and the API server's words if it refuses that.

        Its fields are taken over before, which changes nothing that it says: else what we leave out would stay.

        Raises:
            KubeError: it could not be tried.
        """
        done: list[Action] = []
        refusal = ""
        for action in actions:
            if isinstance(action, ApplyChild) and action.is_workload:
                async with self.cache.calls:
                    ready = replace(action, found=await self._taken_over(action), managed_fields=None)
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
        """Carry out the actions about one group, in order.

        Raises:
            KubeError: a write was refused or not answered; what follows it was not done.
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
        _tell(key, actions)

    async def _in_turn(self, key: str, action: Action, version: str) -> str | None:
        async with self.cache.calls:
            return await self._one(key, action, version)

    async def _one(self, key: str, action: Action, version: str) -> str | None:
        """Carry out one action; returns the group's resourceVersion if it was changed."""
        match action:
            case SetFinalizers():
                patch = {"metadata": _read(action.head, version) | {"finalizers": list(action.finalizers)}}
                return await self._patch(action.head, patch)
            case ApplyChild():
                await self._write(key, action)
            case DeleteChild():
                await self._delete(key, action)
            case WriteStatus():
                # Of the former status nothing stays that is not in the new one.
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
        """Evict the pod, and say so on the group; a disruption budget may ask to wait."""
        begun = True
        try:
            with contextlib.suppress(NotFound):
                await self.kube.evict(action.pod.namespace, action.pod.name, uid=action.pod.uid)
        except TooManyRequests:
            begun = False  # no host restarts, so there is none to wait for before the next try
            raise
        finally:
            if begun:
                self.cache.listening.recycling.begun(key, time.monotonic())
        _log.info("pod of a host without heartbeat evicted", group=key, pod=action.pod.name)
        await self._one(key, RecordGroupEvent(action.head, "HostRecycled", action.message), "")

    async def _retry(self, key: str, action: RetryPods) -> None:
        """Change an annotation: a Deployment's controller copies it to the ReplicaSet, whose controller tries again."""
        metadata = action.found["metadata"]
        patch = {name: metadata[name] for name in ("uid", "resourceVersion")}
        patch["annotations"] = {names.ANNOTATION_PODS_RETRIED: action.at}
        with contextlib.suppress(
            NotFound, Conflict
        ):  # it changed in the meantime: it is still due, and looked at again
            await self.kube.merge_patch(
                RESOURCES[action.found["kind"]],
                metadata["name"],
                {"metadata": patch},
                metadata["namespace"],
                field_manager=names.FIELD_MANAGER_HOST_MANAGER,
            )
            self.cache.retries.tried(key)

    async def _write(self, key: str, action: ApplyChild) -> None:
        found = await self._taken_over(action)
        written = await self._apply(action, found)
        self.cache.applied.setdefault(key, {})[action.key] = (fingerprint(action.wanted), fingerprint(written))

    async def _taken_over(self, action: ApplyChild) -> Manifest | None:
        """Write the managedFields of a child, if they are to change; return it as it is then."""
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
        raise AssertionError("the last try returns or raises")

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
    """Return the actions in steps: children that nothing waits for are written at the same time, in one step.

    A RoleBinding is none of them: who is no administrator can make it only once there is its Role.
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


def _tell(key: str, actions: Sequence[Action]) -> None:
    """Say in the log what was done about a group, in one line."""
    told = {
        "made": [action.key[0] for action in actions if isinstance(action, ApplyChild) and action.found is None],
        "changed": [action.key[0] for action in actions if isinstance(action, ApplyChild) and action.found is not None],
        "deleted": [action.found["kind"] for action in actions if isinstance(action, DeleteChild)],
        "finalizers": [action.message for action in actions if isinstance(action, SetFinalizers)],
    }
    if any(told.values()):
        _log.info("host group updated", group=key, **{name: what for name, what in told.items() if what})


def _read(head: Head, version: str) -> Manifest:
    """Return what a write must name: the group, and its state as read, or as our own write just left it."""
    return {"uid": head.uid, "resourceVersion": version or head.resource_version}
