"""Host groups of wasmCloud v2: pods with one label, and the Hosts of their processes. No object of Kubernetes has them.

Pure. In: Hosts, pods. Out: host groups. Called by ``cluster``. Invariant: a Host belongs to the pod with its address,
and to the host group of its label ``hostgroup`` in its namespace, which is that of the runtime-operator. Pods can be in
other namespaces.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from trellis.v2.hosts import HostView
from trellis.v2.pods import HostPod


@dataclass(frozen=True, slots=True)
class HostGroup:
    """A host group; ``namespace``: of its Hosts, or of its pods while none is registered."""

    namespace: str
    name: str
    hosts: Sequence[HostView] = ()
    pods: Sequence[HostPod] = ()

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def live(self) -> list[HostPod]:
        """Its pods without ended ones, which remain after an eviction, and those that are being deleted."""
        return [pod for pod in self.pods if not pod.ended and not pod.meta.deleting]


def host_groups(hosts: Iterable[HostView], pods: Iterable[HostPod]) -> dict[str, HostGroup]:
    """Return the host groups by ``namespace/name``; hosts without the label belong to none."""
    hosts_of: dict[tuple[str, str], list[HostView]] = defaultdict(list)
    pods_of: dict[tuple[str, str], list[HostPod]] = defaultdict(list)
    places: dict[str, set[str]] = defaultdict(set)
    at: dict[tuple[str, str], str] = {}
    for host in hosts:
        if host.group:
            hosts_of[host.meta.namespace, host.group].append(host)
            places[host.group].add(host.meta.namespace)
            at[host.group, host.address] = host.meta.namespace
    for pod in pods:
        if pod.group:
            pods_of[_place(pod, places[pod.group], at), pod.group].append(pod)
    keys = sorted({*hosts_of, *pods_of})
    found = (HostGroup(space, name, hosts_of[space, name], pods_of[space, name]) for space, name in keys)
    return {group.key: group for group in found}


def _place(pod: HostPod, places: set[str], at: Mapping[tuple[str, str], str]) -> str:
    """Return the namespace of the Hosts of a pod: by its address, otherwise the only one with Hosts of its group."""
    own = next((at[pod.group, place] for place in pod.places if (pod.group, place) in at), None)
    if own is not None:
        return own
    return next(iter(places)) if len(places) == 1 else pod.meta.namespace
