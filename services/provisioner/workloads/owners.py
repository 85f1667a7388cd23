"""Finds the owner of pods: the Deployment of a ReplicaSet, the SpinApp of a Deployment, the CronJob of a Job.

In: the controller of pods. Out: its topmost known controller. Called by the reconciler of workloads and by
``refused_owners``. Invariants: one read per controller and level, as long as it is kept; a controller that cannot be
read is the owner itself.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field
from typing import Final

from provisioner.domain.workloads.decide import Workload
from provisioner.workloads.pods import Controller
from trellis.kube.client import Kube
from trellis.kube.errors import Forbidden, NotFound
from trellis.kube.resources import DEPLOYMENTS, JOBS, REPLICA_SETS, Manifest
from trellis.telemetry import get_logger
from trellis.v2.fields import items, mapping, text

_log = get_logger(__name__)
_OWNED: Final = {(res.api_version, res.kind): res for res in (REPLICA_SETS, DEPLOYMENTS, JOBS)}
"""Kinds whose objects can have a controller that users create."""
_MOST: Final = 3
"""Levels above a pod: ReplicaSet, Deployment, SpinApp."""


@dataclass(eq=False)
class Owners:
    """Owners by the UID of the controller of their pods."""

    kube: Kube
    _found: dict[str, Workload] = field(default_factory=dict)
    _denied: bool = False

    async def of(self, controller: Controller, namespace: str, manifest: Manifest | None = None) -> Workload:
        """Return the owner of the pods of a controller; ``manifest``: of the controller, if it was read.

        Raises:
            KubeError: the API server did not answer.
        """
        if controller.uid not in self._found:
            self._found[controller.uid] = await self._read(controller, namespace, manifest)
        return self._found[controller.uid]

    def known(self, controller: Controller) -> tuple[str, str]:
        """Return kind and UID of the owner of a controller; of one that was not read yet, its own."""
        found = self._found.get(controller.uid)
        return (controller.kind, controller.uid) if found is None else (found.kind, found.uid)

    def keep(self, controllers: Container[str]) -> None:
        """Drop the owners of other controllers."""
        self._found = {uid: owner for uid, owner in self._found.items() if uid in controllers}

    async def _read(self, controller: Controller, namespace: str, manifest: Manifest | None) -> Workload:
        for _ in range(_MOST):
            above = await self._controller_of(controller, namespace, manifest)
            if above is None:
                break
            controller, manifest = above, None
        return Workload(namespace, controller.api_version, controller.kind, controller.name, controller.uid)

    async def _controller_of(
        self, controller: Controller, namespace: str, manifest: Manifest | None
    ) -> Controller | None:
        resource = _OWNED.get((controller.api_version, controller.kind))
        if resource is None:
            return None
        try:
            manifest = manifest or await self.kube.get(resource, controller.name, namespace)
        except NotFound:
            return None
        except Forbidden as error:
            if not self._denied:
                self._denied = True
                _log.warning("owners of Wasm pods cannot be read", error=self.kube.describe_error(error))
            return None
        metadata = mapping(manifest, "metadata")
        if text(metadata, "uid") != controller.uid:
            return None
        owner = next((item for item in items(metadata, "ownerReferences") if item.get("controller") is True), None)
        if owner is None:
            return None
        return Controller(text(owner, "apiVersion"), text(owner, "kind"), text(owner, "name"), text(owner, "uid"))
