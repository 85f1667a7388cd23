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
from trellis.lattice.domain.running import Running
from trellis.lattice.domain.service_views import PodView, RouteView, ServiceView, SliceView


@dataclass(frozen=True, slots=True)
class Claim:
    """An application of a lattice that is to have a Service in the namespace.

    ``pods``: of the lattice's hosts, in whatever namespace. ``hosts``: by name of a pod the host in it, as the lattice
    tells. ``running``: what was said of providers. ``group``: whom Events about it regard. ``remembered``: it is what
    its Service says, as nothing is known of its lattice yet. ``groups``: keys of the lattice's host groups.
    """

    lattice: str
    application: Application
    options: ServiceOptions
    pods: tuple[PodView, ...]
    hosts: Mapping[str, Sighting]
    running: Running
    group: GroupView | None
    remembered: bool = False
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Refused:
    """An application asks for what it cannot have: a reason, a sentence, and whom the Event regards."""

    reason: str
    message: str
    group: GroupView


@dataclass(frozen=True, slots=True)
class Preserved:
    """A Service that stays although no host group names its lattice: why, and the groups that decide on it."""

    service: ServiceView
    reason: str
    message: str
    groups: tuple[GroupView, ...] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One application's name in one namespace. ``claims`` in the order in which they may choose a name.

    ``services``: ours of that application, and what has its plain name, by name; ``slices`` and ``routes`` by Service.
    ``owners``: by name the lattice that a Service belongs to now, where that is not the one it names.
    ``preserved``: Services that wait for an answer or a host group; ``look_again``: seconds until one of them waits no
    more. ``unknown``: marks of lattices of which it is not known whether they have it; ``sure``: all of the namespace's
    are.
    ``awaited``: slices that are kept for a Service of which it is not known whether it is to be made again.
    ``terminating``: the namespace is going. ``remove_finalizers``: this service is to be uninstalled.
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
        """Return the mark of the lattice that a Service belongs to now."""
        return self.owners.get(service.name, service.lattice)
