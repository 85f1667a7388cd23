"""Events about the objects of wasmCloud v2, published by ``host_manager``, which only reads these objects.

Pure values. A reason is one of ``trellis explain``. Key: namespace and name; of failed Workloads the owner and the
reason, because wasmCloud replaces a Workload that does not run each minute, under another name. Missing heartbeats of
all hosts are events about the connection to NATS or about the namespace of the Hosts, and not about each Host.
"""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar, Final, Literal

from pydantic import Field

from trellis.events.envelope import EventData

OwnerKind = Literal["WorkloadDeployment", "WorkloadReplicaSet", "Workload"]
Scope = Literal["Nats", "Namespace"]
_HOST: Final = "metadata.name of the Host, as in events about it, empty if it is not known"


class WorkloadDeploymentEventData(EventData):
    """Common fields of the events about a WorkloadDeployment."""

    noun: ClassVar[str] = "workload_deployment"

    namespace: str = Field(min_length=1, description="metadata.namespace of the WorkloadDeployment")
    name: str = Field(min_length=1, description="metadata.name of the WorkloadDeployment")
    uid: str = Field(min_length=1, description="metadata.uid of the WorkloadDeployment")
    generation: int = Field(ge=0, description="metadata.generation of the WorkloadDeployment")
    replicas: int = Field(ge=0, description="spec.replicas")
    replica_set: str = Field(description="name of its current WorkloadReplicaSet, empty if there is none")

    def key(self) -> tuple[str, ...]:
        """Return namespace and name of the WorkloadDeployment."""
        return (self.namespace, self.name)


class WorkloadDeploymentReady(WorkloadDeploymentEventData):
    """All replicas of a WorkloadDeployment run; published again if their number changes."""

    event_name: ClassVar[str] = "ready"


class WorkloadDeploymentDegraded(WorkloadDeploymentEventData):
    """A WorkloadDeployment has a problem; published again for each further reason, until it is ready."""

    event_name: ClassVar[str] = "degraded"

    reason: str = Field(min_length=1, description="cause in CamelCase, as `trellis explain` shows it: ImageNotFound")
    message: str = Field(description="cause and resolution for users")


class WorkloadDeploymentRolled(WorkloadDeploymentEventData):
    """All replicas of a WorkloadDeployment run with a new template."""

    event_name: ClassVar[str] = "rolled"

    former: str = Field(min_length=1, description="name of the WorkloadReplicaSet that the current one replaced")


class WorkloadEventData(EventData):
    """Common fields of the events about a Workload that ran."""

    noun: ClassVar[str] = "workload"

    namespace: str = Field(min_length=1, description="metadata.namespace of the Workload")
    name: str = Field(min_length=1, description="metadata.name of the Workload")
    uid: str = Field(min_length=1, description="metadata.uid of the Workload, which is its ID on the host")
    deployment: str = Field(description="name of its WorkloadDeployment, empty if it has none")

    def key(self) -> tuple[str, ...]:
        """Return namespace and name of the Workload."""
        return (self.namespace, self.name)


class WorkloadStarted(WorkloadEventData):
    """A Workload runs on a host."""

    event_name: ClassVar[str] = "started"

    replica_set: str = Field(description="name of its WorkloadReplicaSet, empty if it has none")
    host_id: str = Field(description="status.hostId")
    host_name: str = Field(default="", description=_HOST)


class WorkloadGone(WorkloadEventData):
    """A Workload that ran was deleted."""

    event_name: ClassVar[str] = "gone"


class WorkloadFailed(EventData):
    """Workloads of an owner do not run, for one reason.

    Published once per reason until the owner is ready or its WorkloadReplicaSet changes.
    """

    noun: ClassVar[str] = "workload"
    event_name: ClassVar[str] = "failed"

    namespace: str = Field(min_length=1, description="metadata.namespace of the owner")
    owner_kind: OwnerKind = Field(
        description="WorkloadDeployment; WorkloadReplicaSet or Workload if they have no such owner"
    )
    owner: str = Field(min_length=1, description="metadata.name of the owner")
    uid: str = Field(min_length=1, description="metadata.uid of the owner")
    replica_set: str = Field(description="name of the WorkloadReplicaSet of the Workloads, empty if there is none")
    reason: str = Field(min_length=1, description="cause in CamelCase, as `trellis explain` shows it: ImageNotFound")
    message: str = Field(description="cause and resolution for users")
    host_id: str = Field(description="status.hostId of one of the Workloads, empty if it has no host")
    host_name: str = Field(default="", description=_HOST)
    workloads: int = Field(ge=1, description="number of Workloads with this reason when it was detected")

    def key(self) -> tuple[str, ...]:
        """Return namespace, kind and name of the owner, and the reason."""
        return (self.namespace, self.owner_kind, self.owner, self.reason)


class WasmHostEventData(EventData):
    """Common fields of the events about a Host."""

    noun: ClassVar[str] = "wasm_host"

    namespace: str = Field(min_length=1, description="metadata.namespace of the Host")
    name: str = Field(min_length=1, description="metadata.name of the Host, the friendly name of the process")
    uid: str = Field(min_length=1, description="metadata.uid of the Host")
    host_id: str = Field(description="hostId, which changes with each start of the process")

    def key(self) -> tuple[str, ...]:
        """Return namespace and name of the Host."""
        return (self.namespace, self.name)


class WasmHostReady(WasmHostEventData):
    """A host reports to the runtime-operator, and Workloads can be placed on it."""

    event_name: ClassVar[str] = "ready"

    address: str = Field(description="hostname: the address of its workloads")
    port: int | None = Field(default=None, description="httpPort")
    environment: str = Field(description="environment, empty if it has none")
    labels: dict[str, str] = Field(default_factory=dict, description="labels, which hostSelector matches")


class WasmHostSilent(WasmHostEventData):
    """A host sends no heartbeat, or is not Ready, while other hosts report; its Workloads may still serve."""

    event_name: ClassVar[str] = "silent"

    reason: str = Field(min_length=1, description="HeartbeatMissing or HostNotReady, as `trellis explain` shows it")
    message: str = Field(description="cause and resolution for users")


class WasmHostGone(WasmHostEventData):
    """A Host was deleted, with its Workloads."""

    event_name: ClassVar[str] = "gone"


class HeartbeatsEventData(EventData):
    """Common fields of the events about the heartbeats of all hosts."""

    noun: ClassVar[str] = "heartbeats"

    scope: Scope = Field(
        description="Nats: the reception from the NATS of wasmCloud v2 (TRELLIS_V2_NATS); Namespace: those that the "
        "runtime-operator records in the Hosts of a namespace"
    )
    name: str = Field(min_length=1, description="of Nats the receiving service, host_manager; else the namespace")
    since: datetime = Field(description="begin of the outage, as far as it is known")
    server: str = Field(description="URL of the NATS without passwords, empty for a namespace")
    hosts: int | None = Field(description="number of Hosts concerned, null if the Hosts cannot be read")

    def key(self) -> tuple[str, ...]:
        """Return scope and name."""
        return (self.scope, self.name)


class HeartbeatsLost(HeartbeatsEventData):
    """The heartbeats of all hosts are missing: one event for the outage, and none for each host."""

    event_name: ClassVar[str] = "lost"

    reason: str = Field(
        min_length=1,
        description="of Nats ConnectionLost or HeartbeatsNotReceived; of a namespace as `trellis explain` shows it: "
        "HeartbeatsStopped, NatsUnreachable or OperatorUnavailable",
    )
    message: str = Field(description="cause and resolution for users")


class HeartbeatsDenied(HeartbeatsEventData):
    """NATS denies the subscription of heartbeats to the user of the service; hosts are not affected."""

    event_name: ClassVar[str] = "denied"

    reason: str = Field(min_length=1, description="SubscriptionDenied")
    message: str = Field(description="cause and resolution for users")


class HeartbeatsRestored(HeartbeatsEventData):
    """Heartbeats arrive again after they were lost or denied."""

    event_name: ClassVar[str] = "restored"


class ArtifactPublished(EventData):
    """WorkloadDeployments can use an Artifact; published again if its image changes."""

    noun: ClassVar[str] = "artifact"
    event_name: ClassVar[str] = "published"

    namespace: str = Field(min_length=1, description="metadata.namespace of the Artifact")
    name: str = Field(min_length=1, description="metadata.name of the Artifact")
    uid: str = Field(min_length=1, description="metadata.uid of the Artifact")
    generation: int = Field(ge=0, description="metadata.generation of the Artifact")
    image: str = Field(description="status.artifactUrl: the image that WorkloadDeployments use")

    def key(self) -> tuple[str, ...]:
        """Return namespace and name of the Artifact."""
        return (self.namespace, self.name)
