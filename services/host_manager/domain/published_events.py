"""Events about host groups and their pods: those to publish, and those that are published.

Pure, except for the state of ``PublishedEvents``. Called by ``app``. Invariant: an event is published whenever its
state holds and it is not known to be published; a pod that was published as ready is published as gone after it ends,
also if no watch observed that.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from host_manager.domain.pods import PodView
from trellis.events.hosts import HostPodGone, HostPodReady


@dataclass(slots=True)
class PublishedEvents:
    """Published events. ``ready``: by ``namespace/name`` the last ready event of a pod. ``groups``: of host groups."""

    ready: dict[str, HostPodReady] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=dict)

    def forget(self) -> None:
        """Drop all records of published events."""
        self.ready.clear()
        self.groups.clear()


def ready_event(pod: PodView) -> HostPodReady | None:
    """Return the ready event of a pod, None if the pod is not ready or has no address."""
    if not pod.ready or not pod.addresses:
        return None
    return HostPodReady(
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        group=pod.group,
        addresses=list(pod.addresses),
        ports=list(pod.ports),
        node=pod.node,
        lattice=pod.lattice,
        labels=dict(pod.labels),
    )


def due(pod: PodView | None, published: HostPodReady | None) -> list[HostPodReady | HostPodGone]:
    """Return the events to publish about a pod: the end of its former state, and its new state."""
    now = ready_event(pod) if pod is not None else None
    events: list[HostPodReady | HostPodGone] = []
    if published is not None and (now is None or now.uid != published.uid):
        events.append(
            HostPodGone(namespace=published.namespace, name=published.name, uid=published.uid, group=published.group)
        )
    if now is not None and now != published:
        events.append(now)
    return events
