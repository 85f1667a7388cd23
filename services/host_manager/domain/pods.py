"""Views of the pods of host groups.

Pure: raw pods in, views out. Called by the pod watch, ``status`` and ``published_events``.
Source of the fields: core/v1 PodStatus.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from host_manager.domain.environment import LABEL_VARIABLE, POD_LABEL
from trellis import names

Manifest = Mapping[str, Any]

_WAITING_IS_FINE: Final = frozenset({"ContainerCreating", "PodInitializing", ""})
_LATTICE_VARIABLE: Final = "WASMCLOUD_LATTICE"
_POD_VARIABLE: Final = LABEL_VARIABLE + POD_LABEL


@dataclass(frozen=True, slots=True)
class Trouble:
    """The reason why a pod does not become ready; ``container``: "" for the pod as a whole."""

    reason: str
    message: str
    container: str = ""


@dataclass(frozen=True, slots=True)
class PodView:
    """One pod of a host group. ``labels``: those of its host.

    ``reports_pod``: its host has a label with the pod's name. ``ready_since``: time of the last change of its
    readiness, in Kubernetes' format, "" if there was none.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    group: str
    ready: bool
    node: str = ""
    addresses: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()
    lattice: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    trouble: Trouble | None = None
    reports_pod: bool = False
    ready_since: str = ""

    @property
    def group_key(self) -> str:
        """``namespace/name`` of its group."""
        return f"{self.namespace}/{self.group}"

    @property
    def key(self) -> str:
        """``namespace/name`` of the pod."""
        return f"{self.namespace}/{self.name}"


def view_pod(pod: Manifest) -> PodView:
    """Return the view of a pod; a pod that is being deleted is not ready, even if its conditions are outdated."""
    metadata, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    labels: Mapping[str, str] = metadata.get("labels") or {}
    conditions = {condition["type"]: condition for condition in status.get("conditions") or ()}
    deleting = bool(metadata.get("deletionTimestamp"))
    ready = conditions.get("Ready", {}).get("status") == "True" and not deleting
    containers = spec.get("containers") or ()
    hosts = {
        name.removeprefix(names.HOST_LABEL_PREFIX): value
        for name, value in labels.items()
        if name.startswith(names.HOST_LABEL_PREFIX)
    }
    return PodView(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        resource_version=metadata["resourceVersion"],
        group=labels.get(names.LABEL_INSTANCE, ""),
        ready=ready,
        node=str(spec.get("nodeName") or ""),
        addresses=tuple(str(pod_ip["ip"]) for pod_ip in status.get("podIPs") or () if pod_ip.get("ip")),
        ports=tuple(
            sorted({port["containerPort"] for container in containers for port in container.get("ports") or ()})
        ),
        lattice=_lattice(containers),
        labels=tuple(sorted(hosts.items())),
        trouble=None if ready or deleting else _trouble(status, conditions),
        reports_pod=_POD_VARIABLE in _variables(containers),
        ready_since=str(conditions.get("Ready", {}).get("lastTransitionTime") or ""),
    )


def _lattice(containers: Iterable[Manifest]) -> str:
    return str(_variables(containers).get(_LATTICE_VARIABLE, {}).get("value") or "")


def _variables(containers: Iterable[Manifest]) -> dict[str, Manifest]:
    return {item["name"]: item for container in containers for item in container.get("env") or ()}


def _trouble(status: Manifest, conditions: Mapping[str, Manifest]) -> Trouble | None:
    """Return why a pod is not ready, from its status; None while it only starts."""
    scheduled = conditions.get("PodScheduled", {})
    if scheduled.get("status") == "False":
        return Trouble(str(scheduled.get("reason") or "Unschedulable"), str(scheduled.get("message") or ""))
    for item in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        waiting = (item.get("state") or {}).get("waiting") or {}
        reason = str(waiting.get("reason") or "")
        if reason not in _WAITING_IS_FINE:
            messages = [
                str(waiting.get("message") or ""),
                _last_end((item.get("lastState") or {}).get("terminated") or {}),
            ]
            return Trouble(reason, "; ".join(filter(None, messages)), str(item["name"]))
    if status.get("phase") == "Failed":
        return Trouble(str(status.get("reason") or "Failed"), str(status.get("message") or ""))
    return None


def _last_end(ended: Manifest) -> str:
    """Return reason and exit status of a container that waits for its next start, "" if it has not ended."""
    if not ended:
        return ""
    text = f"it ended with status {ended.get('exitCode')}" + (f" ({ended['reason']})" if ended.get("reason") else "")
    # The termination message of a container; its log is read separately.
    return text + (f": {ended['message'].strip()}" if ended.get("message") else "")
