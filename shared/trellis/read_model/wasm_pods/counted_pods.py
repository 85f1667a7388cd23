"""The pods that count for their owner: one that has failed does not once its successor exists.

Pure. In: pods of one owner, without those in deletion. Out: those that count. Called by the page of an owner, by
tables, and by the reports of provisioner. Source: controllers of Kubernetes create another pod at once for one that has
ended, except that of Jobs, which waits 10 s and more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol, TypeVar

RUN_ALWAYS: Final = frozenset({"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "SpinApp"})
"""Kinds whose controller creates another pod at once for one that has ended, also without an error."""
_PARALLEL: Final = frozenset({"Job", "CronJob"})


class Counted(Protocol):
    """A pod."""

    @property
    def works(self) -> bool:
        """True if it is ready or has completed."""

    @property
    def ended(self) -> bool:
        """True if its containers do not restart."""

    @property
    def created_at(self) -> float:
        """Unix seconds, 0.0 if not known."""


P = TypeVar("P", bound=Counted)


def counted(kind: str, pods: Sequence[P]) -> list[P]:
    """Return the pods that count; ``kind``: of their owner.

    A failed pod of a Job, or of another controller, counts until a later one exists. The pods of a parallel Job are
    created in the same second. A pod that has completed does not count for a kind whose pods are to run: one that a
    shutdown of its node has ended can have the phase Succeeded.
    """
    failed = [pod for pod in pods if pod.ended and not pod.works]
    if kind in RUN_ALWAYS:
        return [pod for pod in pods if not pod.ended] or failed
    others = [pod for pod in pods if not pod.ended or pod.works]
    newest = max((pod.created_at for pod in others), default=-1.0)
    parallel = kind in _PARALLEL
    return [*others, *(pod for pod in failed if pod.created_at > newest or (parallel and pod.created_at == newest))]
