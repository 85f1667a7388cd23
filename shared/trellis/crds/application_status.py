"""The status of an Application: how it is in its lattice, and what both sides last had in common.

Written by ``application_manager`` alone. Source of the six phases and of what is said of each scaler: wadm 0.21's
``wadm.status.<lattice>.<application>``, word for word.
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
    """What Kubernetes and wadm last had in common: the side that differs from it is the one that changed."""

    spec_digest: str
    """Digest of the manifest that both had."""
    wadm_version: str
    """wadm's version that the object shows."""
    deployed: bool = False
    """Whether that version was deployed."""
    newest_version: str = ""
    """wadm's newest version then, which need not be the one that is deployed."""
    undeploy: bool = False
    """Whether the object asked then for it not to run."""
    serial: Number = 0
    """How many times both sides had become equal before."""
    bucket: str = ""
    """Which bucket of wadm's it was stored in; one that was lost and is made again is another."""
    kv_revision: Number = 0
    """Revision of wadm's entry in that bucket."""
    time: datetime
    """When both had it."""


class Win(ApiModel):
    """A change that one side made and the other was given."""

    side: Side
    """Whose change it was."""
    time: datetime
    """When the other side was given it."""


class Overridden(ApiModel):
    """The change that lost because both sides had changed."""

    side: Side
    """Whose change lost."""
    version: str
    """wadm's version in which it can be read."""


class Version(ApiModel):
    """A version of the application that wadm keeps."""

    version: str
    """Its name."""
    deployed: bool
    """Whether it is the one that is deployed."""


class Scaler(ApiModel):
    """One of wadm's scalers, in wadm's own words."""

    kind: str
    """SpreadScaler, DaemonScaler, LinkScaler and others."""
    name: str
    """What it scales or links."""
    status: str
    """Its status, as wadm spells it."""
    message: str = ""
    """wadm's message, if it has one."""


class ApplicationStatus(ApiModel):
    """How the application is in its lattice."""

    conditions: Conditions | None = None
    """Ready, Reconciling and Stalled as kstatus defines them; Synced; others while they apply."""
    observed_generation: int | None = Field(default=None, ge=0, json_schema_extra={"format": "int64"})
    """The generation that this status is about."""
    phase: Phase | None = None
    """What wadm says of the whole application."""
    message: str | None = None
    """wadm's message about the whole application."""
    lattice: str | None = None
    """The lattice that it belongs to."""
    deployed_version: str | None = None
    """The version that is deployed; absent if none is."""
    versions: Annotated[list[Version], Field(max_length=1000)] | None = None
    """The versions that wadm keeps, the oldest first; of more than 1,000, or than there is room for, the newest."""
    scalers: Annotated[list[Scaler], Field(max_length=4000)] | None = None
    """What wadm says of each of its scalers; of those that there is no room for the ones that are deployed are not
    here."""
    scalers_left_out: int | None = Field(default=None, ge=0, json_schema_extra={"format": "int64"})
    """How many of them are not here, as there is no room in an object; absent if all are."""
    synced: Synced | None = None
    """What both sides last had."""
    wins: Annotated[list[Win], Field(max_length=4)] | None = None
    """The last changes, the oldest first: three of alternating sides within ten minutes are a contest."""
    overridden: Overridden | None = None
    """The change that lost when both sides had changed."""
