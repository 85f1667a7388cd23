"""The cache of wasmCloud v2: views of its objects from their informers, and the published events.

In: views. Out: a snapshot for ``decide``. Written by the informers and by ``reconciler``. Invariants: a kind without a
complete list is not known, and nothing is concluded from its absence; no manifest is kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf, nan
from typing import Final, TypeVar

from host_manager.domain.v2.operator_clock import OperatorClock
from host_manager.domain.v2.outages import Outages
from host_manager.domain.v2.published import Published
from host_manager.domain.v2.trust import Trust
from host_manager.v2.heartbeats import CompleteHeartbeats
from host_manager.v2.metrics import HostNumbers
from trellis.kube.client import Kube
from trellis.kube.informer import Informer
from trellis.read_model.health import Health
from trellis.telemetry.observed import Forget
from trellis.v2.deployments import ArtifactView, DeploymentView, ReplicaSetView
from trellis.v2.host_messages import HostMessages
from trellis.v2.hosts import HostView
from trellis.v2.snapshot import Part, Snapshot
from trellis.v2.timings import V2Timings
from trellis.v2.workloads import WorkloadView

V = TypeVar("V")
KINDS: Final = ("WorkloadDeployment", "Workload", "Host", "Artifact")
HEALTHS: Final = (Health.HEALTHY, Health.PROGRESSING, Health.DEGRADED, Health.SUSPENDED, Health.UNKNOWN)
_NOT_WATCHED: Final = "host_manager does not watch it"
_NO_HOSTS_HERE: Final = "no Host in the watched namespaces: they are in the namespace of the runtime-operator"


@dataclass(slots=True)
class V2Cache:
    """Views by ``namespace/name``. ``informers``: by kind, empty while the API group is not served.

    ``places``: the configured namespaces, empty for all namespaces. The Hosts may be in another one.
    """

    kube: Kube
    timings: V2Timings = field(default_factory=V2Timings)
    places: tuple[str, ...] = ()
    hosts: dict[str, HostView] = field(default_factory=dict)
    workloads: dict[str, WorkloadView] = field(default_factory=dict)
    replica_sets: dict[str, ReplicaSetView] = field(default_factory=dict)
    deployments: dict[str, DeploymentView] = field(default_factory=dict)
    artifacts: dict[str, ArtifactView] = field(default_factory=dict)
    informers: Mapping[Part, Sequence[Informer[object]]] = field(default_factory=dict)
    published: Published = field(default_factory=Published)
    streams: int = 1
    """Number of streams of this term: a stream can be re-created, or restored from a backup."""
    recalled: int = 0
    """Number of the stream that ``published`` was read from; 0 before the first one."""
    trust: Trust = field(default_factory=Trust)
    outages: Outages = field(default_factory=Outages)
    clock: OperatorClock = field(init=False)
    numbers: HostNumbers = field(init=False)
    heartbeats: CompleteHeartbeats | None = None
    """None if no user named the NATS of wasmCloud v2."""
    stored: dict[str, int] = field(default_factory=dict)
    """Number of events of this term by object that exists, part of the IDs of its next ones."""
    healths: dict[str, Counter[str]] = field(default_factory=dict)
    """Number of objects by kind and health in the last run; a kind that cannot be read is not in it."""
    working: float = -1.0
    """1 while the operator works, 0 while it does not, -1 while that is not known."""

    def __post_init__(self) -> None:
        self.clock = OperatorClock(self.timings.slack)
        self.numbers = HostNumbers(self.kube.telemetry)

    def clear(self) -> None:
        """Drop all views: the API group is not served any more."""
        for views in (self.hosts, self.workloads, self.replica_sets, self.deployments, self.artifacts, self.healths):
            views.clear()
        self.informers, self.trust, self.outages, self.working = {}, Trust(), Outages(), -1.0
        self.numbers.show({})

    def covers(self, namespace: str) -> bool:
        """Return whether a namespace is watched; "" is all. Of another one, a missing object proves nothing."""
        return not self.places or not namespace or namespace in self.places

    def watched(self) -> float:
        """Return the Unix time until which the watch of the Hosts has delivered all changes; -inf if it fails."""
        hosts = self.informers.get(Part.HOSTS, ())
        if not hosts or any(informer.failing is not None for informer in hosts):
            return -inf
        return self.kube.now() - max(informer.staleness() for informer in hosts)

    def unknown(self) -> frozenset[str]:
        """Return the configured namespaces of which a kind other than Host cannot be read."""
        every = (informer for part, kind in self.informers.items() if part is not Part.HOSTS for informer in kind)
        return frozenset(informer.namespace for informer in every if informer.namespace and not informer.known)

    def forget_published(self) -> None:
        """Have the published events re-read: another stream has other ones."""
        self.streams += 1

    def snapshot(self) -> Snapshot | None:
        """Return all views, None while the API group is not served."""
        if not self.informers:
            return None
        unread = {Part.SERVICES: _NOT_WATCHED, Part.SLICES: _NOT_WATCHED, Part.PODS: _NOT_WATCHED}
        unknown = self.unknown()
        for part, informers in self.informers.items():
            # Any namespace can have the Hosts; of other kinds, those of an unknown namespace are left out.
            enough = all if part is Part.HOSTS else any
            if not enough(informer.known for informer in informers):
                unread[part] = "not listed, or no permission"

        def known(views: dict[str, V]) -> list[V]:
            return [view for key, view in views.items() if key.partition("/")[0] not in unknown]

        if self.places and not self.hosts and not self.published.hosts:
            unread.setdefault(Part.HOSTS, _NO_HOSTS_HERE)
        return Snapshot(
            now=self.kube.now(),
            hosts=[self.clock.adjusted(host) for host in self.hosts.values()],
            workloads=known(self.workloads),
            replica_sets=known(self.replica_sets),
            deployments=known(self.deployments),
            artifacts=known(self.artifacts),
            unread=unread,
            messages=self._messages(),
            timings=self.timings,
        )

    def _messages(self) -> HostMessages | None:
        ids = frozenset(host.id for host in self.hosts.values())
        return self.heartbeats.messages(ids) if self.heartbeats is not None else None

    def export(self) -> Forget:
        """Export the objects by health and the state of the operator; return the function that ends the series."""
        reads = {(kind, health.value): partial(self._count, kind, health) for kind in KINDS for health in HEALTHS}
        telemetry = self.kube.telemetry
        return telemetry.metrics.wasmcloud_v2(telemetry.service, reads, lambda: self.working)

    def _count(self, kind: str, health: Health) -> float:
        return self.healths[kind][health] if kind in self.healths else nan
