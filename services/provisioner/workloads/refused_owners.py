"""Reads the controllers whose pods the API server refuses, and evaluates those of Wasm pods.

In: Events, and controllers from the API server. Out: owners, and what stands for their missing pods. Called by the
reconciler of workloads. Invariants: nothing is concluded from an Event before its controller was read, some seconds
later: a conflict of two writers of a quota is retried at once; a controller without a RuntimeClass of a Shim is read
once an hour; all reads have one rate limit; a kind that cannot be read has a note of readiness, and no
further effect.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from provisioner.domain.workloads.decide import Observed, Workload
from provisioner.domain.workloads.refused import UNREAD, depends_on_unread, missing_pods
from provisioner.timings import WorkloadTimings
from provisioner.workloads.owners import Owners
from provisioner.workloads.pods import WorkloadPod
from provisioner.workloads.refused_creations import RefusedCreation, RefusedCreations
from trellis.kube.changes import Change
from trellis.kube.client import Kube
from trellis.kube.errors import Forbidden, NotFound
from trellis.kube.resources import CRON_JOBS, Manifest
from trellis.limits.token_bucket import TokenBucket
from trellis.read_model.wasm_pods.owners import OwnerView, view_owner
from trellis.read_model.wasm_pods.pods import EventView, WasmPod
from trellis.read_model.wasm_pods.snapshot import Snapshot
from trellis.v2.objects import Meta

_CRON_JOB: Final = CRON_JOBS.kind


@dataclass(frozen=True, slots=True)
class _Read:
    """A controller of Wasm pods. ``at``: monotonic; ``event_at``: Unix seconds of its newest Event then."""

    owner: Workload
    view: OwnerView
    at: float
    event_at: float


@dataclass(eq=False)
class RefusedOwners:
    """Controllers by UID, the one that was read first in front. ``classes``: RuntimeClasses that Shims provide."""

    kube: Kube
    owners: Owners
    creations: RefusedCreations
    classes: Callable[[], Container[str]]
    timings: WorkloadTimings
    _waiting: dict[str, float] = field(default_factory=dict)
    """By UID of a controller that was not read yet, from when on it is read, monotonic."""
    _read: OrderedDict[str, _Read] = field(default_factory=OrderedDict)
    _noted: set[str] = field(default_factory=set)
    _limit: TokenBucket = field(init=False)

    def __post_init__(self) -> None:
        self._limit = TokenBucket(self.timings.reads, self.timings.reads_burst)

    @property
    def waiting(self) -> bool:
        """True if controllers are to be read that were not read yet."""
        return bool(self._waiting)

    def take(self, change: Change[RefusedCreation]) -> Workload | None:
        """Record a change of an Event; return the owner that can differ, None if it is not known."""
        found = change.new or change.old
        uid = found.controller.uid if found is not None else ""
        newest = self.creations.newest(uid)
        if newest is None:
            return self._forget(uid)
        if uid not in self._read:
            age = max(0.0, self.kube.now() - newest.event.at)
            self._waiting.setdefault(uid, time.monotonic() + max(0.0, self.timings.patience - age))
        return self.owner_of(uid)

    def expire(self) -> list[Workload]:
        """Drop the controllers whose Events are outdated; return their owners."""
        owners = (self._forget(uid) for uid in self.creations.expire())
        return [owner for owner in owners if owner is not None]

    def uids(self) -> Sequence[str]:
        """Return the UIDs of the controllers that were read."""
        return [*self._read]

    def owner_of(self, uid: str) -> Workload | None:
        """Return the owner of a controller, None if it was not read."""
        found = self._read.get(uid)
        return found.owner if found is not None else None

    def events(self) -> Iterator[EventView]:
        """Yield the newest Event of each controller that was read."""
        newest = (self.creations.newest(uid) for uid in self._read)
        return (found.event for found in newest if found is not None)

    async def read(self) -> list[str]:
        """Read the controllers that are due, within the rate limit; return their UIDs.

        Raises:
            KubeError: the API server did not answer.
        """
        now, found = time.monotonic(), list[str]()
        while (uid := self._next(now)) is not None and self._limit.take(now):
            if (creation := self.creations.newest(uid)) is not None:
                await self._evaluate(uid, creation)
            else:
                self._forget(uid)
            found.append(uid)
        return found

    def observe(
        self, snapshot: Snapshot, pods: Mapping[str, Sequence[WorkloadPod]], failing: Collection[str]
    ) -> list[Observed]:
        """Return what stands for the missing pods of an owner; ``pods``: by UID of its controllers.

        ``failing``: its published reasons: it has not recovered while controllers are not read that can be its own.
        """
        found = [UNREAD] if self._waiting and depends_on_unread(failing) else []
        classes = self.classes()
        for uid in pods:
            read = self._read.get(uid)
            if read is not None and read.view.template.runtime_class in classes:
                its = [pod for those in pods.values() for pod in those] if read.view.kind == _CRON_JOB else pods[uid]
                found += self._missing(snapshot, uid, read, its)
        return found

    def end(self) -> None:
        """Remove the notes: the leadership term ends."""
        for what in self._noted:
            self.kube.health.note(what, "")

    def _next(self, now: float) -> str | None:
        """Return the UID of the next controller to read: one that was not read yet, or the one that was read first."""
        waiting, read = next(iter(self._waiting.items()), None), next(iter(self._read.items()), None)
        if waiting is not None and waiting[1] <= now:
            return waiting[0]
        return read[0] if read is not None and now - read[1].at >= self.timings.refused_again else None

    async def _evaluate(self, uid: str, creation: RefusedCreation) -> None:
        manifest = await self._get(creation)
        if manifest is None and uid in self._read:  # its permission was withdrawn: the last view remains
            self._read[uid] = replace(self._read[uid], at=time.monotonic())
            self._read.move_to_end(uid)
            return
        view, at = view_owner(creation.controller.kind, manifest), creation.event.at
        runtime_class = view.template.runtime_class
        if view.meta.uid != uid:
            self._dismiss(uid, at)
        elif runtime_class not in self.classes():
            self._dismiss(uid, at + self.timings.other_class, runtime_class)
        else:
            owner = await self.owners.of(creation.controller, creation.namespace, manifest)
            self._waiting.pop(uid, None)
            self._read[uid] = _Read(owner, _compact(view), time.monotonic(), at)
            self._read.move_to_end(uid)

    async def _get(self, creation: RefusedCreation) -> Manifest | None:
        """Return the manifest of a controller, {} if it does not exist, None if the account may not read it."""
        resource, manifest = creation.resource, Manifest()
        what = f"refused pods of {resource.plural}"
        try:
            manifest = await self.kube.get(resource, creation.controller.name, creation.namespace)
        except NotFound:
            pass
        except Forbidden as error:
            self._noted.add(what)
            self.kube.health.note(what, f"{self.kube.describe_error(error)}; they are not reported")
            return None
        self.kube.health.note(what, "")
        return manifest

    def _missing(self, snapshot: Snapshot, uid: str, read: _Read, pods: Sequence[WorkloadPod]) -> list[Observed]:
        """Return what stands for the missing pods of a controller; one that has all of them is dismissed."""
        newest = self.creations.newest(uid)
        at = newest.event.at if newest is not None else read.event_at
        missing = missing_pods(snapshot.of([*map(_as_explained, pods)]), read.view, at)
        if missing is not None:
            return [missing]
        if at <= read.event_at:
            self._dismiss(uid, at)
        return []

    def _dismiss(self, uid: str, until: float, runtime_class: str = "") -> None:
        self.creations.dismiss(uid, until, runtime_class)
        self._forget(uid)

    def _forget(self, uid: str) -> Workload | None:
        self._waiting.pop(uid, None)
        found = self._read.pop(uid, None)
        return found.owner if found is not None else None


def _compact(view: OwnerView) -> OwnerView:
    """Return a view with the fields that the cause of missing pods depends on."""
    template = WasmPod(Meta(), runtime_class=view.template.runtime_class)
    return replace(view, meta=replace(view.meta, labels={}), template=template, selector="")


def _as_explained(pod: WorkloadPod) -> WasmPod:
    if pod.details is not None:
        return pod.details
    meta = Meta(pod.namespace, pod.name, pod.uid, pod.created_at, pod.deleting)
    return WasmPod(meta, runtime_class=pod.runtime_class, ready=pod.ready, phase="Succeeded" if pod.completed else "")
