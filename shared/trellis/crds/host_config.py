"""WasmCloudHostConfig: a group of wasmCloud hosts on one lattice.

Group ``k8s.wasmcloud.dev``, as wasmcloud-operator defined it: names, types, defaults, enums and which fields may be
null are its own, so what it stored stays valid and reads the same; what it does not have is optional. Parts of a pod
are kept as they are written: their schemas would make a definition that ``kubectl apply`` cannot store. Read by
``host_manager``, which alone writes the status.
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
    """Name of the Secret."""


class ConfigMapSource(ApiModel):
    """A ConfigMap as the source of a volume."""

    model_config = _KEEPS_UNKNOWN

    name: str = ""
    """Name of the ConfigMap."""


class Authority(ApiModel):
    """A volume of certificate authorities: those of its keys that end in .crt."""

    model_config = _KEEPS_UNKNOWN

    name: str
    """What the volume is called."""
    secret: SecretSource = Field(default_factory=SecretSource)
    """The Secret that holds them."""
    config_map: ConfigMapSource = Field(default_factory=ConfigMapSource)
    """The ConfigMap that holds them."""


class Certificates(ApiModel):
    """What hosts trust besides the public authorities."""

    model_config = ConfigDict(json_schema_extra=never(*CERTIFICATES_NEVER))

    authorities: Annotated[list[Authority], Field(max_length=256)] | None = None
    """Volumes with certificates, from a Secret or a ConfigMap each."""


class PolicyService(ApiModel):
    """Who is asked before components and providers are started."""

    topic: str | None = None
    """Subject of the requests."""
    timeout_ms: Uint32 | None = None
    """How long an answer may take, in milliseconds."""
    changes_topic: str | None = None
    """Subject of changed decisions."""


class Signal(ApiModel):
    """One kind of telemetry."""

    enable: bool | None = None
    """Send it."""
    endpoint: str | None = None
    """Where to; the common endpoint if unset."""


class Observability(ApiModel):
    """OpenTelemetry of the hosts."""

    enable: bool = False
    """Send traces, metrics and logs."""
    endpoint: str
    """Address of the collector."""
    protocol: Literal["grpc", "http"] | None = None
    """How it is spoken to."""
    logs: Signal | None = None
    """Logs alone."""
    metrics: Signal | None = None
    """Metrics alone."""
    traces: Signal | None = None
    """Traces alone."""


class ResourceClaim(ApiModel):
    """A resource claim of the pod that a container uses."""

    name: str
    """Name of the claim in the pod."""
    request: str | None = None
    """The request in it."""


class Requirements(ApiModel):
    """Resources of one container."""

    claims: list[ResourceClaim] = Field(default_factory=list)
    """Claims it uses."""
    limits: Quantities = Field(default_factory=dict)
    """The most it may use."""
    requests: Quantities = Field(default_factory=dict)
    """What is reserved for it."""


class Resources(ApiModel):
    """Resources of the containers."""

    nats: Requirements | None = None
    """Of the NATS leaf."""
    wasmcloud: Requirements | None = None
    """Of the host."""


class ContainerAdditions(ApiModel):
    """Fields of core/v1 Container that the containers get besides; what is set for them anyway wins."""

    nats: Anything = Field(default_factory=dict)
    """For the NATS leaf."""
    wasmcloud: Anything = Field(default_factory=dict)
    """For the host."""


class SchedulingOptions(ApiModel):
    """How hosts run in Kubernetes."""

    daemonset: bool = False
    """One host on each node, in place of hostReplicas."""
    resources: Resources | None = None
    """Resources of the containers."""
    pod_template_additions: Anything = Field(default_factory=dict)
    """Fields of core/v1 PodSpec that the pods get besides."""
    container_template_additions: ContainerAdditions | None = None
    """Fields that the containers get besides."""


class LeafTls(ApiModel):
    """TLS between the NATS leaf and its remote; without it only what the address itself asks for."""

    secret_name: str | None = None
    """Secret with ca.crt, and tls.crt and tls.key if the remote wants a certificate of ours."""


class WasmCloudHostConfigSpec(ApiModel):
    """What hosts there are to be."""

    model_config = ConfigDict(json_schema_extra=never(*SPEC_NEVER))

    host_replicas: Uint32 = 1
    """Hosts there are to be, each a pod; has no meaning with schedulingOptions.daemonset."""
    issuers: list[str] | None = None
    """Deprecated: hosts since 1.0 take no notice of it."""
    daemonset: bool | None = None
    """Deprecated: the former place of schedulingOptions.daemonset."""
    lattice: str
    """The lattice that the hosts join."""
    host_labels: Annotated[
        dict[str, Annotated[str, Field(max_length=1024)]] | None, Field(json_schema_extra={"maxProperties": 256})
    ] = None
    """Labels of the hosts, which applications select them by."""
    version: str = Field(max_length=1024)
    """Version of the host: the tag of its image, unless spec.image names one."""
    image: Annotated[str, Field(max_length=1024)] | None = None
    """Image of the host in place of ghcr.io/wasmcloud/wasmcloud:<version>."""
    nats_leaf_image: Annotated[str, Field(max_length=1024)] | None = None
    """Image of the NATS leaf beside each host, with its tag."""
    secret_name: str | None = None
    """Secret with credentials for NATS under nats.creds."""
    enable_structured_logging: bool | None = None
    """Log in JSON; true if unset."""
    registry_credentials_secret: str | None = None
    """Secret of type kubernetes.io/dockerconfigjson for the registry that components come from."""
    control_topic_prefix: str | None = None
    """Prefix of the control interface's subjects; <account>.wasmbus.ctl: NATS is wadm's own, the lattice a tenant's."""
    leaf_node_domain: str = "leaf"
    """JetStream domain of the NATS leaf."""
    config_service_enabled: bool = False
    """Ask the lattice's configuration service at the start."""
    nats_address: str = "nats://nats.default.svc.cluster.local"
    """Address of the NATS cluster, without a port."""
    nats_client_port: Uint16 = 4222
    """Its port for clients."""
    nats_leafnode_port: Uint16 = 7422
    """Its port for leaf nodes."""
    jetstream_domain: str = "default"
    """JetStream domain that the hosts use."""
    allow_latest: bool = False
    """Let hosts pull the tag latest."""
    allowed_insecure: list[str] | None = None
    """Registries that hosts may reach without TLS."""
    log_level: str = "INFO"
    """Log level of the hosts."""
    policy_service: PolicyService | None = None
    """Who is asked before anything is started."""
    scheduling_options: SchedulingOptions | None = None
    """How hosts run in Kubernetes."""
    observability: Observability | None = None
    """OpenTelemetry of the hosts."""
    certificates: Certificates | None = None
    """What hosts trust besides."""
    secrets_topic_prefix: str | None = None
    """Prefix of the subjects that hosts ask for secrets on."""
    max_linear_memory_bytes: Uint32 | None = None
    """Memory that one component may have, in bytes."""
    leaf_tls: LeafTls | None = None
    """TLS between the NATS leaf and its remote."""
    drain_seconds: Annotated[int, Field(ge=0, le=3600, json_schema_extra={"format": "int32"})] | None = None
    """How long a host that stops may take to hand over its work, before its NATS leaf stops; 10 if unset."""
    host_recycling: Literal["Never", "OneAtATime"] | None = None
    """Restart a pod whose host has been silent for 70 s, one at a time; never if unset."""


class WasmCloudHostConfig(ApiModel):
    """A group of wasmCloud hosts: which version, on which lattice, how many, and how they run."""

    model_config = ConfigDict(json_schema_extra=never(*OBJECT_NEVER))

    spec: WasmCloudHostConfigSpec
    """What hosts there are to be."""
    status: WasmCloudHostConfigStatus | None = None
    """What hosts there are."""
