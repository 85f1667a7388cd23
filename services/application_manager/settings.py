"""What application_manager can be told; the only place that reads its environment."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from trellis.config.settings import Seconds, ServiceSettings
from trellis.events.subjects import APPLICATION_MANAGER


class Settings(ServiceSettings):
    """Settings of application_manager."""

    service: ClassVar[str] = APPLICATION_MANAGER

    sources_interval: Annotated[Seconds, Field(gt=0)] = Field(
        default=60.0, description="how often the Secrets that a group of hosts names are looked at for changes"
    )
    remove_finalizers: bool = Field(
        default=False,
        description="take the finalizer from every Application, and do nothing else: before the service is uninstalled",
    )
