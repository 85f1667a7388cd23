"""The decoded keys of a Node: those that ``view_node`` reads, and those that distinguish changes.

Pure. Other keys are not in the manifest that a view is made of: mypy reports a view that reads one.
"""

from __future__ import annotations

from typing import Final, TypedDict

from trellis.kube.shapes import Shape


class ManagedFields(TypedDict, total=False):
    """Without the fields themselves, which are the largest part: the time tells one change from another."""

    manager: str
    operation: str
    time: str
    subresource: str


class Metadata(TypedDict, total=False):
    """Of ``metadata`` of a Node."""

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
    """Of ``spec`` of a Node."""

    taints: list[Taint] | None


class Condition(TypedDict, total=False):
    """One condition."""

    type: str
    status: str


class NodeInfo(TypedDict, total=False):
    """Of ``status.nodeInfo``."""

    architecture: str
    operatingSystem: str
    containerRuntimeVersion: str


class RuntimeHandler(TypedDict, total=False):
    """One handler of the container runtime."""

    name: str


class Status(TypedDict, total=False):
    """Of ``status`` of a Node."""

    conditions: list[Condition] | None
    nodeInfo: NodeInfo | None
    runtimeHandlers: list[RuntimeHandler] | None


class NodeManifest(TypedDict, total=False):
    """A Node as far as it is decoded."""

    metadata: Metadata
    spec: Spec | None
    status: Status | None


NODE_SHAPE: Final = Shape(NodeManifest)
