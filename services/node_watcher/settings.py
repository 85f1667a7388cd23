"""What node_watcher can be told; the only place that reads its environment."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from trellis.config.settings import DnsLabel, ServiceSettings
from trellis.events.subjects import NODE_WATCHER
from trellis.names import CLAIM_NAMESPACE


class Settings(ServiceSettings):
    """Settings of node_watcher."""

    service: ClassVar[str] = NODE_WATCHER

    auto_provision: bool = Field(default=False, description="provision every Linux node, annotated or not")
    installer_namespace: DnsLabel = Field(
        default="trellis-installers", description="namespace of the installer Jobs, the only privileged pods"
    )
    claim_namespace: DnsLabel = Field(
        default=CLAIM_NAMESPACE,
        description="namespace of the Lease trellis-nodes, by which one installation provisions the nodes of a cluster",
    )
