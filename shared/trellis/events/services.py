"""Facts about Services that mirror applications, said by ``service_reflector``. Key: namespace and name."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from trellis.events.envelope import FactData


class ServiceFact(FactData):
    """What every fact about a mirrored application carries."""

    noun: ClassVar[str] = "service"

    namespace: str = Field(min_length=1, description="metadata.namespace of the Service")
    name: str = Field(min_length=1, description="metadata.name of the Service")
    uid: str = Field(min_length=1, description="metadata.uid of the Service")
    lattice: str = Field(description="name of the application's lattice")
    application: str = Field(min_length=1, description="name of the application")

    def key(self) -> tuple[str, ...]:
        """Return namespace and name of the Service."""
        return (self.namespace, self.name)


class ServiceReflected(ServiceFact):
    """A Service leads to what an application listens on."""

    fact: ClassVar[str] = "reflected"

    deployed: str = Field(description="version of the application")
    ports: list[int] = Field(description="ports of the Service")


class ServiceRemoved(ServiceFact):
    """A Service was removed: its application is not deployed any more, or is to have none here."""

    fact: ClassVar[str] = "removed"
