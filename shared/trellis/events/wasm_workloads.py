"""Events about workloads: owners of pods of a Wasm RuntimeClass, published by ``provisioner``, which only reads them.

Pure values. A reason is one of ``trellis explain``. Key: namespace, kind and name of the owner; of a failure also the
reason. The noun differs from that of wasmCloud v2 (``workload``), because a type has one publisher.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from trellis.events.envelope import EventData


class WasmWorkloadEventData(EventData):
    """Common fields of the events about a workload."""

    noun: ClassVar[str] = "wasm_workload"

    namespace: str = Field(min_length=1, description="metadata.namespace of the owner")
    kind: str = Field(
        min_length=1,
        description="kind of the owner: Deployment, StatefulSet, DaemonSet, Job, CronJob, SpinApp, or another "
        "controller; Pod if the pod has none",
    )
    name: str = Field(min_length=1, description="metadata.name of the owner")
    uid: str = Field(min_length=1, description="metadata.uid of the owner")
    runtime_class: str = Field(min_length=1, description="spec.runtimeClassName of the pod")
    pod: str = Field(min_length=1, description="metadata.name of the pod whose change the event is about")
    pod_uid: str = Field(min_length=1, description="metadata.uid of this pod, whose creation starts the trace")
    node: str = Field(description="spec.nodeName of this pod, empty until it has a node")
    pods: int = Field(ge=1, description="number of the pods of the owner")

    def key(self) -> tuple[str, ...]:
        """Return namespace, kind and name of the owner."""
        return (self.namespace, self.kind, self.name)


class WasmWorkloadRunning(WasmWorkloadEventData):
    """All pods of a workload are ready or have completed, for the first time."""

    event_name: ClassVar[str] = "running"


class WasmWorkloadFailed(WasmWorkloadEventData):
    """Pods of a workload do not run, for one reason; published once per reason until the workload has recovered."""

    event_name: ClassVar[str] = "failed"

    pod: str = Field(description="metadata.name of a pod with this reason, empty if the API server refuses the pods")
    pod_uid: str = Field(
        description="metadata.uid of this pod, whose creation starts the trace; empty if the API server refuses the "
        "pods: the refusal starts the trace"
    )
    pods: int = Field(ge=0, description="number of the pods of the owner")
    reason: str = Field(min_length=1, description="cause in CamelCase, as `trellis explain` shows it: NoNodeWithLabel")
    message: str = Field(description="cause and resolution for users")
    failing: int = Field(
        ge=0, description="number of pods with this reason when it was detected, 0 if the API server refuses the pods"
    )

    def key(self) -> tuple[str, ...]:
        """Return namespace, kind and name of the owner, and the reason."""
        return (*super().key(), self.reason)


class WasmWorkloadRecovered(WasmWorkloadEventData):
    """All pods of a workload that had failed are ready or have completed."""

    event_name: ClassVar[str] = "recovered"

    reasons: tuple[str, ...] = Field(description="reasons of its failures since it last ran")
