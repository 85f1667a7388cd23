"""The cause of a Ready workload without requests: its Service, ports, EndpointSlices, names and connections.

Pure. In: Services, slices, hosts. Out: steps. Called by the pages of Workloads, WorkloadDeployments and Services.
Source: runtime-operator 2.7. It reports none of these problems: conditions are True. It does not watch Services, so it
writes a slice only after a change of a Workload; slices have one port named ``http``; the API server refuses a whole
slice for one loopback address.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from trellis.read_model.explain.page import Line, Rank
from trellis.read_model.health import Health
from trellis.v2.cluster import Cluster
from trellis.v2.explain.starting import registry_lines
from trellis.v2.explain.text import number_of, unknown
from trellis.v2.fields import listed
from trellis.v2.hosts import HostView
from trellis.v2.images import image_key
from trellis.v2.interfaces import Interface
from trellis.v2.reasons import Reason
from trellis.v2.routes import PORT, RoutedService, is_address
from trellis.v2.snapshot import Part
from trellis.v2.workloads import HANDLERS, OUTGOING, TemplateView, WorkloadView

_SHOWN: Final = 5
_EXTERNAL: Final = "ExternalName"


@dataclass(frozen=True, slots=True)
class Routed:
    """A workload that is Ready, with its Service. ``workloads``: its Workloads that are Ready."""

    namespace: str
    spec: TemplateView
    service: str
    workloads: Sequence[WorkloadView]


def routing_lines(cluster: Cluster, routed: Routed) -> Iterator[Line]:
    """Yield the steps from the Service of a workload to its hosts, and the names that it answers to."""
    if routed.service:
        yield from service_lines(cluster, routed)
    yield from registry_lines(cluster, routed.namespace, routed.spec.parts)
    yield from _http(cluster, routed)
    yield from _egress(cluster, routed)


def service_lines(cluster: Cluster, routed: Routed) -> Iterator[Line]:
    """Yield the steps from a Service to its endpoints; its workloads are Ready."""
    key = f"{routed.namespace}/{routed.service}"
    if not cluster.snapshot.knows(Part.SERVICES):
        yield Line("service", f"Service {key} unknown: {unknown(cluster, Part.SERVICES)}")
        return
    service = cluster.service(routed.namespace, routed.service)
    if service is None:
        do = "create it with a port named http, before the Workloads; or remove kubernetes.service.name"
        yield _wrong("service", f"Service {key} does not exist, so nothing routes to it", do, Reason.SERVICE_NOT_FOUND)
        return
    if service.kind == _EXTERNAL:
        text = f"Service {key} is of type {_EXTERNAL}, so its name resolves to another name and not to the workload"
        do = "set its type to ClusterIP, with a port named http"
        yield _wrong("service", text, do, Reason.NO_ENDPOINTS)
        return
    port = port_line(service)
    yield port
    endpoints = endpoints_line(cluster, service, reached=port.ok is True)
    yield endpoints or _no_endpoints(cluster, routed, service)
    if endpoints is not None:
        yield from filter(None, (_refused_update(cluster, routed), _other_port(cluster, routed)))


def port_line(service: RoutedService) -> Line:
    """Return the step for the port of a Service that its EndpointSlices have."""
    meta = service.meta
    ports = ", ".join(f"{port.name or 'without a name'} {port.shown}" for port in service.ports) or "none"
    if service.headless:
        return Line("service", f"{meta.key}, headless: clients use the port of the hosts", ok=True)
    if service.named or service.kind == _EXTERNAL:
        return Line("service", f"{meta.key}, ports: {ports}", ok=True)
    text = f"Service {meta.key} has no TCP port named {PORT} (ports: {ports}), and its endpoints have only that one"
    field = f"protocol of port {PORT} to TCP" if service.has(PORT) else f"ports[].name to {PORT}"
    do = f"set {field}: `kubectl -n {meta.namespace} edit service {meta.name}`"
    return _wrong("service", text, do, Reason.PORT_NOT_NAMED)


def endpoints_line(cluster: Cluster, service: RoutedService, *, reached: bool) -> Line | None:
    """Return the step for the endpoints of a Service, None if it has none; ``reached``: a port leads to them."""
    if not cluster.snapshot.knows(Part.SLICES):
        return Line("endpoints", f"endpoints of Service {service.meta.key} unknown: {unknown(cluster, Part.SLICES)}")
    addresses = cluster.addresses_of(service)
    if not addresses:
        return None
    text = f"{listed(addresses, _SHOWN)}, one per host"
    return Line("endpoints", text, ok=True) if reached else Line("endpoints", f"{text}, in its EndpointSlices")


def _refused_update(cluster: Cluster, routed: Routed) -> Line | None:
    """Return the step for endpoints from before the API server refused those with the address of a host."""
    for item in routed.workloads:
        host = cluster.host(item.host_id)
        if host is not None and is_address(host.address) and (reason := cluster.unroutable(host)):
            text = f"the endpoints of Service {routed.namespace}/{routed.service} are outdated"
            return refused_address(host, reason, text)
    return None


def _other_port(cluster: Cluster, routed: Routed) -> Line | None:
    """Return the step for a host that serves HTTP at another port than the one that all endpoints have."""
    slices = cluster.slices_of(routed.namespace, routed.service)
    ports = {piece.port for piece in slices if piece.port is not None}
    changes = [time for item in routed.workloads if (time := cluster.changed(item)) is not None]
    if not ports or not cluster.older(max(changes, default=None), cluster.snapshot.timings.settle):
        return None
    hosts = (cluster.host(item.host_id) for item in routed.workloads)
    other = next((host for host in hosts if host is not None and host.port not in {None, *ports}), None)
    if other is None:
        return None
    text = (
        f"the endpoints of Service {routed.namespace}/{routed.service} have port {min(ports)}, and host "
        f"{other.meta.name} serves HTTP at {other.port}, so requests to it fail"
    )
    do = "give all host groups that run the workload one HTTP port, or select one of them by hostSelector"
    return _wrong("endpoints", text, do, Reason.PORT_DIFFERS)


def _no_endpoints(cluster: Cluster, routed: Routed, service: RoutedService) -> Line:
    key, settle = service.meta.key, cluster.snapshot.timings.settle
    there = bool(cluster.slices_of(routed.namespace, routed.service))
    text = f"the operator has not written the EndpointSlice of Service {key} yet"
    not_yet = Line("endpoints", text, ok=False, reason=Reason.WAITING)
    hosts = [host for item in routed.workloads if (host := cluster.host(item.host_id)) is not None]
    wrong = [(host, reason) for host in hosts if (reason := cluster.unroutable(host))]
    if wrong:
        return refused_address(wrong[0][0], wrong[0][1], f"Service {key} has no endpoints")
    if hosts and all(host.port is None for host in hosts):
        text = f"Service {key} has no endpoints, because host {hosts[0].meta.name} has no HTTP port"
        do = "start the host with --http-addr: in the chart, enable http of its host group"
        return _wrong("endpoints", text, do, Reason.ADDRESS_NOT_ROUTABLE)
    changes = [time for item in routed.workloads if (time := cluster.changed(item)) is not None]
    newest, created = max(changes, default=None), service.meta.created
    if not there and newest is not None and created is not None and created > newest:
        if not cluster.older(created, settle):
            return not_yet
        text = f"Service {key} has no EndpointSlice, because it is newer than the last change of its Workloads"
        name = routed.workloads[0].meta.name
        do = (
            f"change one of them: `kubectl -n {routed.namespace} annotate --overwrite workload {name} "
            'trellis.dev/touched="$(date)"`; the operator does not watch Services'
        )
        return _wrong("endpoints", text, do, Reason.SERVICE_NEWER)
    if newest is not None and not cluster.older(newest, settle):
        return not_yet
    text = f"Service {key} has no endpoints although {number_of(len(routed.workloads), 'Workload')} of it can serve"
    do = "read the log of the runtime-operator: the API server may refuse the EndpointSlice"
    return _wrong("endpoints", text, do, Reason.NO_ENDPOINTS)


def refused_address(host: HostView, reason: str, otherwise: str) -> Line:
    """Return the step for a host whose address the API server refuses in an EndpointSlice."""
    address = f"the address {host.address}, which {reason}" if host.address else "no address"
    text = f"{otherwise}, because host {host.meta.name} has {address}"
    do = "start the host with its pod IP (`wash host --host-name`)"
    # Of an address, the operator writes the endpoint, and the API server refuses the whole EndpointSlice for it.
    refused = "it makes the API server refuse all endpoints"
    do += f": {refused if is_address(host.address) else 'the operator writes no endpoint for it'}"
    return _wrong("endpoints", text, do, Reason.ADDRESS_NOT_ROUTABLE)


def _http(cluster: Cluster, routed: Routed) -> Iterator[Line]:
    entries = [entry for entry in routed.spec.interfaces if entry.receives_http]
    exports = _exports(cluster, routed)
    handles = exports is not None and any(_is_http(item, name) for item in exports for name in HANDLERS)
    if not entries:
        text = "wasi:http/incoming-handler is not in hostInterfaces, so no request reaches it"
        do = "add wasi:http with interface incoming-handler and config.host to hostInterfaces"
        if handles or routed.service:
            yield _wrong("http", text, do, Reason.HTTP_NOT_DECLARED)
        else:
            yield Line("http", text)
        return
    if exports is not None and not handles:
        text = "no component exports wasi:http/incoming-handler, so each request is answered with 404"
        do = "build the component with an HTTP handler, or remove wasi:http from hostInterfaces"
        yield _wrong("http", text, do, Reason.HANDLER_MISSING)
    yield _names(routed)


def _names(routed: Routed) -> Line:
    entries = [entry for entry in routed.spec.interfaces if entry.receives_http]
    short = f"{routed.service}.{routed.namespace}"
    of_service = (routed.service, short, f"{short}.svc", f"{short}.svc.cluster.local") if routed.service else ()
    aliases = of_service[1:3] if any(entry.serves_http for entry in entries) else ()
    names = [*dict.fromkeys((*(entry.host for entry in entries if entry.host), *aliases))]
    text = f"answers requests with Host {listed(names, _SHOWN) or 'from other configuration'}"
    other = [name for name in of_service if name not in names]
    # A host in other configuration is one of the names, and not known.
    if other and not any(entry.layered and not entry.host for entry in entries):
        text += f"; {' and '.join(other)} {'is' if len(other) == 1 else 'are'} answered with 404"
    return Line("names", text)


def _egress(cluster: Cluster, routed: Routed) -> Iterator[Line]:
    closed = [part for part in routed.spec.parts if not part.allowed]
    for part in closed:
        answer = cluster.snapshot.images.get(image_key(routed.namespace, part))
        name = part.name or part.image
        if answer is None or answer.types is None:
            yield Line("egress", f"{name}: allowedHosts is empty, so all its outgoing HTTP requests are denied")
        elif any(_is_http(item, OUTGOING) or _is_http(item, "client") for item in answer.types.imports):
            text = f"{name} imports wasi:http/outgoing-handler, and its allowedHosts is empty: all requests are denied"
            do = "list the hosts in localResources.allowedHosts of the component; only the host's log shows denials"
            yield Line("egress", text, False, do, Rank.SERVICE, Reason.EGRESS_DENIED)
    for part in routed.spec.parts:
        if part.allowed:
            yield Line("egress", f"{part.name or part.image}: only to {listed(part.allowed, _SHOWN)}")


def _exports(cluster: Cluster, routed: Routed) -> frozenset[Interface] | None:
    """Return the exports of all components and of the service, None if one was not read."""
    found: set[Interface] = set()
    for part in routed.spec.parts:
        answer = cluster.snapshot.images.get(image_key(routed.namespace, part))
        if answer is None or answer.types is None:
            return None
        found |= answer.types.exports
    return frozenset(found) if routed.spec.parts else None


def _is_http(item: Interface, name: str) -> bool:
    return (item.namespace, item.package, item.name) == ("wasi", "http", name)


def _wrong(about: str, text: str, do: str, reason: Reason) -> Line:
    return Line(about, text, False, do, Rank.CAUSE, reason, Health.DEGRADED)
