"""Decides the actions on one host group: its finalizer, its children, its status.

Pure. In: a frozen snapshot. Out: actions, each with its reason. Called by ``app`` between gather and apply.
Invariants: while another controller is active, only the status is written; a group with a missing Secret or ConfigMap
gets no children; a child of another owner is not changed; a child without differences is not written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from host_manager.domain.children import (
    WORKLOADS,
    ChildKey,
    TemplateLabel,
    child_keys,
    differs,
    fingerprint,
    make_children,
    read_template_label,
    template_label_for,
    workload_of,
)
from host_manager.domain.group import API_VERSION, KIND, LATEST, Group, HostGroupSpec, Manifest
from host_manager.domain.inputs import Problem
from host_manager.domain.merging import TemplateError
from host_manager.domain.pods import PodView
from host_manager.domain.restarts import over, restarted
from host_manager.domain.secret_changes import SecretChange
from host_manager.domain.snapshot import Head, Snapshot
from host_manager.domain.status import (
    PROBLEM_TYPES,
    StatusInputs,
    counts_of,
    make_status,
    may_wait,
    own_conditions,
    refused_workload,
)
from host_manager.domain.takeover import transferred_fields
from host_manager.domain.template import managed_by
from host_manager.lattice_status import REPORTED, pods_without_heartbeat
from trellis import names
from trellis.crds.conditions import cause_of_refusal

ONE_AT_A_TIME = "OneAtATime"


@dataclass(frozen=True, slots=True)
class SetFinalizers:
    """Write the finalizers of the group."""

    head: Head
    finalizers: tuple[str, ...]
    message: str


@dataclass(frozen=True, slots=True)
class ApplyChild:
    """Apply a child; ``found``: as it was read; ``managed_fields``: to be written to it before."""

    wanted: Manifest
    found: Manifest | None
    managed_fields: list[Manifest] | None = None

    @property
    def key(self) -> ChildKey:
        """Kind and name of the child."""
        return self.wanted["kind"], self.wanted["metadata"]["name"]

    @property
    def is_workload(self) -> bool:
        """True if the child runs pods, which may have additions of the user."""
        return self.wanted["kind"] in WORKLOADS


@dataclass(frozen=True, slots=True)
class DeleteChild:
    """Delete a child that the host group no longer has."""

    found: Manifest
    message: str


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """Write the status of the host group."""

    head: Head
    status: Manifest


@dataclass(frozen=True, slots=True)
class RecordGroupEvent:
    """Record an Event on the host group."""

    head: Head
    reason: str
    message: str
    warning: bool = True


@dataclass(frozen=True, slots=True)
class RecyclePod:
    """Restart the pod of a host without heartbeat, by eviction."""

    head: Head
    pod: PodView
    message: str


@dataclass(frozen=True, slots=True)
class RetryPods:
    """Make the controller of the workload retry rejected pods; ``at``: the time, RFC 3339."""

    found: Manifest
    at: str


Action = SetFinalizers | ApplyChild | DeleteChild | WriteStatus | RecordGroupEvent | RecyclePod | RetryPods


def decide(snapshot: Snapshot) -> list[Action]:
    """Return the actions on one host group, in order."""
    head = snapshot.head
    if snapshot.deletion_paused:
        return _status(snapshot, None)
    if head.deleting:
        return _remove_finalizer(head, beside=snapshot.other is not None)
    if snapshot.other is not None:
        return _status(snapshot, None)
    if snapshot.glance:
        return [*_status(snapshot, _first_template_label(snapshot)), *_recycle(snapshot), *_retry(snapshot)]
    actions = _finalizers(head)
    if snapshot.group is None or any(problem.blocks for problem in snapshot.problems):
        return [*actions, *_status(snapshot, None)]
    label = _template_label(snapshot, snapshot.group)
    if isinstance(label, Problem):
        return [*actions, *_status(_with(snapshot, label), None)]
    wanted = _children(snapshot, snapshot.group, label)
    if isinstance(wanted, Problem):
        return [*actions, *_status(_with(snapshot, wanted), None)]
    if snapshot.refused:
        # The dry run of the pods was rejected: no other child is changed either.
        refused = Problem("InvalidTemplate", f"the API server refuses the pods: {cause_of_refusal(snapshot.refused)}")
        return [*actions, *_status(_with(snapshot, refused), None)]
    return [
        *actions,
        *_writes(snapshot, wanted),
        *_deletions(snapshot, wanted),
        *_status(snapshot, label),
        *_recycle(snapshot),
        *_retry(snapshot),
    ]


def first_half(actions: list[Action]) -> list[Action]:
    """Return the actions up to the creation of the pods; all actions if none of them runs pods."""
    last = next(
        (at for at, item in enumerate(actions) if isinstance(item, ApplyChild) and item.is_workload), len(actions)
    )
    return actions[: last + 1]


def may_be_refused(snapshot: Snapshot) -> bool:
    """Return whether the pods have parts from the user; all other parts are known to be valid.

    Labels of hosts do not count: the CRD of host groups accepts only valid ones.
    """
    spec = snapshot.group.spec if snapshot.group else None
    options = spec.scheduling_options if spec else None
    written = options and (options.resources or options.pod_template_additions or options.container_template_additions)
    return bool(written or (spec and spec.certificates))


def completed_changes(snapshot: Snapshot) -> list[SecretChange]:
    """Return the changed Secrets that need no action any more; the remaining ones are still pending."""
    return over(snapshot, _workload(snapshot))


def report(snapshot: Snapshot, problem: Problem) -> list[Action]:
    """Return the actions that report a problem during the writes of the children."""
    if snapshot.other is not None or snapshot.head.deleting:
        return []
    return _status(_with(snapshot, problem), None)


def _with(snapshot: Snapshot, problem: Problem) -> Snapshot:
    return replace(snapshot, problems=(*snapshot.problems, problem))


def _remove_finalizer(head: Head, *, beside: bool) -> list[Action]:
    """Remove the finalizer of a deleted host group; the garbage collector deletes its children.

    ``beside``: wasmcloud-operator is active, and removes its own finalizer.
    """
    ours = (names.FINALIZER_HOSTS,) if beside else (names.FINALIZER_HOSTS, names.WASMCLOUD_OPERATOR)
    kept = tuple(finalizer for finalizer in head.finalizers if finalizer not in ours)
    return [SetFinalizers(head, kept, "the group is being deleted")] if kept != head.finalizers else []


def _finalizers(head: Head) -> list[Action]:
    """Replace the finalizer of wasmcloud-operator, which nothing else removes any more, by that of Trellis."""
    kept = [finalizer for finalizer in head.finalizers if finalizer != names.WASMCLOUD_OPERATOR]
    wanted = tuple(kept if names.FINALIZER_HOSTS in kept else [*kept, names.FINALIZER_HOSTS])
    return [SetFinalizers(head, wanted, "hosts are managed here")] if wanted != head.finalizers else []


def _workload(snapshot: Snapshot) -> Manifest | None:
    """Return the workload, None if there is none."""
    return workload_of(snapshot.children, snapshot.head.name)


def _template_label(snapshot: Snapshot, group: Group) -> TemplateLabel | Problem:
    """Return the template revision and basis for the pods."""
    try:
        recorded, latest_requested = snapshot.status.get("templateRevision"), snapshot.head.wants_latest
        return template_label_for(
            group, snapshot.inputs, _workload(snapshot), latest_requested=latest_requested, recorded=recorded
        )
    except TemplateError as error:
        return Problem("InvalidTemplate", str(error))


def _first_template_label(snapshot: Snapshot) -> TemplateLabel | None:
    """Return the template label of the workload of a new group, whose first status needs no full read.

    If the status has a revision, a full read comes first: while a workload of one kind replaces that of the other,
    the reduced read may see the former one.
    """
    if "templateRevision" in snapshot.status:
        return None
    running = (snapshot.children.get((kind, snapshot.head.name)) for kind in WORKLOADS)
    return next(
        (label for child in running if child is not None and (label := read_template_label(child))),
        None,
    )


def _children(snapshot: Snapshot, group: Group, label: TemplateLabel) -> list[Manifest] | Problem:
    """Return the children of the host group, or the problem that prevents them."""
    workload = _workload(snapshot)
    desired = HostGroupSpec(
        group, snapshot.inputs, label.revision, managed_by(workload), *restarted(snapshot, workload)
    )
    try:
        wanted = make_children(desired, label, budget=label.revision >= LATEST and not snapshot.foreign_budget)
    except TemplateError as error:
        return Problem("InvalidTemplate", str(error))
    for child in wanted:
        found = snapshot.children.get((child["kind"], child["metadata"]["name"]))
        if found is not None and (owner := _other_owner(found, snapshot.head)):
            what = f"{child['kind']} {group.namespace}/{child['metadata']['name']}"
            return Problem("ChildConflict", f"{what} belongs to {owner}: name the group otherwise, or delete it")
    return wanted


def _other_owner(found: Manifest, head: Head) -> str:
    """Return the other object that controls a child, "" if there is none.

    A former group of this name does not count, and its child is adopted. Kubernetes deletes its children only if the
    garbage collector observes the deletion: if the group is re-created while the collector's watch is broken, the next
    list shows another uid, which counts as an update, and the children remain (so with Kubernetes 1.36). A child
    that was created after the group as it was read may be that of a later group.
    """
    older = found["metadata"].get("creationTimestamp", "") <= head.created
    for owner in found["metadata"].get("ownerReferences") or ():
        of_the_name = (owner.get("apiVersion"), owner.get("kind"), owner.get("name")) == (API_VERSION, KIND, head.name)
        if owner.get("controller") and owner.get("uid") != head.uid and not (older and of_the_name):
            return f"{owner.get('kind')} {owner.get('name')}"
    return ""


def _writes(snapshot: Snapshot, wanted: list[Manifest]) -> list[Action]:
    actions: list[Action] = []
    for child in wanted:
        key = child["kind"], child["metadata"]["name"]
        found = snapshot.children.get(key)
        if found is None:
            if not (snapshot.fresh and snapshot.applied.get(key, ("", ""))[0] == fingerprint(child)):
                actions.append(ApplyChild(child, None))
            continue
        # The server may normalize a value (1000m to 1): a child that is unchanged since its last write is not written.
        as_left = (fingerprint(child), fingerprint(found)) == snapshot.applied.get(key)
        managed = transferred_fields(found)
        if managed is not None or (not as_left and differs(child, found)):
            actions.append(ApplyChild(child, found, managed))
    return actions


def _deletions(snapshot: Snapshot, wanted: list[Manifest]) -> list[Action]:
    """Delete children that the group no longer has; objects of other owners are not touched."""
    assert snapshot.group is not None
    kept = {(child["kind"], child["metadata"]["name"]) for child in wanted}
    deletions: list[Action] = []
    for key in child_keys(snapshot.group):
        found = snapshot.children.get(key)
        if found is None or key in kept or found["metadata"].get("deletionTimestamp"):
            continue
        owners = found["metadata"].get("ownerReferences") or ()
        if any(owner.get("uid") == snapshot.group.uid for owner in owners):
            deletions.append(DeleteChild(found, "the host group does not need it any more"))
    return deletions


def _recycle(snapshot: Snapshot) -> list[Action]:
    """Restart one host without heartbeat if hostRecycling is set, and all pods of the group are ready."""
    wanted = snapshot.group is not None and snapshot.group.spec.host_recycling == ONE_AT_A_TIME
    counts = counts_of(snapshot)
    if not wanted or not snapshot.may_recycle or counts is None:
        return []
    if len(snapshot.pods) != counts.desired or not all(pod.ready for pod in snapshot.pods):
        return []
    missing = pods_without_heartbeat(snapshot)
    pod = next((pod for pod in snapshot.pods if missing and pod.name == missing[0]), None)
    if pod is None:
        return []
    return [RecyclePod(snapshot.head, pod, f"pod {pod.name} is restarted: its host sent no heartbeat for 70 s")]


def _retry(snapshot: Snapshot) -> list[Action]:
    workload = refused_workload(snapshot) if snapshot.retry_pods else None
    return [RetryPods(workload, snapshot.now)] if workload is not None else []


def _status(snapshot: Snapshot, label: TemplateLabel | None) -> list[Action]:
    """Write the status if it changed; record an Event for each new problem, and for each success."""
    if may_wait(snapshot):
        return []
    status = make_status(snapshot, StatusInputs(label.revision if label else None))
    if status == snapshot.status:
        return []
    # A merge patch keeps the fields that it does not contain.
    omitted = {name: None for name in snapshot.status if name not in status}
    actions: list[Action] = [WriteStatus(snapshot.head, status | omitted)]
    former = {
        (condition["type"], condition["status"], condition["reason"])
        for condition in snapshot.status.get("conditions") or ()
    }
    for kind, value, reason, message in own_conditions(snapshot, status):  # an Event has the complete message
        bad = value == ("False" if kind == REPORTED else "True")
        if (kind in PROBLEM_TYPES or kind == REPORTED) and bad and (kind, value, reason) not in former:
            actions.append(RecordGroupEvent(snapshot.head, reason, message))
    return [*actions, *_progress_events(snapshot, status)]


def _progress_events(snapshot: Snapshot, status: Manifest) -> Iterator[Action]:
    """Yield an Event for a changed number of hosts, and for a completed rollout."""
    former = snapshot.status
    before, desired = former.get("desiredReplicas"), status.get("desiredReplicas")
    if before is not None and before != desired and status.get("workload") == former.get("workload") == "Deployment":
        yield RecordGroupEvent(snapshot.head, "Scaled", f"scaled from {before} to {desired} hosts", warning=False)
    was, now = (
        {condition["type"]: condition for condition in found.get("conditions") or ()}.get("Progressing", {})
        for found in (former, status)
    )
    if was.get("status") == "True" and now.get("reason") == "Updated":
        message = f"the rollout is complete: {now['message']}"
        yield RecordGroupEvent(snapshot.head, "RolloutComplete", message, warning=False)
