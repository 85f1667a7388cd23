"""What provisioner can be told; the only place that reads its environment."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from provisioner.plan import Retries, ShimLimits
from provisioner.resources import Installer
from trellis.counts import CountOrPercent
from trellis.events.subjects import PROVISIONER
from trellis.provisioning import KWASM
from trellis.settings import DnsLabel, Seconds, ServiceSettings
from trellis.shims import ShimView

PullPolicy = Literal["Always", "IfNotPresent", "Never"]
PositiveSeconds = Annotated[Seconds, Field(gt=0)]


class Settings(ServiceSettings):
    """Settings of provisioner."""

    service: ClassVar[str] = PROVISIONER

    auto_provision: bool = Field(default=False, description="provision every Linux node, annotated or not")
    installer_namespace: DnsLabel = Field(
        default="trellis-installers", description="namespace of the installer Jobs, the only privileged pods"
    )
    installer_image: str = Field(
        default="ghcr.io/kwasm/kwasm-node-installer:main",
        min_length=1,
        pattern=r"^\S+$",
        description="KWasm-compatible installer image, for opted-in nodes while no Shim is labelled as their default; "
        "pin it by digest",
    )
    node_installer_image: str = Field(
        default="ghcr.io/trellis-wasm/node-installer:latest",
        min_length=1,
        pattern=r"^\S+$",
        description="image of our own installer, which Shims are installed with; pin it by digest",
    )
    require_checksum: bool = Field(
        default=True, description="install nothing of a Shim whose source has no sha256 or digest"
    )
    allow_http: bool = Field(default=False, description="let Shims be fetched without TLS")
    installer_pull_policy: PullPolicy = Field(default="IfNotPresent", description="imagePullPolicy of the installer")
    installer_service_account: DnsLabel = Field(default="default", description="its token is never mounted")
    installer_cpu: str = Field(default="50m", description="CPU request of the installer")
    installer_memory: str = Field(default="128Mi", description="memory request and limit of the installer")
    handler: DnsLabel | None = Field(
        default=None, description="runtime handler the image installs; with it nodes are proved by their own status"
    )
    max_unavailable: CountOrPercent = Field(
        default=CountOrPercent(10, is_percent=True), description="nodes in work at a time, number or percentage"
    )
    halt_after_failures: int = Field(
        default=5, ge=0, description="no further node is begun while so many fail; 0 never halts"
    )
    job_deadline: PositiveSeconds = Field(default=600.0, description="how long one attempt may take")
    job_retries: int = Field(default=2, ge=0, le=10, description="pods an attempt may start after its first failed")
    retry_min: PositiveSeconds = Field(default=10.0, description="wait before the second attempt; doubles after")
    retry_max: PositiveSeconds = Field(default=300.0, description="longest wait between attempts")
    verify_timeout: PositiveSeconds = Field(
        default=120.0, description="how long the handler may take to show after the installer ended"
    )
    inspect_after: PositiveSeconds = Field(
        default=20.0, description="age at which a running installer's pod is looked at for trouble"
    )

    def installer(self) -> Installer:
        """Return what runs on each node."""
        return Installer(
            image=self.installer_image,
            own_image=self.node_installer_image,
            pull_policy=self.installer_pull_policy,
            handler=self.handler,
            namespace=self.installer_namespace,
            deadline=max(1, round(self.job_deadline)),
            retries=self.job_retries,
            cpu=self.installer_cpu,
            memory=self.installer_memory,
            service_account=self.installer_service_account,
        )

    def limits(self, shims: Iterable[ShimView]) -> dict[str, ShimLimits]:
        """Return what each rollout is held to; the legacy installer image is one of its own."""
        limits = {KWASM: ShimLimits(self.max_unavailable, self.halt_after_failures)}
        for shim in shims:
            halt_after = self.halt_after_failures if shim.pause_on_failures is None else shim.pause_on_failures
            limits[shim.name] = ShimLimits(shim.max_update, halt_after, shim.paused, shim.forgiven)
        return limits

    def retries(self) -> Retries:
        """Return when a failed node is tried again."""
        return Retries(self.retry_min, self.retry_max)
