"""Facts about Applications, said by ``application_manager``. Key: namespace and name of the object."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from trellis.events.envelope import FactData


class ApplicationFact(FactData):
    """What every fact about an Application carries."""

    noun: ClassVar[str] = "application"

    namespace: str = Field(min_length=1, description="metadata.namespace of the Application")
    name: str = Field(min_length=1, description="metadata.name of the Application")
    uid: str = Field(min_length=1, description="metadata.uid of the Application")
    lattice: str = Field(description="name of its lattice")
    application: str = Field(min_length=1, description="its name in wadm, which may be one that Kubernetes refuses")

    def key(self) -> tuple[str, ...]:
        """Return namespace and name of the object."""
        return (self.namespace, self.name)


class ApplicationSynced(ApplicationFact):
    """Kubernetes and wadm have the same of an application."""

    fact: ClassVar[str] = "synced"

    generation: int = Field(ge=0, description="metadata.generation that this is about")
    shown: str = Field(min_length=1, description="wadm's version that the object shows")
    deployed: bool = Field(description="whether that version is deployed")
    digest: str = Field(min_length=1, description="digest of the manifest: two of one digest mean the same to wadm")


class ApplicationOverridden(ApplicationFact):
    """Both sides had changed, and one change lost."""

    fact: ClassVar[str] = "overridden"

    side: Literal["Kubernetes", "wadm"] = Field(description="whose change lost")
    kept: str = Field(description="wadm's version in which it can be read; empty if there is none")


class ApplicationRejected(ApplicationFact):
    """Wadm refuses what the object says."""

    fact: ClassVar[str] = "rejected"

    generation: int = Field(ge=0, description="metadata.generation that this is about")
    reason: str = Field(min_length=1, description="kind of the refusal, as in the object's conditions")
    message: str = Field(description="wadm's own words")


class ApplicationDeleted(ApplicationFact):
    """The object of an application is gone."""

    fact: ClassVar[str] = "deleted"
