"""The decoded keys of a Node: those that ``view_node`` reads, and those that distinguish changes.

Pure. Other keys are not in the manifest that a view is made of: mypy reports a view that reads one.
"""

from __future__ import annotations

from typing import Final, TypedDict

from trellis.kube.shapes import Shape


class ManagedFields(TypedDict, total=False):
    """``metadata.managedFields`` without the fields themselves, the largest part: the time distinguishes changes."""

    manager: str
    operation: str
    time: str
    subresource: str


class Metadata(TypedDict, total=False):
    """Fields of ``metadata`` of a Node."""

    name: str
    uid: str
    resourceVersion: str
    generation: int
    creationTimestamp: str | None
    deletionTimestamp: str | None
    labels: dict[str, str] | None
    annotations: dict[str, str] | None
    managedFields: list[ManagedFields] | None


class Taint(TypedDict, total=False):
    """One taint."""

    key: str
    value: str | None
    effect: str
    timeAdded: str | None


class Spec(TypedDict, total=False):
    """Fields of ``spec`` of a Node."""

    taints: list[Taint] | None


class Condition(TypedDict, total=False):
    """One condition."""

    type: str
    status: str


class NodeInfo(TypedDict, total=False):
    """Fields of ``status.nodeInfo``."""

    architecture: str
    operatingSystem: str
    containerRuntimeVersion: str


class RuntimeHandler(TypedDict, total=False):
    """One handler of the container runtime."""

    name: str


class Status(TypedDict, total=False):
    """Fields of ``status`` of a Node."""

    conditions: list[Condition] | None
    nodeInfo: NodeInfo | None
    runtimeHandlers: list[RuntimeHandler] | None


class NodeManifest(TypedDict, total=False):
    """The decoded part of a Node."""

    metadata: Metadata
    spec: Spec | None
    status: Status | None


NODE_SHAPE: Final = Shape(NodeManifest)
