"""The actions on the Services of an application. Pure; created by ``decide``, carried out by ``apply``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from service_reflector.domain.resources import Mirror
from service_reflector.domain.slices import Slice
from trellis.lattice.domain.group_views import GroupView
from trellis.lattice.domain.service_views import RouteView, ServiceView, SliceView
from trellis.limits.breaker import Destruction

Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CreateService:
    """Make a Service. ``former``: spec of the one in whose place it comes, whose addresses it is to have."""

    mirror: Mirror
    message: str
    former: Mapping[str, Any] | None = None
    reason: str = "Reflected"


@dataclass(frozen=True, slots=True)
class PatchService:
    """Make a Service what it is to be."""

    mirror: Mirror
    found: ServiceView
    patch: Mapping[str, Any]
    message: str
    reason: str = "Reflected"


@dataclass(frozen=True, slots=True)
class RemoveFinalizer:
    """Take from a Service the finalizer that former versions put on it."""

    found: ServiceView
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class RemoveService:
    """Delete a Service, with leave of the circuit breaker; what it owns goes with it."""

    found: ServiceView
    reason: str
    message: str
    target: Destruction


@dataclass(frozen=True, slots=True)
class WriteSlice:
    """Make an EndpointSlice, or make it what it is to be."""

    service: str
    wanted: Slice
    reason: str = "EndpointsChanged"


@dataclass(frozen=True, slots=True)
class DeleteSlice:
    """Delete an EndpointSlice that nothing is in any more."""

    found: SliceView
    reason: str = "EndpointsChanged"


@dataclass(frozen=True, slots=True)
class WriteRoute:
    """Make an HTTPRoute, or make it what it is to be."""

    service: str
    spec: Mapping[str, Any]
    found: RouteView | None
    reason: str = "Reflected"


@dataclass(frozen=True, slots=True)
class DeleteRoute:
    """Delete an HTTPRoute that is not asked for any more."""

    found: RouteView
    reason: str = "Reflected"


@dataclass(frozen=True, slots=True)
class DropOthers:
    """Delete the endpoints that others made for a Service which is ours now, and say that this is done."""

    service: str
    reason: str = "Adopted"


@dataclass(frozen=True, slots=True)
class Warn:
    """Tell people, by an Event on a host group."""

    group: GroupView
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class WarnService:
    """Record an Event on a Service."""

    service: ServiceView
    reason: str
    message: str


Action = (
    CreateService
    | PatchService
    | RemoveFinalizer
    | RemoveService
    | WriteSlice
    | DeleteSlice
    | WriteRoute
    | DeleteRoute
    | DropOthers
    | Warn
    | WarnService
)
