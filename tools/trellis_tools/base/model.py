"""Derives ``deploy/base`` from the rendered chart: the same objects, without the metadata of Helm.

Pure. In: manifests of the chart, hooks before an installation included. Out: manifests by file. Called by
``base.generate``. Invariants: the result contains no Secret, as the chart renders none; the permissions are those of
the chart.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any, Final

Manifest = dict[str, Any]

HOME: Final = "trellis-system"
KUSTOMIZATION: Final = "kustomization.yaml"
DEFINITIONS: Final = "../helm/trellis/definitions"
"""CRDs of the chart: a separate kustomization, which the base includes."""
HOOK: Final = "helm.sh/hook"
_BEFORE: Final = "pre-install"
_HELMS: Final = "helm.sh/"
_RELEASE_LABELS: Final = ("app.kubernetes.io/instance", "app.kubernetes.io/managed-by")
"""Labels that describe a release of Helm."""
_FILES: Final = {
    "Namespace": "namespaces.yaml",
    "ServiceAccount": "rbac.yaml",
    "Role": "rbac.yaml",
    "RoleBinding": "rbac.yaml",
    "ClusterRole": "rbac.yaml",
    "ClusterRoleBinding": "rbac.yaml",
}
_KEYS, _BUS, _SERVICES = "bus-keys.yaml", "nats.yaml", "services.yaml"
_COMPONENT: Final = "app.kubernetes.io/component"


def files_of(rendered: Iterable[Manifest]) -> dict[str, list[Manifest]]:
    """Return the manifests of each file, in file order.

    Raises:
        ValueError: the chart renders a Secret, which would be public.
    """
    files: dict[str, list[Manifest]] = {name: [] for name in (*dict.fromkeys(_FILES.values()), _KEYS, _BUS, _SERVICES)}
    files["namespaces.yaml"].append({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HOME}})
    for original in rendered:
        hook = original["metadata"].get("annotations", {}).get(HOOK, "")
        if hook and _BEFORE not in hook.split(","):
            continue
        if original["kind"] == "Secret":
            raise ValueError(f"Secret {original['metadata']['name']} of the chart would be public")
        item = copy.deepcopy(original)
        _without_marks(item)
        files[_KEYS if hook else _file_of(item)].append(item)
    return files


def _file_of(manifest: Manifest) -> str:
    is_of_bus = manifest["metadata"].get("labels", {}).get(_COMPONENT) == "nats"
    return _FILES.get(manifest["kind"], _BUS if is_of_bus else _SERVICES)


def _without_marks(manifest: Manifest) -> None:
    """Remove labels and annotations of Helm."""
    for place in (manifest, manifest.get("spec", {}).get("template", {})):
        metadata = place.get("metadata", {})
        for kind in ("labels", "annotations"):
            found = metadata.get(kind, {})
            kept = {
                key: value
                for key, value in found.items()
                if not key.startswith(_HELMS) and not (kind == "labels" and key in _RELEASE_LABELS)
            }
            if kept:
                metadata[kind] = kept
            else:
                metadata.pop(kind, None)
