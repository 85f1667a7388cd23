"""The actions on one node, each with its reason, and the snapshot that a decision depends on.

Pure data. Created by ``gather`` (snapshots) and ``decide`` (actions), carried out by ``apply``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from provisioner.domain.canary import Canary, CanaryPod
from provisioner.domain.resources import Task
from provisioner.domain.tasks import Former
from provisioner.timings import NodeTimings
from trellis.crds.shim import RemovalPolicy
from trellis.events.envelope import EventData
from trellis.limits.breaker import Deletion
from trellis.provisioning.installer_pods import InstallerState
from trellis.provisioning.ledger import Entry
from trellis.provisioning.other_controllers import Controller
from trellis.provisioning.reasons import Reason
from trellis.provisioning.views import JobView, NodeView, Target, VerifiedBy


@dataclass(frozen=True, slots=True)
class User:
    """A pod that runs with a handler to uninstall, or to drain. ``controller``: kind of its controller, "" if none.

    ``created_at``: Unix seconds, 0 if not known.
    """

    namespace: str
    name: str
    uid: str
    shim: str
    controller: str = ""
    created_at: int = 0

    def __str__(self) -> str:
        """Return ``namespace/name``."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Input of a decision about one node. ``now``: by the clock of the API server, in Unix seconds."""

    name: str
    node: NodeView | None
    jobs: tuple[JobView, ...]
    entry: Entry | None
    target: Target | None
    published: frozenset[str]
    installer: InstallerState | None
    verify_timeout: float
    inspect_after: float
    now: float
    done_for: float = 0.0
    """Seconds since this process observed the success of the newest Job, 0 without success."""
    users: tuple[User, ...] = ()
    deleting: frozenset[str] = frozenset()
    """Names of deleted Shims that still exist and are not a mass deletion: the circuit breaker is not applied."""
    shims_unknown: bool = False
    """True if Shims cannot be listed although something names them; no decision is allowed then."""
    policies: tuple[tuple[str, RemovalPolicy], ...] = ()
    """Handling of pods that still use a Shim, by its name; Refuse for a Shim that is not named."""
    draining: frozenset[str] = frozenset()
    """Shims that are to be changed on the node, and whose label and pods are removed before."""
    drain_timeout: float = 0.0
    """Seconds for that, from the assignment of the slot."""
    other: Controller | None = None
    """The controller of another owner that works on the node: nothing is started beside it."""
    unconfirmed: frozenset[str] = frozenset()
    """Shims that a deleted Job may have left there; ``node`` is as if its marks named them."""
    canaries: tuple[Canary, ...] = ()
    """Canaries of the Shims of the newest Job, without Shims that are no longer wanted."""
    pods: tuple[CanaryPod, ...] = ()
    """The canary pods on the node."""
    stuck_in: float = math.inf
    """Seconds until the newest Job counts as stuck, 0 if it does."""
    former: Former = field(default_factory=Former)
    """The state for a rollback of the node if the newest Job is not verified."""
    pods_left: tuple[str, ...] = ()
    """Pods of deleted Jobs, which may still work on the node."""
    pod_refused: str = ""
    """Error of the API server for the pod of the newest Job; "" if none was refused."""
    pod_refused_for: float = 0.0
    """Seconds for which that is known."""
    refusal_retry: float = 15.0
    """Seconds between two attempts after a refusal."""
    update_refused: str = ""
    """Why node_watcher cannot label the verified Node."""
    refused: str = ""
    """Reported refusal of the node, with the error of the API server; "" if there is none."""
    task: Task | None = None
    """Task of the Job of the slot, None if no Job may be created."""
    blocked_for: float = 0.0
    """Seconds for which the slot is released, 0 if it is not: no Job is created in the meantime."""
    report_skip: bool = False
    """True if an Event on the Node has to report that it is skipped."""
    timings: NodeTimings = NodeTimings()
    unserved: bool = False
    """True if a user opted the node in, and an Event has to report that there is nothing to install."""


@dataclass(frozen=True, slots=True)
class CreateJob:
    """Create the installer Job of one attempt."""

    node: NodeView
    task: Task
    """Task of the Job; ``node`` is as if its marks named the unconfirmed Shims of the task."""
    attempt: int
    reason: Reason = Reason.CLAIMED


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """Delete a Job if it still has this UID; ``foreground`` keeps it until its pods are deleted."""

    job: JobView
    reason: Reason
    foreground: bool


@dataclass(frozen=True, slots=True)
class EndJob:
    """End a running Job now; the object stays, so that its effect is known."""

    job: JobView
    reason: Reason


@dataclass(frozen=True, slots=True)
class Publish:
    """Publish an event about a Job, in the Job's trace. ``dedup_id``: stored, so that it is published once."""

    event: EventData
    dedup_id: str
    job: JobView


@dataclass(frozen=True, slots=True)
class JudgeFailed:
    """Write the failure of a Job to the Job; ``node_watcher`` reports it on the Node."""

    job: JobView
    reason: Reason
    message: str
    disruptive: bool = False
    blamed: str | None = None
    """Of several shims those that caused the failure, in the format of the annotation; None if that is not known."""


@dataclass(frozen=True, slots=True)
class CreateCanary:
    """Create the pod that tests a Shim after its Job."""

    job: JobView
    canary: Canary
    reason: Reason = Reason.VERIFICATION_FAILED


@dataclass(frozen=True, slots=True)
class DeleteCanary:
    """Delete a canary pod."""

    pod: CanaryPod
    reason: Reason


@dataclass(frozen=True, slots=True)
class VerifyJob:
    """Write the verification by canaries to a Job; ``node_watcher`` marks the Node by it."""

    job: JobView
    verified_by: VerifiedBy


@dataclass(frozen=True, slots=True)
class CreateUndo:
    """Create the Job that rolls back another Job, with the number of its attempt."""

    node: NodeView
    job: JobView
    task: Task
    reason: Reason


@dataclass(frozen=True, slots=True)
class WarnNode:
    """Record a warning Event on the Node."""

    node: NodeView
    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class ReportRefusal:
    """Report on the Node, on its Shims and in readiness that the API server refuses what provisioning needs."""

    node: NodeView
    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class ClearRefusal:
    """End the report of a refusal; the nodes that wait after one are retried at once."""

    node: NodeView


@dataclass(frozen=True, slots=True)
class EvictPod:
    """Evict a pod, as its disruption budget allows; an Event on the Node reports a blocked eviction.

    ``reason``: IN_USE before a removal of its Shim, CLAIMED before a change.
    """

    node: NodeView
    user: User
    reason: Reason = Reason.IN_USE


@dataclass(frozen=True, slots=True)
class GiveBackSlot:
    """Release the slot to other nodes: a Shim to uninstall is in use; ``reason``: by which pods. Retried later."""

    node: NodeView
    seconds: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class LookAgain:
    """Wait for these seconds, unless something changes."""

    seconds: float


@dataclass(frozen=True, slots=True)
class GuardedDeletion:
    """Apply these steps, all or none, only with permission of the circuit breaker for this Job."""

    target: Deletion
    steps: tuple[Publish | DeleteJob | EndJob, ...]


Step = (
    CreateJob
    | DeleteJob
    | EndJob
    | Publish
    | JudgeFailed
    | WarnNode
    | EvictPod
    | CreateCanary
    | DeleteCanary
    | VerifyJob
    | CreateUndo
    | ReportRefusal
    | ClearRefusal
)
"""Steps that are applied with permission of the circuit breaker; further kinds of Action are for the queue."""
Action = Step | LookAgain | GuardedDeletion | GiveBackSlot
