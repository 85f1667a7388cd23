"""Application: components, and what they need, that wadm runs on the hosts of a lattice.

Group ``core.oam.dev``, fields as wadm 0.21's manifests have them, in the old forms too. Where wadm passes over fields
that it does not know they are kept here as well, and are left out of what wadm gets; where it refuses them they are
unknown here. Read by ``application_manager``, which alone writes the status.
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
"""A name alone, as it was written once, or an object; a schema cannot say so, and the API server keeps either."""


class Config(ApiModel):
    """A named configuration; without properties it is one that the lattice has already."""

    name: str
    """Its name."""
    properties: dict[str, str] | None = None
    """What it holds."""


class SecretSource(ApiModel):
    """Where a secret comes from."""

    model_config = _KEEPS_UNKNOWN

    policy: str
    """Name of the policy, in this manifest, that says which backend is asked."""
    key: str
    """What the secret is called there."""
    field: str | None = None
    """Which part of it."""
    version: str | None = None
    """Which version of it."""


class Secret(ApiModel):
    """A secret that is handed over under a name."""

    model_config = _KEEPS_UNKNOWN

    name: str
    """The name that it is handed over under."""
    properties: SecretSource
    """Where it comes from."""


class SharedComponent(ApiModel):
    """A component of another application that shares it."""

    model_config = _KEEPS_UNKNOWN

    name: str
    """Name of the other application."""
    component: str
    """Name of the component in it."""


class ComponentProperties(ApiModel):
    """What is run."""

    model_config = ConfigDict(json_schema_extra=rules(*PROPERTIES_RULES))

    image: str | None = None
    """Reference of the image, or ``wasmcloud+builtin://…``."""
    application: SharedComponent | None = None
    """In place of an image: what another application shares."""
    id: str | None = None
    """Its identity in the lattice; made of the names if it is left out."""
    config: list[Config] | None = None
    """Its configuration."""
    secrets: list[Secret] | None = None
    """Its secrets."""


class LinkEnd(ApiModel):
    """Configuration and secrets of one end of a link."""

    model_config = _KEEPS_UNKNOWN

    config: list[Config] | None = None
    """Its configuration."""
    secrets: list[Secret] | None = None
    """Its secrets."""


class Spread(ApiModel):
    """A part of the instances, and the hosts that it may be on."""

    name: str
    """What it is called in messages."""
    requirements: dict[str, str]
    """Labels that a host has all of; wadm takes no spread without them."""
    weight: Count | None = None
    """Its share; 100 if it is left out."""


class TraitProperties(ApiModel):
    """Properties of a link (namespace, package, interfaces, target) or of a scaler (instances, spread)."""

    model_config = _KEEPS_UNKNOWN

    instances: Count | None = None
    """Of a scaler: how many there are to be, at most, on each host of a daemonscaler."""
    replicas: Count | None = None
    """The former name of instances."""
    spread: list[Spread] | None = None
    """Of a scaler: how the instances are spread over hosts."""
    namespace: str | None = None
    """Of a link: the namespace of its interfaces, as ``wasi``."""
    package: str | None = None
    """Of a link: the package of its interfaces, as ``http``."""
    interfaces: list[str] | None = None
    """Of a link: its interfaces, as ``incoming-handler``."""
    name: str | None = None
    """Of a link: its name, where there are several between the same two."""
    target: TextOrTarget = None
    """Of a link: the component that it leads to, with its configuration and secrets."""
    source: LinkEnd | None = None
    """Of a link: configuration and secrets of this end."""
    source_config: list[Config] | None = Field(default=None, alias="source_config")
    """The former place of source.config."""
    target_config: list[Config] | None = Field(default=None, alias="target_config")
    """The former place of target.config."""


class Trait(ApiModel):
    """How a component is scaled, or what it is linked with."""

    model_config = ConfigDict(json_schema_extra=rules(*TRAIT_RULES))

    type: str
    """spreadscaler, daemonscaler or link."""
    properties: TraitProperties
    """Of what it consists."""


class Component(ApiModel):
    """A Wasm component, or a capability: a provider that others are linked with."""

    model_config = ConfigDict(json_schema_extra=rules(*COMPONENT_RULES) | _PRESERVED, extra="allow")

    name: str
    """Its name in this manifest."""
    type: Literal["component", "actor", "capability"]
    """component, or its former name actor; or capability."""
    properties: ComponentProperties
    """What is run."""
    traits: Annotated[list[Trait], Field(max_length=TRAITS_MAX)] | None = None
    """How it is scaled and linked."""


class Policy(ApiModel):
    """A policy that secrets name."""

    model_config = _KEEPS_UNKNOWN

    name: str
    """Its name in this manifest."""
    type: str
    """``policy.secret.wasmcloud.dev/v1alpha1`` for one that secrets name."""
    properties: dict[str, str]
    """What it consists of; secrets need ``backend``."""


class ApplicationSpec(ApiModel):
    """What is to run."""

    model_config = _KEEPS_UNKNOWN

    components: Annotated[
        list[Component],
        Field(
            max_length=COMPONENTS_MAX,
            json_schema_extra={f"{KUBERNETES}list-type": "map", f"{KUBERNETES}list-map-keys": ["name"]},
        ),
    ]
    """Its components, each with a name of its own."""
    policies: list[Policy] | None = None
    """Policies that its secrets name."""


class Application(ApiModel):
    """Components, and what they need, that wadm runs on the hosts of a lattice."""

    model_config = ConfigDict(json_schema_extra=rules(*OBJECT_RULES))

    spec: ApplicationSpec
    """What is to run."""
    status: ApplicationStatus | None = None
    """How it is in its lattice."""
