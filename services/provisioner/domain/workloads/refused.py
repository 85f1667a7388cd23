"""Evaluates controllers that cannot create pods: the API server refuses them, so there is no pod with a cause.

Pure. In: a controller with its template and its pods, in the snapshot with its Event. Out: an ``Observed`` that stands
for the missing pods in ``decide``. Called by the reader of these controllers. Invariants: the cause is the one of
``trellis explain``; missing pods without a cause are progress, and prevent that the workload counts as recovered.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from provisioner.domain.workloads.decide import Cause, Observed
from trellis.read_model.wasm_pods.explain.owner import counted_pods, creation_cause
from trellis.read_model.wasm_pods.owners import OwnerView
from trellis.read_model.wasm_pods.reasons import Reason
from trellis.read_model.wasm_pods.snapshot import Snapshot

_REASONS: Final = frozenset({Reason.RUNTIME_CLASS_MISSING, Reason.PODS_REFUSED})
"""Reasons of workloads without pods."""
UNREAD: Final = Observed(name="", uid="", runtime_class="")
"""Stands for pods that may be missing, because a controller was not read yet."""


def missing_pods(snapshot: Snapshot, controller: OwnerView, at: float) -> Observed | None:
    """Return what stands for the pods that a controller has not created, None if it has all of them, or needs none.

    ``snapshot.pods``: those that it has; ``at``: Unix seconds of its last failed attempt.
    """
    line = creation_cause(snapshot, controller)
    if line is None and not _lacks_pods(snapshot, controller):
        return None
    cause = Cause(line.reason, line.shown) if line is not None else None
    return Observed(name="", uid="", runtime_class=controller.template.runtime_class, created_at=at, cause=cause)


def depends_on_unread(failing: Collection[str]) -> bool:
    """Return whether a controller that was not read can be the cause of a published failure, by its reasons."""
    return not _REASONS.isdisjoint(failing)


def _lacks_pods(snapshot: Snapshot, controller: OwnerView) -> bool:
    if controller.meta.deleting or controller.suspended or controller.wanted is None:
        return False
    return len(counted_pods(controller, snapshot.pods)) < controller.wanted
