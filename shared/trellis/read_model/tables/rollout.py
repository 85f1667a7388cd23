"""Where a Shim's rollout stands: each node of its, and what all of them come to.

Pure. In: the Shim and its status, all Shims, all nodes, the rollout ledger. Out: a standing that people and programs
can read. Called by ``trellis rollout``. Invariant: a standing says what is written in the cluster; a halt, a failure or
a condition that belongs to an older spec, or that a person has forgiven since, does not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from trellis.installer_api.spec import WantedShim
from trellis.provisioning.attempts import ShimLimits, asked_of, failing_on
from trellis.provisioning.ledger import Entry, Ledger
from trellis.provisioning.reasons import NODE_UPDATE_REFUSED
from trellis.provisioning.reasons import Reason as NodeReason
from trellis.provisioning.revisions import Revision
from trellis.provisioning.shim_status import OTHER_CONTROLLER, Condition, Reason, Status
from trellis.provisioning.shims import Refusal, ShimView, is_for
from trellis.provisioning.targets import stays_on, target_of, wish_on
from trellis.provisioning.views import FailedAttempt, NodeView

_NAMED: Final = 5
_BLOCKING: Final = frozenset(
    {
        Refusal.INVALID.value,
        Refusal.CHECKSUM_MISSING.value,
        Refusal.UNSIGNED.value,
        Refusal.NO_SOURCE.value,
        Reason.RUNTIME_CLASS_CONFLICT.value,
    }
)
"""Reasons of Degraded that no retry changes: somebody has to change the spec or the cluster."""
_REFUSED: Final = frozenset(
    {
        Reason.RUNTIME_CLASS_REFUSED.value,
        Reason.LEDGER_REFUSED.value,
        NodeReason.JOB_REFUSED.value,
        NodeReason.INSTALLER_REFUSED.value,
        NODE_UPDATE_REFUSED,
    }
)
"""Reasons of Degraded with which the API server refuses a write: it is tried again every few seconds."""


class NodeStage(StrEnum):
    """How far one node is with the version of the spec."""

    UPDATED = "Updated"
    IN_WORK = "InWork"
    FAILED = "Failed"
    HELD = "Held"
    WAITING = "Waiting"
    LEAVING = "Leaving"


class Phase(StrEnum):
    """What the nodes come to."""

    COMPLETE = "Complete"
    PROGRESSING = "Progressing"
    PAUSED = "Paused"
    HALTED = "Halted"
    DEGRADED = "Degraded"
    REMOVING = "Removing"


@dataclass(frozen=True, slots=True)
class World:
    """What a standing may depend on. ``status`` is the Shim's; ``revisions`` the oldest first, ``current`` its own."""

    shim: ShimView
    status: Status
    shims: tuple[ShimView, ...]
    nodes: tuple[NodeView, ...]
    ledger: Ledger
    revisions: tuple[Revision, ...] = ()
    current: Revision | None = None
    ledger_known: bool = True
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ShimNode:
    """One node of the rollout; ``message`` says why it failed or is held, ``attempt`` which try is or was the last."""

    name: str
    stage: NodeStage
    attempt: int | None = None
    message: str = ""

    def document(self) -> dict[str, object]:
        """Return the node for JSON."""
        return {
            "name": self.name,
            "stage": self.stage.value,
            "attempt": self.attempt,
            "message": self.message or None,
        }


@dataclass(frozen=True, slots=True)
class Standing:
    """Where the rollout stands: ``message`` says why, ``advice`` what to do ("" if there is nothing to do)."""

    shim: str
    phase: Phase
    message: str
    advice: str
    generation: int
    revision: int | None
    nodes: tuple[ShimNode, ...]

    @property
    def counts(self) -> dict[NodeStage, int]:
        """How many nodes are at each stage, for every stage there is."""
        counted = Counter(node.stage for node in self.nodes)
        return {stage: counted[stage] for stage in NodeStage}

    @property
    def desired(self) -> int:
        """How many nodes are to have the version; those that it leaves do not count."""
        return len(self.nodes) - self.counts[NodeStage.LEAVING]

    @property
    def settled(self) -> bool:
        """Whether nothing more is to come without a person: what a watch ends with."""
        return self.phase not in {Phase.PROGRESSING, Phase.REMOVING}

    @property
    def broken(self) -> bool:
        """Whether a person has to do something."""
        return self.phase in {Phase.HALTED, Phase.DEGRADED}


def document(standing: Standing, world: World) -> dict[str, object]:
    """Return the standing for JSON."""
    return {
        "shim": standing.shim,
        "generation": standing.generation,
        "revision": standing.revision,
        "phase": standing.phase.value,
        "message": standing.message or None,
        "advice": standing.advice or None,
        "desired": standing.desired,
        "counts": {stage.value: count for stage, count in standing.counts.items()},
        "nodes": [node.document() for node in standing.nodes],
        "revisions": [{"revision": one.number, "created": one.created} for one in world.revisions],
        "notes": world.notes,
    }


@dataclass(frozen=True, slots=True)
class Outlook:
    """What each node's stage depends on besides the node and its slot: while it is equal, no other's stage changes."""

    shims: tuple[ShimView, ...]
    auto: bool
    halted: bool
    blocked: str
    held: bool


def outlook_of(world: World) -> Outlook:
    """Return what all nodes of a rollout have in common."""
    blocked = _blocking(world)
    return Outlook(
        world.shims,
        _auto_provisioned(world),
        is_halted(world),
        blocked.reason if blocked else "",
        _other_controller(world) is not None,
    )


def standing_of(world: World) -> Standing:
    """Return where the rollout stands."""
    outlook = outlook_of(world)
    return standing_with(world, outlook, (found for node in world.nodes if (found := node_of(world, node, outlook))))


def standing_with(world: World, outlook: Outlook, found: Iterable[ShimNode]) -> Standing:
    """Return where the rollout stands, of whose nodes it is known how far each is."""
    nodes = tuple(sorted(found, key=lambda node: node.name))
    phase, message, advice = _phase(world, nodes, outlook.halted)
    revision = world.current.number if world.current else None
    return Standing(world.shim.name, phase, message, advice, world.shim.generation, revision, nodes)


def is_halted(world: World) -> bool:
    """Say whether the rollout is halted by failures that still count.

    The ledger is a moment behind: a halt whose failures are all forgiven, or of an older version, is as good as over.
    """
    if world.shim.name not in world.ledger.halted:
        return False  # which spares looking at every node, as of most Shims
    last = last_failure(world)
    return last is not None and last > world.shim.forgiven


def last_failure(world: World) -> int | None:
    """Return when the last of the failures was that nodes have with what they are to have now, in Unix seconds."""
    auto = _auto_provisioned(world)
    failures = (
        _failure(world, node, auto)
        for node in world.nodes
        if is_for(world.shim, node, auto_provision=auto) or world.shim.name in node.installed
    )
    return max((failure.at for failure in failures if failure), default=None)


def _auto_provisioned(world: World) -> bool:
    """Say whether the services provision every node: only they know, but their count of nodes tells."""
    shim, status = world.shim, world.status
    if not shim.default or status.observed_generation != shim.generation:
        return False
    counted = (node for node in world.nodes if node.skip is None)
    return sum(is_for(shim, node, auto_provision=False) for node in counted) < status.counts.nodes


def node_of(world: World, node: NodeView, outlook: Outlook) -> ShimNode | None:
    """Return how far a node is, None if the rollout is none of its."""
    shim, auto, halted = world.shim, outlook.auto, outlook.halted
    wanted = is_for(shim, node, auto_provision=auto) or stays_on(shim, node)
    has = node.installed.get(shim.name)
    entry = world.ledger.entries.get(node.uid)
    entry = entry if entry and shim.name in entry.shims else None
    if not wanted and has is None and entry is None:
        return None
    wish = wish_on(shim, node, world.shims, auto_provision=auto, require_checksum=False)
    if wanted and isinstance(wish, WantedShim) and has == wish.digest:
        return ShimNode(node.name, NodeStage.UPDATED)
    if wanted and node.skip is not None and entry is None:
        return None
    failure = _failure(world, node, auto)
    if entry is not None and not _ended(entry, failure):
        return ShimNode(node.name, NodeStage.IN_WORK, entry.attempt, node.failure or "" if failure else "")
    if failure is not None:
        return ShimNode(node.name, NodeStage.FAILED, failure.attempt, node.failure or "no reason given")
    if not wanted:
        return ShimNode(node.name, NodeStage.LEAVING)
    why = _hold(world, wish, halted)
    return ShimNode(node.name, NodeStage.HELD if why else NodeStage.WAITING, message=why)


def _ended(entry: Entry, failure: FailedAttempt | None) -> bool:
    """Say whether the failure of exactly this try is recorded: then the slot is about to be freed."""
    return failure is not None and (failure.digest, failure.attempt) == (entry.digest, entry.attempt)


def _failure(world: World, node: NodeView, auto: bool) -> FailedAttempt | None:
    """Return the failure recorded for what the node is to have now, if it is one of this Shim."""
    failure = node.failed
    if failure is None or failure.digest == node.marked_digest:
        return None
    for require in (True, False):
        target = target_of(node, world.shims, "", auto_provision=auto, require_checksum=require)
        if target is None:
            return failure
        limits = {shim.name: ShimLimits(None, paused=shim.paused) for shim in world.shims}
        if world.shim.name in failing_on(node, target, asked_of(node, target, limits, world.ledger.halted)):
            return failure
    return None


def _hold(world: World, wish: WantedShim | Refusal, halted: bool) -> str:
    """Return why a node is not begun, "" if it only waits its turn."""
    if isinstance(wish, Refusal):
        return wish.value
    blocked = _blocking(world)
    if blocked is not None and blocked.reason in {Refusal.CHECKSUM_MISSING.value, Refusal.UNSIGNED.value}:
        return blocked.reason
    if _other_controller(world) is not None:
        return "another controller is active"
    return "paused" if world.shim.paused else "halted" if halted else ""


def _blocking(world: World) -> Condition | None:
    """Return the condition about this generation that keeps the rollout from going on whatever is tried."""
    return _degraded(world, _BLOCKING)


def _degraded(world: World, reasons: frozenset[str]) -> Condition | None:
    for condition in world.status.conditions:
        fresh = condition.observed_generation == world.shim.generation
        if fresh and condition.type == "Degraded" and condition.status == "True" and condition.reason in reasons:
            return condition
    return None


def _other_controller(world: World) -> Condition | None:
    """Return the condition that another controller works on the Shim, or on nodes of it."""
    found = (one for one in world.status.conditions if one.type == OTHER_CONTROLLER and one.status == "True")
    return next(found, None)


def _phase(world: World, nodes: tuple[ShimNode, ...], halted: bool) -> tuple[Phase, str, str]:
    shim, stages = world.shim, Counter(node.stage for node in nodes)
    failing = [node.name for node in nodes if node.stage is NodeStage.FAILED]
    if shim.deleting:
        return Phase.REMOVING, f"it is being deleted, {len(nodes)} nodes still have it", ""
    if blocked := _blocking(world):
        return Phase.DEGRADED, f"{blocked.reason}: {blocked.message}", f"mend it: kubectl edit shim {shim.name}"
    if shim.invalid:
        return Phase.DEGRADED, f"InvalidShim: {shim.invalid}", f"mend it: kubectl edit shim {shim.name}"
    observed = world.status.observed_generation == shim.generation
    if not nodes or stages[NodeStage.UPDATED] == len(nodes):
        if not observed:
            return Phase.PROGRESSING, "provisioner has not looked at it yet", "if this lasts: trellis status"
        return Phase.COMPLETE, "" if nodes else "no node is to have it", ""
    if other := _other_controller(world):
        return Phase.PAUSED, other.message, "then it goes on by itself"
    if shim.paused:
        return Phase.PAUSED, "paused by spec.paused", f"go on with: trellis rollout resume {shim.name}"
    back = f"go back with: trellis rollout undo {shim.name}"
    if halted:
        message = f"too many nodes fail, no further one is begun: {_listed(failing)}".removesuffix(": ")
        return Phase.HALTED, message, f"mend the cause and go on with: trellis rollout resume {shim.name}; or {back}"
    if failing and not (stages[NodeStage.IN_WORK] or stages[NodeStage.WAITING] or stages[NodeStage.LEAVING]):
        message = f"the last attempt failed on {_listed(failing)}"
        return Phase.DEGRADED, message, f"mend the cause: they are tried again by themselves; or {back}"
    return Phase.PROGRESSING, *_waiting(world, observed=observed)


def _waiting(world: World, *, observed: bool) -> tuple[str, str]:
    """Return what a rollout that goes on waits for, and what to do; "" twice if it waits for nothing."""
    if refused := _degraded(world, _REFUSED):
        return f"{refused.reason}: {refused.message}", "it goes on by itself once that is permitted"
    return ("", "") if observed else ("provisioner has not looked at this change yet", "if this lasts: trellis status")


def _listed(known: list[str]) -> str:
    more = len(known) - _NAMED
    return ", ".join(known[:_NAMED]) + (f" and {more} more" if more > 0 else "")
