"""Writes Shims: a new one, another release of an existing one, or the default Shim of the chart.

In: a connection and a manifest. Out: the stored Shim and the change, in the words of ``kubectl apply``. Called by
``trellis shims``. Invariant: of an existing Shim only ``spec.fetchStrategy`` changes, in the state that was read; an
object of another owner is not changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from trellis import names
from trellis.kube.client import Kube
from trellis.kube.errors import NotFound
from trellis.kube.preconditions import only_if
from trellis.kube.resources import SHIMS
from trellis_cli.common.errors import CommandError

Manifest = dict[str, Any]


class Outcome(StrEnum):
    """Change of an object, as ``kubectl apply`` reports it."""

    CREATED = "created"
    CONFIGURED = "configured"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class Written:
    """The Shim after the command, and what changed."""

    manifest: Manifest
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class ServedTimings:
    """Seconds to wait until the API server serves Shims, and between attempts."""

    timeout: float = 60.0
    poll: float = 0.5


async def write_release(
    kube: Kube, wanted: Manifest, *, dry_run: bool, requested: Mapping[str, str] = MappingProxyType({})
) -> Written:
    """Create a Shim, or replace the fetch strategy of the existing one. ``dry_run``: the server stores nothing.

    ``requested``: options of the command line by the field of the spec that a user set with them.

    Raises:
        CommandError: the Shim exists with another handler or another value of a requested field, or is being deleted.
        KubeError: it cannot be read or written, or was changed at the same time.
    """
    name = wanted["metadata"]["name"]
    by = names.FIELD_MANAGER_COMMAND_LINE
    try:
        found = await kube.get(SHIMS, name)
    except NotFound:
        if dry_run:
            stored = await kube.apply(SHIMS, wanted, field_manager=by, create_if_missing=True, dry_run=True)
        else:
            stored = await kube.create(SHIMS, wanted, field_manager=by)
        return Written(stored, Outcome.CREATED)
    spec, metadata = found.get("spec") or {}, found["metadata"]
    handler, wanted_handler = ((item.get("runtimeClass") or {}).get("handler") for item in (spec, wanted["spec"]))
    if handler != wanted_handler:
        message = f'Shim "{name}" exists and has the handler {handler!r}, not {wanted_handler!r}: give another --name'
        raise CommandError(message)
    for key, option in requested.items():
        if _comparable(spec.get(key)) != _comparable(wanted["spec"].get(key)):
            raise CommandError(
                f'Shim "{name}" exists with another {key}, and only its release is changed: omit {option}, change the '
                "Shim with kubectl, or give another --name"
            )
    if "deletionTimestamp" in metadata:
        raise CommandError(f'Shim "{name}" is being deleted: retry when it is gone')
    strategy = wanted["spec"]["fetchStrategy"]
    if spec.get("fetchStrategy") == strategy:
        return Written(found, Outcome.UNCHANGED)
    if dry_run:
        changed = wanted | {
            "metadata": {"name": name, "uid": metadata["uid"]},
            "spec": spec | {"fetchStrategy": strategy},
        }
        return Written(await kube.apply(SHIMS, changed, field_manager=by, dry_run=True), Outcome.CONFIGURED)
    ops = [
        *only_if(metadata["uid"], metadata["resourceVersion"]),
        {"op": "replace", "path": "/spec/fetchStrategy", "value": strategy},
    ]
    return Written(await kube.json_patch(SHIMS, name, ops, field_manager=by), Outcome.CONFIGURED)


async def write_default(kube: Kube, wanted: Manifest, timings: ServedTimings = ServedTimings()) -> Written:
    """Apply the default Shim of the chart; wait until the API server serves Shims, whose CRD the chart installs.

    Fields that a user set and the chart does not are kept, as with ``kubectl apply --server-side``.

    Raises:
        CommandError: a Shim of this name exists that the chart did not create.
        KubeError: it cannot be read or written, or Shims are not served in time.
    """
    name = wanted["metadata"]["name"]
    by = names.FIELD_MANAGER_CHART
    former = await _read(kube, name)
    if former is not None and by not in _managers(former):
        raise CommandError(
            f'Shim "{name}" exists and is not of the chart: rename it, or disable the default Shim of the chart '
            "(defaultShim.enabled=false)"
        )
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timings.timeout
    while True:
        try:
            stored = await kube.apply(SHIMS, wanted, field_manager=by, create_if_missing=True)
        except NotFound:
            if loop.time() > deadline:
                raise
            await asyncio.sleep(timings.poll)
        else:
            break
    if former is None:
        return Written(stored, Outcome.CREATED)
    same = former["metadata"]["resourceVersion"] == stored["metadata"]["resourceVersion"]
    return Written(stored, Outcome.UNCHANGED if same else Outcome.CONFIGURED)


async def _read(kube: Kube, name: str) -> Manifest | None:
    try:
        return await kube.get(SHIMS, name)
    except NotFound:
        return None


def _comparable(field: object) -> object:
    """Return a field of a spec without what the command line cannot set: of a rollout strategy ``maxUpdate`` alone."""
    rolling = field.get("rolling") if isinstance(field, dict) else None
    return {"maxUpdate": rolling.get("maxUpdate")} if isinstance(rolling, dict) else field


def _managers(manifest: Manifest) -> set[str]:
    return {entry.get("manager", "") for entry in manifest["metadata"].get("managedFields") or ()}
