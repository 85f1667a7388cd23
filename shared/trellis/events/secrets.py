"""Events about Secrets requested by components, published by ``secrets_backend``. Key: namespace and name.

Invariant: no event contains a value of a Secret, a token or a key.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from trellis.events.envelope import EventData

_LONGEST = 1024


class SecretEventData(EventData):
    """Common fields of the events about a Secret."""

    noun: ClassVar[str] = "secret"

    namespace: str = Field(description="metadata.namespace of the Secret")
    name: str = Field(description="metadata.name of the Secret")

    def key(self) -> tuple[str, ...]:
        """Return namespace and name of the Secret."""
        return (self.namespace, self.name)


class SecretAnswered(SecretEventData):
    """Common fields of the events about a request for a Secret."""

    field: str = Field(description="key in the data of the Secret")
    application: str | None = Field(default=None, description="name of the application as reported by the host")
    entity: str = Field(description="public key of the component or provider, from its token")
    issuer: str = Field(
        description="public key that signed the token of the entity; not authenticated, anyone can sign one"
    )
    host: str = Field(description="public key of the host, from its token")
    backend: str = Field(description="name of the requested backend")
    user: str = Field(default="", description="Kubernetes user impersonated to read the Secret; empty if none")
    count: int = Field(default=1, ge=1, description="number of equal answers that this event aggregates")


class SecretGranted(SecretAnswered):
    """A component or provider received an entry of a Secret."""

    event_name: ClassVar[str] = "granted"

    uid: str = Field(description="metadata.uid of the Secret")
    resource_version: str = Field(description="metadata.resourceVersion of the Secret")
    rule: str = Field(description="rule that allowed the access: the namespace of the host groups, or a SecretGrant")


class SecretDenied(SecretAnswered):
    """A component or provider was denied an entry of a Secret, which may not exist."""

    event_name: ClassVar[str] = "denied"

    namespace: str = Field(description="metadata.namespace of the Secret; empty if the request contains no valid one")
    name: str = Field(description="metadata.name of the Secret; empty if the request contains no valid one")
    field: str = Field(description="key in the data of the Secret; empty if the request contains no valid one")
    error: str = Field(
        description="error of the wasmCloud secrets protocol: PolicyError, UpstreamError, SecretNotFound, Other"
    )
    message: str = Field(
        default="", max_length=_LONGEST, description="human-readable message, as in the answer to the host"
    )


class SecretUsers(BaseModel):
    """Host groups that may have received a Secret: all groups of a namespace on a lattice."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    namespace: str = Field(description="namespace of the host groups")
    lattice: str = Field(description="name of the lattice of the host groups")


class SecretChanged(SecretEventData):
    """A Secret changed after components received it."""

    event_name: ClassVar[str] = "changed"

    uid: str = Field(description="metadata.uid of the Secret")
    resource_version: str = Field(description="metadata.resourceVersion of the Secret")
    hosts: list[str] = Field(description="public keys of the hosts that requested the Secret, from their tokens")
    groups: list[SecretUsers] = Field(
        description="host groups on the lattice connections over which the Secret was sent"
    )
    applications: list[str] = Field(
        default_factory=list, description="names of the applications that received the Secret"
    )
