"""Objects with a finalizer of Trellis, or that outlive their owner; how that is ended, and the remaining effects.

Pure. In: raw manifests, leases, clock readings. Out: writes, rows, texts. Called by ``command``. Invariants: only
finalizers of Trellis are removed, each only if the object still has the finalizers that were read; ``GUARDS`` has every
kind with a finalizer of a service; a slice gets the existing owner, and one without a known owner is not changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from trellis import names
from trellis.kube.lease import LeaseRecord
from trellis.kube.resources import (
    APPLICATIONS,
    ENDPOINT_SLICES,
    HOST_CONFIGS,
    SERVICES,
    SHIMS,
    Manifest,
    Resource,
    key_of,
)
from trellis.lattice.domain.preserved import PreservedAllocation, read_preserved
from trellis.lattice.domain.service_views import SLICE_SELECTOR, view_service

SELECTOR: Final = (
    f"{names.LABEL_PART_OF}={names.PART_OF},app.kubernetes.io/component in "
    "(application-manager,bundle,host-manager,provisioner,service-reflector)"
)
"""Selects the workloads of services that set finalizers, by the labels of the chart."""
_OVER: Final = frozenset({"Succeeded", "Failed"})
_ESCAPED: Final = names.ANNOTATION_PRESERVED.replace("/", "~1")
"""Escaped for a JSON pointer."""

Patch = tuple[dict[str, Any], ...]
"""Operations of a JSON patch."""


class LeftReason(StrEnum):
    """Reason why a slice keeps its annotation, and so outlives its Service."""

    SERVICE_UNREADABLE = "ServiceUnreadable"
    SERVICE_MISSING = "ServiceMissing"
    SERVICE_UNKNOWN = "ServiceUnknown"


@dataclass(frozen=True, slots=True)
class Left:
    """An object that was not changed: reason and resolution."""

    reason: LeftReason
    message: str


@dataclass(frozen=True, slots=True)
class Guard:
    """A finalizer that a service sets on a kind.

    ``annotation``: annotation of the objects that Trellis manages, ``selector``: labels of these. ``stays``: the
    effect of its removal. ``unfinished``: the missing cleanup of objects that were being deleted. ``claimed``: the
    kind is managed by one installation of the cluster, the one that provisions its nodes.
    """

    service: str
    res: Resource
    finalizer: str
    stays: str
    unfinished: str
    annotation: str = ""
    claimed: bool = False
    selector: str | None = None

    def is_ours(self, manifest: Manifest) -> bool:
        """Return whether the service manages an object of the kind."""
        return not self.annotation or self.annotation in (manifest["metadata"].get("annotations") or {})

    def holds(self, manifest: Manifest) -> bool:
        """Return whether the finalizer blocks an object."""
        return self.is_ours(manifest) and self.finalizer in (manifest["metadata"].get("finalizers") or ())

    def owner_name(self, manifest: Manifest) -> str:
        """Return the name of the Service, in the namespace of the object, that ``removal`` needs; "" for none."""
        del manifest
        return ""

    def removal(self, manifest: Manifest, service: Manifest | None = None) -> Patch | Left:
        """Return the JSON patch that removes the finalizer from this object, if its finalizers are unchanged."""
        del service
        metadata = manifest["metadata"]
        there = metadata["finalizers"]
        return (
            {"op": "test", "path": "/metadata/uid", "value": metadata["uid"]},
            {"op": "test", "path": "/metadata/finalizers", "value": there},
            {
                "op": "replace",
                "path": "/metadata/finalizers",
                "value": [item for item in there if item != self.finalizer],
            },
        )


@dataclass(frozen=True, slots=True)
class KeptGuard(Guard):
    """An annotation, instead of a finalizer, with which an EndpointSlice outlives its Service."""

    def holds(self, manifest: Manifest) -> bool:
        """Return whether a slice stays when its Service is deleted; an unreadable annotation counts too."""
        return bool(_annotation(manifest))

    def readable(self, manifest: Manifest) -> bool:
        """Return whether the annotation names the Service."""
        return _preserved(manifest) is not None

    def owner_name(self, manifest: Manifest) -> str:
        """Return the name in the label of the slice, else that in the annotation, verified by the name of the slice."""
        metadata, preserved = manifest["metadata"], read_preserved(_annotation(manifest))
        label = (metadata.get("labels") or {}).get(names.LABEL_SERVICE_NAME) or ""
        if label or preserved is None:
            return str(label)
        # The second name starts with the plain one, so it is compared first.
        may_be = (
            names.second_service_name(preserved.application, preserved.lattice),
            names.service_name(preserved.application),
        )
        return next((item for item in may_be if metadata["name"].startswith(_slice_prefix(item))), "")

    def removal(self, manifest: Manifest, service: Manifest | None = None) -> Patch | Left:
        """Return the JSON patch that lets the slice be deleted with its Service.

        ``service``: as it is now, None if the name does not exist. If the Service was re-created, the annotation has
        the uid of the deleted one: with it as owner the slice would be garbage-collected next to the new Service. That
        uid is used if the Service does not exist, or if Trellis does not manage it: it must not lead to managed hosts.
        """
        metadata, name, preserved = manifest["metadata"], self.owner_name(manifest), _preserved(manifest)
        uid = preserved.uid if preserved is not None else ""
        if service is not None and (preserved is None or view_service(service).application):
            uid = service["metadata"]["uid"]
        if not name or not uid:
            return _left(manifest, name)
        path = f"/metadata/annotations/{_ESCAPED}"
        owner = {"apiVersion": "v1", "kind": "Service", "name": name, "uid": uid}
        return (
            {"op": "test", "path": "/metadata/uid", "value": metadata["uid"]},
            {"op": "test", "path": path, "value": _annotation(manifest)},
            {"op": "remove", "path": path},
            {"op": "add", "path": "/metadata/ownerReferences", "value": [owner]},
        )


def _annotation(piece: Manifest) -> str:
    return (piece["metadata"].get("annotations") or {}).get(names.ANNOTATION_PRESERVED) or ""


def _preserved(piece: Manifest) -> PreservedAllocation | None:
    """Return the content of the annotation of a slice, None if it is invalid, or does not name the Service."""
    preserved = read_preserved(_annotation(piece))
    return preserved if preserved is not None and preserved.uid else None


def _slice_prefix(service: str) -> str:
    """Return the common prefix of the names of all slices of a Service."""
    return names.slice_name(service, "", "", 0).rsplit("-", 2)[0] + "-"


def _left(piece: Manifest, service: str) -> Left:
    """Return why the owner of a slice with an unreadable annotation is unknown."""
    metadata = piece["metadata"]
    remedy = f"delete the slice: kubectl delete endpointslice -n {metadata['namespace']} {metadata['name']}"
    unreadable = f"annotation {names.ANNOTATION_PRESERVED} cannot be read"
    if not service:
        reason = f"{unreadable}, and the label {names.LABEL_SERVICE_NAME} is missing, so no Service uses the slice"
        return Left(LeftReason.SERVICE_UNKNOWN, f"{reason}: {remedy}")
    reason = f"{unreadable}, and Service {service} of label {names.LABEL_SERVICE_NAME} does not exist"
    return Left(LeftReason.SERVICE_MISSING, f"{reason}: {remedy}")


SLICES: Final = KeptGuard(
    "service-reflector",
    ENDPOINT_SLICES,
    names.ANNOTATION_PRESERVED,
    stays="endpoints stay, and are deleted with their Services",
    unfinished="gone",
    selector=SLICE_SELECTOR,
)
GUARDS: Final[tuple[Guard, ...]] = (
    Guard(
        "service-reflector",
        SERVICES,
        names.WASMCLOUD_OPERATOR_SERVICE,
        stays="endpoints stay, and no longer follow the hosts",
        unfinished="gone",
        annotation=names.ANNOTATION_APPLICATION,
    ),
    Guard(
        "application-manager",
        APPLICATIONS,
        names.FINALIZER_APPLICATIONS,
        stays="applications keep running; deleting one of these objects no longer undeploys it",
        unfinished="possibly still in wadm: delete it there with wash",
    ),
    Guard(
        "host-manager",
        HOST_CONFIGS,
        names.FINALIZER_HOSTS,
        stays="hosts keep running; deleting a group deletes its hosts through garbage collection",
        unfinished="deleted with its hosts",
    ),
    Guard(
        "provisioner",
        SHIMS,
        names.FINALIZER,
        stays="installed runtimes stay on nodes, and are no longer removed with the Shim; to uninstall them, delete "
        "the Shims while provisioner runs",
        unfinished="its runtimes may still be on nodes",
        claimed=True,
    ),
)
"""In processing order: reflected objects before their sources, hosts before the runtimes below them."""


@dataclass(slots=True)
class Row:
    """Result for one kind. ``there``: number of objects that Trellis manages; all other fields are keys of objects.

    ``left_to``: another installation that manages the kind. ``left``: by key, why an object was not changed.
    ``unreadable``: of the removed, those with an unreadable annotation.
    """

    guard: Guard
    there: int = 0
    removed: list[str] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    left_to: str = ""
    left: dict[str, Left] = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)

    def took(self, manifest: Manifest) -> None:
        """Record the removal of the finalizer of an object."""
        self.removed.append(key_of(manifest))
        if isinstance(self.guard, KeptGuard) and not self.guard.readable(manifest):
            self.unreadable.append(key_of(manifest))
        if manifest["metadata"].get("deletionTimestamp"):
            self.unfinished.append(key_of(manifest))

    def document(self) -> dict[str, Any]:
        """Return the row for JSON."""
        return {
            "kind": self.guard.res.kind,
            "managed": self.there,
            "removed": self.removed,
            "unfinished": self.unfinished,
            "remains": self.guard.stays if self.there and not self.left_to else "",
            "managed_by": self.left_to,
            "unreadable": sorted(self.unreadable),
            "unchanged": [
                {"name": key, "reason": item.reason.value, "message": item.message}
                for key, item in sorted(self.left.items())
            ],
        }

    @property
    def note(self) -> str:
        """Information for the user."""
        if self.left_to:
            return f"not changed: managed by installation {self.left_to}, which provisions the nodes"
        parts = [self.guard.stays] if self.there else []
        if self.unfinished:
            parts.append(f"were being deleted, {self.guard.unfinished}: {', '.join(self.unfinished)}")
        if self.unreadable:
            reason = f"annotation {self.guard.finalizer} cannot be read, so the Service of the label is the owner"
            parts.append(f"{reason}: {', '.join(sorted(self.unreadable))}")
        parts += [f"not changed: {key}: {item.message}" for key, item in sorted(self.left.items())]
        return "; ".join(parts)


def chosen(confined: Iterable[str]) -> tuple[tuple[Guard, str | None], ...]:
    """Return each guard with its namespace, None for all.

    ``confined``: namespaces of a host_manager without a ClusterRole, which runs alone.
    """
    places = list(dict.fromkeys(confined))
    if not places:
        return tuple((guard, None) for guard in (SLICES, *GUARDS))
    return tuple((guard, place) for guard in GUARDS if guard.res is HOST_CONFIGS for place in places)


def replicas_of(deployment: Manifest) -> int:
    """Return the desired number of pods of a Deployment."""
    wanted = (deployment.get("spec") or {}).get("replicas")
    return 1 if wanted is None else int(wanted)


def still_run(pods: Iterable[Manifest]) -> list[str]:
    """Return the pods that are not terminating."""
    return sorted(
        pod["metadata"]["name"]
        for pod in pods
        if not pod["metadata"].get("deletionTimestamp") and (pod.get("status") or {}).get("phase") not in _OVER
    )


class Leases:
    """Leaders of services: a Lease has expired if it did not change for its duration by the local clock."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[LeaseRecord, float]] = {}
        self._renewed: set[str] = set()

    def leader(self, service: str, record: LeaseRecord | None, now: float) -> str:
        """Return the leader of a service, "" for none; ``now``: seconds of a monotonic clock."""
        if record is None or not record.holder:
            return ""
        former = self._seen.get(service)
        if former is not None and former[0] != record:
            self._renewed.add(service)
        if former is None or former[0] != record:
            self._seen[service] = former = (record, now)
        return record.holder if now - former[1] <= record.duration else ""

    def renewed(self, service: str) -> bool:
        """Return whether a Lease changed since its first read: then its holder is certainly alive."""
        return service in self._renewed
