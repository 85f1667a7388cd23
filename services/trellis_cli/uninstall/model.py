"""Which objects bear a finalizer of Trellis, or outlive their owner; how that is ended, and what stays behind.

Pure. In: raw manifests, leases, a clock's reading. Out: writes, rows, sentences. Called by ``command``. Invariants:
only finalizers of Trellis are removed, each from the very object, with the finalizers it was seen with; every kind that
a service guards stands in ``GUARDS``; a slice is given the owner that is there now, and one whose owner is not known is
left alone.
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
from trellis.lattice.domain.kept import Kept, read_kept
from trellis.lattice.domain.service_views import SLICE_SELECTOR, view_service

SELECTOR: Final = (
    "app.kubernetes.io/name=trellis,app.kubernetes.io/component in "
    "(application-manager,bundle,host-manager,provisioner,service-reflector)"
)
"""Selects what runs services that put finalizers on objects, as the chart labels it."""
_OVER: Final = frozenset({"Succeeded", "Failed"})
_ESCAPED: Final = names.ANNOTATION_PRESERVED.replace("/", "~1")
"""As a JSON pointer has it."""

Patch = tuple[dict[str, Any], ...]
"""Operations of a JSON patch."""


class LeftReason(StrEnum):
    """Why a slice keeps its annotation, and so outlives its Service."""

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
    """A finalizer that a service puts on a kind.

    ``mark``: annotation of the objects that Trellis manages, ``selector``: labels that do. ``stays``: what holds
    once it is gone.
    ``unfinished``: what was not done to an object that was being deleted. ``claimed``: the kind is looked after by one
    installation of the cluster, the one that provisions its nodes.
    """

    service: str
    res: Resource
    finalizer: str
    stays: str
    unfinished: str
    mark: str = ""
    claimed: bool = False
    selector: str | None = None

    def is_ours(self, manifest: Manifest) -> bool:
        """Say whether an object of the kind is one that the service looks after."""
        return not self.mark or self.mark in (manifest["metadata"].get("annotations") or {})

    def holds(self, manifest: Manifest) -> bool:
        """Say whether the finalizer holds an object."""
        return self.is_ours(manifest) and self.finalizer in (manifest["metadata"].get("finalizers") or ())

    def owner_name(self, manifest: Manifest) -> str:
        """Return the name of the Service, of the object's namespace, that ``removal`` is to be given; "" for none."""
        del manifest
        return ""

    def removal(self, manifest: Manifest, service: Manifest | None = None) -> Patch | Left:
        """Return the JSON patch that takes it away: from this object, if its finalizers are still those."""
        del service
        metadata = manifest["metadata"]
        there = metadata["finalizers"]
        return (
            {"op": "test", "path": "/metadata/uid", "value": metadata["uid"]},
            {"op": "test", "path": "/metadata/finalizers", "value": there},
            {
                "op": "replace",
                "path": "/metadata/finalizers",
                "value": [one for one in there if one != self.finalizer],
            },
        )


@dataclass(frozen=True, slots=True)
class KeptGuard(Guard):
    """An annotation, in place of a finalizer, with which an EndpointSlice outlives its Service."""

    def holds(self, manifest: Manifest) -> bool:
        """Say whether a slice stays when its Service goes, whatever its annotation says."""
        return bool(_annotation(manifest))

    def readable(self, manifest: Manifest) -> bool:
        """Say whether the annotation tells which Service it was."""
        return _kept(manifest) is not None

    def owner_name(self, manifest: Manifest) -> str:
        """Return the name that the slice's label says, or else the annotation together with the slice's own name."""
        metadata, kept = manifest["metadata"], read_kept(_annotation(manifest))
        label = (metadata.get("labels") or {}).get(names.LABEL_SERVICE_NAME) or ""
        if label or kept is None:
            return str(label)
        # The second name begins with the plain one, so it is compared first.
        may_be = (names.second_service_name(kept.application, kept.lattice), names.service_name(kept.application))
        return next((one for one in may_be if metadata["name"].startswith(_slice_prefix(one))), "")

    def removal(self, manifest: Manifest, service: Manifest | None = None) -> Patch | Left:
        """Return the JSON patch that has the slice go with its Service.

        ``service``: as it is now, None if there is none of the name. The uid of the annotation is the one of a Service
        that is gone, if that was created again since: with it as owner the slice would be collected beside the new one.
        It counts if there is no Service, and if the Service of the name is another's: that is not to lead to our hosts.
        """
        metadata, name, kept = manifest["metadata"], self.owner_name(manifest), _kept(manifest)
        uid = kept.uid if kept is not None else ""
        if service is not None and (kept is None or view_service(service).application):
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


def _kept(piece: Manifest) -> Kept | None:
    """Return what a slice keeps, None if that cannot be read, or does not tell of which Service."""
    kept = read_kept(_annotation(piece))
    return kept if kept is not None and kept.uid else None


def _slice_prefix(service: str) -> str:
    """Return what the names of all slices of a Service begin with."""
    return names.slice_name(service, "", "", 0).rsplit("-", 2)[0] + "-"


def _left(piece: Manifest, service: str) -> Left:
    """Return why nothing tells the owner of a slice whose annotation cannot be read."""
    metadata = piece["metadata"]
    remedy = f"delete the slice: kubectl delete endpointslice -n {metadata['namespace']} {metadata['name']}"
    unreadable = f"annotation {names.ANNOTATION_PRESERVED} cannot be read"
    if not service:
        why = f"{unreadable}, and there is no label {names.LABEL_SERVICE_NAME}, so the slice is in use by no Service"
        return Left(LeftReason.SERVICE_UNKNOWN, f"{why}: {remedy}")
    why = f"{unreadable}, and Service {service} of label {names.LABEL_SERVICE_NAME} does not exist"
    return Left(LeftReason.SERVICE_MISSING, f"{why}: {remedy}")


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
        mark=names.ANNOTATION_APPLICATION,
    ),
    Guard(
        "application-manager",
        APPLICATIONS,
        names.FINALIZER_APPLICATIONS,
        stays="wadm runs on what it runs; deleting one of these objects no longer undeploys it",
        unfinished="perhaps still in wadm: remove it there with wash",
    ),
    Guard(
        "host-manager",
        HOST_CONFIGS,
        names.FINALIZER_HOSTS,
        stays="their hosts run on; deleting a group deletes its hosts, as Kubernetes collects what it owns",
        unfinished="gone, with its hosts",
    ),
    Guard(
        "provisioner",
        SHIMS,
        names.FINALIZER,
        stays="what they brought to nodes stays there, and no longer goes with them: to have it removed, delete them "
        "while provisioner runs",
        unfinished="what it brought may still be on nodes",
        claimed=True,
    ),
)
"""In the order in which they go: what mirrors something before what it mirrors, hosts before what runs them."""


@dataclass(slots=True)
class Row:
    """What became of one kind. ``there``: how many of ours there are; the others are their keys.

    ``left_to``: another installation, which looks after the kind. ``left``: by key why an object was left alone.
    ``unreadable``: of the removed, those whose annotation could not be read.
    """

    guard: Guard
    there: int = 0
    removed: list[str] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    left_to: str = ""
    left: dict[str, Left] = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)

    def took(self, manifest: Manifest) -> None:
        """Note that the finalizer of an object was removed."""
        self.removed.append(key_of(manifest))
        if isinstance(self.guard, KeptGuard) and not self.guard.readable(manifest):
            self.unreadable.append(key_of(manifest))
        if manifest["metadata"].get("deletionTimestamp"):
            self.unfinished.append(key_of(manifest))

    def document(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            "kind": self.guard.res.kind,
            "there": self.there,
            "removed": self.removed,
            "unfinished": self.unfinished,
            "stays": self.guard.stays if self.there and not self.left_to else "",
            "leftTo": self.left_to,
            "unreadable": sorted(self.unreadable),
            "left": [
                {"name": key, "reason": one.reason.value, "message": one.message}
                for key, one in sorted(self.left.items())
            ],
        }

    @property
    def note(self) -> str:
        """What a person has to know."""
        if self.left_to:
            return f"not changed: managed by installation {self.left_to}, which provisions the nodes"
        parts = [self.guard.stays] if self.there else []
        if self.unfinished:
            parts.append(f"were being deleted, {self.guard.unfinished}: {', '.join(self.unfinished)}")
        if self.unreadable:
            why = f"annotation {self.guard.finalizer} cannot be read, so the Service of the label is the owner"
            parts.append(f"{why}: {', '.join(sorted(self.unreadable))}")
        parts += [f"not changed: {key}: {one.message}" for key, one in sorted(self.left.items())]
        return "; ".join(parts)


def chosen(confined: Iterable[str]) -> tuple[tuple[Guard, str | None], ...]:
    """Return each guard with a namespace to look in, None for all.

    ``confined``: those of a host_manager without a ClusterRole, which runs alone.
    """
    places = list(dict.fromkeys(confined))
    if not places:
        return tuple((guard, None) for guard in (SLICES, *GUARDS))
    return tuple((guard, place) for guard in GUARDS if guard.res is HOST_CONFIGS for place in places)


def replicas_of(deployment: Manifest) -> int:
    """Return how many pods a Deployment is to have."""
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
    """Who still leads: a lease counts as dead once it did not change for its own duration, by our clock alone."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[LeaseRecord, float]] = {}
        self._renewed: set[str] = set()

    def leader(self, service: str, record: LeaseRecord | None, now: float) -> str:
        """Return who leads a service, "" for none; ``now``: seconds of a clock that never jumps."""
        if record is None or not record.holder:
            return ""
        former = self._seen.get(service)
        if former is not None and former[0] != record:
            self._renewed.add(service)
        if former is None or former[0] != record:
            self._seen[service] = former = (record, now)
        return record.holder if now - former[1] <= record.duration else ""

    def renewed(self, service: str) -> bool:
        """Say whether a lease changed since it was looked at first: then its holder lives for sure."""
        return service in self._renewed
