"""Why a Service of an application leads somewhere, or nowhere: the whole chain, from its lattice to its endpoints.

Pure. In: what stands in the cluster. Out: lines, the first problem of which is the reason. Called by ``explain``.
Invariant: what only the lattice knows (which hosts run a provider) is named as such, and not guessed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from service_reflector.hosts import meets
from service_reflector.reach import read_reach
from service_reflector.views import PodView, ServiceView, SliceView
from trellis import names
from trellis.lattice.group_views import GroupView
from trellis.lattice.manifests import Listener

RUN = "start it with `trellis run service-reflector`"


@dataclass(frozen=True, slots=True)
class Line:
    """One step of the chain. ``well`` is None for what is neither good nor bad."""

    about: str
    text: str
    well: bool | None = None

    def document(self) -> dict[str, object]:
        """Return the line for JSON."""
        return {"about": self.about, "ok": self.well, "text": self.text}


@dataclass(frozen=True, slots=True)
class Warned:
    """An Event on a group of hosts: which group, its reason, what it says."""

    group: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class World:
    """What stands in the cluster. ``leader``: of service_reflector, "" if nobody leads."""

    services: Sequence[ServiceView]
    slices: Sequence[SliceView]
    groups: Sequence[GroupView]
    pods: Sequence[PodView]
    warnings: Sequence[Warned]
    leader: str


def explain_service(world: World, name: str, namespace: str | None) -> list[Line]:
    """Return the chain of the Services of a name, in one namespace or in all of them."""
    found = [one for one in world.services if one.name == name and namespace in {None, one.namespace}]
    lines = [line for one in found for line in _service(world, one)]
    if not found:
        place = f"namespace {namespace}" if namespace else "any namespace"
        lines.append(Line("service", f"there is no Service {name} in {place}", well=False))
        lines += _told(world.warnings, name)
        if len(lines) == 1:
            lines.append(Line("hint", _UNTOLD.format(name=name)))
    if world.leader:
        lines.append(Line("service-reflector", f"led by {world.leader}", well=True))
    else:
        lines.append(Line("service-reflector", f"nobody leads, so nothing follows: {RUN}", well=False))
    return lines


_UNTOLD = (
    "no Event speaks of an application {name}: is it deployed, in the lattice of a group of hosts, and does one of its "
    "capabilities have a link for wasi:http's incoming-handler? `trellis events tail --lattice LATTICE` shows events"
)


def _service(world: World, one: ServiceView) -> Iterator[Line]:
    if not one.application:
        yield Line("service", f"{one.key} mirrors no application: Trellis does not look after it", well=False)
        yield from _told(world.warnings, one.name)
        return
    manifest = one.manifest or {}
    spec = manifest.get("spec") or {}
    ports = ", ".join(f"{port.get('name', '')} {port['port']}" for port in spec.get("ports") or ())
    text = f"{one.key}, {spec.get('type')} {spec.get('clusterIP', '')}, ports {ports}"
    yield Line("service", f"{text}; it is being deleted" if one.deleting else text, well=not one.deleting)
    lattice = one.lattice.partition("/")[0]
    yield Line("application", f"{one.application} of lattice {lattice}")
    groups = [group for group in world.groups if group.lattice == one.lattice]
    if groups:
        yield Line("groups", ", ".join(sorted(group.key for group in groups)), well=True)
    else:
        yield Line("groups", f"no group of hosts is on lattice {lattice} as the Service knows it", well=False)
    keys = {group.key for group in groups}
    pods = [pod for pod in world.pods if pod.group_key in keys]
    yield from _endpoints(world, one, pods)
    yield from _told(world.warnings, one.application)


def _endpoints(world: World, one: ServiceView, pods: Sequence[PodView]) -> Iterator[Line]:
    pieces = [piece for piece in world.slices if piece.service_key == one.key]
    endpoints = {
        str((endpoint.get("targetRef") or {}).get("uid", "")): endpoint
        for piece in pieces
        for endpoint in piece.endpoints
    }
    ready = sum(bool((each.get("conditions") or {}).get("ready")) for each in endpoints.values())
    yield Line("endpoints", f"{ready} of {len(endpoints)} ready, in {len(pieces)} slices", well=ready > 0)
    if not pods:
        yield Line("hosts", "its groups have no pods: see `kubectl get wasmcloudhostconfig`", well=False)
    annotations = (one.manifest or {}).get("annotations") or {}
    listeners = read_reach(annotations.get(names.ANNOTATION_REACH, ""))
    for pod in sorted(pods, key=lambda pod: pod.key):
        yield _host(pod, listeners, endpoints.get(pod.uid))


def _host(pod: PodView, listeners: Sequence[Listener], endpoint: Mapping[str, Any] | None) -> Line:
    where = f"{pod.key} {', '.join(pod.addresses) or 'without an address'}"
    if pod.terminating:
        return Line("host", f"{where}: it is ending", well=False)
    if not pod.serving:
        return Line(
            "host", f"{where}: its pod is not ready: `kubectl describe pod -n {pod.namespace} {pod.name}`", False
        )
    if endpoint is not None:
        return Line("host", f"{where}: an endpoint", well=True)
    if not any(meets(one, pod, None) for one in listeners):
        asked = " or ".join(sorted({_labels(each) for one in listeners for each in one.requirements}))
        return Line("host", f"{where}: does not have the labels that the scaler asks for: {asked}", well=False)
    why = "fits, and is no endpoint: the lattice says that it does not run the provider, or nothing follows now"
    return Line("host", f"{where}: {why}", well=False)


def _labels(requirement: Sequence[tuple[str, str]]) -> str:
    return ",".join(f"{key}={value}" for key, value in requirement)


def _told(warnings: Sequence[Warned], application: str) -> Iterator[Line]:
    """Yield what Events on groups say of an application."""
    for one in warnings:
        if f"application {application} " in one.message or f"application {application}," in one.message:
            yield Line("event", f"{one.reason} on {one.group}: {one.message}", well=False)
