"""Views of the pods of host groups.

Pure. In: manifests of any content. Out: views. Called by ``snapshot``. Invariants: nothing raises; no view contains an
environment variable or an argument of a container. Source: the chart of wasmCloud 2.7 sets the label, and starts a host
with the IP address of its pod as ``--host-name``. The operator finds the pod of a host with another name by that name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from trellis.v2.fields import Json, items, mapping, message, number, seconds, text
from trellis.v2.objects import Meta, view_meta

LABEL_HOST_GROUP: Final = "wasmcloud.com/hostgroup"
POD_SELECTOR: Final = LABEL_HOST_GROUP
"""Selector of the pods of all host groups."""
STARTING: Final = frozenset({"", "ContainerCreating", "PodInitializing"})
"""Reasons of a container that starts as usual."""
_ENDED: Final = frozenset({"Failed", "Succeeded"})
_PENDING: Final = "Pending"
_NO_LABELS: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class HostPod:
    """A pod of a host group. ``addresses``: none if it has ended, because another pod can have them.

    ``hostname``: the name of the system in its containers, "" if it has ended.
    ``reason`` and ``message``: why it is not ready, as the kubelet or the scheduler reports it; ``exit``: how its last
    container ended; ``since``: Unix seconds since which it is ready or not ready, None if not known.
    """

    meta: Meta
    group: str = ""
    addresses: tuple[str, ...] = ()
    hostname: str = ""
    node: str = ""
    phase: str = ""
    ready: bool = False
    since: float | None = None
    reason: str = ""
    message: str = ""
    exit: str = ""
    restarts: int = 0

    @property
    def places(self) -> tuple[str, ...]:
        """Values of ``Host.hostname`` of a host in it: its addresses, and without ``--host-name`` its name."""
        return (*self.addresses, *((self.hostname,) if self.hostname else ()))

    @property
    def ended(self) -> bool:
        """True if its containers do not restart, as after an eviction."""
        return self.phase in _ENDED

    @property
    def pending(self) -> bool:
        """True until all its containers were started once."""
        return self.phase == _PENDING


def view_host_pod(manifest: object) -> HostPod:
    """Return the view of a pod of a host group."""
    meta = view_meta(manifest)
    spec, status = mapping(manifest, "spec"), mapping(manifest, "status")
    conditions = {text(item, "type"): item for item in items(status, "conditions")}
    ready, phase = conditions.get("Ready", {}), text(status, "phase")
    containers = [*items(status, "initContainerStatuses"), *items(status, "containerStatuses")]
    is_ready = text(ready, "status") == "True"
    reason, why = ("", "") if is_ready else _obstacle(status, conditions.get("PodScheduled", {}), containers)
    return HostPod(
        meta=replace(meta, labels=_NO_LABELS),
        group=meta.labels.get(LABEL_HOST_GROUP, ""),
        addresses=() if phase in _ENDED else tuple(dict.fromkeys(_addresses(status))),
        hostname="" if phase in _ENDED else text(spec, "hostname") or meta.name,
        node=text(spec, "nodeName"),
        phase=phase,
        ready=is_ready,
        since=seconds(text(ready, "lastTransitionTime")),
        reason=reason,
        message=why,
        exit="" if is_ready else next(filter(None, map(_exit, containers)), ""),
        restarts=sum(number(item, "restartCount") or 0 for item in containers),
    )


def _addresses(status: Json) -> Iterator[str]:
    found = (text(status, "podIP"), *(text(item, "ip") for item in items(status, "podIPs")))
    yield from filter(None, found)


def _obstacle(status: Json, scheduled: Json, containers: list[Json]) -> tuple[str, str]:
    """Return reason and message of a pod that is not ready: of itself, the scheduler, or its first such container."""
    if reason := text(status, "reason"):
        return reason, message(status)
    if text(scheduled, "status") == "False":
        return text(scheduled, "reason"), message(scheduled)
    waiting = [mapping(mapping(item, "state"), "waiting") for item in containers]
    for state in waiting:
        if text(state, "reason") not in STARTING:
            return text(state, "reason"), message(state)
    for item in containers:
        ended = mapping(mapping(item, "state"), "terminated")
        if number(ended, "exitCode"):
            return text(ended, "reason") or "Error", message(ended)
    return next(((text(state, "reason"), message(state)) for state in waiting if state), ("", ""))


def _exit(container: Json) -> str:
    """Return how a container ended the last time: ``OOMKilled, exit code 137``; "" if it did not, or as planned."""
    for part in ("state", "lastState"):
        ended = mapping(mapping(container, part), "terminated")
        if code := number(ended, "exitCode"):
            return f"{text(ended, 'reason') or 'Error'}, exit code {code}"
    return ""
