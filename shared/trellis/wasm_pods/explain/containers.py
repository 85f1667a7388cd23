"""Checks of the containers of a Wasm pod: images, creation, ends, probes.

Pure. In: a pod in its snapshot, with the last lines of a container that ended. Out: one line per step. Called by the
chain of a pod. Source: runwasi (executor.rs) ends a container with status 137 if its shim fails, and with 255 if it
cannot execute a program, and writes the error to the log of containerd only; the kernel kills a process with 137, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from trellis.read_model.explain.page import PULL_FAILED, Line
from trellis.wasm_pods.explain.lines import SHOWN, runtime_log, short, waits, wrong
from trellis.wasm_pods.failures import Failure, bare, of_end, of_pull, of_start
from trellis.wasm_pods.pods import ALWAYS, Container, Ended, WasmPod
from trellis.wasm_pods.reasons import Reason
from trellis.wasm_pods.snapshot import Part, Snapshot

FAILED: Final = "Failed"
"""Reason of the Events of the kubelet for a container that is not pulled, created or started."""
UNHEALTHY: Final = "Unhealthy"
CRASHING: Final = "CrashLoopBackOff"
_CONFIG: Final = "CreateContainerConfigError"
_NOT_CREATED: Final = frozenset(
    {_CONFIG, "CreateContainerError", "RunContainerError", "PostStartHookError", "PreCreateHookError"}
)
_NOT_STARTED: Final = frozenset({"StartError", "ContainerCannotRun"})
"""Reasons of a container that containerd could not start: it counts as ended."""
_KILLED: Final = 137
_TERMINATED: Final = 143
_NOT_EXECUTED: Final = 255
_OUT_OF_MEMORY: Final = "OOMKilled"
_LIVENESS: Final = ("Liveness probe", "Startup probe")
"""Begin of the messages of the probes for which the kubelet ends a container."""
_LINES: Final = 3
_WASM_ADVICE: Final = "package the module or component as an image that the shim runs"


def images(snapshot: Snapshot, pod: WasmPod) -> Line | None:
    """Return the step of the first image that cannot be pulled, None if there is none."""
    for item in pod.containers:
        if item.waiting in PULL_FAILED:
            return _not_pulled(snapshot, pod, item)
    return None


def _not_pulled(snapshot: Snapshot, pod: WasmPod, item: Container) -> Line:
    # While the kubelet backs off, the container has only that; the Event has the error.
    said = [event.message for event in snapshot.events_of(pod.meta.uid, FAILED) if item.image in event.message]
    known = [failure for words in (item.message, *said) if (failure := of_pull(words)) is not None]
    reason = known[0].reason if known else Reason.PULL_FAILED
    words = bare(next((text for text in (*said, item.message) if text), item.waiting))
    text = f"image {item.image} of container {item.name} cannot be pulled: {short(words)}"
    if reason is Reason.IMAGE_FOR_ANOTHER_PLATFORM:
        text = f"image {item.image} of container {item.name} is not built for {_platform(snapshot, pod)}"
    return wrong(pod, "image", text, _image_advice(snapshot, pod, reason), reason)


def _platform(snapshot: Snapshot, pod: WasmPod) -> str:
    found = snapshot.node(pod.node)
    return f"{found.operating_system}/{found.architecture} of node {found.name}" if found else f"node {pod.node}"


def _image_advice(snapshot: Snapshot, pod: WasmPod, reason: Reason) -> str:
    match reason:
        case Reason.IMAGE_FOR_ANOTHER_PLATFORM:
            return "push the image for this platform too: Wasm runs on each, but the image names one"
        case Reason.IMAGE_NOT_ACCEPTED:
            has = found.runtime_version if (found := snapshot.node(pod.node)) is not None else "containerd"
            return f"{_WASM_ADVICE}; {has} has to support its layers (containerd 1.6.25, 1.7.7 or newer)"
        case Reason.IMAGE_NOT_FOUND:
            return "correct the name or the tag of the image, or push it"
        case Reason.REGISTRY_DENIED:
            return "check the name of the image, and the login in imagePullSecrets of the pod"
        case _:
            return f"check that node {pod.node} reaches the registry: `kubectl describe pod -n {_of(pod)}`"


def _of(pod: WasmPod) -> str:
    return f"{pod.meta.namespace} {pod.meta.name}"


def creation(snapshot: Snapshot, pod: WasmPod) -> Line | None:
    """Return the step of the first container that containerd cannot create or start, None if there is none."""
    for item in pod.containers:
        end = item.last_end
        not_started = end is not None and end.reason in _NOT_STARTED
        if item.waiting in _NOT_CREATED or (not_started and not item.running):
            words = item.message if item.waiting in _NOT_CREATED else end.message if end is not None else ""
            return _not_created(snapshot, pod, item, words)
    return None


def _not_created(snapshot: Snapshot, pod: WasmPod, item: Container, words: str) -> Line:
    said = words or next((event.message for event in snapshot.events_of(pod.meta.uid, FAILED)), "") or item.waiting
    failure, text = of_start(said), f"container {item.name} cannot be started: {short(bare(said))}"
    if item.waiting == _CONFIG:
        do = "create the ConfigMap or Secret that it names, or correct the reference"
        return wrong(pod, "container", text, do, Reason.CONFIG_MISSING)
    if failure is None:
        do = f"read {runtime_log(pod.node)}"
        return wrong(pod, "container", text, do, Reason.CONTAINER_NOT_CREATED)
    return _known(snapshot, pod, item, text, failure)


def ends(snapshot: Snapshot, pod: WasmPod) -> Line | None:
    """Return the step of the first container that ended with an error, or that ends although it should run."""
    item = failing(pod)
    end = item.last_end if item is not None else None
    if item is None or end is None:
        return None
    lines = [line for line in (*snapshot.logs.get(pod.meta.uid, ()), *end.message.splitlines()) if line.strip()]
    failure = of_end(lines)
    if failure is not None:
        text = f"container {item.name} ended with status {end.code}: {short(_newest(lines))}"
        return _known(snapshot, pod, item, text, failure)
    if end.reason == _OUT_OF_MEMORY:
        text = f"container {item.name} used more memory than its limit ({item.restarts} restarts)"
        return wrong(pod, "container", text, "raise resources.limits.memory", Reason.OUT_OF_MEMORY)
    if end.code in {_KILLED, _TERMINATED} and (killed := _killed_by_probe(snapshot, pod)):
        return _probe(pod, killed)
    return _ended(snapshot, pod, item, end, lines)


def failing(pod: WasmPod) -> Container | None:
    """Return the first container that ended with an error, or that ended and is to run; None if there is none.

    A container that runs after a restart counts until the pod is ready.
    """
    if pod.works:
        return None
    for item in pod.containers:
        end = item.last_end
        if end is None or end.reason in _NOT_STARTED:
            continue
        again = item.waiting == CRASHING or (pod.restart_policy == ALWAYS and item.ended is not None)
        if end.code != 0 or (again and not item.init):
            return item
    return None


def _ended(snapshot: Snapshot, pod: WasmPod, item: Container, end: Ended, lines: Sequence[str]) -> Line:
    logs = f"`kubectl logs -n {_of(pod)} -c {item.name}{' --previous' if item.running else ''}`"
    last = "; ".join(short(line.strip()) for line in [*lines][-_LINES:])
    if last:
        words = f": {last}"
    elif snapshot.knows(Part.LOGS):
        words = ", and its log is empty"
    else:
        words = f"; its log is unknown: {snapshot.unread[Part.LOGS]}"
    again = f" ({item.restarts} restarts)" if item.restarts else ""
    text = f"container {item.name} ended with status {end.code}{again}{words}"
    if end.code == 0:
        do = "run a command as a Job: restartPolicy Always needs a component that serves"
        return wrong(pod, "container", text, do, Reason.EXITED)
    if pod.runtime_class and (end.code == _KILLED or (end.code == _NOT_EXECUTED and not lines)):
        text += "; shims end with this status for their own errors, which only containerd logs"
        return wrong(pod, "container", text, f"read {runtime_log(pod.node)}", Reason.SHIM_ERROR)
    return wrong(pod, "container", text, f"{logs} shows its output", Reason.EXITED)


def _known(snapshot: Snapshot, pod: WasmPod, item: Container, text: str, failure: Failure) -> Line:
    """Return the line of a failure that the words of the runtime or of a container show."""
    reason, name = failure.reason, failure.name
    found = snapshot.runtime_class(pod.runtime_class)
    shim = snapshot.shim_of(found.handler) if found is not None else None
    runtime = f"Shim {shim.name}" if shim is not None else "the shim"
    if reason is Reason.IMAGE_FOR_ANOTHER_PLATFORM and not pod.runtime_class:
        there = sorted({each.runtime_class for each in snapshot.shims if each.runtime_class})[:SHOWN]
        named = f" ({', '.join(there)})" if there else ""
        do = f"if it is a Wasm image, set runtimeClassName to the RuntimeClass of a Shim{named}"
        return wrong(pod, "container", text, do, Reason.RUNTIME_CLASS_NOT_SET)
    match reason:
        case Reason.INTERFACE_MISSING:
            text = f"container {item.name} imports {name}, which {runtime} does not provide"
            do = "build it for the interfaces of this runtime, or use a RuntimeClass whose shim has the interface"
        case Reason.TRIGGER_NOT_SUPPORTED:
            text = f"container {item.name} needs trigger {name or '(unnamed)'}, which {runtime} does not support"
            do = "change the trigger in the manifest of the application, or install a version of the shim with it"
        case Reason.PRECOMPILED_BY_ANOTHER_VERSION:
            by = f" (Wasmtime {name})" if name else ""
            text = f"image {item.image} was compiled for another version or machine than that of {runtime}{by}"
            do = "push the image with the portable Wasm code, or compile it with the version of the shim"
        case Reason.ENTRYPOINT_NOT_FOUND:
            do = "correct the entrypoint of the image, or command of the container"
        case Reason.IMAGE_FOR_ANOTHER_PLATFORM:
            text = f"the program of container {item.name} is not built for {_platform(snapshot, pod)}"
            do = "use a Wasm module or component as the entrypoint, or build the program for this platform"
        case _:
            do = f"{_WASM_ADVICE}, and set its entrypoint to the Wasm file"
    return wrong(pod, "container", text, do, reason)


def _newest(lines: Sequence[str]) -> str:
    return next((line.strip() for line in reversed(lines) if of_end([line]) is not None), "")


def probes(snapshot: Snapshot, pod: WasmPod) -> Line | None:
    """Return the step of the probes, None if the pod works or if none of its containers runs."""
    if pod.works or not any(item.running for item in pod.containers):
        return None
    found = snapshot.events_of(pod.meta.uid, UNHEALTHY)
    if found:
        return _probe(pod, found[0].message)
    waiting = ", ".join(item.name for item in pod.containers if item.running and not item.ready and not item.init)
    if not snapshot.knows(Part.EVENTS):
        return waits("probes", f"not ready: {waiting or pod.meta.name}; Events are unknown: {_lost(snapshot)}")
    return waits("probes", f"not ready yet: {waiting or pod.meta.name}", Reason.NOT_READY)


def _lost(snapshot: Snapshot) -> str:
    return snapshot.unread[Part.EVENTS]


def _probe(pod: WasmPod, words: str) -> Line:
    text = f"a probe fails: {short(bare(words))}"
    do = "check path and port of the probe, and that the component listens there within initialDelaySeconds"
    return wrong(pod, "probes", text, do, Reason.PROBE_FAILED)


def _killed_by_probe(snapshot: Snapshot, pod: WasmPod) -> str:
    """Return the Event of the probe that made the kubelet end a container, "" if there is none."""
    events: Iterator[str] = (event.message for event in snapshot.events_of(pod.meta.uid, UNHEALTHY))
    return next((words for words in events if words.startswith(_LIVENESS)), "")
