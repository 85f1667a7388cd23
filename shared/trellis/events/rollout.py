"""Facts about a rollout over many nodes, said by ``provisioner``. Key: the digest that is rolled out."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from trellis.events.envelope import FactData


class RolloutFact(FactData):
    """What every fact about a rollout carries."""

    noun: ClassVar[str] = "rollout"

    digest: str = Field(
        min_length=1, description="what is rolled out: the digest of a legacy installer, or <shim>-<generation>"
    )
    shim: str | None = Field(default=None, description="name of the Shim; kwasm is the legacy installer image")
    failing: int = Field(ge=0, description="nodes whose last attempt failed")

    def key(self) -> tuple[str, ...]:
        """Return the digest."""
        return (self.digest,)


class RolloutHalted(RolloutFact):
    """Too many nodes failed: no further node is begun, failed ones are still tried again."""

    fact: ClassVar[str] = "halted"

    limit: int = Field(ge=1, description="failing nodes at which the rollout halts")


class RolloutResumed(RolloutFact):
    """Fewer nodes fail than the limit: further nodes are begun again."""

    fact: ClassVar[str] = "resumed"
