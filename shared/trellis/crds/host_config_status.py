"""The status of a WasmCloudHostConfig: what wasmcloud-operator wrote there, and what Kubernetes and the lattice report.

Written by ``host_manager`` alone. Two fields are wasmcloud-operator's, and required as there: ``apps``, ``app_count``.
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
    """Its deployed version."""


class Host(ApiModel):
    """One pod, and the host in it as the lattice reports it."""

    pod: str
    """Name of the pod."""
    node: str | None = None
    """Node that it is on."""
    ip: str | None = None
    """Its address."""
    ready: bool
    """Whether Kubernetes counts it as ready."""
    reported: Literal["Yes", "No", "Unknown"]
    """Whether the host is heard in the lattice; Unknown while the lattice cannot be listened to."""
    id: str | None = None
    """Identity of the host in the lattice."""
    version: str | None = None
    """Version that the host reports."""
    started_at: datetime | None = None
    """When it started: now less its uptime."""
    labels: dict[str, str] | None = None
    """Labels that it reports."""


class Unit(ApiModel):
    """A component or provider that runs on a host."""

    id: str
    """Its identity in the lattice."""
    image: str | None = None
    """Where it came from."""


class LatticeHost(ApiModel):
    """A host of the lattice, here or in another cluster, as it reports itself."""

    id: str
    """Identity of the host in the lattice."""
    name: str | None = None
    """Its friendly name."""
    version: str | None = None
    """Version that it reports."""
    started_at: datetime | None = None
    """When it started: now less its uptime."""
    pod: str | None = None
    """Name of its pod, in whichever cluster that is, if it says so."""
    labels: dict[str, str] | None = None
    """Labels that it reports."""
    components: Annotated[list[Unit], Field(max_length=100)] | None = None
    """Components that run on it."""
    providers: Annotated[list[Unit], Field(max_length=100)] | None = None
    """Providers that run on it."""
    applications: Annotated[list[str], Field(max_length=100)] | None = None
    """Applications that those belong to."""


class WasmCloudHostConfigStatus(ApiModel):
    """What hosts there are."""

    conditions: Conditions | None = None
    """Ready, Reconciling and Stalled as kstatus defines them; Available, Progressing and Degraded;
    others while they apply."""
    observed_generation: int | None = Field(default=None, ge=0, json_schema_extra={"format": "int64"})
    """The generation that this status is about."""
    apps: list[App]
    """Applications of the lattice."""
    app_count: Uint32 = Field(alias="app_count")
    """How many there are."""
    workload: Literal["Deployment", "DaemonSet"] | None = None
    """What runs the pods."""
    replicas: Count | None = None
    """Pods there are."""
    desired_replicas: Count | None = None
    """Pods there are to be."""
    ready_replicas: Count | None = None
    """Pods that are ready."""
    updated_replicas: Count | None = None
    """Pods made from the newest template."""
    selector: str | None = None
    """Label selector of the pods, for the scale subresource."""
    template_revision: Count | None = None
    """Which of our templates the pods are made from; 1 is wasmcloud-operator's."""
    hosts: Annotated[list[Host], Field(max_length=2000)] | None = None
    """Its pods, with what the lattice reports of each host."""
    lattice_hosts: Annotated[list[LatticeHost], Field(max_length=500)] | None = None
    """Every host of the lattice."""
