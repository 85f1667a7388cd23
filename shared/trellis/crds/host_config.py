"""WasmCloudHostConfig: a host group on one lattice.

Group ``k8s.wasmcloud.dev``, as wasmcloud-operator defined it: names, types, defaults, enums and nullable fields are
unchanged, so stored objects stay valid and keep their meaning; additional fields are optional. Parts of a pod have no
schema: with one, the CRD would be too large for ``kubectl apply``. Read by ``host_manager``, which alone writes the
status.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field, WithJsonSchema

from trellis.crds.api import KUBERNETES, ApiModel, Quantities, Uint16, Uint32, never
from trellis.crds.host_config_rules import CERTIFICATES_NEVER, OBJECT_NEVER, SPEC_NEVER
from trellis.crds.host_config_status import WasmCloudHostConfigStatus

Anything = Annotated[dict[str, Any], WithJsonSchema({"type": "object", f"{KUBERNETES}preserve-unknown-fields": True})]
_KEEPS_UNKNOWN: Final = ConfigDict(json_schema_extra={f"{KUBERNETES}preserve-unknown-fields": True}, extra="allow")


class SecretSource(ApiModel):
    """A Secret as the source of a volume."""

    model_config = _KEEPS_UNKNOWN

    secret_name: str = ""
    """Name of the Secret. Default: empty, no Secret."""


class ConfigMapSource(ApiModel):
    """A ConfigMap as the source of a volume."""

    model_config = _KEEPS_UNKNOWN

    name: str = ""
    """Name of the ConfigMap. Default: empty, no ConfigMap."""


class Authority(ApiModel):
    """Volume with CA certificates: its keys that end in .crt."""

    model_config = _KEEPS_UNKNOWN

    name: str
    """Name of the volume."""
    secret: SecretSource = Field(default_factory=SecretSource)
    """Secret with the certificates. Unset: the ConfigMap has them."""
    config_map: ConfigMapSource = Field(default_factory=ConfigMapSource)
    """ConfigMap with the certificates. Unset: the Secret has them."""


class Certificates(ApiModel):
    """CA certificates that hosts trust in addition to the public ones."""

    model_config = ConfigDict(json_schema_extra=never(*CERTIFICATES_NEVER))

    authorities: Annotated[list[Authority], Field(max_length=256)] | None = None
    """Volumes with CA certificates, each from a Secret or a ConfigMap; only keys that end in .crt are used.
    Unset: none."""


class PolicyService(ApiModel):
    """Policy service that permits the start of components and providers."""

    topic: str | None = None
    """NATS subject of policy requests. Unset: no policy service."""
    timeout_ms: Uint32 | None = None
    """Timeout of a policy request, in milliseconds. Unset: the host's default."""
    changes_topic: str | None = None
    """NATS subject on which changed decisions are published. Unset: none."""


class Signal(ApiModel):
    """Settings of one signal of telemetry."""

    enable: bool | None = None
    """Send this signal. Unset: as observability.enable."""
    endpoint: str | None = None
    """Endpoint for this signal. Default: observability.endpoint."""


class Observability(ApiModel):
    """OpenTelemetry settings of the hosts. Unset: off."""

    enable: bool = False
    """Send traces, metrics and logs. Default: false."""
    endpoint: str
    """URL of the OpenTelemetry collector."""
    protocol: Literal["grpc", "http"] | None = None
    """OTLP protocol: `grpc` or `http`. Unset: the host's default."""
    logs: Signal | None = None
    """Settings for logs. Unset: those of observability."""
    metrics: Signal | None = None
    """Settings for metrics. Unset: those of observability."""
    traces: Signal | None = None
    """Settings for traces. Unset: those of observability."""


class ResourceClaim(ApiModel):
    """A resource claim of the pod that a container uses."""

    name: str
    """Name of the resource claim in the pod."""
    request: str | None = None
    """Request in the resource claim. Unset: all of it."""


class Requirements(ApiModel):
    """Resources of one container."""

    claims: list[ResourceClaim] = Field(default_factory=list)
    """Resource claims that the container uses. Default: none."""
    limits: Quantities = Field(default_factory=dict)
    """Limits by resource name, as Kubernetes quantities. Default: none."""
    requests: Quantities = Field(default_factory=dict)
    """Requests by resource name, as Kubernetes quantities. Default: none."""


class Resources(ApiModel):
    """Resources of the containers. Unset: none are requested or limited."""

    nats: Requirements | None = None
    """Resources of the container of the NATS leaf node. Unset: none are requested or limited."""
    wasmcloud: Requirements | None = None
    """Resources of the container of the host. Unset: none are requested or limited."""


class ContainerAdditions(ApiModel):
    """Additional fields of core/v1 Container for the containers; fields that Trellis sets take precedence."""

    nats: Anything = Field(default_factory=dict)
    """Additional fields for the container of the NATS leaf node. Default: none."""
    wasmcloud: Anything = Field(default_factory=dict)
    """Additional fields for the container of the host. Default: none."""


class SchedulingOptions(ApiModel):
    """Scheduling and resources of the pods."""

    daemonset: bool = False
    """Run one host on each node (a DaemonSet) instead of hostReplicas hosts. Default: false."""
    resources: Resources | None = None
    """Resources of the containers. Unset: none are requested or limited."""
    pod_template_additions: Anything = Field(default_factory=dict)
    """Additional fields of core/v1 PodSpec for the pods. Default: none."""
    container_template_additions: ContainerAdditions | None = None
    """Additional fields for the containers. Default: none."""


class LeafTls(ApiModel):
    """TLS between the NATS leaf node and the NATS server; without it, the address determines TLS."""

    secret_name: str | None = None
    """Secret with ca.crt, and tls.crt and tls.key if the server requires client certificates. Unset: public CAs, and no
    client certificate."""


class WasmCloudHostConfigSpec(ApiModel):
    """Desired state."""

    model_config = ConfigDict(json_schema_extra=never(*SPEC_NEVER))

    host_replicas: Uint32 = 1
    """Number of hosts, each in a pod. Ignored with schedulingOptions.daemonset. Default: 1."""
    issuers: list[str] | None = None
    """Deprecated and ignored: hosts since 1.0 do not use it."""
    daemonset: bool | None = None
    """Deprecated: use schedulingOptions.daemonset."""
    lattice: str
    """Name of the lattice that the hosts join."""
    host_labels: Annotated[
        dict[str, Annotated[str, Field(max_length=1024)]] | None, Field(json_schema_extra={"maxProperties": 256})
    ] = None
    """Labels of the hosts, by which applications select hosts. Unset: none."""
    version: str = Field(max_length=1024)
    """Version of the host: the tag of its image. Ignored if spec.image is set."""
    image: Annotated[str, Field(max_length=1024)] | None = None
    """Image of the host. Default: ghcr.io/wasmcloud/wasmcloud:<version>."""
    nats_leaf_image: Annotated[str, Field(max_length=1024)] | None = None
    """Image of the NATS leaf node beside each host, with its tag. Unset: the image that this version of Trellis
    pins."""
    secret_name: str | None = None
    """Secret with NATS credentials in the key nats.creds. Unset: no credentials."""
    enable_structured_logging: bool | None = None
    """Log in JSON. Default: true."""
    registry_credentials_secret: str | None = None
    """Secret of type kubernetes.io/dockerconfigjson for the registry of components. Unset: no credentials."""
    control_topic_prefix: str | None = None
    """Prefix of the subjects of the control interface. Unset: wasmbus.ctl. With <account>.wasmbus.ctl the hosts are in
    the lattice of that tenant, on wadm's NATS."""
    leaf_node_domain: str = "leaf"
    """JetStream domain of the NATS leaf node. Default: leaf."""
    config_service_enabled: bool = False
    """Read the configuration service of the lattice at the start. Default: false."""
    nats_address: str = "nats://nats.default.svc.cluster.local"
    """URL of the NATS server, without a port. Default: nats://nats.default.svc.cluster.local."""
    nats_client_port: Uint16 = 4222
    """Client port of the NATS server. Default: 4222."""
    nats_leafnode_port: Uint16 = 7422
    """Leaf node port of the NATS server. Default: 7422."""
    jetstream_domain: str = "default"
    """JetStream domain that the hosts use. Default: default."""
    allow_latest: bool = False
    """Allow components with the image tag latest. Default: false."""
    allowed_insecure: list[str] | None = None
    """Registries that hosts may access without TLS. Unset: none."""
    log_level: str = "INFO"
    """Log level of the hosts. Default: INFO."""
    policy_service: PolicyService | None = None
    """Policy service that permits the start of components and providers. Unset: none."""
    scheduling_options: SchedulingOptions | None = None
    """Scheduling and resources of the pods. Unset: the defaults of its fields."""
    observability: Observability | None = None
    """OpenTelemetry settings of the hosts. Unset: off."""
    certificates: Certificates | None = None
    """CA certificates that hosts trust in addition to the public ones. Unset: none."""
    secrets_topic_prefix: str | None = None
    """Prefix of the subjects of secrets requests. Unset: wasmcloud.secrets."""
    max_linear_memory_bytes: Uint32 | None = None
    """Maximum linear memory of a component, in bytes. Unset: the host's default."""
    leaf_tls: LeafTls | None = None
    """TLS between the NATS leaf node and the NATS server. Unset: as the server requires, with public CAs."""
    drain_seconds: Annotated[int, Field(ge=0, le=3600, json_schema_extra={"format": "int32"})] | None = None
    """Seconds for which the NATS leaf node keeps running while a stopping host hands over its work. Default: 10."""
    host_recycling: Literal["Never", "OneAtATime"] | None = None
    """Restart pods whose host has sent no heartbeat for 70 s: Never, or OneAtATime. Default: Never."""


class WasmCloudHostConfig(ApiModel):
    """Host group: wasmCloud hosts of one version on one lattice."""

    model_config = ConfigDict(json_schema_extra=never(*OBJECT_NEVER))

    spec: WasmCloudHostConfigSpec
    """Desired state."""
    status: WasmCloudHostConfigStatus | None = None
    """Observed state, written by host_manager."""
