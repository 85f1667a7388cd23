"""Which nodes may be worked on now: the rollout limit, retries and the halt, for the whole cluster at once.

Pure. In: all nodes, all installer Jobs, the ledger, the limits, the time. Out: the next ledger and what changed.
Called by ``app`` with the planner's own key; the ledger is then written by compare-and-swap before any Job exists.
Invariants: never more entries than the limit allows, unless work was already under way when the limit sank; a slot is
free only when proof or failure is recorded on the Node, or the Node is gone; nothing is begun while halted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from trellis.counts import CountOrPercent
from trellis.names import short_hash
from trellis.provisioning import FailedAttempt, JobState, JobView, NodeView, Wish, newest, wish_of

SUPPORTED_OS = "linux"
HELD_SECONDS = 0.2
"""When to look again at a node that is held back."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One node in work: what is installed, which attempt, since when (Unix seconds)."""

    digest: str
    attempt: int
    since: int


@dataclass(frozen=True, slots=True)
class Ledger:
    """The nodes in work by Node uid, the digest whose rollout is halted, and the one of whose halt the bus was told."""

    entries: Mapping[str, Entry]
    halted: str | None = None
    told: str | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """What the rollout is held to. Times in seconds."""

    max_unavailable: CountOrPercent
    halt_after: int
    retry_min: float
    retry_max: float


@dataclass(frozen=True, slots=True)
class World:
    """All that a plan may depend on; ``now`` in Unix seconds. ``held``: nodes not to be begun this very moment."""

    nodes: tuple[NodeView, ...]
    jobs: Mapping[str, tuple[JobView, ...]]
    ledger: Ledger
    digest: str
    limits: Limits
    auto_provision: bool
    now: float
    held: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Plan:
    """The next ledger, and how it differs from the one before. ``wake_in``: seconds until a retry is due."""

    ledger: Ledger
    claimed: tuple[NodeView, ...] = ()
    released: tuple[str, ...] = ()
    failing: int = 0
    waiting: tuple[NodeView, ...] = ()
    wake_in: float | None = None


def plan(world: World) -> Plan:
    """Return who keeps a slot, who gets one and when to look again."""
    wanted = {node.uid: node for node in world.nodes if _wants(node, world)}
    entries = _kept(world, wanted)
    released = tuple(sorted(uid for uid in world.ledger.entries if uid not in entries))
    entries |= _adopted(world, entries)
    failing = sum(1 for node in wanted.values() if _failure(node, world.digest))
    halted = bool(world.limits.halt_after) and failing >= world.limits.halt_after
    fresh, retries, wake_in = _candidates(world, wanted, entries)
    eligible = retries if halted else [*fresh, *retries]
    slots = max(0, world.limits.max_unavailable.resolve(len(wanted)) - len(entries))
    claimed = eligible[:slots]
    for node in claimed:
        entries[node.uid] = Entry(world.digest, next_attempt(node, world.digest), int(world.now))
    return Plan(
        Ledger(entries, world.digest if halted else None, world.ledger.told),
        claimed=tuple(claimed),
        released=released,
        failing=failing,
        waiting=tuple(node for node in (*fresh, *retries) if node.uid not in entries),
        wake_in=wake_in,
    )


def next_attempt(node: NodeView, digest: str) -> int:
    """Return the number of the next try of a digest on a node: 1 for the first, or after the digest changed."""
    failure = _failure(node, digest)
    return failure.attempt + 1 if failure else 1


def retry_at(node_uid: str, failure: FailedAttempt, limits: Limits) -> float:
    """Return when a failed node may be tried again, in Unix seconds.

    Doubles from ``retry_min`` to ``retry_max`` with jitter over the upper half; the jitter comes from the node's uid
    and the attempt, so that every replica works out the same time and a restart changes nothing.
    """
    full: float = min(limits.retry_max, limits.retry_min * 2 ** min(failure.attempt - 1, 30))
    share = int(short_hash(node_uid, str(failure.attempt)), 16) / 16**10
    return failure.at + full * (0.5 + 0.5 * share)


def _wants(node: NodeView, world: World) -> bool:
    wish = wish_of(node, auto_provision=world.auto_provision)
    return wish is Wish.IN and node.operating_system == SUPPORTED_OS


def _failure(node: NodeView, digest: str) -> FailedAttempt | None:
    """Return the failure recorded for this digest, unless the digest is proved by now."""
    failure = node.failed
    return failure if failure and failure.digest == digest and node.marked_digest != digest else None


def _kept(world: World, wanted: Mapping[str, NodeView]) -> dict[str, Entry]:
    """Return the entries whose work is not yet recorded as done or failed."""
    nodes = {node.uid: node for node in world.nodes}
    kept: dict[str, Entry] = {}
    for uid, entry in world.ledger.entries.items():
        node = nodes.get(uid)
        if node is None or _recorded(node, entry):
            continue
        jobs = world.jobs.get(uid, ())
        under_way = any(job.state is JobState.ACTIVE or job.deleting for job in jobs)
        unfinished = bool(newest(jobs)) or under_way
        if (uid in wanted and entry.digest == world.digest) or (unfinished if uid in wanted else under_way):
            kept[uid] = entry
    return kept


def _recorded(node: NodeView, entry: Entry) -> bool:
    """Say whether proof or failure of exactly this try stands on the Node."""
    if node.marked_digest == entry.digest:
        return True
    failure = node.failed
    return failure is not None and (failure.digest, failure.attempt) == (entry.digest, entry.attempt)


def _adopted(world: World, entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """Return entries for Jobs that run without one: a lost ledger must not let a second wave begin."""
    adopted: dict[str, Entry] = {}
    for node in world.nodes:
        job = newest(world.jobs.get(node.uid, ())) if node.uid not in entries else None
        if job is None:
            continue
        entry = Entry(job.digest, job.attempt, job.created_at)
        if job.state is JobState.ACTIVE or (not _recorded(node, entry) and _wants(node, world)):
            adopted[node.uid] = entry
    return adopted


def _candidates(
    world: World, wanted: Mapping[str, NodeView], entries: Mapping[str, Entry]
) -> tuple[list[NodeView], list[NodeView], float | None]:
    """Return first tries by name, retries that are due by time, and the seconds until the next one is."""
    fresh: list[NodeView] = []
    due: list[tuple[float, NodeView]] = []
    later: list[float] = []
    for node in _by_name(wanted.values()):
        if node.uid in entries or node.marked_digest == world.digest:
            continue
        if node.uid in world.held:
            later.append(HELD_SECONDS)
            continue
        failure = _failure(node, world.digest)
        if failure is None:
            fresh.append(node)
            continue
        at = retry_at(node.uid, failure, world.limits)
        # A failure "in the future" comes from a clock that was set back: waiting for it could take for ever.
        if at <= world.now or failure.at > world.now + world.limits.retry_max:
            due.append((at, node))
        else:
            later.append(at - world.now)
    retries = [node for _, node in sorted(due, key=lambda pair: (pair[0], pair[1].name))]
    return fresh, retries, min(later, default=None)


def _by_name(nodes: Iterable[NodeView]) -> list[NodeView]:
    return sorted(nodes, key=lambda node: node.name)
