"""Reads the data of the pages of wasmCloud v2.

In: a reader with its permissions, an object, further sources. Out: the page. Called by ``explain``. Writes nothing.
Invariants: the requested kind must be readable, a page names everything else that could not be read; Kubernetes is read
after NATS, so that names and UIDs are current: a Workload that does not run is replaced each minute.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final, Protocol, TypeVar

from trellis.kube.resources import ARTIFACTS, WASM_HOSTS, WORKLOAD_DEPLOYMENTS, WORKLOADS, Manifest, Resource
from trellis.read_model.explain.page import Explanation
from trellis.read_model.explain.subject import Beside, Subject
from trellis.read_model.reading.cluster import Reading
from trellis.read_model.reading.find import find
from trellis.v2.cluster import Cluster
from trellis.v2.deployments import view_artifact, view_deployment
from trellis.v2.explain.artifact import SUBJECT as ARTIFACT
from trellis.v2.explain.artifact import explain_artifact
from trellis.v2.explain.deployment import SUBJECT as DEPLOYMENT
from trellis.v2.explain.deployment import explain_deployment
from trellis.v2.explain.host import SUBJECT as HOST
from trellis.v2.explain.host import explain_host
from trellis.v2.explain.workload import SUBJECT as WORKLOAD
from trellis.v2.explain.workload import explain_workload
from trellis.v2.host_messages import HostMessages
from trellis.v2.hosts import view_host
from trellis.v2.images import ImageAnswer, ImageKey, image_key
from trellis.v2.objects import Meta
from trellis.v2.snapshot import Snapshot
from trellis.v2.workloads import ARTIFACT as BY_NAME
from trellis.v2.workloads import PartView, WorkloadView, view_workload
from trellis_cli.common.objects import ObjectName
from trellis_cli.v2.options import Sources
from trellis_cli.v2.read import read_snapshot, read_workloads
from trellis_cli.v2.receive import receive

_SUBJECTS: Final[dict[str, tuple[Resource, Subject]]] = {
    "workloaddeployment": (WORKLOAD_DEPLOYMENTS, DEPLOYMENT),
    "workload": (WORKLOADS, WORKLOAD),
    "whost": (WASM_HOSTS, HOST),
    "artifact": (ARTIFACTS, ARTIFACT),
}


async def v2_page(reading: Reading, wanted: ObjectName, sources: Sources) -> Explanation:
    """Return the page of an object of wasmCloud v2.

    Raises:
        NotThereError: the object does not exist; its page shows similar ones.
        AnswerError: several namespaces have one.
        KubeError: the object cannot be read, or the API server is unavailable.
    """
    res, subject = _SUBJECTS[wanted.kind]
    found = await find(reading, res, subject, wanted.name, wanted.namespace)
    namespace = str(found["metadata"]["namespace"])
    former: Sequence[WorkloadView] = ()
    messages: HostMessages | None = None
    if sources.nats is not None:
        former = await read_workloads(reading, namespace)
        hosts = [view_host(item).id for item in await reading.list(WASM_HOSTS)]
        messages = await receive(
            sources.nats, [item for item in hosts if item], reading.kube.now, replies=sources.replies
        )
    snapshot = replace(await read_snapshot(reading, namespace), messages=messages, former=former)
    if sources.registry:
        snapshot = replace(snapshot, images=await _answers(reading, images_of(snapshot, wanted.kind, found)))
    # No Events: the operator writes only one kind of Event, which repeats a condition.
    return _explained(snapshot, wanted.kind, found, Beside(notes=reading.notes))


def _explained(snapshot: Snapshot, kind: str, found: Manifest, beside: Beside) -> Explanation:
    match kind:
        case "workloaddeployment":
            return explain_deployment(snapshot, _current(snapshot.deployments, view_deployment(found)), beside)
        case "workload":
            return explain_workload(snapshot, _current(snapshot.workloads, view_workload(found)), beside)
        case "whost":
            return explain_host(snapshot, _current(snapshot.hosts, view_host(found)), beside)
        case _:
            return explain_artifact(snapshot, _current(snapshot.artifacts, view_artifact(found)), beside)


class _View(Protocol):
    @property
    def meta(self) -> Meta:
        """Metadata of the object."""


V = TypeVar("V", bound=_View)


def _current(views: Iterable[V], found: V) -> V:
    """Return the view of an object in a snapshot, which is newer; the found one if it was deleted meanwhile."""
    return next((view for view in views if view.meta.key == found.meta.key), found)


def images_of(snapshot: Snapshot, kind: str, found: Manifest) -> set[ImageKey]:
    """Return the images that a page is about."""
    if kind == "artifact":
        artifact = _current(snapshot.artifacts, view_artifact(found))
        image = artifact.url or artifact.image
        return {ImageKey(artifact.meta.namespace, image, artifact.secret)} if image else set()
    if kind == "workload":
        workload = _current(snapshot.workloads, view_workload(found))
        return _keys(workload.meta.namespace, workload.spec.parts)
    if kind != "workloaddeployment":
        return set()
    deployment = _current(snapshot.deployments, view_deployment(found))
    cluster = Cluster(snapshot)
    workloads = cluster.workloads_of(cluster.replica_set(deployment, deployment.current))
    parts = {part for item in workloads for part in item.spec.parts} or {*deployment.spec.parts}
    return _keys(deployment.meta.namespace, parts)


def _keys(namespace: str, parts: Iterable[PartView]) -> set[ImageKey]:
    return {image_key(namespace, part) for part in parts if part.image and not part.image.startswith(BY_NAME)}


async def _answers(reading: Reading, images: set[ImageKey]) -> dict[ImageKey, ImageAnswer]:
    if not images:
        return {}
    # Slow imports, only for this option.
    from trellis_cli.v2.registries import ask_registries  # noqa: PLC0415

    return await ask_registries(reading, images)
