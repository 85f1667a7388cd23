"""Reads the input of the pages of Wasm pods and of their owners, one page per kind.

In: a reader with its permissions, a name. Out: the page. Called by ``trellis explain``. Writes nothing. Invariants: the
requested kind must be readable, a page names everything else that could not be read; the number of requests does not
depend on the number of pods, and logs are read of a few pods only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from trellis.kube.resources import (
    DEPLOYMENTS,
    EVENTS,
    JOBS,
    PODS,
    SPIN_APP_EXECUTORS,
    Manifest,
    Resource,
)
from trellis.read_model.explain.page import Explanation
from trellis.read_model.explain.subject import Beside, Subject
from trellis.read_model.reading.cluster import Reading
from trellis.read_model.reading.find import find
from trellis.read_model.reading.pod_kinds import RESOURCES
from trellis.read_model.reading.wasm_parts import WARNING, PartReads, read_logs, read_shared
from trellis.read_model.wasm_pods.explain.containers import failing
from trellis.read_model.wasm_pods.explain.owner import SUBJECTS as OWNERS
from trellis.read_model.wasm_pods.explain.owner import explain_owner
from trellis.read_model.wasm_pods.explain.pod import SUBJECT as POD
from trellis.read_model.wasm_pods.explain.pod import explain_pod
from trellis.read_model.wasm_pods.owners import OwnerView, view_executor, view_owner
from trellis.read_model.wasm_pods.pods import WasmPod, view_event, view_pod
from trellis.read_model.wasm_pods.snapshot import Part, Snapshot

LOGS_MOST: Final = 3
"""Pods of an owner whose logs are read: pods of one owner end for the same cause."""


async def pods_page(reading: Reading, kind: str, name: str, namespace: str | None) -> Explanation:
    """Return the page of a pod, or of an owner of pods; ``kind`` is one of :data:`KINDS`.

    Raises:
        ObjectNotFoundError: the object does not exist; its page shows similar ones.
        AnswerError: several namespaces have one.
        KubeError: the object cannot be read, or the API server is unavailable.
    """
    res = RESOURCES[kind]
    found = await find(reading, res, _subject(res), name, namespace)
    read, place, uid = PartReads(reading), str(found["metadata"]["namespace"]), str(found["metadata"]["uid"])
    if kind == "pod":
        about = f"{WARNING},involvedObject.uid={uid}"
        shared, events = await asyncio.gather(read_shared(read), read.list(Part.EVENTS, EVENTS, place, fields=about))
        snapshot = await _with_logs(read, _snapshot(shared, read, [view_pod(found)], events))
        return explain_pod(snapshot, snapshot.pods[0], found, Beside(events=events, notes=reading.notes))
    owner, lists = view_owner(res.kind, found), _events_beside(read, place, uid, jobs=kind == "cronjob")
    if kind == "spinapp":
        shared, events, more = await asyncio.gather(read_shared(read), lists, _of_spin_app(read, owner))
    else:
        shared, events, more = await asyncio.gather(read_shared(read), lists, _of_owner(read, owner))
    snapshot = _snapshot(shared, read, more.pods, events)
    snapshot = replace(snapshot, deployment=more.deployment, executor=more.executor, job=more.job)
    snapshot = await _with_logs(read, snapshot)
    return explain_owner(snapshot, owner, found, Beside(events=events, notes=reading.notes))


def _subject(res: Resource) -> Subject:
    return POD if res is PODS else OWNERS[res.kind]


async def _events_beside(read: PartReads, namespace: str, uid: str, *, jobs: bool) -> list[Manifest]:
    """Return the warnings about an owner and about all pods of its namespace; ``jobs``: and about its Jobs."""
    abouts = [f"uid={uid}", "kind=Pod", *(["kind=Job"] if jobs else [])]
    fields = [f"{WARNING},involvedObject.{about}" for about in abouts]
    found = await asyncio.gather(*(read.list(Part.EVENTS, EVENTS, namespace, fields=item) for item in fields))
    return [event for events in found for event in events]


async def _of_owner(read: PartReads, owner: OwnerView) -> Snapshot:
    """Return the pods of a workload of Kubernetes."""
    place = owner.meta.namespace
    if owner.kind == "CronJob":
        jobs = await read.list(Part.JOBS, JOBS, place)
        mine = [view_owner(JOBS.kind, item) for item in jobs]
        newest = max(
            (job for job in mine if job.meta.owner == owner.meta.uid),
            key=lambda job: (job.meta.created or 0.0, job.meta.name),
            default=None,
        )
        if newest is None or newest.complete or owner.has_succeeded_since(newest):
            return Snapshot(job=newest)
        return replace(await _of_owner(read, newest), job=newest)
    labels = {"labels": owner.selector} if owner.selector else {}
    found = await read.list(Part.PODS, PODS, place, **labels)
    return Snapshot(pods=[pod for pod in map(view_pod, found) if _owns(owner, pod)])


def _owns(owner: OwnerView, pod: WasmPod) -> bool:
    """Return whether a pod belongs to an owner; that of a Deployment belongs to one of its ReplicaSets."""
    if owner.kind == DEPLOYMENTS.kind:
        return pod.deployment == owner.meta.name != ""
    return bool(owner.meta.uid) and pod.meta.owner == owner.meta.uid


async def _of_spin_app(read: PartReads, app: OwnerView) -> Snapshot:
    """Return the executor, the Deployment and the pods of a SpinApp."""
    place = app.meta.namespace
    executors, deployments = await asyncio.gather(
        # The executor is any text, which a field selector could not have.
        read.list(Part.EXECUTORS, SPIN_APP_EXECUTORS, place),
        read.list(Part.DEPLOYMENTS, DEPLOYMENTS, place, fields=f"metadata.name={app.meta.name}"),
    )
    executor = next((view for view in map(view_executor, executors) if view.name == app.executor), None)
    deployment = view_owner(DEPLOYMENTS.kind, deployments[0]) if deployments else None
    if deployment is None or deployment.meta.owner != app.meta.uid:
        return Snapshot(executor=executor, deployment=deployment)
    return replace(await _of_owner(read, deployment), deployment=deployment, executor=executor)


def _snapshot(shared: Snapshot, read: PartReads, pods: Sequence[WasmPod], events: Sequence[Manifest]) -> Snapshot:
    return replace(shared, pods=pods, events=[*map(view_event, events)], unread=read.unread)


async def _with_logs(read: PartReads, snapshot: Snapshot) -> Snapshot:
    """Return a snapshot with the last lines of the containers that ended with an error, of a few pods."""
    wanted = [pod for pod in snapshot.pods if failing(pod) is not None][:LOGS_MOST]
    return replace(snapshot, logs=await read_logs(read, wanted), unread=read.unread)
