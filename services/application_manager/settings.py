"""Settings of application_manager from the environment. No other module of the service reads the environment."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from trellis.config.settings import Seconds, ServiceSettings
from trellis.events.subjects import APPLICATION_MANAGER


class Settings(ServiceSettings):
    """Settings of application_manager."""

    service: ClassVar[str] = APPLICATION_MANAGER

    sources_interval: Annotated[Seconds, Field(gt=0)] = Field(
        default=60.0, description="Interval of the checks for changes of the Secrets that host groups refer to."
    )
    remove_finalizers: bool = Field(
        default=False,
        description="Only remove the finalizers from all Applications, before the service is uninstalled.",
    )
