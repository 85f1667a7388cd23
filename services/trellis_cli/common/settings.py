"""Settings of the commands; the only module that reads the environment for them."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from trellis.config.settings import DnsLabel, HostNatsSettings, HttpUrl, load
from trellis.kube.access import Access
from trellis.names import CLAIM_NAMESPACE


class ClientSettings(HostNatsSettings):
    """Addresses of the cluster and the bus, and the namespaces of the services."""

    installer_namespace: DnsLabel = Field(
        default="trellis-installers", description="namespace of the installer Jobs, the only privileged pods"
    )

    claim_namespace: DnsLabel = Field(
        default=CLAIM_NAMESPACE,
        description="namespace of the Lease trellis-nodes, by which one installation provisions the nodes of a cluster",
    )

    jaeger_url: HttpUrl | None = Field(
        default=None, description="where `trellis trace` asks for traces: Jaeger's query API, http://host:16686"
    )

    @property
    def access(self) -> Access:
        """Source of the credentials for the cluster."""
        return Access(self.kubeconfig, self.context)


def client_settings(
    *,
    kubeconfig: Path | None = None,
    context: str | None = None,
    nats_url: str | None = None,
    cluster: str | None = None,
    jaeger_url: str | None = None,
    v2_nats: str | None = None,
) -> ClientSettings:
    """Return the settings from the environment and these flags.

    Raises:
        SettingsError: a variable or a flag is invalid.
    """
    return load(
        ClientSettings,
        kubeconfig=kubeconfig,
        context=context,
        nats_url=nats_url,
        cluster=cluster,
        jaeger_url=jaeger_url,
        v2_nats=v2_nats,
    )
