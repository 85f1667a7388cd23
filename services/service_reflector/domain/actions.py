"""The actions on the Services of an application. Pure; created by ``decide``, carried out by ``apply``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from service_reflector.domain.resources import ReflectedService
from service_reflector.domain.slices import Slice
from trellis.lattice.domain.group_views import GroupView
from trellis.lattice.domain.service_views import RouteView, ServiceView, SliceView
from trellis.limits.breaker import Deletion

Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CreateService:
    """Create a Service. ``former``: spec of the one that it replaces and whose addresses it gets."""

    target: ReflectedService
    message: str
    former: Mapping[str, Any] | None = None
    reason: str = "Reflected"


@dataclass(frozen=True, slots=True)
class PatchService:
    """Update a Service to its target state."""

    target: ReflectedService
    found: ServiceView
    patch: Mapping[str, Any]
    message: str
    reason: str = "Reflected"


@dataclass(frozen=True, slots=True)
class RemoveFinalizer:
    """Remove from a Service the finalizer that former versions added."""

    found: ServiceView
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class RemoveService:
    """Delete a Service, with permission of the circuit breaker; the objects that it owns are deleted with it."""

    found: ServiceView
    reason: str
    message: str
    target: Deletion


@dataclass(frozen=True, slots=True)
class WriteSlice:
    """Create or update an EndpointSlice."""

    service: str
    wanted: Slice
    reason: str = "EndpointsChanged"


@dataclass(frozen=True, slots=True)
class DeleteSlice:
    """Delete an EndpointSlice that is no longer used."""

    found: SliceView
    reason: str = "EndpointsChanged"


@dataclass(frozen=True, slots=True)
class WriteRoute:
    """Create or update an HTTPRoute."""

    service: str
    spec: Mapping[str, Any]
    found: RouteView | None
    reason: str = "Reflected"


@dataclass(frozen=True, slots=True)
class DeleteRoute:
    """Delete an HTTPRoute that is no longer requested."""

    found: RouteView
    reason: str = "Reflected"


@dataclass(frozen=True, slots=True)
class DropOthers:
    """Delete the endpoints that other controllers created for an adopted Service, and record that this is done."""

    service: str
    reason: str = "Adopted"


@dataclass(frozen=True, slots=True)
class Warn:
    """Record an Event on a host group."""

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
