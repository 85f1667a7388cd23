"""What pods say: an installer's of its run, a canary's of what keeps it from running, those that use what is to go.

In: pods, their logs and Events from the API server. Out: words and users for a snapshot. Called by ``gather``.
Invariant: what cannot be read is left empty or said to be so; it keeps nothing from being decided.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from provisioner.domain.actions import User
from provisioner.domain.canary import CanaryPod
from provisioner.domain.resources import Manifest
from trellis import names
from trellis.kube.client import Kube
from trellis.kube.errors import KubeError
from trellis.kube.resources import EVENTS, PODS
from trellis.provisioning.installer_pods import InstallerState, installer_state, words_of
from trellis.provisioning.reasons import NODE_UPDATE_REFUSED
from trellis.provisioning.shims import ShimView
from trellis.provisioning.views import JobView, NodeView

LOG_LINES = 10
LOG_BYTES = 2048
_ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Pods:
    """Reads pods when they are asked for: nothing of them is watched but the canaries."""

    kube: Kube

    async def installer(self, job: JobView) -> InstallerState:
        """Return what the newest pod of a Job says; what cannot be read is left empty, the Job's own words remain."""
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
        """Return the names of the installer pods on a node that have not ended, also of Jobs and Nodes that are gone.

        A kubelet goes by the name: it runs what is bound to a former Node of its name.
        """
        listing = await self.kube.list(
            PODS, namespace, label_selector=f"{names.LABEL_JOB}=true", field_selector=f"spec.nodeName={node}"
        )
        return tuple(
            f"{namespace}/{pod['metadata']['name']}"
            for pod in listing.items
            if (pod.get("status") or {}).get("phase") not in _ENDED
        )

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
            # The node may be cut off while its kubelet's report got through: then that is all there is.
            return ""

    async def explained(self, pod: CanaryPod) -> str:
        """Return why a pod does not run: a sandbox that cannot be made is told in Events alone."""
        if pod.phase == "Succeeded" or pod.trouble.startswith("exit code"):
            return pod.trouble
        try:
            listing = await self.kube.list(
                EVENTS, pod.namespace, field_selector=f"involvedObject.uid={pod.uid},type=Warning"
            )
        except KubeError as error:
            return pod.trouble or f"its Events cannot be read: {error}"
        told = [(str(event.get("lastTimestamp") or ""), words_of(event)) for event in listing.items]
        return max(told)[1] if told else pod.trouble

    async def update_refused(self, node: NodeView, job: JobView) -> str:
        """Return what node_watcher reported last of a refused write of what a Job did, "" if nothing."""
        selector = f"involvedObject.uid={node.uid},reason={NODE_UPDATE_REFUSED}"
        try:
            listing = await self.kube.list(EVENTS, "default", field_selector=selector)
        except KubeError as error:
            return f"node_watcher does not write it, and the Node's Events cannot be read: {error}"
        told = [
            (str(event.get("lastTimestamp") or ""), str(event.get("message") or ""))
            for event in listing.items
            if (event.get("related") or {}).get("uid") == job.uid  # it stays for an hour, and node_watcher may be away
        ]
        return max(told)[1] if told else ""

    async def users(self, node: str, going: tuple[str, ...], shims: Mapping[str, ShimView]) -> tuple[User, ...]:
        """Return the pods on a node that still run with a Shim that is to go."""
        listing = await self.kube.list(PODS, field_selector=f"spec.nodeName={node}")
        return users_of(listing.items, going, shims)


def users_of(pods: Iterable[Manifest], going: Iterable[str], shims: Mapping[str, ShimView]) -> tuple[User, ...]:
    """Return the pods that run with one of the Shims that are to go.

    A pod is known by its RuntimeClass, and where that went with the Shim's object by the label that it has selected its
    node by: Kubernetes copies the nodeSelector of a RuntimeClass into its pods.
    """
    going = tuple(going)
    by_class = {shims[name].runtime_class: name for name in going if name in shims}
    by_label = {names.shim_label(name): name for name in going}
    users: list[User] = []
    for pod in pods:
        metadata, spec = pod["metadata"], pod["spec"]
        used = spec.get("runtimeClassName")
        if not used or (pod.get("status") or {}).get("phase") in _ENDED:
            continue
        selected = (by_label[label] for label in spec.get("nodeSelector") or () if label in by_label)
        if shim := by_class.get(used) or next(selected, ""):
            users.append(User(metadata["namespace"], metadata["name"], metadata["uid"], shim))
    return tuple(users)
