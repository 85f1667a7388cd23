"""All that was read about wasmCloud v2 for one page or row, as one value.

Pure. In: views, messages, answers, and the reasons of what could not be read. Out: ``Snapshot``. Created by code that
reads; used by health and causes. Invariant: a part that is in ``unread`` is not known, and nothing may be concluded
from its absence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from trellis.v2.deployments import ArtifactView, DeploymentView, ReplicaSetView
from trellis.v2.host_messages import HostMessages
from trellis.v2.hosts import HostView
from trellis.v2.images import ImageAnswer, ImageKey
from trellis.v2.pods import HostPod
from trellis.v2.routes import RoutedService, RouteSlice
from trellis.v2.timings import V2Timings
from trellis.v2.workloads import WorkloadView


class Part(StrEnum):
    """A part of a snapshot: a kind by its plural."""

    HOSTS = "hosts"
    WORKLOADS = "workloads"
    REPLICA_SETS = "workloadreplicasets"
    DEPLOYMENTS = "workloaddeployments"
    ARTIFACTS = "artifacts"
    SERVICES = "services"
    SLICES = "endpointslices"
    PODS = "pods"
    """Only those of host groups."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The result of all reads. ``now``: Unix seconds by the clock of the API server.

    ``unread``: parts that are not known, with the reason; ``limited``: parts that are known in the namespace of the
    object only, and pods in those of Hosts, because this account cannot list all namespaces. ``messages``: None if no
    NATS was listened to. ``former``: Workloads as they were before listening. ``images``: only the images that
    registries were asked about.
    """

    now: float
    hosts: Sequence[HostView] = ()
    workloads: Sequence[WorkloadView] = ()
    replica_sets: Sequence[ReplicaSetView] = ()
    deployments: Sequence[DeploymentView] = ()
    artifacts: Sequence[ArtifactView] = ()
    services: Sequence[RoutedService] = ()
    slices: Sequence[RouteSlice] = ()
    pods: Sequence[HostPod] = ()
    unread: Mapping[Part, str] = field(default_factory=dict)
    limited: Mapping[Part, str] = field(default_factory=dict)
    messages: HostMessages | None = None
    former: Sequence[WorkloadView] = ()
    images: Mapping[ImageKey, ImageAnswer] = field(default_factory=dict)
    timings: V2Timings = field(default_factory=V2Timings)

    def knows(self, part: Part) -> bool:
        """Return whether a part is known, at least in the namespace of the object."""
        return part not in self.unread

    def knows_all(self, part: Part) -> bool:
        """Return whether a part is known in all namespaces."""
        return part not in self.unread and part not in self.limited
