"""Views of the Services of workloads and of their EndpointSlices.

Pure. In: manifests of any content. Out: views. Called by ``snapshot``. Invariant: nothing raises. Source:
runtime-operator 2.7 writes one EndpointSlice per Service: IPv4, one port ``http``, one address per host.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, ip_address
from typing import Final

from trellis import names
from trellis.v2.fields import items, mapping, number, text, words
from trellis.v2.objects import Meta, view_meta

LABEL_ROUTE: Final = "wasmcloud.dev/route-manager"
SLICE_SELECTOR: Final = f"{LABEL_ROUTE}=true"
"""Selector of the EndpointSlices of the runtime-operator."""
_HEADLESS: Final = "None"
PORT: Final = "http"
"""Name of the port in these slices; kube-proxy maps ports of a Service by name and protocol."""
_TCP: Final = "TCP"


@dataclass(frozen=True, slots=True)
class PortView:
    """A port of a Service; ``name`` "" if it has none, ``protocol`` as written, TCP by default."""

    name: str
    port: int
    protocol: str = _TCP

    @property
    def shown(self) -> str:
        """The number, with the protocol if it is not TCP: ``80``, ``53/UDP``."""
        return str(self.port) if self.protocol == _TCP else f"{self.port}/{self.protocol}"


@dataclass(frozen=True, slots=True)
class RoutedService:
    """A Service; ``addresses``: its cluster IPs."""

    meta: Meta
    kind: str = ""
    ports: tuple[PortView, ...] = ()
    addresses: tuple[str, ...] = ()

    @property
    def named(self) -> bool:
        """True if one of its ports has the name and the protocol of the port in the slices."""
        return any((port.name, port.protocol) == (PORT, _TCP) for port in self.ports)

    def has(self, name: str) -> bool:
        """Return whether one of its ports has a name, with any protocol."""
        return any(port.name == name for port in self.ports)

    @property
    def headless(self) -> bool:
        """True if its name resolves to the endpoints: its own ports map nothing then."""
        return self.addresses == (_HEADLESS,)


@dataclass(frozen=True, slots=True)
class RouteSlice:
    """An EndpointSlice of the runtime-operator. ``addresses``: those that receive traffic, all at ``port``."""

    meta: Meta
    service: str = ""
    addresses: frozenset[str] = frozenset()
    port: int | None = None

    @property
    def service_key(self) -> str:
        """``namespace/name`` of its Service."""
        return f"{self.meta.namespace}/{self.service}"


def view_service(manifest: object) -> RoutedService:
    """Return the view of a Service."""
    spec = mapping(manifest, "spec")
    ports = tuple(
        PortView(text(item, "name"), number(item, "port") or 0, text(item, "protocol") or _TCP)
        for item in items(spec, "ports")
    )
    addresses = words(spec, "clusterIPs") or tuple(filter(None, (text(spec, "clusterIP"),)))
    return RoutedService(view_meta(manifest), text(spec, "type"), ports, addresses)


def view_slice(manifest: object) -> RouteSlice:
    """Return the view of an EndpointSlice; an endpoint without the condition ready is ready, as for kube-proxy."""
    meta = view_meta(manifest)
    ready = [
        item for item in items(mapping(manifest), "endpoints") if mapping(item, "conditions").get("ready") is not False
    ]
    found = frozenset(address for item in ready for address in words(item, "addresses"))
    port = next((number(item, "port") or None for item in items(mapping(manifest), "ports")), None)
    return RouteSlice(meta, meta.labels.get(names.LABEL_SERVICE_NAME, ""), found, port)


def is_address(text: str) -> bool:
    """Return whether a text is an IP address, and not a name."""
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def unroutable(address: str) -> str:
    """Return why a slice cannot contain the address of a host, "" if it can: the API server refuses the whole slice."""
    try:
        found = ip_address(address)
    except ValueError:
        return "is not an IP address" if address else "is missing"
    if not isinstance(found, IPv4Address):
        return "is not an IPv4 address"
    kinds = {
        "loopback": found.is_loopback,
        "unspecified": found.is_unspecified,
        "link-local": found.is_link_local,
        "multicast": found.is_multicast,
    }
    kind = next((kind for kind, applies in kinds.items() if applies), "")
    return f"is {'an' if kind == 'unspecified' else 'a'} {kind} address" if kind else ""
