"""The actions on a Node, each with its reason, and the snapshot that a decision depends on.

Pure data. Created by ``gather`` (snapshots) and ``decide`` (actions), carried out by ``apply``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from node_watcher.domain.marks import PatchOp
from trellis.events.envelope import FactData
from trellis.limits.breaker import Destruction
from trellis.provisioning.reasons import NODE_UPDATE_REFUSED
from trellis.provisioning.shims import ShimView
from trellis.provisioning.views import JobView, NodeView


class Reason(StrEnum):
    """Why an action is taken; also the reason of the Event on the Node."""

    PROVED = "ProvisionSucceeded"
    LABELS_RESTORED = "LabelsRestored"
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
class Said:
    """What the bus already heard of the Node that had this name: the mark that an event was said."""

    uid: str
    opted_in: bool | None = None
    ready: str | None = None
    complained: str | None = None
    missing: frozenset[str] = frozenset()
    """Shims of the node that are gone without having been uninstalled."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that a decision about one node name may depend on."""

    name: str
    node: NodeView | None
    job: JobView | None
    said: Said | None
    wanted: frozenset[str]
    """Names of the Shims that the node is to have; ``kwasm`` is the legacy installer image."""
    handlers: Mapping[str, str] = field(default_factory=dict)
    """By name, the runtime handlers of the Shims that the node is marked with, as far as they are known."""
    shims: tuple[ShimView, ...] = ()
    """The Shims that the node is to have."""
    deleting: frozenset[str] = frozenset()
    """Names of the Shims that still exist and were deleted by themselves: no circuit breaker holds what follows."""
    missing: frozenset[str] = frozenset()
    """Shims that the node has and that are gone, a short time ago, without having been uninstalled; also wanted."""
    unknown: bool = False
    """Whether Shims cannot be listed although something names them: nothing may be decided."""
    look_in: float | None = None
    """Seconds after which the node is to be looked at again although nothing changed."""


@dataclass(frozen=True, slots=True)
class Publish:
    """Publish an event, then remember ``then`` as what was said of this node name; None forgets it."""

    fact: FactData
    dedup: str
    then: Said | None


@dataclass(frozen=True, slots=True)
class PatchNode:
    """Patch the Node if it still is the one, and as, it was read: the operations test it."""

    node: NodeView
    ops: tuple[PatchOp, ...]
    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class RecordEvent:
    """Put an Event on the Node, then remember ``then`` (if given) as what was said."""

    uid: str
    warning: bool
    reason: Reason
    message: str
    then: Said | None = None


@dataclass(frozen=True, slots=True)
class Destroy:
    """Take these steps only if the breaker lets this node go; all of them or none."""

    target: Destruction
    steps: tuple[PatchNode | RecordEvent, ...]


Action = Publish | PatchNode | RecordEvent | Destroy
