"""The real decisions of a rollout, as a model asks for them: of values, with values for answers, remembered.

In: Nodes, Jobs, a ledger, which version of a Shim is wanted. Out: plans, what a run writes, a Node as node_watcher
leaves it, a Job as it is made. Called by ``rollout_model``. Nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, NamedTuple

from node_watcher.domain import decide as watching
from node_watcher.domain.actions import GuardedDeletion as Unmark
from node_watcher.domain.actions import PatchNode, PublishedState
from node_watcher.domain.actions import Snapshot as NodeSnapshot
from provisioner.domain.actions import Action, CreateJob, DeleteJob, EndJob, GuardedDeletion, JudgeFailed, Snapshot
from provisioner.domain.decide import decide
from provisioner.domain.plan import FleetSnapshot, Plan, plan
from provisioner.domain.resources import make_installer_job
from provisioner.domain.tasks import Rules, task_of
from provisioner.domain.unconfirmed import unconfirmed_shims, with_unconfirmed
from provisioner.settings import Settings
from support.nodes.exploring import Remembered
from trellis import names
from trellis.installer_api.spec import Source
from trellis.provisioning.attempts import Retries, ShimLimits
from trellis.provisioning.int_or_percent import CountOrPercent
from trellis.provisioning.ledger import Entry, Ledger, Try, target_of_slot
from trellis.provisioning.nodes_and_jobs import view_job, view_node
from trellis.provisioning.shims import ShimView, Verification
from trellis.provisioning.targets import target_of, wanted_on
from trellis.provisioning.views import JobView, NodeView, Target
from trellis_dev.fakes.patches import json_patch
from trellis_dev.testing.builders import a_shim

NOW = 10_000.0
RETRIES = Retries(0.0, 0.0)  # a retry is due at once: that it may come at any time covers all others
_INSTALLER = Settings().installer()
_RULES = Rules(None, "", require_checksum=True, allow_http=False)


@dataclass(frozen=True)
class Book:
    """The rollout ledger as a value."""

    entries: tuple[tuple[str, Entry], ...] = ()
    halted: tuple[str, ...] = ()

    def ledger(self) -> Ledger:
        return Ledger(dict(self.entries), self.halted, self.halted)

    def tries(self) -> frozenset[Try]:
        return frozenset(entry.tried(uid) for uid, entry in self.entries)

    @classmethod
    def of(cls, ledger: Ledger) -> Book:
        return cls(tuple(sorted(ledger.entries.items())), ledger.halted)


EMPTY = Book()


class OptIn(NamedTuple):
    """The Shims by name, and the version of the first; the others have one version only."""

    names: tuple[str, ...]
    version: int

    def shims(self) -> tuple[ShimView, ...]:
        return _shims(self)


class Node(Remembered, NodeView):
    """A Node's view that is hashed once."""


class Job(Remembered, JobView):
    """A Job's view that is hashed once."""


def a_fresh_node(index: int, suffix: str = "") -> NodeView:
    name = f"node-{index}"
    return _as_node(
        {
            "metadata": {"name": name, "uid": f"uid-{name}{suffix}", "resourceVersion": "7", "annotations": {}},
            "status": {
                "nodeInfo": {"architecture": "amd64", "operatingSystem": "linux"},
                "conditions": [{"type": "Ready", "status": "True"}],
                "runtimeHandlers": [{"name": ""}],
            },
        }
    )


def _as_node(manifest: Mapping[str, Any]) -> Node:
    view = view_node(dict(manifest))
    return Node(**{field.name: getattr(view, field.name) for field in fields(NodeView) if field.init})


def _as_job(manifest: Mapping[str, Any]) -> Job:
    view = view_job(dict(manifest))
    return Job(**{field.name: getattr(view, field.name) for field in fields(JobView)})


@cache
def _shim(name: str, version: int) -> ShimView:
    source = Source(f"https://example.com/{name}", "amd64", f"{version:02}" * 32)
    return a_shim(name, sources=(source,), generation=version, verification=Verification(canary=False))


@cache
def _shims(opt_in: OptIn) -> tuple[ShimView, ...]:
    return tuple(_shim(name, opt_in.version if index == 0 else 1) for index, name in enumerate(opt_in.names))


@cache
def target_on(node: NodeView, opt_in: OptIn) -> Target | None:
    return target_of(node, opt_in.shims(), None, auto_provision=False, require_checksum=True)


class Seen(NamedTuple):
    """A leader's view of nodes and Jobs: the objects of the watch, its own requests, and its confirmed facts."""

    nodes: tuple[NodeView, ...]
    jobs: tuple[JobView, ...]
    in_progress: tuple[tuple[str, Entry, str], ...]
    certain: frozenset[Try]


@cache
def planned(seen: Seen, opt_in: OptIn, book: Book, limit: str) -> Plan:
    nodes, jobs, started, certain = seen
    by_uid: dict[str, tuple[JobView, ...]] = {}
    for job in jobs:
        by_uid[job.node_uid] = (*by_uid.get(job.node_uid, ()), job)
    slots = {uid: entry for uid, entry, _ in started}
    entries, targets = dict(book.entries), dict[str, Target]()
    unconfirmed: dict[str, frozenset[str]] = {}
    for index, node in enumerate(nodes):
        entry = entries.get(node.uid)
        view, known = node, node.uid in slots or (entry and entry.tried(node.uid) in certain)
        if entry and not known and (names_of := unconfirmed_shims(node, entry, by_uid.get(node.uid, ()))):
            unconfirmed[node.uid], view = names_of, with_unconfirmed(node, names_of)
            nodes = (*nodes[:index], view, *nodes[index + 1 :])
        if (target := target_on(view, opt_in)) is not None:
            targets[node.uid] = target
    limits = {name: ShimLimits(CountOrPercent.parse(limit)) for name in opt_in.names}
    return plan(
        FleetSnapshot(
            nodes, targets, by_uid, book.ledger(), limits, RETRIES, NOW, in_progress=slots, unconfirmed=unconfirmed
        )
    )


@cache
def decided(
    node: NodeView, jobs: tuple[JobView, ...], entry: Entry | None, opt_in: OptIn, *, certain: bool
) -> tuple[Action, ...]:
    its = tuple(job for job in jobs if job.node_uid == node.uid)
    unconfirmed = unconfirmed_shims(node, entry, its) if entry and not certain else frozenset[str]()
    node = with_unconfirmed(node, unconfirmed) if unconfirmed else node
    target = target_of_slot(node, target_on(node, opt_in), entry)
    task = task_of(node, target, {shim.name: shim for shim in opt_in.shims()}, _RULES) if target and entry else None
    given = (node.name, node, jobs, entry, target, frozenset[str](), None, 0.0, 20.0, NOW, 60.0)
    snapshot = Snapshot(*given, unconfirmed=unconfirmed, task=task)
    steps: list[Action] = []
    for action in decide(snapshot):
        steps += action.steps if isinstance(action, GuardedDeletion) else [action]
    return tuple(step for step in steps if isinstance(step, CreateJob | DeleteJob | EndJob | JudgeFailed))


@cache
def marked(node: NodeView, job: JobView | None, opt_in: OptIn) -> NodeView | None:
    """The node as node_watcher leaves it; None if it writes nothing."""
    shims = opt_in.shims()
    wanted = wanted_on(node, shims, auto_provision=False, legacy=False)
    handlers = {shim.name: shim.handler for shim in shims if shim.name in node.installed}
    here = tuple(shim for shim in shims if shim.name in wanted)
    published = PublishedState(node.uid, opted_in=bool(wanted))
    for action in watching.decide(NodeSnapshot(node.name, node, job, published, wanted, handlers, here)):
        for step in action.steps if isinstance(action, Unmark) else (action,):
            if isinstance(step, PatchNode):
                return _patched(node, step)
    return None


def _patched(node: NodeView, patch: PatchNode) -> NodeView:
    """The node after a JSON patch, read as the API server would return it."""
    annotations = {
        names.ANNOTATION_OPT_IN: node.opt_in,
        names.LABEL_PROVISIONED: node.provisioned_name,
        names.ANNOTATION_DIGEST: node.digest,
        names.ANNOTATION_VERIFIED: node.verified,
        names.ANNOTATION_NODE_UID: node.marked_uid,
        names.ANNOTATION_FAILURE: node.failure,
        names.ANNOTATION_FAILED_ATTEMPT: node.failed_attempt,
        names.ANNOTATION_BLAMED: node.failed_shims,
        names.ANNOTATION_SHIMS: node.shims,
    }
    manifest = {
        "metadata": {
            "name": node.name,
            "uid": node.uid,
            "resourceVersion": node.resource_version,
            "labels": node.label_values(),
            "annotations": {key: value for key, value in annotations.items() if value is not None},
        },
    }
    new = _as_node(json_patch(manifest if node.has_labels else _without_labels(manifest), patch.ops))
    kept = ("architecture", "operating_system", "handlers", "ready")
    return replace(new, **{field: getattr(node, field) for field in kept})


def _without_labels(manifest: Mapping[str, Any]) -> dict[str, Any]:
    return {"metadata": {key: value for key, value in manifest["metadata"].items() if key != "labels"}}


@cache
def made_job(action: CreateJob, made: int) -> JobView:
    manifest = make_installer_job(_INSTALLER, action.node, action.task, action.attempt, None)
    manifest["metadata"] |= {"uid": f"job-{made}", "resourceVersion": "8"}
    return replace(_as_job(manifest), created_at=1000 + made)


def forget() -> None:
    """Forget the answers of decisions: other ones are asked from now on."""
    for remembered in (target_on, planned, decided, marked):
        remembered.cache_clear()
