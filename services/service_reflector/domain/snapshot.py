"""The snapshot that a decision about the Services of one application in one namespace depends on.

Pure. Filled by ``gather``, read by ``decide``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from service_reflector.domain.service_options import ServiceOptions
from trellis.lattice.domain.group_views import GroupView
from trellis.lattice.domain.hosts import Sighting
from trellis.lattice.domain.manifests import Application
from trellis.lattice.domain.provider_hosts import ProviderHosts
from trellis.lattice.domain.service_views import PodView, RouteView, ServiceView, SliceView


@dataclass(frozen=True, slots=True)
class Claim:
    """An application of a lattice that is to have a Service in the namespace.

    ``pods``: of the lattice's hosts, in any namespace. ``hosts``: reporting hosts by the names of their pods.
    ``running``: reported providers. ``group``: object of its Events. ``remembered``: it was read from its Service,
    because the state of the lattice is unknown. ``groups``: keys of the lattice's host groups.
    """

    lattice: str
    application: Application
    options: ServiceOptions
    pods: tuple[PodView, ...]
    hosts: Mapping[str, Sighting]
    running: ProviderHosts
    group: GroupView | None
    remembered: bool = False
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Refused:
    """A refused request of an application: reason, message, and the object of the Event."""

    reason: str
    message: str
    group: GroupView


@dataclass(frozen=True, slots=True)
class Preserved:
    """A Service that stays although no host group names its lattice: the reason, and the groups that decide on it."""

    service: ServiceView
    reason: str
    message: str
    groups: tuple[GroupView, ...] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One application name in one namespace. ``claims``: in the order in which they may choose a name.

    ``services``: the Services of that application, and the one with its plain name, by name; ``slices`` and ``routes``
    by Service. ``owners``: by name, the lattice that a Service belongs to now. ``preserved``: Services that wait for an
    answer or a host group; ``look_again``: seconds until one of them no longer waits. ``unknown``: IDs of lattices
    that may have the application or not; ``sure``: all lattices of the namespace have answered.
    ``awaited``: slices that are kept for a deleted Service that may be re-created.
    ``terminating``: the namespace is terminating. ``remove_finalizers``: this service is to be uninstalled.
    """

    namespace: str
    name: str
    claims: tuple[Claim, ...] = ()
    refused: tuple[Refused, ...] = ()
    services: Mapping[str, ServiceView] = field(default_factory=dict)
    slices: Mapping[str, tuple[SliceView, ...]] = field(default_factory=dict)
    routes: Mapping[str, RouteView] = field(default_factory=dict)
    unknown: frozenset[str] = frozenset()
    awaited: tuple[SliceView, ...] = ()
    sure: bool = False
    terminating: bool = False
    remove_finalizers: bool = False
    owners: Mapping[str, str] = field(default_factory=dict)
    preserved: tuple[Preserved, ...] = ()
    look_again: float | None = None

    def lattice_of(self, service: ServiceView) -> str:
        """Return the ID of the lattice that a Service belongs to now."""
        return self.owners.get(service.name, service.lattice)
