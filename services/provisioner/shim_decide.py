"""What to do about one Shim: its finalizer, its RuntimeClass, its status.

Pure. In: a frozen snapshot of one Shim, its nodes, its RuntimeClass. Out: actions, each with its reason. Called by
``app`` between gather and apply; nodes get slots from ``plan`` and Jobs from ``decide``, never from here.
Invariants: the finalizer stays until no node that can be reached has the Shim; a RuntimeClass of somebody else is left
alone; the status is written only if it says something else than before.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from trellis import names
from trellis.installing import ShimWish
from trellis.provisioning import NodeView, installed_on
from trellis.shim_history import Manifest, Revision, next_number, same_as, surplus
from trellis.shims import Refusal, ShimView

_NAMED: Final = 5
"""Nodes a message names; the others are counted."""


class Reason(StrEnum):
    """Why a condition or an action is as it is."""

    ALL_READY = "AllNodesReady"
    NOT_ALL_READY = "NodesNotReady"
    NO_NODES = "NoNodes"
    UPDATED = "Updated"
    UPDATING = "Updating"
    REMOVING = "Removing"
    PAUSED = "Paused"
    HALTED = "RolloutHalted"
    FAILING = "NodesFailing"
    HEALTHY = "AsExpected"
    RUNTIME_CLASS_CONFLICT = "RuntimeClassConflict"
    UNREACHABLE_LEFT = "UnreachableNodesLeft"


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition as it stands, or is to stand, in the status; ``since`` is its lastTransitionTime."""

    type: str
    status: str
    reason: str
    message: str
    since: str = ""
    observed_generation: int = 0


@dataclass(frozen=True, slots=True)
class RuntimeClassView:
    """The RuntimeClass of the Shim's name for it; ``owner``: uid of the Shim that owns it, "" if none does."""

    name: str
    uid: str
    resource_version: str
    handler: str
    overhead: tuple[tuple[str, str], ...]
    selector: tuple[tuple[str, str], ...]
    owner: str


@dataclass(frozen=True, slots=True)
class Counts:
    """The numbers of a status."""

    nodes: int = 0
    ready: int = 0
    updated: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class Status:
    """A Shim's status as it stands, or is to stand."""

    counts: Counts = Counts()
    conditions: tuple[Condition, ...] = ()
    observed_generation: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that a decision about one Shim may depend on.

    ``wishes``: for each node that it is for, what is to be installed there or why nothing is. ``holders``: nodes on
    which it is installed. ``in_work``: nodes whose work changes it. ``now``: RFC 3339, whole seconds. ``revisions``:
    the versions that are kept, None if the newest is known to be ``version``, that of the spec.
    """

    shim: ShimView
    status: Status
    runtime_class: RuntimeClassView | None
    wishes: tuple[tuple[NodeView, ShimWish | Refusal], ...]
    holders: tuple[NodeView, ...]
    in_work: tuple[NodeView, ...]
    halted: bool
    patience_over: bool
    now: str
    version: Manifest = field(default_factory=dict, hash=False)
    revisions: tuple[Revision, ...] | None = None

    @property
    def leaving(self) -> tuple[NodeView, ...]:
        """Nodes that have the Shim and are not to have it any more."""
        staying = {node.uid for node, _ in self.wishes}
        return tuple(node for node in self.holders if node.uid not in staying)


@dataclass(frozen=True, slots=True)
class SetFinalizer:
    """Add our finalizer, or take it away."""

    shim: ShimView
    present: bool
    message: str = ""


@dataclass(frozen=True, slots=True)
class ApplyRuntimeClass:
    """Write the RuntimeClass; ``former`` is what was read. A handler cannot change: then ``former`` is replaced."""

    shim: ShimView
    former: RuntimeClassView | None


@dataclass(frozen=True, slots=True)
class DeleteRuntimeClass:
    """Delete the RuntimeClass that the Shim owns."""

    former: RuntimeClassView


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """Write the status."""

    shim: ShimView
    status: Status


@dataclass(frozen=True, slots=True)
class WarnShim:
    """Put a warning Event on the Shim."""

    shim: ShimView
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class KeepRevision:
    """Keep a version under a number; ``former`` is the revision that has it already, under an older one."""

    shim: ShimView
    version: Manifest = field(hash=False)
    number: int
    former: Revision | None


@dataclass(frozen=True, slots=True)
class DropRevision:
    """Delete a revision beyond the limit."""

    former: Revision


Action = SetFinalizer | ApplyRuntimeClass | DeleteRuntimeClass | WriteStatus | WarnShim | KeepRevision | DropRevision


def decide(snapshot: Snapshot) -> list[Action]:
    """Return what to do about one Shim, in order."""
    shim = snapshot.shim
    if shim.deleting:
        return _deleting(snapshot)
    actions: list[Action] = []
    if names.FINALIZER not in shim.finalizers and not shim.invalid:
        actions.append(SetFinalizer(shim, present=True))
    if not shim.invalid and not _conflict(snapshot) and _differs(shim, snapshot.runtime_class):
        actions.append(ApplyRuntimeClass(shim, snapshot.runtime_class))
    return [*actions, *_status(snapshot), *_history(snapshot)]


def _history(snapshot: Snapshot) -> list[Action]:
    """Keep the version of the spec as the newest revision, and no more revisions than the limit."""
    shim, version, revisions = snapshot.shim, snapshot.version, snapshot.revisions
    if shim.invalid or revisions is None:
        return []
    number = next_number(revisions, version)
    keep = [] if number is None else [KeepRevision(shim, version, number, same_as(revisions, version))]
    return [*keep, *(DropRevision(former) for former in surplus(revisions, version))]


def _deleting(snapshot: Snapshot) -> list[Action]:
    """Wait until no node has the Shim; nodes that cannot be reached are waited for only so long."""
    shim = snapshot.shim
    if names.FINALIZER not in shim.finalizers:
        return []
    concerned = {node.uid: node for node in (*snapshot.holders, *snapshot.in_work)}.values()
    if any(node.ready or not snapshot.patience_over for node in concerned):
        return _status(snapshot)
    message = ""
    actions: list[Action] = []
    if concerned:
        message = f"not removed from nodes that are not ready: {_listed(concerned)}"
        actions.append(WarnShim(shim, Reason.UNREACHABLE_LEFT.value, message))
    if snapshot.runtime_class is not None and snapshot.runtime_class.owner == shim.uid:
        # The garbage collector would, but knows a new kind only after a while.
        actions.append(DeleteRuntimeClass(snapshot.runtime_class))
    return [*actions, SetFinalizer(shim, present=False, message=message)]


def _status(snapshot: Snapshot) -> list[Action]:
    shim = snapshot.shim
    counts = _counts(snapshot)
    conditions = (_available(shim, counts), _progressing(snapshot, counts), _degraded(snapshot))
    former = {condition.type: condition for condition in snapshot.status.conditions}
    dated = tuple(_dated(condition, former.get(condition.type), snapshot) for condition in conditions)
    status = Status(counts, dated, shim.generation)
    if status == snapshot.status:
        return []
    actions: list[Action] = [WriteStatus(shim, status)]
    degraded = dated[2]
    was = former.get(degraded.type)
    if degraded.status == "True" and (was is None or (was.status, was.reason) != (degraded.status, degraded.reason)):
        actions.append(WarnShim(shim, degraded.reason, degraded.message))
    return actions


def _counts(snapshot: Snapshot) -> Counts:
    name = snapshot.shim.name
    ready = updated = failed = 0
    for node, wish in snapshot.wishes:
        has = installed_on(node).get(name)
        ready += has is not None
        updated += isinstance(wish, ShimWish) and has == wish.digest
        failed += node.failed is not None and isinstance(wish, ShimWish) and has != wish.digest
    return Counts(len(snapshot.wishes), ready, updated, failed)


def _available(shim: ShimView, counts: Counts) -> Condition:
    if shim.invalid:
        return Condition("Available", "False", Refusal.INVALID.value, shim.invalid)
    if not counts.nodes:
        return Condition("Available", "False", Reason.NO_NODES.value, "no node is to have this Shim")
    text = f"{counts.ready} of {counts.nodes} nodes run it"
    if counts.ready == counts.nodes:
        return Condition("Available", "True", Reason.ALL_READY.value, text)
    return Condition("Available", "False", Reason.NOT_ALL_READY.value, text)


def _progressing(snapshot: Snapshot, counts: Counts) -> Condition:
    """Say how far the rollout is; False once there is nothing left to do, or nothing may be done."""
    shim, kind = snapshot.shim, "Progressing"
    at_work = f"{len(snapshot.in_work)} in work{_away(snapshot)}"
    text = f"{counts.updated} of {counts.nodes} nodes have this version, {at_work}"
    if shim.deleting:
        text = f"{len(snapshot.holders)} nodes still have it, {at_work}"
        return Condition(kind, "True", Reason.REMOVING.value, text)
    if counts.updated == counts.nodes and not snapshot.leaving:
        return Condition(kind, "False", Reason.UPDATED.value, text)
    if shim.paused:
        return Condition(kind, "False", Reason.PAUSED.value, f"paused by spec.paused: {text}")
    if snapshot.halted:
        return Condition(kind, "False", Reason.HALTED.value, f"too many nodes fail, no further one is begun: {text}")
    return Condition(kind, "True", Reason.UPDATING.value, text)


def _away(snapshot: Snapshot) -> str:
    """Return which nodes are still to be worked on and are not ready, as the end of a sentence; "" if none."""
    todo = [node for node, wish in snapshot.wishes if not _has(snapshot.shim, node, wish)]
    away = [node for node in (*todo, *snapshot.leaving) if not node.ready]
    return f"; not ready, so not now: {_listed(away)}" if away else ""


def _degraded(snapshot: Snapshot) -> Condition:
    """Say what keeps nodes from having the Shim, the worst first."""
    shim, kind = snapshot.shim, "Degraded"
    if shim.invalid:
        return Condition(kind, "True", Refusal.INVALID.value, f"{shim.invalid}: mend the spec")
    if conflict := _conflict(snapshot):
        return Condition(kind, "True", Reason.RUNTIME_CLASS_CONFLICT.value, conflict)
    refused: dict[Refusal, list[NodeView]] = {}
    for node, wish in snapshot.wishes:
        if isinstance(wish, Refusal):
            refused.setdefault(wish, []).append(node)
    if nodes := refused.get(Refusal.UNVERIFIED):
        message = (
            "the source has no sha256 (or the image no digest), so nothing is installed: add it, or allow it for all "
            f"Shims with TRELLIS_REQUIRE_CHECKSUM=false; {_listed(nodes)}"
        )
        return Condition(kind, "True", Refusal.UNVERIFIED.value, message)
    if nodes := refused.get(Refusal.NO_SOURCE):
        archs = ", ".join(sorted({node.architecture or "unknown" for node in nodes}))
        message = f"spec.fetchStrategy has no source for linux/{archs}: {_listed(nodes)}"
        return Condition(kind, "True", Refusal.NO_SOURCE.value, message)
    failing = [node for node, wish in snapshot.wishes if node.failed and not _has(shim, node, wish)]
    if failing:
        first = failing[0]
        message = f"the last attempt failed on {_listed(failing)}; {first.name}: {first.failure or 'no reason given'}"
        return Condition(kind, "True", Reason.FAILING.value, message)
    return Condition(kind, "False", Reason.HEALTHY.value, "")


def _has(shim: ShimView, node: NodeView, wish: ShimWish | Refusal) -> bool:
    return isinstance(wish, ShimWish) and installed_on(node).get(shim.name) == wish.digest


def _listed(nodes: Iterable[NodeView]) -> str:
    known = sorted(node.name for node in nodes)
    more = len(known) - _NAMED
    return ", ".join(known[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _dated(condition: Condition, former: Condition | None, snapshot: Snapshot) -> Condition:
    """Return the condition with the time of its last change of status, as the API conventions have it."""
    same = former is not None and former.status == condition.status and bool(former.since)
    since = former.since if same and former else snapshot.now
    return replace(condition, since=since, observed_generation=snapshot.shim.generation)


def wanted_selector(shim: ShimView) -> tuple[tuple[str, str], ...]:
    """Return the label that nodes bear once they were proved to run the Shim."""
    return ((names.shim_label(shim.name), names.SHIM_PROVISIONED),)


def _differs(shim: ShimView, found: RuntimeClassView | None) -> bool:
    if found is None or found.owner != shim.uid:
        return True
    wanted = (shim.handler, shim.overhead, wanted_selector(shim))
    return wanted != (found.handler, found.overhead, found.selector)


def _conflict(snapshot: Snapshot) -> str:
    """Return why the RuntimeClass cannot be ours; one of nobody's that says the same is taken over."""
    shim, found = snapshot.shim, snapshot.runtime_class
    if found is None or found.owner == shim.uid or (not found.owner and found.handler == shim.handler):
        return ""
    of = "another Shim's" if found.owner else f"somebody else's (handler {found.handler!r})"
    return f"RuntimeClass {found.name} is {of}: name another in spec.runtimeClass.name, or delete it"
