"""Settings of provisioner from the environment. No other module of the service reads the environment."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Annotated, ClassVar, Final, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from provisioner.domain.installer_env import PROXY_VARIABLES, InstallerEnv
from provisioner.domain.resources import Installer
from provisioner.domain.signatures import Keys
from trellis.config.settings import DnsLabel, HttpUrl, Seconds, ServiceSettings, Subdomain
from trellis.config.value_schema import number_schema, text_schema
from trellis.events.subjects import PROVISIONER
from trellis.names import CLAIM_NAMESPACE
from trellis.provisioning.attempts import WORKLOAD_TIMEOUT, Retries, ShimLimits
from trellis.provisioning.int_or_percent import CountOrPercent
from trellis.provisioning.shims import ShimView, content_of
from trellis.provisioning.views import KWASM

PullPolicy = Literal["Always", "IfNotPresent", "Never"]
PositiveSeconds = Annotated[Seconds, Field(gt=0)]

_CA_KEY: Final = "ca.crt"
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_CPU = "[0-9]+(?:\\.[0-9]+)?m?"
_MEMORY = "[0-9]+(?:\\.[0-9]+)?(?:[KMGTPE]i|[kMGTPE])?"
_CONFIG_MAP = re.compile(rf"{_NAME.pattern}(/[A-Za-z0-9._-]+)?")


def _public(value: str) -> str:
    """Reject a URL with credentials: any user that can read the Jobs would see them."""
    if "@" in urlsplit(value).netloc:
        message = (
            "needs an address without user and password, because any user that can read the Jobs would see them; "
            "keep those of a proxy in a Secret (TRELLIS_INSTALLER_PROXY_SECRET)"
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
        message = "needs names of Secrets, separated by commas"
        raise ValueError(message)
    return value


def _keys(value: str) -> str:
    Keys.parse(value)
    return value


PublicUrl = Annotated[HttpUrl, AfterValidator(_public)]
ProxyUrl = Annotated[str, AfterValidator(_proxy), text_schema("http://[^@]+")]
ConfigMapKey = Annotated[str, AfterValidator(_config_map), text_schema(_CONFIG_MAP.pattern)]
Cpu = Annotated[str, Field(pattern=f"^{_CPU}$"), number_schema(_CPU, minimum=0)]
Memory = Annotated[str, Field(pattern=f"^{_MEMORY}$"), number_schema(_MEMORY, minimum=0)]
MaxUnavailable = Annotated[CountOrPercent, number_schema("[0-9]+%?", minimum=1)]


class Settings(ServiceSettings):
    """Settings of provisioner."""

    service: ClassVar[str] = PROVISIONER

    auto_provision: bool = Field(
        default=False, description="Provision every Linux node, with or without the opt-in annotation."
    )
    claim_namespace: DnsLabel = Field(
        default=CLAIM_NAMESPACE,
        description="Namespace of the Lease trellis-nodes, which allows one installation per cluster to provision "
        "nodes.",
    )
    installer_namespace: DnsLabel = Field(
        default="trellis-installers",
        description="Namespace of the installer Jobs, whose pods are the only privileged ones.",
    )
    installer_image: str = Field(
        default="",
        pattern=r"^\S*$",
        description="KWasm-compatible installer image for opted-in nodes while no Shim is labelled as their default, "
        "such as ghcr.io/kwasm/kwasm-node-installer. Pin it by digest. Empty: none.",
    )
    node_installer_image: str = Field(
        default="ghcr.io/trellis-wasm/node-installer:latest",
        min_length=1,
        pattern=r"^\S+$",
        description="Image of the Trellis installer, which installs Shims. Pin it by digest.",
    )
    require_checksum: bool = Field(
        default=True, description="Reject Shims whose source has neither a sha256 nor a digest."
    )
    allow_http: bool = Field(default=False, description="Allow Shims to be downloaded without TLS.")
    shim_keys: Annotated[str, AfterValidator(_keys)] = Field(
        default="",
        description="Public keys (concatenated PEM) that verify the signatures of Shims. Shims without a valid "
        "signature are rejected. Empty: signatures are not verified.",
    )
    installer_pull_policy: PullPolicy = Field(
        default="IfNotPresent", description="imagePullPolicy of the installer pods."
    )
    installer_service_account: DnsLabel = Field(
        default="default", description="Service account of the installer pods. Its token is never mounted."
    )
    installer_cpu: Cpu = Field(default="50m", description="CPU request of the installer pods.")
    installer_memory: Memory = Field(default="128Mi", description="Memory request and limit of the installer pods.")
    installer_pull_secrets: Annotated[str, AfterValidator(_secrets)] | None = Field(
        default=None,
        description="imagePullSecrets of the installer pods, in the namespace of the Jobs, separated by commas.",
    )
    installer_otlp_endpoint: PublicUrl | None = Field(
        default=None,
        description="OTLP/HTTP endpoint for the traces of the Trellis installer. If unset: TRELLIS_OTLP_ENDPOINT, "
        "unless that is a loopback address.",
    )
    installer_https_proxy: ProxyUrl | None = Field(
        default=None, description="HTTPS proxy of the Trellis installer, without credentials."
    )
    installer_http_proxy: ProxyUrl | None = Field(
        default=None, description="HTTP proxy of the Trellis installer, without credentials."
    )
    installer_no_proxy: str | None = Field(
        default=None, description="Hosts, domains and networks that the Trellis installer reaches without a proxy."
    )
    installer_proxy_secret: Subdomain | None = Field(
        default=None,
        description="Secret in the namespace of the Jobs with the key HTTPS_PROXY and the optional keys HTTP_PROXY and "
        "NO_PROXY.",
    )
    installer_ca_config_map: ConfigMapKey | None = Field(
        default=None,
        description="ConfigMap in the namespace of the Jobs with CA certificates that the installer of Trellis trusts "
        f"besides those of the system, as <name> (key {_CA_KEY}) or <name>/<key>.",
    )
    handler: DnsLabel | None = Field(
        default=None,
        description="Runtime handler that the KWasm-compatible image installs. If set, nodes are verified by their "
        "status.",
    )
    max_unavailable: MaxUnavailable = Field(
        default=CountOrPercent(10, is_percent=True),
        description="Maximum number or percentage of nodes that are provisioned at the same time.",
    )
    halt_after_failures: int = Field(
        default=5, ge=0, description="Number of failed nodes at which a rollout halts. 0: it never halts."
    )
    job_deadline: PositiveSeconds = Field(default=600.0, description="Maximum duration of one attempt on a node.")
    job_retries: int = Field(
        default=2, ge=0, le=10, description="Pods that a Job starts after its first pod failed (backoffLimit)."
    )
    retry_min: PositiveSeconds = Field(
        default=10.0, description="Delay before the second attempt. It doubles with each attempt."
    )
    retry_max: PositiveSeconds = Field(default=300.0, description="Maximum delay between attempts.")
    verify_timeout: PositiveSeconds = Field(
        default=120.0, description="Time for the node to report the runtime handler after the installer succeeded."
    )
    inspect_after: PositiveSeconds = Field(
        default=20.0, description="Age from which the pods of a running installer Job are inspected for errors."
    )

    watch_workloads: bool = Field(
        default=True,
        description="Watch the pods of the RuntimeClasses of Shims, and report their owners by events and metrics.",
    )
    workload_warnings: bool = Field(
        default=True, description="Write Warning Events on the owners of pods that do not run."
    )

    def installer(self) -> Installer:
        """Return the specification of the installer pods."""
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
            installer_env=self._installer_env(),
        )

    def _installer_env(self) -> InstallerEnv:
        proxies = zip(
            PROXY_VARIABLES,
            (self.installer_https_proxy, self.installer_http_proxy, self.installer_no_proxy),
            strict=True,
        )
        name, _, key = (self.installer_ca_config_map or "").partition("/")
        secrets = self.installer_pull_secrets
        inherited = self.otlp_endpoint if _is_for_others(self.otlp_endpoint) else None
        return InstallerEnv(
            otlp_endpoint=self.installer_otlp_endpoint or inherited,
            sends_alone=self.otlp_endpoint is None,
            proxies=tuple((variable, value) for variable, value in proxies if value),
            proxy_secret=self.installer_proxy_secret,
            ca=(name, key or _CA_KEY) if name else None,
            image_pull_secrets=tuple(part.strip() for part in secrets.split(",")) if secrets else (),
        )

    def limits(self, shims: Iterable[ShimView]) -> dict[str, ShimLimits]:
        """Return the limits of each rollout by Shim name; the KWasm-compatible image has its own rollout."""
        limits = {KWASM: ShimLimits(self.max_unavailable, self.halt_after_failures)}
        for shim in shims:
            halt_after = self.halt_after_failures if shim.pause_on_failures is None else shim.pause_on_failures
            max_update = None if shim.recreate else shim.max_update or self.max_unavailable
            limits[shim.name] = ShimLimits(
                *(max_update, halt_after, shim.paused, shim.acknowledged, shim.workloads),
                workload_timeout=WORKLOAD_TIMEOUT if shim.workload_timeout is None else shim.workload_timeout,
                runtime_class=shim.runtime_class,
                content=content_of(shim),
            )
        return limits

    def retries(self) -> Retries:
        """Return the backoff for failed nodes."""
        return Retries(self.retry_min, self.retry_max)


def _is_for_others(endpoint: str | None) -> bool:
    """Return whether other nodes can use the endpoint: it is not a loopback address and has no credentials."""
    parts = urlsplit(endpoint or "")
    host = parts.hostname or ""
    if "@" in parts.netloc or host == "localhost" or host.endswith(".localhost"):
        return False
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return bool(host)
    return not address.is_loopback and not address.is_unspecified
