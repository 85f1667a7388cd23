"""Computes the status of a host group: counts, pods, the conditions such as Available, Progressing and Degraded.

Pure. In: a snapshot. Out: the status to write. Called by ``decide``. Invariants: unknown state is Unknown, never False;
fields of wasmcloud-operator keep their values until the lattice reports new ones; a condition that was never needed is
absent; Ready, Reconciling and Stalled follow from the other conditions alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from host_manager.domain.children import WORKLOADS, read_template_label
from host_manager.domain.group import Manifest
from host_manager.domain.snapshot import Snapshot
from host_manager.domain.template import MISPLACED, selector_of
from host_manager.lattice_status import REPORTED, make_conditions, make_hosts, make_lattice
from trellis import names
from trellis.crds.conditions import Health, State, cause_of_refusal, make_condition, summary

OTHER: Final = "OtherControllerActive"
DEPRECATED: Final = "DeprecatedFields"
PROBLEM_TYPES: Final = frozenset({"Degraded", OTHER, DEPRECATED})
"""Conditions for which True is a problem."""
MASS_DELETION: Final = "MassDeletion"
_PAUSED: Final = (
    "the circuit breaker paused the deletion: `trellis circuit-breaker close host-manager` confirms it; to keep the "
    f"hosts: delete with --cascade=orphan, remove finalizer {names.FINALIZER_HOSTS}, re-create"
)
_STALLED: Final = frozenset(
    {
        MASS_DELETION,
        "AnnotationUnknown",
        "ChildConflict",
        "InvalidSpec",
        "InvalidTemplate",
        "RegistriesLeftOut",
        "RegistryNotNamed",
        "RegistrySecretInvalid",
    }
)
"""Reasons of Degraded that no retry changes: a user has to change the spec or the object that it refers to."""
_UNHEARD: Final = frozenset({"LatticeNotConnected", "LatticeUnreachable"})
"""Reasons of HostsReporting with which the state of the hosts is unknown."""


@dataclass(frozen=True, slots=True)
class StatusInputs:
    """Results of the decision that the status contains. ``revision``: of the template; None keeps the former one."""

    revision: int | None


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of pods. ``updated``: of the newest template. ``seen``: the controller has observed the newest spec."""

    kind: str
    desired: int
    replicas: int
    ready: int
    updated: int
    seen: bool


_REFUSALS: Final = frozenset({"InvalidTemplate", "ChildConflict", "WriteRefused"})


def refused_by(status: Mapping[str, Any]) -> bool:
    """Return whether a status has a problem that is detected only when children are built or written."""
    conditions = status.get("conditions") or ()
    return any(condition["type"] == "Degraded" and condition["reason"] in _REFUSALS for condition in conditions)


def make_status(snapshot: Snapshot, inputs: StatusInputs) -> Manifest:
    """Return the new status; a condition keeps the time of its last change of status."""
    former = snapshot.status
    if snapshot.deletion_paused:
        return _with_own_conditions(snapshot) | {"observedGeneration": snapshot.head.generation}
    if snapshot.other is not None:
        return _with_own_conditions(snapshot)
    counts = counts_of(snapshot)
    lattice = make_lattice(snapshot)
    status: Manifest = lattice | {
        "observedGeneration": snapshot.head.generation,
        "conditions": _conditions(snapshot, lattice),
        "hosts": make_hosts(snapshot),
        # Set before any pod exists, for `kubectl scale` and autoscalers.
        "selector": ",".join(f"{name}={value}" for name, value in _selector(snapshot).items()),
        "replicas": counts.replicas if counts else 0,
        "desiredReplicas": counts.desired if counts else 0,
        "readyReplicas": counts.ready if counts else 0,
        "updatedReplicas": counts.updated if counts else 0,
    }
    if counts:
        status["workload"] = counts.kind
    revision = inputs.revision if inputs.revision is not None else former.get("templateRevision")
    return status | ({"templateRevision": revision} if revision is not None else {})


def may_wait(snapshot: Snapshot) -> bool:
    """Return whether the workload of a new group has no observed state yet, so that the first status is delayed.

    One status then replaces two.
    """
    counts = counts_of(snapshot)
    return snapshot.early and not snapshot.problems and (counts is None or not counts.seen)


def counts_of(snapshot: Snapshot) -> Counts | None:
    """Return the counts of the workload, None if there is none yet."""
    found = [child for kind in WORKLOADS if (child := snapshot.children.get((kind, snapshot.head.name))) is not None]
    # While one kind replaces the other, both exist: that of Trellis has the label.
    workload = next((child for child in reversed(found) if read_template_label(child)), found[0] if found else None)
    if workload is None:
        return None
    status: Mapping[str, Any] = workload.get("status") or {}
    seen = (status.get("observedGeneration") or 0) >= (workload["metadata"].get("generation") or 0)
    if workload["kind"] == "DaemonSet":
        names = ("desiredNumberScheduled", "currentNumberScheduled", "numberReady", "updatedNumberScheduled")
        desired, replicas, ready, updated = (int(status.get(name) or 0) for name in names)
        return Counts("DaemonSet", desired, replicas, ready, updated, seen)
    replicas, ready, updated = (int(status.get(name) or 0) for name in ("replicas", "readyReplicas", "updatedReplicas"))
    return Counts("Deployment", int(workload["spec"].get("replicas", 1)), replicas, ready, updated, seen)


def refused_workload(snapshot: Snapshot) -> Manifest | None:
    """Return the workload if the API server rejects some of its pods, else None.

    A DaemonSet has no condition for that: it has fewer pods than nodes to run them.
    """
    counts = counts_of(snapshot)
    if counts is None:
        return None
    workload = snapshot.children[counts.kind, snapshot.head.name]
    fewer = counts.kind == "DaemonSet" and counts.seen and counts.replicas < counts.desired
    return workload if fewer or _failure(workload) is not None else None


def _failure(workload: Manifest) -> Manifest | None:
    """Return the condition of a Deployment whose pods are rejected."""
    conditions = (workload.get("status") or {}).get("conditions") or ()
    return next(
        (
            condition
            for condition in conditions
            if (condition.get("type"), condition.get("status")) == ("ReplicaFailure", "True")
        ),
        None,
    )


def _selector(snapshot: Snapshot) -> dict[str, str]:
    if snapshot.group is not None:
        return selector_of(snapshot.group)
    return {}


def _conditions(snapshot: Snapshot, lattice: Manifest) -> list[Manifest]:
    found = own_conditions(snapshot, lattice)
    former = snapshot.status.get("conditions") or ()
    # A condition of application_manager.
    others = [item for item in former if item["type"] == names.CONDITION_APPLICATIONS_SYNCED]
    return [*(_dated(item, snapshot) for item in (*summary(health_of(found)), *found)), *others]


Finding = tuple[str, str, str, str]
"""Type, status, reason and message of a condition."""


def own_conditions(snapshot: Snapshot, lattice: Mapping[str, Any]) -> list[Finding]:
    """Return the conditions that the summary follows from, with complete messages; ``lattice``: of the new status."""
    if snapshot.deletion_paused:
        return [("Degraded", "True", MASS_DELETION, _PAUSED)]
    if snapshot.other is not None:  # wasmcloud-operator writes the status, too
        return [(OTHER, "True", "WasmCloudOperatorRuns", snapshot.other.advice)]
    counts = counts_of(snapshot)
    found = [
        _available(snapshot, counts),
        _progressing(snapshot, counts),
        _degraded(snapshot, counts),
        *make_conditions(snapshot, lattice),
    ]
    former = snapshot.status.get("conditions") or ()
    known = {item["type"] for item in former}
    for kind, wrong in ((DEPRECATED, _deprecated(snapshot)), (OTHER, "")):
        if wrong or kind in known:
            reason = ("FieldsDeprecated" if kind == DEPRECATED else OTHER) if wrong else "Healthy"
            found.append((kind, "True" if wrong else "False", reason, wrong))
    return found


def health_of(conditions: Iterable[Finding]) -> Health:
    """Return what a group's own conditions come to, with the one that explains it; the first check that applies wins.

    1. Another controller manages the group: stalled until it is removed.
    2. Degraded: stalled if no retry changes its reason.
    3. The lattice is unreachable: the state of the hosts is unknown.
    4. Pods are being created, updated or started.
    5. The lattice is not connected yet: the state of the hosts is unknown, too.
    6. A host reports no heartbeat, or none yet. Pods from before template revision 2 report no host, which is healthy.
    """
    found = {kind: (status, reason, message) for kind, status, reason, message in conditions}
    for kind in (OTHER, "Degraded"):
        status, reason, message = found.get(kind, ("", "", ""))
        if status == "True":
            stalled = kind == OTHER or reason in _STALLED
            return Health(State.STALLED if stalled else State.RECONCILING, reason, message)
    status, reason, message = found[REPORTED]
    if reason == "LatticeUnreachable":
        return Health(State.UNKNOWN, reason, message)
    for kind, bad in (("Progressing", "True"), ("Available", "False")):
        status, reason, message = found[kind]
        if status == bad:
            return Health(State.RECONCILING, reason, message)
    status, reason, message = found[REPORTED]
    if reason in _UNHEARD:
        return Health(State.UNKNOWN, reason, message)
    if status == "False" or reason == "WaitingForHosts":
        return Health(State.RECONCILING, reason, message)
    return Health(State.READY, *found["Available"][1:])


def _blocker(snapshot: Snapshot) -> tuple[str, str] | None:
    problems = sorted(snapshot.problems, key=lambda problem: not problem.blocks)
    return (problems[0].reason, " · ".join(problem.message for problem in problems)) if problems else None


def _available(snapshot: Snapshot, counts: Counts | None) -> Finding:
    kind = "Available"
    if counts is None:
        reason, message = _blocker(snapshot) or ("NotCreated", "the pods are not created yet")
        return kind, "False", reason, message
    text = f"{counts.ready} of {counts.desired} hosts are ready"
    if counts.ready >= counts.desired:
        return kind, "True", "HostsReady", text
    return kind, "False", "HostsNotReady", text


def _progressing(snapshot: Snapshot, counts: Counts | None) -> Finding:
    kind = "Progressing"
    if any(problem.blocks for problem in snapshot.problems):
        reason, message = _blocker(snapshot) or ("", "")
        return kind, "False", reason, message
    if counts is None or not counts.seen:
        return kind, "True", "Updating", "the workload controller has not observed the current spec yet"
    text = f"{counts.updated} of {counts.desired} hosts have the current template"
    if counts.updated < counts.desired or counts.replicas > counts.desired:
        return kind, "True", "Updating", text
    if counts.ready < counts.desired:
        return kind, "True", "Starting", text
    return kind, "False", "Updated", text


def _degraded(snapshot: Snapshot, counts: Counts | None) -> Finding:
    """Return the condition Degraded; the most severe problem first: missing inputs, rejected writes, failing pods.

    Problems that do not prevent hosts from running come last, so that they do not hide the cause of an outage.
    """
    kind = "Degraded"
    blocker = _blocker(snapshot)
    if blocker and any(problem.blocks for problem in snapshot.problems):
        return kind, "True", *blocker
    workload = snapshot.children.get((counts.kind, snapshot.head.name)) if counts else None
    if workload is not None and (item := _failure(workload)) is not None:
        return (
            kind,
            "True",
            str(item.get("reason") or "ReplicaFailure"),
            cause_of_refusal(str(item.get("message") or "")),
        )
    troubled = sorted((pod for pod in snapshot.pods if pod.trouble), key=lambda pod: pod.name)
    if troubled:
        first = troubled[0]
        trouble = first.trouble
        assert trouble is not None
        place = f"pod {first.name}" + (f", container {trouble.container}" if trouble.container else "")
        log_text = f"; last log line: {snapshot.last_log_line}" if snapshot.last_log_line else ""
        more = f", and {len(troubled) - 1} more" if len(troubled) > 1 else ""
        return kind, "True", trouble.reason, f"{trouble.message or trouble.reason}{log_text} ({place}{more})"
    return (kind, "True", *blocker) if blocker else (kind, "False", "Healthy", "")


def _deprecated(snapshot: Snapshot) -> str:
    """Return the deprecated or ignored fields of the spec, "" if there are none."""
    if snapshot.group is None:
        return ""
    spec, found = snapshot.group.spec, []
    if spec.issuers:
        found.append("spec.issuers: hosts ignore it")
    if spec.daemonset is not None:
        found.append("spec.daemonset: ignored until the next roll if adopted; use spec.schedulingOptions.daemonset")
    options = spec.scheduling_options
    if options and MISPLACED in options.pod_template_additions:
        found.append("schedulingOptions.podTemplateAdditions.spec: ignored; move its fields up")
    return " · ".join(found)


def _dated(finding: Finding, snapshot: Snapshot) -> Manifest:
    former = snapshot.status.get("conditions") or ()
    return make_condition(finding, former, snapshot.head.generation, snapshot.now)


def _with_own_conditions(snapshot: Snapshot) -> Manifest:
    """Return the status with its own conditions and the health that follows from them alone; all else is unchanged."""
    found = own_conditions(snapshot, snapshot.status)
    ours = [_dated(item, snapshot) for item in (*summary(health_of(found)), *found)]
    replaced = {item["type"] for item in ours}
    rest = [condition for condition in snapshot.status.get("conditions") or () if condition["type"] not in replaced]
    return {"apps": [], "app_count": 0, **snapshot.status, "conditions": [*rest, *ours]}
