"""The rollout as a small state machine: a few nodes, Shims, a provisioner that is slow, without events, killed and
succeeded.

Every decision is the real one (``rollout_decisions``): of the planner, of a node's run, of node_watcher, with the
patches and Jobs they make. Written again is only who reads and writes when, as ``provisioner.app`` does it: informers
show Nodes, Jobs and Shims late, the ledger is compared and swapped, each write of a run is a step of its own, and
between any two steps anything else may happen. ``test_in_progress`` ties these rules to the provisioner's own parts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from provisioner.domain.actions import Action, CreateJob, DeleteJob, EndJob, JudgeFailed
from support.nodes.exploring import Remembered
from support.nodes.rollout_decisions import (
    EMPTY,
    Book,
    OptIn,
    Seen,
    a_fresh_node,
    decided,
    made_job,
    marked,
    planned,
    target_on,
)
from trellis.provisioning.ledger import Entry, Try
from trellis.provisioning.views import JobState, JobView, NodeView, Target, decode_digests, newest

MOST_AT_ONCE: Final = "more nodes are changed at once than may be"
ONE_INSTALLER: Final = "more than one installer works on a node"
TOO_LATE: Final = "is deleted by hand, too late"


@dataclass(frozen=True)
class _Replica:
    """A provisioner at work: what its informers showed it, the ledger as it knows it, and what it is about to write.

    ``current``: whether the API server still has the version of the ledger that it knows. ``writes``: the plan on its
    way to the API server. ``runs``: by node name, what a run of that node has still to write. ``in_progress``: by Node
    uid, the slot and the name of a Job that was asked for and is not in ``jobs`` yet. ``certain``: tries that made no
    Job, or whose Job it deleted itself.
    """

    nodes: tuple[NodeView, ...]
    jobs: tuple[JobView, ...]
    version: int
    ledger: Book | None = None
    current: bool = False
    writes: Book | None = None
    runs: tuple[tuple[str, tuple[Action, ...]], ...] = ()
    in_progress: tuple[tuple[str, Entry, str], ...] = ()
    certain: frozenset[Try] = frozenset()


class Replica(Remembered, _Replica):
    """A provisioner that is hashed once."""


@dataclass(frozen=True)
class Left:
    """The remaining number of each step, which makes the state space finite."""

    failures: int = 0
    crashes: int = 0
    versions: int = 0
    opt_outs: int = 0
    replaced: int = 0
    lost_ledgers: int = 0
    lost_answers: int = 0
    jobs_deleted: int = 0

    def less(self, what: str) -> Left | None:
        """One fewer; None if there was none left."""
        left: int = getattr(self, what)
        return replace(self, **{what: left - 1}) if left else None


@dataclass(frozen=True)
class _State:
    """The API server's objects, and the provisioner that leads."""

    nodes: tuple[NodeView, ...]
    leader: Replica
    left: Left
    jobs: tuple[JobView, ...] = ()
    book: Book = EMPTY
    version: int = 1
    made: int = 0


class State(Remembered, _State):
    """A state that is hashed once."""


@dataclass(frozen=True)
class Rollout:
    """The rollout, and the rules that a broken protocol omits."""

    shims: tuple[str, ...] = ("spin",)
    limit: str = "1"
    keeps_requested: bool = True  # a Job that was asked for keeps its slot before the watch shows it

    # --- what there is to begin with ---

    def first(self, nodes: int, left: Left) -> State:
        """Nodes that are to get every Shim, and a leader that has just begun."""
        fleet = tuple(a_fresh_node(index) for index in range(nodes))
        return State(fleet, Replica(fleet, (), 1), left)

    def target(self, node: NodeView, version: int) -> Target | None:
        """Return the target of a node."""
        return target_on(node, OptIn(self.shims, version))

    # --- what can happen ---

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Everything that can happen next."""
        yield from self._cluster(state)
        yield from self._marks(state)
        yield from self._faults(state)
        yield from self._replica(state, state.leader)

    def _cluster(self, state: State) -> Iterator[tuple[str, State]]:
        for job in state.jobs:
            node = next((node for node in state.nodes if node.uid == job.node_uid), None)
            if node is None or job.deleting:
                yield f"{job.name} is gone", replace(state, jobs=_without(state.jobs, job))
            elif job.state is JobState.ACTIVE:
                if not job.ends_now:
                    ended = replace(job, state=JobState.COMPLETE, finished_at=job.created_at + 1)
                    yield f"{job.name} ends well", _with_node(_with_job(state, ended), _changed_by(job, node))
                if (left := state.left.less("failures")) or job.ends_now:
                    ended = replace(job, state=JobState.FAILED, finished_at=job.created_at + 1)
                    yield f"{job.name} fails", replace(_with_job(state, ended), left=left or state.left)

    def _marks(self, state: State) -> Iterator[tuple[str, State]]:
        """node_watcher, which writes at once: a late write of its would meet another resource version."""
        for node in state.nodes:
            job = newest(tuple(job for job in state.jobs if job.node_uid == node.uid))
            if (after := marked(node, job, OptIn(self.shims, state.version))) is not None:
                yield f"node_watcher marks {node.name}", _with_node(state, after)

    def _faults(self, state: State) -> Iterator[tuple[str, State]]:
        left = state.left
        if rest := left.less("versions"):
            yield "the Shim changes", replace(state, version=state.version + 1, left=rest)
        if rest := left.less("opt_outs"):
            for node in state.nodes:
                out = replace(node, opt_in="false" if node.opt_in is None else None)
                yield f"{node.name} opts out", _with_node(replace(state, left=rest), out)
        if rest := left.less("replaced"):
            new = a_fresh_node(0, "-new")
            if state.nodes[0].uid != new.uid:
                yield "node-0 is replaced", replace(state, nodes=(new, *state.nodes[1:]), left=rest)
        if rest := left.less("lost_ledgers"):
            yield "the ledger is deleted", _written(replace(state, left=rest), Book())
        if rest := left.less("jobs_deleted"):
            yield from self._deleted_by_hand(replace(state, left=rest))
        if rest := left.less("crashes"):
            started = Replica(state.nodes, state.jobs, state.version)
            yield "another replica leads", replace(state, leader=started, left=rest)

    def _deleted_by_hand(self, state: State) -> Iterator[tuple[str, State]]:
        """A person deletes a Job: its installer is past the point of no return, or takes its changes back."""
        for job in state.jobs:
            node = next((node for node in state.nodes if node.uid == job.node_uid), None)
            deleted = replace(state, jobs=_without(state.jobs, job))
            yield f"{job.name} is deleted by hand", deleted
            if node is not None and job.state is JobState.ACTIVE:
                yield f"{job.name} {TOO_LATE}", _with_node(deleted, _changed_by(job, node))

    def _replica(self, state: State, replica: Replica) -> Iterator[tuple[str, State]]:
        """The steps of the provisioner that leads."""
        for kind, shown in (
            ("Nodes", replace(replica, nodes=state.nodes)),
            ("Jobs", self._sees_jobs(replica, state.jobs)),
            ("Shims", replace(replica, version=state.version)),
        ):
            if shown != replica:
                yield f"the leader sees the {kind}", _with(state, shown)
        if replica.writes is None:
            yield from self._plan(state, replica)
        else:
            yield from self._write_ledger(state, replica, replica.writes)
        busy = dict(replica.runs)
        for node in replica.nodes:
            if node.name in busy:
                continue
            if job := next((job for uid, _, job in replica.in_progress if uid == node.uid), None):
                yield f"the leader looks for {job}", _with(state, self._finds(replica, node.uid, job, state.jobs))
            elif steps := self._decided(replica, node):
                runs = (*replica.runs, (node.name, steps))
                yield f"the leader decides on {node.name}", _with(state, replace(replica, runs=runs))
        yield from self._runs(state, replica)

    def _runs(self, state: State, replica: Replica) -> Iterator[tuple[str, State]]:
        """The next write of each run that has begun."""
        for name, (step, *more) in replica.runs:
            rest = tuple(run for run in replica.runs if run[0] != name)
            after = replace(replica, runs=(*rest, (name, tuple(more))) if more else rest)
            if isinstance(step, CreateJob):
                yield from self._create(state, after, step)
            else:
                taken, went_on = _carried_out(state, step)
                here = after if went_on else replace(replica, runs=rest)
                if isinstance(step, DeleteJob) and went_on:
                    here = replace(here, certain=here.certain | {step.job.tried})
                yield f"the leader: {type(step).__name__} {name}", _with(taken, here)

    def _create(self, state: State, after: Replica, action: CreateJob) -> Iterator[tuple[str, State]]:
        """A request is sent, arrives, and is answered; each is a step. It is always the last one of its run."""
        uid, replica = action.node.uid, state.leader
        job = made_job(action, state.made)
        made = state
        # Without its Node the garbage collector takes it at once.
        if all(job.name != other.name for other in state.jobs) and any(node.uid == uid for node in state.nodes):
            jobs = tuple(sorted((*state.jobs, job), key=lambda job: job.uid))
            made = replace(state, jobs=jobs, made=state.made + 1)
        if not self.keeps_requested:
            yield f"the leader: CreateJob {action.node.name}", _with(made, after)
            return
        if uid not in {started for started, *_ in replica.in_progress}:
            books = [book for book in (replica.ledger, replica.writes) if book is not None]
            slots = [dict(book.entries).get(uid) for book in books]
            slot = slots[-1] if slots else None
            if replica.ledger is None or slot is None or any(_not_for(slot, action) for slot in slots):
                yield f"the leader finds no slot for {action.node.name}", _with(state, after)
            else:
                started = tuple(sorted((*replica.in_progress, (uid, slot, job.name))))
                sent = replace(replica, in_progress=started, certain=replica.certain - {job.tried})
                yield f"the leader asks for {job.name}", _with(state, sent)
            return
        seen = self._finds(after, uid, job.name, made.jobs)
        yield f"the leader makes {job.name}", _with(made, seen)
        if rest := state.left.less("lost_answers"):
            yield f"the leader hears no answer, {job.name} is there", _with(replace(made, left=rest), after)
            yield f"the leader hears no answer, {job.name} is not", _with(replace(state, left=rest), after)

    def _sees_jobs(self, replica: Replica, jobs: tuple[JobView, ...]) -> Replica:
        seen = {job.name for job in jobs}
        return replace(
            replica, jobs=jobs, in_progress=tuple(started for started in replica.in_progress if started[2] not in seen)
        )

    def _finds(self, replica: Replica, uid: str, name: str, jobs: tuple[JobView, ...]) -> Replica:
        """A Job as the API server has it is shown before the watch does; where there is none, none is expected."""
        known = {job.name for job in replica.jobs}
        found = tuple(job for job in jobs if job.name == name and name not in known)
        shown = tuple(sorted((*replica.jobs, *found), key=lambda job: job.uid))
        return replace(
            replica, jobs=shown, in_progress=tuple(started for started in replica.in_progress if started[0] != uid)
        )

    def _plan(self, state: State, replica: Replica) -> Iterator[tuple[str, State]]:
        known, current = (replica.ledger, replica.current) if replica.ledger is not None else (state.book, True)
        wanted = OptIn(self.shims, replica.version)
        certain = replica.certain if replica.ledger is not None else replica.certain & known.tries()
        plan = planned(Seen(replica.nodes, replica.jobs, replica.in_progress, certain), wanted, known, self.limit)
        outcome = Book.of(plan.ledger)
        knows = replace(replica, ledger=known, current=current, certain=certain)
        if outcome != known:
            entries = plan.ledger.entries
            claimed = {entries[node.uid].tried(node.uid) for node in plan.claimed}
            yield "the leader plans", _with(state, replace(knows, writes=outcome, certain=certain | claimed))
        elif knows != replica:
            yield "the leader reads the ledger", _with(state, knows)

    def _write_ledger(self, state: State, replica: Replica, book: Book) -> Iterator[tuple[str, State]]:
        unconfirmed = replace(replica, ledger=None, current=False, writes=None)
        if not replica.current:
            yield "the leader finds another ledger", _with(state, unconfirmed)
            return
        written = _written(state, book)
        accepted = replace(unconfirmed, ledger=book, current=True, certain=replica.certain & book.tries())
        yield "the leader writes the ledger", _with(written, accepted)
        if rest := state.left.less("lost_answers"):
            lost = _with(replace(written, left=rest), unconfirmed)
            yield "the leader writes the ledger and hears no answer", lost

    def _decided(self, replica: Replica, node: NodeView) -> tuple[Action, ...]:
        """Return the writes of a run of a node's key."""
        entry = dict(replica.ledger.entries).get(node.uid) if replica.ledger else None
        jobs = tuple(job for job in replica.jobs if job.node == node.name)
        certain = entry is not None and entry.tried(node.uid) in replica.certain
        return decided(node, jobs, entry, OptIn(self.shims, replica.version), certain=certain)

    # --- what must hold ---

    def broken(self, state: State) -> str | None:
        """The promises of ``plan`` and ``decide``: the limit, and one installer a node."""
        at_work = {node.uid: node for node in state.nodes}
        open_jobs = [
            job
            for job in state.jobs
            if (node := at_work.get(job.node_uid)) and _open(job, node, self.target(node, state.version))
        ]
        for name in self.shims:
            changed = {job.node_uid for job in open_jobs if name in decode_digests(job.installs)}
            if len(changed) > int(self.limit):
                return f"{MOST_AT_ONCE}: {len(changed)} of {name}, the limit is {self.limit}"
        for uid in at_work:
            if sum(job.node_uid == uid and job.state is JobState.ACTIVE for job in open_jobs) > 1:
                return f"{ONE_INSTALLER}: {uid}"
        return None

    def goal(self, state: State) -> bool:
        """Every node has what it is to have, and nothing is left over."""
        targets = ((node, self.target(node, state.version)) for node in state.nodes)
        done = all(_has(node, dict(target.shims if target else ())) for node, target in targets)
        return done and not state.jobs and not state.book.entries


# --- the API server ---


def _carried_out(state: State, action: Action) -> tuple[State, bool]:
    """The state after one write, and whether the run goes on: what is not as it was read is not written."""
    assert isinstance(action, DeleteJob | EndJob | JudgeFailed)
    found = next((job for job in state.jobs if job.uid == action.job.uid), None)
    if found is None:
        return state, isinstance(action, DeleteJob)  # gone already
    if found != action.job:
        return state, False  # Conflict
    match action:
        case DeleteJob(foreground=True):
            return _with_job(state, replace(found, deleting=True)), True
        case DeleteJob():
            return replace(state, jobs=_without(state.jobs, found)), True
        case EndJob():
            return _with_job(state, replace(found, ends_now=True)), True
        case _:
            judged = replace(found, failure="failed", disruptive=action.disruptive, blamed=action.blamed)
            return _with_job(state, judged), True


def _open(job: JobView, node: NodeView, target: Target | None) -> bool:
    """Return whether a Job works on its node, or its end is still to be recorded there."""
    if job.state is JobState.COMPLETE:
        return not job.deleting and node.installed != job.shims
    failed = node.failed
    return job.state is JobState.ACTIVE or (
        target is not None  # what failed for nobody left nothing, and is not recorded
        and (failed is None or (failed.digest, failed.attempt) != (job.digest, job.attempt))
    )


def _changed_by(job: JobView, node: NodeView) -> NodeView:
    """A node as its kubelet shows it after a Job did its work; the handler of a Shim is called as the Shim."""
    return replace(node, handlers=frozenset({"", *job.shims}))


def _has(node: NodeView, shims: dict[str, str]) -> bool:
    """Return whether a node has these Shims on its disk and no other, and its annotations match."""
    return node.installed == shims and node.handlers - {""} == {*shims}


def _not_for(slot: Entry | None, action: CreateJob) -> bool:
    return slot is None or (slot.digest, slot.attempt) != (action.task.target.digest, action.attempt)


def _written(state: State, book: Book) -> State:
    """The state with another ledger: what the leader knew of it is old now."""
    return replace(state, book=book, leader=replace(state.leader, current=False))


def _with(state: State, leader: Replica) -> State:
    return replace(state, leader=leader)


def _with_job(state: State, job: JobView) -> State:
    return replace(state, jobs=tuple(job if other.uid == job.uid else other for other in state.jobs))


def _with_node(state: State, node: NodeView) -> State:
    return replace(state, nodes=tuple(node if other.name == node.name else other for other in state.nodes))


def _without(jobs: tuple[JobView, ...], job: JobView) -> tuple[JobView, ...]:
    return tuple(other for other in jobs if other.uid != job.uid)
