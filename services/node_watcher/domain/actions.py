"""The actions on a Node, each with its reason, and the snapshot that a decision depends on.

Pure data. Created by ``gather`` (snapshots) and ``decide`` (actions), carried out by ``apply``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from node_watcher.domain.node_patch import PatchOp
from trellis.events.envelope import EventData
from trellis.limits.breaker import Deletion
from trellis.provisioning.reasons import NODE_UPDATE_REFUSED
from trellis.provisioning.shims import ShimView
from trellis.provisioning.views import JobView, NodeView


class Reason(StrEnum):
    """Reason of an action and of its Event on the Node."""

    PROVISION_SUCCEEDED = "ProvisionSucceeded"
    LABELS_RESTORED = "LabelsRestored"
    DRAINED = "LabelRemovedForDrain"
    FAILED = "ProvisionFailed"
    OPTED_OUT = "OptedOut"
    REMOVED = "RuntimeRemoved"
    REPLACED = "NodeReplaced"
    INVALID_ANNOTATION = "InvalidAnnotation"
    RUNTIME_LEFT = "RuntimeLeftInPlace"
    HANDLER_VANISHED = "HandlerVanished"
    STARTUP_TAINT_REMOVED = "StartupTaintRemoved"
    SHIM_MISSING = "ShimMissing"
    UPDATE_REFUSED = NODE_UPDATE_REFUSED


@dataclass(frozen=True, slots=True)
class PublishedState:
    """Published state of the Node of a name; an event that it contains is not published twice."""

    uid: str
    opted_in: bool | None = None
    ready: str | None = None
    complained: str | None = None
    missing: frozenset[str] = frozenset()
    """Shims of the node that no longer exist but were not uninstalled."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Input of a decision about one node name."""

    name: str
    node: NodeView | None
    job: JobView | None
    published: PublishedState | None
    wanted: frozenset[str]
    """Names of the target Shims of the node; ``kwasm`` is the legacy installer image."""
    handlers: Mapping[str, str] = field(default_factory=dict)
    """Runtime handlers, as far as known, of the Shims that the node is marked with, by name."""
    shims: tuple[ShimView, ...] = ()
    """The target Shims of the node."""
    deleting: frozenset[str] = frozenset()
    """Names of deleted Shims that still exist and are not a mass deletion: the circuit breaker is not applied."""
    missing: frozenset[str] = frozenset()
    """Shims of the node that ceased to exist recently but were not uninstalled; also in ``wanted``."""
    unknown: bool = False
    """True if Shims cannot be listed although something names them; no decision is allowed then."""
    look_in: float | None = None
    """Seconds until the node is reconciled again without a change."""
    drained: frozenset[str] = frozenset()
    """Target Shims that a rollout changes on the node, and for which no pod may be scheduled there meanwhile."""


@dataclass(frozen=True, slots=True)
class Publish:
    """Publish an event, then store ``then`` as the published state of this node name; None drops it."""

    event: EventData
    dedup: str
    then: PublishedState | None


@dataclass(frozen=True, slots=True)
class PatchNode:
    """Patch the Node; the operations test that it is unchanged since it was read."""

    node: NodeView
    ops: tuple[PatchOp, ...]
    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class RecordEvent:
    """Record an Event on the Node, then store ``then`` (if given) as the published state."""

    uid: str
    warning: bool
    reason: Reason
    message: str
    then: PublishedState | None = None


@dataclass(frozen=True, slots=True)
class GuardedDeletion:
    """Apply these steps, all or none, only with permission of the circuit breaker for this node."""

    target: Deletion
    steps: tuple[PatchNode | RecordEvent, ...]


Action = Publish | PatchNode | RecordEvent | GuardedDeletion
