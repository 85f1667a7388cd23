"""Startup taints and late verification of the Shims of a node.

Pure. In: a Node, its target Shims, its verified state. Out: operations of a JSON patch, a verification. Called by
``decide``. Invariant: a taint is removed only when every Shim of the node that names it is verified, and is never
restored.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from trellis.provisioning.shims import ShimView, Taint
from trellis.provisioning.views import KWASM, NodeTaint, NodeView, Proof, proved_of

PatchOp = dict[str, Any]


def startup_taints_over(node: NodeView, shims: Iterable[ShimView], proved: Collection[str]) -> tuple[NodeTaint, ...]:
    """Return the taints of a node that have served: all Shims that name one are among ``proved``, by name."""
    named = [(shim.name, shim.startup_taint) for shim in shims if shim.startup_taint is not None]

    def over(found: NodeTaint) -> bool:
        waits = [name for name, taint in named if _is(found, taint)]
        return bool(waits) and all(name in proved for name in waits)

    return tuple(filter(over, node.taints))


def remove_taints(node: NodeView, gone: Collection[NodeTaint]) -> tuple[PatchOp, ...]:
    """Return the operations that take taints away, () for none.

    Taints are one atomic list: it is tested as it was read, and written whole.
    """
    if not gone:
        return ()
    path, before = "/spec/taints", [taint.manifest() for taint in node.taints]
    left = [taint.manifest() for taint in node.taints if taint not in gone]
    test = {"op": "test", "path": path, "value": before}
    return (test, {"op": "replace", "path": path, "value": left} if left else {"op": "remove", "path": path})


def proof_by_now(node: NodeView, shims: Iterable[ShimView]) -> Proof | None:
    """Return what is proved of a marked node, or more than its marks say.

    A node that was taken over while its kubelet listed no handlers is marked as proved by a Job alone. Once the
    kubelet lists those of all that is installed, that is the usual proof. What a legacy installer image brings is not
    known by its handler, and so stays as it is.
    """
    if node.proof is not Proof.JOB:
        return node.proof
    handlers, installed = {shim.name: shim.handler for shim in shims}, proved_of(node.installed)
    shown = installed and all(name != KWASM and handlers.get(name) in node.handlers for name in installed)
    return Proof.HANDLER if shown else Proof.JOB


def _is(found: NodeTaint, taint: Taint) -> bool:
    same = (found.key, found.effect) == (taint.key, taint.effect)
    return same and taint.value in {None, found.value or ""}
