"""What provisioner can be told; the only place that reads its environment."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Annotated, ClassVar, Final, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from provisioner.domain.installer_env import PROXY_VARIABLES, Surroundings
from provisioner.domain.resources import Installer
from provisioner.domain.signatures import Keys
from trellis.config.settings import DnsLabel, HttpUrl, Seconds, ServiceSettings, Subdomain
from trellis.events.subjects import PROVISIONER
from trellis.names import CLAIM_NAMESPACE
from trellis.provisioning.attempts import Retries, ShimLimits
from trellis.provisioning.int_or_percent import CountOrPercent
from trellis.provisioning.shims import ShimView
from trellis.provisioning.views import KWASM

PullPolicy = Literal["Always", "IfNotPresent", "Never"]
PositiveSeconds = Annotated[Seconds, Field(gt=0)]

_CA_KEY: Final = "ca.crt"
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_CONFIG_MAP = re.compile(rf"{_NAME.pattern}(/[A-Za-z0-9._-]+)?")


def _public(value: str) -> str:
    """Refuse what would show a password to everyone who may read Jobs."""
    if "@" in urlsplit(value).netloc:
        message = (
            "needs an address without user and password, because everyone who may read the Jobs would see them; "
            "keep a proxy's in a Secret (TRELLIS_INSTALLER_PROXY_SECRET)"
        )
        raise ValueError(message)
    return value


def _proxy(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme != "http" or not parts.hostname:
        message = "needs an address such as http://proxy:3128"
        raise ValueError(message)
    return _public(value)


def _config_map(value: str) -> str:
    if not _CONFIG_MAP.fullmatch(value):
        message = f"needs the name of a ConfigMap, and its key unless that is {_CA_KEY}, e.g. our-ca or our-ca/root.pem"
        raise ValueError(message)
    return value


def _secrets(value: str) -> str:
    if not all(_NAME.fullmatch(part.strip()) for part in value.split(",")):
        message = "needs names of Secrets with commas between, as kubectl shows them"
        raise ValueError(message)
    return value


def _keys(value: str) -> str:
    Keys.parse(value)
    return value


PublicUrl = Annotated[HttpUrl, AfterValidator(_public)]
ProxyUrl = Annotated[str, AfterValidator(_proxy)]
ConfigMapKey = Annotated[str, AfterValidator(_config_map)]


class Settings(ServiceSettings):
    """Settings of provisioner."""

    service: ClassVar[str] = PROVISIONER

    auto_provision: bool = Field(default=False, description="provision every Linux node, annotated or not")
    claim_namespace: DnsLabel = Field(
        default=CLAIM_NAMESPACE,
        description="namespace of the Lease trellis-nodes, by which one installation provisions the nodes of a cluster",
    )
    installer_namespace: DnsLabel = Field(
        default="trellis-installers", description="namespace of the installer Jobs, the only privileged pods"
    )
    installer_image: str = Field(
        default="ghcr.io/kwasm/kwasm-node-installer:main",
        pattern=r"^\S*$",
        description="KWasm-compatible installer image, for opted-in nodes while no Shim is labelled as their default; "
        "pin it by digest; empty for none",
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
    shim_keys: Annotated[str, AfterValidator(_keys)] = Field(
        default="",
        description="public keys (PEM, one after another): install nothing of a Shim that none of them signed; empty: "
        "signatures are not asked for",
    )
    installer_pull_policy: PullPolicy = Field(default="IfNotPresent", description="imagePullPolicy of the installer")
    installer_service_account: DnsLabel = Field(default="default", description="its token is never mounted")
    installer_cpu: str = Field(default="50m", description="CPU request of the installer")
    installer_memory: str = Field(default="128Mi", description="memory request and limit of the installer")
    installer_pull_secrets: Annotated[str, AfterValidator(_secrets)] | None = Field(
        default=None, description="Secrets for the installer's own image, in the namespace of its Jobs; commas between"
    )
    installer_otlp_endpoint: PublicUrl | None = Field(
        default=None,
        description="where our installer sends its spans; the service's endpoint if unset, unless that is loopback",
    )
    installer_https_proxy: ProxyUrl | None = Field(
        default=None, description="proxy of our installer for https, without credentials"
    )
    installer_http_proxy: ProxyUrl | None = Field(
        default=None, description="proxy of our installer for http, without credentials"
    )
    installer_no_proxy: str | None = Field(
        default=None, description="hosts, domains and networks that our installer reaches without a proxy"
    )
    installer_proxy_secret: Subdomain | None = Field(
        default=None,
        description="Secret in the namespace of the Jobs with HTTPS_PROXY, and HTTP_PROXY and NO_PROXY if wanted",
    )
    installer_ca_config_map: ConfigMapKey | None = Field(
        default=None,
        description="ConfigMap in the namespace of the Jobs with CAs that our installer trusts besides the system's: "
        f"<name> (its key is {_CA_KEY}) or <name>/<key>",
    )
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
            surroundings=self._surroundings(),
        )

    def _surroundings(self) -> Surroundings:
        proxies = zip(
            PROXY_VARIABLES,
            (self.installer_https_proxy, self.installer_http_proxy, self.installer_no_proxy),
            strict=True,
        )
        name, _, key = (self.installer_ca_config_map or "").partition("/")
        secrets = self.installer_pull_secrets
        inherited = self.otlp_endpoint if _is_for_others(self.otlp_endpoint) else None
        return Surroundings(
            otlp_endpoint=self.installer_otlp_endpoint or inherited,
            sends_alone=self.otlp_endpoint is None,
            proxies=tuple((variable, value) for variable, value in proxies if value),
            proxy_secret=self.installer_proxy_secret,
            ca=(name, key or _CA_KEY) if name else None,
            image_pull_secrets=tuple(part.strip() for part in secrets.split(",")) if secrets else (),
        )

    def limits(self, shims: Iterable[ShimView]) -> dict[str, ShimLimits]:
        """Return what each rollout is held to; the legacy installer image is one of its own."""
        limits = {KWASM: ShimLimits(self.max_unavailable, self.halt_after_failures)}
        for shim in shims:
            halt_after = self.halt_after_failures if shim.pause_on_failures is None else shim.pause_on_failures
            max_update = None if shim.recreate else shim.max_update or self.max_unavailable
            limits[shim.name] = ShimLimits(max_update, halt_after, shim.paused, shim.forgiven)
        return limits

    def retries(self) -> Retries:
        """Return when a failed node is tried again."""
        return Retries(self.retry_min, self.retry_max)


def _is_for_others(endpoint: str | None) -> bool:
    """Say whether an address means the same on every node, and has no password that a Job would show."""
    parts = urlsplit(endpoint or "")
    host = parts.hostname or ""
    if "@" in parts.netloc or host == "localhost" or host.endswith(".localhost"):
        return False
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return bool(host)
    return not address.is_loopback and not address.is_unspecified
