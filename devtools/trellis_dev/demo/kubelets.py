"""Simulated kubelets: they list the runtime handlers that installers left on the nodes of kwok, as real ones do.

In: completed installer Jobs, simulated Nodes. Out: ``status.runtimeHandlers`` of these Nodes. The demo runs it as a
process, ``python -m trellis_dev.demo.kubelets``, so that a kept cluster continues to verify Shims.
Invariants: only Nodes of kwok are written; a handler is listed only after a Job that installs it completed; a node with
the annotation :data:`FAULT` lists none but the default one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, Final

from trellis import names
from trellis.config.settings import load
from trellis.installer_api.spec import SpecError
from trellis.kube.client import Kube
from trellis.kube.errors import Conflict, KubeError, NotFound
from trellis.kube.informer import Change, Informer
from trellis.kube.resources import JOBS, NODES
from trellis.provisioning.views import INSTALLER_JOBS
from trellis.telemetry import get_logger
from trellis_cli.common.gather import connected
from trellis_cli.common.settings import ClientSettings
from trellis_dev.fakes.disks import Disk
from trellis_dev.localcluster.nodes import SIMULATED

Manifest = dict[str, Any]

FAULT: Final = "simulated.trellis.dev/fault"
"""Annotation of a Node, with any value: its container runtime loads no further handler."""
INSTALLER_STAGE: Final = """\
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: installer-duration}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
    - {key: .metadata.deletionTimestamp, operator: DoesNotExist}
    - {key: .status.phase, operator: In, values: [Running]}
    - {key: '.metadata.labels["kwasm.sh/job"]', operator: In, values: ['true']}
  weight: 1
  delay: {durationMilliseconds: 500, jitterDurationMilliseconds: 1200}
  next:
    statusTemplate: |
      phase: Succeeded
"""
"""Stage of kwok: an installer runs for about a second. Without it a rollout would be over before anyone sees it."""
_FIELD_MANAGER: Final = "trellis.dev/simulated-kubelet"
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SimulatedNode:
    """A Node of kwok, with the handlers that its status lists."""

    name: str
    uid: str
    handlers: tuple[str, ...]
    faulty: bool


def view_simulated(manifest: Manifest) -> SimulatedNode:
    """Return the view of a Node of kwok."""
    metadata, status = manifest["metadata"], manifest.get("status") or {}
    return SimulatedNode(
        metadata["name"],
        metadata["uid"],
        tuple(handler["name"] for handler in status.get("runtimeHandlers") or ()),
        FAULT in (metadata.get("annotations") or {}),
    )


class Kubelets:
    """The kubelets of all simulated nodes.

    ``namespace``: that of the installer Jobs; ``retry``: seconds until a write that the API server refused is repeated.
    """

    def __init__(self, kube: Kube, namespace: str, retry: float = 1.0) -> None:
        self._kube, self._retry = kube, retry
        self._disks: defaultdict[str, Disk] = defaultdict(Disk)
        """By uid of the Node: a node that is re-created starts with an empty disk."""
        self._changed = asyncio.Event()
        selector = f"{SIMULATED[0]}={SIMULATED[1]}"
        self._nodes = Informer(kube, NODES, view_simulated, self._on_node, label_selector=selector)
        self._jobs = Informer(
            kube, JOBS, lambda manifest: manifest, self._on_job, namespace=namespace, label_selector=INSTALLER_JOBS
        )

    async def run(self) -> None:
        """Report handlers until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._nodes.run())
            tasks.create_task(self._jobs.run())
            tasks.create_task(self._report())

    def on_disk(self, node: SimulatedNode) -> tuple[str, ...]:
        """Return the handlers that a node has to list."""
        return tuple((Disk() if node.faulty else self._disks[node.uid]).handlers)

    async def _report(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                for node in tuple(self._nodes.objects.values()):
                    if self.on_disk(node) != node.handlers:
                        await self._write(node)
            except KubeError as error:
                _log.warning("runtime handlers not reported", error=str(error))
                await asyncio.sleep(self._retry)
                self._changed.set()

    async def _write(self, node: SimulatedNode) -> None:
        handlers = [{"name": name} for name in self.on_disk(node)]
        patch = {"metadata": {"uid": node.uid}, "status": {"runtimeHandlers": handlers}}
        with contextlib.suppress(Conflict, NotFound):  # deleted or re-created: the watch reports it
            await self._kube.merge_patch(NODES, node.name, patch, field_manager=_FIELD_MANAGER, subresource="status")

    def _on_node(self, change: Change[SimulatedNode]) -> None:
        del change
        self._changed.set()

    def _on_job(self, change: Change[Manifest]) -> None:
        job = change.new
        if job is None or not (job.get("status") or {}).get("succeeded"):
            return
        metadata = job["metadata"]
        disk = self._disks[metadata["labels"][names.LABEL_NODE_UID]]
        if metadata["uid"] in disk.done:
            return
        disk.done.add(metadata["uid"])
        try:
            disk.run(job)
        except (SpecError, LookupError) as error:
            _log.error("an installer would refuse this Job", job=metadata["name"], error=repr(error))
        self._changed.set()


async def _main() -> None:
    settings = load(ClientSettings)
    async with connected(settings) as kube:
        await Kubelets(kube, settings.installer_namespace).run()


if __name__ == "__main__":
    asyncio.run(_main())
