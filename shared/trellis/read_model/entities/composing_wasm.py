"""Entities of Wasm pods of one viewer: which of them change if an object changes.

Pure, with a memory. In: changes of views, part by part. Out: entities that may differ, None for a deleted one. Called
by ``live_model``, about once a second. Invariants: after any sequence of changes the entities are those of a composer
that received only the final state; a run evaluates only what can differ: changed workloads, and those with a problem if
a node changed; before each kind is read, nothing is concluded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from trellis.provisioning.shims import ShimView
from trellis.provisioning.views import NodeView
from trellis.read_model.entities.entities import PartStatus, identity, part_entity
from trellis.read_model.entities.journal import Entity
from trellis.read_model.entities.wasm_entities import wasm_entity, workload_id
from trellis.read_model.health import Health
from trellis.read_model.wasm_pods.owners import RuntimeClassView
from trellis.read_model.wasm_pods.pods import EventView
from trellis.read_model.wasm_pods.snapshot import Part, Snapshot
from trellis.read_model.wasm_pods.workloads import Id, Inventory, nodes_of, wasm_classes

PODS: Final = "wasmpods"
"""Part of the pods; it has a read status also while nothing is watched, because no Shim exists."""
OWNERS: Final[Mapping[str, str]] = {
    "deployments": "Deployment",
    "statefulsets": "StatefulSet",
    "daemonsets": "DaemonSet",
    "wasmjobs": "Job",
    "cronjobs": "CronJob",
    "spinapps": "SpinApp",
}
"""Kinds of owners by part."""
PARTS: Final = (PODS, *OWNERS, "spinappexecutors", "runtimeclasses", "podevents")
"""Names of the parts; each has a read status while a Shim exists."""
SHARED: Final = frozenset({"nodes", "shims"})
"""Parts that other entities need, too."""
_OF_PART: Final = {
    PODS: Part.PODS,
    "podevents": Part.EVENTS,
    "runtimeclasses": Part.CLASSES,
    "nodes": Part.NODES,
    "shims": Part.SHIMS,
    "deployments": Part.DEPLOYMENTS,
    "spinappexecutors": Part.EXECUTORS,
}
_LOGS: Final = "only `trellis explain` and the page of the object read it"
EVALUATED_MOST: Final = 2_000
"""Pods and workloads that one run evaluates, in 0.1 s: the other viewers of a console wait meanwhile."""


class WasmComposer:
    """The entities of Wasm pods of one viewer."""

    def __init__(self) -> None:
        self._inventory: Final = Inventory()
        self._classes: Final[dict[str, RuntimeClassView]] = {}
        self._nodes: Final[dict[str, NodeView]] = {}
        self._shims: Final[dict[str, ShimView]] = {}
        self._events: Final[dict[str, EventView]] = {}
        self._statuses: dict[str, PartStatus] = {}
        self._removed: set[str] = set()
        self._dirty: dict[Id, None] = {}
        self._every = False
        self._about: set[str] = set()
        """UIDs of objects whose Events changed since the last run."""
        self._shown: dict[Id, tuple[str, ...]] = {}
        """Shown workloads, with the nodes of their pods."""
        self._on: dict[str, set[Id]] = {}
        """Workloads by the node of a pod."""
        self._unwell: set[Id] = set()
        self._unread: Mapping[str, object] = {}

    def take(self, name: str, key: str, new: Any) -> None:  # noqa: ANN401 - the view that belongs to the part
        """Store the current view of an object, None if it is deleted; ``flush`` computes the entities."""
        match name:
            case "wasmpods":
                self._mark(self._inventory.put_pod(key, new))
            case "spinappexecutors":
                self._mark(self._inventory.put_executor(key, new))
            case "podevents":
                old = self._events.get(key)
                _put(self._events, key, new)
                self._about |= {event.uid for event in (old, new) if event is not None}
            case "nodes":
                _put(self._nodes, key, new)
                # The text of a problem names nodes, and a node can end it.
                self._mark(self._on.get(key, set()) | self._unwell)
            case "runtimeclasses":
                _put(self._classes, key, new)
                self._every = True
            case "shims":
                _put(self._shims, key, new)
                self._every = True
            case _:
                self._mark(self._inventory.put_owner(OWNERS[name], key, new))

    def report(self, statuses: Iterable[PartStatus]) -> None:
        """Store the read status of the parts; parts that are no longer among them are removed."""
        found = {status.name: status for status in statuses}
        self._removed |= (self._statuses.keys() - found.keys()) - SHARED
        self._statuses = found
        unread = {name: status.lacking for name, status in found.items() if status.lacking}
        if unread != self._unread:
            self._unread, self._every = unread, True
        self._inventory.unread = [kind for part, kind in OWNERS.items() if part in unread]

    def flush(self) -> dict[str, Entity | None]:
        """Return the entities that may differ from the last flush; None for deleted ones."""
        changes: dict[str, Entity | None] = {identity("part", "", name): None for name in self._removed}
        self._removed.clear()
        if self._read:
            changes |= self._evaluated()
        for name, status in self._statuses.items():
            if name not in SHARED:
                synced = status.synced and not (name == PODS and self.behind)
                changes[identity("part", "", name)] = part_entity(replace(status, synced=synced))
        return changes

    @property
    def behind(self) -> bool:
        """True if the next run has to evaluate what exceeded the bound of the last one."""
        return bool(self._dirty) or bool(self._about) or self._every

    @property
    def _read(self) -> bool:
        """True once each part is read, or known to be unreadable."""
        return all(status.synced or status.lacking for status in self._statuses.values())

    def _mark(self, ids: Iterable[Id]) -> None:
        self._dirty.update(dict.fromkeys(ids))

    def _mark_reported(self) -> None:
        """Mark the workloads whose Events changed: one pass for all Events of a run."""
        uids, self._about = self._about, set()
        if uids:
            self._mark(self._inventory.row_of(pod) for pod in self._inventory.pods.values() if pod.meta.uid in uids)
            owners = self._inventory.owners.items()
            self._mark(self._inventory.top(id_) for id_, owner in owners if owner.meta.uid in uids)

    def _evaluated(self) -> dict[str, Entity | None]:
        if not self.behind:
            return {}
        if self._every:
            self._every = False
            self._mark([*self._shown, *self._inventory.ids()])
        self._mark_reported()
        base = Snapshot(
            classes=[*self._classes.values()],
            nodes=[*self._nodes.values()],
            shims=[*self._shims.values()],
            events=[*self._events.values()],
        )
        classes = wasm_classes(base)
        snapshots: dict[str, Snapshot] = {}
        changes: dict[str, Entity | None] = {}
        left = EVALUATED_MOST
        while self._dirty and left > 0:
            id_ = next(iter(self._dirty))
            del self._dirty[id_]
            left -= 1
            namespace = id_[1].partition("/")[0]
            if namespace not in snapshots:
                snapshots[namespace] = base.lacking(self._unread_in(namespace))
            workload = self._inventory.workload(id_, classes)
            entity = None if workload is None else wasm_entity(snapshots[namespace], workload)
            nodes = () if workload is None else tuple(nodes_of(workload))
            left -= len(workload.pods) if workload is not None else 0
            if entity is not None or id_ in self._shown:
                changes[workload_id(id_)] = entity
            self._index(id_, nodes, entity)
        return changes

    def _index(self, id_: Id, nodes: tuple[str, ...], entity: Entity | None) -> None:
        for node in self._shown.pop(id_, ()):
            self._on[node].discard(id_)
            if not self._on[node]:
                del self._on[node]
        self._unwell.discard(id_)
        if entity is not None:
            self._shown[id_] = nodes
            for node in nodes:
                self._on.setdefault(node, set()).add(id_)
            if entity["health"] != Health.HEALTHY:
                self._unwell.add(id_)

    def _unread_in(self, namespace: str) -> dict[Part, str]:
        """Return what the viewer cannot read for the workloads of a namespace."""
        found = {Part.LOGS: _LOGS}
        for name, part in _OF_PART.items():
            status = self._statuses.get(name)
            lacking = status.lacking if status is not None else {}
            for place in ("", namespace):
                if place in lacking:
                    found[part] = lacking[place][0]
        return found


def _put(held: dict[str, Any], key: str, new: Any) -> None:  # noqa: ANN401 - views of one part
    held.pop(key, None)
    if new is not None:
        held[key] = new
