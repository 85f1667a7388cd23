"""Reads pods: the outcome of an installer, why a canary does not run, and the users of a Shim to uninstall.

In: pods, their logs and Events from the API server. Out: messages and users for a snapshot. Called by ``gather``.
Invariant: unreadable data is left empty or reported as unreadable; it prevents no decision.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from provisioner.domain.actions import User
from provisioner.domain.canary import CanaryPod
from provisioner.domain.resources import Manifest
from trellis import names
from trellis.kube.client import Kube
from trellis.kube.errors import KubeError
from trellis.kube.reader import Selection
from trellis.kube.resources import EVENTS, PODS
from trellis.provisioning.installer_pods import InstallerState, installer_state, reason_and_message
from trellis.provisioning.nodes_and_jobs import unix_seconds
from trellis.provisioning.reasons import NODE_UPDATE_REFUSED
from trellis.provisioning.shims import ShimView
from trellis.provisioning.views import JobView, NodeView
from trellis.read_model.wasm_pods.pod_shape import POD_SHAPE

LOG_LINES = 10
LOG_BYTES = 2048
INSTALLER_PODS: Final = f"{names.LABEL_JOB}=true"
_ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Pods:
    """Reader of pods on demand: only canary pods are watched."""

    kube: Kube

    async def installer(self, job: JobView) -> InstallerState:
        """Return the state of the newest pod of a Job; unreadable parts are empty, the Job's conditions remain."""
        try:
            listing = await self.kube.list(
                PODS, job.namespace, label_selector=f"batch.kubernetes.io/job-name={job.name}"
            )
            pod = max(listing.items, key=lambda item: str(item["metadata"]["creationTimestamp"]), default=None)
            if pod is None:
                return InstallerState()
            state = installer_state(pod)
            if not state.waiting and not state.log_tail:
                state = replace(state, log_tail=await self._log_tail(pod))
        except KubeError as error:
            return InstallerState(terminated=f"its pod cannot be read: {error}")
        return state

    async def at_work(self, namespace: str, node: str) -> tuple[str, ...]:
        """Return the names of the installer pods on a node that have not ended, also of deleted Jobs and Nodes.

        A kubelet selects pods by the node name: it runs pods that are bound to a former Node of its name.
        """
        listing = await self.kube.list(
            PODS, namespace, label_selector=INSTALLER_PODS, field_selector=f"spec.nodeName={node}"
        )
        return tuple(f"{namespace}/{pod['metadata']['name']}" for pod in listing.items if not _ended(pod))

    async def nodes_at_work(self, namespace: str) -> frozenset[str]:
        """Return the names of the nodes with an installer pod that has not ended; raises KubeError."""
        found: set[str] = set()
        async for page in self.kube.pages(Selection(PODS, namespace, INSTALLER_PODS, shape=POD_SHAPE)):
            if page.first:
                found.clear()  # an expired list starts again
            found.update(str(pod["spec"].get("nodeName") or "") for pod in page.items if not _ended(pod))
        return frozenset(found)

    async def _log_tail(self, pod: Manifest) -> str:
        metadata = pod["metadata"]
        try:
            return await self.kube.pod_log(
                metadata["namespace"],
                metadata["name"],
                names.JOB_CONTAINER,
                tail_lines=LOG_LINES,
                limit_bytes=LOG_BYTES,
            )
        except KubeError:
            # The node may have become unreachable after its kubelet's last report: then no log is available.
            return ""

    async def explained(self, pod: CanaryPod) -> str:
        """Return why a pod does not run: only Events report a sandbox that cannot be created."""
        if pod.phase == "Succeeded" or pod.trouble.startswith("exit code"):
            return pod.trouble
        try:
            listing = await self.kube.list(
                EVENTS, pod.namespace, field_selector=f"involvedObject.uid={pod.uid},type=Warning"
            )
        except KubeError as error:
            return pod.trouble or f"its Events cannot be read: {error}"
        warnings = [(str(event.get("lastTimestamp") or ""), reason_and_message(event)) for event in listing.items]
        return max(warnings)[1] if warnings else pod.trouble

    async def update_refused(self, node: NodeView, job: JobView) -> str:
        """Return the last report of node_watcher about a refused write of a Job's outcome, "" if none."""
        selector = f"involvedObject.uid={node.uid},reason={NODE_UPDATE_REFUSED}"
        try:
            listing = await self.kube.list(EVENTS, "default", field_selector=selector)
        except KubeError as error:
            return f"node_watcher does not label the node, and the Events of the Node cannot be read: {error}"
        reports = [
            (str(event.get("lastTimestamp") or ""), str(event.get("message") or ""))
            for event in listing.items
            if (event.get("related") or {}).get("uid") == job.uid  # node_watcher may be down, Events last an hour
        ]
        return max(reports)[1] if reports else ""

    async def users(self, node: str, deleting: tuple[str, ...], shims: Mapping[str, ShimView]) -> tuple[User, ...]:
        """Return the pods on a node that still run with a Shim to uninstall."""
        listing = await self.kube.list(PODS, field_selector=f"spec.nodeName={node}")
        return users_of(listing.items, deleting, shims)


def users_of(pods: Iterable[Manifest], deleting: Iterable[str], shims: Mapping[str, ShimView]) -> tuple[User, ...]:
    """Return the pods that run with one of the Shims to uninstall."""
    deleting = frozenset(deleting)
    users: list[User] = []
    for pod in pods:
        metadata, spec = pod["metadata"], pod["spec"]
        used = spec.get("runtimeClassName")
        if not used or _ended(pod):
            continue
        found = _shims_of(used, frozenset(spec.get("nodeSelector") or ()), shims, deleting)
        if shim := min(found & deleting, default=""):
            users.append(
                User(
                    *(metadata["namespace"], metadata["name"], metadata["uid"], shim),
                    controller=_controller(metadata),
                    created_at=unix_seconds(metadata.get("creationTimestamp")) or 0,
                )
            )
    return tuple(users)


def _ended(pod: Manifest) -> bool:
    return (pod.get("status") or {}).get("phase") in _ENDED


def _controller(metadata: Manifest) -> str:
    owners = metadata.get("ownerReferences") or ()
    return next((str(owner.get("kind", "")) for owner in owners if owner.get("controller") is True), "")


def _shims_of(
    used: str, selected: frozenset[str], shims: Mapping[str, ShimView], deleting: frozenset[str]
) -> frozenset[str]:
    """Return the Shims that a pod may run with, by its RuntimeClass and the keys of its nodeSelector.

    Kubernetes copies the nodeSelector of a RuntimeClass into its pods. It identifies the Shim if several have the
    RuntimeClass, so that the pods of one are not evicted for another, and if the RuntimeClass was deleted with its
    Shim. Otherwise its other labels do not count: they can be those of any Shim.
    """
    by_class = {shim.name for shim in shims.values() if shim.runtime_class == used}
    candidates = by_class or deleting
    by_label = frozenset(name for name in candidates if names.shim_label(name) in selected)
    return by_label or frozenset(by_class)
