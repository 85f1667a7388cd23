"""Views of Workloads, and of the templates of WorkloadReplicaSets and WorkloadDeployments.

Pure. In: manifests of any content. Out: views. Called by ``snapshot``. Invariants: nothing raises; no view contains
values of configuration, only names of ConfigMaps and Secrets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from trellis.v2.fields import Json, items, mapping, names, omitted, seconds, text, texts, words
from trellis.v2.interfaces import Interface, interfaces_of
from trellis.v2.objects import Condition, Conditions, Meta, condition, first_unmet, view_conditions, view_meta

STEPS: Final = ("Config", "HostSelection", "Placement", "Sync")
"""Conditions of a Workload in the order of its start. Ready can still be True while an earlier one is already False."""
INCOMING: Final = "incoming-handler"
HANDLERS: Final = frozenset({INCOMING, "handler"})
"""Interfaces of wasi:http 0.2 and 0.3 that receive requests."""
OUTGOING: Final = "outgoing-handler"
ARTIFACT: Final = "artifact://"
"""Prefix of an image that is the name of an entry in ``spec.artifacts`` of its WorkloadDeployment."""
SERVICE: Final = "service"
"""Name of the part that runs for as long as its workload; components have names of their own."""
_HOST: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*", re.IGNORECASE)
_HOST_MOST: Final = 253
_FINALIZER: Final = "runtime.wasmcloud.dev/workload-finalizer"
"""The operator removes it once it has asked the host to stop the Workload."""


@dataclass(frozen=True, slots=True)
class PartView:
    """A component, or the service of a workload. ``secret``: name of its pull secret.

    ``allowed``: hosts that it can connect to; empty: all outgoing connections are refused.
    """

    name: str
    image: str
    secret: str = ""
    allowed: tuple[str, ...] = ()
    pull_policy: str = ""


@dataclass(frozen=True, slots=True)
class HostInterfaceView:
    """An entry of ``hostInterfaces``. ``configured``: keys of its configuration; ``layered``: it has other sources."""

    interfaces: frozenset[Interface]
    host: str = ""
    configured: frozenset[str] = frozenset()
    layered: bool = False

    @property
    def serves_http(self) -> bool:
        """True for ``wasi:http/incoming-handler``, which the aliases of the Service are added to."""
        return any((item.namespace, item.package, item.name) == ("wasi", "http", INCOMING) for item in self.interfaces)

    @property
    def receives_http(self) -> bool:
        """True for requests to the workload, also of wasi:http 0.3; an entry for outgoing ones needs no host name."""
        return any(
            (item.namespace, item.package) == ("wasi", "http") and item.name in HANDLERS for item in self.interfaces
        )


@dataclass(frozen=True, slots=True)
class TemplateView:
    """The spec of a Workload. ``host_id``: the host that it is pinned to; ``service``: name of its Service."""

    components: tuple[PartView, ...] = ()
    interfaces: tuple[HostInterfaceView, ...] = ()
    selector: Mapping[str, str] = field(default_factory=dict)
    host_id: str = ""
    environment: str = ""
    service: str = ""
    daemon: PartView | None = None
    """Its ``service``: a component that runs for as long as the workload."""
    omitted: int = 0
    """Number of components beyond those that are kept."""
    empty: bool = False
    """True if there is nothing to run: the API server and hosts accept that. Kept where the template is dropped."""

    @property
    def parts(self) -> tuple[PartView, ...]:
        """Everything with an image."""
        return self.components + ((self.daemon,) if self.daemon else ())

    @property
    def wanted(self) -> frozenset[Interface]:
        """All interfaces of ``hostInterfaces``."""
        return frozenset(item for entry in self.interfaces for item in entry.interfaces)


@dataclass(frozen=True, slots=True)
class WorkloadView:
    """A Workload. ``host_id``: the chosen host, "" before HostSelection; ``environment``: of its status.

    ``deleted``: when its deletion began, while the operator has not released it; Unix seconds.
    """

    meta: Meta
    spec: TemplateView
    host_id: str = ""
    environment: str = ""
    id: str = ""
    conditions: Conditions = field(default_factory=dict)
    deleted: float | None = None

    @property
    def unmet(self) -> Condition | None:
        """The first step that is not True, None if all are."""
        return first_unmet(self.conditions, STEPS)

    @property
    def ready(self) -> bool:
        """True if all steps are."""
        return self.unmet is None

    @property
    def chosen(self) -> Condition:
        """It has a host."""
        return self.condition("HostSelection")

    @property
    def starting(self) -> bool:
        """True from the choice of a host until the host has answered."""
        return self.chosen.true and not self.condition("Placement").status

    def condition(self, kind: str) -> Condition:
        """Return a condition."""
        return condition(self.conditions, kind)


def is_host_name(text: str) -> bool:
    """Return whether hosts accept a text as ``config.host``: no wildcard, port or path; they refuse the workload then.

    Source: ``wash host`` 2.7 compares Host headers with it as a whole.
    """
    return bool(_HOST.fullmatch(text)) and len(text) <= _HOST_MOST


def view_workload(manifest: object) -> WorkloadView:
    """Return the view of a Workload."""
    status, meta = mapping(manifest, "status"), view_meta(manifest)
    spec = view_template(mapping(manifest, "spec"))
    return WorkloadView(
        meta=meta,
        spec=spec,
        host_id=text(status, "hostId"),
        environment=text(status, "environment"),
        id=text(status, "workloadId") or meta.uid,
        conditions=view_conditions(status),
        deleted=_deleted(mapping(manifest, "metadata")),
    )


def _deleted(metadata: Json) -> float | None:
    return seconds(text(metadata, "deletionTimestamp")) if _FINALIZER in words(metadata, "finalizers") else None


def view_template(spec: Json) -> TemplateView:
    """Return the view of the spec of a Workload."""
    daemon = mapping(spec, "service")
    components = tuple(_part(item, text(item, "name")) for item in items(spec, "components"))
    left = omitted(spec, "components")
    return TemplateView(
        components=components,
        interfaces=tuple(_interface(item) for item in items(spec, "hostInterfaces")),
        selector=texts(spec, "hostSelector"),
        host_id=text(spec, "hostId"),
        environment=text(spec, "environment"),
        service=service_name(spec),
        daemon=_part(daemon, SERVICE) if daemon else None,
        omitted=left,
        empty=not components and not daemon and not left,
    )


def service_name(spec: Json) -> str:
    """Return the name in ``kubernetes.service``, "" if there is none."""
    return text(mapping(mapping(spec, "kubernetes"), "service"), "name")


def _part(item: Json, name: str) -> PartView:
    resources = mapping(item, "localResources")
    return PartView(
        name=name,
        image=text(item, "image"),
        secret=text(mapping(item, "imagePullSecret"), "name"),
        allowed=words(resources, "allowedHosts"),
        pull_policy=text(item, "imagePullPolicy"),
    )


def _interface(item: Json) -> HostInterfaceView:
    config = texts(item, "config")
    layered = bool(names(item, "configFrom") or names(item, "secretFrom"))
    return HostInterfaceView(interfaces_of(item), config.get("host", ""), frozenset(config), layered)
