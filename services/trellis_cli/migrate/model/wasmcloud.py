"""What becomes of the aggregated API and the Services that wasmcloud-operator left.

Pure: raw objects in, steps out; the host groups and what stays of the operator itself have modules of their own.
Called by ``migrate_wasmcloud``.
Invariants: no pod is restarted and no address changes; only an APIService that points to the operator is deleted, only
the operator's own finalizers are taken away, and those only from objects that are being deleted.
Source of the facts: wasmcloud-operator 0.5.1. At each start it registers ``v1beta1.core.oam.dev`` as an API that it
serves itself, behind a Service whose name is fixed, and it never takes that registration away.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from host_manager.domain.children import ChildKey
from host_manager.domain.inputs import Source
from trellis import names
from trellis.kube.preconditions import only_if
from trellis.kube.resources import API_SERVICES, SERVICES, Resource
from trellis.provisioning.other_controllers import NAMES, Peer, view_controller
from trellis_cli.migrate.model.plan import Doing, Step
from trellis_cli.migrate.model.writes import DeleteObject, PatchObject

Manifest = dict[str, Any]

APPLICATION_API: Final = "v1beta1.core.oam.dev"
"""Name of the APIService of applications."""


@dataclass(frozen=True, slots=True)
class FormerGroup:
    """A WasmCloudHostConfig, its children by kind and name, and what it names, None if that is missing."""

    manifest: Manifest
    children: Mapping[ChildKey, Manifest]
    sources: Mapping[Source, Manifest | None] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Former:
    """All that a plan may depend on, raw. ``pods``: of hosts. ``objects``: that may be parts of the operator itself.

    ``definition``: of host groups; ``applications``: the definition of applications. ``rights``: all roles and
    bindings; ``apps``: Applications; ``grants``: SecretGrants.
    """

    registration: Manifest | None = None
    definition: Manifest | None = None
    applications: Manifest | None = None
    groups: tuple[FormerGroup, ...] = ()
    services: tuple[Manifest, ...] = ()
    slices: tuple[Manifest, ...] = ()
    pods: tuple[Manifest, ...] = ()
    deployments: tuple[Manifest, ...] = ()
    objects: tuple[Manifest, ...] = ()
    rights: tuple[Manifest, ...] = ()
    apps: tuple[Manifest, ...] = ()
    grants: tuple[Manifest, ...] = ()


def place_of(manifest: Mapping[str, Any]) -> str:
    """Return ``Kind namespace/name``."""
    metadata = manifest["metadata"]
    return f"{manifest['kind']} " + "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))


def without_finalizer(res: Resource, manifest: Mapping[str, Any], finalizer: str) -> PatchObject:
    """Return the write that takes one finalizer away, from this very object in this very state."""
    metadata = manifest["metadata"]
    kept = [one for one in metadata["finalizers"] if one != finalizer]
    ops = (
        *only_if(metadata["uid"], metadata["resourceVersion"]),
        {"op": "replace", "path": "/metadata/finalizers", "value": kept},
    )
    return PatchObject(res, metadata.get("namespace"), metadata["name"], ops)


def is_registered(registration: Mapping[str, Any] | None) -> bool:
    """Say whether the API of applications is the operator's: one of a definition, or KubeVela's, points elsewhere."""
    service = ((registration or {}).get("spec") or {}).get("service") or {}
    return service.get("name") in NAMES[Peer.WASMCLOUD_OPERATOR]


def still_served(former: Former) -> list[str]:
    """Return what shows that an operator runs that no Deployment tells of: something answers behind its API."""
    found = former.registration
    running = (view_controller(item, (Peer.WASMCLOUD_OPERATOR,)) for item in former.deployments)
    if found is None or not is_registered(found) or any(running):
        return []
    for one in (found.get("status") or {}).get("conditions") or ():
        if one.get("type") == "Available" and one.get("status") == "True":
            service = found["spec"]["service"]
            place = f"Service {service.get('namespace')}/{service['name']}"
            return [f"{place_of(found)} is served: look for what runs behind {place}, or wait if it has just ended"]
    return []


def plan_registration(former: Former) -> list[Step]:
    """Return what becomes of the aggregated API; nothing if there is none."""
    found = former.registration
    service = ((found or {}).get("spec") or {}).get("service")
    if found is None or not service:
        return []  # there is none, or it is the API server's own for a CustomResourceDefinition
    metadata = found["metadata"]
    what = f"API of applications, served by Service {service.get('namespace')}/{service.get('name')}"
    if not is_registered(found):
        return [Step(place_of(found), what, Doing.LEAVE, "it is not wasmcloud-operator's")]
    why = (
        "without its operator it keeps every namespace of the cluster from being deleted, and it hides the "
        "CustomResourceDefinition of applications; applications themselves stay in wadm"
    )
    if any(view_controller(item, (Peer.WASMCLOUD_OPERATOR,)) for item in former.deployments):
        why += "; the operator registers it again when it restarts: then run the command again"
    write = DeleteObject(API_SERVICES, None, metadata["name"], metadata["uid"], metadata["resourceVersion"])
    return [Step(place_of(found), what, Doing.DELETE, why, write)]


def plan_services(former: Former) -> list[Step]:
    """Return what becomes of each Service that mirrors an application, by place."""
    slices: dict[tuple[str, str], list[Manifest]] = {}
    for item in former.slices:
        service = (item["metadata"].get("labels") or {}).get("kubernetes.io/service-name", "")
        slices.setdefault((item["metadata"]["namespace"], service), []).append(item)
    running = {address for pod in former.pods for address in _addresses_of_pod(pod)}
    steps = []
    for item in sorted(filter(mirrors_application, former.services), key=place_of):
        found = slices.get((item["metadata"]["namespace"], item["metadata"]["name"]), [])
        steps.append(_service(item, found, running))
    return steps


def mirrors_application(service: Mapping[str, Any]) -> bool:
    """Say whether a Service is one that the operator made for an application."""
    metadata = service["metadata"]
    if names.ANNOTATION_APPLICATION in (metadata.get("annotations") or {}):
        return False  # service_reflector's by now
    if names.WASMCLOUD_OPERATOR_SERVICE in (metadata.get("finalizers") or ()):
        return True
    return (metadata.get("labels") or {}).get(names.LABEL_MANAGED_BY) in NAMES[Peer.WASMCLOUD_OPERATOR]


def _service(item: Manifest, slices: Iterable[Manifest], running: set[str]) -> Step:
    metadata, spec = item["metadata"], item.get("spec") or {}
    ports = ", ".join(str(port["port"]) for port in spec.get("ports") or ())
    what = f"mirrors application {metadata['name']}, port {ports}"
    guarded = names.WASMCLOUD_OPERATOR_SERVICE in (metadata.get("finalizers") or ())
    if metadata.get("deletionTimestamp"):
        if not guarded:
            return Step(place_of(item), what, Doing.LEAVE, "it is being deleted")
        why = f"it is being deleted, and no controller removes the finalizer {names.WASMCLOUD_OPERATOR_SERVICE}"
        write = without_finalizer(SERVICES, item, names.WASMCLOUD_OPERATOR_SERVICE)
        return Step(place_of(item), what, Doing.FINALIZER_REMOVED, why, write)
    if spec.get("selector"):
        why = "it selects the pods of hosts by their labels, and goes on to"
    else:
        why = _addresses(slices, running)
    if guarded:
        why += "; the operator's finalizer holds it: to be rid of it, delete it, then run this again"
    return Step(place_of(item), what, Doing.KEEP, why)


def _addresses(slices: Iterable[Manifest], running: set[str]) -> str:
    """Tell where a Service without selector leads to, and which of it is stale."""
    endpoints = [one for item in slices for one in item.get("endpoints") or ()]
    found = sorted({address for one in endpoints for address in one.get("addresses") or ()})
    if not found:
        return "it has no address, so nothing answers there: service_reflector gives it some, if it is deployed"
    stale = [address for address in found if address not in running]
    told = f"it goes on to serve from {len(found)} fixed addresses, which follow no pods until service_reflector has it"
    return told + (f"; of no running host are {', '.join(stale)}" if stale else "")


def _addresses_of_pod(pod: Mapping[str, Any]) -> Iterable[str]:
    status = pod.get("status") or {}
    if status.get("phase") == "Running":
        yield from (one["ip"] for one in status.get("podIPs") or () if one.get("ip"))
