"""The result of a conversion: objects of wasmCloud v2, and one line for each part that does not translate.

Pure data. Created by ``convert``, shown and applied by the command. Invariants: each part of an application is in
``parts``, with the object that has it, or in a line of the report; no line contains a value of a configuration.
"""

# ruff: noqa: S105 - reasons, not passwords

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from trellis.crds.conditions import shortened

Manifest = dict[str, Any]
_TEXT_MOST: Final = 4000
"""Characters of a message: names of usual lengths are complete."""


class Reason(StrEnum):
    """Reason why a part does not translate, or translates with a difference."""

    INVALID_MANIFEST = "InvalidManifest"
    OBJECT_TOO_LARGE = "ObjectTooLarge"
    IGNORED_BY_WADM = "IgnoredByWadm"
    NO_WORKLOAD = "NoWorkload"
    NO_IMAGE = "NoImage"
    LOCAL_IMAGE = "LocalImage"
    INVALID_IMAGE = "InvalidImage"
    SHARED_COMPONENT = "SharedComponent"
    COMPONENT_ID = "ComponentId"
    PROVIDER_NOT_IN_V2 = "ProviderNotInV2"
    PROVIDER_NOT_USED = "ProviderNotUsed"
    PROVIDER_SCALER = "ProviderScaler"
    PROVIDER_SETTING = "ProviderSetting"
    BACKEND_ADDRESS = "BackendAddress"
    BACKEND_NOT_SELECTED = "BackendNotSelected"
    BUCKET_NAME = "BucketName"
    CREDENTIALS = "Credentials"
    EGRESS_DENIED = "EgressDenied"
    LINK_BETWEEN_APPLICATIONS = "LinkBetweenApplications"
    LINK_TARGET_MISSING = "LinkTargetMissing"
    LINK_NOT_TRANSLATED = "LinkNotTranslated"
    LINK_SETTING = "LinkSetting"
    LINK_NAME = "LinkName"
    INTERFACE_NOT_IN_V2 = "InterfaceNotInV2"
    INTERFACE_CONFLICT = "InterfaceConflict"
    TOO_MANY_INTERFACES = "TooManyInterfaces"
    HTTP_ROUTING = "HttpRouting"
    HTTP_SETTING = "HttpSetting"
    HOST_HEADER = "HostHeader"
    HOST_HEADER_TAKEN = "HostHeaderTaken"
    LISTEN_ADDRESS = "ListenAddress"
    SECOND_LISTENER = "SecondListener"
    SERVICE_OPTION = "ServiceOption"
    SERVICE_NAME_TAKEN = "ServiceNameTaken"
    INSTANCES_KEPT_WARM = "InstancesKeptWarm"
    INSTANCES_INVALID = "InstancesInvalid"
    WEIGHTED_SPREAD = "WeightedSpread"
    HOST_LABELS = "HostLabels"
    DAEMONSCALER = "Daemonscaler"
    SCALER_MISSING = "ScalerMissing"
    SECOND_SCALER = "SecondScaler"
    UNKNOWN_TRAIT = "UnknownTrait"
    NAMED_CONFIGURATION = "NamedConfiguration"
    CONFIGURATION_KEY = "ConfigurationKey"
    CONFIGURATION_VALUE = "ConfigurationValue"
    CONFIGURATION_TOO_LARGE = "ConfigurationTooLarge"
    CONFIGURATION_INTERFACE = "ConfigurationInterface"
    ENVIRONMENT_NAME = "EnvironmentName"
    SECRET_INTERFACE = "SecretInterface"
    SECRET_POLICY = "SecretPolicy"
    SECRET_BACKEND = "SecretBackend"
    SECRET_NAMESPACE = "SecretNamespace"
    SECRET_IMPERSONATION = "SecretImpersonation"
    SECRET_NAME = "SecretName"
    SECRET_VERSION = "SecretVersion"
    CLAIMS_NOT_CHECKED = "ClaimsNotChecked"
    POLICY = "Policy"
    LABEL = "Label"
    ANNOTATION = "Annotation"
    NOT_DEPLOYED = "NotDeployed"


_AS_A_WHOLE: Final = frozenset({Reason.INVALID_MANIFEST, Reason.OBJECT_TOO_LARGE})
"""Reasons for which an application has one line and no object."""


class Way(StrEnum):
    """Replacement of a part on wasmCloud v2."""

    PLUGIN = "plugin"
    SERVICE = "service"
    CONTAINER = "container"
    V1 = "stay on v1"
    COMPONENT = "change the component"
    MANIFEST = "change the application"
    OBJECT = "create an object"
    DEPLOYMENTS = "several deployments"
    HOSTS = "configure the hosts"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Line:
    """One line. ``part``: path in the manifest; ``instead``: what to do, as text; ``ways``: the same for programs."""

    part: str
    reason: Reason
    message: str
    instead: str = ""
    ways: tuple[Way, ...] = ()

    def document(self) -> dict[str, Any]:
        """Return the line for JSON."""
        return {
            "part": self.part,
            "reason": self.reason.value,
            "message": self.message,
            "instead": self.instead,
            "ways": [way.value for way in self.ways],
        }


@dataclass(frozen=True, slots=True)
class Route:
    """An HTTP route of a workload. ``host``: the Host header; ``service`` and ``port``: its Service on v2, if any."""

    host: str
    service: str
    port: int


@dataclass(frozen=True, slots=True)
class Conversion:
    """A converted application. ``parts``: the object by path of the part; ``label``: value of the label on each object.

    ``objects`` are in the order in which they are applied: Services come before the workloads that refer to them.
    """

    namespace: str
    application: str
    label: str = ""
    objects: tuple[Manifest, ...] = ()
    lines: tuple[Line, ...] = ()
    parts: Mapping[str, str] = field(default_factory=dict)
    routes: tuple[Route, ...] = ()

    @property
    def key(self) -> str:
        """``namespace/application``."""
        return f"{self.namespace}/{self.application}"

    @property
    def valid(self) -> bool:
        """False if the application cannot be converted at all."""
        return not any(line.reason in _AS_A_WHOLE for line in self.lines)

    def document(self) -> dict[str, Any]:
        """Return the report for JSON, without the objects."""
        return {
            "namespace": self.namespace,
            "application": self.application,
            "ok": self.valid,
            "report": [line.document() for line in self.lines],
            "parts": dict(self.parts),
        }


class Record:
    """Collects lines and parts during one conversion."""

    def __init__(self) -> None:
        self.lines: dict[Line, None] = {}
        """In order of their first occurrence."""
        self.parts: dict[str, str] = {}

    def done(self, place: str, target: str) -> None:
        """Record that an object has a part."""
        self.parts[place] = target

    def undo(self, place: str) -> None:
        """Remove a part and the parts below it: a line of the report has them."""
        below = (f"{place}.", f"{place}[")
        self.parts = {key: value for key, value in self.parts.items() if key != place and not key.startswith(below)}

    def note(self, place: str, reason: Reason, message: str, instead: str = "", *ways: Way) -> None:
        """Add a line to the report, once: a provider with several links has each line once.

        wadm limits no name, and the lines of an application can have the same name a hundred times.
        """
        self.lines[Line(place, reason, shortened(message, _TEXT_MOST), shortened(instead, _TEXT_MOST), ways)] = None


def reference(kind: str, namespace: str, name: str) -> str:
    """Return the text of an object in ``parts``: ``Service shop/hello``."""
    return f"{kind} {namespace}/{name}"
