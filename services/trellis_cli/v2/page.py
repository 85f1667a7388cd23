"""Reads the data of the pages of wasmCloud v2.

In: a reader with its permissions, an object, further sources. Out: the page. Called by ``explain``. Writes nothing.
Invariants: the requested kind must be readable, a page names everything else that could not be read; Kubernetes is read
after NATS, so that names and UIDs are current: a Workload that does not run is replaced each minute.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from trellis.kube.resources import WASM_HOSTS, Manifest
from trellis.read_model.explain.page import Explanation
from trellis.read_model.explain.subject import Beside
from trellis.read_model.reading.cluster import Reading
from trellis.read_model.reading.explained_v2 import (
    HOST_GROUP,
    current_view,
    explained_group,
    explained_v2,
    find_object,
    page_snapshot,
)
from trellis.read_model.reading.v2_snapshot import read_workloads
from trellis.v2.cluster import Cluster
from trellis.v2.deployments import view_artifact, view_deployment
from trellis.v2.host_messages import HostMessages
from trellis.v2.hosts import view_host
from trellis.v2.images import ImageAnswer, ImageKey, image_key
from trellis.v2.snapshot import Snapshot
from trellis.v2.workloads import ARTIFACT as BY_NAME
from trellis.v2.workloads import PartView, WorkloadView, view_workload
from trellis_cli.common.objects import ObjectName
from trellis_cli.v2.options import RegistryAccess, Sources


async def v2_page(reading: Reading, wanted: ObjectName, sources: Sources) -> Explanation:
    """Return the page of an object of wasmCloud v2.

    Raises:
        ObjectNotFoundError: the object does not exist; its page shows similar ones.
        AnswerError: several namespaces have one.
        KubeError: the object cannot be read, or the API server is unavailable.
    """
    found, namespace = None, wanted.namespace
    if wanted.kind != HOST_GROUP:
        found = await find_object(reading, wanted.kind, wanted.name, wanted.namespace)
        namespace = str(found["metadata"]["namespace"])
    former: Sequence[WorkloadView] = ()
    messages: HostMessages | None = None
    if sources.nats is not None:
        # Slow imports, only for this option.
        from trellis_cli.v2.receive import receive  # noqa: PLC0415

        former = await read_workloads(reading, namespace)
        hosts = [view_host(item).id for item in await reading.list(WASM_HOSTS)]
        messages = await receive(
            sources.nats, [item for item in hosts if item], reading.kube.now, replies=sources.replies
        )
    snapshot = await page_snapshot(reading, wanted.kind, wanted.name, namespace)
    snapshot = replace(snapshot, messages=messages, former=former)
    if found is None:
        return explained_group(snapshot, wanted.name, wanted.namespace, Beside(notes=reading.notes))
    if sources.registry is not None:
        images = await _answers(reading, images_of(snapshot, wanted.kind, found), sources.registry)
        snapshot = replace(snapshot, images=images)
    # No Events: the operator writes only one kind of Event, which repeats a condition.
    return explained_v2(snapshot, wanted.kind, found, Beside(notes=reading.notes))


def images_of(snapshot: Snapshot, kind: str, found: Manifest) -> set[ImageKey]:
    """Return the images that a page is about."""
    if kind == "artifact":
        artifact = current_view(snapshot.artifacts, view_artifact(found))
        image = artifact.url or artifact.image
        return {ImageKey(artifact.meta.namespace, image, artifact.secret)} if image else set()
    if kind == "workload":
        workload = current_view(snapshot.workloads, view_workload(found))
        return _keys(workload.meta.namespace, workload.spec.parts)
    if kind != "workloaddeployment":
        return set()
    deployment = current_view(snapshot.deployments, view_deployment(found))
    cluster = Cluster(snapshot)
    workloads = cluster.workloads_of(cluster.replica_set(deployment, deployment.current))
    parts = {part for item in workloads for part in item.spec.parts} or {*deployment.spec.parts}
    return _keys(deployment.meta.namespace, parts)


def _keys(namespace: str, parts: Iterable[PartView]) -> set[ImageKey]:
    return {image_key(namespace, part) for part in parts if part.image and not part.image.startswith(BY_NAME)}


async def _answers(reading: Reading, images: set[ImageKey], access: RegistryAccess) -> dict[ImageKey, ImageAnswer]:
    if not images:
        return {}
    # Slow imports, only for this option.
    from trellis_cli.v2.registries import ask_registries  # noqa: PLC0415

    return await ask_registries(reading, images, access)
