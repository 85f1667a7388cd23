"""Detects other controllers that work on the same nodes and Shims, and the work that must wait for them.

Pure. In: raw Deployments. Out: small views, blocked work. Called by ``provisioner``, which starts nothing while such a
controller runs, and by ``trellis migrate``. Invariant: a controller counts as running until its Deployment is scaled to
0 and has no pods, or is deleted. Source: the charts and images of the KWasm operator and of runtime-class-manager.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from trellis import names
from trellis.provisioning.views import KWASM, NodeView, OptIn, opt_in_of

Manifest = Mapping[str, Any]


class Peer(StrEnum):
    """An operator that Trellis replaces: the name of its image and of the label of its chart."""

    KWASM = "kwasm-operator"
    RCM = "runtime-class-manager"
    WASMCLOUD_OPERATOR = "wasmcloud-operator"


NAMES: Final[Mapping[Peer, frozenset[str]]] = {
    **{peer: frozenset({peer.value}) for peer in Peer},
    Peer.WASMCLOUD_OPERATOR: frozenset({Peer.WASMCLOUD_OPERATOR.value, "wadm-operator"}),
}
"""Names of images and charts of each operator; wasmcloud-operator is named wadm-operator in its repository since 0.5.1.
"""
PROVISIONING: Final = (Peer.KWASM, Peer.RCM)
"""Operators that manage nodes and Shims."""


COMMANDS: Final[Mapping[Peer, str]] = {
    Peer.KWASM: "trellis migrate kwasm",
    Peer.RCM: "trellis migrate rcm",
    Peer.WASMCLOUD_OPERATOR: "trellis migrate wasmcloud-operator",
}
"""Commands that migrate from each operator."""


@dataclass(frozen=True, slots=True)
class Controller:
    """A Deployment that runs such an operator. ``taken_over``: a user permitted Trellis to work beside it."""

    peer: Peer
    namespace: str
    name: str
    uid: str
    taken_over: bool = False

    @property
    def place(self) -> str:
        """Return ``Deployment namespace/name``."""
        return f"Deployment {self.namespace}/{self.name}"

    @property
    def advice(self) -> str:
        """The message for users with both solutions."""
        return (
            f"{self.peer.value} ({self.place}) manages the same objects, so no work is started: run "
            f"`{COMMANDS[self.peer]} --take-over`, or delete the Deployment"
        )


def view_controller(deployment: Manifest, peers: Iterable[Peer] = PROVISIONING) -> Controller | None:
    """Return the operator that a Deployment runs, or None if it runs none of ``peers``."""
    metadata, spec = deployment["metadata"], deployment.get("spec") or {}
    replicas = spec.get("replicas", 1), (deployment.get("status") or {}).get("replicas", 0)
    if not any(replicas):
        return None
    for peer in peers:
        if is_of(peer, deployment):
            marks = metadata.get("annotations") or {}
            return Controller(
                peer,
                metadata["namespace"],
                metadata["name"],
                metadata["uid"],
                marks.get(names.ANNOTATION_TAKEN_OVER) == "true",
            )
    return None


def is_of(peer: Peer, deployment: Manifest) -> bool:
    """Return True if a Deployment is that of an operator, running or not: by the label of its chart, or its image."""
    spec = deployment.get("spec") or {}
    label = (deployment["metadata"].get("labels") or {}).get("app.kubernetes.io/name")
    containers = ((spec.get("template") or {}).get("spec") or {}).get("containers") or ()
    called = NAMES[peer]
    return label in called or any(_image_name(str(container.get("image", ""))) in called for container in containers)


def _image_name(image: str) -> str:
    return image.partition("@")[0].rpartition("/")[2].partition(":")[0]


def in_charge(controllers: Iterable[Controller | None]) -> tuple[Controller, ...]:
    """Return the controllers that block work, sorted by operator and Deployment."""
    blocking = (controller for controller in controllers if controller is not None and not controller.taken_over)
    return tuple(sorted(blocking, key=lambda controller: (controller.peer, controller.place)))


def blocking_controller(node: NodeView, shims: Iterable[str], controllers: Iterable[Controller]) -> Controller | None:
    """Return the controller that blocks changes of these Shims on a node, or None.

    The KWasm operator manages all annotated nodes, with any Shim, and everything that its installer image installs.
    runtime-class-manager manages every Shim.
    """
    shims = frozenset(shims)
    annotated = opt_in_of(node, auto_provision=False) is OptIn.IN
    for controller in controllers:
        match controller.peer:
            case Peer.KWASM if shims and (annotated or KWASM in shims):
                return controller
            case Peer.RCM if shims - {KWASM}:
                return controller
            case _:
                pass
    return None
