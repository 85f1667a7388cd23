"""Events about provisioning one node, published by ``provisioner``. Key: name of the node."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from trellis.events.envelope import EventData


class ProvisionEventData(EventData):
    """Common fields of the events about provisioning."""

    noun: ClassVar[str] = "provision"

    node: str = Field(min_length=1, max_length=253, description="metadata.name of the Node")
    node_uid: str = Field(min_length=1, description="metadata.uid of the Node")
    digest: str = Field(description="digest of the specification to install, 16 hex digits")
    attempt: int = Field(ge=1, description="number of the attempt with this digest on this node, from 1")
    job: str = Field(description="namespace/name of the installer Job")

    def key(self) -> tuple[str, ...]:
        """Return the name of the node."""
        return (self.node,)


class ProvisionStarted(ProvisionEventData):
    """The provisioner created an installer Job for a node."""

    event_name: ClassVar[str] = "started"


class ProvisionSucceeded(ProvisionEventData):
    """The installation on a node succeeded and was verified."""

    event_name: ClassVar[str] = "succeeded"

    verified: str = Field(description="kind of the verification: canary, handler or job")


class ProvisionFailed(ProvisionEventData):
    """An attempt on a node failed; the provisioner retries with backoff."""

    event_name: ClassVar[str] = "failed"

    reason: str = Field(description="CamelCase reason, as in conditions")
    message: str = Field(description="human-readable message with the last log lines of the installer")


class ProvisionRemoved(ProvisionEventData):
    """A node opted out and no installer Job of Trellis runs on it any more."""

    event_name: ClassVar[str] = "removed"
