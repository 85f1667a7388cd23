"""What service_reflector can be told; the only place that reads its environment."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from trellis.config.settings import Namespaces, Seconds, ServiceSettings
from trellis.events.subjects import SERVICE_REFLECTOR


class Settings(ServiceSettings):
    """Settings of service_reflector."""

    service: ClassVar[str] = SERVICE_REFLECTOR

    sources_interval: Annotated[Seconds, Field(gt=0)] = Field(
        default=60.0, description="how often the Secrets that a group of hosts names are looked at for changes"
    )
    service_namespaces: Namespaces = Field(
        default=(),
        description="namespaces, separated by commas, in which applications may ask for their Service by annotation, "
        "besides those of their lattice's groups of hosts",
    )
    remove_finalizers: bool = Field(
        default=False,
        description="take the finalizer from every Service that mirrors an application, and do nothing else: "
        "before this service is uninstalled",
    )
