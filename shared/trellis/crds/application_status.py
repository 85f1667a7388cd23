"""The status of an Application: its state in the lattice, and the last synchronized state of both sides.

Written by ``application_manager`` alone. Source of the six phases and of the status of each scaler, both unchanged:
``wadm.status.<lattice>.<application>`` of wadm 0.21.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from trellis.crds.api import ApiModel, Conditions

Phase = Literal["Deployed", "Reconciling", "Failed", "Undeployed", "Waiting", "Unhealthy"]
Side = Literal["Kubernetes", "wadm"]
Number = Annotated[int, Field(ge=0, json_schema_extra={"format": "int64"})]


class Synced(ApiModel):
    """The last synchronized state of Kubernetes and wadm: a side that differs from it has changed."""

    spec_digest: str
    """Digest of the manifest that both sides had."""
    wadm_version: str
    """Version in wadm that the object shows."""
    deployed: bool = False
    """True if that version was deployed. Default: false."""
    newest_version: str = ""
    """Newest version in wadm at that time, which may differ from the deployed one."""
    undeploy: bool = False
    """True if the object requested that the application does not run. Default: false."""
    serial: Number = 0
    """Number of earlier synchronizations."""
    bucket: str = ""
    """Identity of wadm's bucket that stored the application; a re-created bucket has another."""
    kv_revision: Number = 0
    """Revision of the application's entry in that bucket."""
    time: datetime
    """Time of the synchronization."""


class Win(ApiModel):
    """Change that one side made and the other received."""

    side: Side
    """Side that made the change."""
    time: datetime
    """Time at which the other side received the change."""


class Overridden(ApiModel):
    """The change that lost because both sides had changed."""

    side: Side
    """Side whose change was overridden."""
    version: str
    """Version in wadm that contains the overridden change."""


class Version(ApiModel):
    """Version of the application that wadm stores."""

    version: str
    """Name of the version."""
    deployed: bool
    """True for the deployed version."""


class Scaler(ApiModel):
    """Scaler of wadm, with its status as wadm reports it."""

    kind: str
    """Kind of the scaler, such as SpreadScaler, DaemonScaler or LinkScaler."""
    name: str
    """Name of the component or link."""
    status: str
    """Status of the scaler, as wadm reports it."""
    message: str = ""
    """Message of wadm about the scaler. Default: empty."""


class ApplicationStatus(ApiModel):
    """State of the application in its lattice."""

    conditions: Conditions | None = None
    """Ready, Reconciling and Stalled as kstatus defines them; Synced; further ones while they apply."""
    observed_generation: int | None = Field(default=None, ge=0, json_schema_extra={"format": "int64"})
    """Generation of the spec that this status describes."""
    phase: Phase | None = None
    """Phase of the application, derived from wadm's status."""
    message: str | None = None
    """Message of wadm about the application."""
    lattice: str | None = None
    """Lattice of the application."""
    deployed_version: str | None = None
    """Deployed version. Unset if no version is deployed."""
    versions: Annotated[list[Version], Field(max_length=1000)] | None = None
    """Versions that wadm stores, the oldest first. If they do not fit, the newest are listed, at most 1,000."""
    scalers: Annotated[list[Scaler], Field(max_length=4000)] | None = None
    """Status of each scaler in wadm. If they do not fit, deployed scalers are omitted."""
    scalers_left_out: int | None = Field(default=None, ge=0, json_schema_extra={"format": "int64"})
    """Number of omitted scalers. Unset if all are listed."""
    synced: Synced | None = None
    """State at the last synchronization of Kubernetes and wadm."""
    wins: Annotated[list[Win], Field(max_length=4)] | None = None
    """Latest changes, the oldest first. Three by alternating sides within ten minutes set the condition Contended."""
    overridden: Overridden | None = None
    """Change that was overridden because both sides had changed."""
