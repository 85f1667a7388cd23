"""Simulated nodes on which installers act: a pod succeeds after it carried out the arguments of its container, never
before.

In: installer pods that run on nodes called ``acted-…``, which kwok leaves running. Out: the disks of the nodes, by uid;
the handlers on them in the nodes' status; how the pods ended. ``fail_next``: nodes whose next installer fails. Called
by ``world``. Arguments that a real installer would refuse are in ``refused``.
"""

from __future__ import annotations

import asyncio
import contextlib
import http
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from chaos.retrying_requests import RetryingRequests
from support.nodes.installers import LAST_LOG_LINE
from trellis import names
from trellis.installer_api.spec import SpecError
from trellis_dev.fakes.disks import Disk

Manifest = dict[str, Any]
_LOOK_SECONDS: Final = 0.25
_FORGOTTEN_SECONDS: Final = 5.0
"""kwok forgets some of the pods on a node that was made anew at once under its name (26 of 90 with 0.8.0); it takes
others within a second. A kubelet forgets none: a pod that waits longer is looked after here.
"""


@dataclass
class Kubelets:
    """``disks``: by uid of the node; ``repeated``: how often a node got the same arguments again."""

    requests: RetryingRequests
    namespace: str
    disks: dict[str, Disk] = field(default_factory=dict)
    fail_next: Counter[str] = field(default_factory=Counter)
    refused: list[str] = field(default_factory=list)
    repeated: int = 0
    _acted: set[str] = field(default_factory=set)
    _waits: dict[str, float] = field(default_factory=dict)

    async def run(self) -> None:
        """Look after the pods, until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(_LOOK_SECONDS)

    async def look(self) -> None:
        """Act on the pods that are due."""
        for pod in await self.requests.items(f"/api/v1/namespaces/{self.namespace}/pods"):
            if self._is_due(pod):
                await self._act(pod)

    def _is_due(self, pod: Manifest) -> bool:
        phase = (pod.get("status") or {}).get("phase")
        labelled = (pod["metadata"].get("labels") or {}).get("kwasm.sh/job") == "true"
        if not labelled or "deletionTimestamp" in pod["metadata"]:
            return False
        if phase == "Pending":
            waits_since = self._waits.setdefault(pod["metadata"]["uid"], time.monotonic())
            return time.monotonic() - waits_since > _FORGOTTEN_SECONDS
        return bool(phase == "Running")

    async def _act(self, pod: Manifest) -> None:
        [owner] = pod["metadata"]["ownerReferences"]
        job = await self.requests.found(f"/apis/batch/v1/namespaces/{self.namespace}/jobs/{owner['name']}")
        name = pod["spec"]["nodeName"]
        node = await self.requests.found(f"/api/v1/nodes/{name}")
        if job is None or node is None:
            return
        if pod["metadata"]["uid"] not in self._acted:
            self._acted.add(pod["metadata"]["uid"])
            if self.fail_next[name] > 0:
                self.fail_next[name] -= 1
                await self._end(pod, "Failed", {"exitCode": 3, "reason": "Error", "message": LAST_LOG_LINE})
                return
            self._install(node, job)
        await self._show(node)
        await self._end(pod, "Succeeded", {"exitCode": 0, "reason": "Completed"})

    def _install(self, node: Manifest, job: Manifest) -> None:
        disk = self.disks.setdefault(node["metadata"]["uid"], Disk())
        before = dict(disk.shims)
        try:
            disk.run(job)
        except (SpecError, LookupError) as error:
            self.refused.append(f"{job['metadata']['name']} on {node['metadata']['name']}: {error!r}")
        self.repeated += disk.shims == before and names.ANNOTATION_SHIMS in job["metadata"]["annotations"]

    async def _show(self, node: Manifest) -> None:
        """Write the handlers that are on the disk into the node's status, as containerd and kubelet would."""
        disk = self.disks.setdefault(node["metadata"]["uid"], Disk())
        wanted = [{"name": name} for name in disk.handlers]
        body = {"metadata": {"uid": node["metadata"]["uid"]}, "status": {"runtimeHandlers": wanted}}
        status, answer = await self.requests.call("PATCH", f"/api/v1/nodes/{node['metadata']['name']}/status", body)
        assert status in {http.HTTPStatus.OK, http.HTTPStatus.NOT_FOUND, http.HTTPStatus.CONFLICT}, answer

    async def _end(self, pod: Manifest, phase: str, state: Manifest) -> None:
        metadata = pod["metadata"]
        container = pod["spec"]["containers"][0]
        ended = {"name": container["name"], "image": container["image"], "imageID": "", "ready": False}
        ended |= {"restartCount": 0, "started": False, "state": {"terminated": state}}
        body = {"metadata": {"uid": metadata["uid"]}, "status": {"phase": phase, "containerStatuses": [ended]}}
        with contextlib.suppress(AssertionError):  # it may be gone
            await self.requests.accepted(
                "PATCH", f"/api/v1/namespaces/{self.namespace}/pods/{metadata['name']}/status", body
            )
