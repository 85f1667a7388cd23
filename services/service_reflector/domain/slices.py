"""Selects the hosts of each port, and packs these endpoints into EndpointSlices with few changes.

Pure. In: the claim of an application, the present slices. Out: the target slices. Called by ``decide``. Invariants: at
most 100 endpoints per slice; an endpoint stays in its slice while it exists, so the change of one pod writes one slice;
an empty slice is kept for the next endpoint, unless another has space. Source: discovery.k8s.io/v1 EndpointSlice: one
address type and one list of ports for all endpoints of a slice.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from service_reflector.domain.snapshot import Claim
from trellis import names
from trellis.installer_api.parse_int import whole
from trellis.lattice.domain.addresses import Family
from trellis.lattice.domain.cached_listeners import meets
from trellis.lattice.domain.manifests import Listener, Protocol
from trellis.lattice.domain.preserved import write_preserved
from trellis.lattice.domain.service_views import PodView, ServiceView, SliceView

Manifest = Mapping[str, Any]

ENDPOINTS_MAX: Final = 100
FAMILIES: Final = (Family.IPV4, Family.IPV6)


@dataclass(frozen=True, slots=True)
class EndpointSet:
    """Ports that the same hosts serve. ``name``: permanent and unique within the Service."""

    name: str
    ports: tuple[tuple[str, int, str], ...]
    """Name, number, application protocol ("" for none)."""
    families: tuple[Family, ...]
    pods: tuple[PodView, ...]


@dataclass(frozen=True, slots=True)
class Slice:
    """Target state of a slice. ``found``: its present state.

    ``keeps``: application and lattice of the Service whose addresses it keeps; None: it is owned by the Service.
    """

    name: str
    service: str
    family: str
    ports: tuple[Manifest, ...]
    endpoints: tuple[Manifest, ...]
    found: SliceView | None = None
    keeps: tuple[str, str] | None = None

    def differs(self, service: ServiceView) -> bool:
        """Return whether the present slice differs, or is not tied to this Service in its present state."""
        item = self.found
        ties = (service.uid, "") if self.keeps is None else ("", write_preserved(*self.keeps, service))
        return item is None or (item.owner, item.preserved, item.ports, item.endpoints) != (
            *ties,
            self.ports,
            self.endpoints,
        )


def endpoint_sets_of(claim: Claim, listeners: Iterable[tuple[str, Listener]]) -> list[EndpointSet]:
    """Return the ports of a Service, grouped by the hosts that serve them; ``listeners``: by the names of the ports."""
    together: dict[tuple[object, ...], list[tuple[str, Listener]]] = {}
    for name, listener in listeners:
        same = (listener.requirements, listener.providers, listener.family)
        together.setdefault(same, []).append((name, listener))
    endpoint_sets: list[EndpointSet] = []
    for group in together.values():
        first = group[0][1]
        ports = tuple(
            (name, item.port, Protocol.HTTP.value if item.protocol is Protocol.HTTP else "") for name, item in group
        )
        families = FAMILIES if first.family is Family.ANY else (first.family,)
        pods = _hosts_for(first, claim)
        if first.family is Family.ANY and not any(":" in address for pod in pods for address in pod.addresses):
            families = (Family.IPV4,)
        endpoint_sets.append(EndpointSet(min(name for name, _ in group), ports, families, pods))
    return endpoint_sets


def _hosts_for(listener: Listener, claim: Claim) -> tuple[PodView, ...]:
    """Return the pods to which a port routes.

    These are the hosts that match one of the requirements by their labels as the lattice reports them; if the lattice
    reports which hosts run the provider, only these. While no host is known to run it, none is excluded for that.
    """
    fit = [pod for pod in claim.pods if meets(listener, pod, claim.hosts.get(pod.name))]
    runs = {pod.key: claim.running.runs(listener.providers, seen) for pod in fit if (seen := claim.hosts.get(pod.name))}
    if not any(runs.values()):
        return tuple(fit)
    return tuple(pod for pod in fit if runs.get(pod.key, True))


def make_endpoint(pod: PodView, addresses: Sequence[str]) -> dict[str, Any]:
    """Return the endpoint of a pod; it has the first address of the family, as in Kubernetes' own controller."""
    endpoint: dict[str, Any] = {
        "addresses": [addresses[0]],
        "conditions": {
            "ready": pod.serving and not pod.terminating,
            "serving": pod.serving,
            "terminating": pod.terminating,
        },
        "targetRef": {"kind": "Pod", "name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
    }
    return endpoint | ({"nodeName": pod.node} if pod.node else {})


def make_empty(service: str, endpoints: EndpointSet) -> Slice:
    """Return the slice that keeps the addresses of a Service without endpoints."""
    family = endpoints.families[0]
    ports = tuple(_port(*port) for port in endpoints.ports)
    return Slice(names.slice_name(service, endpoints.name, family, 0), service, family.value, ports, ())


def with_address_keeper(pieces: Sequence[Slice], application: str, lattice: str) -> list[Slice]:
    """Return the slices with one that keeps the addresses: the present keeper, else a present slice, else the first."""
    keeper = min(pieces, key=lambda item: 2 if item.found is None else 0 if item.found.preserved else 1)
    return [replace(piece, keeps=(application, lattice)) if piece is keeper else piece for piece in pieces]


def pack(service: str, endpoint_sets: Iterable[EndpointSet], found: Sequence[SliceView]) -> list[Slice]:
    """Return the target slices of a Service, in a fixed order; slices of ``found`` that are missing are to delete."""
    made: list[Slice] = []
    for served in endpoint_sets:
        ports = tuple(_port(*port) for port in served.ports)
        for family in served.families:
            prefix = names.slice_name(service, served.name, family, 0).removesuffix("0")
            there = sorted(
                (item for item in found if item.name.startswith(prefix)), key=lambda item: _index(item, prefix)
            )
            wanted: dict[str, Manifest] = {
                pod.uid: make_endpoint(pod, of) for pod in served.pods if (of := _addresses(pod, family))
            }
            for name, endpoints in _packed(prefix, wanted, there):
                here = next((item for item in there if item.name == name), None)
                made.append(Slice(name, service, family.value, ports, tuple(endpoints), here))
    return made


def _packed(prefix: str, wanted: dict[str, Manifest], there: Sequence[SliceView]) -> list[tuple[str, list[Manifest]]]:
    """Return the endpoints of each slice by its name."""
    packed: list[tuple[str, list[Manifest]]] = []
    left = dict(wanted)
    for item in there:
        stays: list[Manifest] = []
        for endpoint in item.endpoints:
            now = left.pop((endpoint.get("targetRef") or {}).get("uid", ""), None)
            if now is not None and len(stays) < ENDPOINTS_MAX:
                stays.append(now)
            elif now is not None:
                left[now["targetRef"]["uid"]] = now
        packed.append((item.name, stays))
    new = [left[uid] for uid in sorted(left, key=lambda uid: left[uid]["addresses"][0])]
    for _, endpoints in packed:
        room = ENDPOINTS_MAX - len(endpoints)
        endpoints.extend(new[:room])
        new = new[room:]
    index = 0
    while new:
        name = f"{prefix}{index}"
        index += 1
        if all(name != used for used, _ in packed):
            packed.append((name, new[:ENDPOINTS_MAX]))
            new = new[ENDPOINTS_MAX:]
    filled = [item for item in packed if item[1]]
    return filled or packed[:1]


def _index(item: SliceView, prefix: str) -> tuple[float, str]:
    number = item.name.removeprefix(prefix)
    found = whole(number)
    return (math.inf if found is None else found, item.name)


def _addresses(pod: PodView, family: Family) -> list[str]:
    wanted = 4 if family is Family.IPV4 else 6
    return [address for address in pod.addresses if _version(address) == wanted]


def _version(address: str) -> int:
    try:
        return ipaddress.ip_address(address).version
    except ValueError:
        return 0


def _port(name: str, number: int, protocol: str) -> dict[str, Any]:
    port: dict[str, Any] = {"name": name, "port": number, "protocol": "TCP"}
    return port | ({"appProtocol": protocol} if protocol else {})
