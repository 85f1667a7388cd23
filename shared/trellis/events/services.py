"""Events about reflected Services, published by ``service_reflector``. Key: namespace and name."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from trellis.events.envelope import EventData


class ServiceEventData(EventData):
    """Common fields of the events about a reflected Service."""

    noun: ClassVar[str] = "service"

    namespace: str = Field(min_length=1, description="metadata.namespace of the Service")
    name: str = Field(min_length=1, description="metadata.name of the Service")
    uid: str = Field(min_length=1, description="metadata.uid of the Service")
    lattice: str = Field(description="name of the lattice of the application")
    application: str = Field(min_length=1, description="name of the application")

    def key(self) -> tuple[str, ...]:
        """Return namespace and name of the Service."""
        return (self.namespace, self.name)


class ServiceReflected(ServiceEventData):
    """A Service routes to the listening hosts of an application."""

    event_name: ClassVar[str] = "reflected"

    deployed: str = Field(description="deployed version of the application")
    ports: list[int] = Field(description="ports of the Service")


class ServiceRemoved(ServiceEventData):
    """A reflected Service was deleted because its application is undeployed or no longer requests it."""

    event_name: ClassVar[str] = "removed"
