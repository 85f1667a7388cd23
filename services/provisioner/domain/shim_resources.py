"""Manifest, patch and view of the RuntimeClass of a Shim.

Pure and total: arguments in, manifest or patch out. Called by ``shim_gather`` and ``shim_apply``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provisioner.domain.shim_decide import wanted_labels, wanted_placement
from provisioner.domain.shim_snapshot import RuntimeClassView
from trellis.kube.preconditions import only_if
from trellis.provisioning.placement import Placement
from trellis.provisioning.shims import ShimView

Manifest = dict[str, Any]


def make_runtime_class(shim: ShimView) -> Manifest:
    """Return the RuntimeClass of a Shim: its pods are scheduled only to nodes that are verified to run it.

    The Shim owns it, so the garbage collector deletes it with the Shim.
    """
    manifest: Manifest = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {
            "name": shim.runtime_class,
            "labels": dict(wanted_labels(shim)),
            "ownerReferences": [_owner(shim)],
        },
        "handler": shim.handler,
        "scheduling": wanted_placement(shim).scheduling(),
    }
    if shim.overhead:
        manifest["overhead"] = _overhead(shim)
    return manifest


def patch_runtime_class(shim: ShimView, former: RuntimeClassView) -> list[Manifest]:
    """Return the JSON patch operations that give the RuntimeClass as read the fields of ``make_runtime_class``.

    Labels, annotations and owners of other clients stay. A server-side apply would keep tolerations and an overhead
    that another client wrote, and those of a RuntimeClass that was created and not applied. The handler is immutable.
    """
    ops = [
        *only_if(former.uid, former.resource_version),
        {"op": "add", "path": "/scheduling", "value": wanted_placement(shim).scheduling()},
    ]
    if former.labels:
        ops += [
            {"op": "add", "path": f"/metadata/labels/{name.replace('/', '~1')}", "value": value}
            for name, value in wanted_labels(shim)
        ]
    else:
        ops.append({"op": "add", "path": "/metadata/labels", "value": dict(wanted_labels(shim))})
    if shim.overhead:
        ops.append({"op": "add", "path": "/overhead", "value": _overhead(shim)})
    elif former.overhead:
        ops.append({"op": "remove", "path": "/overhead"})
    if not former.owner:
        ops.append({"op": "add", "path": "/metadata/ownerReferences", "value": [_owner(shim)]})
    return ops


def _owner(shim: ShimView) -> Manifest:
    return {"apiVersion": "runtime.spinkube.dev/v1alpha1", "kind": "Shim", "name": shim.name, "uid": shim.uid}


def _overhead(shim: ShimView) -> Manifest:
    return {"podFixed": dict(shim.overhead)}


def view_runtime_class(manifest: Manifest) -> RuntimeClassView:
    """Return the view of a RuntimeClass; ``owner``: UID of the first owner, of any kind."""
    metadata = manifest["metadata"]
    owners = metadata.get("ownerReferences") or ()
    overhead: Mapping[str, Any] = (manifest.get("overhead") or {}).get("podFixed") or {}
    return RuntimeClassView(
        name=metadata["name"],
        uid=metadata["uid"],
        resource_version=metadata["resourceVersion"],
        handler=manifest["handler"],
        overhead=tuple(sorted((name, str(amount)) for name, amount in overhead.items())),
        placement=Placement.of(manifest.get("scheduling")),
        owner=next((str(owner.get("uid", "")) for owner in owners), ""),
        owner_name=next((str(owner.get("name", "")) for owner in owners if owner.get("kind") == "Shim"), ""),
        labels=tuple(sorted((metadata.get("labels") or {}).items())),
    )
