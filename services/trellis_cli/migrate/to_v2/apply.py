"""Writes the objects of conversions to Kubernetes.

In: conversions. Out: one line per object. Called by ``to_v2.command``. Invariants: no object without the label of the
same application is changed, so none of v1, also if it appears after the check; a field that another manager set is not
overwritten; nothing is written before all objects were checked; a second run changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from trellis import names
from trellis.kube.client import Kube
from trellis.kube.errors import Conflict, NotFound
from trellis.kube.resources import CONFIGMAPS, SERVICES, WORKLOAD_DEPLOYMENTS, Manifest, Resource
from trellis_cli.common.errors import CommandError
from trellis_cli.migrate.model.to_v2.owners import (
    Target,
    deletion,
    name_of,
    owner_of,
    refusals,
    removal,
    shared_hosts,
    targets_of,
)
from trellis_cli.migrate.model.to_v2.report import Conversion

_KINDS: Final[tuple[Resource, ...]] = (WORKLOAD_DEPLOYMENTS, SERVICES, CONFIGMAPS)
_READ_AT_ONCE: Final = 12
_NO_OBJECT: Final = {"resourceVersion": "1"}
"""Precondition of a create: an API server refuses to apply to an object of another version, and no object has the first
revision of etcd. A create by POST would not do: its fields have an owner that later applies do not share."""


@dataclass(frozen=True, slots=True)
class Applied:
    """One object. ``done``: created, configured or unchanged, as in kubectl."""

    object: str
    done: str

    def document(self) -> dict[str, Any]:
        """Return the line for JSON."""
        return {"object": self.object, "done": self.done}


@dataclass(frozen=True, slots=True)
class Result:
    """The applied objects, the commands that remove them, and those that remove objects of former runs.

    ``leftovers``: objects that applications do not have any more; ``orphans``: those of applications that were not
    read.
    """

    applied: tuple[Applied, ...]
    remove: tuple[str, ...]
    leftovers: tuple[str, ...]
    orphans: tuple[str, ...]


async def apply(kube: Kube, conversions: Sequence[Conversion], namespace: str | None, *, complete: bool) -> Result:
    """Apply the objects of the applications of a namespace, or of all; ``complete``: all applications were read.

    Raises:
        CommandError: v2 is not installed, an object belongs to another owner, or two applications have one Host header;
            then nothing was written.
        KubeError: an object cannot be read or written.
    """
    targets = targets_of(conversions)
    former = [(res, item) for res in _KINDS for item in await _labelled(kube, res, namespace)]
    existing = await _existing(kube, targets)
    if refused := [*refusals(targets, existing), *shared_hosts(conversions)]:
        raise CommandError(f"nothing was changed: {'; '.join(refused)}")
    applied: list[Applied] = []
    for target, found in zip(targets, existing, strict=True):
        applied.append(await _apply(kube, target, found, len(applied)))
    wanted = {(target.res, target.namespace, target.name) for target in targets}
    converted = {(item.namespace, item.label) for item in conversions if item.valid}
    read = {(item.namespace, names.service_name(item.application)) for item in conversions}
    leftovers = [
        deletion(res, item)
        for res, item in former
        if owner_of(item) in converted and (res, item["metadata"]["namespace"], name_of(item)) not in wanted
    ]
    orphans = removal({owner_of(item) for _, item in former} - read) if complete else []
    return Result(tuple(applied), tuple(removal(target.owner for target in targets)), tuple(leftovers), tuple(orphans))


async def _existing(kube: Kube, targets: Sequence[Target]) -> list[Manifest | None]:
    """Return the present objects, None for those that do not exist."""
    gate = asyncio.Semaphore(_READ_AT_ONCE)

    async def find(target: Target) -> Manifest | None:
        async with gate:
            try:
                return await kube.get(target.res, target.name, target.namespace)
            except NotFound:
                return None

    return list(await asyncio.gather(*map(find, targets)))


async def _apply(kube: Kube, target: Target, found: Manifest | None, before: int) -> Applied:
    same_object = _NO_OBJECT if found is None else {"uid": found["metadata"]["uid"]}
    manifest = target.manifest | {"metadata": {**target.manifest["metadata"], **same_object}}
    try:
        after = await kube.apply_unless_owned(target.res, manifest, field_manager=names.FIELD_MANAGER_TO_V2)
    except Conflict as error:
        reason = (
            "an object of this name was created meanwhile: repeat the command"
            if found is None
            else f"{error.message}. Another manager set these fields: set them there, or delete the object, and repeat "
            "the command"
        )
        raise CommandError(f"{before} objects applied; then {target.key} was refused: {reason}") from None
    if found is None:
        return Applied(target.key, "created")
    same = after["metadata"]["resourceVersion"] == found["metadata"]["resourceVersion"]
    return Applied(target.key, "unchanged" if same else "configured")


async def _labelled(kube: Kube, res: Resource, namespace: str | None) -> list[Manifest]:
    """Return the objects of a kind that a run wrote.

    Raises:
        CommandError: the API server does not serve the kinds of v2.
    """
    try:
        return (await kube.list(res, namespace, label_selector=names.LABEL_MIGRATED_FROM)).items
    except NotFound:
        raise CommandError(
            f"nothing was changed: the server does not have the resource type {res.definition}; install wasmCloud v2 "
            "first, with the Helm chart runtime-operator"
        ) from None
