"""Manifests and patches of Applications that are written to Kubernetes.

Pure. In: wadm's manifest, an object as it was read. Out: manifests and merge patches. Called by ``apply``. Invariant:
an object that receives a manifest has its digest afterwards: the same write removes all other fields of the object.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from application_manager.domain.views import read_manifest, received_annotation
from trellis import names
from trellis.lattice.domain.oam import ManifestError
from trellis.lattice.domain.projection import VERSION, Projection

Json = dict[str, Any]
Manifest = Mapping[str, Any]

_LABEL_VALUE: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


def make_application(namespace: str, name: str, lattice: str, projection: Projection, version: str) -> Json:
    """Return a new object for a version of wadm; ``lattice`` is the lattice's name."""
    metadata = projection.manifest["metadata"]
    annotations = {**metadata["annotations"], VERSION: version}
    if metadata["name"] != name:
        annotations[names.ANNOTATION_APP_NAME] = metadata["name"]
    labels = dict(metadata.get("labels") or {})
    if _LABEL_VALUE.fullmatch(lattice):
        labels[names.LABEL_LATTICE] = lattice
    return {
        "apiVersion": "core.oam.dev/v1beta1",
        "kind": "Application",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "annotations": annotations,
            "labels": labels,
            "finalizers": [names.FINALIZER_APPLICATIONS],
        },
        "spec": projection.manifest["spec"],
    }


def make_spec_patch(item: Manifest, projection: Projection, version: str, serial: int) -> Json:
    """Return the merge patch that writes a version of wadm to an object, with the last-synced annotation.

    A merge patch, as server-side apply would leave the fields of other managers that the version lacks.
    """
    metadata = projection.manifest["metadata"]
    try:
        former = read_manifest(item).manifest["metadata"]
    except ManifestError:
        former = {}
    annotations = {VERSION: version, names.ANNOTATION_LAST_SYNCED: received_annotation(projection.digest, serial)}
    return {
        "metadata": {
            "annotations": _instead(former.get("annotations"), metadata["annotations"]) | annotations,
            "labels": _instead(former.get("labels"), metadata.get("labels")),
        },
        "spec": _instead(item.get("spec"), projection.manifest["spec"]),
    }


def _instead(former: Manifest | None, wanted: Manifest | None) -> Json:
    """Return the merge patch that turns one map into another; lists are replaced as a whole."""
    return {**dict.fromkeys(former or {}), **(wanted or {})}
