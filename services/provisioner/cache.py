"""The cache of provisioner for one leadership term: all state that outlives a run.

In: changes from informers (``watches``), reads, decisions, requests and writes of runs. Out: reads for ``gather``,
``rollout_gather`` and ``shim_gather``. Invariants: only the methods here change it, except for ``nodes``, ``shims`` and
``canaries``, which their informers fill, and ``deletions``, which reads the CRD; the cached ledger was accepted by the
API server; a node counts as in progress from before the request for its Job until the Job is seen, or known to be
missing: only then may its slot go to another node, or another Job be created for it; losing the cache only repeats
work.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import InitVar, dataclass, field, replace
from functools import partial
from typing import Any, Final

from provisioner.domain.canary import CanaryPod
from provisioner.domain.fleet import Fleet
from provisioner.domain.job_clock import JobClock
from provisioner.domain.plan import Plan
from provisioner.domain.resources import Manifest
from provisioner.domain.shim_nodes import member_of
from provisioner.domain.shim_snapshot import Snapshot as ShimSnapshot
from provisioner.domain.signatures import Keys
from provisioner.domain.unconfirmed import unconfirmed_shims
from provisioner.refusals import PodRefusal, PodRefusals, RefusedNodes
from provisioner.settings import Settings
from provisioner.timings import Timings
from trellis.kube.changes import Change
from trellis.kube.client import Kube
from trellis.kube.mass_deletions import Deletions
from trellis.kube.resources import SHIMS
from trellis.provisioning.attempts import changes_of
from trellis.provisioning.excluded_nodes import Skip
from trellis.provisioning.job_index import JobIndex
from trellis.provisioning.ledger import Entry, Ledger, Try, read_ledger
from trellis.provisioning.other_controllers import Controller, blocking_controller
from trellis.provisioning.reasons import Reason
from trellis.provisioning.shim_references import ShimReferences
from trellis.provisioning.shims import ShimView
from trellis.provisioning.targets import target_of
from trellis.provisioning.views import JobState, JobView, NodeView, Target, opting_in
from trellis.provisioning.workload_state import WorkloadHalt
from trellis.telemetry import TraceContext

PLAN_REST: Final = 3.0
"""Multiple of the duration of the last plan, including the ledger write, between two plans.

Plans use at most a quarter of the event loop, for any number of nodes. A change after such a rest is planned at once.
"""


@dataclass(frozen=True, slots=True)
class Noted:
    """State of a Node that the Node itself does not have.

    ``trace``: the one that its opt-in started; ``plan``: that of the plan that claimed it. ``waiting_since``: for a
    slot, Unix seconds. ``blocked_until``: monotonic time until which its slot is released; ``in_use``: for users, why a
    Shim cannot be removed. ``unserved_reported``, ``reported_skip``: content of its Events: that there is nothing to
    install on it, why it is skipped.
    """

    trace: TraceContext | None = None
    plan: TraceContext | None = None
    waiting_since: float | None = None
    blocked_until: float = 0.0
    in_use: str = ""
    unserved_reported: bool = False
    reported_skip: Skip | None = None


_NOTHING: Final = Noted()


@dataclass(eq=False)
class Cache:
    """Caches of one leadership term. ``canaries``: pods by ``namespace/name``. ``shims_known``: Shims are served.

    ``handover_until``: monotonic; until then nodes that have a runtime are not started, as another installation
    provisioned them.
    """

    kube: InitVar[Kube]
    settings: Settings
    nodes: Mapping[str, NodeView]
    shims: Mapping[str, ShimView]
    canaries: Mapping[str, CanaryPod] = field(default_factory=dict)
    timings: Timings = Timings()
    shims_known: Callable[[], bool] = lambda: True
    handover_until: float = 0.0
    refused: RefusedNodes = field(default_factory=RefusedNodes)
    pod_refusals: PodRefusals = field(default_factory=PodRefusals)
    controllers: tuple[Controller, ...] = ()
    """Controllers of other owners; nothing is started while they are active."""
    ledger: Ledger | None = None
    """None while it is invalidated."""
    ledger_refusal: str = ""
    """Error of the API server for the ledger, "" if it can be read and written."""
    halts_lost: bool = False
    """True if the stream that had the halts is gone."""
    _writing: Ledger | None = None  # the ledger that is being written
    _noted: dict[str, Noted] = field(default_factory=dict)  # by Node uid
    _requested: dict[str, tuple[Entry, str]] = field(default_factory=dict)
    """By Node UID, slot and name of a Job that was requested but that the watch does not report yet."""
    _certain: set[Try] = field(default_factory=set)
    """Attempts that have a slot, no Job, and no unknown effect: no Job was created, or it was deleted here."""
    _published: set[str] = field(default_factory=set)
    _created_ns: dict[str, int] = field(default_factory=dict)  # by name of a Job
    _canary_classes: set[str] = field(default_factory=set)  # runtimeClasses of canaries that are known to exist
    _class_refusals: dict[str, str] = field(default_factory=dict)
    """By Shim, the error of the API server for its RuntimeClass."""
    _waits: Mapping[str, WorkloadHalt] = field(default_factory=dict)
    """By Shim, the pods for which its rollout waits, or is halted."""
    _newest_versions: dict[str, tuple[str, Manifest]] = field(default_factory=dict)
    """By Shim, its UID, and the version of its newest revision."""
    pods_listed: bool = False
    """True if the installer pods of former terms are known."""
    _pods_unknown: set[str] = field(default_factory=set)
    """Names of the nodes on which an installer pod may run. A name too many causes a further read."""
    debounce_until: float = 0.0  # monotonic: from then on nodes may be started
    rested_at: float = 0.0  # monotonic: the next plan is not made before
    _plan_seconds: float = 0.0  # duration of the last plan

    def __post_init__(self, kube: Kube) -> None:
        """Create the components that depend on the settings, and the indexes."""
        auto, checksum = self.settings.auto_provision, self.settings.require_checksum
        self.installer, self.keys = self.settings.installer(), Keys.parse(self.settings.shim_keys)
        self.fleet = Fleet(
            self.nodes,
            self.shims,
            partial(target_of, kwasm=self.installer.digest, auto_provision=auto, require_checksum=checksum),
            partial(member_of, auto_provision=auto, require_checksum=checksum),
        )
        self.deletions = Deletions(kube, SHIMS, self.timings.deletions)
        self.jobs, self.shim_references = JobIndex(), ShimReferences(self.shims_known)
        self.clock = JobClock(self.installer.deadline, self.timings.nodes.grace, time.monotonic)

    # Changes from watches and from the bus.

    def node_changed(self, change: Change[NodeView], trace_of: Callable[[str], TraceContext]) -> None:
        """Record a change of a Node. ``trace_of``: the trace that an opt-in starts (ADR 102)."""
        old, new = change.old, change.new
        self.shim_references.take_node(change.key, new)
        self.fleet.take(change.key)
        if old is not None and (new is None or new.uid != old.uid):
            self._noted.pop(old.uid, None)
            self._requested.pop(old.uid, None)
            self.refused.end(old.uid)
        if new is None:
            return
        if new.skip is None:
            self._note(new.uid, reported_skip=None)
        cause = opting_in(old, new)
        # A Node that is listed with marks opted in before: a trace of its own would lack the first span.
        if cause is not None and not (old is None and new.bears_marks):
            self._note(new.uid, trace=trace_of(cause))
        elif new.marked_digest is not None and (old is None or old.marked_digest is None):
            self._note(new.uid, trace=None)  # the verification ends it

    def record_trace(self, name: str, uid: str, trace: TraceContext | None) -> None:
        """Record the trace of a node's opt-in from the bus; the watch may have reported the same one.

        The bus repeats the last opt-in of each node to a new leader: the verification of most has ended their traces.
        """
        node = self.nodes.get(name)
        ended = node is not None and node.uid == uid and node.marked_digest is not None
        former = self.noted(uid).trace
        if trace is not None and not ended and (former is None or former.trace_id != trace.trace_id):
            self._note(uid, trace=trace)

    def job_changed(self, change: Change[JobView]) -> bool:
        """Record a change of a Job; return whether its request was pending: then its slot may become free."""
        old, new = change.old, change.new
        takers = (self.clock.change, self.pod_refusals.take_job, self.shim_references.take_job)
        for component in (self.jobs.change, *takers):
            component(old, new)
        self._pods_changed(old, new)
        if new is not None:
            return self.requested_job(new.node_uid) == new.name and self.request_settled(new.node_uid)
        if old is not None:
            self._created_ns.pop(old.name, None)
            self._published.difference_update(_marks_of(old))
        return False

    def _pods_changed(self, old: JobView | None, new: JobView | None) -> None:
        """Record whether an installer pod may run without a Job.

        The Job controller completes a Job when its pods have ended; before Kubernetes 1.31 it fails one earlier. Later
        changes of a complete Job, as its deletion, do not concern the pods of the next one.
        """
        if new is not None and new.state is JobState.COMPLETE:
            requested = self.requested_job(new.node_uid)
            ends = old is not None and old.state is not JobState.COMPLETE
            if new.name == requested or (requested is None and ends):
                self._pods_unknown.discard(new.node)
        elif new is not None and new.state is JobState.FAILED:
            self._pods_unknown.add(new.node)
        elif new is None and old is not None and old.state is not JobState.COMPLETE:
            self._pods_unknown.add(old.node)

    def job_refreshed(self, job: JobView) -> None:
        """Record a newer view of a Job that is equal but for its resource version."""
        self.jobs.refresh(job)

    def pod_refusal_changed(self, change: Change[PodRefusal]) -> list[str]:
        """Record an Event about a refused pod; return the node names of its Job."""
        uid = self.pod_refusals.take(change)
        return [job.node for jobs in self.jobs.by_uid().values() for job in jobs if job.uid == uid]

    def targets_changed(self) -> None:
        """Start no node during the debounce time; changes within that time do not extend it."""
        now = time.monotonic()
        if now >= self.debounce_until:
            self.debounce_until = now + self.timings.settle

    def controllers_changed(self, controllers: tuple[Controller, ...]) -> tuple[Controller, ...]:
        """Record the active controllers of other owners; return the former ones."""
        former, self.controllers = self.controllers, controllers
        return former

    def stream_lost(self) -> None:
        """Mark every current event as unpublished, because the stream that stored them is gone."""
        self._published.clear()
        self.halts_lost = True

    def term_ended(self) -> None:
        """Record that another replica provisions."""
        self.refused.forget()

    # Reads and decisions of plans.

    def ledger_accepted(self, manifest: Manifest | None) -> Ledger:
        """Cache the ledger as the API server returned it, and return it; None if it does not exist."""
        self.ledger = ledger = read_ledger(manifest) if manifest is not None else Ledger({})
        self._certain &= {entry.tried(uid) for uid, entry in ledger.entries.items()}
        return ledger

    def invalidate_ledger(self) -> None:
        """Invalidate the ledger: another client wrote it, or the response to a write was lost."""
        self.ledger = None

    @contextmanager
    def ledger_written(self, ledger: Ledger) -> Iterator[None]:
        """Record that a ledger is being written, until the API server answers."""
        self._writing = ledger
        try:
            yield
        finally:
            self._writing = None

    def ledger_refused(self, reason: str) -> None:
        """Record the error of the API server for the ledger; "" if it can be read and written."""
        self.ledger_refusal = reason

    def installer_pods_listed(self, nodes: Iterable[str]) -> None:
        """Record the names of the nodes on which installer pods run."""
        self._pods_unknown.update(nodes)
        self.pods_listed = True

    def planned(self, plan: Plan, now: float) -> bool:
        """Record the nodes that wait for a slot, or have one but no Job yet, and the pods for which rollouts wait.

        Returns:
            True if rollouts wait for other pods than before. ``now``: Unix seconds.
        """
        former = self._waits
        self._waits = {name: item.waits for name, item in plan.judgements.items() if item.waits is not None}
        for node in (*plan.claimed, *plan.waiting):
            if self.noted(node.uid).waiting_since is None:
                self._note(node.uid, waiting_since=now)
        self._certain |= {plan.ledger.entries[node.uid].tried(node.uid) for node in plan.claimed}
        return {name: item.message for name, item in former.items()} != {
            name: item.message for name, item in self._waits.items()
        }

    def claimed(self, plan: Plan, trace: TraceContext) -> None:
        """Record the trace of a plan that assigned slots."""
        for node in plan.claimed:
            self._note(node.uid, plan=trace)

    def plan_began(self, now: float) -> None:
        """Record the start of a plan; the next plan waits as long as this one, as changes arrive in the meantime."""
        self.rested_at = now + min(self.timings.plan_rest, PLAN_REST * self._plan_seconds)

    def plan_ended(self, began: float, now: float) -> None:
        """Record the start and the end of a plan, including the write of the ledger."""
        self._plan_seconds = now - began
        self.plan_began(now)

    def halts_published(self) -> None:
        """Record that the stream has every halt."""
        self.halts_lost = False

    # Changes by runs of nodes.

    def job_begins(self, node: NodeView, what: tuple[str, int], job: str) -> Noted | None:
        """Record that a Job (digest, attempt) is about to be requested, if its node has the slot at this moment.

        Returns the former state of the node; None if it has no slot. A decision is older than its write: the planner
        may have assigned the slot to another node in the meantime, or be about to.
        """
        ledgers = [self.ledger, *([self._writing] if self._writing is not None else [])]
        slots = [slot for item in ledgers if item is not None and (slot := item.entries.get(node.uid)) is not None]
        if not slots or len(slots) < len(ledgers) or any((slot.digest, slot.attempt) != what for slot in slots):
            return None
        self._requested[node.uid] = slots[-1], job
        self._pods_unknown.add(node.name)
        self._certain.discard((node.uid, *what))
        return self._note(node.uid, plan=None, waiting_since=None, in_use="")

    def request_settled(self, uid: str) -> bool:
        """Record that a node's Job is observed or missing; return whether its request was pending (job_changed)."""
        return self._requested.pop(uid, None) is not None

    def job_created(self, name: str) -> None:
        """Record the creation time of a Job."""
        self._created_ns[name] = time.time_ns()

    def job_drawn(self, name: str) -> int | None:
        """Record that a Job is in its trace; return its creation time, if it was created here, in Unix ns."""
        return self._created_ns.pop(name, None)

    def left_nothing(self, tried: Try, *, certain: bool = True) -> None:
        """Record that an attempt left nothing on its node, as its Job was refused or deleted; or that it may have."""
        self._certain.add(tried) if certain else self._certain.discard(tried)

    def slot_given_back(self, uid: str, seconds: float, reason: str) -> None:
        """Record that a node waits for another condition. ``reason``: why a Shim cannot be removed, for users."""
        self._note(uid, blocked_until=time.monotonic() + seconds, **({"in_use": reason} if reason else {}))

    def event_published(self, dedup_id: str) -> None:
        """Record that an event about a Job was published."""
        self._published.add(dedup_id)

    def node_warned(self, node: NodeView, reason: Reason) -> None:
        """Record the content of an Event on a Node."""
        if reason is Reason.NOTHING_TO_INSTALL:
            self._note(node.uid, unserved_reported=True)
        if node.skip is not None and reason is node.skip.reason:
            self._note(node.uid, reported_skip=node.skip)

    def refusal_reported(self, node: NodeView, reason: Reason, message: str) -> bool:
        """Record a refusal of the API server on a node; return whether it is new."""
        return self.refused.take(node, reason, message)

    def refusal_ended(self, uid: str) -> bool:
        """Record that nothing is refused on a node any more; return whether something was."""
        ended = self.refused.end(uid)
        for item in self.refused.by_uid if ended else ():  # all may have had the same cause: they may start
            self._note(item, blocked_until=0.0)
        return ended

    def canary_class_made(self, name: str) -> None:
        """Record that the RuntimeClass of a Shim's canaries exists."""
        self._canary_classes.add(name)

    # Changes by runs of Shims.

    def class_refused(self, shim: str, reason: str) -> None:
        """Record the error of the API server for the RuntimeClass of a Shim; "" if it was accepted."""
        self._class_refusals[shim] = reason

    def versions_read(self, name: str, snapshot: ShimSnapshot | None) -> None:
        """Record the newest revision of a Shim, if a run has read its revisions; None: the Shim is deleted."""
        if snapshot is not None and snapshot.revisions is None:
            return
        self._newest_versions.pop(name, None)
        if snapshot is not None and snapshot.revisions and snapshot.revisions[-1].version == snapshot.version:
            self._newest_versions[name] = snapshot.shim.uid, snapshot.version

    # Reads.

    def noted(self, uid: str) -> Noted:
        """Return the cached state of a Node."""
        return self._noted.get(uid, _NOTHING)

    def in_use(self) -> dict[str, str]:
        """Return by Node UID why a Shim cannot be removed, for users."""
        return {uid: item.in_use for uid, item in self._noted.items() if item.in_use}

    def blocked_nodes(self) -> frozenset[str]:
        """Return the nodes that are blocked, and during a handover those that another installation provisioned."""
        now = time.monotonic()
        blocked = frozenset(uid for uid, item in self._noted.items() if item.blocked_until > now)
        if now < self.handover_until:
            blocked |= {node.uid for node in self.nodes.values() if node.installed}
        return blocked

    def in_progress(self) -> dict[str, Entry]:
        """Return by Node UID the slots of the requested Jobs."""
        return {uid: slot for uid, (slot, _) in self._requested.items()}

    def requested_job(self, uid: str) -> str | None:
        """Return the name of the requested Job of a node, None if the watch reports every Job."""
        return self._requested[uid][1] if uid in self._requested else None

    def unconfirmed(self, node: NodeView, entry: Entry | None) -> frozenset[str]:
        """Return the names of the Shims that a deleted Job may have left on a node, by the slot of the node."""
        if entry is None or node.uid in self._requested or entry.tried(node.uid) in self._certain:
            return frozenset()
        return unconfirmed_shims(node, entry, self.jobs.of_uid(node.uid))

    def blocking_controller(self, node: NodeView, target: Target) -> Controller | None:
        """Return the controller of another owner that prevents the work on a node."""
        return blocking_controller(node, changes_of(node, target), self.controllers) if self.controllers else None

    def may_have_pods(self, node: str) -> bool:
        """Return whether an installer pod of another Job may run on a node: only then the pods have to be read."""
        return not self.pods_listed or node in self._pods_unknown

    def published(self, jobs: Iterable[JobView]) -> frozenset[str]:
        """Return the deduplication IDs of the published events of these Jobs."""
        return frozenset(dedup_id for job in jobs for dedup_id in _marks_of(job) if dedup_id in self._published)

    def has_canary_class(self, name: str) -> bool:
        """Return whether the RuntimeClass of canaries is known to exist."""
        return name in self._canary_classes

    def class_refusal(self, shim: str) -> str:
        """Return the error of the API server for the RuntimeClass of a Shim, "" if it was accepted."""
        return self._class_refusals.get(shim, "")

    def waits_for(self, shim: str) -> WorkloadHalt | None:
        """Return the pods for which the rollout of a Shim waits, or is halted; None if there are none."""
        return self._waits.get(shim)

    def is_newest(self, shim: ShimView, version: Manifest) -> bool:
        """Return whether the newest revision of a Shim is known to have this version."""
        return self._newest_versions.get(shim.name) == (shim.uid, version)

    def _note(self, uid: str, **changes: Any) -> Noted:  # noqa: ANN401 - the fields of Noted
        former = self.noted(uid)
        self._noted[uid] = replace(former, **changes)
        if self._noted[uid] == _NOTHING:
            del self._noted[uid]
        return former


def _marks_of(job: JobView) -> Iterator[str]:
    return (f"{job.uid}.{what}" for what in ("started", "succeeded", "failed", "removed"))
