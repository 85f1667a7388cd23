"""State of a Wasm pod, and its cause: the first step of its start that is wrong.

Pure. In: a pod in its snapshot. Out: health, cause, page. Called by ``explain`` and by the page of an owner. Invariant:
the checks are in the order in which Kubernetes starts a pod, so the first one that fails is the cause.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from trellis.read_model.explain.page import Explanation, Line, Manifest, Rank
from trellis.read_model.explain.subject import Beside, Subject, cause_of, verdict_of
from trellis.read_model.health import Verdict
from trellis.read_model.wasm_pods.explain import containers, placing
from trellis.read_model.wasm_pods.explain.lines import short, waits, wrong
from trellis.read_model.wasm_pods.failures import bare
from trellis.read_model.wasm_pods.pods import WasmPod
from trellis.read_model.wasm_pods.reasons import Reason
from trellis.read_model.wasm_pods.snapshot import Part, Snapshot

SUBJECT: Final = Subject("Pod", "pod", "kubectl get pods -A", "ready")
NOT_KILLED: Final = "FailedKillPod"
_NODE_AFFINITY: Final = "NodeAffinity"
"""Reason of the kubelet for a pod that names a node without the labels (Kubernetes, pkg/kubelet/lifecycle)."""


def explain_pod(snapshot: Snapshot, pod: WasmPod, found: Manifest, beside: Beside) -> Explanation:
    """Return the page of a pod; ``found``: its manifest."""
    chain = [*_chain(snapshot, pod)]
    return SUBJECT.page(found, chain, beside, verdict_of(cause_of(chain), Reason.HEALTHY))


def pod_health(snapshot: Snapshot, pod: WasmPod) -> Verdict:
    """Return the health of a pod, as its page has it."""
    return verdict_of(pod_cause(snapshot, pod), Reason.HEALTHY)


def pod_cause(snapshot: Snapshot, pod: WasmPod) -> Line | None:
    """Return the cause of a pod that does not work, None if it does: as its page has it."""
    return cause_of(_chain(snapshot, pod))


def _chain(snapshot: Snapshot, pod: WasmPod) -> Iterator[Line]:
    owner = f" of {pod.owner_kind} {pod.meta.owner_name}" if pod.meta.owner_name else ""
    yield Line("pod", f"{pod.meta.key}{owner}, {pod.phase or 'phase unknown'}", ok=True)
    if pod.meta.deleting:
        yield from _deletion(snapshot, pod)
        return
    for check in _CHECKS:
        line = check(snapshot, pod)
        if line is None:
            continue
        yield line
        if line.trouble:
            yield from _unread(snapshot)
            return


def _deletion(snapshot: Snapshot, pod: WasmPod) -> Iterator[Line]:
    """Yield the steps of the end of a pod: its kubelet ends the containers, then finalizers are removed."""
    node = placing.node(snapshot, pod)
    if node is not None and not pod.ended:
        yield replace(node, do=f"{node.do}; only the kubelet ends its containers" if node.do else "")
    until = f", with a grace period until {pod.deletion}" if pod.deletion else ""
    kept = f"; controllers have to remove its finalizers {', '.join(pod.finalizers)}" if pod.finalizers else ""
    words = next((bare(event.message) for event in snapshot.events_of(pod.meta.uid, NOT_KILLED)), "")
    failed = f"; the kubelet cannot end it: {short(words)}" if words else ""
    yield waits("deletion", f"it is being deleted{until}{kept}{failed}", Reason.DELETING)


def _unread(snapshot: Snapshot) -> Iterator[Line]:
    """Yield the Events if they are unknown: they can have an earlier cause, or the words of this one."""
    if not snapshot.knows(Part.EVENTS):
        yield Line("events", f"unknown: {snapshot.unread[Part.EVENTS]}")


def _rejected(snapshot: Snapshot, pod: WasmPod) -> Line | None:
    """Return the step of a pod that the kubelet, or an eviction, has ended."""
    del snapshot
    if pod.works or not pod.ended or not pod.reason:
        return None
    text = f"it was ended with reason {pod.reason}: {short(pod.message) or 'no message'}"
    if pod.reason == _NODE_AFFINITY:
        do = (
            f"node {pod.node} lacks a label that the pod needs, or lacked it when its kubelet was restarted: delete "
            "the pod, and remove nodeName, so that the scheduler chooses"
        )
        return wrong(pod, "rejected", text, do, Reason.NO_NODE_WITH_LABEL)
    return wrong(pod, "rejected", text, _after_end(pod), Reason.POD_FAILED)


def _after_end(pod: WasmPod) -> str:
    then = "its owner creates another pod" if pod.meta.owner_name else "re-create it: it has no owner that does"
    return f"`kubectl describe pod -n {pod.meta.namespace} {pod.meta.name}` shows its Events; {then}"


def _running(snapshot: Snapshot, pod: WasmPod) -> Line:
    """Return the last step: the pod works, or it is on the way."""
    if pod.works:
        return Line("ready", "it is ready" if pod.ready else "it has completed", ok=True)
    if pod.ended:
        return wrong(pod, "ready", f"it has ended, phase {pod.phase}", _after_end(pod), Reason.POD_FAILED)
    known = "" if snapshot.knows(Part.EVENTS) else f"; Events are unknown: {snapshot.unread[Part.EVENTS]}"
    return waits("ready", f"its containers are being started{known}", Reason.STARTING)


def _node_of_started(snapshot: Snapshot, pod: WasmPod) -> Line | None:
    """Return the step of the node. The kubelet that ended a pod has worked then."""
    line = placing.node(snapshot, pod)
    return replace(line, rank=Rank.ASIDE) if line is not None and pod.ended and line.trouble else line


_CHECKS: Final[tuple[Callable[[Snapshot, WasmPod], Line | None], ...]] = (
    placing.runtime_class,
    placing.placement,
    _rejected,
    _node_of_started,
    placing.handler,
    placing.volumes,
    placing.sandbox,
    containers.images,
    containers.creation,
    containers.ends,
    containers.probes,
    _running,
)
