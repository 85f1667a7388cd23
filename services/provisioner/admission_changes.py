"""Detects changes of installer Jobs by admission: policies and webhooks may return another object than requested.

In: a Job as requested and as the API server returned it. Out: differences, each harmless, worth a report, or such that
the Job is unusable. Called by ``apply`` and ``canary_apply`` when they create a Job, by ``apply`` when it finds one.
Invariant: no Job stays that the watch cannot see, that works on another node, or that runs two installers.
Defaults, and added labels, annotations, variables, volumes and tolerations, do not count as differences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from trellis import names
from trellis.kube.client import Kube
from trellis.kube.errors import Call, Conflict, Forbidden, NotFound
from trellis.kube.resources import JOBS

Manifest = Mapping[str, Any]


class Changed(StrEnum):
    """Part of a Job that admission changed."""

    MARKS = "MarksChangedByAdmission"
    NODE = "NodeChangedByAdmission"
    PARALLELISM = "ParallelismChangedByAdmission"
    SUSPENDED = "SuspendedByAdmission"
    DEADLINE = "DeadlineChangedByAdmission"
    PLACEMENT = "PlacementChangedByAdmission"
    CONTAINER = "ContainerAddedByAdmission"
    IMAGE = "ImageChangedByAdmission"
    COMMAND = "CommandChangedByAdmission"
    PRIVILEGES = "PrivilegesChangedByAdmission"
    SERVICE_ACCOUNT = "ServiceAccountChangedByAdmission"


USELESS: Final = frozenset({Changed.MARKS, Changed.NODE, Changed.PARALLELISM})
"""A Job with one of these is deleted: it would not be watched, verify nothing about its node, or run twice."""
_DELETES: Final = 5
_PREFIXES: Final = ("trellis.dev/", "kwasm.sh/")
_CONTAINER: Final[Sequence[tuple[str, Changed]]] = (
    ("image", Changed.IMAGE),
    ("args", Changed.COMMAND),
    ("command", Changed.COMMAND),
    ("securityContext", Changed.PRIVILEGES),
)


@dataclass(frozen=True, slots=True)
class Difference:
    """One change by admission. ``text``: the former and the present value, for users."""

    what: Changed
    text: str

    @property
    def useless(self) -> bool:
        """True if the Job is unusable with this change."""
        return self.what in USELESS


class JobUnusable(Forbidden):
    """Admission returned an unusable Job; it was deleted."""


async def create_job(kube: Kube, requested: Manifest) -> tuple[dict[str, Any], tuple[Difference, ...]]:
    """Create a Job; return it as the API server returned it, and the changes by admission.

    Raises:
        JobUnusable: the created Job was unusable, and is deleted.
        KubeError: the request was refused, or not answered.
    """
    made = await kube.create(JOBS, dict(requested))
    found = differences(requested, made)
    if useless := [item for item in found if item.useless]:
        await delete_unusable(kube, made)
        metadata = made["metadata"]
        call = Call("POST", "Job", "jobs", metadata["namespace"], metadata["name"])
        message = "; ".join(f"{item.what.value}: {item.text}" for item in useless)
        raise JobUnusable(call, status=0, reason=useless[0].what.value, message=message)
    return made, found


async def delete_unusable(kube: Kube, made: Manifest) -> None:
    """Delete a Job that would not be watched; its name stays in use until its pods are deleted.

    The Job controller writes its status at the same time, so the Job is re-read after a conflict.
    """
    name, namespace, uid = (made["metadata"][field] for field in ("name", "namespace", "uid"))
    version = made["metadata"]["resourceVersion"]
    for _ in range(_DELETES):
        try:
            await kube.delete(JOBS, name, namespace, uid=uid, resource_version=version, propagation="Foreground")
        except NotFound:
            return
        except Conflict:
            # A list, because the permission to list Jobs exists anyway.
            listing = await kube.list(JOBS, namespace, field_selector=f"metadata.name={name}")
            versions = [item["metadata"]["resourceVersion"] for item in listing.items if item["metadata"]["uid"] == uid]
            if not versions:
                return
            version = versions[0]
        else:
            return


def is_usable(made: Manifest) -> bool:
    """Return whether a Job has its labels and annotations, works on its node, and has one pod at a time."""
    metadata, spec = made["metadata"], made["spec"]
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    node = annotations.get(names.ANNOTATION_NODE)
    marked = {names.LABEL_NODE_UID, names.LABEL_DIGEST} <= labels.keys() and node is not None
    return marked and spec["template"]["spec"].get("nodeName") == node and _runs_once(spec)


def differences(requested: Manifest, returned: Manifest) -> tuple[Difference, ...]:
    """Return the changes of a Job by admission, the worst first."""
    found = [*_marks(requested, returned), *_job(requested["spec"], returned["spec"])]
    pods = (requested["spec"]["template"]["spec"], returned["spec"]["template"]["spec"])
    found += [*_pod(*pods), *_containers(*pods)]
    return tuple(sorted(found, key=lambda item: not item.useless))


def _marks(requested: Manifest, returned: Manifest) -> list[Difference]:
    lost = [
        key
        for part in ("labels", "annotations")
        for key, value in requested["metadata"].get(part, {}).items()
        if key.startswith(_PREFIXES) and (returned["metadata"].get(part) or {}).get(key) != value
    ]
    return [Difference(Changed.MARKS, ", ".join(lost))] if lost else []


def _job(requested: Manifest, returned: Manifest) -> list[Difference]:
    found = []
    if not _runs_once(returned):
        text = f"{returned.get('completions')} completions, {returned.get('parallelism')} at a time"
        found.append(Difference(Changed.PARALLELISM, text))
    if returned.get("suspend"):
        found.append(Difference(Changed.SUSPENDED, "spec.suspend is true"))
    if (deadline := returned.get("activeDeadlineSeconds")) != requested["activeDeadlineSeconds"]:
        text = f"{deadline} instead of {requested['activeDeadlineSeconds']} s; the slot is free after the latter"
        found.append(Difference(Changed.DEADLINE, text))
    return found


def _runs_once(spec: Manifest) -> bool:
    return (spec.get("parallelism", 1), spec.get("completions", 1)) == (1, 1)


def _pod(requested: Manifest, returned: Manifest) -> list[Difference]:
    found = []
    if (node := returned.get("nodeName")) != requested["nodeName"]:
        found.append(Difference(Changed.NODE, f"{node or 'none'} instead of {requested['nodeName']}"))
    placed = [field for field in ("affinity", "nodeSelector") if returned.get(field)]
    if any(toleration not in (returned.get("tolerations") or ()) for toleration in requested["tolerations"]):
        placed.append("tolerations")
    if placed:
        found.append(Difference(Changed.PLACEMENT, ", ".join(placed)))
    if (account := returned.get("serviceAccountName")) != requested["serviceAccountName"]:
        found.append(Difference(Changed.SERVICE_ACCOUNT, f"{account} instead of {requested['serviceAccountName']}"))
    volumes = {volume["name"]: volume for volume in returned.get("volumes") or ()}
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in requested["volumes"] if "hostPath" in volume}
    lost = [name for name, path in paths.items() if (volumes.get(name, {}).get("hostPath") or {}).get("path") != path]
    if bool(returned.get("hostPID")) != bool(requested["hostPID"]):
        lost.append("hostPID")
    return [*found, *([Difference(Changed.PRIVILEGES, ", ".join(lost))] if lost else [])]


def _containers(requested: Manifest, returned: Manifest) -> list[Difference]:
    """Return the differences of containers; of added ones only those count that may delay the end of the Job."""
    found = []
    for kind in ("initContainers", "containers"):
        returned_by_name = {entry["name"]: entry for entry in returned.get(kind) or ()}
        for container in requested.get(kind) or ():
            other = returned_by_name.pop(container["name"], {})
            found += [
                Difference(what, f"{field} of container {container['name']}")
                if what is not Changed.IMAGE
                else Difference(what, f"{other.get(field)} instead of {container[field]}")
                for field, what in _CONTAINER
                if not _holds(container.get(field), other.get(field))
            ]
            env = {item["name"]: item for item in other.get("env") or ()}
            changed = [item["name"] for item in container["env"] if env.get(item["name"]) != item]
            if changed:
                found.append(Difference(Changed.COMMAND, f"variables {', '.join(changed)}"))
        if kind == "containers" and returned_by_name:
            text = f"{', '.join(sorted(returned_by_name))}; the Job does not end before they do"
            found.append(Difference(Changed.CONTAINER, text))
    return found


def _holds(requested: object, returned: object) -> bool:
    """Return whether the returned value has the requested one; a mapping may have further keys."""
    if isinstance(requested, Mapping):
        return isinstance(returned, Mapping) and all(returned.get(key) == value for key, value in requested.items())
    return requested == returned
