"""What may be done about one node, each with its reason, and all that a decision about it may depend on.

Pure data. Made by ``gather`` (snapshots) and ``decide`` (actions), carried out by ``apply``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from provisioner.domain.canary import Canary, CanaryPod
from provisioner.domain.resources import Task
from provisioner.domain.tasks import Former
from provisioner.timings import NodeTimings
from trellis.crds.shim import RemovalPolicy
from trellis.events.envelope import FactData
from trellis.limits.breaker import Destruction
from trellis.provisioning.installer_pods import InstallerState
from trellis.provisioning.ledger import Entry
from trellis.provisioning.other_controllers import Controller
from trellis.provisioning.reasons import Reason
from trellis.provisioning.views import JobView, NodeView, Proof, Target


@dataclass(frozen=True, slots=True)
class User:
    """A pod that still runs with a handler that is to go."""

    namespace: str
    name: str
    uid: str
    shim: str

    def __str__(self) -> str:
        """Return ``namespace/name``."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that a decision about one node may depend on. ``now``: by the API server's clock, in Unix seconds."""

    name: str
    node: NodeView | None
    jobs: tuple[JobView, ...]
    entry: Entry | None
    target: Target | None
    said: frozenset[str]
    installer: InstallerState | None
    verify_timeout: float
    inspect_after: float
    now: float
    done_for: float = 0.0
    """Seconds since this process saw that the newest Job ended well, 0 if it did not."""
    users: tuple[User, ...] = ()
    deleting: frozenset[str] = frozenset()
    """Names of the Shims that still exist and were deleted by themselves: no circuit breaker holds what follows."""
    shims_unknown: bool = False
    """Whether Shims cannot be listed although something names them: nothing may be decided."""
    policies: tuple[tuple[str, RemovalPolicy], ...] = ()
    """What is to happen to pods that still use a Shim, by its name; one that is not named refuses."""
    other: Controller | None = None
    """The controller of another owner that works on the node: nothing is begun beside it."""
    feared: frozenset[str] = frozenset()
    """Shims that a Job which is gone may have left there; ``node`` is as if its marks named them."""
    canaries: tuple[Canary, ...] = ()
    """What tries the Shims of the newest Job; not those that are no longer wanted."""
    pods: tuple[CanaryPod, ...] = ()
    """The canary pods on the node."""
    stuck_in: float = math.inf
    """Seconds until the newest Job counts as stuck, 0 if it does."""
    former: Former = field(default_factory=Former)
    """What the node goes back to if what the newest Job did is in vain."""
    pods_left: tuple[str, ...] = ()
    """Pods of Jobs that are gone, which may still work on the node."""
    pod_refused: str = ""
    """Why no pod of the newest Job is created, in the API server's words; "" if none was refused."""
    pod_refused_for: float = 0.0
    """Seconds for which that is known."""
    refusal_retry: float = 15.0
    """Seconds between two attempts at what is refused."""
    update_refused: str = ""
    """Why node_watcher cannot write on the Node what is proved."""
    refused: str = ""
    """What is reported of the node as refused, with the API server's words; "" if nothing is."""
    task: Task | None = None
    """What the Job of the slot is to do, None if none may be made."""
    blocked_for: float = 0.0
    """Seconds for which the slot is given back, 0 if it is not: no Job is made in the meantime."""
    tell_skip: bool = False
    """Whether the Node is to say that it is skipped."""
    timings: NodeTimings = NodeTimings()
    unserved: bool = False
    """Whether a user opted the node in, and is to be told that there is nothing to install."""


@dataclass(frozen=True, slots=True)
class CreateJob:
    """Make the installer Job of one attempt."""

    node: NodeView
    task: Task
    """What the Job is to do; ``node`` is as if its marks named what the task fears."""
    attempt: int
    reason: Reason = Reason.CLAIMED


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """Delete a Job if it still has this uid; ``foreground`` keeps it until its pods are gone."""

    job: JobView
    reason: Reason
    foreground: bool


@dataclass(frozen=True, slots=True)
class EndJob:
    """Have a running Job end now; it stays, so that what it did is known."""

    job: JobView
    reason: Reason


@dataclass(frozen=True, slots=True)
class Publish:
    """Publish an event about a Job, in the Job's trace. ``mark``: remembered, so that it is said once."""

    fact: FactData
    mark: str
    job: JobView


@dataclass(frozen=True, slots=True)
class JudgeFailed:
    """Write the verdict on a Job that did not lead to proof; ``node_watcher`` shows it on the Node."""

    job: JobView
    reason: Reason
    message: str
    disruptive: bool = False
    blamed: str | None = None
    """Of several shims those that it failed because of, as an annotation has them; None if that is not known."""


@dataclass(frozen=True, slots=True)
class CreateCanary:
    """Make the pod that tries a Shim after its Job."""

    job: JobView
    canary: Canary
    reason: Reason = Reason.VERIFICATION_FAILED


@dataclass(frozen=True, slots=True)
class DeleteCanary:
    """Delete a canary pod."""

    pod: CanaryPod
    reason: Reason


@dataclass(frozen=True, slots=True)
class ProveJob:
    """Write on a Job what its canaries proved; ``node_watcher`` marks the Node by it."""

    job: JobView
    proof: Proof


@dataclass(frozen=True, slots=True)
class CreateUndo:
    """Make the Job that takes back what another Job did in vain, under the number of its try."""

    node: NodeView
    job: JobView
    task: Task
    reason: Reason


@dataclass(frozen=True, slots=True)
class WarnNode:
    """Put a warning Event on the Node."""

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
    """Take back the report of a refusal; the nodes that wait after one are retried at once."""

    node: NodeView


@dataclass(frozen=True, slots=True)
class EvictPod:
    """Ask a pod to leave, as its disruption budget allows; the Node's Events tell if it does not."""

    node: NodeView
    user: User
    reason: Reason = Reason.IN_USE


@dataclass(frozen=True, slots=True)
class GiveBackSlot:
    """Let others be worked on: what is to go is in use, ``why`` says by whom. It is looked at again after a while."""

    node: NodeView
    seconds: float
    why: str = ""


@dataclass(frozen=True, slots=True)
class LookAgain:
    """Nothing to do before so many seconds, unless something changes."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Destroy:
    """Take these steps only if the breaker lets this Job go; all of them or none."""

    target: Destruction
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
    | ProveJob
    | CreateUndo
    | ReportRefusal
    | ClearRefusal
)
"""What is carried out once the breaker gave leave; the rest of an Action is for the queue."""
Action = Step | LookAgain | Destroy | GiveBackSlot
