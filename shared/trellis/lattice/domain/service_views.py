"""Views of Pods, Services and EndpointSlices.

Pure: raw objects in, views out. Called by the watches of ``service_reflector``, and by code that shows Services.
Invariant: no view contains a credential.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from trellis import names
from trellis.limits.compact import compact
from trellis.provisioning.other_controllers import NAMES, Peer

Manifest = Mapping[str, Any]

POD_SELECTOR: Final = f"{names.LABEL_MANAGED_BY}={names.WADM_OPERATOR}"
"""Selector of the pods of host groups, with the label of wasmcloud-operator."""
SLICE_SELECTOR: Final = f"{names.LABEL_SLICE_MANAGED_BY}={names.SLICE_MANAGED_BY}"
_ENDED: Final = frozenset({"Failed", "Succeeded"})


@dataclass(frozen=True, slots=True)
class PodView:
    """The pod of a host. ``labels``: host labels from the pod. ``serving``: ready, also while it terminates."""

    namespace: str
    name: str
    uid: str
    group: str
    node: str
    addresses: tuple[str, ...]
    serving: bool
    terminating: bool
    labels: tuple[tuple[str, str], ...]

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def group_key(self) -> str:
        """``namespace/name`` of its group."""
        return f"{self.namespace}/{self.group}"


def view_pod(pod: Manifest) -> PodView:
    """Return the view of a pod; a finished pod has no addresses, because another pod may have them now."""
    metadata, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    labels: Mapping[str, str] = metadata.get("labels") or {}
    ready = {condition["type"]: condition["status"] for condition in status.get("conditions") or ()}.get(
        "Ready"
    ) == "True"
    hosts = {
        name.removeprefix(names.HOST_LABEL_PREFIX): value
        for name, value in labels.items()
        if name.startswith(names.HOST_LABEL_PREFIX)
    }
    ended = status.get("phase") in _ENDED
    return PodView(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        group=labels.get(names.LABEL_INSTANCE, ""),
        node=str(spec.get("nodeName") or ""),
        addresses=()
        if ended
        else tuple(str(pod_ip["ip"]) for pod_ip in status.get("podIPs") or () if pod_ip.get("ip")),
        serving=ready,
        terminating=bool(metadata.get("deletionTimestamp")),
        labels=tuple(sorted({"kubernetes": "true", **hosts}.items())),
    )


@dataclass(frozen=True, slots=True)
class ServiceView:
    """A Service. ``application`` and ``lattice``: what it reflects, "" if Trellis does not manage it.

    ``original``: ``namespace/name`` of the original if a user copied the Service, otherwise "".
    ``of_other_controller``: created by wasmcloud-operator, or with its finalizer, as reflected Services and their
    copies have.
    ``stored``: labels, annotations, finalizers and spec if Trellis or wasmcloud-operator manages it, otherwise None; as
    JSON, a third of the memory.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    application: str = ""
    lattice: str = ""
    of_other_controller: bool = False
    deleting: bool = False
    stored: bytes | None = None
    original: str = ""

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    def manifest(self) -> Manifest:
        """Return the stored part of the Service, {} if there is none."""
        found: Manifest = orjson.loads(self.stored or b"{}")
        return found

    @property
    def finalizers(self) -> tuple[str, ...]:
        """Its finalizers."""
        return tuple(self.manifest().get("finalizers") or ())


def view_service(service: Manifest) -> ServiceView:
    """Return the view of a Service.

    Annotations of Trellis count only on their original Service: users copy manifests, also into other namespaces, and
    edit annotations.
    """
    metadata = service["metadata"]
    annotations, labels = metadata.get("annotations") or {}, metadata.get("labels") or {}
    application = annotations.get(names.ANNOTATION_APPLICATION, "")
    key = f"{metadata['namespace']}/{metadata['name']}"
    reflected_as = annotations.get(names.ANNOTATION_REFLECTED_AS, key)
    original = reflected_as if application and reflected_as != key else ""
    if original or (application and not names.may_be_service_of(metadata["name"], application)):
        application = ""
    finalizers = metadata.get("finalizers") or ()
    of_other_controller = names.WASMCLOUD_OPERATOR_SERVICE in finalizers or (
        labels.get(names.LABEL_MANAGED_BY) in NAMES[Peer.WASMCLOUD_OPERATOR] and not metadata.get("ownerReferences")
    )
    kept = {
        "labels": dict(labels),
        "annotations": dict(annotations),
        "finalizers": list(finalizers),
        "spec": service.get("spec") or {},
    }
    return ServiceView(
        namespace=sys.intern(metadata["namespace"]),
        name=metadata["name"],
        uid=metadata["uid"],
        resource_version=metadata["resourceVersion"],
        application=application,
        lattice=sys.intern(annotations.get(names.ANNOTATION_LATTICE, "")) if application else "",
        of_other_controller=not application and of_other_controller,
        deleting=bool(metadata.get("deletionTimestamp")),
        stored=compact(kept) if application or of_other_controller else None,
        original=original,
    )


@dataclass(frozen=True, slots=True)
class RouteView:
    """An HTTPRoute of Trellis. ``owner``: UID of its Service; ``applied``: digest of its applied ``spec``."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    owner: str
    applied: str
    spec: Manifest = field(default_factory=dict)

    @property
    def key(self) -> str:
        """``namespace/name``, the same as of its Service."""
        return f"{self.namespace}/{self.name}"


def view_route(item: Manifest) -> RouteView:
    """Return the view of an HTTPRoute."""
    metadata = item["metadata"]
    return RouteView(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        resource_version=metadata["resourceVersion"],
        owner=_owner(metadata),
        applied=str((metadata.get("labels") or {}).get(names.LABEL_APPLIED) or ""),
        spec=item.get("spec") or {},
    )


def _owner(metadata: Manifest) -> str:
    """Return the UID of the Service that owns an object, "" if there is none."""
    return next(
        (
            str(owner_reference["uid"])
            for owner_reference in metadata.get("ownerReferences") or ()
            if owner_reference.get("kind") == "Service"
        ),
        "",
    )


@dataclass(frozen=True, slots=True)
class SliceView:
    """An EndpointSlice of Trellis.

    ``served``: its endpoints and ports, as JSON, a fifth of the memory; ``preserved``: text of its annotation.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    service: str
    owner: str
    family: str
    served: bytes
    preserved: str = ""

    @property
    def endpoints(self) -> tuple[Manifest, ...]:
        """Its endpoints."""
        return tuple(orjson.loads(self.served).get("endpoints") or ())

    @property
    def ports(self) -> tuple[Manifest, ...]:
        """Its ports."""
        return tuple(orjson.loads(self.served).get("ports") or ())

    @property
    def service_key(self) -> str:
        """``namespace/name`` of its Service."""
        return f"{self.namespace}/{self.service}"


def view_slice(item: Manifest) -> SliceView:
    """Return the view of an EndpointSlice."""
    metadata = item["metadata"]
    return SliceView(
        namespace=sys.intern(metadata["namespace"]),
        name=metadata["name"],
        uid=metadata["uid"],
        resource_version=metadata["resourceVersion"],
        service=str((metadata.get("labels") or {}).get(names.LABEL_SERVICE_NAME) or ""),
        owner=_owner(metadata),
        family=sys.intern(str(item.get("addressType") or "")),
        served=compact({"endpoints": item.get("endpoints"), "ports": item.get("ports")}),
        preserved=str((metadata.get("annotations") or {}).get(names.ANNOTATION_PRESERVED) or ""),
    )
