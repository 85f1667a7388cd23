"""Which events are to be said of groups and their pods, and which were said.

Pure, but for remembering. Called by ``app``. Invariant: an event is said whenever its state holds and it is not known
to have been said; a pod that was said to be ready is said to be gone once it is not, also if that happened unseen.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from host_manager.domain.pods import PodView
from trellis.events.hosts import HostPodGone, HostPodReady


@dataclass(slots=True)
class Said:
    """What the bus was told. ``ready``: by ``namespace/name`` of a pod the last such fact. ``groups``: of groups."""

    ready: dict[str, HostPodReady] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=dict)

    def forget(self) -> None:
        """Take nothing for said any more."""
        self.ready.clear()
        self.groups.clear()


def ready_fact(pod: PodView) -> HostPodReady | None:
    """Return what is to be said of a pod that can be reached, None of any other."""
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


def due(pod: PodView | None, said: HostPodReady | None) -> list[HostPodReady | HostPodGone]:
    """Return the events to say of a pod: what it was said to be, and what it is."""
    now = ready_fact(pod) if pod is not None else None
    facts: list[HostPodReady | HostPodGone] = []
    if said is not None and (now is None or now.uid != said.uid):
        facts.append(HostPodGone(namespace=said.namespace, name=said.name, uid=said.uid, group=said.group))
    if now is not None and now != said:
        facts.append(now)
    return facts
