"""Reads and writes the status of a Shim.

Pure. In: the object as the API server returns it. Out: counts and conditions, and back. Written by ``provisioner``
only, read by code that shows a rollout. Invariant: a missing field reads as never written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from trellis.provisioning.shims import Refusal

Manifest = dict[str, Any]
OTHER_CONTROLLER: Final = "OtherControllerActive"
"""Type of the condition: another controller manages the Shim or its nodes."""

NODES_SKIPPED: Final = "NodesSkipped"
"""Type of the condition: some of its nodes are skipped by the installer; they are not counted."""


class Reason(StrEnum):
    """Reason of a condition or an action."""

    ALL_READY = "AllNodesReady"
    NOT_ALL_READY = "NodesNotReady"
    NO_NODES = "NoNodes"
    UPDATED = "Updated"
    UPDATING = "Updating"
    ROLLOUT_COMPLETE = "RolloutComplete"
    REMOVING = "Removing"
    PAUSED = "Paused"
    HALTED = "RolloutHalted"
    FAILING = "NodesFailing"
    WAITING_FOR_PODS = "WaitingForPods"
    WORKLOAD_NOT_READY = "WorkloadNotReady"
    WORKLOADS_UNKNOWN = "WorkloadsUnknown"
    DRAIN_BLOCKED = "DrainBlocked"
    HEALTHY = "Healthy"
    RUNTIME_CLASS_CONFLICT = "RuntimeClassConflict"
    RUNTIME_CLASS_REFUSED = "RuntimeClassRefused"
    RUNTIME_CLASS_RESTORED = "RuntimeClassRestored"
    LEDGER_REFUSED = "LedgerRefused"
    IN_USE = "RuntimeInUse"
    MASS_DELETION = "MassDeletion"
    UNREACHABLE_LEFT = "UnreachableNodesLeft"


BLOCKING: Final = frozenset(
    {
        *(refusal.value for refusal in Refusal),
        Reason.RUNTIME_CLASS_CONFLICT.value,
        Reason.MASS_DELETION.value,
    }
)
"""Reasons of Degraded that no retry changes: a user has to change the spec or the cluster."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One current or desired condition of the status; ``since`` is its lastTransitionTime."""

    type: str
    status: str
    reason: str
    message: str
    since: str = ""
    observed_generation: int = 0


@dataclass(frozen=True, slots=True)
class Counts:
    """The numbers of a status."""

    nodes: int = 0
    ready: int = 0
    updated: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class Status:
    """The current or desired status of a Shim. ``digest``: version that is rolled out, "" without nodes."""

    counts: Counts = Counts()
    conditions: tuple[Condition, ...] = ()
    observed_generation: int = 0
    digest: str = ""


def make_status(status: Status) -> Manifest:
    """Return the status of a Shim for a merge patch."""
    return {
        "observedGeneration": status.observed_generation,
        "nodes": status.counts.nodes,
        "nodesReady": status.counts.ready,
        "nodesUpdated": status.counts.updated,
        "nodesFailed": status.counts.failed,
        "digest": status.digest or None,  # a merge patch: None removes the field
        "conditions": [
            {
                "type": condition.type,
                "status": condition.status,
                "reason": condition.reason,
                "message": condition.message,
                "lastTransitionTime": condition.since,
                "observedGeneration": condition.observed_generation,
            }
            for condition in status.conditions
        ],
    }


def read_status(manifest: Manifest) -> Status:
    """Return the status of a Shim from the API server; missing fields read as never written."""
    status: Mapping[str, Any] = manifest.get("status") or {}
    numbers = (status.get(name) or 0 for name in ("nodes", "nodesReady", "nodesUpdated", "nodesFailed"))
    conditions = tuple(
        Condition(
            type=str(item.get("type", "")),
            status=str(item.get("status", "")),
            reason=str(item.get("reason", "")),
            message=str(item.get("message", "")),
            since=str(item.get("lastTransitionTime", "")),
            observed_generation=int(item.get("observedGeneration") or 0),
        )
        for item in status.get("conditions") or ()
    )
    generation = int(status.get("observedGeneration") or 0)
    return Status(Counts(*numbers), conditions, generation, str(status.get("digest") or ""))
