"""HTTP routes: the listeners of http-server, their Service and the Host header by which v2 routes.

Pure. In: the links of http-server to components, the annotations of the application. Out: a route per workload.
Called by ``links``. Invariants: a Service has one port, named ``http``, because the EndpointSlices of v2 have only that
one; a Service that service_reflector manages is never in the output.
Source: hosts of v2 route by the Host header: ``config.host`` of ``wasi:http``, ``<service>.<namespace>`` and
``<service>.<namespace>.svc``; a request with another one gets 404.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from service_reflector.domain.service_options import ServiceOptions, options_of
from trellis import names
from trellis.lattice.domain.addresses import AddressError, read_address
from trellis.lattice.domain.manifests import Application
from trellis.v2.workloads import is_host_name
from trellis_cli.migrate.model.to_v2.configs import note_unreadable
from trellis_cli.migrate.model.to_v2.object_names import part_name
from trellis_cli.migrate.model.to_v2.providers import entries_of
from trellis_cli.migrate.model.to_v2.reading import App, Config, Link, Piece
from trellis_cli.migrate.model.to_v2.report import Reason, Record, Way

Manifest = dict[str, Any]

DEFAULT_PORT: Final = 80
TRELLIS: Final = "trellis.dev/"
"""Prefix of annotations for service_reflector."""
V2_SUFFIX: Final = "-v2"
"""Suffix of a Service of v2 while service_reflector has the plain name."""
_NAME_MOST: Final = 63
_ANNOTATIONS_MOST: Final = 200_000
"""Below the 256 KiB of annotations that the API server accepts."""
_ADDRESSES: Final = ("address", "default_address", "listen_address")
"""Settings with a listen address; the first one that is set is used."""
_PORT: Final = "port"
_LABEL_VALUE: Final = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_KEY: Final = re.compile(
    r"([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)


@dataclass(frozen=True, slots=True)
class Listener:
    """A listener of a component. ``host``: the Host header that the provider routed by, "" for any."""

    link: Link
    component: str
    port: int
    host: str


def listener_of(link: Link, provider: Piece, record: Record) -> Listener:
    """Return the listener of a link of http-server; record its settings."""
    settings, places = _settings((*provider.config, *link.source_end.config), link, record)
    used = next((key for key in _ADDRESSES if settings.get(key)), "")
    address = settings.get(used, "")
    port = DEFAULT_PORT
    try:
        found = read_address(address, settings.get(_PORT, ""))
        port = found.port
        if found.loopback:
            record.note(
                places[used],
                Reason.LISTEN_ADDRESS,
                f"{provider.name} listens on the loopback address, which clients outside of its host do not reach; on "
                "v2 the Service reaches it",
                "Delete the Service and kubernetes.service, if clients must not reach it.",
                Way.OBJECT,
            )
    except AddressError as error:
        record.note(
            f"{link.place}.properties.interfaces",
            Reason.LISTEN_ADDRESS,
            f"{provider.name}: {error}" if address else f"{provider.name}: its configuration has no listen address",
            f"The Service has port {DEFAULT_PORT}; change it in the Service.",
            Way.OBJECT,
        )
    _note_unused(provider, settings, places, record)
    if settings.get("routing_mode", "").lower() == "path" or "path" in settings:
        record.note(
            places.get("path") or places["routing_mode"],
            Reason.HTTP_ROUTING,
            f"{provider.name} routes by path; hosts of v2 route by the Host header only",
            "Route paths to Services with an HTTPRoute or an Ingress.",
            Way.OBJECT,
        )
    host = settings.get("host", "")
    if host and not is_host_name(host):
        record.note(
            places["host"],
            Reason.HTTP_ROUTING,
            f"{provider.name} routes by a Host header that is not a host name",
            "Set config.host of wasi:http.",
            Way.MANIFEST,
        )
        host = ""
    return Listener(link, link.target, port, host.lower())


def _note_unused(provider: Piece, settings: Mapping[str, str], places: Mapping[str, str], record: Record) -> None:
    """Record addresses after the first one, and a port beside an address that has its own."""
    used, *unused = [key for key in _ADDRESSES if settings.get(key)] or [""]
    if settings.get(_PORT) and _has_port(settings.get(used, "")):
        unused.append(_PORT)
    for key in unused:
        message = f"setting {key!r} of {provider.name} has no effect beside {used!r}"
        record.note(places[key], Reason.HTTP_SETTING, message, "Remove it.", Way.NOTHING)


def _has_port(address: str) -> bool:
    with contextlib.suppress(AddressError):
        return bool(read_address(address))
    return False


def _settings(configs: Sequence[Config], link: Link, record: Record) -> tuple[dict[str, str], dict[str, str]]:
    """Return the settings that v2 has, and their paths, by key in lower case; record the remaining ones."""
    external: list[Config] = []
    settings: dict[str, str] = {}
    places: dict[str, str] = {}
    known = {*_ADDRESSES, _PORT, "host", "path", "routing_mode"}
    for config, key, value in entries_of(configs, external):
        if key.lower() in known:
            settings[key.lower()], places[key.lower()] = value, config.entry(key)
            record.done(config.entry(key), f"wasi:http of {link.target}")
        else:
            record.note(
                config.entry(key),
                Reason.HTTP_SETTING,
                f"setting {key!r} of {link.source} has no counterpart on v2",
                "Set it at a gateway in front of the Service (TLS, CORS, timeouts), or in the component (headers).",
                Way.OBJECT,
                Way.COMPONENT,
            )
    for config in configs:
        record.done(config.place, f"wasi:http of {link.target}")
        note_unreadable(config, record)
    for config in external:
        record.note(
            config.place,
            Reason.NAMED_CONFIGURATION,
            f"configuration {config.name} of {link.source} is in the lattice and not in the application",
            f"Compare the port of the Service with `wash config get {config.name}`.",
            Way.OBJECT,
        )
    return settings, places


@dataclass(frozen=True, slots=True)
class ServicePlan:
    """The Service of a workload. ``plain``: its name on v1; ``name``: its name on v2; ``host``: the Host header."""

    plain: str
    name: str
    host: str
    port: int


def service_options(app: App) -> ServiceOptions:
    """Return the options of the Service in the annotations of an application."""
    return options_of(Application(app.name, annotations=tuple(app.annotations.items())))


def name_on_v2(plain: str, reflected: frozenset[str], applications: frozenset[str]) -> str:
    """Return the name of a Service on v2: the plain one, or one of its own while service_reflector has that.

    ``reflected``: names of Services that service_reflector has in the namespace; ``applications``: the plain names of
    the applications there.
    """
    if plain not in reflected:
        return plain
    name = f"{plain}{V2_SUFFIX}"
    taken = len(name) > _NAME_MOST or name in reflected | applications
    return part_name(plain, V2_SUFFIX.removeprefix("-"), "beside v1") if taken else name


def plan_service(listener: Listener, plain: str, name: str, options: ServiceOptions, namespace: str) -> ServicePlan:
    """Return the Service of a listener. ``plain``: its name on v1; ``name``: its name on v2."""
    hosts = [name for name in options.hostnames if is_host_name(name)]
    host = listener.host or next(iter(hosts), "").lower() or cluster_host(plain, namespace)
    return ServicePlan(plain, name, host, listener.port)


def cluster_host(service: str, namespace: str) -> str:
    """Return the longest name of a Service in the DNS of the cluster."""
    return f"{service}.{namespace}.svc.cluster.local"


def make_service(plan: ServicePlan, options: ServiceOptions, namespace: str, own: Mapping[str, str]) -> Manifest:
    """Return the manifest of a Service without a selector, with its ``own`` labels; v2 writes its EndpointSlice."""
    labels = {key: value for key, value in options.labels if is_label(key, value)}
    annotations = valid_annotations(options.annotations)
    spec: Manifest = {"ports": [{"name": "http", "port": plan.port, "protocol": "TCP", "appProtocol": "http"}]}
    if options.type != "ClusterIP":
        spec = {"type": options.type} | spec
    if options.affinity != "None":
        spec["sessionAffinity"] = options.affinity
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": plan.name,
            "namespace": namespace,
            "labels": {**labels, **own},
        }
        | ({"annotations": annotations} if annotations else {}),
        "spec": spec,
    }


def note_route(listener: Listener, plan: ServicePlan, namespace: str, record: Record) -> None:
    """Record the Host headers that v2 accepts, and a Service with another name than on v1."""
    aliases = f"{plan.name}.{namespace} and {plan.name}.{namespace}.svc"
    record.note(
        f"{listener.link.place}.properties.interfaces",
        Reason.HOST_HEADER,
        f"v2 answers requests with the Host header {plan.host}, {aliases}; any other one gets 404, also {plan.name}",
        "Let clients use one of these names, or set config.host of wasi:http.",
        Way.OBJECT,
    )
    if plan.name != plan.plain:
        record.note(
            f"{listener.link.place}.properties.interfaces",
            Reason.SERVICE_NAME_TAKEN,
            f"Service {namespace}/{plan.plain} belongs to the application on v1, so v2 has Service {plan.name}",
            f"After the comparison, set {names.ANNOTATION_UNDEPLOY}=true on the Application and repeat the command: v2 "
            f"then has Service {plan.plain}.",
            Way.OBJECT,
        )


def note_options(app: App, options: ServiceOptions, target: str, record: Record) -> None:
    """Record the annotations of the application for its Service; ``target``: the Service, "" if there is none."""
    known = {names.ANNOTATION_SERVICE_TYPE, names.ANNOTATION_SERVICE_AFFINITY}
    annotations = valid_annotations(options.annotations)
    for key, value in app.annotations.items():
        place = f"metadata.annotations.{key}"
        prefix = next((item for item in _PREFIXES if key.startswith(item)), "")
        name = key.removeprefix(prefix).replace("__", "/")
        fits = is_label(name, value) if prefix == names.SERVICE_LABEL_PREFIX else name in annotations
        if prefix and target and fits:
            record.done(place, target)
        elif prefix:
            record.note(
                place,
                Reason.SERVICE_OPTION,
                f"annotation {key} is not valid on a Service or too large, or the application has no Service",
                "Set it on the Service of v2.",
                Way.OBJECT,
            )
        elif key in known and target and not any(key in problem.message for problem in options.problems):
            record.done(place, target)
        elif key in known or key in _REMEDIES or key.startswith(TRELLIS):
            record.note(
                place,
                Reason.SERVICE_OPTION,
                f"annotation {key} does not translate",
                _REMEDIES.get(key, "Set it on the Service of v2."),
                Way.OBJECT,
            )


_PREFIXES: Final = (names.SERVICE_LABEL_PREFIX, names.SERVICE_ANNOTATION_PREFIX)
_REMEDIES: Final[Mapping[str, str]] = {
    names.ANNOTATION_SERVICE: "With false, v2 has no Service either; create one with a port named http, and set "
    "kubernetes.service.name.",
    names.ANNOTATION_SERVICE_PORTS: "v2 serves HTTP only. Run the provider as a container with a Service, or as the "
    "service of the workload.",
    names.ANNOTATION_SERVICE_NAMESPACE: "v2 uses a Service in the namespace of the workload only. Create one of type "
    "ExternalName in the other namespace.",
    names.ANNOTATION_SERVICE_GATEWAY: "Create an HTTPRoute for the Service of v2.",
    names.ANNOTATION_SERVICE_HOSTNAMES: "The first host name is config.host; v2 has one per workload. For "
    "further ones, rewrite the Host header in an HTTPRoute.",
}


def is_label(key: str, value: str) -> bool:
    """Return whether Kubernetes accepts a label."""
    return _is_key(key) and bool(_LABEL_VALUE.fullmatch(value))


def valid_annotations(wanted: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the annotations that an object can have, the first ones if all of them are too large."""
    found: dict[str, str] = {}
    size = 0
    for key, value in wanted:
        further = len(key.encode()) + len(value.encode())
        if _is_key(key) and size + further <= _ANNOTATIONS_MOST:
            found[key] = value
            size += further
    return found


def _is_key(key: str) -> bool:
    """Return whether Kubernetes accepts the key of a label or an annotation."""
    return bool(_KEY.fullmatch(key)) and len(key.rpartition("/")[0]) <= 253
