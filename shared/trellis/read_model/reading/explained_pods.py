"""Reads the input of the pages of Wasm pods and of their owners, one page per kind.

In: a reader with its permissions, a name. Out: the page. Called by ``trellis explain``. Writes nothing. Invariants: the
requested kind must be readable, a page names everything else that could not be read; the number of requests does not
depend on the number of pods, and logs are read of a few pods only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from trellis.installer_api.redaction import redact_url
from trellis.kube.errors import Forbidden, KubeError, NotFound
from trellis.kube.permissions import missing_right
from trellis.kube.resources import (
    CRON_JOBS,
    DAEMON_SETS,
    DEPLOYMENTS,
    EVENTS,
    JOBS,
    NODES,
    PODS,
    RUNTIME_CLASSES,
    SHIMS,
    SPIN_APP_EXECUTORS,
    SPIN_APPS,
    STATEFUL_SETS,
    Manifest,
    Resource,
)
from trellis.provisioning.nodes_and_jobs import view_node
from trellis.provisioning.shims import view_shim
from trellis.read_model.explain.page import Explanation
from trellis.read_model.explain.subject import Beside, Subject
from trellis.read_model.reading.cluster import Reading
from trellis.read_model.reading.find import find
from trellis.wasm_pods.explain.containers import failing
from trellis.wasm_pods.explain.owner import SUBJECTS as OWNERS
from trellis.wasm_pods.explain.owner import explain_owner
from trellis.wasm_pods.explain.pod import SUBJECT as POD
from trellis.wasm_pods.explain.pod import explain_pod
from trellis.wasm_pods.owners import OwnerView, view_executor, view_owner, view_runtime_class
from trellis.wasm_pods.pods import WasmPod, view_event, view_pod
from trellis.wasm_pods.snapshot import Part, Snapshot

RESOURCES: Final[Mapping[str, Resource]] = {
    "pod": PODS,
    "deployment": DEPLOYMENTS,
    "statefulset": STATEFUL_SETS,
    "daemonset": DAEMON_SETS,
    "job": JOBS,
    "cronjob": CRON_JOBS,
    "spinapp": SPIN_APPS,
}
KINDS: Final = tuple(RESOURCES)
"""Kinds with a page here."""
LOGS_MOST: Final = 3
"""Pods of an owner whose logs are read: pods of one owner end for the same cause."""
LOG_LINES: Final = 10
LOG_BYTES: Final = 16384
"""The kubelet cuts the end of longer lines."""
_JOB_NAME: Final = "job-name"
"""Label of the pods of a Job; Kubernetes 1.27 added one with a prefix and kept it."""
_WARNING: Final = "type=Warning"
_ABOUT_PODS: Final = f"{_WARNING},involvedObject.kind=Pod"


@dataclass(frozen=True, slots=True)
class _Read:
    """The reads of one page. ``unread``: parts that could not be read, with the reason."""

    reading: Reading
    unread: dict[Part, str] = field(default_factory=dict)

    async def list(self, part: Part, res: Resource, namespace: str | None = None, **selectors: str) -> list[Manifest]:
        """Return the objects of a part; none, with a reason, if they cannot be read; raises KubeError."""
        labels, fields = selectors.get("labels"), selectors.get("fields")
        try:
            found = await self.reading.kube.list(res, namespace, label_selector=labels, field_selector=fields)
        except Forbidden as error:
            self.reading.lacks(error, res)
            self.lost(part, error)
        except NotFound:
            self.unread[part] = f"the API server does not serve {res.definition}"
        else:
            return found.items
        return []

    def lost(self, part: Part, error: KubeError) -> None:
        """Note a part that could not be read."""
        right = missing_right(error)
        self.unread[part] = f"this account cannot {right}" if right else str(error)


async def pods_page(reading: Reading, kind: str, name: str, namespace: str | None) -> Explanation:
    """Return the page of a pod, or of an owner of pods; ``kind`` is one of :data:`KINDS`.

    Raises:
        NotThereError: the object does not exist; its page shows similar ones.
        AnswerError: several namespaces have one.
        KubeError: the object cannot be read, or the API server is unavailable.
    """
    res = RESOURCES[kind]
    found = await find(reading, res, _subject(res), name, namespace)
    read, place, uid = _Read(reading), str(found["metadata"]["namespace"]), str(found["metadata"]["uid"])
    if kind == "pod":
        about = f"{_WARNING},involvedObject.uid={uid}"
        shared, events = await asyncio.gather(_shared(read), read.list(Part.EVENTS, EVENTS, place, fields=about))
        snapshot = await _with_logs(read, _snapshot(shared, read, [view_pod(found)], events))
        return explain_pod(snapshot, snapshot.pods[0], found, Beside(events=events, notes=reading.notes))
    owner, lists = view_owner(res.kind, found), _events_beside(read, place, uid)
    if kind == "spinapp":
        shared, events, more = await asyncio.gather(_shared(read), lists, _of_spin_app(read, owner))
    else:
        shared, events, more = await asyncio.gather(_shared(read), lists, _of_owner(read, owner))
    snapshot = _snapshot(shared, read, more.pods, events)
    snapshot = replace(snapshot, deployment=more.deployment, executor=more.executor)
    snapshot = await _with_logs(read, snapshot)
    return explain_owner(snapshot, owner, found, Beside(events=events, notes=reading.notes))


def _subject(res: Resource) -> Subject:
    return POD if res is PODS else OWNERS[res.kind]


async def _shared(read: _Read) -> Snapshot:
    """Return what each page needs: RuntimeClasses, Nodes and Shims."""
    classes, nodes, shims = await asyncio.gather(
        read.list(Part.CLASSES, RUNTIME_CLASSES), read.list(Part.NODES, NODES), _shims(read)
    )
    return Snapshot(
        classes=[*map(view_runtime_class, classes)], nodes=[*map(view_node, nodes)], shims=[*map(view_shim, shims)]
    )


async def _shims(read: _Read) -> list[Manifest]:
    """Return the Shims; none where the kind is not defined."""
    found = await read.reading.list(SHIMS)
    if not read.reading.knows(SHIMS):
        note = next((line.text for line in read.reading.notes if SHIMS.kind in line.text), "they could not be read")
        read.unread[Part.SHIMS] = note.partition(", so ")[0]
    return found


async def _events_beside(read: _Read, namespace: str, uid: str) -> list[Manifest]:
    """Return the warnings about an owner and about all pods of its namespace."""
    own, pods = await asyncio.gather(
        read.list(Part.EVENTS, EVENTS, namespace, fields=f"{_WARNING},involvedObject.uid={uid}"),
        read.list(Part.EVENTS, EVENTS, namespace, fields=_ABOUT_PODS),
    )
    return [*own, *pods]


async def _of_owner(read: _Read, owner: OwnerView) -> Snapshot:
    """Return the pods of a workload of Kubernetes."""
    place = owner.meta.namespace
    if owner.kind == "CronJob":
        jobs = await read.list(Part.PODS, JOBS, place)
        mine = [view_owner(JOBS.kind, item) for item in jobs]
        newest = max(
            (job for job in mine if job.meta.owner == owner.meta.uid),
            key=lambda job: (job.meta.created or 0.0, job.meta.name),
            default=None,
        )
        if newest is None or newest.complete:
            return Snapshot()
        owner = newest
    labels = {"labels": owner.selector} if owner.selector else {}
    found = await read.list(Part.PODS, PODS, place, **labels)
    return Snapshot(pods=[pod for pod in map(view_pod, found) if _owns(owner, pod)])


def _owns(owner: OwnerView, pod: WasmPod) -> bool:
    """Return whether a pod belongs to an owner; that of a Deployment belongs to a ReplicaSet with its name."""
    if owner.kind == DEPLOYMENTS.kind:
        return pod.owner_kind == "ReplicaSet" and pod.meta.owner_name.startswith(f"{owner.meta.name}-")
    return bool(owner.meta.uid) and pod.meta.owner == owner.meta.uid


async def _of_spin_app(read: _Read, app: OwnerView) -> Snapshot:
    """Return the executor, the Deployment and the pods of a SpinApp."""
    place = app.meta.namespace
    executors, deployments = await asyncio.gather(
        read.list(Part.EXECUTORS, SPIN_APP_EXECUTORS, place, fields=f"metadata.name={app.executor}"),
        read.list(Part.DEPLOYMENTS, DEPLOYMENTS, place, fields=f"metadata.name={app.meta.name}"),
    )
    executor = view_executor(executors[0]) if executors else None
    own = [view for item in deployments if (view := view_owner(DEPLOYMENTS.kind, item)).meta.owner == app.meta.uid]
    if not own:
        return Snapshot(executor=executor)
    return replace(await _of_owner(read, own[0]), deployment=own[0], executor=executor)


def _snapshot(shared: Snapshot, read: _Read, pods: Sequence[WasmPod], events: Sequence[Manifest]) -> Snapshot:
    return replace(shared, pods=pods, events=[*map(view_event, events)], unread=read.unread)


async def _with_logs(read: _Read, snapshot: Snapshot) -> Snapshot:
    """Return a snapshot with the last lines of the containers that ended with an error, of a few pods."""
    wanted = [pod for pod in snapshot.pods if failing(pod) is not None][:LOGS_MOST]
    found = await asyncio.gather(*(_log(read, pod) for pod in wanted))
    logs = {pod.meta.uid: lines for pod, lines in zip(wanted, found, strict=True)}
    return replace(snapshot, logs=logs, unread=read.unread)


async def _log(read: _Read, pod: WasmPod) -> Sequence[str]:
    """Return the last lines of the container of a pod that ended; none without permission, or without a log."""
    item = failing(pod)
    assert item is not None  # the caller has checked it
    try:
        text = await read.reading.kube.pod_log(
            pod.meta.namespace,
            pod.meta.name,
            item.name,
            tail_lines=LOG_LINES,
            limit_bytes=LOG_BYTES,
            previous=item.running,
        )
    except Forbidden as error:
        read.lost(Part.LOGS, error)
    except KubeError as error:
        # The kubelet has removed the log, or does not answer: the rest of the page does not need it.
        read.unread[Part.LOGS] = str(error)
    else:
        return redact_url(text).splitlines()
    return ()
