"""Reads the input of the pages of wasmCloud v2, one page per kind.

In: a reader, a name, heartbeats if any were received. Out: the page. Called by ``trellis explain`` and by the console.
Writes nothing. Invariant: the requested kind must be readable; a page names everything else that could not be read.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol, TypeVar

from trellis.kube.discovery import served_versions
from trellis.kube.errors import Forbidden
from trellis.kube.resources import ARTIFACTS, EVENTS, WASM_HOSTS, WORKLOAD_DEPLOYMENTS, WORKLOADS, Manifest, Resource
from trellis.read_model.errors import AnswerError
from trellis.read_model.explain.page import Explanation
from trellis.read_model.explain.subject import Absence, Beside, Subject
from trellis.read_model.reading.cluster import Reading
from trellis.read_model.reading.find import ObjectNotFoundError, find, one_place
from trellis.read_model.reading.v2_snapshot import EVERYTHING, Selector, read_snapshot
from trellis.v2.cluster import Cluster
from trellis.v2.deployments import LABEL_DEPLOYMENT, view_artifact, view_deployment
from trellis.v2.explain.artifact import SUBJECT as ARTIFACT
from trellis.v2.explain.artifact import explain_artifact
from trellis.v2.explain.deployment import SUBJECT as DEPLOYMENT
from trellis.v2.explain.deployment import explain_deployment
from trellis.v2.explain.host import SUBJECT as HOST
from trellis.v2.explain.host import explain_host
from trellis.v2.explain.host_group import SUBJECT as GROUP
from trellis.v2.explain.host_group import explain_host_group
from trellis.v2.explain.service import explain_no_routed_service, explain_routed_service, is_routed
from trellis.v2.explain.workload import SUBJECT as WORKLOAD
from trellis.v2.explain.workload import explain_workload
from trellis.v2.host_messages import HostMessages
from trellis.v2.hosts import view_host
from trellis.v2.objects import Meta
from trellis.v2.routes import view_service
from trellis.v2.snapshot import Part, Snapshot
from trellis.v2.workloads import WorkloadView, view_workload

SUBJECTS: Final[dict[str, tuple[Resource, Subject]]] = {
    "workloaddeployment": (WORKLOAD_DEPLOYMENTS, DEPLOYMENT),
    "workload": (WORKLOADS, WORKLOAD),
    "whost": (WASM_HOSTS, HOST),
    "artifact": (ARTIFACTS, ARTIFACT),
}
HOST_GROUP: Final = GROUP.short
"""Kind of host groups, which Kubernetes does not have."""
KINDS: Final = (*SUBJECTS, HOST_GROUP)
"""Kinds of wasmCloud v2 with a page."""
_OF_HOSTS: Final = (Part.HOSTS, Part.WORKLOADS, Part.PODS)
_OF_ROUTES: Final = (Part.SERVICES, Part.SLICES)
_PARTS: Final = {
    "workloaddeployment": (*_OF_HOSTS, *_OF_ROUTES, Part.REPLICA_SETS, Part.DEPLOYMENTS, Part.ARTIFACTS),
    "workload": (*_OF_HOSTS, *_OF_ROUTES, Part.REPLICA_SETS),
    "artifact": (*_OF_HOSTS, Part.DEPLOYMENTS, Part.ARTIFACTS),
}
"""Parts of the snapshot that the page of a kind uses; a kind without an entry uses those of hosts."""
_LABEL_MAX: Final = 63
_WARNING: Final = "type=Warning"


async def find_object(reading: Reading, kind: str, name: str, namespace: str | None) -> Manifest:
    """Return an object; ``kind`` is one of :data:`SUBJECTS`.

    Raises:
        ObjectNotFoundError: the object does not exist; its page shows similar ones.
        AnswerError: several namespaces have one.
        KubeError: the object cannot be read, or the API server is unavailable.
    """
    res, subject = SUBJECTS[kind]
    return await find(reading, res, subject, name, namespace)


async def page_snapshot(reading: Reading, kind: str, name: str, namespace: str | None) -> Snapshot:
    """Return the snapshot for the page of an object or of a host group; raises KubeError."""
    parts = {part: EVERYTHING[part] for part in _PARTS.get(kind, _OF_HOSTS)}
    if kind == "workloaddeployment":
        parts[Part.DEPLOYMENTS] = Selector(fields=f"metadata.name={name}")
        if len(name) <= _LABEL_MAX:  # the operator cannot label anything with a longer name
            parts[Part.REPLICA_SETS] = Selector(labels=f"{LABEL_DEPLOYMENT}={name}")
    return await read_snapshot(reading, namespace, parts)


@dataclass(frozen=True, slots=True)
class Received:
    """Heartbeats. ``former``: Workloads that were deleted or moved while they were received."""

    messages: HostMessages
    former: Sequence[WorkloadView] = ()


async def v2_page_of(reading: Reading, kind: str, name: str, namespace: str, received: Received | None) -> Explanation:
    """Return the page of an object with the Events about it; ``received``: used if Hosts are readable.

    Raises:
        ObjectNotFoundError: the object does not exist; its page shows similar ones.
        AnswerError: whether a host group exists is not known.
        KubeError: the object cannot be read, or the API server is unavailable.
    """
    found = await find_object(reading, kind, name, namespace) if kind in SUBJECTS else None
    snapshot = await page_snapshot(reading, kind, name, namespace)
    if snapshot.knows(Part.HOSTS) and received is not None:
        snapshot = replace(snapshot, messages=received.messages, former=received.former)
    if found is None:
        return explained_group(snapshot, name, namespace, Beside(notes=reading.notes))
    beside = Beside(events=await _warnings(reading, found), notes=reading.notes)
    return explained_v2(snapshot, kind, found, beside)


def explained_group(snapshot: Snapshot, name: str, namespace: str | None, beside: Beside) -> Explanation:
    """Return the page of a host group, which exists if a Host or a pod has its label.

    Raises:
        ObjectNotFoundError: nothing has its label; the page shows similar ones.
        AnswerError: several namespaces have one, or its Hosts or pods cannot be read and none is known.
    """
    groups = Cluster(snapshot).host_groups.values()
    named = [group for group in groups if group.name == name]
    there = [group for group in named if namespace in {None, group.namespace}]
    one_place(GROUP.kind, name, {group.namespace for group in there})
    if there:
        return explain_host_group(snapshot, there[0], beside)
    for part in (Part.HOSTS, Part.PODS):
        if not snapshot.knows_all(part):
            reason = snapshot.unread.get(part) or snapshot.limited[part]
            raise AnswerError(f"host group {name} not found, and its {part.value} are unknown: {reason}")
    alike = difflib.get_close_matches(name, {group.name for group in groups})
    absence = Absence(
        elsewhere=[group.namespace for group in named],
        alike=[group.key for group in groups if group.name in alike and group.name != name],
    )
    raise ObjectNotFoundError(GROUP.absent(name, namespace, absence))


def explained_v2(snapshot: Snapshot, kind: str, found: Manifest, beside: Beside) -> Explanation:
    """Return the page of an object in a snapshot."""
    match kind:
        case "workloaddeployment":
            return explain_deployment(snapshot, current_view(snapshot.deployments, view_deployment(found)), beside)
        case "workload":
            return explain_workload(snapshot, current_view(snapshot.workloads, view_workload(found)), beside)
        case "whost":
            return explain_host(snapshot, current_view(snapshot.hosts, view_host(found)), beside)
        case _:
            return explain_artifact(snapshot, current_view(snapshot.artifacts, view_artifact(found)), beside)


async def v2_service_page(reading: Reading, found: Manifest) -> Explanation | None:
    """Return the page of a Service of wasmCloud v2, None for any other one; raises KubeError."""
    if not await _is_served(reading):
        return None  # its other page shows that it is not managed by Trellis
    view, namespace = view_service(found), str(found["metadata"]["namespace"])
    snapshot = await read_snapshot(reading, namespace)
    if not is_routed(Cluster(snapshot), view):
        return None
    service = current_view(snapshot.services, view)
    return explain_routed_service(
        snapshot, service, Beside(events=await _warnings(reading, found), notes=reading.notes)
    )


async def v2_missing_service_page(reading: Reading, name: str, namespace: str | None) -> Explanation | None:
    """Return the page of a missing Service that a workload of wasmCloud v2 names, None if none does; raises KubeError.

    ``namespace``: None for all namespaces.
    """
    if not await _is_served(reading):
        return None
    snapshot = await read_snapshot(reading, namespace)
    return explain_no_routed_service(snapshot, name, namespace, Beside(notes=reading.notes))


async def _is_served(reading: Reading) -> bool:
    try:
        return WORKLOADS.version in await served_versions(reading.kube, WORKLOADS.group)
    except Forbidden:
        return False


async def _warnings(reading: Reading, found: Manifest) -> list[Manifest]:
    about = f"{_WARNING},involvedObject.uid={found['metadata']['uid']}"
    return await reading.list(EVENTS, found["metadata"]["namespace"], fields=about)


class _View(Protocol):
    @property
    def meta(self) -> Meta:
        """Metadata of the object."""


V = TypeVar("V", bound=_View)


def current_view(views: Iterable[V], found: V) -> V:
    """Return the view of an object in a snapshot, which is newer; the found one if it was deleted meanwhile."""
    return next((view for view in views if view.meta.key == found.meta.key), found)
