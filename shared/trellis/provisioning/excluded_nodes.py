"""Nodes on which no installer can run, or whose end is decided: the marks by which their owners name them.

Pure. In: labels, taints and metadata of a Node. Out: why it is skipped. Called by ``node_and_job``; read from the
Node's view by ``provisioner`` (no Job, no slot) and by whatever shows nodes.
Invariant: a node is skipped by what stands on it now, so it is worked on as soon as the mark is gone.
Source: EKS and the virtual-kubelet project (nodes without a disk of their own or privileged pods), Cluster Autoscaler
and Karpenter (nodes that are drained and deleted). ``DeletionCandidateOfClusterAutoscaler`` names a candidate alone,
and a cordoned node still runs a pod that names it: neither is skipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from trellis.provisioning.reasons import Reason

_LABELS: Final = (
    ("eks.amazonaws.com/compute-type", "fargate", Reason.FARGATE_NODE),
    ("type", "virtual-kubelet", Reason.VIRTUAL_KUBELET_NODE),
)
_TAINTS: Final[tuple[tuple[str, str | None, Reason], ...]] = (
    ("eks.amazonaws.com/compute-type", "fargate", Reason.FARGATE_NODE),
    ("virtual-kubelet.io/provider", None, Reason.VIRTUAL_KUBELET_NODE),
    ("ToBeDeletedByClusterAutoscaler", None, Reason.NODE_SCALING_DOWN),
    ("karpenter.sh/disrupted", None, Reason.NODE_SCALING_DOWN),
    ("karpenter.sh/disruption", "disrupting", Reason.NODE_SCALING_DOWN),
)
"""Keys with the value that they must have; None: any."""


@dataclass(frozen=True, slots=True)
class Skip:
    """Why a node is skipped. ``mark``: what on the Node says so."""

    reason: Reason
    mark: str

    @property
    def message(self) -> str:
        """Return the reason for users."""
        return f"no installer runs on this node: it has {self.mark}; it is provisioned once that is removed"


def skip_of(labels: Mapping[str, str], taints: Iterable[tuple[str, str | None]], *, deleting: bool) -> Skip | None:
    """Return why a node is skipped, None if it is not; ``taints``: keys and values."""
    for label, needed, reason in _LABELS:
        if labels.get(label) == needed:
            return Skip(reason, f"the label {label}={needed}")
    for key, value in taints:
        for taint, wanted, reason in _TAINTS:
            if key == taint and wanted in {None, value}:
                return Skip(reason, f"the taint {key}")
    return Skip(Reason.NODE_DELETING, "a deletionTimestamp") if deleting else None
