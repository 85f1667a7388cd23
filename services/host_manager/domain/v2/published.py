"""The state that the published events describe.

In: events in the order of their publication, or the last one of each subject. Out: the state that ``decide`` compares
with a snapshot. Called by ``decide``, and by ``gather``, also after a restart. Invariant: an event that is
noted twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Final

from trellis.events.envelope import EventData
from trellis.events.wasmcloud_v2 import (
    ArtifactPublished,
    HeartbeatsDenied,
    HeartbeatsEventData,
    HeartbeatsLost,
    HeartbeatsRestored,
    OwnerKind,
    WasmHostEventData,
    WasmHostGone,
    WasmHostReady,
    WasmHostSilent,
    WorkloadDeploymentDegraded,
    WorkloadDeploymentEventData,
    WorkloadDeploymentReady,
    WorkloadDeploymentRolled,
    WorkloadFailed,
    WorkloadGone,
    WorkloadStarted,
)
from trellis.v2.snapshot import Snapshot

EVENTS: Final = (
    WorkloadDeploymentReady,
    WorkloadDeploymentDegraded,
    WorkloadDeploymentRolled,
    WorkloadStarted,
    WorkloadFailed,
    WorkloadGone,
    WasmHostReady,
    WasmHostSilent,
    WasmHostGone,
    ArtifactPublished,
)
"""All events about the objects of wasmCloud v2."""
OUTAGES: Final = (HeartbeatsLost, HeartbeatsDenied, HeartbeatsRestored)
"""All events about the heartbeats of all hosts."""


@dataclass(frozen=True, slots=True)
class DeploymentState:
    """A WorkloadDeployment as published. ``replicas``: None unless it is ready; ``reason``: "" unless it is degraded.

    ``replica_set``: the last one that was ready, "" if none was.
    """

    uid: str
    replicas: int | None = None
    reason: str = ""
    replica_set: str = ""


@dataclass(frozen=True, slots=True)
class Owner:
    """The object whose Workloads fail; a WorkloadReplicaSet or a Workload only if no WorkloadDeployment has them."""

    namespace: str
    kind: OwnerKind
    name: str
    uid: str


Began = HeartbeatsLost | HeartbeatsDenied
Failure = tuple[str, str]
"""Name of the WorkloadReplicaSet, and reason."""


@dataclass(slots=True)
class Published:
    """State by the published events; keys of objects are ``namespace/name``. ``hosts``: without those that are gone.

    ``failures``: until the owner is ready; ``outages``: those that have not ended, by ``scope/name``.
    """

    deployments: dict[str, DeploymentState] = field(default_factory=dict)
    workloads: dict[str, WorkloadStarted] = field(default_factory=dict)
    failures: dict[Owner, set[Failure]] = field(default_factory=dict)
    hosts: dict[str, WasmHostReady | WasmHostSilent] = field(default_factory=dict)
    artifacts: dict[str, ArtifactPublished] = field(default_factory=dict)
    outages: dict[str, Began] = field(default_factory=dict)

    def note(self, event: EventData) -> None:
        """Record an event that is published."""
        match event:
            case WorkloadDeploymentEventData():
                self._note_deployment(event)
            case WorkloadStarted():
                self.workloads[_key(event)] = event
                self._recovered(event)
            case WorkloadGone():
                started = self.workloads.get(_key(event))
                if started is not None and started.uid == event.uid:
                    del self.workloads[_key(event)]
            case WorkloadFailed():
                owner = Owner(event.namespace, event.owner_kind, event.owner, event.uid)
                self.failures.setdefault(owner, set()).add((event.replica_set, event.reason))
            case WasmHostEventData():
                self._note_host(event)
            case ArtifactPublished():
                self.artifacts[_key(event)] = event
            case HeartbeatsEventData():
                self._note_outage(event)

    def keep(
        self,
        deployments: Container[str],
        artifacts: Container[str],
        owners: Mapping[str, Container[str]],
        unknown: Container[str],
    ) -> None:
        """Drop the records of deleted objects whose deletion has no event; the arguments are UIDs of existing ones.

        ``owners``: by UID of an owner the names of the WorkloadReplicaSets in its namespace. The one of a failure can
        be deleted before the owner. ``unknown``: namespaces whose records are kept.
        """
        self.deployments = {
            key: item
            for key, item in self.deployments.items()
            if item.uid in deployments or key.partition("/")[0] in unknown
        }
        self.artifacts = {
            key: item for key, item in self.artifacts.items() if item.uid in artifacts or item.namespace in unknown
        }
        self.failures = {
            owner: {failure for failure in found if not failure[0] or failure[0] in owners[owner.uid]}
            if owner.uid in owners
            else found
            for owner, found in self.failures.items()
            if owner.uid in owners or owner.namespace in unknown
        }

    def _note_deployment(self, event: WorkloadDeploymentEventData) -> None:
        key = _key(event)
        former = self.deployments.get(key)
        if former is None or former.uid != event.uid:
            former = DeploymentState(event.uid)
        match event:
            case WorkloadDeploymentReady():
                self.deployments[key] = DeploymentState(event.uid, event.replicas, "", event.replica_set)
                self.failures.pop(Owner(event.namespace, "WorkloadDeployment", event.name, event.uid), None)
            case WorkloadDeploymentRolled():
                self.deployments[key] = DeploymentState(event.uid, former.replicas, former.reason, event.replica_set)
            case WorkloadDeploymentDegraded():
                self.deployments[key] = DeploymentState(event.uid, None, event.reason, former.replica_set)

    def _note_host(self, event: WasmHostEventData) -> None:
        key = _key(event)
        match event:
            case WasmHostReady() | WasmHostSilent():
                self.hosts[key] = event
            case WasmHostGone() if key in self.hosts and self.hosts[key].uid == event.uid:
                del self.hosts[key]

    def _note_outage(self, event: HeartbeatsEventData) -> None:
        match event:
            case HeartbeatsLost() | HeartbeatsDenied():
                self.outages[_key(event)] = event
            case HeartbeatsRestored():
                self.outages.pop(_key(event), None)

    def _recovered(self, event: WorkloadStarted) -> None:
        for owner in [item for item in self.failures if ends_failures(event, item)]:
            del self.failures[owner]


def ends_failures(event: WorkloadStarted, owner: Owner) -> bool:
    """Return whether a start ends the failures of an owner: of one without an event of its own."""
    kind = "WorkloadReplicaSet" if event.replica_set else "Workload"
    started = (event.namespace, kind, event.replica_set or event.name)
    return not event.deployment and (owner.namespace, owner.kind, owner.name) == started


def _key(event: EventData) -> str:
    return "/".join(event.key())


def namespace_of(event: EventData) -> str:
    """Return the namespace that an event is about, "" for all of them."""
    if isinstance(event, HeartbeatsEventData):
        return event.name if event.scope == "Namespace" else ""
    return event.key()[0]


def objects_of(snapshot: Snapshot) -> set[str]:
    """Return the objects that events can be about, as ``object_of`` names them."""
    return {
        *(f"WorkloadDeployment {item.meta.key}" for item in snapshot.deployments),
        *(f"WorkloadReplicaSet {item.meta.key}" for item in snapshot.replica_sets),
        *(f"Workload {item.meta.key}" for item in snapshot.workloads),
        *(f"Host {item.meta.key}" for item in snapshot.hosts),
        *(f"Artifact {item.meta.key}" for item in snapshot.artifacts),
    }


def object_of(event: EventData) -> str:
    """Return the object whose change an event belongs to: kind, namespace and name; the events of it have one trace.

    Heartbeats of all hosts have their scope in place of the kind.
    """
    match event:
        case WorkloadFailed():
            return f"{event.owner_kind} {event.namespace}/{event.owner}"
        case WorkloadStarted() | WorkloadGone() if event.deployment:
            return f"WorkloadDeployment {event.namespace}/{event.deployment}"
        case WorkloadDeploymentEventData():
            return f"WorkloadDeployment {_key(event)}"
        case WasmHostEventData():
            return f"Host {_key(event)}"
        case HeartbeatsEventData():
            return f"{event.scope} {event.name}"
        case ArtifactPublished():
            return f"Artifact {_key(event)}"
        case _:
            return f"Workload {_key(event)}"
