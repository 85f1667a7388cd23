"""Settings of host_manager from the environment. No other module of the service reads the environment."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from trellis.config.settings import HostNatsSettings, Namespaces, Seconds
from trellis.events.subjects import HOST_MANAGER


class Settings(HostNatsSettings):
    """Settings of host_manager."""

    service: ClassVar[str] = HOST_MANAGER

    sources_interval: Annotated[Seconds, Field(gt=0)] = Field(
        default=60.0,
        description="Interval of the checks for changes of the Secrets and ConfigMaps that host groups refer to. The "
        "child objects of a host group are checked at least once in five intervals.",
    )
    watch_namespaces: Namespaces = Field(
        default=(),
        description="Namespaces of the host groups, separated by commas. The service then reads only these and "
        "TRELLIS_NAMESPACE, and needs no ClusterRole. If unset: all namespaces.",
    )
