"""Creates the manifests of reflected Services.

Pure: arguments in, manifests out. Called by ``decide``. Invariants: a Service has no selector, Trellis writes its
endpoints; fields of other writers stay; labels and annotations requested by an application are removed with the
request.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from service_reflector.domain.service_options import ServiceOptions
from service_reflector.domain.slices import Slice
from trellis import names
from trellis.lattice.domain.addresses import Family
from trellis.lattice.domain.cached_listeners import write_cached_listeners
from trellis.lattice.domain.manifests import Listener, Protocol
from trellis.lattice.domain.preserved import ALLOCATED, write_preserved
from trellis.lattice.domain.service_views import ServiceView
from trellis.names import WADM_OPERATOR

Manifest = dict[str, Any]

_DUAL: Final = "PreferDualStack"
_PORT_NAME_MAX: Final = 40


@dataclass(frozen=True, slots=True)
class ReflectedService:
    """Target state of a Service. ``ports``: listeners by name. ``groups``: keys of its lattice's host groups."""

    namespace: str
    name: str
    application: str
    lattice: str
    version: str
    options: ServiceOptions
    ports: tuple[tuple[str, Listener], ...]
    groups: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


def port_names(listeners: Iterable[Listener], former: str) -> tuple[tuple[str, Listener], ...]:
    """Return a name for each port, in the order of the listeners: a component keeps its former name.

    ``former``: the present :data:`names.ANNOTATION_LISTENERS`. The first port of an application is called ``http`` or
    ``tcp``, as in wasmcloud-operator; further ports are named after their component.
    """
    had = dict(part.partition("=")[::2] for part in former.split())
    identities = _identities(listeners)
    kept = {identity: name for name, identity in had.items() if identity in dict(identities)}
    used, named = set(kept.values()), []
    for identity, listener in identities:
        name = kept.get(identity) or _free_name(identity, listener, used)
        used.add(name)
        named.append((name, listener))
    return tuple(named)


def _identities(listeners: Iterable[Listener]) -> list[tuple[str, Listener]]:
    """Return each listener with its component's name; further listeners of a component have a number appended."""
    found: list[tuple[str, Listener]] = []
    counts: dict[str, int] = {}
    for listener in listeners:
        component = "-".join(listener.component.split())
        counts[component] = number = counts.get(component, 0) + 1
        found.append((component if number == 1 else f"{component}#{number}", listener))
    return found


def _free_name(identity: str, listener: Listener, used: set[str]) -> str:
    plain = listener.protocol.value
    if plain not in used:
        return plain
    component = "".join(char if char.isascii() and char.isalnum() else "-" for char in listener.component.lower())
    name = f"{plain}-{component[:_PORT_NAME_MAX]}".rstrip("-")
    return name if name not in used else f"{name}-{names.short_hash(identity)}"


def listeners_annotation(target: ReflectedService) -> str:
    """Return the annotation value that maps the names of ports to components."""
    identities = _identities(listener for _, listener in target.ports)
    return " ".join(f"{name}={identity}" for (name, _), (identity, _) in zip(target.ports, identities, strict=True))


def make_service(target: ReflectedService, allocated: Mapping[str, Any] | None = None) -> Manifest:
    """Return a Service; ``allocated``: the spec of the one that it replaces and whose addresses it keeps."""
    former = allocated or {}
    spec = {
        "type": target.options.type,
        "sessionAffinity": target.options.affinity,
        "ports": _ports(target, former.get("ports") or ()),
    }
    if _is_dual(target):
        spec["ipFamilyPolicy"] = _DUAL
    spec |= {field: former[field] for field in ALLOCATED if former.get(field)}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": target.name,
            "namespace": target.namespace,
            "labels": _labels(target) | {names.LABEL_MANAGED_BY: WADM_OPERATOR},
            "annotations": _annotations(target),
        },
        "spec": spec,
    }


def make_service_patch(target: ReflectedService, found: Mapping[str, Any], *, adopting: bool) -> Manifest:
    """Return the merge patch to the target state of a Service, {} if it has that state.

    ``found``: present labels, annotations, finalizers and spec. ``adopting``: other controllers created endpoints.
    """
    metadata: Manifest = {}
    former_requests = found["annotations"].get(names.ANNOTATION_REFLECTED, "").split()
    for field, wanted in (("labels", _labels(target)), ("annotations", _annotations(target))):
        if field == "annotations" and adopting:
            wanted = wanted | {names.ANNOTATION_ADOPTING: "true"}  # noqa: PLW2901 - the same, and a mark
        there = found[field]
        changed: Manifest = {key: value for key, value in wanted.items() if there.get(key) != value}
        prefix = f"{field}:"
        changed |= {
            key: None
            for item in former_requests
            if (key := item.removeprefix(prefix)) != item and key not in wanted and key in there
        }
        metadata |= {field: changed} if changed else {}
    if names.WASMCLOUD_OPERATOR_SERVICE in found["finalizers"]:
        # Of wasmcloud-operator, or of a version that did not keep the addresses on a slice from the start.
        metadata["finalizers"] = [
            finalizer for finalizer in found["finalizers"] if finalizer != names.WASMCLOUD_OPERATOR_SERVICE
        ]
    spec = _spec_patch(target, found["spec"])
    return ({"metadata": metadata} if metadata else {}) | ({"spec": spec} if spec else {})


def _spec_patch(target: ReflectedService, there: Mapping[str, Any]) -> Manifest:
    spec: Manifest = {}
    ports = _ports(target, there.get("ports") or ())
    if _meant(ports) != _meant(there.get("ports") or ()):
        spec["ports"] = ports
    for field, value in (("type", target.options.type), ("sessionAffinity", target.options.affinity)):
        if there.get(field) != value:
            spec[field] = value
    if there.get("selector"):
        spec["selector"] = None
    if _is_dual(target) and there.get("ipFamilyPolicy") not in {_DUAL, "RequireDualStack"}:
        spec["ipFamilyPolicy"] = _DUAL
    return spec


def _ports(target: ReflectedService, former: Iterable[Mapping[str, Any]]) -> list[Manifest]:
    """Return the ports of a Service; each keeps the node port that its name has."""
    node_ports = {port.get("name"): port["nodePort"] for port in former if port.get("nodePort")}
    made: list[Manifest] = []
    for name, listener in target.ports:
        port = {"name": name, "port": listener.port, "targetPort": listener.port, "protocol": "TCP"}
        if listener.protocol is Protocol.HTTP:
            port["appProtocol"] = Protocol.HTTP.value
        if name in node_ports and target.options.type != "ClusterIP":
            port["nodePort"] = node_ports[name]
        made.append(port)
    return made


def _meant(ports: Iterable[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """Return the fields of ports that Trellis sets."""
    fields = ("name", "port", "targetPort", "protocol", "appProtocol")
    return [tuple(port.get(field) for field in fields) for port in ports]


def _is_dual(target: ReflectedService) -> bool:
    # A listener on IPv6 alone needs an address of that family, too; IPv4 comes first if both are available.
    return any(listener.family is not Family.IPV4 for _, listener in target.ports)


def _labels(target: ReflectedService) -> dict[str, str]:
    # Every name of a Service is a valid value of a label.
    return {**dict(target.options.labels), names.LABEL_NAME: names.service_name(target.application)}


def _annotations(target: ReflectedService) -> dict[str, str]:
    requested = [f"labels:{key}" for key, _ in target.options.labels]
    requested += [f"annotations:{key}" for key, _ in target.options.annotations]
    own = {
        names.ANNOTATION_APPLICATION: target.application,
        names.ANNOTATION_LATTICE: target.lattice,
        names.ANNOTATION_HOST_GROUPS: " ".join(target.groups),
        names.ANNOTATION_REFLECTED_AS: target.key,
        names.ANNOTATION_LISTENERS: listeners_annotation(target),
        names.ANNOTATION_CACHED_LISTENERS: write_cached_listeners(tuple(listener for _, listener in target.ports)),
        names.ANNOTATION_REFLECTED: " ".join(requested),
    }
    return {**dict(target.options.annotations), **own}


def make_slice(wanted: Slice, namespace: str, ties: Manifest) -> Manifest:
    """Return an EndpointSlice of a Service; ``ties``: as ``make_ties`` returns them."""
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": wanted.name,
            "namespace": namespace,
            "labels": {
                names.LABEL_SERVICE_NAME: wanted.service,
                names.LABEL_SLICE_MANAGED_BY: names.SLICE_MANAGED_BY,
            },
            **ties,
        },
        "addressType": wanted.family,
        **make_slice_body(wanted),
    }


def make_ties(wanted: Slice, service: ServiceView) -> Manifest:
    """Return the metadata that tie a slice to its Service: the addresses that it keeps, or an owner reference."""
    if wanted.keeps is None:
        return {"ownerReferences": owned_by(service.name, service.uid)}
    return {"annotations": {names.ANNOTATION_PRESERVED: write_preserved(*wanted.keeps, service)}, "ownerReferences": []}


def make_slice_body(wanted: Slice) -> Manifest:
    """Return the mutable fields of a slice."""
    return {"endpoints": list(wanted.endpoints), "ports": list(wanted.ports)}


def owned_by(service: str, uid: str) -> Sequence[Manifest]:
    """Return the owner reference to a Service, with which its dependents are deleted."""
    return [{"apiVersion": "v1", "kind": "Service", "name": service, "uid": uid}]
