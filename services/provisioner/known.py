"""What provisioner knows: Nodes, Shims and its Jobs as watched, its ledger, what was said, what waits.

In: changes from the informers, ledgers as the API server returned them. Out: the state of one term of leadership, and
what follows from it for a node. Filled by ``watches`` and their informers; read by ``gather`` for ``plan`` and
``decide``. Invariant: the ledger held here is one the API server has accepted.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from provisioner.domain.begun import Begun
from provisioner.domain.canary import CanaryPod
from provisioner.domain.doubts import doubted, feared_on
from provisioner.domain.fleet import Fleet
from provisioner.domain.job_clock import JobClock
from provisioner.domain.plan import is_forgiven
from provisioner.domain.resources import Manifest, Task
from provisioner.domain.shim_nodes import Member, member_of
from provisioner.domain.signatures import Keys
from provisioner.domain.tasks import Rules, task_of
from provisioner.pod_refusals import PodRefusals
from provisioner.pods import Pods
from provisioner.refused_nodes import RefusedNodes
from provisioner.settings import Settings
from provisioner.timings import Timings
from trellis import names
from trellis.kube.client import Kube
from trellis.kube.errors import NotFound
from trellis.kube.mass_deletions import Deletions
from trellis.kube.resources import CONFIGMAPS, SHIMS
from trellis.provisioning.attempts import changes_of
from trellis.provisioning.excluded_nodes import Skip
from trellis.provisioning.job_index import JobIndex
from trellis.provisioning.ledger import Entry, Ledger, Try, read_ledger
from trellis.provisioning.other_controllers import Controller, keeping_off
from trellis.provisioning.shim_marks import ShimMarks
from trellis.provisioning.shims import ShimView
from trellis.provisioning.targets import target_of
from trellis.provisioning.views import (
    KWASM,
    SUPPORTED_OS,
    NodeView,
    Target,
    Wish,
    opting_in,
    spec_digest,
    wish_of,
)
from trellis.telemetry import TraceContext


@dataclass(eq=False)
class Known:
    """Caches of one term of leadership.

    ``traces``: by Node uid, the trace its opting in began; ``plans``: by Node uid, the plan that claimed it.
    """

    kube: Kube
    settings: Settings
    nodes: dict[str, NodeView]
    shims: dict[str, ShimView]
    jobs: JobIndex = field(default_factory=JobIndex)
    canaries: dict[str, CanaryPod] = field(default_factory=dict)
    """Canary pods by ``namespace/name``."""
    canary_classes: set[str] = field(default_factory=set)
    """RuntimeClasses of canaries that are known to exist."""
    said: set[str] = field(default_factory=set)
    traces: dict[str, TraceContext] = field(default_factory=dict)
    plans: dict[str, TraceContext] = field(default_factory=dict)
    waiting_since: dict[str, float] = field(default_factory=dict)
    blocked_until: dict[str, float] = field(default_factory=dict)
    """By Node uid, monotonic: what is to go from there is in use."""
    in_use: dict[str, str] = field(default_factory=dict)
    """By Node uid, for people: what keeps a Shim there that is to go."""
    told_unserved: set[str] = field(default_factory=set)
    """Uids of opted-in Nodes which say that there is nothing to install on them."""
    told_skipped: dict[str, Skip] = field(default_factory=dict)
    """By Node uid, why the Node says that it is skipped."""
    classes_refused: dict[str, str] = field(default_factory=dict)
    """By Shim, what the API server answered to its RuntimeClass."""
    created_ns: dict[str, int] = field(default_factory=dict)
    plan_seconds: float = 0.0
    """How long the last plan took, with writing the ledger."""
    rested_at: float = 0.0
    """Monotonic: the next plan is not made before."""
    settled_at: float = 0.0
    """Monotonic: from then on nodes may be begun."""
    ledger: Ledger | None = None
    ledger_uid: str = ""
    ledger_version: str | None = None
    writing: Ledger | None = None
    """The ledger that is on its way to the API server."""
    begun: Begun = field(default_factory=Begun)
    certain: set[Try] = field(default_factory=set)
    """Tries that have a slot and no Job, and left nothing unknown: none was made, or it was cleared away here."""
    controllers: tuple[Controller, ...] = ()
    """Those of others beside which nothing is begun."""
    marks: ShimMarks = field(default_factory=lambda: ShimMarks(lambda: True))
    """What names Shims, and whether these can be listed."""
    timings: Timings = Timings()
    handover_until: float = 0.0
    """Monotonic: until then nodes that have a runtime are not begun, as another installation provisioned them."""
    refused: RefusedNodes = field(default_factory=RefusedNodes)
    pod_refusals: PodRefusals = field(default_factory=PodRefusals)
    ledger_refused: str = ""
    """Why the ledger cannot be read or written, in the API server's words, "" if it can."""
    forgotten: bool = False
    """Whether the stream that heard of a halt is gone."""

    def __post_init__(self) -> None:
        self.fleet = Fleet(self.nodes, self.shims, self._target, self._member)
        self.pods = Pods(self.kube)
        self.deletions = Deletions(self.kube, SHIMS, self.timings.deletions)
        self.installer = self.settings.installer()
        self.clock = JobClock(self.installer.deadline, self.timings.nodes.grace, time.monotonic)
        self.kwasm = spec_digest(self.installer.spec()) if self.installer.image else None
        settings = self.settings
        self.keys = Keys.parse(settings.shim_keys)
        self.rules = Rules(settings.handler, self.installer.own_image, settings.require_checksum, settings.allow_http)

    def retry_refused(self) -> None:
        """Let the nodes that wait after a refusal be begun: what refused one may have refused all."""
        for uid in self.refused.by_uid:
            self.blocked_until.pop(uid, None)

    def blocked_for(self, uid: str) -> float:
        """Return the seconds for which a node's slot is given back, 0 if it is not."""
        return max(0.0, self.blocked_until.get(uid, 0.0) - time.monotonic())

    def refusal_retry(self) -> float:
        """Return the seconds between two attempts of a node: all refused ones together cause a few writes a second."""
        return self.timings.refusals.bound(len(self.refused.by_uid))

    def begin(self, node: NodeView, what: tuple[str, int], job: str) -> bool:
        """Say whether a node has the slot for a Job (digest, attempt) at this very moment; from now on it keeps it."""
        if self.ledger is None:
            return False  # it is about to be read anew, and what it says is begun then
        if begun := self.begun.begin(node.uid, what, job, [self.ledger, *([self.writing] if self.writing else [])]):
            self.certain.discard((node.uid, *what))
        return begun

    def feared(self, node: NodeView, entry: Entry | None) -> frozenset[str]:
        """Return the Shims that a Job which is gone may have left on a node; by name."""
        if entry is None or node.uid in self.begun.slots or entry.tried(node.uid) in self.certain:
            return frozenset()
        return doubted(node, entry, self.jobs.of_uid(node.uid))

    def fearing(self, node: NodeView, feared: frozenset[str]) -> tuple[NodeView, Target | None]:
        """Return a node as if its marks named Shims that may be there, and what it is to have then."""
        fearing = feared_on(node, feared)
        return fearing, self._target(fearing, tuple(self.shims.values()))

    def unsettle(self) -> None:
        """Let no node be begun for a moment; changes within that moment do not make it longer."""
        now = time.monotonic()
        if now >= self.settled_at:
            self.settled_at = now + self.timings.settle

    def target(self, node: NodeView) -> Target | None:
        """Return what a node is to have, by the Shims as they are now."""
        return self.fleet.target(node)

    def _target(self, node: NodeView, shims: tuple[ShimView, ...]) -> Target | None:
        return target_of(
            node,
            shims,
            self.kwasm,
            auto_provision=self.settings.auto_provision,
            require_checksum=self.settings.require_checksum,
        )

    def _member(self, shim: ShimView, node: NodeView, shims: tuple[ShimView, ...]) -> Member | None:
        auto, checksum = self.settings.auto_provision, self.settings.require_checksum
        return member_of(shim, node, shims, auto_provision=auto, require_checksum=checksum)

    def other(self, node: NodeView, target: Target) -> Controller | None:
        """Return the controller of somebody else that keeps us from what is to be done on a node."""
        return keeping_off(node, changes_of(node, target), self.controllers) if self.controllers else None

    def version(self, shim: str) -> str:
        """Return what names a shim's version for people: the legacy image's digest, a Shim's generation."""
        view = self.shims.get(shim)
        return (self.kwasm or "") if view is None else f"{view.name}-{view.generation}"

    def unserved(self, node: NodeView) -> bool:
        """Say whether a person opted a node in for which there is nothing to install, and was not told so yet."""
        return (
            self.kwasm is None
            and node.uid not in self.told_unserved
            and node.operating_system == SUPPORTED_OS
            and wish_of(node, auto_provision=False) is Wish.IN
            and not any(shim.default for shim in self.shims.values())
        )

    def task(self, node: NodeView, target: Target) -> Task:
        """Return what the Job that brings a node to its target is to do."""
        limits, latest = self.settings.limits(self.shims.values()), self.kube.now() + self.settings.retries().most
        failure, changes = node.failed, changes_of(node, target)
        forgiven = failure and any(is_forgiven(limits.get(name), failure, latest) for name in changes)
        return task_of(node, target, self.shims, replace(self.rules, retry_refused=bool(forgiven)))

    def undecidable(self) -> bool:
        """Say whether Shims cannot be listed although a Node, a Job or the ledger names one."""
        entries = self.ledger.entries.values() if self.ledger and not self.marks.known() else ()
        return self.marks.unknown or any(name != KWASM for entry in entries for name in entry.shims)

    def opted_in(self, former: NodeView | None, node: NodeView, trace_of: Callable[[str], TraceContext]) -> None:
        """Note the trace that a change of a node begins, if it does; what is proved there ends it.

        A node that is listed with marks was opted in before: nobody records the first span of a trace of its own.
        """
        cause = opting_in(former, node)
        if cause is not None and not (former is None and node.bears_marks):
            self.traces[node.uid] = trace_of(cause)
        elif node.marked_digest is not None and (former is None or former.marked_digest is None):
            self.traces.pop(node.uid, None)

    def take_trace(self, uid: str, trace: TraceContext | None) -> None:
        """Note the trace that a node's opting in began, as the bus tells it: the watch may have shown the same one."""
        former = self.traces.get(uid)
        if trace is not None and (former is None or former.trace_id != trace.trace_id):
            self.traces[uid] = trace

    def held(self) -> frozenset[str]:
        """Return the nodes that are in use, and those that another installation provisioned until a moment ago."""
        now = time.monotonic()
        self.blocked_until = {uid: until for uid, until in self.blocked_until.items() if until > now}
        held = frozenset(self.blocked_until)
        if now < self.handover_until:
            held |= {node.uid for node in self.nodes.values() if node.installed}
        return held

    def forget_said(self) -> None:
        """Let every fact that holds be said again: the stream that heard them is gone."""
        self.said.clear()
        self.forgotten = True

    def names(self) -> set[str]:
        """Return every node name of our concern."""
        return set(self.nodes) | set(self.jobs.names())

    async def ledger_now(self) -> Ledger:
        """Return the ledger; one that is doubted is read for this answer alone: taking it over is the planner's."""
        if self.ledger is not None:
            return self.ledger
        manifest = await self.read_ledger()
        return read_ledger(manifest) if manifest else Ledger({})

    async def read_ledger(self) -> Manifest | None:
        """Return the ledger as the API server has it, None if there is none."""
        try:
            return await self.kube.get(CONFIGMAPS, names.LEDGER, self.settings.namespace)
        except NotFound:
            return None

    def accept(self, manifest: Manifest) -> None:
        """Take a ledger as the API server returned it."""
        metadata = manifest["metadata"]
        self.ledger, self.ledger_version, self.ledger_uid = (
            read_ledger(manifest),
            metadata["resourceVersion"],
            metadata["uid"],
        )
        self.certain &= {entry.tried(uid) for uid, entry in self.ledger.entries.items()}

    def doubt(self) -> None:
        """Read the ledger anew before the next plan: another wrote it, or a write's answer got lost."""
        self.ledger, self.ledger_version = None, None
