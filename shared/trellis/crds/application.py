"""Application: components and their configuration, which wadm runs on the hosts of a lattice.

Group ``core.oam.dev``, with the fields of manifests of wadm 0.21, including deprecated forms. Unknown fields that wadm
ignores are preserved here and omitted from the manifest for wadm; unknown fields that wadm rejects are pruned. Read by
``application_manager``, which alone writes the status.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field, WithJsonSchema

from trellis.crds.api import KUBERNETES, ApiModel, rules
from trellis.crds.application_rules import COMPONENT_RULES, OBJECT_RULES, PROPERTIES_RULES, TRAIT_RULES
from trellis.crds.application_status import ApplicationStatus

_PRESERVED: Final[dict[str, Any]] = {f"{KUBERNETES}preserve-unknown-fields": True}
_KEEPS_UNKNOWN: Final = ConfigDict(json_schema_extra=_PRESERVED, extra="allow")
COMPONENTS_MAX: Final = 100
TRAITS_MAX: Final = 20

Count = Annotated[int, Field(ge=0, json_schema_extra={"format": "int64"})]
TextOrTarget = Annotated[Any, WithJsonSchema(_PRESERVED)]
"""A name (the deprecated form) or an object; a schema cannot express this, and the API server accepts both."""


class Config(ApiModel):
    """Named configuration; without properties, one that exists in the lattice."""

    name: str
    """Name of the configuration."""
    properties: dict[str, str] | None = None
    """Entries of the configuration. Unset: the configuration of that name in the lattice."""


class SecretSource(ApiModel):
    """Source of a secret."""

    model_config = _KEEPS_UNKNOWN

    policy: str
    """Name of the policy in this manifest that names the secrets backend."""
    key: str
    """Name of the secret in the backend."""
    field: str | None = None
    """Field of the secret. Unset: the whole secret."""
    version: str | None = None
    """Version of the secret. Unset: the current one."""


class Secret(ApiModel):
    """Named secret for a component."""

    model_config = _KEEPS_UNKNOWN

    name: str
    """Name by which the component reads the secret."""
    properties: SecretSource
    """Source of the secret."""


class SharedComponent(ApiModel):
    """A component of another application that shares it."""

    model_config = _KEEPS_UNKNOWN

    name: str
    """Name of the other application."""
    component: str
    """Name of the component in the other application."""


class ComponentProperties(ApiModel):
    """Image, configuration and secrets of the component."""

    model_config = ConfigDict(json_schema_extra=rules(*PROPERTIES_RULES))

    image: str | None = None
    """Reference of the image, or ``wasmcloud+builtin://…``. Required unless application is set."""
    application: SharedComponent | None = None
    """Component that another application shares, instead of an image. Required unless image is set."""
    id: str | None = None
    """Identity in the lattice. Default: derived from the names of the application and component."""
    config: list[Config] | None = None
    """Named configurations. Unset: none."""
    secrets: list[Secret] | None = None
    """Secrets. Unset: none."""


class LinkEnd(ApiModel):
    """Configuration and secrets of one end of a link."""

    model_config = _KEEPS_UNKNOWN

    config: list[Config] | None = None
    """Named configurations. Unset: none."""
    secrets: list[Secret] | None = None
    """Secrets. Unset: none."""


class Spread(ApiModel):
    """Part of the instances, and the hosts that may run it."""

    name: str
    """Name of the spread in messages."""
    requirements: dict[str, str]
    """Labels that a host must have."""
    weight: Count | None = None
    """Share of the instances, relative to the other spreads. Default: 100."""


class TraitProperties(ApiModel):
    """Properties of a link (namespace, package, interfaces, target) or of a scaler (instances, spread)."""

    model_config = _KEEPS_UNKNOWN

    instances: Count | None = None
    """Scaler: number of instances; of a daemonscaler, per host. Required for a scaler."""
    replicas: Count | None = None
    """Scaler: deprecated, use instances."""
    spread: list[Spread] | None = None
    """Scaler: distribution of the instances over hosts. Unset: any host."""
    namespace: str | None = None
    """Link: WIT namespace of the interfaces, such as ``wasi``. Required for a link."""
    package: str | None = None
    """Link: WIT package of the interfaces, such as ``http``. Required for a link."""
    interfaces: list[str] | None = None
    """Link: interfaces, such as ``incoming-handler``. Required for a link."""
    name: str | None = None
    """Link: name, if there are several between the same components. Default: default."""
    target: TextOrTarget = None
    """Link: target component, with its configuration and secrets. Required for a link."""
    source: LinkEnd | None = None
    """Link: configuration and secrets of the source. Unset: none."""
    source_config: list[Config] | None = Field(default=None, alias="source_config")
    """Link: deprecated, use source.config."""
    target_config: list[Config] | None = Field(default=None, alias="target_config")
    """Link: deprecated, use target.config."""


class Trait(ApiModel):
    """Scaler or link of a component."""

    model_config = ConfigDict(json_schema_extra=rules(*TRAIT_RULES))

    type: str
    """Type of the trait: spreadscaler, daemonscaler or link."""
    properties: TraitProperties
    """Properties of the trait."""


class Component(ApiModel):
    """Wasm component, or capability: a provider that components link to."""

    model_config = ConfigDict(json_schema_extra=rules(*COMPONENT_RULES) | _PRESERVED, extra="allow")

    name: str
    """Name, unique in this manifest."""
    type: Literal["component", "actor", "capability"]
    """Type: component, its deprecated name actor, or capability (a provider)."""
    properties: ComponentProperties
    """Image, configuration and secrets of the component."""
    traits: Annotated[list[Trait], Field(max_length=TRAITS_MAX)] | None = None
    """Scalers and links of the component, at most 20. Unset: none."""


class Policy(ApiModel):
    """Policy that secrets refer to."""

    model_config = _KEEPS_UNKNOWN

    name: str
    """Name, unique in this manifest."""
    type: str
    """Type of the policy: ``policy.secret.wasmcloud.dev/v1alpha1`` for secrets."""
    properties: dict[str, str]
    """Properties of the policy. Policies for secrets require ``backend``."""


class ApplicationSpec(ApiModel):
    """Desired state."""

    model_config = _KEEPS_UNKNOWN

    components: Annotated[
        list[Component],
        Field(
            min_length=1,
            max_length=COMPONENTS_MAX,
            json_schema_extra={f"{KUBERNETES}list-type": "map", f"{KUBERNETES}list-map-keys": ["name"]},
        ),
    ]
    """Components and providers, 1 to 100, each with a unique name."""
    policies: list[Policy] | None = None
    """Policies that secrets refer to. Unset: none."""


class Application(ApiModel):
    """Components and providers that wadm runs on the hosts of a lattice."""

    model_config = ConfigDict(json_schema_extra=rules(*OBJECT_RULES))

    spec: ApplicationSpec
    """Desired state."""
    status: ApplicationStatus | None = None
    """Observed state, written by application_manager."""
