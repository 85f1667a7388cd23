"""Manifest and view of the RuntimeClass of a Shim.

Pure and total: arguments in, manifest out. Called by ``shim_gather`` and ``shim_apply``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provisioner.domain.shim_decide import wanted_selector
from provisioner.domain.shim_snapshot import RuntimeClassView
from trellis import names
from trellis.provisioning.shims import ShimView

Manifest = dict[str, Any]


def make_runtime_class(shim: ShimView, former: RuntimeClassView | None) -> Manifest:
    """Return the RuntimeClass of a Shim: its pods are scheduled only to nodes that are verified to run it.

    The Shim owns it, so the garbage collector deletes it with the Shim. With ``former`` it is an apply to that object
    as it was read.
    """
    metadata: Manifest = {
        "name": shim.runtime_class,
        "labels": {names.LABEL_MANAGED_BY: names.MANAGED_BY},
        "ownerReferences": [
            {"apiVersion": "runtime.spinkube.dev/v1alpha1", "kind": "Shim", "name": shim.name, "uid": shim.uid}
        ],
    }
    if former is not None:
        metadata |= {"uid": former.uid, "resourceVersion": former.resource_version}
    manifest: Manifest = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": metadata,
        "handler": shim.handler,
        "scheduling": {"nodeSelector": dict(wanted_selector(shim))},
    }
    if shim.overhead:
        manifest["overhead"] = {"podFixed": dict(shim.overhead)}
    return manifest


def view_runtime_class(manifest: Manifest) -> RuntimeClassView:
    """Return the view of a RuntimeClass; ``owner``: UID of the first owner, of any kind."""
    metadata = manifest["metadata"]
    owners = metadata.get("ownerReferences") or ()
    overhead: Mapping[str, Any] = (manifest.get("overhead") or {}).get("podFixed") or {}
    selector: Mapping[str, str] = (manifest.get("scheduling") or {}).get("nodeSelector") or {}
    return RuntimeClassView(
        name=metadata["name"],
        uid=metadata["uid"],
        resource_version=metadata["resourceVersion"],
        handler=manifest["handler"],
        overhead=tuple(sorted((name, str(amount)) for name, amount in overhead.items())),
        selector=tuple(sorted(selector.items())),
        owner=next((str(owner.get("uid", "")) for owner in owners), ""),
        owner_name=next((str(owner.get("name", "")) for owner in owners if owner.get("kind") == "Shim"), ""),
    )
