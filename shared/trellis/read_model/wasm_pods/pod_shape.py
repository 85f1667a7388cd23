"""The decoded keys of a pod: those that ``view_pod`` reads, and those that distinguish changes.

Pure. Used by the watches of Wasm pods. Environment variables, arguments, volumes, annotations and the labels of users
are never decoded.
"""

from __future__ import annotations

from typing import Any, Final, TypedDict

from trellis.kube.shapes import Shape
from trellis.provisioning.node_shape import ManagedFields


class Owner(TypedDict, total=False):
    """One of ``metadata.ownerReferences``."""

    apiVersion: str
    kind: str
    name: str
    uid: str
    controller: bool | None


Labels = TypedDict("Labels", {"pod-template-hash": str}, total=False)
"""The label that distinguishes the pods of a Deployment."""


class Metadata(TypedDict, total=False):
    """Fields of ``metadata``."""

    namespace: str
    name: str
    uid: str
    resourceVersion: str
    generation: int
    creationTimestamp: str | None
    deletionTimestamp: str | None
    finalizers: list[str] | None
    labels: Labels | None
    ownerReferences: list[Owner] | None
    managedFields: list[ManagedFields] | None


class Toleration(TypedDict, total=False):
    """One toleration."""

    key: str
    operator: str
    value: str
    effect: str


class Limits(TypedDict, total=False):
    """Limits of a container."""

    memory: str


class Resources(TypedDict, total=False):
    """Resources of a container."""

    limits: Limits | None


class Container(TypedDict, total=False):
    """One container of the spec."""

    name: str
    image: str
    restartPolicy: str | None
    resources: Resources | None


class SchedulingGate(TypedDict, total=False):
    """One gate of the scheduling."""

    name: str


class Spec(TypedDict, total=False):
    """Fields of ``spec``."""

    runtimeClassName: str | None
    nodeName: str
    schedulerName: str
    schedulingGates: list[SchedulingGate] | None
    nodeSelector: dict[str, str] | None
    tolerations: list[Toleration] | None
    restartPolicy: str
    initContainers: list[Container] | None
    containers: list[Container] | None


class Condition(TypedDict, total=False):
    """One condition."""

    type: str
    status: str
    reason: str
    message: str
    lastTransitionTime: str | None


class Waiting(TypedDict, total=False):
    """The reason why a container waits."""

    reason: str
    message: str


class Terminated(TypedDict, total=False):
    """The end of a container."""

    exitCode: int
    reason: str
    message: str


class State(TypedDict, total=False):
    """State of a container."""

    waiting: Waiting | None
    running: dict[str, Any]
    terminated: Terminated | None


class ContainerStatus(TypedDict, total=False):
    """Status of a container."""

    name: str
    ready: bool
    restartCount: int
    state: State | None
    lastState: State | None


class Status(TypedDict, total=False):
    """Fields of ``status``."""

    phase: str
    reason: str
    message: str
    conditions: list[Condition] | None
    initContainerStatuses: list[ContainerStatus] | None
    containerStatuses: list[ContainerStatus] | None


class PodManifest(TypedDict, total=False):
    """The decoded part of a pod."""

    metadata: Metadata
    spec: Spec | None
    status: Status | None


POD_SHAPE: Final = Shape(PodManifest)
