"""The revisions of a Shim, stored as ControllerRevisions, as for DaemonSets and StatefulSets.

Pure. In: Shims and ControllerRevisions from the API server. Out: revisions by number, the revision to write, the
revision to roll back to. ``provisioner`` writes them, ``trellis rollout`` reads them (ADR 20). Invariants: a revision
contains what nodes get, never the rollout settings and the placement of pods; the newest revision is that of the last
seen spec; revisions of a deleted Shim of the same name do not count.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from trellis import names

Manifest = dict[str, Any]

VERSION_FIELDS: Final = ("fetchStrategy", "runtimeClass", "containerdRuntimeOptions")
"""The fields of a Shim's spec that define a version. A rollback does not change nodes, limits, pause and policies."""
_CLASS: Final = "runtimeClass"
_PLACEMENT: Final = "scheduling"
"""Field of ``runtimeClass`` that is not part of a version: it selects nodes, for pods (ADR 122)."""
KEPT: Final = 10
"""Number of stored revisions, the default of DaemonSets (``revisionHistoryLimit``)."""
_NAME_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class Revision:
    """One version of a Shim; the greatest ``number`` is the current one. ``created``: RFC 3339."""

    name: str
    uid: str
    resource_version: str
    number: int
    version: Manifest = field(hash=False)
    created: str = ""


def version_of(manifest: Mapping[str, Any]) -> Manifest:
    """Return the fields of a Shim's spec that define its version."""
    spec = manifest.get("spec") or {}
    version = {name: spec[name] for name in VERSION_FIELDS if spec.get(name) is not None}
    if _placement_of(version):
        version[_CLASS] = {name: value for name, value in version[_CLASS].items() if name != _PLACEMENT}
    return version


def _placement_of(spec: Mapping[str, Any]) -> Manifest:
    """Return the placement of pods as a part of ``runtimeClass``, {} if there is none."""
    found = spec.get(_CLASS)
    return {_PLACEMENT: found[_PLACEMENT]} if isinstance(found, dict) and found.get(_PLACEMENT) is not None else {}


def _with_placement(version: Manifest, spec: Mapping[str, Any]) -> Manifest:
    """Return the fields of a version, with the placement of pods in the present spec."""
    placement = _placement_of(spec)
    return version | {_CLASS: {**version.get(_CLASS, {}), **placement}} if placement else version


def revisions_of(shim_uid: str, manifests: Iterable[Mapping[str, Any]]) -> tuple[Revision, ...]:
    """Return the revisions that the Shim with this UID owns, the oldest first."""
    found = []
    for manifest in manifests:
        metadata = manifest["metadata"]
        if all(owner.get("uid") != shim_uid for owner in metadata.get("ownerReferences") or ()):
            continue
        found.append(
            Revision(
                name=metadata["name"],
                uid=metadata["uid"],
                resource_version=metadata["resourceVersion"],
                number=int(manifest.get("revision") or 0),
                version=version_of(manifest.get("data") or {}),
                created=str(metadata.get("creationTimestamp") or ""),
            )
        )
    return tuple(sorted(found, key=lambda revision: (revision.number, revision.name)))


def label_selector(shim: str) -> str:
    """Return the label selector of the revisions of a Shim."""
    return f"{names.LABEL_SHIM}={names.shim_label(shim)}"


def same_as(revisions: Sequence[Revision], version: Manifest) -> Revision | None:
    """Return the revision of a version, or None if it is not stored."""
    return next((revision for revision in reversed(revisions) if revision.version == version), None)


def next_number(revisions: Sequence[Revision], version: Manifest) -> int | None:
    """Return the next number for a version, or None if it is the newest one.

    A version that is restored gets a new number and keeps its object.
    """
    newest = revisions[-1] if revisions else None
    if newest is None:
        return 1
    return None if newest.version == version else newest.number + 1


def surplus(
    revisions: Sequence[Revision], version: Manifest, in_use: Collection[str] = frozenset()
) -> tuple[Revision, ...]:
    """Return the oldest revisions beyond the limit, with this version as the newest.

    ``in_use``: names of revisions on nodes. They are kept, as a node returns to its own if the next one fails.
    """
    former = [revision for revision in revisions if revision.version != version]
    return tuple(item for item in former[: max(0, len(former) + 1 - KEPT)] if item.name not in in_use)


def former_of(revisions: Sequence[Revision], version: Manifest) -> Revision | None:
    """Return the version before this one: the newest different stored revision, or None."""
    return next((revision for revision in reversed(revisions) if revision.version != version), None)


def make_revision(shim: str, shim_uid: str, version: Manifest, number: int, namespace: str) -> Manifest:
    """Return the ControllerRevision of a version. The Shim owns it, so the garbage collector deletes it with the Shim.

    Its name is derived from the UID of the Shim and the version, so that two writers cannot store a version twice.
    """
    digest = names.short_hash(shim_uid, json.dumps(version, sort_keys=True, separators=(",", ":")))
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": f"{shim[:_NAME_MAX].rstrip('.-')}-{digest}",
            "namespace": namespace,
            "labels": {names.LABEL_MANAGED_BY: names.MANAGED_BY, names.LABEL_SHIM: names.shim_label(shim)},
            "ownerReferences": [
                {
                    "apiVersion": "runtime.spinkube.dev/v1alpha1",
                    "kind": "Shim",
                    "name": shim,
                    "uid": shim_uid,
                    "controller": True,
                }
            ],
        },
        "data": {"spec": version},
        "revision": number,
    }


def restored(revision: Revision, manifest: Mapping[str, Any]) -> Manifest:
    """Return a Shim with the version of a revision, to derive what nodes would get."""
    spec = {name: value for name, value in (manifest.get("spec") or {}).items() if name not in VERSION_FIELDS}
    return {**manifest, "spec": spec | _with_placement(revision.version, manifest.get("spec") or {})}


def restoring(revision: Revision, manifest: Mapping[str, Any]) -> list[Manifest]:
    """Return the JSON patch operations that set the version of a revision on a Shim, without their ``test``s."""
    spec = manifest.get("spec") or {}
    version = _with_placement(revision.version, spec)
    ops: list[Manifest] = []
    for name in VERSION_FIELDS:
        wanted = version.get(name)
        if wanted is not None:
            ops.append({"op": "add", "path": f"/spec/{name}", "value": wanted})
        elif name in spec:
            ops.append({"op": "remove", "path": f"/spec/{name}"})
    return ops
