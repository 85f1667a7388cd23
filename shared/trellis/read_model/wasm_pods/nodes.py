"""The rules by which the scheduler takes or rejects a node for a pod: labels and taints.

Pure. In: labels, taints, tolerations. Out: verdicts. Called by the check of the node of a pod. Source: the plugins
NodeAffinity and TaintToleration of the scheduler, and ``Toleration.ToleratesTaint`` of the core API. Affinity, topology
and resources are not evaluated: the message of the scheduler has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from trellis.provisioning.views import NodeTaint
from trellis.read_model.wasm_pods.pods import Pairs, Toleration

_REPELS: Final = frozenset({"NoSchedule", "NoExecute"})
_KNOWN: Final = frozenset({"", "Equal", "Exists"})


def has_labels(labels: Mapping[str, str], selector: Pairs) -> bool:
    """Return whether labels have all pairs of a node selector."""
    return all(labels.get(name) == value for name, value in selector)


def untolerated(taints: Iterable[NodeTaint], tolerations: Iterable[Toleration]) -> NodeTaint | None:
    """Return the first taint that keeps a pod from a node, None if there is none."""
    each = [*tolerations]
    return next(
        (taint for taint in taints if taint.effect in _REPELS and not any(_tolerates(item, taint) for item in each)),
        None,
    )


def _tolerates(item: Toleration, taint: NodeTaint) -> bool:
    """Return whether a toleration matches a taint; one with an unknown operator counts as matching."""
    if item.effect and item.effect != taint.effect:
        return False
    if item.key and item.key != taint.key:
        return False
    if item.operator not in _KNOWN:
        return True
    if item.operator == "Exists":
        return True
    return bool(item.key) and item.value == (taint.value or "")


def taint_text(taint: NodeTaint) -> str:
    """Return a taint as kubectl prints it: ``key=value:NoSchedule``."""
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"
