"""What host_manager can be told; the only place that reads its environment."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from trellis.config.settings import Namespaces, Seconds, ServiceSettings
from trellis.events.subjects import HOST_MANAGER


class Settings(ServiceSettings):
    """Settings of host_manager."""

    service: ClassVar[str] = HOST_MANAGER

    sources_interval: Annotated[Seconds, Field(gt=0)] = Field(
        default=60.0,
        description="how often the Secrets and ConfigMaps that a group of hosts names are looked at for changes",
    )
    watch_namespaces: Namespaces = Field(
        default=(),
        description="namespaces with groups of hosts, separated by commas: nothing is asked outside of them and "
        "TRELLIS_NAMESPACE, so no ClusterRole is needed; all of the cluster if unset",
    )
