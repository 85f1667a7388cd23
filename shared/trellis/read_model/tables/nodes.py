"""Where each node stands, as a row that people and programs can read.

Pure. In: views of Nodes and installer Jobs, the rollout ledger. Out: a row a node. Called by ``trellis nodes``,
``trellis status`` and the demo. Invariant: a row says what is written in the cluster; what only a service's own
settings could tell (auto-provisioning) is not guessed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from trellis import names
from trellis.provisioning.ledger import Entry, Ledger
from trellis.provisioning.shims import ShimView, is_for
from trellis.provisioning.views import (
    SUPPORTED_OS,
    FailedAttempt,
    JobState,
    JobView,
    NodeView,
    OptIn,
    newest,
    opt_in_of,
    proved_of,
)

KUBELET_AWAY: Final = "its kubelet does not report it ready, so nothing is begun on it"
MESSAGE_MAX: Final = 200
"""Longest message of a row, in characters: the whole text stands on the Node."""


class NodeState(StrEnum):
    """How far a node is on its way to run Wasm, in the order of that way."""

    NOT_OPTED_IN = "NotOptedIn"
    INVALID_ANNOTATION = "InvalidAnnotation"
    WAITING = "Waiting"
    PROVISIONING = "Provisioning"
    VERIFYING = "Verifying"
    READY = "Ready"
    FAILED = "Failed"


UNDONE: Final = frozenset({NodeState.WAITING, NodeState.PROVISIONING, NodeState.VERIFYING})
"""States of nodes that neither failed nor are done."""
_WORDS: Final[Mapping[NodeState, str]] = {
    NodeState.READY: "ready",
    NodeState.PROVISIONING: "provisioning",
    NodeState.VERIFYING: "verifying",
    NodeState.WAITING: "waiting",
    NodeState.FAILED: "failed",
    NodeState.INVALID_ANNOTATION: "with an invalid annotation",
    NodeState.NOT_OPTED_IN: "not opted in",
}


_OPT_IN: Final[Mapping[Wish, str]] = {Wish.IN: "true", Wish.OUT: "false", Wish.INVALID: "invalid"}


@dataclass(frozen=True, slots=True)
class NodeRow:
    """One node. ``by`` says what the wish comes from: ``Annotation``, ``Shim`` for a nodeSelector, "" for neither.

    ``digest`` and ``attempt`` are those of the work under way, else of what is proved, else of the last failure.
    ``message`` is one line: why the last attempt failed, or what keeps the node back.
    """

    name: str
    wish: OptIn
    by: str
    state: NodeState
    verified: str | None = None
    digest: str | None = None
    attempt: int | None = None
    message: str = ""
    kubelet_ready: bool = True
    concern: bool = True
    """Whether the node has to do with Wasm at all: opted in, invalid, marked, in work or failed."""

    @property
    def opt_in(self) -> str:
        """``true``, ``false`` or ``invalid``."""
        return _OPT_IN[self.wish]

    def document(self) -> dict[str, object]:
        """Return the row for JSON; absent values are null."""
        return {
            "name": self.name,
            "opt_in": self.opt_in,
            "opted_in_by": self.by or None,
            "state": self.state.value,
            "verified": self.verified,
            "digest": self.digest,
            "attempt": self.attempt,
            "message": self.message or None,
        }


def rows_of(
    nodes: Iterable[NodeView],
    jobs: Mapping[str, tuple[JobView, ...]],
    ledger: Ledger,
    shims: Collection[ShimView] = (),
) -> list[NodeRow]:
    """Return a row for each node, by name. ``jobs`` are keyed by the uid of their Node."""
    return [
        row_of(node, jobs.get(node.uid, ()), ledger.entries.get(node.uid), shims)
        for node in sorted(nodes, key=lambda node: node.name)
    ]


def row_of(node: NodeView, jobs: tuple[JobView, ...], entry: Entry | None, shims: Collection[ShimView] = ()) -> NodeRow:
    """Return the row of one node, its Jobs and its slot in the ledger; ``shims``: those whose nodeSelectors count."""
    job = newest(jobs)
    entry = entry if entry is not None and not _recorded(node, entry) else None
    chosen = any(is_for(shim, node, auto_provision=False) for shim in shims)
    touched = chosen or node.bears_marks or job is not None or entry is not None
    # Without annotation and Shim only auto-provisioning, or an opting out of this very moment, leaves traces on a node.
    wish = opt_in_of(node, auto_provision=touched)
    state = _state(node, job, entry) if wish is OptIn.IN else _apart(wish)
    current = _current(node, job, entry)
    return NodeRow(
        name=node.name,
        wish=wish,
        by="Annotation" if node.opt_in is not None else "Shim" if chosen else "",
        state=state,
        verified=node.proof.value if node.proof and node.marked_digest else None,
        digest=current[0] if current else None,
        attempt=current[1] if current else None,
        message=_one_line(_message(node, job, state)),
        kubelet_ready=node.ready,
        concern=touched or wish is not OptIn.OUT,
    )


def with_causes(rows: Iterable[NodeRow], held: Mapping[str, str]) -> list[NodeRow]:
    """Return the rows with what keeps nodes that are not done from going on; ``held``: by name of a node."""
    return [
        replace(row, message=" ".join(held[row.name].split()))  # whole: a policy's own words come last
        if row.state in UNDONE and not row.message and row.name in held
        else row
        for row in rows
    ]


def tally(rows: Iterable[NodeRow]) -> dict[NodeState, int]:
    """Return how many nodes are in each state, for every state there is."""
    counted = Counter(row.state for row in rows)
    return {state: counted[state] for state in NodeState}


def summary(rows: Sequence[NodeRow]) -> str:
    """Return one line: ``12 ready, 3 provisioning, 1 failed``."""
    counted = tally(rows)
    return ", ".join(f"{counted[state]} {word}" for state, word in _WORDS.items() if counted[state]) or "no nodes"


def _recorded(node: NodeView, entry: Entry) -> bool:
    """Say whether proof or failure of exactly this slot stands on the Node: then the slot is about to be freed."""
    failure = node.failed
    return node.marked_digest == entry.digest or (
        failure is not None and (failure.digest, failure.attempt) == (entry.digest, entry.attempt)
    )


def _apart(wish: OptIn) -> NodeState:
    return NodeState.INVALID_ANNOTATION if wish is OptIn.INVALID else NodeState.NOT_OPTED_IN


def _state(node: NodeView, job: JobView | None, entry: Entry | None) -> NodeState:
    """Return the state of a node that is to run Wasm: work under way comes before what was, failure before proof."""
    if job is not None and job.digest != node.marked_digest:
        if job.state is JobState.ACTIVE:
            return NodeState.PROVISIONING
        if job.state is JobState.COMPLETE and job.failure is None:
            return NodeState.VERIFYING
        if entry is None or (entry.digest, entry.attempt) == (job.digest, job.attempt):
            return NodeState.FAILED
    if entry is not None:
        return NodeState.PROVISIONING
    if _failure(node) is not None:
        return NodeState.FAILED
    # What is there and not proved (ADR 29) is not what anybody may run on.
    return NodeState.READY if proved_of(node.installed) else NodeState.WAITING


def _failure(node: NodeView) -> FailedAttempt | None:
    """Return the recorded failure, unless what failed is proved by now."""
    failure = node.failed
    return failure if failure is not None and failure.digest != node.marked_digest else None


def _current(node: NodeView, job: JobView | None, entry: Entry | None) -> tuple[str, int | None] | None:
    """Return digest and attempt of what the row is about."""
    if entry is not None:
        return entry.digest, entry.attempt
    if job is not None and job.digest != node.marked_digest:
        return job.digest, job.attempt
    if failure := _failure(node):
        return failure.digest, failure.attempt
    return (node.marked_digest, None) if node.marked_digest else None


def _message(node: NodeView, job: JobView | None, state: NodeState) -> str:
    match state:
        case NodeState.FAILED:
            return (node.failure if _failure(node) else None) or _verdict(job) or "the last attempt failed"
        case NodeState.INVALID_ANNOTATION:
            return f"{names.ANNOTATION_OPT_IN} has {node.opt_in!r}: use 'true' or 'false'"
        case NodeState.WAITING if node.operating_system != SUPPORTED_OS:
            return f"only {SUPPORTED_OS} nodes are provisioned, this one runs {node.operating_system}"
        case NodeState.WAITING | NodeState.PROVISIONING if node.skip is not None:
            return f"{node.skip.reason.value}: {node.skip.message}"
        case NodeState.WAITING | NodeState.PROVISIONING if not node.ready:
            return KUBELET_AWAY
        case NodeState.NOT_OPTED_IN if node.bears_marks or job is not None:
            return "marks or Jobs of ours are still to be removed"
        case _:
            return ""


def _verdict(job: JobView | None) -> str | None:
    return (job.failure or job.condition) if job is not None else None


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MESSAGE_MAX else f"{line[: MESSAGE_MAX - 1]}…"
