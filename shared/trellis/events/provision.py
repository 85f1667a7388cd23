"""Facts about provisioning one node, said by ``provisioner``. Key: the node's name."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from trellis.events.envelope import FactData


class ProvisionFact(FactData):
    """What every fact about provisioning carries."""

    noun: ClassVar[str] = "provision"

    node: str = Field(min_length=1, max_length=253, description="metadata.name of the Node")
    node_uid: str = Field(min_length=1, description="metadata.uid of the Node")
    digest: str = Field(description="digest of what is to be installed, 16 hex digits")
    attempt: int = Field(ge=1, description="1 for the first try of this digest on this node")
    job: str = Field(description="namespace/name of the installer Job")

    def key(self) -> tuple[str, ...]:
        """Return the node's name."""
        return (self.node,)


class ProvisionStarted(ProvisionFact):
    """An installer Job exists for the node."""

    fact: ClassVar[str] = "started"


class ProvisionSucceeded(ProvisionFact):
    """The installer's work is proved on the node."""

    fact: ClassVar[str] = "succeeded"

    verified: str = Field(description="what was proved: canary, handler or job")


class ProvisionFailed(ProvisionFact):
    """One attempt failed; another follows."""

    fact: ClassVar[str] = "failed"

    reason: str = Field(description="CamelCase, as in conditions")
    message: str = Field(description="for people: with the installer's own last log lines")


class ProvisionRemoved(ProvisionFact):
    """The node opted out and no installer Job of ours works on it any more."""

    fact: ClassVar[str] = "removed"
