"""Entities of Wasm pods: one for each owner of pods, and one for each pod without an owner.

Pure. In: workloads in the snapshot of their cluster. Out: entities, as docs/console/api.md describes them. Called by
``composing_wasm``. Invariants: health is that of the page of ``trellis explain``; an entity has the number of its pods
and of its nodes, and the ids of some nodes, so that its size is bounded.
"""

from __future__ import annotations

from typing import Final

from trellis.read_model.entities.entities import identity, make_entity, of_key
from trellis.read_model.entities.journal import Entity
from trellis.read_model.wasm_pods.snapshot import Part, Snapshot
from trellis.read_model.wasm_pods.workloads import Id, Workload, nodes_of, providing_shim

KINDS: Final = ("deployment", "statefulset", "daemonset", "job", "cronjob", "spinapp", "pod")
"""Kinds of entities of Wasm pods."""
NODES_MOST: Final = 200
"""Ids of nodes in an entity; ``nodes_all`` has the number of all."""


def workload_id(id_: Id) -> str:
    """Return the id of the entity of a workload."""
    return of_key(id_[0].lower(), id_[1])


def wasm_entity(snapshot: Snapshot, workload: Workload) -> Entity:
    """Return a workload; ``pods``: those that count, None if they cannot be read."""
    kind, key = workload.id
    namespace, _, name = key.partition("/")
    shim, pods, nodes = providing_shim(snapshot, workload.runtime_class), workload.counted, sorted(nodes_of(workload))
    executor = workload.owner.executor if workload.owner is not None else ""
    return make_entity(kind.lower(), namespace, name, workload.health(snapshot)) | {
        "runtime_class": workload.runtime_class,
        "shim": identity("shim", "", shim.name) if shim is not None else None,
        "executor": executor or None,
        "desired": workload.wanted,
        "pods": {"all": len(pods), "ready": sum(pod.works for pod in pods)} if snapshot.knows(Part.PODS) else None,
        "nodes": [identity("node", "", node) for node in nodes[:NODES_MOST]],
        "nodes_all": len(nodes),
    }
