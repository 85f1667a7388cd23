"""What node_watcher can be told; the only place that reads its environment."""

from __future__ import annotations

from pydantic import Field

from trellis.settings import DnsLabel, ServiceSettings


class Settings(ServiceSettings):
    """Settings of node_watcher."""

    auto_provision: bool = Field(default=False, description="provision every Linux node, annotated or not")
    installer_namespace: DnsLabel = Field(
        default="trellis-installers", description="namespace of the installer Jobs, the only privileged pods"
    )
