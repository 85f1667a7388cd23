"""Views of the objects of a viewer, with only the fields that the page shows.

Pure: raw objects in, views out. Called by the watches of ``watching``, read by ``composing``.
Invariants: no view contains credentials; two views are equal if no shown field differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trellis import names
from trellis.lattice.domain.group_views import lattice_name
from trellis.lattice.domain.service_views import view_service
from trellis.provisioning.ledger import Ledger, read_ledger
from trellis.provisioning.shim_status import Status, read_status
from trellis.provisioning.shims import ShimView, view_shim
from trellis.read_model.explain.application import AppGroup, AppState, app_group, app_state
from trellis.read_model.explain.controller import controller_health
from trellis.read_model.explain.hosts import group_health
from trellis.read_model.explain.job import LABEL_JOB_NAME, stopped_pod
from trellis.read_model.explain.page import Line
from trellis.read_model.health import Verdict
from trellis.read_model.tables.apps import row_of
from trellis.read_model.tables.controllers import controller_row

Manifest = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ShimCard:
    """A Shim and its status."""

    view: ShimView
    status: Status


def view_shim_card(manifest: dict[str, Any]) -> ShimCard:
    """Return the card of a Shim."""
    return ShimCard(view_shim(manifest), read_status(manifest))


@dataclass(frozen=True, slots=True)
class InstallerCard:
    """A pod of an installer Job that does not start. ``job``: name of the Job; ``cause``: as its node's page has it."""

    job: str
    cause: Line


def view_installer(manifest: Manifest) -> InstallerCard | None:
    """Return the card of a pod of an installer Job, or None if it starts."""
    cause = stopped_pod(manifest)
    job = (manifest["metadata"].get("labels") or {}).get(LABEL_JOB_NAME, "")
    return InstallerCard(job, cause) if cause is not None else None


def view_ledger(manifest: dict[str, Any]) -> Ledger | None:
    """Return the rollout ledger in a ConfigMap, or None for any other ConfigMap."""
    return read_ledger(manifest) if manifest["metadata"]["name"] == names.LEDGER else None


@dataclass(frozen=True, slots=True)
class SeenHost:
    """The lattice's report on the host in a pod. ``applications``: those with a component or provider there."""

    id: str = ""
    version: str = ""
    reported: str = "Unknown"
    applications: tuple[str, ...] = ()
    components: int = 0
    providers: int = 0


@dataclass(frozen=True, slots=True)
class GroupCard:
    """A host group. ``hosts``: by name of a pod; ``apps``: as applications of its lattice depend on it."""

    namespace: str
    name: str
    lattice: str
    workload: str
    desired: int
    ready: int
    updated: int
    applications: tuple[str, ...]
    deleting: bool
    verdict: Verdict
    apps: AppGroup
    hosts: Mapping[str, SeenHost] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


def view_group_card(manifest: Manifest) -> GroupCard:
    """Return the card of a WasmCloudHostConfig."""
    metadata, spec, status = manifest["metadata"], manifest.get("spec") or {}, manifest.get("status") or {}
    reports = {str(lattice_host.get("id")): lattice_host for lattice_host in status.get("latticeHosts") or ()}
    return GroupCard(
        namespace=metadata["namespace"],
        name=metadata["name"],
        lattice=str(spec.get("lattice") or ""),
        workload=str(status.get("workload") or ""),
        desired=int(status.get("desiredReplicas") or 0),
        ready=int(status.get("readyReplicas") or 0),
        updated=int(status.get("updatedReplicas") or 0),
        applications=tuple(sorted(str(app.get("name")) for app in status.get("apps") or ())),
        deleting=bool(metadata.get("deletionTimestamp")),
        verdict=group_health(manifest),
        apps=app_group(manifest),
        hosts={
            str(host.get("pod")): _seen(host, reports.get(str(host.get("id")), {}))
            for host in status.get("hosts") or ()
        },
    )


def _seen(host: Manifest, report: Manifest) -> SeenHost:
    return SeenHost(
        id=str(host.get("id") or ""),
        version=str(host.get("version") or ""),
        reported=str(host.get("reported") or "Unknown"),
        applications=tuple(sorted(map(str, report.get("applications") or ()))),
        components=len(report.get("components") or ()),
        providers=len(report.get("providers") or ()),
    )


@dataclass(frozen=True, slots=True)
class AppCard:
    """An Application, without the time of its last sync, which changes often."""

    namespace: str
    name: str
    application: str
    lattice: str
    phase: str
    deployed: str
    state: AppState


def view_app_card(manifest: Manifest) -> AppCard:
    """Return the card of an Application."""
    row, state = row_of(manifest), app_state(manifest)
    return AppCard(row.namespace, row.name, row.application, row.lattice, row.phase, row.deployed, state)


@dataclass(frozen=True, slots=True)
class Port:
    """One port of a Service; ``node_port`` 0 for none."""

    name: str
    port: int
    protocol: str
    node_port: int = 0


@dataclass(frozen=True, slots=True)
class ServiceCard:
    """A Service that reflects an application."""

    namespace: str
    name: str
    application: str
    lattice: str
    type: str
    addresses: tuple[str, ...]
    ports: tuple[Port, ...]
    deleting: bool

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


def view_service_card(manifest: Manifest) -> ServiceCard | None:
    """Return the card of a Service, or None if it reflects no application."""
    view = view_service(manifest)
    if not view.application:
        return None
    spec = manifest.get("spec") or {}
    addresses = spec.get("clusterIPs") or [spec.get("clusterIP")]
    return ServiceCard(
        namespace=view.namespace,
        name=view.name,
        application=view.application,
        lattice=lattice_name(view.lattice),
        type=str(spec.get("type") or "ClusterIP"),
        addresses=tuple(str(address) for address in addresses if address),
        ports=tuple(
            Port(
                str(port.get("name") or ""),
                int(port.get("port") or 0),
                str(port.get("protocol") or "TCP"),
                int(port.get("nodePort") or 0),
            )
            for port in spec.get("ports") or ()
        ),
        deleting=view.deleting,
    )


@dataclass(frozen=True, slots=True)
class Ends:
    """Readiness of the endpoints of a slice, by pod; ``others``: that of addresses without a pod."""

    service: str
    pods: tuple[tuple[str, bool], ...]
    others: tuple[bool, ...]


def view_ends(manifest: Manifest) -> Ends:
    """Return the endpoints of an EndpointSlice; ``service`` is ``namespace/name`` of its Service."""
    metadata = manifest["metadata"]
    name = (metadata.get("labels") or {}).get(names.LABEL_SERVICE_NAME, "")
    pods: list[tuple[str, bool]] = []
    others: list[bool] = []
    for endpoint in manifest.get("endpoints") or ():
        ready = bool((endpoint.get("conditions") or {}).get("ready"))
        target = endpoint.get("targetRef") or {}
        if target.get("kind") == "Pod":
            pods.append((f"{target.get('namespace') or metadata['namespace']}/{target.get('name')}", ready))
        else:
            others.append(ready)
    return Ends(f"{metadata['namespace']}/{name}", tuple(pods), tuple(others))


@dataclass(frozen=True, slots=True)
class ControllerCard:
    """A WasmController. ``row``: as in tables."""

    namespace: str
    name: str
    row: Mapping[str, Any]
    verdict: Verdict


def view_controller_card(manifest: Manifest) -> ControllerCard:
    """Return the card of a WasmController."""
    row = controller_row(manifest)
    return ControllerCard(row.namespace, row.name, row.document(), controller_health(manifest))
