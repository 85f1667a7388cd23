"""Events about Applications, published by ``application_manager``. Key: namespace and name of the object."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from trellis.events.envelope import EventData


class ApplicationEventData(EventData):
    """Common fields of the events about an Application."""

    noun: ClassVar[str] = "application"

    namespace: str = Field(min_length=1, description="metadata.namespace of the Application")
    name: str = Field(min_length=1, description="metadata.name of the Application")
    uid: str = Field(min_length=1, description="metadata.uid of the Application")
    lattice: str = Field(description="name of the lattice")
    application: str = Field(min_length=1, description="name in wadm, which may be invalid in Kubernetes")

    def key(self) -> tuple[str, ...]:
        """Return namespace and name of the object."""
        return (self.namespace, self.name)


class ApplicationSynced(ApplicationEventData):
    """The Application in Kubernetes and in wadm is in sync."""

    event_name: ClassVar[str] = "synced"

    generation: int = Field(ge=0, description="metadata.generation of the Application that the event refers to")
    shown: str = Field(min_length=1, description="version in wadm that the object contains")
    deployed: bool = Field(description="true if that version is deployed")
    digest: str = Field(
        min_length=1, description="digest of the manifest; manifests with equal digests are equivalent for wadm"
    )


class ApplicationOverridden(ApplicationEventData):
    """An Application was changed in Kubernetes and in wadm, and one of the changes was overridden."""

    event_name: ClassVar[str] = "overridden"

    side: Literal["Kubernetes", "wadm"] = Field(description="side whose change was overridden")
    kept: str = Field(description="version in wadm that contains the overridden change; empty if none does")


class ApplicationRejected(ApplicationEventData):
    """wadm rejected the manifest of an Application."""

    event_name: ClassVar[str] = "rejected"

    generation: int = Field(ge=0, description="metadata.generation of the Application that the event refers to")
    reason: str = Field(min_length=1, description="reason, as in the conditions of the object")
    message: str = Field(description="error message of wadm")


class ApplicationDeleted(ApplicationEventData):
    """An Application was deleted from Kubernetes."""

    event_name: ClassVar[str] = "deleted"
