"""Converts an application of wasmCloud v1 to objects of wasmCloud v2.

Pure. In: a manifest as wadm accepts it, and what surrounds it. Out: objects, and a report. Called by the command.

    application ──► workloads: components that are linked to each other, with their ConfigMaps and Secrets
        links to providers      ──► host interfaces of the workload
        links of http-server    ──► host interface wasi:http, a Service, kubernetes.service
        everything else         ──► a line of the report, with what replaces it

Invariants: it raises nothing; each part of the manifest is in an object or in the report; the objects are valid by the
CRDs of v2. Source: runtime.wasmcloud.dev/v1alpha1 of wasmCloud 2.7.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from service_reflector.domain.service_options import ServiceOptions
from trellis import names
from trellis.kube.resources import WORKLOAD_DEPLOYMENTS
from trellis.oci.references import parse_image
from trellis.v2.images import without_other_digest
from trellis_cli.migrate.model.to_v2.configs import ConfigMaps
from trellis_cli.migrate.model.to_v2.interfaces import Need, make_interface
from trellis_cli.migrate.model.to_v2.links import Links
from trellis_cli.migrate.model.to_v2.object_names import part_name
from trellis_cli.migrate.model.to_v2.plugins import Workload
from trellis_cli.migrate.model.to_v2.providers import BUILTIN, LOCAL_FILE
from trellis_cli.migrate.model.to_v2.reading import App, Piece, UnreadableError, read_app
from trellis_cli.migrate.model.to_v2.report import Conversion, Line, Manifest, Reason, Record, Route, Way, reference
from trellis_cli.migrate.model.to_v2.routes import (
    TRELLIS,
    Listener,
    ServicePlan,
    cluster_host,
    is_label,
    make_service,
    name_on_v2,
    note_options,
    note_route,
    plan_service,
    service_options,
    valid_annotations,
)
from trellis_cli.migrate.model.to_v2.scaling import Scale, scale_of
from trellis_cli.migrate.model.to_v2.secrets import Secrets, note_policies
from trellis_cli.secrets.model import RuleInputs

_VERSION: Final = "version"
COMPONENTS: Final = "spec.components"
_TRELLIS: Final = (TRELLIS, names.SERVICE_LABEL_PREFIX, names.SERVICE_ANNOTATION_PREFIX)
_SHARED: Final = "experimental.wasmcloud.dev/shared"
_OF_OWNERS: Final = frozenset({names.LABEL_INSTANCE, "applyset.kubernetes.io/part-of", "kapp.k14s.io/app"})
"""Labels by which Argo CD, kubectl and kapp find the objects of an application, to delete those that it has no more."""
_BYTES_MOST: Final = 1_400_000
"""Of an object in JSON: etcd accepts requests of 1.5 MiB, and the API server and the operator of v2 add fields."""


@dataclass(frozen=True, slots=True)
class Source:
    """A manifest. ``name``: of the application in wadm; ``deployed``: whether it runs on v1."""

    manifest: object
    name: str
    namespace: str
    deployed: bool = True


@dataclass(frozen=True, slots=True)
class Environment:
    """State of the cluster that a conversion uses.

    ``rules``: grants of secrets, None if unknown; ``reflected``: names of Services that service_reflector has in the
    namespace; ``applications``: plain names of the Services of all applications there; ``backend``: name of the backend
    that serves Secrets of Kubernetes on v1.
    """

    rules: RuleInputs | None = None
    reflected: frozenset[str] = frozenset()
    applications: frozenset[str] = frozenset()
    backend: str = "kube"


def convert(source: Source, environment: Environment = Environment()) -> Conversion:
    """Return the objects and the report of an application."""
    try:
        app = read_app(source.manifest, source.name)
    except UnreadableError as error:
        line = Line("", Reason.INVALID_MANIFEST, f"wadm does not accept the manifest: {error}", "Correct it.")
        return Conversion(source.namespace, source.name, lines=(line,))
    found = _Conversion(app, source, environment).result()
    return next((_too_large(found, item) for item in found.objects if _size(item) > _BYTES_MOST), found)


def _too_large(found: Conversion, item: Manifest) -> Conversion:
    """Return the conversion of an application with an object that etcd refuses: the other objects depend on it."""
    kind, name = item["kind"], item["metadata"]["name"]
    line = Line(
        "",
        Reason.OBJECT_TOO_LARGE,
        f"{reference(kind, found.namespace, name)} has {_size(item)} bytes; etcd stores objects of 1.5 MiB at most",
        "Split the application, or move configuration of its links to ConfigMaps.",
        (Way.MANIFEST,),
    )
    return Conversion(found.namespace, found.application, lines=(line,))


def _size(item: Manifest) -> int:
    """Return the bytes of an object in JSON."""
    return len(json.dumps(item, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass"))


class _Conversion:
    """One conversion. Each step records what it translates."""

    def __init__(self, app: App, source: Source, environment: Environment) -> None:
        self.app, self.source, self.environment = app, source, environment
        self.record = Record()
        self.plain = names.service_name(app.name)
        self.labels = {names.LABEL_MIGRATED_FROM: self.plain}
        self.options = service_options(app)
        self.secrets = Secrets(app, source.namespace, environment.backend, environment.rules, self.record)
        self.configs = ConfigMaps(app.name, source.namespace, self.labels, self.record)
        self.component_names = _component_names(app)
        self.hosts: dict[str, str] = {}
        """Component by Host header: hosts of v2 route by it, and not by the port."""

    def result(self) -> Conversion:
        """Return the objects and the report."""
        self._note_rest()
        workloads = self._workloads()
        if not workloads:
            message = "the application has no component that can run on v2, so it has no workload"
            instead = "Add a component with an image, or delete the application after the hosts of v1."
            self.record.note(COMPONENTS, Reason.NO_WORKLOAD, message, instead, Way.MANIFEST)
        by_component = {piece.name: workload for workload in workloads for piece in workload.components}
        Links(self.app, by_component, self.secrets, self.record).translate()
        plans = [(workload, self._plan(workload, workloads)) for workload in workloads]
        routes = [plan for _, plan in plans if plan is not None]
        services = [self._service(plan, routes) for plan in routes if self.options.wanted]
        served = reference("Service", self.source.namespace, routes[0].name) if services else ""
        note_options(self.app, self.options, served, self.record)
        metadata = self._metadata([workload.target for workload in workloads])
        deployments = [self._deployment(workload, plan, metadata) for workload, plan in plans]
        return Conversion(
            self.source.namespace,
            self.app.name,
            label=self.plain,
            objects=(*self.configs.made.values(), *services, *deployments),
            lines=tuple(sorted(self.record.lines, key=lambda line: _order(line.part))),
            parts=dict(self.record.parts),
            routes=tuple(Route(plan.host, plan.name if services else "", plan.port) for plan in routes),
        )

    def _note_rest(self) -> None:
        """Record what has no counterpart at all: ignored fields, policies, identities, unknown traits."""
        for place in self.app.of_tools:
            reason = Reason.LABEL if place.startswith("metadata.labels.") else Reason.ANNOTATION
            message = f"{place} is for a deployment tool, or for Trellis on v1"
            self.record.note(place, reason, message, "Set it on the workload, if its tool needs it.", Way.OBJECT)
        for place in self.app.ignored:
            self.record.note(place, Reason.IGNORED_BY_WADM, "wadm ignores this field", "Remove it.", Way.NOTHING)
        note_policies(self.app.policies, self.record)
        for piece in self.app.pieces:
            if piece.shared:
                self._shared(piece)
            if piece.id:
                message = f"{piece.name} has an identity in the lattice; v2 has none"
                instead = "Replace calls by this identity (lattice RPC, wash call) by HTTP or wasmcloud:messaging."
                place = f"{piece.place}.properties.id"
                self.record.note(place, Reason.COMPONENT_ID, message, instead, Way.COMPONENT)
            for place, kind in piece.unknown:
                message = f"wadm stores this trait of type {kind!r} and does not evaluate it"
                self.record.note(place, Reason.UNKNOWN_TRAIT, message, "Remove it.", Way.NOTHING)
        if not self.source.deployed:
            message = "the application is not deployed on v1; its workload runs on v2 once it is applied"
            self.record.note("metadata", Reason.NOT_DEPLOYED, message, "Set replicas to 0 to prevent it.", Way.OBJECT)

    def _workloads(self) -> list[Workload]:
        """Return the workloads: components that links connect, directly or indirectly, share one."""
        groups = _linked([piece for piece in self.app.pieces if self._is_runnable(piece)], self.app)
        found: list[Workload] = []
        for group in groups:
            name = self.plain if len(groups) == 1 else part_name(self.app.name, group[0].name)
            if any(name == workload.name for workload in found):
                name = part_name(self.app.name, group[0].name, group[0].place)
            found.append(Workload(name, reference(WORKLOAD_DEPLOYMENTS.kind, self.source.namespace, name), group))
        return found

    def _is_runnable(self, piece: Piece) -> bool:
        """Return whether a component can be in a workload; record one that cannot."""
        if piece.provider or piece.shared:
            return False
        if not piece.image or piece.image.startswith(BUILTIN):
            message = f"component {piece.name} has no image that a host of v2 can pull"
            self.record.note(piece.place, Reason.NO_IMAGE, message, "Push it to a registry.", Way.MANIFEST)
            return False
        place = f"{piece.place}.properties.image"
        if piece.image.startswith(LOCAL_FILE):
            message = f"component {piece.name} is a file on the host; hosts of v2 pull images from registries"
            self.record.note(place, Reason.LOCAL_IMAGE, message, "Push it to a registry.", Way.MANIFEST)
        elif not _is_reference(piece.image):
            message = f"the image of component {piece.name} is not a reference such as registry.example/shop/ui:1"
            self.record.note(place, Reason.INVALID_IMAGE, message, "Correct it.", Way.MANIFEST)
        return True

    def _shared(self, piece: Piece) -> None:
        instead = (
            "Copy the provider into this application, and repeat the command."
            if piece.provider
            else "Merge the applications, or let them exchange messages by wasmcloud:messaging."
        )
        message = f"{piece.name} is in application {piece.shared}, which shares it; v2 shares no components"
        self.record.note(piece.place, Reason.SHARED_COMPONENT, message, instead, Way.MANIFEST, Way.V1)

    def _plan(self, workload: Workload, workloads: Sequence[Workload]) -> ServicePlan | None:
        """Return the route of a workload, and record it; None if it has none.

        The first workload with a listener has the name and the options of the reflected Service.
        """
        listener = workload.listener
        if listener is None:
            return None
        serving = workload is next(item for item in workloads if item.listener)
        plain = self.plain if serving else part_name(self.app.name, listener.component)
        options = self.options if serving else ServiceOptions()
        name = name_on_v2(plain, self.environment.reflected, self.environment.applications)
        plan = self._with_own_host(plan_service(listener, plain, name, options, self.source.namespace), listener)
        note_route(listener, plan, self.source.namespace, self.record)
        return plan

    def _with_own_host(self, plan: ServicePlan, listener: Listener) -> ServicePlan:
        """Return a route with a Host header that no other workload of the application has; record another one."""
        spare = part_name(self.app.name, listener.component, "host header")
        own = (cluster_host(name, self.source.namespace) for name in (plan.plain, spare))
        host = next((name for name in (plan.host, *own) if name not in self.hosts), plan.host)
        if host != plan.host:
            self.record.note(
                f"{listener.link.place}.properties.interfaces",
                Reason.HOST_HEADER_TAKEN,
                f"{listener.component} has the Host header {plan.host} of {self.hosts[plan.host]}, on another port; "
                "hosts of v2 route by the Host header only, and would send the requests of one to the other",
                f"Let its clients use {host}, or give it another host.",
                Way.MANIFEST,
                Way.OBJECT,
            )
        self.hosts[host] = listener.component
        return replace(plan, host=host)

    def _service(self, plan: ServicePlan, routes: Sequence[ServicePlan]) -> Manifest:
        options = self.options if plan is routes[0] else ServiceOptions()
        return make_service(plan, options, self.source.namespace, self.labels)

    def _deployment(self, workload: Workload, plan: ServicePlan | None, metadata: Manifest) -> Manifest:
        scale = scale_of(workload.components, self.record, workload.target)
        template: Manifest = {"hostSelector": scale.selector} if scale.selector else {}
        template["components"] = [self._component(piece, scale, workload.target) for piece in workload.components]
        http = [] if plan is None or workload.listener is None else [_http(workload.listener, plan)]
        template["hostInterfaces"] = [*http, *workload.interfaces.manifests()]
        spec: Manifest = {"replicas": scale.replicas}
        if plan is not None and self.options.wanted:
            spec["kubernetes"] = {"service": {"name": plan.name}}
        return {
            "apiVersion": WORKLOAD_DEPLOYMENTS.api_version,
            "kind": WORKLOAD_DEPLOYMENTS.kind,
            "metadata": {"name": workload.name, "namespace": self.source.namespace, **metadata},
            "spec": spec | {"template": {"spec": template}},
        }

    def _component(self, piece: Piece, scale: Scale, target: str) -> Manifest:
        for place in (piece.place, f"{piece.place}.properties.image"):
            self.record.done(place, target)
        found: Manifest = {"name": self.component_names[piece.place], "image": piece.image}
        if pool := scale.pool_of(piece):
            found["poolSize"] = pool
        environment: Manifest = {}
        if maps := [name for config in piece.config if (name := self.configs.reference_to(config))]:
            environment["configFrom"] = [{"name": name} for name in dict.fromkeys(maps)]
            self.record.note(
                f"{piece.place}.properties.image",
                Reason.CONFIGURATION_INTERFACE,
                f"{piece.name} reads its configuration by wasi:config/store on v2, or as environment variables",
                "Rebuild a component that imports wasi:config/runtime.",
                Way.COMPONENT,
            )
        if secrets := self.secrets.references(piece, target):
            environment["secretFrom"] = [{"name": name} for name in secrets]
        if environment:
            found["localResources"] = {"environment": environment}
        return found

    def _metadata(self, targets: Sequence[str]) -> Manifest:
        """Return the labels and annotations for each workload, and record those that do not fit."""
        labels: dict[str, str] = {}
        for key, value in self.app.labels.items():
            place = f"metadata.labels.{key}"
            if key in _OF_OWNERS:
                message = f"deployment tools delete an object with label {key} that they did not create"
                self.record.note(place, Reason.LABEL, message, "Deploy the workload by the tool.", Way.OBJECT)
            elif targets and is_label(key, value):
                labels[key] = value
                self.record.done(place, targets[0])
            else:
                message = f"Kubernetes does not accept label {key}, or the application has no workload"
                self.record.note(place, Reason.LABEL, message, "Set it on the workload.", Way.OBJECT)
        annotations = self._annotations(targets)
        return {"labels": labels | self.labels} | ({"annotations": annotations} if annotations else {})

    def _annotations(self, targets: Sequence[str]) -> dict[str, str]:
        """Return the annotations for each workload, and record those that do not fit."""
        version = {_VERSION: self.app.version} if self.app.version else {}
        # Those of Trellis are recorded with the options of the Service.
        own = version | {key: value for key, value in self.app.annotations.items() if not key.startswith(_TRELLIS)}
        annotations = valid_annotations((key, value) for key, value in own.items() if targets and key != _SHARED)
        for key in own:
            place = f"metadata.annotations.{key}"
            if key == _SHARED:
                message = "other applications use components of this one; v2 shares no components"
                instead = "Merge the applications, or let them exchange messages by wasmcloud:messaging."
                self.record.note(place, Reason.SHARED_COMPONENT, message, instead, Way.MANIFEST, Way.V1)
            elif key in annotations:
                self.record.done(place, targets[0])
            else:
                message = f"annotation {key} does not fit, or the application has no workload"
                self.record.note(place, Reason.ANNOTATION, message, "Set it on the workload.", Way.OBJECT)
        return annotations


def _order(part: str) -> tuple[tuple[int, str], ...]:
    """Return the key that sorts parts as in the manifest: a number by its length first, since it may have any."""
    return tuple((len(item), item) if item.isdecimal() else (0, item) for item in re.split(r"([0-9]+)", part))


def _is_reference(image: str) -> bool:
    """Return whether hosts can read the text as a reference: without a registry, it is one of Docker Hub."""
    plain = without_other_digest(image)
    for text in (plain, f"docker.io/{plain}"):
        with contextlib.suppress(ValueError):
            return bool(parse_image(text))
    return False


def _http(listener: Listener, plan: ServicePlan) -> Manifest:
    """Return the host interface by which a workload receives HTTP requests."""
    version = listener.link.version
    return make_interface(Need("wasi", "http", ("incoming-handler",), version, config={"host": plan.host}))


def _linked(pieces: Sequence[Piece], app: App) -> list[tuple[Piece, ...]]:
    """Return the components in groups that links connect, in the order of the manifest."""
    by_name = {piece.name: piece for piece in pieces}
    group = {piece.place: {piece.place} for piece in pieces}
    for link in app.links:
        source, target = by_name.get(link.source), by_name.get(link.target)
        if source is not None and target is not None:
            joined = group[source.place] | group[target.place]
            for place in joined:
                group[place] = joined
    ordered: dict[int, list[Piece]] = {}
    for piece in pieces:
        ordered.setdefault(id(group[piece.place]), []).append(piece)
    return [tuple(found) for found in ordered.values()]


def _component_names(app: App) -> dict[str, str]:
    """Return a valid and unique name for each component, by its path."""
    found: dict[str, str] = {}
    for piece in app.pieces:
        name = names.service_name(piece.name)
        if name in found.values():
            name = names.service_name(f"{piece.name}-{names.short_hash(piece.place)}")
        found[piece.place] = name
    return found
