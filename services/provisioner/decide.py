"""What to do about one node: make its Job, judge it, say what came of it, clear it away.

Pure. In: a frozen snapshot of one Node, its Jobs and its slot in the ledger. Out: actions, each with its reason.
Called by ``app`` between gather and apply; slots are given by ``plan``, never here.
Invariants: no Job without a slot; one Job a node at a time; a Job goes only when proof or failure is recorded on the
Node, nobody wants what it did any more, or another Node took the name; a fact is said before the mark that it was said;
no Job of our own installer goes while the Node does not name what it left there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from provisioner.canary import Canary, CanaryPod, proves_all, trial_of
from provisioner.plan import Entry
from trellis import names
from trellis.breaker import Destruction
from trellis.crds.shim import RemovalPolicy
from trellis.events.envelope import FactData
from trellis.events.provision import ProvisionFailed, ProvisionRemoved, ProvisionStarted, ProvisionSucceeded
from trellis.install_results import InstallResult, parse_result
from trellis.peers import Controller
from trellis.provisioning import (
    KWASM,
    PROVISION,
    UNDO,
    JobState,
    JobView,
    NodeView,
    Proof,
    Target,
    encode_digests,
    installed_on,
    newest,
    proof_of,
    shows,
)
from trellis.unfinished import fulfilled, left_by, overtaken

JOBS = "jobs"
"""Kind of the breaker that guards running installer Jobs."""


LABELS_SECONDS: Final = 1.0
IN_USE_SECONDS: Final = 60.0
DRAIN_SECONDS: Final = 5.0
_NAMED: Final = 5
_NOTHING_TO_INSTALL: Final = (
    f"{names.ANNOTATION_OPT_IN}=true, but there is nothing to install: no Shim is labelled "
    f"{names.LABEL_KWASM_DEFAULT}=true, and TRELLIS_INSTALLER_IMAGE is empty; label one, or set the image"
)


class Reason(StrEnum):
    """Why an action is taken; also the reason of Events and of a failure's verdict."""

    CLAIMED = "SlotClaimed"
    PROVED = "ProvisionSucceeded"
    OPTED_OUT = "OptedOut"
    NODE_REPLACED = "NodeReplaced"
    SUPERSEDED = "JobSuperseded"
    INSTALLER_FAILED = "InstallerFailed"
    HANDLER_MISSING = "HandlerMissing"
    CANARY_FAILED = "CanaryFailed"
    UNPROVED = "Unproved"
    NOT_STARTING = "InstallerNotStarting"
    NODE_NOT_READY = "NodeNotReady"
    IN_USE = "RuntimeInUse"
    NOTHING_TO_INSTALL = "NothingToInstall"
    OTHER_CONTROLLER = "OtherControllerActive"
    DRAIN_BLOCKED = "DrainBlocked"


@dataclass(frozen=True, slots=True)
class InstallerState:
    """What the Job's newest pod says: why it waits, how it ended, its last log lines. Empty strings if unknown."""

    waiting: str = ""
    terminated: str = ""
    log_tail: str = ""


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
    """All that a decision about one node may depend on. Times in seconds; ``now`` in Unix seconds."""

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
    users: tuple[User, ...] = ()
    policies: tuple[tuple[str, RemovalPolicy], ...] = ()
    """What is to happen to pods that still use a Shim, by its name; one that is not named refuses."""
    other: Controller | None = None
    """The controller of somebody else that works on the node: nothing is begun beside it."""
    canaries: tuple[Canary, ...] = ()
    """What tries the Shims of the newest Job; not those that are no longer wanted."""
    pods: tuple[CanaryPod, ...] = ()
    """The canary pods on the node."""
    unserved: bool = False
    """Whether a person opted the node in, and is to be told that there is nothing to install."""


@dataclass(frozen=True, slots=True)
class CreateJob:
    """Make the installer Job of one attempt."""

    node: NodeView
    target: Target
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
class SayFact:
    """Publish a fact about a Job, in the Job's trace. ``mark``: remembered, so that it is said once."""

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
    reason: Reason = Reason.UNPROVED


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
    """Make the Job that takes back, of these Shims, what another Job did in vain."""

    node: NodeView
    job: JobView
    shims: tuple[str, ...]
    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class WarnNode:
    """Put a warning Event on the Node."""

    node: NodeView
    reason: Reason
    message: str


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
    steps: tuple[SayFact | DeleteJob | EndJob, ...]


Action = (
    CreateJob
    | DeleteJob
    | EndJob
    | SayFact
    | JudgeFailed
    | WarnNode
    | LookAgain
    | Destroy
    | EvictPod
    | GiveBackSlot
    | CreateCanary
    | DeleteCanary
    | ProveJob
    | CreateUndo
)


def decide(snapshot: Snapshot) -> list[Action]:
    """Return what to do about one node, in order."""
    node = snapshot.node
    if node is None:
        return []  # its Jobs are owned by the Node: the garbage collector takes them
    former: list[Action] = [
        DeleteJob(job, Reason.NODE_REPLACED, foreground=False)
        for job in snapshot.jobs
        if job.node_uid != node.uid and not job.deleting
    ]
    if snapshot.unserved and snapshot.target is None:
        former.append(WarnNode(node, Reason.NOTHING_TO_INSTALL, _NOTHING_TO_INSTALL))
    jobs = tuple(job for job in snapshot.jobs if job.node_uid == node.uid)
    job = newest(jobs)
    if snapshot.target is None and not left_by(job, node):
        return [*former, *_opted_out(jobs)]
    current: list[Action] = []
    if job is not None and not job.deleting:
        unwanted = overtaken(job, node, snapshot.target)
        current = _end(job, Reason.SUPERSEDED) if unwanted else _follow(snapshot, node, job)
    return [*former, *current, *_begin(snapshot, node, jobs)]


def inspect(job: JobView | None, *, inspect_after: float, now: float) -> bool:
    """Say whether the Job's pod is worth reading: it failed without a verdict, or it should have ended by now."""
    if job is None or job.deleting:
        return False
    if job.state is JobState.ACTIVE:
        return now - job.created_at >= inspect_after
    return job.state is JobState.FAILED and job.failure is None


def _begin(snapshot: Snapshot, node: NodeView, jobs: tuple[JobView, ...]) -> list[Action]:
    """Make the Job of a claimed slot, once nothing of an earlier one is at work."""
    if snapshot.other is not None:
        unfinished = any(job.deleting or job.state is not JobState.FAILED for job in jobs)
        return [] if unfinished else [WarnNode(node, Reason.OTHER_CONTROLLER, snapshot.other.advice)]
    entry, target = snapshot.entry, snapshot.target
    if entry is None or target is None or node.marked_digest == entry.digest:
        return []
    failed = node.failed
    if failed and (failed.digest, failed.attempt) == (entry.digest, entry.attempt):
        return []  # recorded: the planner frees the slot
    if any((job.digest, job.attempt) == (entry.digest, entry.attempt) and not job.deleting for job in jobs):
        return []
    if entry.digest != target.digest:
        return []  # what is wanted changed before the Job was made: the planner frees the slot
    if any(job.deleting or job.state is JobState.ACTIVE for job in jobs):
        return []  # two installers on one disk would be one too many; its end wakes us
    if blocked := _blocked(snapshot, node, target):
        return blocked
    clear: list[Action] = [DeleteJob(job, Reason.SUPERSEDED, foreground=False) for job in jobs]
    return [*clear, CreateJob(node, target, entry.attempt)]


def leaving(node: NodeView, target: Target) -> tuple[str, ...]:
    """Return the Shims that are to be removed from a node; what a legacy image installed cannot be."""
    wanted = dict(target.shims)
    return tuple(sorted(name for name in installed_on(node) if name not in wanted and name != KWASM))


def _blocked(snapshot: Snapshot, node: NodeView, target: Target) -> list[Action]:
    """Before a Shim is removed its label goes, so that no pod comes, and then the pods, as its policy has it."""
    going, labels = leaving(node, target), dict(node.labels)
    if any(names.shim_label(name) in labels for name in going):
        return [GiveBackSlot(node, LABELS_SECONDS)]
    policies = dict(snapshot.policies)
    of: dict[RemovalPolicy, list[User]] = {policy: [] for policy in RemovalPolicy}
    for user in snapshot.users:
        if user.shim in going:
            of[policies.get(user.shim, RemovalPolicy.REFUSE)].append(user)
    if refusing := of[RemovalPolicy.REFUSE]:
        message = (
            f"{', '.join(going)} cannot be removed: {_listed(refusing)} still run with it; delete them, or set "
            "spec.removalPolicy of the Shim to Drain or Force"
        )
        return [WarnNode(node, Reason.IN_USE, message), GiveBackSlot(node, IN_USE_SECONDS, message)]
    if draining := of[RemovalPolicy.DRAIN]:
        return [*(EvictPod(node, user) for user in draining), LookAgain(DRAIN_SECONDS)]
    return []


def _listed(users: list[User]) -> str:
    more = len(users) - _NAMED
    return ", ".join(map(str, users[:_NAMED])) + (f" and {more} more pods" if more > 0 else "")


def _follow(snapshot: Snapshot, node: NodeView, job: JobView) -> list[Action]:
    """Say how the newest Job fares and judge it when it ended."""
    if job.operation == UNDO:
        return _follow_undo(snapshot, node, job)
    started = f"{job.uid}.started"
    actions: list[Action] = []
    if started not in snapshot.said and job.state is JobState.ACTIVE:
        actions.append(SayFact(ProvisionStarted(**_about(job)), started, job))
    match job.state:
        case JobState.ACTIVE:
            if job.given_up and not node.ready:
                return [*actions, *_give_up(job)]
            return [*actions, *_watch_start(snapshot, node, job)]
        case JobState.FAILED:
            if job.failure is not None:
                return []
            why, result = _why(job, snapshot.installer), _result(snapshot.installer)
            disruptive, blamed = result is not None and result.restarted, blamed_by(job, result)
            return _judge(job, Reason.INSTALLER_FAILED, why, disruptive=disruptive, blamed=blamed)
        case JobState.COMPLETE:
            return _verify(snapshot, node, job)


def _give_up(job: JobView) -> list[Action]:
    """A node that is away tells no pod's end, so its Job would never fail, and its slot never be free."""
    if job.failure is not None:
        return []
    message = f"{job.given_up}; the node is not ready, so it is not known how far the installer came"
    return _judge(job, Reason.NODE_NOT_READY, message)


def _verify(snapshot: Snapshot, node: NodeView, job: JobView) -> list[Action]:
    """A Job that ended well is believed when the node itself shows the handler, and a pod ran with it."""
    if proof := proof_of(job, node):
        said = f"{job.uid}.succeeded"
        actions: list[Action] = []
        if said not in snapshot.said:
            actions.append(SayFact(ProvisionSucceeded(**_about(job), verified=proof.value), said, job))
        if fulfilled(job, node):
            actions.append(DeleteJob(job, Reason.PROVED, foreground=False))
        return actions
    if job.failure is not None:
        return []
    left = (job.finished_at or job.created_at) + snapshot.verify_timeout - snapshot.now
    if shows(job, node) and job.canaries and job.proved is None:
        return _try_out(snapshot, node, job, left)
    if left > 0:
        return [LookAgain(left)]
    message = f"the installer ended well, but after {snapshot.verify_timeout:.0f} s the node {_unlike(job, node)}"
    return _take_back(node, job, Reason.HANDLER_MISSING, message, _tried(node, job))


def _try_out(snapshot: Snapshot, node: NodeView, job: JobView, left: float) -> list[Action]:
    """Let a pod try each Shim of the Job that is to be tried; the proof is written on the Job."""
    trial = trial_of(job, snapshot.canaries, snapshot.pods, overdue=left <= 0)
    if trial.passed:
        everything = proves_all(job, snapshot.canaries, _tried(node, job))
        return [ProveJob(job, Proof.CANARY if everything else Proof.HANDLER)]
    if trial.failed:
        clear = [DeleteCanary(pod, Reason.CANARY_FAILED) for pod in snapshot.pods if not pod.deleting]
        return [*clear, *_take_back(node, job, Reason.CANARY_FAILED, trial.message, trial.failed)]
    again = [DeleteCanary(pod, Reason.UNPROVED) for pod in trial.again]
    return [*again, *(CreateCanary(job, canary) for canary in trial.begin), LookAgain(max(left, 0.0))]


def _tried(node: NodeView, job: JobView) -> tuple[str, ...]:
    """Return the Shims that a Job put onto the node, or put there in another version; by name."""
    had = installed_on(node)
    return tuple(sorted(name for name, digest in job.shims.items() if had.get(name) != digest))


def _take_back(node: NodeView, job: JobView, reason: Reason, message: str, shims: tuple[str, ...]) -> list[Action]:
    """What did not prove itself is taken back before it is judged, so that a failure leaves the node as it was.

    Not of a legacy image, which knows no way back, and not on a node that cannot be reached.
    """
    if job.installs is None or job.operation != PROVISION:
        return _judge(job, reason, message)
    if not node.ready:
        why = f"{message} (the node is not ready, so nothing was taken back)"
        return _judge(job, reason, why, blamed=blame(job, shims))
    return [CreateUndo(node, job, shims, reason, message)]


def blame(job: JobView, shims: Iterable[str]) -> str:
    """Return Shims of a Job with their versions, as an annotation has what a failure is blamed on."""
    return encode_digests({name: job.shims[name] for name in shims})


def _follow_undo(snapshot: Snapshot, node: NodeView, job: JobView) -> list[Action]:
    """Judge the try that a Job takes back, once it has; the verdict stands on this Job, under the try's number."""
    if job.failure is not None:
        return []
    reason, _, message = job.undoes.partition(": ")
    match job.state:
        case JobState.ACTIVE if job.given_up and not node.ready:
            message = f"{message}; the node is not ready, so it is not known whether that was taken back"
        case JobState.ACTIVE:
            return _watch_start(snapshot, node, job)
        case JobState.COMPLETE:
            message = f"{message}; the node was brought back to what it had"
        case JobState.FAILED:
            message = f"{message}; bringing the node back to what it had failed: {_why(job, snapshot.installer)}"
    return _judge(job, Reason(reason), message, disruptive=True, blamed=job.blamed)


def _unlike(job: JobView, node: NodeView) -> str:
    """Return how a node's runtime handlers differ from what its Job was to lead to, and what to look at."""
    if not node.handlers:
        return (
            f"lists no runtime handlers at all ({node.runtime_version or 'its container runtime'} or its kubelet is "
            f"too old for that), and no pod tried {', '.join(sorted(job.handlers))}: set spec.verify.canaryImage of "
            "the Shim"
        )
    missing, left = job.handlers - node.handlers, job.removed_handlers & node.handlers
    parts = [("does not list", missing), ("still lists", left)]
    said = " and ".join(f"{verb} the runtime handler {', '.join(map(repr, sorted(of)))}" for verb, of in parts if of)
    return (
        f"{said} (it lists: {', '.join(sorted(filter(None, node.handlers))) or 'none'}): "
        "check containerd's log on the node, and that the image installs this handler"
    )


def _judge(
    job: JobView, reason: Reason, message: str, *, disruptive: bool = False, blamed: str | None = None
) -> list[Action]:
    fact = ProvisionFailed(**_about(job), reason=reason.value, message=message)
    return [SayFact(fact, f"{job.uid}.failed", job), JudgeFailed(job, reason, message, disruptive, blamed)]


def _watch_start(snapshot: Snapshot, node: NodeView, job: JobView) -> list[Action]:
    """An image that cannot be pulled shows at once, not when the deadline of the Job has passed."""
    installer = snapshot.installer
    if installer is None:
        return [LookAgain(max(1.0, job.created_at + snapshot.inspect_after - snapshot.now))]
    again = LookAgain(snapshot.inspect_after)
    if not installer.waiting:
        return [again]
    message = f"Job {job.namespace}/{job.name} waits: {installer.waiting}"
    return [WarnNode(node, Reason.NOT_STARTING, message), again]


def _why(job: JobView, installer: InstallerState | None) -> str:
    """Return what our own installer answered; of another's, the Job's words, its pod's, and its last log lines."""
    installer = installer or InstallerState()
    result = parse_result(installer.log_tail)
    if result is not None and not result.ok:
        return _answer(result)
    parts = [job.condition or "the Job failed", installer.terminated, installer.waiting]
    text = "; ".join(part for part in parts if part)
    return f"{text}; last log lines: {installer.log_tail.strip()}" if installer.log_tail.strip() else text


def _result(installer: InstallerState | None) -> InstallResult | None:
    return parse_result(installer.log_tail) if installer else None


def blamed_by(job: JobView, result: InstallResult | None) -> str | None:
    """Return the shims that an installer's answer names as what it failed because of; None if it names none.

    It names them by handler and version; a version is one Shim's, because the handler is a part of it.
    """
    if result is None or job.installs is None:
        return None
    broken = {shim.digest for shim in result.shims if shim.problem}
    return encode_digests({name: digest for name, digest in job.shims.items() if digest in broken}) or None


def _answer(result: InstallResult) -> str:
    problems = [
        f"{shim.handler}: {shim.problem}"
        for shim in result.shims
        if shim.problem and shim.problem not in result.message
    ]
    told = "; ".join(dict.fromkeys([result.message, *problems]))
    text = f"{result.reason or result.outcome}: {told}"
    return f"{text} (the container runtime was restarted)" if result.restarted else text


def _opted_out(jobs: tuple[JobView, ...]) -> list[Action]:
    """The node no longer wants a runtime: nothing of ours works on it any more, but what takes a try back."""
    actions: list[Action] = []
    for job in jobs:
        if job.deleting or (job.operation == UNDO and job.state is JobState.ACTIVE):
            continue
        running = job.state is JobState.ACTIVE
        if running and job.installs is not None:
            actions += _end(job, Reason.OPTED_OUT)
            continue
        said = SayFact(ProvisionRemoved(**_about(job)), f"{job.uid}.removed", job)
        steps = (said, DeleteJob(job, Reason.OPTED_OUT, foreground=running))
        # A Job that ended is only cleared away: what it did stays done.
        actions += [Destroy(_interruption(job), steps)] if running else steps
    return actions


def _end(job: JobView, reason: Reason) -> list[Action]:
    """End what our installer does for nobody: it takes its changes back, or is past that and ends well."""
    if job.state is not JobState.ACTIVE or job.ends_now:
        return []
    return [Destroy(_interruption(job), (EndJob(job, reason),))]


def _interruption(job: JobView) -> Destruction:
    what = f"stopping the installer on node {job.node}"
    return Destruction(JOBS, job.name, job.uid, what, "batch/v1", "Job", job.namespace)


def _about(job: JobView) -> dict[str, Any]:
    return {
        "node": job.node,
        "node_uid": job.node_uid,
        "digest": job.digest,
        "attempt": job.attempt,
        "job": f"{job.namespace}/{job.name}",
    }
