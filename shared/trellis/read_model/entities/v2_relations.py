"""Relations of the objects of wasmCloud v2: which entities can differ because an object differs.

Pure, with a memory. In: changes of views. Out: ids of entities. Called by ``composing_v2``. Invariant: the work per
change does not depend on the number of objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from trellis.read_model.entities.entities import identity, of_key
from trellis.read_model.entities.v2_entities import ARTIFACT, DEPLOYMENT, HOST, SERVICE, WORKLOAD
from trellis.v2.deployments import DeploymentView, ReplicaSetView
from trellis.v2.hosts import HostView
from trellis.v2.snapshot import Part
from trellis.v2.workloads import WorkloadView

OF_PART: Final[Mapping[Part, str]] = {
    Part.HOSTS: HOST,
    Part.WORKLOADS: WORKLOAD,
    Part.DEPLOYMENTS: DEPLOYMENT,
    Part.ARTIFACTS: ARTIFACT,
    Part.SERVICES: SERVICE,
}
"""Kinds of entities by part; the other parts have none."""


class Relations:
    """Ids of entities by what they depend on."""

    def __init__(self) -> None:
        self._deployments: dict[str, str] = {}
        """Name of the WorkloadDeployment by the key of its WorkloadReplicaSet."""
        self._ids: dict[str, set[str]] = {}
        """By ``host/<ID>``, ``owner/<key>``, ``service/<key>`` and ``artifact/<key>``."""

    def change(self, part: Part, old: Any, new: Any) -> None:  # noqa: ANN401 - views of the part
        """Replace a view by the next one; None if there is none."""
        if old is not None:
            for key, id_ in _entries(part, old):
                self._ids[key].discard(id_)
                if not self._ids[key]:
                    del self._ids[key]
        if new is not None:
            for key, id_ in _entries(part, new):
                self._ids.setdefault(key, set()).add(id_)
        if part is Part.REPLICA_SETS:
            for view in filter(None, (old, new)):
                self._deployments.pop(view.meta.key, None)
            if new is not None:
                self._deployments[new.meta.key] = new.deployment

    def deployment_of(self, workload: WorkloadView) -> str:
        """Return the name of the WorkloadDeployment of a Workload, "" if it has none or if that is not known."""
        return self._deployments.get(_owner(workload), "")

    def dependents(self, part: Part, view: Any) -> Iterator[str]:  # noqa: ANN401 - as of change
        """Yield the ids of the other entities that can differ because an object differs."""
        namespace, key = view.meta.namespace, view.meta.key
        match part:
            case Part.WORKLOADS:
                yield from self._of_workload(view)
            case Part.REPLICA_SETS:
                yield from self._of_replica_set(view)
            case Part.DEPLOYMENTS:
                if view.service:
                    yield identity(SERVICE, namespace, view.service)
                yield from (identity(ARTIFACT, namespace, name) for name in view.artifacts.values())
            case Part.ARTIFACTS:
                yield from self._ids.get(f"artifact/{key}", ())
            case Part.SERVICES:
                yield from self._ids.get(f"service/{key}", ())
            case Part.SLICES:
                yield of_key(SERVICE, view.service_key)
                yield from self._ids.get(f"service/{view.service_key}", ())
            case _:
                pass

    def _of_workload(self, workload: WorkloadView) -> Iterator[str]:
        if name := self.deployment_of(workload):
            yield identity(DEPLOYMENT, workload.meta.namespace, name)
        if workload.spec.service:
            yield identity(SERVICE, workload.meta.namespace, workload.spec.service)
        yield from self._ids.get(f"host/{workload.host_id}", ())

    def _of_replica_set(self, replica_set: ReplicaSetView) -> Iterator[str]:
        if replica_set.deployment:
            yield identity(DEPLOYMENT, replica_set.meta.namespace, replica_set.deployment)
        yield from self._ids.get(f"owner/{replica_set.meta.key}", ())


def _entries(part: Part, view: HostView | WorkloadView | DeploymentView) -> Iterator[tuple[str, str]]:
    """Yield what an entity depends on, with its id."""
    namespace, key = view.meta.namespace, view.meta.key
    match part, view:
        case Part.HOSTS, HostView():
            yield f"host/{view.id}", of_key(HOST, key)
        case Part.WORKLOADS, WorkloadView():
            if owner := _owner(view):
                yield f"owner/{owner}", of_key(WORKLOAD, key)
            if view.spec.service:
                yield f"service/{namespace}/{view.spec.service}", of_key(WORKLOAD, key)
        case Part.DEPLOYMENTS, DeploymentView():
            if view.service:
                yield f"service/{namespace}/{view.service}", of_key(DEPLOYMENT, key)
            for name in sorted({*view.artifacts.values()}):
                yield f"artifact/{namespace}/{name}", of_key(DEPLOYMENT, key)
        case _:
            pass


def _owner(workload: WorkloadView) -> str:
    """Return the key of the WorkloadReplicaSet of a Workload, "" if it has none."""
    return f"{workload.meta.namespace}/{workload.meta.owner_name}" if workload.meta.owner_name else ""
