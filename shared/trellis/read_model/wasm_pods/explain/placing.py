"""Checks of a Wasm pod before its containers: RuntimeClass, node, handler, volumes, sandbox.

Pure. In: a pod in its snapshot. Out: one line per step. Called by the chain of a pod and by that of an owner.
Invariants: the objects come before the words of the scheduler and of containerd, which are the evidence if objects
cannot be read; a RuntimeClass, a node or a Shim that could not be read is unknown and never absent.
"""

from __future__ import annotations

import difflib
from collections import Counter
from dataclasses import replace
from typing import Final

from trellis.provisioning.shims import ShimView
from trellis.provisioning.views import NodeTaint, NodeView, verified_digests
from trellis.read_model.explain.page import Line
from trellis.read_model.wasm_pods.explain.lines import (
    SHOWN,
    labels_text,
    runtime_log,
    see_node,
    see_shim,
    short,
    unknown,
    waits,
    wrong,
)
from trellis.read_model.wasm_pods.failures import SANDBOX, bare, of_creation, of_scheduling
from trellis.read_model.wasm_pods.nodes import taint_text
from trellis.read_model.wasm_pods.pods import Pairs, WasmPod
from trellis.read_model.wasm_pods.reasons import Reason
from trellis.read_model.wasm_pods.snapshot import Part, Snapshot
from trellis.v2.fields import listed

MOUNT_EVENTS: Final = ("FailedMount", "FailedAttachVolume")
_NETWORK: Final = ("setup network for sandbox", "cni plugin")
_SANDBOX_IMAGE: Final = "failed to get sandbox image"
"""containerd pulls the image of sandboxes (pause) like any other one."""
_MISSING: Final = ("not installed", "no such file", "executable file not found")
_GATED: Final = "SchedulingGated"
_CORDONED: Final = "node.kubernetes.io/unschedulable"
_OF_NODES: Final = "node.kubernetes.io/"
"""Begin of the taints that Kubernetes sets for the state of a node."""
_KUBELET: Final = frozenset({"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})


def runtime_class(snapshot: Snapshot, pod: WasmPod) -> Line:
    """Return the step of the RuntimeClass. A pod without one runs in the default runtime of its node."""
    about, name = "runtimeclass", pod.runtime_class
    if not name:
        return Line(about, "it sets no runtimeClassName, so the default runtime of its node runs it")
    found = snapshot.runtime_class(name)
    if found is not None:
        shim = snapshot.shim_of(found.handler, name)
        of = f"; Shim {shim.name} provides it" if shim is not None else ""
        if shim is None:
            known = snapshot.knows(Part.SHIMS)
            of = "; no Shim provides it" if known else f"; Shims are unknown: {snapshot.unread[Part.SHIMS]}"
        return Line(about, f"{name} has handler {found.handler or '(none)'}{of}", ok=True)
    if not snapshot.knows(Part.CLASSES):
        return unknown(snapshot, about, f"{name}: its handler is", Part.CLASSES)
    return wrong(
        pod, about, f"RuntimeClass {name} does not exist", _class_advice(snapshot, name), Reason.RUNTIME_CLASS_MISSING
    )


def _class_advice(snapshot: Snapshot, name: str) -> str:
    shim = next((item for item in snapshot.shims if item.runtime_class == name), None)
    if shim is not None:
        return f"Shim {shim.name} creates it: {see_shim(shim.name)} shows why it has not"
    ours = {item.runtime_class for item in snapshot.shims if item.runtime_class}
    there = sorted(ours & {item.name for item in snapshot.classes})
    near = difflib.get_close_matches(name, [item.name for item in snapshot.classes if not item.canary], n=1)
    if near:
        return f"set runtimeClassName to {near[0]}, or create it"
    if there:
        return f"set runtimeClassName to one that a Shim provides ({listed(there, SHOWN)}), or create it"
    return "create a Shim with this RuntimeClass, or the RuntimeClass"


def placement(snapshot: Snapshot, pod: WasmPod) -> Line | None:
    """Return the step of the choice of a node, None if the pod has one."""
    if pod.node:
        return None
    message = pod.scheduled.message.removeprefix("Unschedulable: ")
    if message.startswith(_GATED):
        gates = ", ".join(pod.gates) or short(message)
        return waits("scheduling", f"it has scheduling gates, which another controller has to remove: {gates}")
    if pod.scheduled.status != "False":
        by = f"scheduler {pod.scheduler}" if pod.scheduler else "the scheduler"
        return waits("scheduling", f"{by} has not evaluated it yet")
    if (found := no_node(snapshot, pod)) is not None:
        return found
    describe = f"`kubectl describe pod -n {pod.meta.namespace} {pod.meta.name}`"
    do = f"change its requests and constraints, or add a node: {describe}"
    if "persistentvolumeclaim" in message.lower():
        do = f"create the claim, or the volume or StorageClass for it: `kubectl get pvc -n {pod.meta.namespace}`"
    return wrong(pod, "scheduling", f"the scheduler finds no node: {short(message)}", do, Reason.UNSCHEDULABLE)


def with_class(snapshot: Snapshot, template: WasmPod) -> WasmPod | None:
    """Return a template as the API server creates its pods: with the rules of its RuntimeClass; None if not known."""
    found = snapshot.runtime_class(template.runtime_class)
    if found is None:
        return template if not template.runtime_class else None
    selector = tuple(sorted((dict(found.selector) | dict(template.selector)).items()))
    return replace(template, selector=selector, tolerations=(*template.tolerations, *found.tolerations))


def no_node(snapshot: Snapshot, pod: WasmPod) -> Line | None:
    """Return why labels or taints keep a pod from every node, None if they do not, or if that is not known.

    A pod has the rules of its RuntimeClass since its creation: a change of the RuntimeClass does not reach it.
    """
    found = snapshot.runtime_class(pod.runtime_class)
    shim = snapshot.shim_of(found.handler, found.name) if found is not None else None
    if not snapshot.knows(Part.NODES):
        return _by_message(snapshot, pod, shim)
    of_class = tuple(pair for pair in found.selector if pair in pod.selector) if found is not None else ()
    fitting = snapshot.nodes_with(pod.selector)
    if not fitting:
        return _no_label(snapshot, pod, of_class, shim)
    repelling = snapshot.taints_of(pod.selector, pod.tolerations)
    if repelling.total() < len(fitting):
        return None
    line = _tainted(pod, shim, fitting, repelling)
    since = snapshot.taints_of(pod.selector, (*pod.tolerations, *found.tolerations)) if found is not None else repelling
    if since.total() < len(fitting):
        return replace(line, do="delete the pod: its RuntimeClass tolerates that since, and a new pod has it")
    return line


def _by_message(snapshot: Snapshot, pod: WasmPod, shim: ShimView | None) -> Line | None:
    failure = of_scheduling(pod.scheduled.message)
    if failure is None:
        return None
    text = f"the scheduler finds no node: {short(pod.scheduled.message)}; nodes are unknown here"
    do = f"{see_shim(shim.name)} shows its nodes" if shim is not None else f"read {Part.NODES}"
    if failure.reason is Reason.TAINT_NOT_TOLERATED:
        do = _toleration_advice(pod)
    return wrong(pod, "scheduling", f"{text}: {snapshot.unread[Part.NODES]}", do, failure.reason)


def _no_label(snapshot: Snapshot, pod: WasmPod, of_class: Pairs, shim: ShimView | None) -> Line:
    labelled = snapshot.nodes_with(of_class) if of_class else []
    own = tuple(pair for pair in pod.selector if pair not in of_class)
    if of_class and not labelled:
        text = f"no node has the label {labels_text(of_class)} of RuntimeClass {pod.runtime_class}"
        having = [
            item.name for item in snapshot.nodes if shim is not None and shim.name in verified_digests(item.installed)
        ]
        if shim is not None and shim.drain and having:
            text += f"; Shim {shim.name} drains the nodes that it changes ({listed(having, SHOWN)})"
            do = f"`trellis rollout status {shim.name}` shows them; with few nodes, set rolling.drain to false"
        elif shim is not None:
            do = f"Shim {shim.name} sets it once a node has the runtime: {see_shim(shim.name)} shows its nodes"
        else:
            do = "label a node that has the runtime, or correct scheduling.nodeSelector of the RuntimeClass"
        return wrong(pod, "scheduling", text, do, Reason.NO_NODE_WITH_LABEL)
    own = tuple(pair for pair in own if not snapshot.nodes_with((pair,))) or own
    text = f"no node has the label {labels_text(own)}" if own else "the cluster has no node"
    if labelled:
        names = listed([item.name for item in labelled], SHOWN)
        text = f"no node with the runtime ({names}) has the label {labels_text(own)}"
    do = "label a node, or change nodeSelector of the pod"
    found = snapshot.runtime_class(pod.runtime_class)
    # The API server refuses pods whose own labels differ from those of their RuntimeClass.
    if found is not None and not dict(own).keys().isdisjoint(dict(found.selector)):
        do = "delete the pod: its RuntimeClass selects other labels since, and a new pod has them"
    return wrong(pod, "scheduling", text, do, Reason.NO_NODE_WITH_LABEL)


def _tainted(pod: WasmPod, shim: ShimView | None, fitting: list[NodeView], repelling: Counter[NodeTaint]) -> Line:
    taints = listed([f"{taint_text(taint)} ×{count}" for taint, count in repelling.most_common()], SHOWN)
    text = f"all nodes with its labels ({len(fitting)}) have a taint that it does not tolerate: {taints}"
    keys = {taint.key for taint in repelling}
    if keys == {_CORDONED}:
        do = f"`kubectl uncordon {fitting[0].name}` permits pods there again"
    elif keys <= _KUBELET:
        do = f"repair the kubelet: `kubectl describe node {fitting[0].name}`"
    elif all(key.startswith(_OF_NODES) for key in keys):
        do = f"repair these nodes, or uncordon them: `kubectl describe node {fitting[0].name}`"
    elif shim is not None and shim.startup_taint is not None and keys == {shim.startup_taint.key}:
        do = f"Trellis removes the startup taint once the runtime is verified: {see_node(fitting[0].name)}"
    else:
        do = _toleration_advice(pod)
    return wrong(pod, "scheduling", text, do, Reason.TAINT_NOT_TOLERATED)


def _toleration_advice(pod: WasmPod) -> str:
    on_class = f", or to scheduling.tolerations of RuntimeClass {pod.runtime_class}" if pod.runtime_class else ""
    return f"add a toleration to the pod{on_class}"


def node(snapshot: Snapshot, pod: WasmPod) -> Line | None:
    """Return the step of the node of a pod, None without one."""
    if not pod.node:
        return None
    if not snapshot.knows(Part.NODES):
        return unknown(snapshot, "node", f"{pod.node}: its state is", Part.NODES)
    found = snapshot.node(pod.node)
    if found is None:
        text = f"node {pod.node} does not exist"
        do = "delete the pod, so that its owner creates another"
        if not pod.meta.owner_name:
            do = "delete and re-create the pod: it has no owner that does"
        return wrong(pod, "node", text, do, Reason.NODE_NOT_READY)
    about = f"{found.operating_system}/{found.architecture or 'unknown'}, {found.runtime_version or 'runtime unknown'}"
    if not found.ready:
        do = f"repair the kubelet: `kubectl describe node {found.name}`"
        return wrong(pod, "node", f"the kubelet of node {found.name} is not ready; {about}", do, Reason.NODE_NOT_READY)
    return Line("node", f"{found.name}: {about}", ok=True)


def handler(snapshot: Snapshot, pod: WasmPod) -> Line | None:
    """Return the step of the handler on the node of a pod, None without a node or a known RuntimeClass."""
    failure = of_creation(_sandbox_message(snapshot, pod))
    not_configured = failure is not None and failure.reason is Reason.HANDLER_NOT_CONFIGURED
    found = snapshot.runtime_class(pod.runtime_class)
    name = found.handler if found is not None else failure.name if failure is not None and not_configured else ""
    if not pod.node or not name:
        return None
    on, shim = snapshot.node(pod.node), snapshot.shim_of(name, pod.runtime_class)
    handlers = on.handlers if on is not None else frozenset()
    if name in handlers:
        return Line("handler", f"containerd of node {pod.node} has handler {name}", ok=True)
    if not not_configured and not handlers:
        text = "lists no handlers, as with containerd before 2.0" if on is not None else "is unknown"
        return Line("handler", f"{name}: node {pod.node} {text}{_on_node(snapshot, shim, on)}")
    if pod.sandboxed and not pod.works:
        # It was started by a handler that was removed since; its present problem is another one.
        return Line("handler", f"containerd of node {pod.node} no longer has handler {name}")
    text = f"containerd of node {pod.node} has no handler {name}{_on_node(snapshot, shim, on)}"
    return wrong(pod, "handler", text, _handler_advice(pod, name, shim, on), Reason.HANDLER_NOT_CONFIGURED)


def _on_node(snapshot: Snapshot, shim: ShimView | None, on: NodeView | None) -> str:
    """Return the state of the Shim of a handler on a node, as the annotations of the Node have it."""
    if shim is None:
        return "; no Shim provides it" if snapshot.knows(Part.SHIMS) else ""
    if on is None:
        return f"; Shim {shim.name} provides it"
    return f"; Shim {shim.name} is {'' if shim.name in on.installed else 'not '}installed there"


def _handler_advice(pod: WasmPod, name: str, shim: ShimView | None, on: NodeView | None) -> str:
    if shim is not None and on is not None and shim.name in on.installed and on.handlers:
        return f"restart containerd there, or find the program that changed its configuration: {see_node(pod.node)}"
    if shim is not None:
        return f"{see_node(pod.node)} shows why Shim {shim.name} is not ready there"
    return (
        f"create a Shim with handler {name} for this node, or correct the handler of RuntimeClass {pod.runtime_class}"
    )


def volumes(snapshot: Snapshot, pod: WasmPod) -> Line | None:
    """Return the step of the volumes of a pod that the kubelet cannot mount, None if it has not reported that."""
    if pod.sandboxed or pod.works:
        return None
    # The kubelet creates the sandbox after the volumes, so a later failure of it ends that of a volume.
    found = snapshot.events_of(pod.meta.uid, *MOUNT_EVENTS, SANDBOX)
    if not found or found[0].reason == SANDBOX:
        return None
    text = f"the kubelet cannot mount a volume: {short(bare(found[0].message))}"
    do = "create the object that the volume names, or correct the volume"
    return wrong(pod, "volumes", text, do, Reason.VOLUME_NOT_MOUNTED)


def sandbox(snapshot: Snapshot, pod: WasmPod) -> Line | None:
    """Return the step of the sandbox of a pod, None if it has one or if the kubelet has not reported a failure."""
    words = _sandbox_message(snapshot, pod)
    if not words:
        return None
    failure = of_creation(words)
    reason = failure.reason if failure is not None else Reason.SANDBOX_FAILED
    if reason is Reason.HANDLER_NOT_CONFIGURED:
        # The step before has found the handler: containerd was restarted since.
        return waits("sandbox", "the handler is configured now; the kubelet retries within a minute")
    if reason is Reason.RUNTIME_CLASS_MISSING and snapshot.runtime_class(pod.runtime_class) is not None:
        return waits("sandbox", "the RuntimeClass exists again; the kubelet retries within a minute")
    text = f"containerd cannot create the sandbox: {short(bare(words))}"
    if reason is Reason.RUNTIME_CLASS_MISSING and failure is not None:
        return wrong(pod, "sandbox", text, _class_advice(snapshot, failure.name), reason)
    if reason is Reason.SHIM_NOT_EXECUTABLE:
        do = f"use a build of the shim that runs on node {pod.node}: {see_node(pod.node)} shows the installed one"
        if any(part in words for part in _MISSING):
            do = f"install the shim on node {pod.node}: {see_node(pod.node)} shows its installation"
        return wrong(pod, "sandbox", text, do, reason)
    do = f"read {runtime_log(pod.node)}"
    if _SANDBOX_IMAGE in words:
        do = f"make this image available to node {pod.node}, as in an internal registry; the shim is not the cause"
    elif any(part in words for part in _NETWORK):
        do = f"check the network plugin (CNI) of node {pod.node}; the shim is not the cause"
    return wrong(pod, "sandbox", text, do, Reason.SANDBOX_FAILED)


def _sandbox_message(snapshot: Snapshot, pod: WasmPod) -> str:
    """Return the newest error of a sandbox, "" for a pod that has one: Events stay for an hour."""
    if pod.sandboxed or pod.works or not pod.node:
        return ""
    return next((event.message for event in snapshot.events_of(pod.meta.uid, SANDBOX)), "")
