"""Workloads of Wasm pods in a cluster: one for each owner of pods, and one for each pod without an owner.

Pure, with a memory. In: views of pods, owners and executors. Out: workloads with their pods, and their health. Called
by the row of ``trellis status`` and by the composer of entities. Invariants: a pod belongs to one workload; a SpinApp
includes its Deployment, a CronJob its newest Job; health is that of the page of the owner. Source: spin-operator
gives the Deployment the name of its SpinApp.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from trellis.provisioning.shims import ShimView
from trellis.read_model.health import Verdict
from trellis.read_model.wasm_pods.explain.containers import FAILED, HOOK_FAILED, NO_LOGIN, UNHEALTHY
from trellis.read_model.wasm_pods.explain.owner import counted_pods, owner_health
from trellis.read_model.wasm_pods.explain.placing import MOUNT_EVENTS
from trellis.read_model.wasm_pods.explain.pod import NOT_KILLED, pod_health
from trellis.read_model.wasm_pods.failures import CREATE, SANDBOX
from trellis.read_model.wasm_pods.owners import ExecutorView, OwnerView
from trellis.read_model.wasm_pods.pods import EventView, WasmPod, view_event
from trellis.read_model.wasm_pods.snapshot import Snapshot
from trellis.v2.objects import Meta

POD: Final = "Pod"
DEPLOYMENT: Final = "Deployment"
JOB: Final = "Job"
CRON_JOB: Final = "CronJob"
SPIN_APP: Final = "SpinApp"
_CREATORS: Final = frozenset({("apps", "StatefulSet"), ("apps", "DaemonSet"), ("batch", JOB)})
"""API group and kind: OpenKruise has a StatefulSet and a DaemonSet, too, and Volcano a Job."""
EVENT_REASONS: Final = frozenset({SANDBOX, CREATE, FAILED, HOOK_FAILED, UNHEALTHY, NO_LOGIN, NOT_KILLED, *MOUNT_EVENTS})
"""Reasons of the Events that health, or its message, depends on."""
_PARENTS: Final = {DEPLOYMENT: SPIN_APP, JOB: CRON_JOB}

Id: TypeAlias = tuple[str, str]
"""Kind, and ``namespace/name``."""


@dataclass(frozen=True, slots=True)
class Workload:
    """An owner with its pods. ``owner`` None: a pod without an owner. ``runtime_class``: that of its pods.

    ``deployment``, ``executor``: of a SpinApp.
    """

    id: Id
    runtime_class: str
    pods: Sequence[WasmPod] = ()
    owner: OwnerView | None = None
    deployment: OwnerView | None = None
    executor: ExecutorView | None = None

    @property
    def counted(self) -> Sequence[WasmPod]:
        """The pods that count, as on its page."""
        return self.pods if self.owner is None else counted_pods(self.deployment or self.owner, self.pods)

    @property
    def wanted(self) -> int | None:
        """Number of pods that it should have, None if another object decides.

        That of a SpinApp is in its Deployment: with ``enableAutoscaling``, an autoscaler sets it there.
        """
        owner = self.deployment or self.owner
        return 1 if owner is None else owner.wanted

    def health(self, snapshot: Snapshot) -> Verdict:
        """Return its health; ``snapshot``: of the cluster."""
        own = snapshot.of(self.pods, self.deployment, self.executor)
        return pod_health(own, self.pods[0]) if self.owner is None else owner_health(own, self.owner)


def view_cause(manifest: object) -> EventView | None:
    """Return the view of an Event, None if no health depends on it."""
    event = view_event(manifest)
    return event if event.reason in EVENT_REASONS else None


def wasm_classes(snapshot: Snapshot) -> frozenset[str]:
    """Return the RuntimeClasses that a Shim provides or is to create, also if they do not exist; none of canaries."""
    handlers = {shim.handler for shim in snapshot.shims if shim.handler}
    there = (item.name for item in snapshot.classes if item.handler in handlers and not item.canary)
    return frozenset({*there, *(shim.runtime_class for shim in snapshot.shims if shim.runtime_class)})


def providing_shim(snapshot: Snapshot, runtime_class: str) -> ShimView | None:
    """Return the Shim of a RuntimeClass, None if there is none."""
    found = snapshot.runtime_class(runtime_class)
    if found is not None:
        return snapshot.shim_of(found.handler, found.name)
    return next((shim for shim in snapshot.shims if shim.runtime_class == runtime_class), None)


def creator_of(pod: WasmPod) -> Id:
    """Return the workload of Kubernetes that created a pod, or the pod itself."""
    namespace, name, kind = pod.meta.namespace, pod.meta.owner_name, pod.owner_kind
    is_known = (pod.owner_group, kind) in _CREATORS
    if pod.deployment:
        return DEPLOYMENT, f"{namespace}/{pod.deployment}"
    return (kind, f"{namespace}/{name}") if is_known else (POD, pod.meta.key)


@dataclass(eq=False)
class Inventory:
    """Pods, owners and executors. ``unread``: kinds of owners that cannot be read: their pods stand for them."""

    pods: dict[str, WasmPod] = field(default_factory=dict)
    owners: dict[Id, OwnerView] = field(default_factory=dict)
    executors: dict[str, ExecutorView] = field(default_factory=dict)
    unread: Collection[str] = ()
    _created: dict[Id, dict[str, None]] = field(default_factory=dict)
    """Keys of pods by their creator, and of Jobs by their CronJob."""

    def put_pod(self, key: str, pod: WasmPod | None) -> set[Id]:
        """Store a pod, None if it is deleted; return the workloads that can differ."""
        old = self.pods.pop(key, None)
        if old is not None:
            self._move(creator_of(old), key, there=False)
        if pod is not None:
            self.pods[key] = pod
            self._move(creator_of(pod), key, there=True)
        return {(POD, key), *(self.top(creator_of(item)) for item in (old, pod) if item is not None)}

    def put_owner(self, kind: str, key: str, owner: OwnerView | None) -> set[Id]:
        """Store an owner, None if it is deleted; return the workloads that can differ."""
        id_ = kind, key
        old = self.owners.pop(id_, None)
        changed = {id_, *self._parents(kind, old, owner)}
        if kind == JOB and old is not None and old.meta.owner_name:
            self._move(_parent(kind, old), key, there=False)
        if owner is not None:
            self.owners[id_] = owner
            if kind == JOB and owner.meta.owner_name:
                self._move(_parent(kind, owner), key, there=True)
        if kind == SPIN_APP:
            changed.add((DEPLOYMENT, key))
        if kind == CRON_JOB:
            changed |= {(JOB, job) for job in self._created.get(id_, ())}
        elif (old is None) is not (owner is None):
            changed |= {(POD, pod) for pod in self._created.get(id_, ())}
        return changed

    def put_executor(self, key: str, executor: ExecutorView | None) -> set[Id]:
        """Store an executor, None if it is deleted; return the workloads that can differ."""
        self.executors.pop(key, None)
        if executor is not None:
            self.executors[key] = executor
        return {id_ for id_, app in self.owners.items() if id_[0] == SPIN_APP and _executor_key(app) == key}

    def ids(self) -> set[Id]:
        """Return all possible workloads."""
        return {*self.owners, *self._created, *((POD, key) for key in self.pods)}

    def row_of(self, pod: WasmPod) -> Id:
        """Return the workload of a pod: the pod itself if its creator does not exist."""
        id_ = creator_of(pod)
        known = id_ in self.owners or id_[0] in self.unread
        return self.top(id_) if known else (POD, pod.meta.key)

    def top(self, id_: Id) -> Id:
        """Return the workload that shows an owner: its SpinApp or CronJob, else the owner itself."""
        owner = self.owners.get(id_)
        if owner is None or id_[0] not in _PARENTS:
            return id_
        above = _parent(id_[0], owner)
        parent = self.owners.get(above)
        return above if parent is not None and parent.meta.uid == owner.meta.owner else id_

    def workload(self, id_: Id, classes: Collection[str]) -> Workload | None:
        """Return a workload, None if there is none, or if none of its RuntimeClasses is one of ``classes``."""
        kind, key = id_
        if kind == POD:
            pod = self.pods.get(key)
            if pod is None or pod.runtime_class not in classes or self.row_of(pod) != id_:
                return None
            return Workload(id_, pod.runtime_class, (pod,))
        owner = self.owners.get(id_) or self._substitute(id_)
        if owner is None or self.top(id_) != id_:
            return None
        deployment, executor = None, None
        if kind == SPIN_APP:
            found = self.owners.get((DEPLOYMENT, key))
            deployment = found if found is not None and self.top((DEPLOYMENT, key)) == id_ else None
            executor = self.executors.get(_executor_key(owner))
        pods = self._pods_of(owner if kind != SPIN_APP else deployment, key)
        names = (
            owner.template.runtime_class,
            deployment.template.runtime_class if deployment is not None else "",
            executor.runtime_class if executor is not None else "",
            *(pod.runtime_class for pod in pods),
        )
        runtime_class = next((name for name in names if name in classes), "")
        return Workload(id_, runtime_class, pods, owner, deployment, executor) if runtime_class else None

    def _pods_of(self, owner: OwnerView | None, key: str) -> Sequence[WasmPod]:
        if owner is None:
            return ()
        if owner.kind == CRON_JOB:
            cron = owner
            there = ((JOB, job) for job in self._created.get((CRON_JOB, key), ()))
            jobs = [self.owners[id_] for id_ in there if self.owners[id_].meta.owner == owner.meta.uid]
            owner = max(jobs, key=lambda job: (job.meta.created or 0.0, job.meta.name), default=None)
            if owner is None or owner.complete or cron.has_succeeded_since(owner):
                return ()
            key = owner.meta.key
        return [self.pods[pod] for pod in self._created.get((owner.kind, key), ())]

    def _substitute(self, id_: Id) -> OwnerView | None:
        """Return a view of an owner that cannot be read, as its pods show it."""
        kind, key = id_
        first = next(iter(self._created.get(id_, ())), None)
        if kind not in self.unread or kind == CRON_JOB or first is None:
            return None
        namespace, _, name = key.partition("/")
        pod = self.pods[first]
        meta = Meta(namespace=namespace, name=name)
        template = WasmPod(meta, runtime_class=pod.runtime_class, selector=pod.selector, tolerations=pod.tolerations)
        return OwnerView(kind, meta, template)

    def _parents(self, kind: str, *owners: OwnerView | None) -> Iterator[Id]:
        if kind in _PARENTS:
            yield from (_parent(kind, owner) for owner in owners if owner is not None and owner.meta.owner_name)

    def _move(self, id_: Id, key: str, *, there: bool) -> None:
        if there:
            self._created.setdefault(id_, {})[key] = None
        elif (found := self._created.get(id_)) is not None:
            found.pop(key, None)
            if not found:
                del self._created[id_]


def _parent(kind: str, owner: OwnerView) -> Id:
    return _PARENTS[kind], f"{owner.meta.namespace}/{owner.meta.owner_name}"


def _executor_key(app: OwnerView) -> str:
    return f"{app.meta.namespace}/{app.executor}"


def nodes_of(workload: Workload) -> Mapping[str, int]:
    """Return the number of its pods on each node."""
    found: dict[str, int] = {}
    for pod in workload.counted:
        if pod.node:
            found[pod.node] = found.get(pod.node, 0) + 1
    return found
