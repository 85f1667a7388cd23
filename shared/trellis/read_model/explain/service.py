"""State of the Service of an application, and its cause, from its lattice to its endpoints.

Pure. In: the objects in the cluster. Out: health, and the page. Called by ``explain`` and ``entities``.
Invariant: information that only the lattice has (the hosts that run a provider) is named as such, and not guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from trellis import names
from trellis.lattice.domain.cached_listeners import meets, read_cached_listeners
from trellis.lattice.domain.group_views import GroupView, lattice_name
from trellis.lattice.domain.manifests import Listener
from trellis.lattice.domain.service_views import PodView, ServiceView, SliceView
from trellis.read_model.explain.page import Explanation, Line, Rank, reason_and_message, warnings_of
from trellis.read_model.explain.subject import Absence, Beside, Subject
from trellis.read_model.health import Health, Verdict

REFLECTOR: Final = "service-reflector"
REFUSED: Final = re.compile(r"cannot [A-Z]+ Service (?P<namespace>[^/\s]+)/(?P<name>[^:\s]+): (?P<why>.*)", re.DOTALL)
"""Message of service_reflector's Event on a host group about a Service that the API server rejects."""
PRESERVED: Final = frozenset({"HostGroupInvalid", "LatticeUnreachable", "HostGroupMissing"})
"""Reasons of Events on a Service that is kept although no host group names its lattice."""
NO_ENDPOINTS: Final = "NoReadyEndpoints"
_SHOWN: Final = 10
SUBJECT: Final = Subject("Service", "service", "kubectl get services -A")


@dataclass(frozen=True, slots=True)
class Warned:
    """An Event on a host group: the group, the reason, the message."""

    group: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class ServiceSnapshot:
    """Objects in the cluster. ``groups``: None while the API server does not serve the kind."""

    service: ServiceView
    slices: Sequence[SliceView]
    groups: Sequence[GroupView] | None
    pods: Sequence[PodView]
    warnings: Sequence[Warned] = ()
    beside: Beside = field(default_factory=Beside)


def explain_service(snapshot: ServiceSnapshot) -> Explanation:
    """Return the page of a Service."""
    item = snapshot.service
    metadata = {"namespace": item.namespace, "name": item.name, "uid": item.uid}
    ready = sum(bool((each.get("conditions") or {}).get("ready")) for each in _by_pod(_pieces(snapshot)).values())
    verdict = service_health(ready, deleting=item.deleting) if item.application else None
    return SUBJECT.page({"metadata": metadata}, _chain(snapshot), snapshot.beside, verdict)


def service_health(ready: int, *, deleting: bool) -> Verdict:
    """Return the health of a reflected Service by its number of ready endpoints."""
    if deleting:
        return Verdict(Health.PROGRESSING, "Deleting", "it is being deleted")
    if not ready:
        return Verdict(Health.DEGRADED, NO_ENDPOINTS, "it has no ready endpoint")
    return Verdict(Health.HEALTHY, "EndpointsReady")


def explain_no_service(
    wanted: tuple[str, str | None], absence: Absence, warnings: Sequence[Warned], beside: Beside
) -> Explanation:
    """Return the page of a Service that does not exist; ``wanted``: its name and namespace."""
    name, namespace = wanted
    refused = [warning for warning in warnings if _is_of(warning, name, namespace)]
    lines = [*_lines(refused, Rank.CAUSE), *events_about(warnings, name, Rank.CAUSE)]
    hints = lines or [Line("hint", _UNTOLD.format(name=name))]
    return SUBJECT.absent(name, namespace, absence, *hints, *beside.lines())


def _is_of(warned: Warned, name: str, namespace: str | None) -> bool:
    """Return whether a warning reports that the API server rejects a Service; ``namespace`` None means any."""
    found = REFUSED.match(warned.message)
    return found is not None and found["name"] == name and namespace in {None, found["namespace"]}


_UNTOLD = (
    "no Event is about application {name}: check that it is deployed in the lattice of a host group, and that one of "
    "its capabilities has a link for wasi:http's incoming-handler; `trellis events tail --lattice LATTICE` shows events"
)


def _chain(snapshot: ServiceSnapshot) -> Iterator[Line]:
    item = snapshot.service
    if not item.application:
        lines = [*events_about(snapshot.warnings, item.name, Rank.CAUSE)]
        text, do = f"{item.key} reflects no application", "it is not managed by Trellis; its owner maintains it"
        rank = Rank.SYMPTOM if lines else Rank.CAUSE
        yield Line("service", text, False, do, rank, "NotReflected", Health.UNKNOWN)
        yield from lines
        return
    manifest = item.manifest()
    spec = manifest.get("spec") or {}
    ports = ", ".join(f"{port.get('name', '')} {port['port']}" for port in spec.get("ports") or ())
    text = f"{item.key}, {spec.get('type')} {spec.get('clusterIP', '')}, ports {ports}"
    yield Line("service", f"{text}; it is being deleted" if item.deleting else text, ok=not item.deleting)
    lattice = lattice_name(item.lattice)
    yield Line("application", f"{item.application} of lattice {lattice}")
    groups = [group for group in snapshot.groups or () if group.lattice == item.lattice]
    group_line = _groups(snapshot, groups)
    keys = {group.key for group in groups}
    pods = [pod for pod in snapshot.pods if pod.group_key in keys]
    endpoints = [*_endpoints(snapshot, item, pods)]
    # An Event stays for an hour: while there are ready endpoints, its cause can be gone.
    leads = any(line.about == "endpoints" and line.ok for line in endpoints)
    yield replace(group_line, rank=Rank.ASIDE) if leads else group_line
    yield from endpoints
    yield from events_about(snapshot.warnings, item.application, Rank.ASIDE if leads else Rank.CAUSE)


def _groups(snapshot: ServiceSnapshot, groups: Sequence[GroupView]) -> Line:
    """Return the host groups of a Service's lattice; without one, the reason that the Service exists."""
    item = snapshot.service
    lattice = lattice_name(item.lattice)
    if snapshot.groups is None:
        text = f"the host groups of lattice {lattice} are unknown, and the Service is kept until they are known"
        do = "`trellis crds check` shows the state of the kind"
        return Line("groups", text, False, do, Rank.CAUSE, "HostGroupsUnknown")
    preserved = (event for event in warnings_of(snapshot.beside.events, item.uid) if event.get("reason") in PRESERVED)
    if groups:
        return Line("groups", ", ".join(sorted(group.key for group in groups)), ok=True)
    if (event := next(preserved, None)) is not None:
        return Line(
            "groups", reason_and_message(event), ok=False, rank=Rank.CAUSE, reason=str(event.get("reason") or "")
        )
    if snapshot.beside.notes:
        return Line("groups", f"none of lattice {lattice} that this account can read")
    text = f"no host group has lattice {lattice} with the NATS address and credentials that the Service was created for"
    return Line("groups", text, ok=False, rank=Rank.CAUSE, reason="HostGroupMissing")


def _endpoints(snapshot: ServiceSnapshot, service: ServiceView, pods: Sequence[PodView]) -> Iterator[Line]:
    pieces = _pieces(snapshot)
    endpoints = _by_pod(pieces)
    ready = sum(bool((each.get("conditions") or {}).get("ready")) for each in endpoints.values())
    text = f"{ready} of {len(endpoints)} ready, in {len(pieces)} slices"
    yield Line("endpoints", text, ok=ready > 0, reason=NO_ENDPOINTS, state=Health.DEGRADED)
    if not pods and not snapshot.beside.notes:
        do = "`trellis explain hostgroup/NAME` shows the cause"
        yield Line("hosts", "its host groups have no pods", False, do, Rank.ASIDE if ready else Rank.CAUSE, "NoHosts")
    annotations = service.manifest().get("annotations") or {}
    listeners = read_cached_listeners(annotations.get(names.ANNOTATION_CACHED_LISTENERS, ""))
    lines = [_host(pod, listeners, endpoints.get(pod.uid)) for pod in sorted(pods, key=lambda pod: pod.key)]
    if len(lines) > _SHOWN:
        lines = sorted(lines, key=lambda line: bool(line.ok))
    # A host that is no endpoint is no trouble while another one is; if none is, the first is the cause.
    yield from (replace(line, rank=Rank.ASIDE if ready else Rank.CAUSE) for line in lines[:_SHOWN])
    if len(lines) > _SHOWN:
        more = sum(bool(line.ok) for line in lines[_SHOWN:])
        yield Line("host", f"and {len(lines) - _SHOWN} more, {more} of them endpoints")


def _pieces(snapshot: ServiceSnapshot) -> list[SliceView]:
    return [piece for piece in snapshot.slices if piece.service_key == snapshot.service.key]


def _by_pod(pieces: Iterable[SliceView]) -> dict[str, Mapping[str, Any]]:
    """Return endpoints by the uid of their pod."""
    return {
        str((endpoint.get("targetRef") or {}).get("uid", "")): endpoint
        for piece in pieces
        for endpoint in piece.endpoints
    }


def _host(pod: PodView, listeners: Sequence[Listener], endpoint: Mapping[str, Any] | None) -> Line:
    where = f"{pod.key} {', '.join(pod.addresses) or 'without an address'}"
    if pod.terminating:
        return Line("host", f"{where}: its pod is terminating", ok=False)
    if not pod.serving:
        see = f"`kubectl describe pod -n {pod.namespace} {pod.name}`"
        return Line("host", f"{where}: its pod is not ready", False, see)
    if endpoint is not None:
        return Line("host", f"{where}: an endpoint", ok=True)
    if not any(meets(listener, pod, None) for listener in listeners):
        labels = " or ".join(sorted({_labels(each) for listener in listeners for each in listener.requirements}))
        return Line("host", f"{where}: does not have the labels of the scaler: {labels}", ok=False)
    reason = (
        "matches the scaler but is not an endpoint: the host does not run the provider, or the lattice is not followed"
    )
    return Line("host", f"{where}: {reason}", ok=False)


def _labels(requirement: Sequence[tuple[str, str]]) -> str:
    return ",".join(f"{key}={value}" for key, value in requirement)


def events_about(warnings: Sequence[Warned], application: str, rank: Rank) -> Iterator[Line]:
    """Yield Events on groups about an application, each once, with all groups that have it."""
    begins = (f"application {application} ", f"application {application},")
    yield from _lines([warning for warning in warnings if any(prefix in warning.message for prefix in begins)], rank)


def _lines(warnings: Iterable[Warned], rank: Rank) -> Iterator[Line]:
    groups: dict[tuple[str, str], list[str]] = {}
    for warning in warnings:
        groups.setdefault((warning.reason, warning.message), []).append(warning.group)
    for (reason, message), of in groups.items():
        yield Line("event", f"{reason} on {', '.join(sorted(set(of)))}: {message}", False, "", rank, reason)
