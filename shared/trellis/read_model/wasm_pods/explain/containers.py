"""Checks of the containers of a Wasm pod: images, creation, ends, probes.

Pure. In: a pod in its snapshot, with the last lines of a container that ended. Out: one line per step. Called by the
chain of a pod. Source: runwasi (executor.rs) ends a container with status 137 if its shim fails, and with 255 if it
cannot execute a program, and writes the error to the log of containerd only, while the runtime of Trellis also writes
it to the standard error of the container; the kernel kills a process with 137, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from trellis.read_model.explain.page import PULL_FAILED, Line
from trellis.read_model.wasm_pods.explain.lines import SHOWN, runtime_log, short, waits, wrong
from trellis.read_model.wasm_pods.failures import Failure, bare, of_config, of_end, of_pull, of_start, refuses_exec
from trellis.read_model.wasm_pods.pods import ALWAYS, Container, Ended, WasmPod
from trellis.read_model.wasm_pods.reasons import Reason
from trellis.read_model.wasm_pods.snapshot import Part, Snapshot
from trellis.v2.pods import STARTING

FAILED: Final = "Failed"
"""Reason of the Events of the kubelet for a container that is not pulled, created or started."""
UNHEALTHY: Final = "Unhealthy"
HOOK_FAILED: Final = "FailedPostStartHook"
CRASHING: Final = "CrashLoopBackOff"
_HOOK_ERROR: Final = "PostStartHookError"
_CONFIG: Final = "CreateContainerConfigError"
_NOT_STARTED: Final = frozenset({"StartError", "ContainerCannotRun"})
"""Reasons of a container that containerd could not start: it counts as ended."""
_LOST: Final = frozenset({"Unknown", "ContainerStatusUnknown"})
"""Reasons of a container whose end the kubelet has not observed, as after a restart of containerd or of the node."""
_PRECISION: Final = 2.0
"""Seconds by which two times of a kubelet differ: both have whole seconds."""
_KILLED: Final = 137
_ENDED_BY_KUBELET: Final = frozenset({0, _KILLED, 143})
"""Statuses of a container after SIGTERM and SIGKILL; a program that handles SIGTERM can end with 0."""
_SIGNALS: Final = {
    132: "SIGILL",
    134: "SIGABRT",
    135: "SIGBUS",
    136: "SIGFPE",
    137: "SIGKILL",
    139: "SIGSEGV",
    143: "SIGTERM",
}
_NOT_EXECUTED: Final = 255
_OUT_OF_MEMORY: Final = "OOMKilled"
_LIVENESS: Final = ("Liveness probe", "Startup probe")
"""Begin of the messages of the probes for which the kubelet ends a container."""
NO_LOGIN: Final = "FailedToRetrieveImagePullSecret"
_LINES: Final = 3
_WASM_ADVICE: Final = "package the module or component as an image that the shim runs"


def images(snapshot: Snapshot, pod: WasmPod) -> Line | None:
    """Return the step of the first image that cannot be pulled, None if there is none."""
    for item in pod.containers:
        if item.waiting in PULL_FAILED:
            return _not_pulled(snapshot, pod, item)
    return None


def _not_pulled(snapshot: Snapshot, pod: WasmPod, item: Container) -> Line:
    # While the kubelet backs off, the container can have only that; the newest Event has the error.
    events = [event.message for event in snapshot.events_of(pod.meta.uid, FAILED) if item.image in event.message][:1]
    # The name of an image can have any word in it.
    errors = [(words, of_pull(words.replace(item.image, ""))) for words in (item.message, *events)]
    words, failure = next(((words, found) for words, found in errors if found is not None), (item.message, None))
    reason = failure.reason if failure is not None else Reason.PULL_FAILED
    text = f"image {item.image} of container {item.name} cannot be pulled: "
    text += short(bare((words if failure is not None else next(iter(events), words)) or item.waiting))
    if reason is Reason.IMAGE_FOR_ANOTHER_PLATFORM:
        text = f"image {item.image} of container {item.name} is not built for {_platform(snapshot, pod)}"
    # The kubelet pulls without a Secret that it does not find; the registry denies that.
    lacks = next((event.message for event in snapshot.events_of(pod.meta.uid, NO_LOGIN)), "")
    if lacks and reason in {Reason.REGISTRY_DENIED, Reason.IMAGE_NOT_FOUND}:
        text = f"{text}; {short(lacks)}"
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
            return (
                "check the name of the image, and that each Secret in imagePullSecrets of the pod exists and is valid"
            )
        case _:
            return f"check the network and the disk of node {pod.node}: `kubectl describe pod -n {_of(pod)}`"


def _of(pod: WasmPod) -> str:
    return f"{pod.meta.namespace} {pod.meta.name}"


def creation(snapshot: Snapshot, pod: WasmPod) -> Line | None:
    """Return the step of the first container that containerd cannot create or start, None if there is none."""
    for item in pod.containers:
        end = item.last_end
        not_started = end is not None and end.reason in _NOT_STARTED
        # A reason of a later version of the kubelet is shown as it is; after an end, the end shows more.
        waits_for = item.waiting not in STARTING and (item.waiting != CRASHING or end is None)
        if waits_for or (not_started and not item.running):
            words = item.message if waits_for else end.message if end is not None else ""
            return _not_created(snapshot, pod, item, words)
    return None


def _not_created(snapshot: Snapshot, pod: WasmPod, item: Container, words: str) -> Line:
    message = words or next(iter(_events_about(snapshot, pod, item, FAILED)), "") or item.waiting
    failure, text = of_start(message), f"container {item.name} cannot be started: {short(bare(message))}"
    if item.waiting == _CONFIG:
        if of_config(message) is not None:
            do = "create the ConfigMap or Secret that it names, or correct the reference"
            return wrong(pod, "container", text, do, Reason.CONFIG_MISSING)
        # As for an image of user 0 with runAsNonRoot: containerd has not seen the container.
        do = f"correct the container, as its securityContext or its volumes: `kubectl describe pod -n {_of(pod)}`"
        return wrong(pod, "container", text, do, Reason.CONTAINER_NOT_CREATED)
    if item.waiting == _HOOK_ERROR:
        return _hook(pod, item, message)
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
    log = snapshot.logs.get(pod.meta.uid, ())
    # With FallbackToLogsOnError, the message is the end of the log.
    message = [line for line in end.message.splitlines() if line not in log]
    lines = [line for line in (*log, *message) if line.strip()]
    failure = of_end(lines)
    if failure is not None:
        text = f"container {item.name} ended with status {end.code}: {short(_newest(lines))}"
        return _known(snapshot, pod, item, text, failure)
    if end.reason == _OUT_OF_MEMORY:
        return _out_of_memory(pod, item)
    if end.code in _ENDED_BY_KUBELET and (hook := _events_about(snapshot, pod, item, HOOK_FAILED)):
        return _hook(pod, item, hook[0])
    if end.code in _ENDED_BY_KUBELET and (killed := _killed_by_probe(snapshot, pod, item)):
        return _probe(pod, killed)
    return _ended(snapshot, pod, item, end, lines)


def failing(pod: WasmPod) -> Container | None:
    """Return the first container that ended with an error, or that ended and is to run; None if there is none.

    A container that runs after a restart counts until it is ready, and not again if it is no longer ready later. The
    kubelet ends the sidecars of a pod after its other containers, so they come last then.
    """
    found = [] if pod.works else [item for item in pod.containers if _fails(pod, item)]
    return min(found, key=lambda item: pod.ended and item.sidecar, default=None)


def _fails(pod: WasmPod, item: Container) -> bool:
    end = item.last_end
    if end is None or end.reason in _NOT_STARTED or item.ready or (item.running and _is_past(pod, item, end)):
        return False
    always = (item.restart_policy or pod.restart_policy) == ALWAYS
    again = item.waiting == CRASHING or (always and item.ended is not None and not pod.ended)
    return end.code != 0 or (again and not item.init)


def _is_past(pod: WasmPod, item: Container, end: Ended) -> bool:
    """Return whether a container that runs is not ready for another reason than its former end.

    It was lost with its node, or the pod was ready since: it is so only if each container is.
    """
    return end.reason in _LOST or 0 < item.started + _PRECISION < pod.unready_since


def _out_of_memory(pod: WasmPod, item: Container) -> Line:
    text, do = f"container {item.name} used more memory than its limit {item.memory}", "raise resources.limits.memory"
    if not item.memory:
        text = (
            f"the kernel ended container {item.name}, which has no limit: node {pod.node} or the pod had no memory left"
        )
        do = "set resources.requests.memory, so that the scheduler reserves it"
    return wrong(pod, "container", f"{text} ({item.restarts} restarts)", do, Reason.OUT_OF_MEMORY)


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
    by = f", as after {_SIGNALS[end.code]}" if end.code in _SIGNALS else ""
    text = f"container {item.name} ended with status {end.code}{by}{again}{words}"
    if end.reason in _LOST:
        text = f"container {item.name} was lost (status {end.code}, reason {end.reason}){again}{words}"
        do = f"check if node {pod.node} or its containerd was restarted: `kubectl describe node {pod.node}`"
        return wrong(pod, "container", text, do, Reason.EXITED)
    if end.code == 0:
        do = "run a command as a Job: restartPolicy Always needs a component that serves"
        return wrong(pod, "container", text, do, Reason.EXITED)
    if pod.runtime_class and (end.code == _KILLED or (end.code == _NOT_EXECUTED and not lines)):
        text += "; shims end with this status for their own errors, which most of them write to the log of containerd"
        return wrong(pod, "container", text, f"read {runtime_log(pod.node)}", Reason.SHIM_ERROR)
    return wrong(pod, "container", text, f"{logs} shows its output", Reason.EXITED)


def _known(snapshot: Snapshot, pod: WasmPod, item: Container, text: str, failure: Failure) -> Line:
    """Return the line of a failure that the words of the runtime or of a container show."""
    reason, name = failure.reason, failure.name
    found = snapshot.runtime_class(pod.runtime_class)
    shim = snapshot.shim_of(found.handler, found.name) if found is not None else None
    runtime = f"Shim {shim.name}" if shim is not None else "the shim"
    if reason is Reason.IMAGE_FOR_ANOTHER_PLATFORM and not pod.runtime_class:
        there = sorted({each.runtime_class for each in snapshot.shims if each.runtime_class})[:SHOWN]
        named = f" ({', '.join(there)})" if there else ""
        do = f"if it is a Wasm image, set runtimeClassName to the RuntimeClass of a Shim{named}"
        return wrong(pod, "container", text, do, Reason.RUNTIME_CLASS_NOT_SET)
    match reason:
        case Reason.INTERFACE_MISSING:
            named = name or "an interface"
            text = f"container {item.name} imports {named}, which {runtime} does not provide"
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
    running = [item for item in pod.containers if item.running]
    if pod.works or not running:
        return None
    unready = [item.name for item in running if not item.ready]
    # An Event stays for an hour: one of a container that is ready now is about the past.
    found = [event for event in snapshot.events_of(pod.meta.uid, UNHEALTHY) if event.container in {"", *unready}]
    if found and unready:
        return _probe(pod, found[0].message)
    text = f"not ready yet: {', '.join(unready)}"
    if first := next((item.name for item in running if item.init), ""):
        text = f"init container {first} runs; the other containers are started after its end"
    elif not unready:
        ended = ", ".join(item.name for item in pod.containers if item.ended is not None and not item.init)
        text = (
            f"{', '.join(item.name for item in running)} runs; ended: {ended}" if ended else "its containers are ready"
        )
        text += f"; the pod is not: {short(pod.unready)}" if pod.unready and not ended else ""
    if not snapshot.knows(Part.EVENTS):
        return waits("probes", f"{text}; Events are unknown: {_lost(snapshot)}")
    return waits("probes", text, Reason.NOT_READY)


def _lost(snapshot: Snapshot) -> str:
    return snapshot.unread[Part.EVENTS]


def _probe(pod: WasmPod, words: str) -> Line:
    text = f"a probe fails: {short(bare(words))}"
    do = "check path and port of the probe, and that the component listens there within initialDelaySeconds"
    if refuses_exec(words):
        do = "use httpGet, tcpSocket or grpc in the probe: the shim executes no commands in a container"
    return wrong(pod, "probes", text, do, Reason.PROBE_FAILED)


def _killed_by_probe(snapshot: Snapshot, pod: WasmPod, item: Container) -> str:
    """Return the Event of the probe that made the kubelet end a container, "" if there is none."""
    words = _events_about(snapshot, pod, item, UNHEALTHY)
    return next((found for found in words if found.startswith(_LIVENESS)), "")


def _hook(pod: WasmPod, item: Container, words: str) -> Line:
    text = f"the kubelet ends container {item.name}, because its postStart hook fails: {short(bare(words))}"
    do = "correct or remove lifecycle.postStart of the container: most shims execute no commands in a container"
    return wrong(pod, "container", text, do, Reason.CONTAINER_NOT_CREATED)


def _events_about(snapshot: Snapshot, pod: WasmPod, item: Container, reason: str) -> list[str]:
    """Return the messages of the Events of this reason about a container, the newest first."""
    events = snapshot.events_of(pod.meta.uid, reason)
    return [event.message for event in events if event.container in {"", item.name}]
