"""Applications as an API server has them, for tests without one."""

from __future__ import annotations

from typing import Any

from trellis import names

Manifest = dict[str, Any]


def spec(image: str = "example.com/echo:1") -> Manifest:
    """Return a spec of one component."""
    scaler = {"type": "spreadscaler", "properties": {"instances": 1}}
    component = {"name": "echo", "type": "component", "properties": {"image": image}, "traits": [scaler]}
    return {"components": [component]}


def managed(manager: str, field: str = "f:spec", subresource: str = "") -> Manifest:
    """Return one of an object's managers."""
    entry: Manifest = {"manager": manager, "operation": "Update", "fieldsV1": {field: {}}}
    return entry | ({"subresource": subresource} if subresource else {})


def stored(name: str = "web", namespace: str = "team", **metadata: Any) -> Manifest:
    """Return an Application as its API server gives it; what is given stands in its metadata."""
    held = {
        "name": name,
        "namespace": namespace,
        "uid": f"uid-{namespace}-{name}",
        "resourceVersion": "7",
        "generation": 1,
        "creationTimestamp": "2026-11-01T00:00:00Z",
        "managedFields": [managed("kubectl")],
        "finalizers": [names.FINALIZER_APPLICATIONS],
    }
    return {"apiVersion": "core.oam.dev/v1beta1", "kind": "Application", "metadata": held | metadata, "spec": spec()}
