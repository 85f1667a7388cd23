"""Refusals of the API server: pods of installer Jobs, by the Events of the Job controller, and writes for nodes.

In: Events with reason FailedCreate about Jobs, and Jobs, because a suspended one gets no pod either; reports of
``decide``, and refused writes. Out: messages for ``gather``, the status of Shims and readiness, and for how long they
are known. Changed by ``cache``. Invariants: time is by the clock of this process; an Event that expires ends its
report; readiness names a refusal by its reason, as the Node and its Shims do, as long as one node has it.
Source: the Event of the Job controller; a Job without a pod has no condition for that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from trellis.kube.changes import Change
from trellis.provisioning.installer_pods import SUSPENDED, refused_pod
from trellis.provisioning.reasons import Reason
from trellis.provisioning.views import JobView, NodeView

FAILED_CREATE: Final = "reason=FailedCreate,involvedObject.kind=Job"
"""Field selector of these Events."""
_SUSPENDED: Final = "spec.suspend"
"""Key in place of that of an Event."""


@dataclass(frozen=True, slots=True)
class PodRefusal:
    """One Event. ``at``: time of its last occurrence, RFC 3339."""

    job_uid: str
    message: str
    at: str


def view_pod_refusal(manifest: Mapping[str, Any]) -> PodRefusal:
    """Return the relevant fields of an Event."""
    involved, series = manifest.get("involvedObject") or {}, manifest.get("series") or {}
    times = (series.get("lastObservedTime"), manifest.get("lastTimestamp"), manifest.get("eventTime"))
    at = max((str(item) for item in times if item), default="")
    return PodRefusal(str(involved.get("uid") or ""), refused_pod(manifest), at)


@dataclass(eq=False)
class PodRefusals:
    """By UID of a Job, its Events by key, and the monotonic time since which the first is known."""

    now: Callable[[], float] = time.monotonic
    events: dict[str, dict[str, PodRefusal]] = field(default_factory=dict)
    since: dict[str, float] = field(default_factory=dict)

    def take(self, change: Change[PodRefusal]) -> str:
        """Record one change of the informer; return the UID of the Job."""
        item = change.new or change.old
        uid = item.job_uid if item is not None else ""
        self._note(uid, change.key, change.new)
        return uid

    def take_job(self, old: JobView | None, new: JobView | None) -> None:
        """Record one change of a Job: a suspended Job has no Event, and its pods are deleted."""
        if new is not None and new.suspended and not new.deleting:
            message = f"the installer {SUSPENDED}; exempt namespace {new.namespace} there, or resume it"
            self._note(new.uid, _SUSPENDED, PodRefusal(new.uid, message, ""))
        elif (job := new or old) is not None:
            self._note(job.uid, _SUSPENDED, None)

    def _note(self, uid: str, key: str, refusal: PodRefusal | None) -> None:
        if refusal is not None:
            self.events.setdefault(uid, {})[key] = refusal
            self.since.setdefault(uid, self.now())
        elif uid in self.events:
            self.events[uid].pop(key, None)
            if not self.events[uid]:
                self.events.pop(uid)
                self.since.pop(uid, None)

    def reason_of(self, job_uid: str) -> str:
        """Return why a Job has no pod: it is suspended, or the last error of the API server; "" if neither."""
        found = self.events.get(job_uid)
        return max(found.items(), key=lambda item: (item[0] == _SUSPENDED, item[1].at))[1].message if found else ""

    def seconds(self, job_uid: str) -> float:
        """Return the seconds for which a refusal is known, 0 if none is."""
        return self.now() - self.since[job_uid] if job_uid in self.since else 0.0


@dataclass(frozen=True, slots=True)
class Refusal:
    """Reason why a node cannot be provisioned. ``message``: with the error of the API server."""

    node: str
    reason: Reason
    message: str


@dataclass(eq=False)
class RefusedNodes:
    """Refusals by UID of the Node. ``report`` receives a reason and its text for readiness, "" for none."""

    report: Callable[[Reason, str], None] = lambda _reason, _text: None
    by_uid: dict[str, Refusal] = field(default_factory=dict)

    def take(self, node: NodeView, reason: Reason, message: str) -> bool:
        """Record a refusal; return whether it is new."""
        refusal = Refusal(node.name, reason, message)
        former = self.by_uid.get(node.uid)
        self.by_uid[node.uid] = refusal
        self._report(*{reason, former.reason if former is not None else reason})
        return former != refusal

    def end(self, node_uid: str) -> bool:
        """Drop a node; return whether it had a refusal."""
        ended = self.by_uid.pop(node_uid, None)
        if ended is not None:
            self._report(ended.reason)
        return ended is not None

    def message_of(self, node_uid: str) -> str:
        """Return the reported refusal of a node, with the error of the API server; "" if nothing is refused there."""
        return self.by_uid[node_uid].message if node_uid in self.by_uid else ""

    def forget(self) -> None:
        """End all reports, because another replica provisions."""
        for reason in {item.reason for item in self.by_uid.values()}:
            self.report(reason, "")

    def _report(self, *reasons: Reason) -> None:
        for reason in reasons:
            those = [item for item in self.by_uid.values() if item.reason is reason]
            count = f"{len(those)} node{'s' * (len(those) != 1)}"
            self.report(reason, f"{count}, {those[-1].node}: {those[-1].message}" if those else "")
