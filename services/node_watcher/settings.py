"""Settings of node_watcher from the environment. No other module of the service reads the environment."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from trellis.config.settings import DnsLabel, ServiceSettings
from trellis.events.subjects import NODE_WATCHER
from trellis.names import CLAIM_NAMESPACE


class Settings(ServiceSettings):
    """Settings of node_watcher."""

    service: ClassVar[str] = NODE_WATCHER

    auto_provision: bool = Field(
        default=False, description="Provision every Linux node, with or without the opt-in annotation."
    )
    installer_namespace: DnsLabel = Field(
        default="trellis-installers",
        description="Namespace of the installer Jobs, whose pods are the only privileged ones.",
    )
    claim_namespace: DnsLabel = Field(
        default=CLAIM_NAMESPACE,
        description="Namespace of the Lease trellis-nodes, which allows one installation per cluster to provision "
        "nodes.",
    )
