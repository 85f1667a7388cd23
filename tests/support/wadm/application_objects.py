"""Applications as an API server has them, and what their status is made of, for tests without one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from application_manager.domain.actions import Decision, Lost, Refused
from application_manager.domain.conditions import Seen
from application_manager.domain.progress import Progress
from application_manager.domain.sides import Side
from application_manager.domain.snapshot import Snapshot
from application_manager.domain.views import ApplicationView, Key
from trellis import names

Manifest = dict[str, Any]
_NOTHING = Decision()


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


def seen_of(
    view: ApplicationView,
    snapshot: Snapshot,
    *,
    decision: Decision = _NOTHING,
    refused: Refused | None = None,
    lattice_id: str = "red/1",
    winner: Side | None = None,
    lost: Lost | None = None,
    **known: Any,
) -> Seen:
    """Return what a status is made of; ``known``: further fields of the snapshot."""
    whole = replace(
        snapshot, key=Key(lattice_id, view.application), view=view, progress=Progress(winner=winner, lost=lost), **known
    )
    return Seen(view, whole, replace(decision, refused=refused))
