"""Events about a rollout to many nodes, published by ``provisioner``. Key: digest of the rollout."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from trellis.events.envelope import EventData


class RolloutEventData(EventData):
    """Common fields of the events about a rollout."""

    noun: ClassVar[str] = "rollout"

    digest: str = Field(min_length=1, description="digest of the KWasm-compatible image, or <shim>-<generation>")
    shim: str | None = Field(default=None, description="name of the Shim; kwasm for the KWasm-compatible image")
    failing: int = Field(ge=0, description="number of nodes whose last attempt failed")

    def key(self) -> tuple[str, ...]:
        """Return the digest."""
        return (self.digest,)


class RolloutHalted(RolloutEventData):
    """A rollout halted because too many nodes failed, or pods are less ready than before. Failed nodes are still
    retried, no further node is started.
    """

    event_name: ClassVar[str] = "halted"

    limit: int = Field(ge=1, description="number of failed nodes at which the rollout halts")
    reason: str | None = Field(
        default=None, description="NodesFailing, WorkloadNotReady or WorkloadsUnknown, as the Shim reports it"
    )
    pod: str | None = Field(default=None, description="pod that is less ready than before, as namespace/name")


class RolloutResumed(RolloutEventData):
    """A halted rollout resumed because the cause ended, or a user resumed it."""

    event_name: ClassVar[str] = "resumed"
