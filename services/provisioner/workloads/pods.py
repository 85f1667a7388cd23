"""Views of Wasm pods in bounded memory, with their indexes.

In: manifests and changes from the watch of pods. Out: ``WorkloadPod`` by RuntimeClass, node and controller. Written by
``watches`` only; read by the reconciler of workloads and by rollouts. Invariants: a pod of a RuntimeClass that no Shim
provides has no view; a pod that works has no ``details``; equal strings of several pods are one object.
"""

from __future__ import annotations

import sys
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from trellis.kube.changes import Change
from trellis.read_model.wasm_pods.pods import WasmPod, view_pod
from trellis.v2.fields import Json, items, mapping, text
from trellis.v2.objects import view_conditions

_READY = "Ready"
_NODE = ("v1", "Node")
"""Owner of the mirror pod of a static pod: it creates no other one."""
_NO_LABELS: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Controller:
    """The controller of pods, as ``metadata.ownerReferences`` names it; of a pod without one the pod itself.

    Static pods have none: the kubelet creates them from a file, and names its Node as the owner.
    """

    api_version: str
    kind: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class WorkloadPod:
    """A pod of a RuntimeClass that a Shim provides. ``node``: "" until it has one.

    ``ready``: condition Ready; ``completed``: phase Succeeded. ``created_at``, ``ready_at``: Unix seconds, 0.0 if not
    known. ``restarts``: of all its containers. ``details``: as ``trellis explain`` views it, None once it works.
    """

    uid: str
    namespace: str
    name: str
    runtime_class: str
    controller: Controller
    node: str = ""
    ready: bool = False
    completed: bool = False
    deleting: bool = False
    created_at: float = 0.0
    ready_at: float = 0.0
    restarts: int = 0
    details: WasmPod | None = None

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def works(self) -> bool:
        """True if it is ready or has completed."""
        return self.ready or self.completed

    @property
    def ended(self) -> bool:
        """True if its containers do not restart."""
        return self.completed or (self.details is not None and self.details.ended)

    @property
    def owner_kind(self) -> str:
        """Kind of its controller: ReplicaSet, not Deployment; Pod if it has none."""
        return self.controller.kind

    @property
    def owner_name(self) -> str:
        """Name of its controller, its own name if it has none."""
        return self.controller.name


@dataclass(eq=False)
class WorkloadPods:
    """The pods by ``namespace/name``; complete while ``PodWatch.known``."""

    objects: dict[str, WorkloadPod] = field(default_factory=dict)
    _by_class: dict[str, set[str]] = field(default_factory=dict)
    _by_node: dict[str, set[str]] = field(default_factory=dict)
    _by_controller: dict[str, set[str]] = field(default_factory=dict)
    _controllers: dict[str, Controller] = field(default_factory=dict)

    def view(self, manifest: object, classes: Container[str]) -> WorkloadPod | None:
        """Return the view of a pod, None if its RuntimeClass is not one of ``classes``."""
        if text(mapping(manifest, "spec"), "runtimeClassName") not in classes:
            return None
        pod = view_pod(manifest)
        found = WorkloadPod(
            uid=pod.meta.uid,
            namespace=sys.intern(pod.meta.namespace),
            name=pod.meta.name,
            runtime_class=sys.intern(pod.runtime_class),
            controller=self._controller(manifest, pod),
            node=sys.intern(pod.node),
            ready=pod.ready,
            completed=pod.ended and pod.works,
            deleting=pod.meta.deleting,
            created_at=pod.meta.created or 0.0,
            restarts=sum(item.restarts for item in pod.containers),
        )
        if not found.works:
            return replace(found, details=replace(pod, meta=replace(pod.meta, labels=_NO_LABELS)))
        ready = view_conditions(mapping(manifest, "status")).get(_READY)
        return replace(found, ready_at=(ready.since if ready is not None else None) or found.created_at)

    def take(self, change: Change[WorkloadPod]) -> None:
        """Record a change in the indexes; ``objects`` has it already."""
        old, new = change.old, change.new
        for pod in (old,) if old is not None else ():
            for index, value in self._places(pod):
                index[value].discard(change.key)
                if not index[value]:
                    del index[value]
            if pod.controller.uid not in self._by_controller:
                self._controllers.pop(pod.controller.uid, None)
        for pod in (new,) if new is not None else ():
            self._controllers.setdefault(pod.controller.uid, pod.controller)
            for index, value in self._places(pod):
                index.setdefault(value, set()).add(change.key)

    def of_class(self, runtime_class: str) -> Sequence[WorkloadPod]:
        """Return the pods of a RuntimeClass, by namespace and name."""
        return self._pods(self._by_class.get(runtime_class, ()))

    def on_nodes(self, nodes: Iterable[str]) -> Sequence[WorkloadPod]:
        """Return the pods on these nodes, by namespace and name; those that have ended too."""
        return self._pods({key for node in nodes for key in self._by_node.get(node, ())})

    def of_controller(self, uid: str) -> Sequence[WorkloadPod]:
        """Return the pods of a controller, by namespace and name."""
        return self._pods(self._by_controller.get(uid, ()))

    def controllers(self) -> Sequence[Controller]:
        """Return the controllers that have pods."""
        return [*self._controllers.values()]

    def _pods(self, keys: Iterable[str]) -> list[WorkloadPod]:
        return [self.objects[key] for key in sorted(keys) if key in self.objects]

    def _places(self, pod: WorkloadPod) -> tuple[tuple[dict[str, set[str]], str], ...]:
        return (
            (self._by_class, pod.runtime_class),
            (self._by_node, pod.node),
            (self._by_controller, pod.controller.uid),
        )

    def _controller(self, manifest: object, pod: WasmPod) -> Controller:
        owners = items(mapping(manifest, "metadata"), "ownerReferences")
        found: Json = next((item for item in owners if item.get("controller") is True and text(item, "uid")), {})
        if not found or (text(found, "apiVersion"), text(found, "kind")) == _NODE:
            return Controller("v1", "Pod", pod.meta.name, pod.meta.uid)
        if (known := self._controllers.get(text(found, "uid"))) is not None:
            return known
        kind, version = sys.intern(text(found, "kind")), sys.intern(text(found, "apiVersion"))
        return Controller(version, kind, text(found, "name"), text(found, "uid"))
