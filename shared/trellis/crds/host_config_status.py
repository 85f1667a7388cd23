"""The status of a WasmCloudHostConfig: fields of wasmcloud-operator, and the state in Kubernetes and in the lattice.

Written by ``host_manager`` alone. Two fields are those of wasmcloud-operator, required as there: ``apps``,
``app_count``.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from trellis.crds.api import ApiModel, Conditions, Uint32

Count = Annotated[int, Field(ge=0, json_schema_extra={"format": "int32"})]


class App(ApiModel):
    """An application of the lattice."""

    name: str
    """Name of the application."""
    version: str
    """Deployed version of the application."""


class Host(ApiModel):
    """Pod, and its host as the lattice reports it."""

    pod: str
    """Name of the pod."""
    node: str | None = None
    """Node of the pod."""
    ip: str | None = None
    """IP address of the pod."""
    ready: bool
    """True if the pod is ready."""
    reported: Literal["Yes", "No", "Unknown"]
    """Yes if the lattice reports the host, No if its heartbeat is missing, Unknown while the lattice is unreachable."""
    id: str | None = None
    """Identity of the host in the lattice."""
    version: str | None = None
    """Version that the host reports."""
    started_at: datetime | None = None
    """Start time of the host, computed from its uptime."""
    labels: dict[str, str] | None = None
    """Labels that the host reports."""


class Unit(ApiModel):
    """A component or provider that runs on a host."""

    id: str
    """Identity of the component or provider in the lattice."""
    image: str | None = None
    """Reference of its image."""


class LatticeHost(ApiModel):
    """Host of the lattice, in this or another cluster."""

    id: str
    """Identity of the host in the lattice."""
    name: str | None = None
    """Friendly name of the host."""
    version: str | None = None
    """Version that the host reports."""
    started_at: datetime | None = None
    """Start time of the host, computed from its uptime."""
    pod: str | None = None
    """Name of the pod of the host, which may be in another cluster. Unset if the host does not report it."""
    labels: dict[str, str] | None = None
    """Labels that the host reports."""
    components: Annotated[list[Unit], Field(max_length=100)] | None = None
    """Components that run on the host, at most 100."""
    providers: Annotated[list[Unit], Field(max_length=100)] | None = None
    """Providers that run on the host, at most 100."""
    applications: Annotated[list[str], Field(max_length=100)] | None = None
    """Applications of these components and providers, at most 100."""


class WasmCloudHostConfigStatus(ApiModel):
    """Observed state of the host group and its hosts."""

    conditions: Conditions | None = None
    """Ready, Reconciling and Stalled as kstatus defines them; Available, Progressing and Degraded;
    further ones while they apply."""
    observed_generation: int | None = Field(default=None, ge=0, json_schema_extra={"format": "int64"})
    """Generation of the spec that this status describes."""
    apps: list[App]
    """Deployed applications of the lattice."""
    app_count: Uint32 = Field(alias="app_count")
    """Number of deployed applications of the lattice."""
    workload: Literal["Deployment", "DaemonSet"] | None = None
    """Kind of the workload that runs the pods."""
    replicas: Count | None = None
    """Number of pods."""
    desired_replicas: Count | None = None
    """Number of desired pods."""
    ready_replicas: Count | None = None
    """Number of ready pods."""
    updated_replicas: Count | None = None
    """Number of pods of the current template."""
    selector: str | None = None
    """Label selector of the pods, for the scale subresource."""
    template_revision: Count | None = None
    """Revision of Trellis' pod template that the pods have; 1 is the template of wasmcloud-operator."""
    hosts: Annotated[list[Host], Field(max_length=2000)] | None = None
    """Pods of the host group, with the host that the lattice reports for each."""
    lattice_hosts: Annotated[list[LatticeHost], Field(max_length=500)] | None = None
    """Hosts of the lattice, at most 500."""
