"""The cache of host_manager: host groups from their informer, one host group in full, its pods from the watch.

In: views of the informers, the host group, its children and the objects that it names. Out: a frozen snapshot for
``decide``. Called by ``app``. Invariant: a write is decided on state that was read in the same reconcile.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

from host_manager.domain.children import WORKLOADS, ChildKey, child_keys, fingerprint, workload_of
from host_manager.domain.group import LATEST, Group, HostGroupSpec, Inputs, Manifest
from host_manager.domain.inputs import Problem, Source, keep_checksum, read_inputs, sources_of, versions_of
from host_manager.domain.pods import PodView
from host_manager.domain.published_events import PublishedEvents
from host_manager.domain.resources import make_nats_conf
from host_manager.domain.snapshot import Head, Snapshot, group_of, misread, view_head
from host_manager.domain.template import pod_labels
from host_manager.domain.views import BudgetView, GroupView
from host_manager.domain.workloads import WorkloadView
from host_manager.last_read import HalfCreated, LastRead
from host_manager.lattice_follower import LatticeFollower
from host_manager.pod_retries import PodRetries
from host_manager.timings import Timings
from host_manager.waiting_changes import Changes
from trellis import names
from trellis.kube.client import Kube
from trellis.kube.errors import KubeError, NotFound
from trellis.kube.resources import (
    BUDGETS,
    CONFIGMAPS,
    DAEMON_SETS,
    DEPLOYMENTS,
    HOST_CONFIGS,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    Resource,
)
from trellis.provisioning.other_controllers import Controller

RESOURCES: Final[Mapping[str, Resource]] = {
    item.kind: item
    for item in (
        CONFIGMAPS,
        SERVICE_ACCOUNTS,
        ROLES,
        ROLE_BINDINGS,
        DEPLOYMENTS,
        DAEMON_SETS,
        SERVICES,
        BUDGETS,
        SECRETS,
    )
}
"""Kinds of children, and of objects that host groups refer to."""
NEW_GROUP_KINDS: Final = frozenset({"Role", "RoleBinding", "Service"})
"""Children of a new host group that are read before its creation, with a disruption budget that the watch shows: an
unmanaged object of that name must be detected before hosts run. Conflicts with earlier children are rejected by the API
server, which allows only one controller per object."""
CALLS_AT_ONCE: Final = 12
"""Concurrent requests to the API server, over all host groups: each uses a connection with a third of a MiB. More are
not faster, as the API server limits the creation of a new group."""
_LEAST: Final = 0.5
"""Share of its interval after which a full read may be repeated."""
_CRASHING: Final = "CrashLoopBackOff"
_LAST_LINES: Final = 3
_LAST_BYTES: Final = 512


@dataclass(slots=True)
class Cache:
    """The cache of one leadership term. ``applied``: by group and child the fingerprints of its last write.

    ``controller``: wasmcloud-operator, while it is active. ``deployments``, ``daemon_sets``: workloads of host groups;
    ``operators``: all Deployments, as any could be wasmcloud-operator. ``waiting``: groups without a reconcile so far.
    ``half_created``: new groups of which the first half is created. ``ready``: by group its ready pods, and since when
    the watch shows them as ready.
    """

    kube: Kube
    groups: dict[str, GroupView]
    pods: dict[str, PodView]
    sources_interval: float
    timings: Timings = Timings()
    published: PublishedEvents = field(default_factory=PublishedEvents)
    applied: dict[str, dict[ChildKey, tuple[str, str]]] = field(default_factory=dict)
    by_group: dict[str, dict[str, PodView]] = field(default_factory=dict)
    controller: Controller | None = None
    budgets: dict[str, BudgetView] = field(default_factory=dict)
    deployments: dict[str, WorkloadView] = field(default_factory=dict)
    daemon_sets: dict[str, WorkloadView] = field(default_factory=dict)
    operators: dict[str, Controller] = field(default_factory=dict)
    lattices: LatticeFollower = field(default_factory=lambda: LatticeFollower(lambda _: None))
    last_reads: dict[str, LastRead] = field(default_factory=dict)
    waiting: set[str] = field(default_factory=set)
    halves: dict[str, HalfCreated] = field(default_factory=dict)
    ready: dict[str, dict[tuple[str, str, str], float]] = field(default_factory=dict)
    changes: Changes = field(default_factory=Changes)
    retries: PodRetries = field(default_factory=PodRetries)
    calls: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CALLS_AT_ONCE))

    def forget(self, key: str) -> None:
        """Drop the state of a deleted host group."""
        self.applied.pop(key, None)
        self.last_reads.pop(key, None)
        self.halves.pop(key, None)
        self.ready.pop(key, None)
        self.published.groups.pop(key, None)
        self.changes.forget(key)
        self.retries.forget(key)

    def note_children(self, key: str) -> None:
        """Record that children of a host group may exist."""
        self.applied.setdefault(key, {})

    def invalidate(self, key: str) -> None:
        """Read the full host group in its next reconcile."""
        self.last_reads.pop(key, None)

    def half_created(self, snapshot: Snapshot) -> None:
        """Record that the workload of a new group is created; its next reconcile creates the rest without reads."""
        head = snapshot.head
        self.invalidate(head.key)
        self.halves[head.key] = HalfCreated(head.uid, head.generation, time.monotonic() + self.timings.half_created)

    def gives_way(self, key: str) -> bool:
        """Return whether a host group whose hosts can start yields to groups without a reconcile so far."""
        half = self.halves.get(key)
        may = half is not None and half.until > time.monotonic()
        return bool(self.waiting) and (may or self.early_for(key) is not None)

    def knows(self, snapshot: Snapshot) -> None:
        """Record the full read of a host group, which is valid with the writes of this reconcile.

        Its validity varies, so that host groups that were read together at the start are read one by one later.
        """
        head, now = snapshot.head, time.monotonic()
        contents = frozenset(fingerprint(child) for (kind, _), child in snapshot.children.items() if kind in WORKLOADS)
        seconds = self.sources_interval * self.timings.full_read * random.uniform(_LEAST, 1.0)  # noqa: S311 - spreads load
        self.last_reads[head.key] = LastRead(
            uid=head.uid,
            generation=head.generation,
            problems=snapshot.problems,
            contents=contents,
            versions=snapshot.versions,
            until=now + seconds,
            sources_due=now + self.sources_interval,
            early_until=now + self.timings.first_status if snapshot.fresh else 0.0,
        )

    def look_in(self, key: str) -> float | None:
        """Return the seconds until the next read of the host group."""
        last_read = self.last_reads.get(key)
        return max(0.0, last_read.due - time.monotonic()) if last_read is not None else None

    def early_for(self, key: str) -> float | None:
        """Return the seconds until a new group's first status is due, None if it is due."""
        last_read = self.last_reads.get(key)
        left = last_read.early_until - time.monotonic() if last_read is not None else 0.0
        return left if left > 0 else None

    async def snapshot(self, key: str) -> Snapshot | None:
        """Return all inputs of a decision about one host group; None if it does not exist.

        Raises:
            KubeError: a read failed.
        """
        self.waiting.discard(key)
        namespace, _, name = key.partition("/")
        try:
            async with self.calls:
                manifest = await self.kube.get(HOST_CONFIGS, name, namespace)
        except NotFound:
            self.forget(key)
            await self.lattices.unfollow(key)
            return None
        head = view_head(manifest)
        pods = tuple(self.by_group.get(key, {}).values())
        now = datetime.fromtimestamp(self.kube.now(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        status = manifest.get("status") or {}
        group = group_of(head, manifest)
        if isinstance(group, Problem):
            return Snapshot(head, None, Inputs(), (group,), {}, pods, status, now, other=self.controller)
        if head.deleting or self.controller is not None:
            await self.lattices.unfollow(key)
            return Snapshot(head, group, Inputs(), (), {}, pods, status, now, other=self.controller)
        base = Snapshot(
            *(head, group, Inputs(), (), {}, pods, status, now),
            ready_at=self._ready_at(key, pods),
            changes=self.changes.of(key),
            rest=self.timings.rest,
        )
        last_read = self.last_reads.get(key)
        if last_read is not None and not base.changes and await self._is_valid(last_read, head, group):
            early = self.early_for(key) is not None
            glance = await self._glance(replace(base, problems=last_read.problems, early=early), group)
            if self._as_left(key, glance, last_read):
                return self.retries.fill(self.lattices.fill(glance))
        return self.retries.fill(self.lattices.fill(await self._look(base, group)))

    def _ready_at(self, key: str, pods: tuple[PodView, ...]) -> dict[str, float]:
        """Return, by name, since when the watch shows each pod as ready, in monotonic seconds."""
        former, now = self.ready.get(key, {}), time.monotonic()
        seen = {(pod.name, pod.uid, pod.ready_since): pod.name for pod in pods if pod.ready}
        self.ready[key] = {what: former.get(what, now) for what in seen}
        return {name: self.ready[key][what] for what, name in seen.items()}

    async def _glance(self, base: Snapshot, group: Group) -> Snapshot:
        """Read only the inputs of the status."""
        written = [kind for kind, _ in self.applied.get(base.head.key, ()) if kind in WORKLOADS]
        running = base.status.get("workload")
        kinds = (running,) if running in WORKLOADS else tuple(written) or WORKLOADS
        children, last_log_line = await asyncio.gather(self._children(group, kinds), self._last_log_line(base.pods))
        return replace(base, children=children, last_log_line=last_log_line, glance=True)

    async def _look(self, base: Snapshot, group: Group) -> Snapshot:
        """Read the children of the host group, and all objects that it refers to."""
        self.invalidate(base.head.key)
        head, half = base.head, self.halves.pop(base.head.key, None)
        half_created = half is not None and (half.uid, half.generation) == (head.uid, head.generation)
        fresh = half_created or self._is_fresh(base)
        children, sources, last_log_line = await asyncio.gather(
            self._children(group, () if half_created else self._kinds(base.head.key, fresh=fresh)),
            self._sources(group),
            self._last_log_line(base.pods),
        )
        await self.lattices.follow(base.head.key, group, sources)
        inputs, problems = _inputs(group, sources)
        return replace(
            base,
            inputs=keep_checksum(inputs, workload_of(children, group.name), group.uid),
            versions=versions_of(sources),
            problems=(*problems, *misread(base.head)),
            children=children,
            foreign_budget=self._foreign_budget(group),
            last_log_line=last_log_line,
            applied=self.applied.get(base.head.key, {}),
            fresh=fresh,
            early=fresh,
        )

    async def _is_valid(self, last_read: LastRead, head: Head, group: Group) -> bool:
        """Return whether a full read is valid: the host group and the objects that it refers to are unchanged."""
        if not last_read.covers(head):
            return False
        if last_read.versions and last_read.sources_due <= time.monotonic():
            if versions_of(await self._sources(group)) != last_read.versions:
                return False
            due = time.monotonic() + self.sources_interval
            self.last_reads[head.key] = replace(last_read, sources_due=due)
        return True

    def _as_left(self, key: str, glance: Snapshot, last_read: LastRead) -> bool:
        """Return whether the workload is as in the last full read, or as written since."""
        contents = last_read.contents | {content for _, content in self.applied.get(key, {}).values()}
        return all(fingerprint(child) in contents for child in glance.children.values())

    def _is_fresh(self, base: Snapshot) -> bool:
        """Return whether no child was ever created for a host group, by Trellis or by wasmcloud-operator."""
        marked = {names.FINALIZER_HOSTS, names.WASMCLOUD_OPERATOR}.intersection(base.head.finalizers)
        key, workloads = base.head.key, (self.deployments, self.daemon_sets, self.operators)
        return not (marked or base.status or key in self.applied or any(key in found for found in workloads))

    def _kinds(self, key: str, *, fresh: bool) -> Container[str]:
        """Return the kinds of children to read."""
        if not fresh:
            return RESOURCES
        return NEW_GROUP_KINDS | ({"PodDisruptionBudget"} if key in self.budgets else frozenset())

    async def _children(self, group: Group, kinds: Container[str] = RESOURCES) -> dict[ChildKey, Manifest]:
        keys = [key for key in child_keys(group) if key[0] in kinds]
        found = await asyncio.gather(*(self._find(group, kind, name) for kind, name in keys))
        return {key: child for key, child in zip(keys, found, strict=True) if child is not None}

    async def _sources(self, group: Group) -> dict[Source, Manifest | None]:
        named = sources_of(group)
        found = await asyncio.gather(*(self._find(group, kind, name) for kind, name in named))
        return dict(zip(named, found, strict=True))

    async def _find(self, group: Group, kind: str, name: str) -> Manifest | None:
        try:
            async with self.calls:
                return await self.kube.get(RESOURCES[kind], name, group.namespace)
        except NotFound:
            return None

    def _foreign_budget(self, group: Group) -> bool:
        """Return whether a budget of another owner selects the pods.

        Two budgets that select the same pod block each eviction.
        """
        labels = pod_labels(group).items()
        return any(
            budget.namespace == group.namespace
            and budget.name != group.name
            and budget.labels is not None
            and labels >= set(budget.labels)
            for budget in self.budgets.values()
        )

    async def _last_log_line(self, pods: tuple[PodView, ...]) -> str:
        """Return the last log line of the first container in CrashLoopBackOff; "" if it is unavailable."""
        for pod in sorted(pods, key=lambda pod: pod.name):
            if pod.trouble and pod.trouble.reason == _CRASHING:
                with contextlib.suppress(KubeError):  # the log is optional in the condition
                    text = await self.kube.pod_log(
                        pod.namespace,
                        pod.name,
                        pod.trouble.container,
                        tail_lines=_LAST_LINES,
                        limit_bytes=_LAST_BYTES,
                    )
                    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
                return ""
        return ""


def _inputs(group: Group, sources: Mapping[Source, Manifest | None]) -> tuple[Inputs, tuple[Problem, ...]]:
    """Return the inputs, including the configuration of the leaf, which itself depends on them."""
    inputs, _ = read_inputs(group, sources, "")
    return read_inputs(group, sources, make_nats_conf(HostGroupSpec(group, inputs, LATEST)))
