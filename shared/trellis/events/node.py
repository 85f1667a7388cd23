"""Events about Nodes, published by ``node_watcher``. Key: name of the node."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from trellis.events.envelope import EventData


class NodeEventData(EventData):
    """Common fields of the events about a Node."""

    noun: ClassVar[str] = "node"

    name: str = Field(min_length=1, max_length=253, description="metadata.name of the Node")
    uid: str = Field(
        min_length=1, description="metadata.uid of the Node; it changes if the Node is replaced under the same name"
    )
    resource_version: str = Field(description="metadata.resourceVersion of the observed Node")

    def key(self) -> tuple[str, ...]:
        """Return the name of the node."""
        return (self.name,)


class NodeOptedIn(NodeEventData):
    """A Node opted in to Wasm, by its annotation or by automatic provisioning."""

    event_name: ClassVar[str] = "opted_in"

    architecture: str = Field(description="status.nodeInfo.architecture: amd64, arm64, …")
    operating_system: str = Field(description="status.nodeInfo.operatingSystem: linux, …")
    runtime_version: str = Field(description="status.nodeInfo.containerRuntimeVersion: containerd://2.0.0, …")
    labels: dict[str, str] = Field(default_factory=dict, description="metadata.labels")
    by: str = Field(description="cause of the opt-in: Annotation or AutoProvision")


class NodeOptedOut(NodeEventData):
    """A Node opted out of Wasm."""

    event_name: ClassVar[str] = "opted_out"


class NodeReplaced(NodeEventData):
    """A Node was replaced by another one of the same name; its state starts from nothing."""

    event_name: ClassVar[str] = "replaced"

    former_uid: str = Field(description="metadata.uid of the former Node of that name")


class NodeGone(NodeEventData):
    """An opted-in Node was deleted."""

    event_name: ClassVar[str] = "gone"


class NodeReady(NodeEventData):
    """A Node was labelled as ready to run Wasm."""

    event_name: ClassVar[str] = "ready"

    digest: str = Field(description="digest of the installed specification")
    verified: str = Field(description="kind of the verification: canary, handler or job")
