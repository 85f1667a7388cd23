"""Decides which lattice a Service belongs to, and whether that lattice has answered that it lacks the application.

Pure. In: a Service, the host groups, what lattices answered. Out: an :class:`Owner`. Called by ``gather``.
The ID of a lattice is the spelling of a connection: address, port, names of Secrets. A Service records its lattice ID
and the host groups that named it. The lattice ID is where the Service was found; the host groups are its owners.

    lattice ID named by a host group ──► that lattice decides
    lattice ID named by none
      ├─ host groups unknown (CRD not served)          ──► undecided
      ├─ a recorded group still exists, or its namespace has a group of a lattice with the same name
      │    ├─ one of their lattices has the application ──► the Service is handed over to it, in place
      │    ├─ one of them has no valid spec, or its lattice has not answered ──► undecided
      │    └─ all of them answered that they lack it    ──► the Service is deleted
      └─ no such group                  ──► undecided for a grace period, then the Service is deleted

Invariant: a Service is deleted only after an answer about its application, or after the grace period without a host
group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from trellis import names
from trellis.lattice.domain.group_views import GroupView, lattice_name
from trellis.lattice.domain.service_views import ServiceView


class Undecided(StrEnum):
    """Reason why it is not known whether a Service stays."""

    NO_ANSWER = "NoAnswer"
    """Its lattice has not reported its applications since this process started to follow it."""
    GROUPS_UNKNOWN = "HostGroupsUnknown"
    GROUP_INVALID = "HostGroupInvalid"
    LATTICE_UNREACHABLE = "LatticeUnreachable"
    GROUP_MISSING = "HostGroupMissing"


@dataclass(frozen=True, slots=True)
class Owner:
    """ID of the lattice that a Service belongs to. ``groups``: those whose lattices are queried instead, if any."""

    lattice: str
    undecided: Undecided | None = None
    groups: tuple[GroupView, ...] = ()


@dataclass(frozen=True, slots=True)
class HostGroups:
    """Host groups as ``ownership`` reads them. ``known``: the API server serves the CRD.

    ``by_lattice`` and ``by_namespace``: by lattice ID or namespace, then by ``namespace/name``. ``grace_left`` returns
    the seconds for which the Services of a lattice without a host group stay.
    """

    known: Callable[[], bool]
    all: Mapping[str, GroupView]
    by_lattice: Mapping[str, Mapping[str, GroupView]]
    by_namespace: Mapping[str, Mapping[str, GroupView]]
    grace_left: Callable[[str], float]


Answers = Callable[[str, str], bool | None]
"""By lattice ID and application: whether the lattice has it deployed; None while it has not answered."""


def recorded_groups(service: ServiceView) -> tuple[str, ...]:
    """Return ``namespace/name`` of the host groups that a Service records."""
    annotations: Mapping[str, Any] = service.manifest().get("annotations") or {}
    return tuple(str(annotations.get(names.ANNOTATION_HOST_GROUPS) or "").split())


def owner_of(service: ServiceView, groups: HostGroups, answers: Answers) -> Owner:
    """Return which lattice a Service of an application belongs to."""
    lattice_id = service.lattice
    if lattice_id in groups.by_lattice:
        return Owner(lattice_id, None if answers(lattice_id, service.application) is not None else Undecided.NO_ANSWER)
    if not groups.known():
        return Owner(lattice_id, Undecided.GROUPS_UNKNOWN)
    after = tuple(successors(service, groups))
    if not after:
        to_delete = (
            answers(lattice_id, service.application) is False or service.deleting or groups.grace_left(lattice_id) <= 0
        )
        return Owner(lattice_id, None if to_delete else Undecided.GROUP_MISSING)
    found = {group.lattice: answers(group.lattice, service.application) for group in after if group.lattice}
    for lattice, deployed in found.items():
        if deployed:
            return Owner(lattice)
    if any(not group.lattice for group in after):
        return Owner(lattice_id, Undecided.GROUP_INVALID, after)
    if None in found.values():
        return Owner(lattice_id, Undecided.LATTICE_UNREACHABLE, after)
    return Owner(lattice_id)


def successors(service: ServiceView, groups: HostGroups) -> Iterator[GroupView]:
    """Yield the host groups whose lattices decide on a Service whose lattice ID no group names, the oldest first.

    These are the groups that it records, even if their lattices changed; without one, groups of their namespaces on a
    lattice of the same name. Groups of other namespaces are excluded: lattices of two tenants may have the same name.
    """
    recorded = recorded_groups(service)
    found = [group for key in recorded if (group := groups.all.get(key)) is not None]
    if not found:
        places = {key.partition("/")[0] for key in recorded} or {service.namespace}
        found = [
            group
            for place in places
            for group in groups.by_namespace.get(place, {}).values()
            if lattice_name(group.lattice) == lattice_name(service.lattice)
        ]
    yield from _by_age(found)


def _by_age(groups: Iterable[GroupView]) -> list[GroupView]:
    return sorted(groups, key=lambda group: (group.created, group.key))
