"""Decides which nodes may start now: the rollout limits, retries and the halt, for the whole cluster at once.

Pure. In: the nodes with work to do or in progress, the target of each, all installer Jobs, the ledger, the limits, the
time. Out: the next ledger and its changes. Called by ``planner`` with its own key; the ledger is then written by
compare-and-swap before any Job exists. Invariants: no shim has more nodes in progress than its limit allows, unless
work was already in progress when the limit was lowered; a slot is free only when success or failure is recorded on the
Node, the Node is deleted, or only a stuck Job has it; no installation of a shim starts while it is halted or paused; a
removal waits for neither, only for the limit; a skipped node is not started, and counts for no limit; a node begins
only while the pods on changed nodes are as ready as before (``pod_readiness``), and its own pods are recorded first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from provisioner.domain.fleet import rests
from provisioner.domain.job_clock import at_work
from provisioner.domain.pod_readiness import Judgement, Work, Workloads, baseline_of, judge
from provisioner.domain.slots import Slots
from provisioner.timings import Timings
from trellis.crds.shim import WorkloadPolicy
from trellis.provisioning.attempts import (
    Retries,
    ShimLimits,
    changes_of,
    difference,
    failing_on,
    failure_of,
    is_acknowledged,
    next_attempt,
    permitted_target,
    retry_at,
)
from trellis.provisioning.ledger import Entry, Ledger, target_of_slot
from trellis.provisioning.leftovers import concerned_by, fulfilled, left_by, overtaken
from trellis.provisioning.views import FailedAttempt, JobState, JobView, NodeView, Target, newest, without_changes_to
from trellis.provisioning.workload_state import Baseline, size_of


@dataclass(frozen=True, slots=True)
class FleetSnapshot:
    """Input of a plan; ``now`` in Unix seconds.

    ``nodes``: at least those with work to do or in progress; ``resting``: by shim, how many of the remaining nodes have
    it. ``targets``: by Node UID, for every one of ``nodes`` that is to have or lose a shim. ``blocked``: nodes that do
    not start now, evaluated again after ``blocked_retry`` seconds; ``other_controller``: nodes that do not start while
    another controller works there. ``settles_in``: seconds in which no node starts, as more Shims may be applied.
    ``in_progress``: slots whose Jobs were requested but are in ``jobs`` not yet, or never: no other node gets these.
    ``unconfirmed``: by Node UID, shims that a deleted Job may have left there; such a node is in ``nodes`` as if its
    marks named them. ``shims_unknown``: Shims cannot be listed although something names them: no plan is allowed.
    ``stuck``: UIDs of Jobs that should have ended; ``stuck_in``: seconds until the next one is.
    ``workloads``: the pods of the Shims that evaluate them.
    """

    nodes: tuple[NodeView, ...]
    targets: Mapping[str, Target]
    jobs: Mapping[str, tuple[JobView, ...]]
    ledger: Ledger
    limits: Mapping[str, ShimLimits]
    retries: Retries
    now: float
    blocked: frozenset[str] = frozenset()
    settles_in: float = 0.0
    other_controller: frozenset[str] = frozenset()
    in_progress: Mapping[str, Entry] = field(default_factory=dict)
    unconfirmed: Mapping[str, frozenset[str]] = field(default_factory=dict)
    stuck: frozenset[str] = frozenset()
    stuck_in: float | None = None
    blocked_retry: float = Timings().blocked
    resting: Mapping[str, int] = field(default_factory=dict)
    shims_unknown: bool = False
    workloads: Workloads = field(default_factory=Workloads)


@dataclass(frozen=True, slots=True)
class Plan:
    """The next ledger, and how it differs from the one before. ``wake_in``: seconds until time alone changes it.

    ``unconfirmed``: nodes whose slot has another purpose now, and on which the effect of a deleted Job is unknown.
    ``judgements``: by Shim, what its pods permit.
    """

    ledger: Ledger
    claimed: tuple[NodeView, ...] = ()
    unconfirmed: tuple[NodeView, ...] = ()
    released: tuple[str, ...] = ()
    failing: Mapping[str, int] = field(default_factory=dict)
    waiting: tuple[NodeView, ...] = ()
    wake_in: float | None = None
    judgements: Mapping[str, Judgement] = field(default_factory=dict)


def plan(snapshot: FleetSnapshot) -> Plan:
    """Return the nodes that keep or get a slot, and the time of the next plan."""
    wanted = {
        node.uid: node
        for node in snapshot.nodes
        if node.uid in snapshot.targets and node.skip is None and not rests(node, snapshot.targets[node.uid])
    }
    entries = _kept(snapshot) | {
        node.uid: snapshot.in_progress[node.uid] for node in snapshot.nodes if node.uid in snapshot.in_progress
    }
    released = tuple(sorted(uid for uid in snapshot.ledger.entries if uid not in entries))
    entries |= _adopted(snapshot, entries)
    judgements = _judgements(snapshot, wanted, entries)
    before = _permitted_targets(snapshot, wanted, snapshot.ledger.halted, judgements)
    failing = _failing(snapshot, wanted, before)
    over = {name for name, limits in snapshot.limits.items() if 0 < limits.halt_after <= failing.get(name, 0)}
    halted = tuple(sorted(over | {name for name, item in judgements.items() if item.state.halt is not None}))
    permitted = before if halted == snapshot.ledger.halted else _permitted_targets(snapshot, wanted, halted, judgements)
    permitted = _removals_first(wanted, permitted, judgements)
    fresh, retries, wake_in = _candidates(snapshot, wanted, permitted, entries, judgements)
    idle = {node.uid for node in snapshot.nodes if node.uid in entries and _is_idle(snapshot, node)}
    baselines = {name: dict(item.state.baselines) for name, item in judgements.items()}
    recorded = sum(size_of(item) for of_shim in baselines.values() for item in of_shim.values())
    slots = Slots(snapshot.limits, entries, lambda: _total(snapshot), idle, recorded)
    claimed = []
    for node in (*fresh, *retries):
        target = permitted[node.uid]
        changes = changes_of(node, target)
        of_node = _baselines(snapshot, node, changes, judgements)
        if slots.take(node.uid, changes, sum(map(size_of, of_node.values()))):
            claimed.append(node)
            entries[node.uid] = Entry(target.digest, next_attempt(node, target), int(snapshot.now), changes)
            for name, baseline in of_node.items():
                baselines[name][node.uid] = baseline
    states = {name: replace(item.state, baselines=baselines[name]) for name, item in judgements.items()}
    wakes = (wake_in, snapshot.stuck_in, *(item.wake_in for item in judgements.values()))
    return Plan(
        Ledger(
            entries,
            halted,
            snapshot.ledger.halts_published,
            workloads={name: state for name, state in states.items() if not state.is_empty},
        ),
        claimed=tuple(claimed),
        unconfirmed=tuple(
            node for node in snapshot.nodes if node.uid in snapshot.unconfirmed and _is_new(snapshot, entries, node.uid)
        ),
        released=released,
        failing=failing,
        waiting=tuple(node for node in (*fresh, *retries) if node.uid not in entries),
        wake_in=min((seconds for seconds in wakes if seconds is not None), default=None),
        judgements=judgements,
    )


def _judgements(
    snapshot: FleetSnapshot, wanted: Mapping[str, NodeView], entries: Mapping[str, Entry]
) -> dict[str, Judgement]:
    """Return by Shim what its pods permit, for each Shim that does not ignore them."""
    nodes, former = {node.uid: node.name for node in snapshot.nodes}, snapshot.ledger
    latest = snapshot.now + snapshot.retries.most
    found = {}
    for name, limits in snapshot.limits.items():
        if limits.workloads is WorkloadPolicy.IGNORE:
            continue
        work = Work(
            {uid: nodes.get(uid, "") for uid, entry in entries.items() if name in entry.shims},
            any(name in entry.shims and uid not in entries for uid, entry in former.entries.items()),
            snapshot.workloads.by_class is None
            and any(_has_to_change(node, snapshot.targets[uid], name) for uid, node in wanted.items()),
            latest,
        )
        found[name] = judge(limits, former.workloads.get(name), snapshot.workloads, work, snapshot.now)
    return found


def _has_to_change(node: NodeView, target: Target, name: str) -> bool:
    """Return whether another version of a Shim is to be installed on a node that has one."""
    return name in node.installed and dict(target.shims).get(name, node.installed[name]) != node.installed[name]


def _baselines(
    snapshot: FleetSnapshot, node: NodeView, changes: Collection[str], judgements: Mapping[str, Judgement]
) -> dict[str, Baseline]:
    """Return by Shim how ready its pods are on a node that begins; a repeated attempt keeps the first record."""
    found = {}
    for name in changes:
        judgement = judgements.get(name)
        if judgement is None or judgement.pods is None or node.uid in judgement.state.baselines:
            continue
        baseline = baseline_of(node.name, judgement.pods, snapshot.workloads.settle, snapshot.now)
        if baseline.owners:
            found[name] = baseline
    return found


def _is_idle(snapshot: FleetSnapshot, node: NodeView) -> bool:
    """Return whether a node with an entry holds no slot: its Jobs are stuck, or none may be started there.

    The entry stays: it is the record of the node until the Job has ended or the mark is removed.
    """
    live = [job for job in snapshot.jobs.get(node.uid, ()) if at_work(job)]
    if live:
        return all(job.uid in snapshot.stuck for job in live)
    if (job := newest(snapshot.jobs.get(node.uid, ()))) is not None and job.uid in snapshot.stuck:
        return True  # its Node cannot be labelled
    return node.skip is not None and node.uid in snapshot.unconfirmed and node.uid not in snapshot.in_progress


def _permitted_targets(
    snapshot: FleetSnapshot,
    wanted: Mapping[str, NodeView],
    halted: Collection[str],
    judgements: Mapping[str, Judgement],
) -> dict[str, Target]:
    """Return the permitted part of each target. A halt for pods does not keep a node with such pods from a change."""
    exempt: dict[str, set[str]] = {}
    for name, judgement in judgements.items():
        for uid in judgement.state.baselines if judgement.state.halt is not None else ():
            exempt.setdefault(uid, set()).add(name)
    return {
        uid: permitted_target(node, snapshot.targets[uid], snapshot.limits, {*halted} - exempt.get(uid, set()))
        for uid, node in wanted.items()
    }


def _total(snapshot: FleetSnapshot) -> Counter[str]:
    """Return the number of nodes that are to have each shim, or to lose it."""
    nodes = (node for node in snapshot.nodes if node.uid in snapshot.targets and node.skip is None)
    wanted = [(node, snapshot.targets[node.uid]) for node in nodes]
    total = Counter(name for node, target in wanted for name in {*dict(target.shims), *changes_of(node, target)})
    total.update(snapshot.resting)
    return total


def _failing(
    snapshot: FleetSnapshot, wanted: Mapping[str, NodeView], permitted: Mapping[str, Target]
) -> dict[str, int]:
    """Return by shim the number of nodes whose last attempt at their target failed, without acknowledged failures."""
    return Counter(
        name
        for uid, node in wanted.items()
        if node.failed
        for name in failing_on(node, snapshot.targets[uid], permitted[uid])
        if not _is_acknowledged(snapshot, name, node.failed)
    )


def _is_acknowledged(snapshot: FleetSnapshot, shim: str, failure: FailedAttempt) -> bool:
    """Return whether a user acknowledged this failure by resuming the rollout.

    A time in the future, by more than the tolerance for clocks, would disable the halt: it is ignored.
    """
    return is_acknowledged(snapshot.limits.get(shim), failure, snapshot.now + snapshot.retries.most)


def _kept(snapshot: FleetSnapshot) -> dict[str, Entry]:
    """Return the entries whose work is not yet recorded as done or failed."""
    nodes = {node.uid: node for node in snapshot.nodes}
    kept: dict[str, Entry] = {}
    for uid, entry in snapshot.ledger.entries.items():
        node = nodes.get(uid)
        jobs = snapshot.jobs.get(uid, ())
        if node is not None and (unconfirmed := snapshot.unconfirmed.get(uid)) is not None:
            kept[uid] = _unconfirmed_entry(snapshot, node, entry, unconfirmed)
            continue
        if node is None or _recorded(node, entry, jobs):
            continue
        if (uid in snapshot.blocked or uid in snapshot.other_controller) and not jobs:
            continue  # it waits for another condition: other nodes may go first
        if any(map(at_work, jobs)):
            kept[uid] = entry
            continue
        target, job = snapshot.targets.get(uid), newest(jobs)
        requested = target_of_slot(node, target, entry)
        # A removal leaves no mark, and its Job is deleted when it is done: no change remains then.
        # On a skipped node nothing is started, so only the end of a former Job matters.
        may = node.skip is None and requested is not None and entry.digest == requested.digest
        to_do = may and requested is not None and bool(changes_of(node, requested))
        # An older Job does not count: it would keep the slot of an attempt that is no longer made.
        its = job is not None and (job.digest, job.attempt) == (entry.digest, entry.attempt)
        current = to_do or (requested is not None and its and not overtaken(job, node, requested))
        if current or left_by(job, node):
            kept[uid] = entry
    return kept


def _unconfirmed_entry(snapshot: FleetSnapshot, node: NodeView, entry: Entry, unconfirmed: frozenset[str]) -> Entry:
    """Return the slot of an attempt whose Job was deleted, for the present target: it is not released in between.

    Shims that it may have left are reinstalled if they are still wanted, otherwise removed.
    """
    permitted = permitted_target(node, snapshot.targets[node.uid], snapshot.limits, snapshot.ledger.halted)
    target = target_of_slot(node, permitted, entry) or permitted
    shims = {*changes_of(node, target), *unconfirmed}
    if entry.digest == target.digest and shims <= {*entry.shims}:
        return entry
    return Entry(target.digest, next_attempt(node, target), entry.since, tuple(sorted(shims)), unconfirmed=True)


def _is_new(snapshot: FleetSnapshot, entries: Mapping[str, Entry], uid: str) -> bool:
    return entries.get(uid) != snapshot.ledger.entries.get(uid)


def _recorded(node: NodeView, entry: Entry, jobs: tuple[JobView, ...]) -> bool:
    """Return whether the Node records success or failure of exactly this attempt.

    A removal succeeded when the Node no longer names the Shims.
    """
    job = newest(jobs)
    if job and (job.digest, job.attempt) == (entry.digest, entry.attempt) and fulfilled(job, node):
        return True
    return entry.is_recorded_on(node)


def _adopted(snapshot: FleetSnapshot, entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """Return entries for Jobs that run without one: a lost ledger must not start a second wave."""
    adopted: dict[str, Entry] = {}
    for node in (node for node in snapshot.nodes if node.uid in snapshot.jobs and node.uid not in entries):
        jobs = snapshot.jobs[node.uid]
        job = newest(jobs)
        if job is None:
            continue
        target = snapshot.targets.get(node.uid)
        shims = difference(node.installed, job.shims) or tuple(sorted(concerned_by(job)))
        entry = Entry(job.digest, job.attempt, job.created_at, shims)
        at_work = job.state is JobState.ACTIVE and job.failure is None
        waits = left_by(job, node) or (target is not None and not overtaken(job, node, target))
        if at_work or (waits and not _recorded(node, entry, jobs)):
            adopted[node.uid] = entry
    return adopted


def _candidates(
    snapshot: FleetSnapshot,
    wanted: Mapping[str, NodeView],
    permitted: Mapping[str, Target],
    entries: Mapping[str, Entry],
    judgements: Mapping[str, Judgement],
) -> tuple[list[NodeView], list[NodeView], float | None]:
    """Return first attempts by name, retries that are due by time, and the seconds until the next one is.

    A node that waits for pods of one Shim waits with its other Shims, too: its runtime is restarted once for all.
    """
    fresh: list[NodeView] = []
    due: list[tuple[float, NodeView]] = []
    later: list[float] = []
    for node in sorted(wanted.values(), key=lambda node: node.name):
        target = permitted[node.uid]
        # No pod starts on a node that is not ready. Its change, or the end of another controller's work, causes a plan.
        if (
            node.uid in entries
            or not node.ready
            or node.uid in snapshot.other_controller
            or not changes_of(node, target)
        ):
            continue
        if _waits_for_pods(node, target, judgements):
            continue
        if any(map(at_work, snapshot.jobs.get(node.uid, ()))):
            continue  # a Job that was judged by the clock may still run there: its end causes a plan
        if node.uid in snapshot.blocked or snapshot.settles_in:
            later.append(snapshot.settles_in or snapshot.blocked_retry)
            continue
        failure = failure_of(node, target)
        if failure is None:
            fresh.append(node)
            continue
        at = retry_at(node.uid, failure, snapshot.retries)
        if any(_is_acknowledged(snapshot, name, failure) for name in changes_of(node, target)):
            at = min(at, snapshot.now)
        # A failure "in the future" comes from a clock that was set back: the wait for it could be endless.
        if at <= snapshot.now or failure.at > snapshot.now + snapshot.retries.most:
            due.append((at, node))
        else:
            later.append(at - snapshot.now)
    retries = [node for _, node in sorted(due, key=lambda pair: (pair[0], pair[1].name))]
    return fresh, retries, min(later, default=None)


def _removals_first(
    wanted: Mapping[str, NodeView], permitted: Mapping[str, Target], judgements: Mapping[str, Judgement]
) -> dict[str, Target]:
    """Return the targets of nodes; a removal does not wait for the pods of another Shim on its node."""
    found = dict(permitted)
    if all(judgement.open for judgement in judgements.values()):
        return found
    for uid, node in wanted.items():
        target = found[uid]
        changes, there = changes_of(node, target), dict(target.shims)
        held = [name for name in changes if name in there and name in judgements and judgements[name].holds(uid)]
        if held and any(name not in there for name in changes):
            found[uid] = without_changes_to(target, node, held)
    return found


def _waits_for_pods(node: NodeView, target: Target, judgements: Mapping[str, Judgement]) -> bool:
    """Return whether the pods of a Shim that is to be installed on a node keep the node from its start."""
    wanted = dict(target.shims)
    return any(
        name in wanted and name in judgements and judgements[name].holds(node.uid) for name in changes_of(node, target)
    )
