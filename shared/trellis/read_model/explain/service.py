"""Why a Service of an application leads somewhere, or nowhere: the whole chain, from its lattice to its endpoints.

Pure. In: what stands in the cluster. Out: the page. Called by ``explain``.
Invariant: what only the lattice knows (which hosts run a provider) is named as such, and not guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from trellis import names
from trellis.lattice.domain.group_views import GroupView, lattice_name
from trellis.lattice.domain.manifests import Listener
from trellis.lattice.domain.reach import meets, read_reach
from trellis.lattice.domain.service_views import PodView, ServiceView, SliceView
from trellis.read_model.explain.page import Explanation, Line, Rank, warnings_of, words
from trellis.read_model.explain.subject import Absence, Beside, Subject

REFLECTOR: Final = "service-reflector"
REFUSED: Final = re.compile(r"cannot [A-Z]+ Service (?P<namespace>[^/\s]+)/(?P<name>[^:\s]+): (?P<why>.*)", re.DOTALL)
"""What service_reflector reports on a group of hosts of a Service that the API server refuses."""
PRESERVED: Final = frozenset({"HostGroupInvalid", "LatticeUnreachable", "HostGroupMissing"})
"""Reasons of Events on a Service that stays although no group of hosts names its lattice."""
_SHOWN: Final = 10
SUBJECT: Final = Subject("Service", "service", "kubectl get services -A")


@dataclass(frozen=True, slots=True)
class Warned:
    """An Event on a group of hosts: which group, its reason, what it says."""

    group: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class World:
    """What stands in the cluster. ``groups``: None while the API server does not serve the kind."""

    service: ServiceView
    slices: Sequence[SliceView]
    groups: Sequence[GroupView] | None
    pods: Sequence[PodView]
    warnings: Sequence[Warned] = ()
    beside: Beside = field(default_factory=Beside)


def explain_service(world: World) -> Explanation:
    """Return the page of a Service."""
    one = world.service
    metadata = {"namespace": one.namespace, "name": one.name, "uid": one.uid}
    return SUBJECT.page({"metadata": metadata}, _chain(world), world.beside)


def explain_no_service(
    asked: tuple[str, str | None], absence: Absence, warnings: Sequence[Warned], beside: Beside
) -> Explanation:
    """Return the page of a Service that is not there; ``asked``: its name and namespace."""
    name, namespace = asked
    refused = [one for one in warnings if _is_of(one, name, namespace)]
    told = [*_lines(refused, Rank.CAUSE), *told_of(warnings, name, Rank.CAUSE)]
    hints = told or [Line("hint", _UNTOLD.format(name=name))]
    return SUBJECT.absent(name, namespace, absence, *hints, *beside.lines())


def _is_of(warned: Warned, name: str, namespace: str | None) -> bool:
    """Say whether a warning tells that the API server refuses a Service; ``namespace`` None means any."""
    found = REFUSED.match(warned.message)
    return found is not None and found["name"] == name and namespace in {None, found["namespace"]}


_UNTOLD = (
    "no Event speaks of an application {name}: is it deployed, in the lattice of a group of hosts, and does one of its "
    "capabilities have a link for wasi:http's incoming-handler? `trellis events tail --lattice LATTICE` shows events"
)


def _chain(world: World) -> Iterator[Line]:
    one = world.service
    if not one.application:
        told = [*told_of(world.warnings, one.name, Rank.CAUSE)]
        text, do = f"{one.key} mirrors no application", "Trellis does not look after it, whoever made it does"
        yield Line("service", text, False, do, Rank.SYMPTOM if told else Rank.CAUSE)
        yield from told
        return
    manifest = one.manifest or {}
    spec = manifest.get("spec") or {}
    ports = ", ".join(f"{port.get('name', '')} {port['port']}" for port in spec.get("ports") or ())
    text = f"{one.key}, {spec.get('type')} {spec.get('clusterIP', '')}, ports {ports}"
    yield Line("service", f"{text}; it is being deleted" if one.deleting else text, well=not one.deleting)
    lattice = lattice_name(one.lattice)
    yield Line("application", f"{one.application} of lattice {lattice}")
    groups = [group for group in world.groups or () if group.lattice == one.lattice]
    yield _groups(world, groups)
    keys = {group.key for group in groups}
    pods = [pod for pod in world.pods if pod.group_key in keys]
    endpoints = [*_endpoints(world, one, pods)]
    yield from endpoints
    # An Event stays for an hour: where it leads to a host by now, that it told of something need not be so any more.
    leads = any(line.about == "endpoints" and line.well for line in endpoints)
    yield from told_of(world.warnings, one.application, Rank.ASIDE if leads else Rank.CAUSE)


def _groups(world: World, groups: Sequence[GroupView]) -> Line:
    """Return which groups of hosts are on the lattice of a Service; without one, what becomes of the Service."""
    one = world.service
    lattice = lattice_name(one.lattice)
    if world.groups is None:
        text = f"which group of hosts is on lattice {lattice} is not known, and it is not deleted until that is"
        return Line("groups", text, False, "`trellis crds check` tells of the kind", Rank.CAUSE)
    told = (event for event in warnings_of(world.beside.events, one.uid) if event.get("reason") in PRESERVED)
    if groups:
        return Line("groups", ", ".join(sorted(group.key for group in groups)), well=True)
    if (event := next(told, None)) is not None:
        return Line("groups", words(event), well=False, rank=Rank.CAUSE)
    if world.beside.notes:
        return Line("groups", f"none on lattice {lattice} that this account may read")
    text = f"no group of hosts is on lattice {lattice} as the Service knows it"
    return Line("groups", text, well=False, rank=Rank.CAUSE)


def _endpoints(world: World, one: ServiceView, pods: Sequence[PodView]) -> Iterator[Line]:
    pieces = [piece for piece in world.slices if piece.service_key == one.key]
    endpoints = {
        str((endpoint.get("targetRef") or {}).get("uid", "")): endpoint
        for piece in pieces
        for endpoint in piece.endpoints
    }
    ready = sum(bool((each.get("conditions") or {}).get("ready")) for each in endpoints.values())
    yield Line("endpoints", f"{ready} of {len(endpoints)} ready, in {len(pieces)} slices", well=ready > 0)
    if not pods and not world.beside.notes:
        do = "`trellis explain hostgroup/NAME` says why"
        yield Line("hosts", "its groups have no pods", False, do, Rank.CAUSE)
    annotations = (one.manifest or {}).get("annotations") or {}
    listeners = read_reach(annotations.get(names.ANNOTATION_CACHED_LISTENERS, ""))
    lines = [_host(pod, listeners, endpoints.get(pod.uid)) for pod in sorted(pods, key=lambda pod: pod.key)]
    if len(lines) > _SHOWN:
        lines = sorted(lines, key=lambda line: bool(line.well))
    # One host of several that is none is no trouble; where none is one, the first says why.
    yield from (replace(line, rank=Rank.ASIDE if ready else Rank.CAUSE) for line in lines[:_SHOWN])
    if len(lines) > _SHOWN:
        more = sum(bool(line.well) for line in lines[_SHOWN:])
        yield Line("host", f"and {len(lines) - _SHOWN} more, {more} of them endpoints")


def _host(pod: PodView, listeners: Sequence[Listener], endpoint: Mapping[str, Any] | None) -> Line:
    where = f"{pod.key} {', '.join(pod.addresses) or 'without an address'}"
    if pod.terminating:
        return Line("host", f"{where}: it is ending", well=False)
    if not pod.serving:
        see = f"`kubectl describe pod -n {pod.namespace} {pod.name}`"
        return Line("host", f"{where}: its pod is not ready", False, see)
    if endpoint is not None:
        return Line("host", f"{where}: an endpoint", well=True)
    if not any(meets(one, pod, None) for one in listeners):
        asked = " or ".join(sorted({_labels(each) for one in listeners for each in one.requirements}))
        return Line("host", f"{where}: does not have the labels that the scaler asks for: {asked}", well=False)
    why = "fits, and is no endpoint: the lattice says that it does not run the provider, or nothing follows now"
    return Line("host", f"{where}: {why}", well=False)


def _labels(requirement: Sequence[tuple[str, str]]) -> str:
    return ",".join(f"{key}={value}" for key, value in requirement)


def told_of(warnings: Sequence[Warned], application: str, rank: Rank) -> Iterator[Line]:
    """Yield what Events on groups say of an application, each once: what is told of two groups is one thing."""
    begins = (f"application {application} ", f"application {application},")
    yield from _lines([one for one in warnings if any(words in one.message for words in begins)], rank)


def _lines(warnings: Iterable[Warned], rank: Rank) -> Iterator[Line]:
    groups: dict[tuple[str, str], list[str]] = {}
    for one in warnings:
        groups.setdefault((one.reason, one.message), []).append(one.group)
    for (reason, message), of in groups.items():
        yield Line("event", f"{reason} on {', '.join(sorted(set(of)))}: {message}", well=False, rank=rank)
