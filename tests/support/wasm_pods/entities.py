"""Entities of Wasm pods, as the console and ``trellis top`` have them.

In: manifests by part. Out: views, composers, entities. Called by tests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from support.wasm_pods.objects import Manifest, crashing, executor, node, pod, runtime_class, shim, spin_app, workload
from trellis.kube.resources import NODES, SHIMS, SPIN_APP_EXECUTORS, SPIN_APPS
from trellis.provisioning.nodes_and_jobs import view_node
from trellis.provisioning.shims import view_shim
from trellis.read_model.entities.composing_wasm import PARTS, SHARED, WasmComposer
from trellis.read_model.entities.entities import PartStatus
from trellis.read_model.entities.journal import Entity
from trellis.read_model.live.parts_wasm import wasm_parts
from trellis_dev.fakes.fake import FakeKube

REFUSED: Final = ("not allowed to list pods in the whole cluster", "request the permission")
OF_SET: Final = ("ReplicaSet", "hello-5d8f", "uid-rs")
_VIEWS: Final[Mapping[str, Any]] = {part.name: part.project for part in wasm_parts()} | {
    "nodes": view_node,
    "shims": view_shim,
}
Item = tuple[str, Manifest]


def cluster() -> list[Item]:
    """Return objects of every kind of entity, in order of their names."""
    template = workload()["spec"]["template"]
    return [
        ("nodes", node()),
        ("shims", shim()),
        ("runtimeclasses", runtime_class()),
        ("deployments", workload(replicas=2)),
        ("wasmpods", pod("hello-a", owner=OF_SET)),
        ("statefulsets", workload("set")),
        ("daemonsets", workload("every", status={"desiredNumberScheduled": 0})),
        ("wasmjobs", workload("once")),
        ("cronjobs", workload("nightly", jobTemplate={"spec": {"template": template}})),
        ("spinapps", spin_app("app")),
        ("spinappexecutors", executor()),
        ("wasmpods", pod("alone", crashing(137))),
    ]


def statuses(lacking: Iterable[str] = (), places: Sequence[str] = ("",)) -> list[PartStatus]:
    """Return the read status of all parts; ``places``: namespaces of those that are lacking."""
    refused = dict.fromkeys(places, REFUSED)
    return [PartStatus(name, True, refused if name in lacking else {}) for name in (*sorted(SHARED), *PARTS)]


def put(into: WasmComposer, item: Item, *, there: bool = True) -> None:
    """Store an object, or delete it."""
    name, manifest = item
    metadata = manifest["metadata"]
    key = "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))
    into.take(name, key, _VIEWS[name](manifest) if there else None)


def seen_wasm(objects: Iterable[Item] | None = None, lacking: Iterable[str] = ()) -> dict[str, Entity]:
    """Return the entities of a cluster; without objects, of :func:`cluster`."""
    composer, left = WasmComposer(), [*lacking]
    for item in cluster() if objects is None else objects:
        if item[0] not in left:
            put(composer, item)
    composer.report(statuses(left))
    return {id_: entity for id_, entity in composer.flush().items() if entity is not None}


def seen_in(kube: FakeKube) -> dict[str, Entity]:
    """Return the entities of the objects of an API server."""
    found = [("nodes", item) for item in kube.objects(NODES)] + [("shims", item) for item in kube.objects(SHIMS)]
    for part in wasm_parts():
        if part.resource not in {SPIN_APPS, SPIN_APP_EXECUTORS}:
            found += [(part.name, item) for item in kube.objects(part.resource)]
    return seen_wasm(found)
