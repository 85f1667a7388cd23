"""Facts about Nodes, said by ``node_watcher``. Key: the node's name."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from trellis.events.envelope import FactData


class NodeFact(FactData):
    """What every fact about a Node carries."""

    noun: ClassVar[str] = "node"

    name: str = Field(min_length=1, max_length=253, description="metadata.name of the Node")
    uid: str = Field(min_length=1, description="metadata.uid: a node replaced under the same name has another")
    resource_version: str = Field(description="metadata.resourceVersion of the Node that was observed")

    def key(self) -> tuple[str, ...]:
        """Return the node's name."""
        return (self.name,)


class NodeOptedIn(NodeFact):
    """A Node is to run Wasm: by its annotation, or because every node is provisioned."""

    fact: ClassVar[str] = "opted_in"

    architecture: str = Field(description="status.nodeInfo.architecture: amd64, arm64, …")
    operating_system: str = Field(description="status.nodeInfo.operatingSystem: linux, …")
    runtime_version: str = Field(description="status.nodeInfo.containerRuntimeVersion: containerd://2.0.0, …")
    labels: dict[str, str] = Field(default_factory=dict, description="metadata.labels")
    by: str = Field(description="Annotation or AutoProvision")


class NodeOptedOut(NodeFact):
    """A Node no longer wants to run Wasm."""

    fact: ClassVar[str] = "opted_out"


class NodeReplaced(NodeFact):
    """Another Node took the name: nothing known of the former one holds for it."""

    fact: ClassVar[str] = "replaced"

    former_uid: str = Field(description="uid of the Node that had the name before")


class NodeGone(NodeFact):
    """A Node that had opted in was deleted."""

    fact: ClassVar[str] = "gone"


class NodeReady(NodeFact):
    """A Node carries the labels that say it runs Wasm, and what was proved."""

    fact: ClassVar[str] = "ready"

    digest: str = Field(description="digest of what was installed")
    verified: str = Field(description="what was proved: canary, handler or job")
