"""Settings of service_reflector from the environment. No other module of the service reads the environment."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from trellis.config.settings import Namespaces, Seconds, ServiceSettings
from trellis.events.subjects import SERVICE_REFLECTOR


class Settings(ServiceSettings):
    """Settings of service_reflector."""

    service: ClassVar[str] = SERVICE_REFLECTOR

    sources_interval: Annotated[Seconds, Field(gt=0)] = Field(
        default=60.0, description="Interval of the checks for changes of the Secrets that host groups refer to."
    )
    service_namespaces: Namespaces = Field(
        default=(),
        description="Namespaces, separated by commas, that applications may choose for their Service by annotation, "
        "besides the namespaces of the host groups of their lattice.",
    )
    remove_finalizers: bool = Field(
        default=False,
        description="Only set the reflected Services as owners of all their EndpointSlices, and remove finalizers of "
        "former versions, before the service is uninstalled.",
    )
