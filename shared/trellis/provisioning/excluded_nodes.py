"""Nodes without an installer: nodes that cannot run privileged pods, or that are being deleted.

Pure. In: labels, taints and metadata of a Node. Out: the reason to skip it. Called by ``nodes_and_jobs``; read from the
view of the Node by ``provisioner`` (no Job, no slot) and by code that shows nodes. Invariant: only the present labels
and taints count, so a node is provisioned as soon as they are removed. Source: EKS and the virtual-kubelet project
(nodes without their own disk or privileged pods), Cluster Autoscaler and Karpenter (nodes that are drained and
deleted). ``DeletionCandidateOfClusterAutoscaler`` marks candidates only, and cordoned nodes still run pods with a
nodeName: neither is skipped.
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
    """The reason why a node is skipped. ``cause``: the label, taint or field of the Node that causes it."""

    reason: Reason
    cause: str

    @property
    def message(self) -> str:
        """Return the reason for users."""
        return f"no installer runs on this node: it has {self.cause}; it is provisioned once that is removed"


def skip_of(labels: Mapping[str, str], taints: Iterable[tuple[str, str | None]], *, deleting: bool) -> Skip | None:
    """Return the reason why a node is skipped, or None; ``taints``: keys and values."""
    for label, needed, reason in _LABELS:
        if labels.get(label) == needed:
            return Skip(reason, f"the label {label}={needed}")
    for key, value in taints:
        for taint, wanted, reason in _TAINTS:
            if key == taint and wanted in {None, value}:
                return Skip(reason, f"the taint {key}")
    return Skip(Reason.NODE_DELETING, "a deletionTimestamp") if deleting else None
