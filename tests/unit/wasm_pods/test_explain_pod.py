"""The first cause of a Wasm pod, from its RuntimeClass to its probes: one set of objects per cause."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.suite.naming import lacking
from support.wasm_pods.objects import (
    CREATING,
    IMAGE,
    READY,
    SECRET,
    Manifest,
    container,
    crashing,
    ended,
    event,
    node,
    pod,
    runtime_class,
    sandbox,
    shim,
    unscheduled,
    waiting,
    workload,
)
from trellis.provisioning.nodes_and_jobs import view_node
from trellis.provisioning.shims import view_shim
from trellis.read_model.explain.page import Explanation
from trellis.read_model.explain.subject import Beside
from trellis.read_model.health import Health
from trellis.read_model.wasm_pods.explain.placing import no_node, with_class
from trellis.read_model.wasm_pods.explain.pod import explain_pod
from trellis.read_model.wasm_pods.owners import view_runtime_class
from trellis.read_model.wasm_pods.pods import view_event, view_pod, view_template
from trellis.read_model.wasm_pods.reasons import Reason
from trellis.read_model.wasm_pods.snapshot import Part, Snapshot
from trellis.v2.objects import Meta


@dataclass(frozen=True)
class Case:
    """A pod and the cluster around it."""

    pod: Manifest
    events: Sequence[Manifest] = ()
    nodes: Sequence[Manifest] = field(default_factory=lambda: [node()])
    classes: Sequence[Manifest] = field(default_factory=lambda: [runtime_class()])
    shims: Sequence[Manifest] = field(default_factory=lambda: [shim()])
    logs: Sequence[str] = ()
    unread: Sequence[Part] = ()

    def snapshot(self) -> Snapshot:
        view = view_pod(self.pod)
        return Snapshot(
            pods=[view],
            events=[*map(view_event, self.events)],
            classes=[*map(view_runtime_class, self.classes)],
            nodes=[*map(view_node, self.nodes)],
            shims=[*map(view_shim, self.shims)],
            logs={view.meta.uid: self.logs} if self.logs else {},
            unread={part: f"this account cannot list {part.value}" for part in self.unread},
        )

    def page(self) -> Explanation:
        return explain_pod(self.snapshot(), view_pod(self.pod), self.pod, Beside())


Outcome = tuple[str | None, Health]


def outcome(page: Explanation) -> Outcome:
    return page.cause.reason if page.cause else None, page.verdict.health


PULL = (
    'Failed to pull image "{image}": rpc error: code = {code} desc = failed to pull and unpack image "{image}": {words}'
)


def not_pulled(words: str, code: str = "NotFound") -> Case:
    message = PULL.format(image=IMAGE, code=code, words=words)
    back_off = container(waiting("ImagePullBackOff", f'Back-off pulling image "{IMAGE}"'))
    return Case(pod("hello", back_off), [event("Failed", message), event("Failed", "Error: ErrImagePull")])


def not_started(words: str, reason: str = "StartError") -> Case:
    return Case(pod("hello", crashing(128, reason, f"failed to create containerd task: {words}")))


def tainted(key: str, **fields: Any) -> Case:
    nodes = [node(taints=[{"key": key, "value": "yes", "effect": "NoSchedule"}])]
    return Case(unscheduled(message="1 node(s) had untolerated taint"), nodes=nodes, **fields)


PROXY = {"name": "proxy"}
NO_SANDBOX = {"type": "PodReadyToStartContainers", "status": "False"}


def of_sidecar(proxy: Manifest, app: Manifest, **fields: Any) -> Manifest:
    """Return a pod with a sidecar ``proxy``, which Kubernetes lists as an init container that restarts."""
    return _before(proxy, app, {**PROXY, "restartPolicy": "Always"}, **fields)


def of_init(init: Manifest, app: Manifest, **fields: Any) -> Manifest:
    return _before(init, app, {"name": "init"}, **fields)


def _before(first: Manifest, app: Manifest, spec: Manifest, **fields: Any) -> Manifest:
    made = pod("hello", container(app), initContainers=[spec], **fields)
    made["status"]["initContainerStatuses"] = [first]
    return made


def not_ready_since(made: Manifest, time: str) -> Manifest:
    made["status"]["conditions"][0] |= {"status": "False", "lastTransitionTime": time}
    return made


TASK = "failed to create shim task: "
CANNOT = f'{TASK}Others("exec process failed with error error in executing process : wasi executor can\'t handle spec")'
CAUSES: dict[str, tuple[Case, Reason, tuple[str, ...]]] = {
    "RuntimeClass missing": (
        Case(pod("hello", CREATING), classes=[runtime_class("spin-v3")]),
        Reason.RUNTIME_CLASS_MISSING,
        ("RuntimeClass spin-v2", "Shim spin", "`trellis explain shim/spin`"),
    ),
    "RuntimeClass misspelled": (
        Case(pod("hello", CREATING, runtime_class="spin-v")),
        Reason.RUNTIME_CLASS_MISSING,
        ("RuntimeClass spin-v", "spin-v2"),
    ),
    "RuntimeClass missing, and no Shim": (
        Case(pod("hello", CREATING), classes=[], shims=[]),
        Reason.RUNTIME_CLASS_MISSING,
        ("RuntimeClass spin-v2", "Shim"),
    ),
    "RuntimeClass missing comes before its sandbox": (
        Case(
            pod("hello", CREATING),
            [sandbox('runtimeclass.node.k8s.io "spin-v2" not found')],
            classes=[],
            nodes=[node()],
        ),
        Reason.RUNTIME_CLASS_MISSING,
        ("RuntimeClass spin-v2",),
    ),
    "no RuntimeClass set": (
        Case(
            pod(
                "hello", crashing(128, "StartError", "exec /app.wasm: exec format error"), runtime_class="", selector={}
            )
        ),
        Reason.RUNTIME_CLASS_NOT_SET,
        ("app", "spin-v2", "runtimeClassName"),
    ),
    "no node with its label": (
        Case(unscheduled(), nodes=[node(labels={})]),
        Reason.NO_NODE_WITH_LABEL,
        ("spin=provisioned", "Shim spin", "`trellis explain shim/spin`"),
    ),
    "all nodes drained": (
        Case(
            unscheduled(),
            nodes=[node(labels={}), node("n2", labels={}, installed=())],
            shims=[shim(rolloutStrategy={"type": "rolling", "rolling": {"maxUpdate": 1, "drain": True}})],
        ),
        Reason.NO_NODE_WITH_LABEL,
        ("spin=provisioned", "(n1)", "`trellis rollout status spin`", "rolling.drain"),
    ),
    "no node at all": (Case(unscheduled(), nodes=[]), Reason.NO_NODE_WITH_LABEL, ("spin=provisioned",)),
    "no node with a label of its own": (
        Case(unscheduled(selector={"spin": "provisioned", "zone": "b"})),
        Reason.NO_NODE_WITH_LABEL,
        ("zone=b", "(n1)"),
    ),
    "a label that its RuntimeClass selected with another value": (
        Case(
            unscheduled(selector={"spin": "provisioned", "tier": "edge"}),
            nodes=[node(labels={"spin": "provisioned", "tier": "core"})],
            classes=[runtime_class(nodeSelector={"spin": "provisioned", "tier": "core"})],
        ),
        Reason.NO_NODE_WITH_LABEL,
        ("label tier=edge",),
    ),
    "a taint": (tainted("gpu"), Reason.TAINT_NOT_TOLERATED, ("gpu=yes:NoSchedule", "spin-v2")),
    "a cordoned node": (
        tainted("node.kubernetes.io/unschedulable"),
        Reason.TAINT_NOT_TOLERATED,
        ("`kubectl uncordon n1`",),
    ),
    "a node that is not ready": (
        tainted("node.kubernetes.io/not-ready"),
        Reason.TAINT_NOT_TOLERATED,
        ("`kubectl describe node n1`",),
    ),
    "a startup taint": (
        tainted("wasm/starting", shims=[shim(startupTaint={"key": "wasm/starting", "effect": "NoSchedule"})]),
        Reason.TAINT_NOT_TOLERATED,
        ("`trellis explain node/n1`",),
    ),
    "too large for each node": (
        Case(unscheduled(message="0/1 nodes are available: 1 Insufficient memory.")),
        Reason.UNSCHEDULABLE,
        ("Insufficient memory", "`kubectl describe pod -n shop hello`"),
    ),
    "a node without the label, by name": (
        Case(
            pod(
                "hello",
                CREATING,
                phase="Failed",
                reason="NodeAffinity",
                message="Pod was rejected: Predicate NodeAffinity failed",
            )
        ),
        Reason.NO_NODE_WITH_LABEL,
        ("NodeAffinity", "n1"),
    ),
    "evicted": (
        Case(pod("hello", CREATING, phase="Failed", reason="Evicted", message="The node was low on resource: memory.")),
        Reason.POD_FAILED,
        ("Evicted", "memory", "no owner"),
    ),
    "evicted, with an owner": (
        Case(pod("hello", CREATING, phase="Failed", reason="Evicted", message="m", owner=("Job", "nightly", "u"))),
        Reason.POD_FAILED,
        ("its owner",),
    ),
    "ended without a reason": (
        Case(pod("hello", CREATING, phase="Failed")),
        Reason.POD_FAILED,
        ("`kubectl describe pod -n shop hello`", "no owner"),
    ),
    "the image of sandboxes": (
        Case(
            pod("hello", CREATING),
            [
                sandbox(
                    'failed to get sandbox image "registry.k8s.io/pause:3.10": failed to pull image '
                    '"registry.k8s.io/pause:3.10": dial tcp: i/o timeout'
                )
            ],
        ),
        Reason.SANDBOX_FAILED,
        ("registry.k8s.io/pause:3.10", "node n1", "internal"),
    ),
    "its node is deleted": (Case(pod("hello", CREATING), nodes=[]), Reason.NODE_NOT_READY, ("node n1",)),
    "its kubelet is not ready": (
        Case(pod("hello", CREATING), nodes=[node(ready=False)]),
        Reason.NODE_NOT_READY,
        ("node n1", "`kubectl describe node n1`"),
    ),
    "its handler is not configured": (
        Case(pod("hello", CREATING), nodes=[node(handlers=("runc",), installed=())]),
        Reason.HANDLER_NOT_CONFIGURED,
        ("node n1", "handler spin", "Shim spin", "`trellis explain node/n1`"),
    ),
    "its handler is lost": (
        Case(pod("hello", CREATING), nodes=[node(handlers=("runc",))]),
        Reason.HANDLER_NOT_CONFIGURED,
        ("handler spin", "Shim spin"),
    ),
    "no Shim provides its handler": (
        Case(pod("hello", CREATING), nodes=[node(handlers=("runc",))], shims=[]),
        Reason.HANDLER_NOT_CONFIGURED,
        ("handler spin", "no Shim", "RuntimeClass spin-v2"),
    ),
    "its handler is not configured, with containerd 1.6": (
        Case(
            pod("hello", CREATING),
            [sandbox('failed to get sandbox runtime: no runtime for "spin" is configured')],
            nodes=[node(handlers=())],
        ),
        Reason.HANDLER_NOT_CONFIGURED,
        ("node n1", "handler spin"),
    ),
    "its handler is not supported": (
        Case(
            pod("hello", CREATING),
            [sandbox('RuntimeHandler "spin" not supported')],
            nodes=[node(handlers=())],
            shims=[],
        ),
        Reason.HANDLER_NOT_CONFIGURED,
        ("handler spin",),
    ),
    "a volume": (
        Case(
            pod("hello", CREATING),
            [event("FailedMount", 'MountVolume.SetUp failed: secret "runtime-config" not found')],
        ),
        Reason.VOLUME_NOT_MOUNTED,
        ("runtime-config",),
    ),
    "a shim for another machine": (
        Case(
            pod("hello", CREATING),
            [sandbox("failed to start sandbox: failed to start shim: fork/exec /opt/spin: exec format error")],
        ),
        Reason.SHIM_NOT_EXECUTABLE,
        ("exec format error", "node n1"),
    ),
    "a shim for a later C library": (
        Case(
            pod("hello", CREATING),
            [sandbox("failed to start shim: start failed: /opt/spin: libc.so.6: version `GLIBC_2.38' not found: exit")],
        ),
        Reason.SHIM_NOT_EXECUTABLE,
        ("GLIBC_2.38",),
    ),
    "a sandbox": (
        Case(pod("hello", CREATING), [sandbox("failed to set up network: no IP addresses available")]),
        Reason.SANDBOX_FAILED,
        ("no IP addresses available", "node n1"),
    ),
    "an image for another platform": (
        not_pulled("no match for platform in manifest: not found"),
        Reason.IMAGE_FOR_ANOTHER_PLATFORM,
        (IMAGE, "linux/amd64", "n1"),
    ),
    "an artifact that containerd does not unpack": (
        not_pulled("failed to unpack image on snapshotter overlayfs: mismatched image rootfs and manifest layers", "X"),
        Reason.IMAGE_NOT_ACCEPTED,
        (IMAGE, "containerd://2.1.4"),
    ),
    "no such image": (not_pulled(f"{IMAGE}: not found"), Reason.IMAGE_NOT_FOUND, (IMAGE,)),
    "a registry with a login": (
        not_pulled("failed to authorize: 401 Unauthorized", "Unknown"),
        Reason.REGISTRY_DENIED,
        (IMAGE, "imagePullSecrets"),
    ),
    "a registry that is down": (
        not_pulled("dial tcp 10.0.0.1:443: connect: connection refused", "Unavailable"),
        Reason.PULL_FAILED,
        (IMAGE, "connection refused"),
    ),
    "an image that is not on the node": (
        Case(
            pod(
                "hello",
                container(
                    waiting("ErrImageNeverPull", f'Container image "{IMAGE}" is not present with pull policy of Never')
                ),
            )
        ),
        Reason.IMAGE_NOT_FOUND,
        (IMAGE,),
    ),
    "a ConfigMap": (
        Case(pod("hello", container(waiting("CreateContainerConfigError", 'configmap "settings" not found')))),
        Reason.CONFIG_MISSING,
        ("settings",),
    ),
    "an image that is no Wasm": (not_started(CANNOT), Reason.IMAGE_NOT_ACCEPTED, ("app", "Wasm")),
    "a program for another platform": (
        not_started("exec format error"),
        Reason.IMAGE_FOR_ANOTHER_PLATFORM,
        ("app", "linux/amd64"),
    ),
    "an entrypoint": (
        Case(pod("hello", container(waiting("RunContainerError", 'exec: "/nope.wasm": no such file or directory')))),
        Reason.ENTRYPOINT_NOT_FOUND,
        ("/nope.wasm",),
    ),
    "a container that containerd refuses": (
        Case(pod("hello", container(waiting("CreateContainerError", "failed to reserve container name")))),
        Reason.CONTAINER_NOT_CREATED,
        ("failed to reserve container name", "node n1"),
    ),
    "a container that containerd refuses, by its Event": (
        Case(
            pod("hello", container(waiting("CreateContainerError"))),
            [event("Failed", "Error: failed to reserve container name")],
        ),
        Reason.CONTAINER_NOT_CREATED,
        ("failed to reserve container name",),
    ),
    "precompiled by another version": (
        Case(pod("hello", crashing(137)), logs=["Module was compiled with incompatible Wasmtime version '18.0.3'"]),
        Reason.PRECOMPILED_BY_ANOTHER_VERSION,
        (IMAGE, "18.0.3", "Shim spin"),
    ),
    "precompiled for another machine": (
        Case(pod("hello", crashing(137, message="compilation settings of module incompatible with native host"))),
        Reason.PRECOMPILED_BY_ANOTHER_VERSION,
        (IMAGE,),
    ),
    "an interface, of a module": (
        Case(
            pod("hello", crashing(137)), logs=["Error: unknown import: `wasi:sockets/tcp::bind` has not been defined"]
        ),
        Reason.INTERFACE_MISSING,
        ("wasi:sockets/tcp::bind", "Shim spin", "app"),
    ),
    "an interface, of a component": (
        Case(
            pod(
                "hello",
                crashing(
                    137,
                    message="component imports instance `wasi:keyvalue/store@0.2.0`, but a matching implementation was "
                    "not found in the linker",
                ),
            )
        ),
        Reason.INTERFACE_MISSING,
        ("wasi:keyvalue/store@0.2.0",),
    ),
    "a trigger": (
        Case(
            pod("hello", crashing(137)),
            logs=[
                "Couldn't find trigger executor for OciSpin",
                'Only Http and Redis triggers are currently supported. Found unsupported trigger: "cron"',
                "bye",
            ],
        ),
        Reason.TRIGGER_NOT_SUPPORTED,
        ("cron", "Shim spin"),
    ),
    "no application of Spin": (
        Case(pod("hello", crashing(1)), logs=['Error: failed to read from "/spin.json"']),
        Reason.IMAGE_NOT_ACCEPTED,
        ("/spin.json",),
    ),
    "out of memory": (
        Case(
            pod(
                "hello",
                crashing(137, "OOMKilled"),
                containers=[{"name": "app", "resources": {"limits": {"memory": "64Mi"}}}],
            )
        ),
        Reason.OUT_OF_MEMORY,
        ("app", "64Mi"),
    ),
    "an error of the shim": (Case(pod("hello", crashing(137))), Reason.SHIM_ERROR, ("137", "node n1", "containerd")),
    "a program that the shim cannot execute": (
        Case(pod("hello", crashing(255))),
        Reason.SHIM_ERROR,
        ("255", "node n1"),
    ),
    "a program that ends with 255": (Case(pod("hello", crashing(255)), logs=["bye"]), Reason.EXITED, ("255", "bye")),
    "no RuntimeClass set, and the Wasm file is not executable": (
        Case(
            pod(
                "hello",
                crashing(128, "StartError", f'{TASK}OCI runtime create failed: exec: "/app.wasm": permission denied'),
                runtime_class="",
                selector={},
            )
        ),
        Reason.RUNTIME_CLASS_NOT_SET,
        ("app", "spin-v2"),
    ),
    "no RuntimeClass set, in the words of runc": (
        Case(pod("hello", crashing(1), runtime_class="", selector={}), logs=["exec /app.wasm: exec format error"]),
        Reason.RUNTIME_CLASS_NOT_SET,
        ("app", "spin-v2"),
    ),
    "a program that reports the format of another one": (
        Case(pod("hello", crashing(1)), logs=["plugin exec /x: exec format error in line 3"]),
        Reason.EXITED,
        ("line 3",),
    ),
    "an exit code": (
        Case(pod("hello", crashing(3)), logs=["one", "two", "panicked at src/lib.rs:7", ""]),
        Reason.EXITED,
        ("status 3", "4 restarts", "panicked at src/lib.rs:7", "`kubectl logs -n shop hello -c app`"),
    ),
    "an exit code, after a sandbox that failed once": (
        Case(pod("hello", crashing(3)), [sandbox("failed to set up network"), event("FailedMount", "timed out")]),
        Reason.EXITED,
        ("status 3",),
    ),
    "an exit code, and it runs again": (
        Case(pod("hello", container(last=ended(3), restarts=1)), logs=["boom"]),
        Reason.EXITED,
        ("status 3", "boom", "--previous"),
    ),
    "a command in place of a server": (
        Case(pod("hello", crashing(0, "Completed"))),
        Reason.EXITED,
        ("status 0", "restartPolicy"),
    ),
    "a pod that is not restarted": (
        Case(
            pod("hello", container({"terminated": ended(2)}), restartPolicy="Never", phase="Failed"),
            logs=["usage: app"],
        ),
        Reason.EXITED,
        ("status 2", "usage: app"),
    ),
    "a liveness probe": (
        Case(
            pod("hello", crashing(137)),
            [event("Unhealthy", "Liveness probe failed: connection refused")],
        ),
        Reason.PROBE_FAILED,
        ("Liveness probe",),
    ),
    "a probe that executes a command": (
        Case(
            pod("hello", container()),
            [
                event(
                    "Unhealthy",
                    "Readiness probe errored: rpc error: code = NotFound desc = failed to exec in container: failed to "
                    f'create exec "{"ab" * 32}": /containerd.task.v2.Task/Exec is not supported: not found',
                )
            ],
        ),
        Reason.PROBE_FAILED,
        ("Readiness probe errored", "httpGet"),
    ),
    "a postStart hook": (
        Case(
            pod("hello", crashing(137)),
            [
                event("FailedPostStartHook", "PostStartHook failed", container="app"),
                event("Unhealthy", "Liveness probe failed: refused", container="app", at="2026-11-27T10:01:00Z"),
            ],
        ),
        Reason.CONTAINER_NOT_CREATED,
        ("container app", "lifecycle.postStart"),
    ),
    "an error of the shim, and the postStart hook of another container": (
        Case(
            pod("hello", crashing(137), container(name="proxy", ready=True), containers=[{"name": "app"}, PROXY]),
            [event("FailedPostStartHook", "PostStartHook failed", container="proxy")],
        ),
        Reason.SHIM_ERROR,
        ("container app", "137"),
    ),
    "a postStart hook, before the container is restarted": (
        Case(pod("hello", container(waiting("PostStartHookError", "Exec is not supported: not found")))),
        Reason.CONTAINER_NOT_CREATED,
        ("Exec is not supported", "lifecycle.postStart"),
    ),
    "killed, and a readiness probe failed before": (
        Case(pod("hello", crashing(137)), [event("Unhealthy", "Readiness probe failed: connection refused")]),
        Reason.SHIM_ERROR,
        ("137",),
    ),
    "ended by SIGTERM for a startup probe": (
        Case(pod("hello", crashing(143)), [event("Unhealthy", "Startup probe failed: connection refused")]),
        Reason.PROBE_FAILED,
        ("Startup probe",),
    ),
    "a liveness probe of a program that handles SIGTERM": (
        Case(pod("hello", crashing(0, "Completed")), [event("Unhealthy", "Liveness probe failed: timeout")]),
        Reason.PROBE_FAILED,
        ("Liveness probe",),
    ),
    "an error of the shim, and the liveness probe of another container": (
        Case(
            pod("hello", crashing(137), container(name="proxy", ready=True), containers=[{"name": "app"}, PROXY]),
            [event("Unhealthy", "Liveness probe failed: timeout", container="proxy")],
        ),
        Reason.SHIM_ERROR,
        ("container app", "137"),
    ),
    "a readiness probe, and another container that was not ready before": (
        Case(
            pod("hello", container(), container(name="proxy", ready=True), containers=[{"name": "app"}, PROXY]),
            [
                event("Unhealthy", "Readiness probe failed: proxy", container="proxy", at="2026-11-27T10:09:00Z"),
                event("Unhealthy", "Readiness probe failed: app", container="app"),
            ],
        ),
        Reason.PROBE_FAILED,
        ("Readiness probe failed: app",),
    ),
    "a startup probe of a sidecar": (
        Case(
            of_sidecar(container(name="proxy"), waiting("PodInitializing")),
            [event("Unhealthy", "Startup probe failed: connection refused", container="proxy")],
        ),
        Reason.PROBE_FAILED,
        ("Startup probe",),
    ),
    "a sidecar that ends": (
        Case(of_sidecar(crashing(0, "Completed", name="proxy"), waiting("PodInitializing"))),
        Reason.EXITED,
        ("container proxy", "status 0"),
    ),
    "a sidecar that ended after the container that failed": (
        Case(
            of_sidecar(
                container({"terminated": ended(143)}, name="proxy"),
                {"terminated": ended(1)},
                phase="Failed",
                restartPolicy="Never",
            )
        ),
        Reason.EXITED,
        ("container app", "status 1"),
    ),
    "an init container": (
        Case(of_init(crashing(2, name="init"), waiting("PodInitializing"))),
        Reason.EXITED,
        ("container init", "status 2"),
    ),
    "a crash, and another container that crashed before": (
        Case(
            pod(
                "hello",
                container(name="proxy", ready=True, last=ended(5), restarts=1),
                crashing(3),
                containers=[PROXY, {"name": "app"}],
            )
        ),
        Reason.EXITED,
        ("container app", "status 3"),
    ),
    "a readiness probe, days after a crash": (
        Case(
            not_ready_since(
                pod("hello", container({"running": {"startedAt": "2026-11-24T10:00:00Z"}}, last=ended(1), restarts=1)),
                "2026-11-27T10:00:00Z",
            ),
            [event("Unhealthy", "Readiness probe failed: statuscode: 503")],
        ),
        Reason.PROBE_FAILED,
        ("statuscode: 503",),
    ),
    "an exit code, and a readiness probe of the run after it": (
        Case(
            not_ready_since(
                pod("hello", container({"running": {"startedAt": "2026-11-27T10:00:01Z"}}, last=ended(1), restarts=1)),
                "2026-11-27T10:00:00Z",
            ),
            [event("Unhealthy", "Readiness probe failed: connection refused")],
        ),
        Reason.EXITED,
        ("status 1",),
    ),
    "a readiness probe, after a restart of the node": (
        Case(
            pod("hello", container(last=ended(255, "Unknown"), restarts=1)),
            [event("Unhealthy", "Readiness probe failed: statuscode: 503")],
        ),
        Reason.PROBE_FAILED,
        ("statuscode: 503",),
    ),
    "a segmentation fault": (Case(pod("hello", crashing(139))), Reason.EXITED, ("139", "SIGSEGV")),
    "a node that was restarted": (
        Case(pod("hello", crashing(255, "Unknown"))),
        Reason.EXITED,
        ("Unknown", "node n1"),
    ),
    "a container that nobody has seen end": (
        Case(
            pod("hello", container({"terminated": ended(137, "ContainerStatusUnknown")}), phase="Failed"),
        ),
        Reason.EXITED,
        ("ContainerStatusUnknown",),
    ),
    "a handler that a restart of the node lost": (
        Case(
            pod("hello", container({"terminated": ended(255, "Unknown")}), conditions=[NO_SANDBOX]),
            [sandbox('no runtime for "spin" is configured')],
            nodes=[node(handlers=())],
        ),
        Reason.HANDLER_NOT_CONFIGURED,
        ("handler spin",),
    ),
    "a network plugin": (
        Case(
            pod("hello", CREATING),
            [sandbox('failed to setup network for sandbox "ab": plugin type="flannel" failed (add): open /run/x')],
        ),
        Reason.SANDBOX_FAILED,
        ("flannel", "network plugin", "node n1"),
    ),
    "a sandbox, after a volume that was mounted late": (
        Case(
            pod("hello", CREATING),
            [
                event("FailedMount", "timed out", at="2026-11-27T10:01:00Z"),
                sandbox("failed to set up network", at="2026-11-27T10:02:00Z"),
            ],
        ),
        Reason.SANDBOX_FAILED,
        ("failed to set up network",),
    ),
    "a shim that is missing": (
        Case(
            pod("hello", CREATING),
            [
                sandbox(
                    'failed to start shim: failed to resolve runtime path: runtime "io.containerd.spin.v2" binary not '
                    'installed "containerd-shim-spin-v2": file does not exist'
                )
            ],
        ),
        Reason.SHIM_NOT_EXECUTABLE,
        ("containerd-shim-spin-v2", "Install"),
    ),
    "a Secret for the registry": (
        replace(
            not_pulled("failed to authorize: 401 Unauthorized", "Unknown"),
            events=[
                event("Failed", PULL.format(image=IMAGE, code="Unknown", words="401 Unauthorized")),
                event(
                    "FailedToRetrieveImagePullSecret",
                    "Unable to retrieve some image pull secrets (regcred); attempting to pull the image may not "
                    "succeed.",
                ),
            ],
        ),
        Reason.REGISTRY_DENIED,
        (IMAGE, "regcred"),
    ),
    "a registry that is down, after an image that was missing": (
        replace(
            not_pulled("x"),
            events=[
                event("Failed", PULL.format(image=IMAGE, code="Unknown", words="i/o timeout")),
                event(
                    "Failed",
                    PULL.format(image=IMAGE, code="NotFound", words="not found"),
                    at="2026-11-27T10:01:00Z",
                ),
            ],
        ),
        Reason.PULL_FAILED,
        (IMAGE, "i/o timeout"),
    ),
    "an invalid image name": (
        Case(
            pod(
                "hello",
                container(
                    waiting("InvalidImageName", 'Failed to apply default image tag "A": invalid reference format')
                ),
            )
        ),
        Reason.IMAGE_NOT_FOUND,
        ("invalid reference format", "name"),
    ),
    "an image of user 0": (
        Case(
            pod(
                "hello",
                container(
                    waiting(
                        "CreateContainerConfigError", "container has runAsNonRoot and image will run as root (pod: x)"
                    )
                ),
            )
        ),
        Reason.CONTAINER_NOT_CREATED,
        ("runAsNonRoot", "securityContext"),
    ),
    "a reason of a later version": (
        Case(pod("hello", container(waiting("ResourceClaimNotReady", "claim gpu is not allocated")))),
        Reason.CONTAINER_NOT_CREATED,
        ("claim gpu",),
    ),
    "a container that waits without an end": (
        Case(pod("hello", container(waiting("CrashLoopBackOff", "back-off 5m0s restarting failed container")))),
        Reason.CONTAINER_NOT_CREATED,
        ("back-off",),
    ),
    "out of memory without a limit": (
        Case(pod("hello", crashing(137, "OOMKilled"))),
        Reason.OUT_OF_MEMORY,
        ("no limit", "node n1"),
    ),
    "a claim": (
        Case(unscheduled(message="0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims.")),
        Reason.UNSCHEDULABLE,
        ("PersistentVolumeClaims", "`kubectl get pvc -n shop`"),
    ),
    "cordoned nodes and nodes that are not ready": (
        Case(
            unscheduled(),
            nodes=[
                node(taints=[{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]),
                node("n2", taints=[{"key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule"}]),
            ],
        ),
        Reason.TAINT_NOT_TOLERATED,
        ("disk-pressure", "`kubectl describe node n1`"),
    ),
    "one of its own labels": (
        Case(
            unscheduled(selector={"spin": "provisioned", "zone": "b", "os": "linux"}),
            nodes=[node(labels={"spin": "provisioned", "os": "linux"})],
        ),
        Reason.NO_NODE_WITH_LABEL,
        ("label zone=b",),
    ),
    "a deletion on a node that is not ready": (
        Case(pod("hello", container(), deleting=True), nodes=[node(ready=False)]),
        Reason.NODE_NOT_READY,
        ("node n1",),
    ),
    "a readiness probe": (
        Case(
            pod("hello", container()),
            [
                event(
                    "Unhealthy",
                    "Readiness probe failed: HTTP probe failed with statuscode: 500",
                    at="2026-11-27T10:09:00Z",
                ),
                event("Unhealthy", "Readiness probe failed: connection refused", at="2026-11-27T10:01:00Z"),
            ],
        ),
        Reason.PROBE_FAILED,
        ("statuscode: 500",),
    ),
}


@pytest.mark.parametrize(("case", "reason", "named"), CAUSES.values(), ids=CAUSES)
def test_the_first_line_of_a_pod_is_its_cause(case: Case, reason: Reason, named: tuple[str, ...]) -> None:
    page = case.page()
    assert outcome(page) == (reason, Health.DEGRADED), page.headline
    assert lacking(page.headline, "pod shop/hello", *named) == []
    assert page.cause is not None
    assert page.cause.do


def with_debugger(made: Manifest) -> Manifest:
    made["spec"]["ephemeralContainers"] = [{"name": "debugger"}]
    made["status"]["ephemeralContainerStatuses"] = [container({"terminated": ended(1)}, name="debugger")]
    return made


OTHERS: dict[str, tuple[Case, Outcome]] = {
    "ready": (Case(pod()), (None, Health.HEALTHY)),
    "completed": (
        Case(pod("hello", container({"terminated": ended(0, "Completed")}), phase="Succeeded", restartPolicy="Never")),
        (None, Health.HEALTHY),
    ),
    "ready, and its RuntimeClass was deleted": (Case(pod(), classes=[]), (None, Health.HEALTHY)),
    "ready, and its handler was removed": (Case(pod(), nodes=[node(handlers=("runc",))]), (None, Health.HEALTHY)),
    "ready, after an Event of an hour ago": (
        Case(pod(), [sandbox('no runtime for "spin" is configured'), event("Unhealthy", "Readiness probe failed")]),
        (None, Health.HEALTHY),
    ),
    "ready, after restarts": (
        Case(pod("hello", container(ready=True, last=ended(1), restarts=3))),
        (None, Health.HEALTHY),
    ),
    "of another runtime": (Case(pod(runtime_class="", selector={}), shims=[]), (None, Health.HEALTHY)),
    "just created": (Case(pod("hello", CREATING, node="", conditions=[])), (Reason.WAITING, Health.PROGRESSING)),
    "gated": (
        Case(unscheduled(message="Scheduling is blocked due to non-empty scheduling gates", why="SchedulingGated")),
        (Reason.WAITING, Health.PROGRESSING),
    ),
    "starting": (Case(pod("hello", CREATING)), (Reason.STARTING, Health.PROGRESSING)),
    "its handler has been configured since": (
        Case(pod("hello", CREATING), [sandbox('no runtime for "spin" is configured')]),
        (Reason.WAITING, Health.PROGRESSING),
    ),
    "its RuntimeClass was deleted, and exists again": (
        Case(pod("hello", CREATING), [sandbox('runtimeclass.node.k8s.io "spin-v2" not found')]),
        (Reason.WAITING, Health.PROGRESSING),
    ),
    "not ready yet": (Case(pod("hello", container())), (Reason.NOT_READY, Health.PROGRESSING)),
    "an init container runs": (
        Case(of_init(container(name="init"), waiting("PodInitializing"))),
        (Reason.NOT_READY, Health.PROGRESSING),
    ),
    "a container that is to run once beside one that runs": (
        Case(
            pod(
                "hello",
                container({"terminated": ended(0, "Completed")}),
                container(name="proxy"),
                containers=[{"name": "app", "restartPolicy": "Never"}, PROXY],
            )
        ),
        (Reason.NOT_READY, Health.PROGRESSING),
    ),
    "a debug container that failed": (
        Case(with_debugger(pod("hello", container()))),
        (Reason.NOT_READY, Health.PROGRESSING),
    ),
    "a static pod": (
        Case(pod("hello", owner=("Node", "n1", "uid-n1"), runtime_class="", selector={}), classes=[]),
        (None, Health.HEALTHY),
    ),
    "being deleted": (Case(pod("hello", crashing(1), deleting=True)), (Reason.DELETING, Health.PROGRESSING)),
}


def not_ready(made: Manifest, why: str) -> Manifest:
    made["status"]["conditions"][0] |= {"status": "False", "message": why}
    return made


def without_conditions(made: Manifest) -> Manifest:
    made["status"]["conditions"] = []
    return made


def finalized(made: Manifest) -> Manifest:
    made["metadata"]["finalizers"] = ["example.com/backup"]
    return made


@pytest.mark.parametrize(("case", "expected"), OTHERS.values(), ids=OTHERS)
def test_a_pod_without_a_cause_is_healthy_or_in_progress(case: Case, expected: Outcome) -> None:
    assert outcome(case.page()) == expected


def test_the_steps_before_the_cause_are_shown_and_those_after_it_are_not() -> None:
    page = Case(pod("hello", crashing(137)), [event("Unhealthy", "Readiness probe failed")]).page()
    assert [line.about for line in page.lines] == ["pod", "runtimeclass", "node", "handler", "container"]
    assert [line.ok for line in page.lines] == [True, True, True, True, False]


def test_the_state_of_the_shim_on_the_node_is_part_of_the_cause() -> None:
    without = [[node(handlers=["runc"], installed=shims)] for shims in ([], ["spin"])]
    assert len({Case(pod("hello", CREATING), nodes=nodes).page().headline for nodes in without}) == 2


def test_an_earlier_cause_hides_a_later_one() -> None:
    late = pod("hello", crashing(3))
    assert outcome(Case(late, nodes=[node(ready=False)]).page())[0] == Reason.NODE_NOT_READY
    assert outcome(Case(late, classes=[]).page())[0] == Reason.RUNTIME_CLASS_MISSING
    both = Case(unscheduled(), classes=[], nodes=[node(labels={})])
    assert outcome(both.page())[0] == Reason.RUNTIME_CLASS_MISSING


TOLERATED: dict[str, tuple[Any, bool]] = {
    "by key": ([{"key": "gpu", "operator": "Exists"}], True),
    "by value": ([{"key": "gpu", "value": "yes"}], True),
    "all": ([{"operator": "Exists"}], True),
    "by effect": ([{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}], True),
    "another value": ([{"key": "gpu", "operator": "Equal", "value": "no"}], False),
    "another effect": ([{"key": "gpu", "operator": "Exists", "effect": "NoExecute"}], False),
    "another key": ([{"key": "disk", "operator": "Exists"}], False),
    "without a key": ([{"value": "yes"}], False),
    "an operator of a later version": ([{"key": "gpu", "operator": "Gt", "value": "1"}], True),
}


@pytest.mark.parametrize(("tolerations", "tolerated"), TOLERATED.values(), ids=TOLERATED)
@pytest.mark.parametrize("of_class", [False, True])
def test_taints_are_tolerated_by_the_pod_and_by_its_runtime_class(
    tolerations: Any, tolerated: bool, of_class: bool
) -> None:
    nodes = [node(taints=[{"key": "gpu", "value": "yes", "effect": "NoSchedule"}])]
    if of_class:
        of = Case(unscheduled(), nodes=nodes, classes=[runtime_class(tolerations=tolerations)]).snapshot()
        made = with_class(of, view_template(Meta(), workload()["spec"]["template"]))
        assert made is not None
        assert (no_node(of, made) is None) is tolerated
    else:
        case = Case(unscheduled(tolerations=tolerations), nodes=nodes)
        assert outcome(case.page())[0] == (Reason.UNSCHEDULABLE if tolerated else Reason.TAINT_NOT_TOLERATED)


def test_a_pod_has_the_rules_that_its_runtime_class_had_at_its_creation() -> None:
    nodes = [node(taints=[{"key": "gpu", "effect": "NoSchedule"}])]
    since = [runtime_class(tolerations=[{"key": "gpu", "operator": "Exists"}], nodeSelector={"gpu": "yes"})]
    page = Case(unscheduled(), nodes=nodes, classes=since).page()
    assert outcome(page)[0] == Reason.TAINT_NOT_TOLERATED
    assert page.cause is not None
    assert lacking(page.cause.do, "delete") == []
    assert outcome(Case(unscheduled(), classes=since).page())[0] == Reason.UNSCHEDULABLE
    nodes = [node(taints=[{"key": "gpu", "effect": "NoSchedule"}, {"key": "own", "effect": "NoExecute"}])]
    page = Case(unscheduled(), nodes=nodes, classes=since).page()
    assert page.cause is not None
    assert lacking(page.cause.do, "delete") == ["delete"], "a new pod does not tolerate the other taint, either"


@pytest.mark.parametrize("effect", ["PreferNoSchedule", "NoExecute"])
def test_a_preference_repels_no_pod(effect: str) -> None:
    case = Case(unscheduled(), nodes=[node(taints=[{"key": "gpu", "effect": effect}])])
    repels = effect == "NoExecute"
    assert outcome(case.page())[0] == (Reason.TAINT_NOT_TOLERATED if repels else Reason.UNSCHEDULABLE)


def test_one_node_without_the_taint_is_enough() -> None:
    nodes = [node(taints=[{"key": "gpu", "effect": "NoSchedule"}]), node("n2")]
    assert outcome(Case(unscheduled(), nodes=nodes).page())[0] == Reason.UNSCHEDULABLE


WORDS = {
    "labels": (
        "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector.",
        Reason.NO_NODE_WITH_LABEL,
    ),
    "taints": ("0/3 nodes are available: 3 node(s) had untolerated taint {gpu: yes}.", Reason.TAINT_NOT_TOLERATED),
    "both": (
        "0/3 nodes are available: 1 had untolerated taint {gpu: yes}, 2 didn't match Pod's node affinity/selector.",
        Reason.UNSCHEDULABLE,
    ),
    "neither": ("0/3 nodes are available: 3 Insufficient cpu.", Reason.UNSCHEDULABLE),
}


@pytest.mark.parametrize(("words", "reason"), WORDS.values(), ids=WORDS)
def test_without_permission_for_nodes_the_words_of_the_scheduler_are_the_evidence(words: str, reason: Reason) -> None:
    page = Case(unscheduled(message=words), nodes=[], unread=[Part.NODES]).page()
    assert outcome(page) == (reason, Health.DEGRADED)
    assert "0/3 nodes" in page.headline


@pytest.mark.parametrize("part", [Part.CLASSES, Part.NODES, Part.SHIMS, Part.EVENTS, Part.LOGS])
def test_a_part_that_cannot_be_read_is_unknown_and_not_absent(part: Part) -> None:
    without = {Part.CLASSES: "classes", Part.NODES: "nodes", Part.SHIMS: "shims"}
    gone: dict[str, Any] = {name: [] for each, name in without.items() if each is part}
    for state in (pod(), pod("hello", CREATING), pod("hello", crashing(3))):
        case = replace(Case(state), unread=[part], **gone)
        known = outcome(Case(state).page())
        assert outcome(case.page()) == known
    crashed = replace(Case(pod("hello", crashing(3))), unread=[part], **gone).page()
    assert any(part.value in line.text for line in crashed.lines), part


def test_a_runtime_class_that_cannot_be_read_is_missing_if_the_kubelet_reports_it() -> None:
    words = [sandbox('runtimeclass.node.k8s.io "spin-v2" not found')]
    case = Case(pod("hello", CREATING), words, classes=[], unread=[Part.CLASSES])
    assert outcome(case.page())[0] == Reason.RUNTIME_CLASS_MISSING


def test_a_shim_of_the_handler_need_not_have_created_the_runtime_class() -> None:
    classes = [runtime_class("wasmtime-spin-v2")]
    case = Case(
        pod("hello", CREATING, runtime_class="wasmtime-spin-v2"), classes=classes, nodes=[node(handlers=["runc"])]
    )
    page = case.page()
    assert lacking(page.headline, "Shim spin", "handler spin") == []


EDGE = shim("younger", runtimeClass={"name": "spin-edge", "handler": "spin"})
EDGE_CLASS = runtime_class("spin-edge", nodeSelector={"edge": "provisioned"})
OF_EDGE: dict[str, Case] = {
    "no node with its label": Case(unscheduled(runtime_class="spin-edge", selector={"edge": "provisioned"})),
    "its handler is not configured": Case(
        pod("hello", CREATING, runtime_class="spin-edge"), nodes=[node(handlers=["runc"], installed=["younger"])]
    ),
    "an interface": Case(
        pod("hello", crashing(137), runtime_class="spin-edge"),
        logs=["unknown import: `wasi:nn/graph` has not been defined"],
    ),
}


@pytest.mark.parametrize("case", OF_EDGE.values(), ids=OF_EDGE)
def test_of_two_shims_with_one_handler_the_page_names_the_one_of_the_runtime_class(case: Case) -> None:
    page = replace(case, shims=[shim(), EDGE], classes=[runtime_class(), EDGE_CLASS]).page()
    assert page.verdict.health is Health.DEGRADED
    assert lacking(page.headline, "Shim younger") == []
    assert "Shim spin" not in page.headline


WAITS: dict[str, tuple[Case, tuple[str, ...]]] = {
    "an init container": (Case(of_init(container(name="init"), waiting("PodInitializing"))), ("init container init",)),
    "a readiness gate": (
        Case(
            not_ready(
                pod("hello", container(ready=True)),
                'corresponding condition of pod readiness gate "lb" does not exist.',
            )
        ),
        ("readiness gate", "lb"),
    ),
    "a container beside one that has completed": (
        Case(
            pod(
                "hello",
                container({"terminated": ended(0, "Completed")}),
                container(name="proxy", ready=True),
                containers=[{"name": "app"}, PROXY],
                restartPolicy="Never",
            )
        ),
        ("proxy", "ended: app"),
    ),
    "gates": (
        Case(unscheduled(why="SchedulingGated", schedulingGates=[{"name": "kueue.x-k8s.io/admission"}])),
        ("kueue.x-k8s.io/admission",),
    ),
    "another scheduler": (
        Case(without_conditions(pod("hello", CREATING, node="", schedulerName="volcano"))),
        ("scheduler volcano",),
    ),
    "a finalizer": (
        Case(finalized(pod("hello", deleting=True)), [event("FailedKillPod", "error killing pod: DeadlineExceeded")]),
        ("example.com/backup", "DeadlineExceeded"),
    ),
}


@pytest.mark.parametrize(("case", "named"), WAITS.values(), ids=WAITS)
def test_a_pod_that_waits_names_what_it_waits_for(case: Case, named: tuple[str, ...]) -> None:
    page = case.page()
    assert page.verdict.health is Health.PROGRESSING
    assert page.cause is not None
    assert lacking(page.cause.text, *named) == []


def test_the_error_in_the_log_and_in_the_termination_message_is_shown_once() -> None:
    case = Case(pod("hello", crashing(3, message="boom")), logs=["one", "two", "boom"])
    page = case.page()
    assert page.headline.count("boom") == 1
    assert lacking(page.headline, "one", "two", "boom") == []


def test_the_resolution_of_a_lost_handler_depends_on_the_shim_of_the_node() -> None:
    of = [Case(pod("hello", CREATING), nodes=[node(handlers=["runc"], installed=shims)]) for shims in ([], ["spin"])]
    without, installed = (case.page().cause for case in of)
    assert without is not None
    assert installed is not None
    assert lacking(installed.do, "containerd") == []
    assert without.do != installed.do


def test_credentials_and_the_environment_are_in_no_page() -> None:
    words = "unexpected status from GET request to https://user:s3cret@registry.test/v2/: 500"
    case = not_pulled(words, "Unknown")
    text = str(case.page().document()) + str(case.snapshot())
    assert "s3cret" not in text
    assert SECRET not in text


def test_credentials_in_the_events_of_a_page_are_hidden() -> None:
    words = "Get https://user:s3cret@registry.test/v2/: 500"
    events = [event("Failed", words)]
    case = Case(pod("hello", CREATING), events)
    page = explain_pod(case.snapshot(), view_pod(case.pod), case.pod, Beside(events=events))
    assert any(line.about == "event" for line in page.lines)
    assert "s3cret" not in str(page.document())


HOSTILE = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=8) | st.just("terminated"),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["metadata", "spec", "status", "containers", "containerStatuses", "state", "name", "waiting", "reason",
             "terminated", "exitCode", "conditions", "type", "message", "tolerations", "nodeSelector", "phase",
             "lastState", "ownerReferences", "involvedObject", "uid", "handler", "scheduling", "runtimeClassName"]
        ),
        inner,
        max_size=5,
    ),
    max_leaves=25,
)  # fmt: skip


@given(HOSTILE, HOSTILE, HOSTILE)
def test_objects_of_any_content_have_a_page(found: Any, about: Any, of_class: Any) -> None:
    view = view_pod(found)
    snapshot = Snapshot(
        pods=[view], events=[view_event(about)], classes=[view_runtime_class(of_class)], nodes=[view_node(node())]
    )
    metadata = {"metadata": {"name": "x", "namespace": "y", "uid": view.meta.uid}}
    page = explain_pod(snapshot, view, metadata, Beside())
    assert page.document()["ok"] is (page.cause is None)


def test_a_ready_pod_has_no_cause_whatever_its_events_are() -> None:
    events = [event(reason, "Readiness probe failed") for reason in ("Unhealthy", "Failed", "Killing", "FailedMount")]
    assert outcome(Case(pod("hello", READY), events).page()) == (None, Health.HEALTHY)
