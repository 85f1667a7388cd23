"""What host_manager knows: groups by their informer, one group in full from the API server, its pods from the watch.

In: views of the informers, the group, its children and what it names. Out: a frozen snapshot for ``decide``. Called by
``app``. Invariant: what is written is decided on what was read in the same run.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

from pydantic import ValidationError

from host_manager.children import WORKLOADS, ChildKey, child_keys
from host_manager.facts import Said
from host_manager.group import LATEST, Group, Inputs, Manifest, Wish
from host_manager.inputs import Problem, Source, read_inputs, sources_of
from host_manager.listening import Listening
from host_manager.pods import PodView
from host_manager.resources import make_nats_conf
from host_manager.snapshot import Head, Snapshot, view_head
from host_manager.template import pod_labels
from trellis.crds.host_config import WasmCloudHostConfigSpec
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
from trellis.peers import Controller

RESOURCES: Final[Mapping[str, Resource]] = {
    one.kind: one
    for one in (
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
"""Kinds of children, and of what groups name."""
READS_AT_ONCE: Final = 12
"""Of all groups together: each is a connection, and a connection holds a third of a MiB."""
_CRASHING: Final = "CrashLoopBackOff"
_LAST_LINES: Final = 3
_LAST_BYTES: Final = 512


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group as its watch keeps it: what makes a difference to us. Its status is ours alone, so that is left out."""

    uid: str
    generation: int
    deleting: bool
    finalizers: tuple[str, ...]
    wants_latest: bool


def view_group(manifest: Mapping[str, Any]) -> GroupView:
    """Project a group."""
    head = view_head(manifest)
    return GroupView(head.uid, head.generation, head.deleting, head.finalizers, head.wants_latest)


@dataclass(frozen=True, slots=True)
class BudgetView:
    """A disruption budget: what it selects pods by, None if it selects none."""

    namespace: str
    name: str
    labels: tuple[tuple[str, str], ...] | None


def view_budget(manifest: Mapping[str, Any]) -> BudgetView:
    """Project a disruption budget; one that selects by expressions is taken to select all that its labels do."""
    metadata, selector = manifest["metadata"], manifest["spec"].get("selector")
    labels = None if selector is None else tuple(sorted((selector.get("matchLabels") or {}).items()))
    return BudgetView(metadata["namespace"], metadata["name"], labels)


@dataclass(frozen=True, slots=True)
class Looked:
    """What the last look at a whole group found: until the next only its counts are read."""

    uid: str
    generation: int
    problems: tuple[Problem, ...]
    until: float

    def covers(self, head: Head) -> bool:
        """Say whether it still tells how a group is."""
        return (self.uid, self.generation) == (head.uid, head.generation) and self.until > time.monotonic()


@dataclass(slots=True)
class Known:
    """What is remembered during a term. ``applied``: by group and child what it said when it was written last.

    ``controller``: of wasmcloud-operator, while it runs and nobody has taken over.
    """

    kube: Kube
    groups: Mapping[str, GroupView]
    pods: Mapping[str, PodView]
    said: Said = field(default_factory=Said)
    applied: dict[str, dict[ChildKey, tuple[str, str]]] = field(default_factory=dict)
    by_group: dict[str, dict[str, PodView]] = field(default_factory=dict)
    controller: Controller | None = None
    budgets: Mapping[str, BudgetView] = field(default_factory=dict)
    listening: Listening = field(default_factory=lambda: Listening(lambda _: None))
    looked: dict[str, Looked] = field(default_factory=dict)
    reading: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(READS_AT_ONCE))

    def forget(self, key: str) -> None:
        """Forget a group that is gone."""
        self.applied.pop(key, None)
        self.looked.pop(key, None)
        self.said.groups.pop(key, None)

    def doubt(self, key: str) -> None:
        """Look at the whole group in its next run."""
        self.looked.pop(key, None)

    def knows(self, snapshot: Snapshot, seconds: float) -> None:
        """Take a group as it was looked at, and as it is written by now, for so long."""
        head = snapshot.head
        until = time.monotonic() + seconds
        self.looked[head.key] = Looked(head.uid, head.generation, snapshot.problems, until)

    def look_in(self, key: str) -> float | None:
        """Return the seconds until the whole group is to be looked at again."""
        looked = self.looked.get(key)
        return max(0.0, looked.until - time.monotonic()) if looked is not None else None

    async def snapshot(self, key: str) -> Snapshot | None:
        """Return all that a decision about one group depends on; None if there is none.

        Raises:
            KubeError: something could not be read.
        """
        namespace, _, name = key.partition("/")
        try:
            manifest = await self.kube.get(HOST_CONFIGS, name, namespace)
        except NotFound:
            self.forget(key)
            await self.listening.leave(key)
            return None
        head = view_head(manifest)
        pods = tuple(self.by_group.get(key, {}).values())
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        status = manifest.get("status") or {}
        group = _group(head, manifest)
        if isinstance(group, Problem):
            return Snapshot(head, None, Inputs(), (group,), {}, pods, status, now, other=self.controller)
        if head.deleting or self.controller is not None:
            await self.listening.leave(key)
            return Snapshot(head, group, Inputs(), (), {}, pods, status, now, other=self.controller)
        base = Snapshot(head, group, Inputs(), (), {}, pods, status, now)
        looked = self.looked.get(key)
        if looked is not None and looked.covers(head):
            return self.listening.fill(await self._glance(replace(base, problems=looked.problems), group))
        return self.listening.fill(await self._look(base, group))

    async def _glance(self, base: Snapshot, group: Group) -> Snapshot:
        """Read only what the status is made from."""
        running = base.status.get("workload")
        kinds = (running,) if running in WORKLOADS else WORKLOADS
        children, words = await asyncio.gather(self._children(group, kinds), self._last_words(base.pods))
        return replace(base, children=children, last_words=words, glance=True)

    async def _look(self, base: Snapshot, group: Group) -> Snapshot:
        """Read the group's children and all that it names."""
        self.doubt(base.head.key)
        children, sources, words = await asyncio.gather(
            self._children(group), self._sources(group), self._last_words(base.pods)
        )
        await self.listening.follow(base.head.key, group, sources)
        inputs, problems = _inputs(group, sources)
        return replace(
            base,
            inputs=inputs,
            problems=problems,
            children=children,
            foreign_budget=self._foreign_budget(group),
            last_words=words,
            applied=self.applied.get(base.head.key, {}),
        )

    async def _children(self, group: Group, kinds: Container[str] = RESOURCES) -> dict[ChildKey, Manifest]:
        keys = [key for key in child_keys(group) if key[0] in kinds]
        found = await asyncio.gather(*(self._find(kind, name, group.namespace) for kind, name in keys))
        return {key: child for key, child in zip(keys, found, strict=True) if child is not None}

    async def _sources(self, group: Group) -> dict[Source, Manifest | None]:
        named = sources_of(group)
        found = await asyncio.gather(*(self._find(kind, name, group.namespace) for kind, name in named))
        return dict(zip(named, found, strict=True))

    async def _find(self, kind: str, name: str, namespace: str) -> Manifest | None:
        try:
            async with self.reading:
                return await self.kube.get(RESOURCES[kind], name, namespace)
        except NotFound:
            return None

    def _foreign_budget(self, group: Group) -> bool:
        """Say whether a budget of somebody else selects the pods: with two of them a pod cannot be evicted at all."""
        labels = pod_labels(group).items()
        return any(
            budget.namespace == group.namespace
            and budget.name != group.name
            and budget.labels is not None
            and labels >= set(budget.labels)
            for budget in self.budgets.values()
        )

    async def _last_words(self, pods: tuple[PodView, ...]) -> str:
        """Return the end of the log of the first container that keeps crashing; "" if there is none to be had."""
        for pod in sorted(pods, key=lambda pod: pod.name):
            if pod.trouble and pod.trouble.reason == _CRASHING:
                with contextlib.suppress(KubeError):  # the log is an extra: the condition says the rest without it
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


def _group(head: Head, manifest: Mapping[str, Any]) -> Group | Problem:
    """Return the group, or why its spec cannot be read."""
    try:
        spec = WasmCloudHostConfigSpec.model_validate(manifest.get("spec") or {})
    except ValidationError as error:
        fields = ", ".join(".".join(("spec", *map(str, one["loc"]))) + f": {one['msg']}" for one in error.errors()[:3])
        return Problem("InvalidSpec", f"{fields}: mend the spec")
    return Group(head.name, head.namespace, head.uid, spec)


def _inputs(group: Group, sources: Mapping[Source, Manifest | None]) -> tuple[Inputs, tuple[Problem, ...]]:
    """Return the inputs; the configuration of the leaf counts among them, and itself depends on them."""
    inputs, _ = read_inputs(group, sources, "")
    return read_inputs(group, sources, make_nats_conf(Wish(group, inputs, LATEST)))
