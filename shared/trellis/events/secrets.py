"""Facts about Secrets that components asked for, said by ``secrets_backend``. Key: namespace and name of the Secret.

Invariant: no value of a Secret, no token and no key is in any of them.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from trellis.events.envelope import FactData

_LONGEST = 1024


class SecretFact(FactData):
    """What every fact about a Secret carries."""

    noun: ClassVar[str] = "secret"

    namespace: str = Field(description="metadata.namespace of the Secret")
    name: str = Field(description="metadata.name of the Secret")

    def key(self) -> tuple[str, ...]:
        """Return namespace and name of the Secret."""
        return (self.namespace, self.name)


class SecretAnswered(SecretFact):
    """What every fact about a request for a Secret carries."""

    field: str = Field(description="key in the data of the Secret")
    application: str | None = Field(default=None, description="name of the application, as the host says it")
    entity: str = Field(description="public key of the component or provider, as its token says it")
    issuer: str = Field(description="public key that signed the entity's token; anybody can sign one")
    host: str = Field(description="public key of the host, as its token says it")
    backend: str = Field(description="name of the backend that was asked")
    user: str = Field(default="", description="who the Secret was, or was to be, read as; empty if nobody")
    count: int = Field(default=1, ge=1, description="how many equal answers this stands for")


class SecretGranted(SecretAnswered):
    """A component or provider was given an entry of a Secret."""

    fact: ClassVar[str] = "granted"

    uid: str = Field(description="metadata.uid of the Secret")
    resource_version: str = Field(description="metadata.resourceVersion of the Secret")
    rule: str = Field(description="what allowed it: the groups' own namespace, or a SecretGrant")


class SecretDenied(SecretAnswered):
    """A component or provider was refused an entry of a Secret, which may not exist."""

    fact: ClassVar[str] = "denied"

    namespace: str = Field(description="metadata.namespace of the Secret; empty if it says none that can be")
    name: str = Field(description="metadata.name of the Secret; empty if it says none that can be")
    field: str = Field(description="key in the data of the Secret; empty if it says none that can be")
    error: str = Field(description="the protocol's error: PolicyError, UpstreamError, SecretNotFound, Other")
    message: str = Field(default="", max_length=_LONGEST, description="why, as the host was told")


class SecretUsers(BaseModel):
    """Groups of hosts that may have been given a Secret: all of a namespace on a lattice."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    namespace: str = Field(description="namespace of the groups")
    lattice: str = Field(description="their lattice")


class SecretChanged(SecretFact):
    """A Secret that was given to components is another than it was then."""

    fact: ClassVar[str] = "changed"

    uid: str = Field(description="metadata.uid of the Secret")
    resource_version: str = Field(description="metadata.resourceVersion of the Secret")
    hosts: list[str] = Field(description="public keys of the hosts that asked for it, as their tokens say them")
    groups: list[SecretUsers] = Field(description="groups of hosts on the links that it was given over")
    applications: list[str] = Field(default_factory=list, description="applications that it was given to")
