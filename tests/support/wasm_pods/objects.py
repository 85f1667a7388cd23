"""Objects of Wasm pods as the API server, the scheduler, the kubelet and controllers write them.

In: names and states. Out: manifests, and an in-memory API server with them. Called by tests. Messages have the form of
the programs that docs/wasm-pods.md and ``trellis.read_model.wasm_pods.failures`` name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from trellis.kube.resources import (
    ALL,
    NAMESPACES,
    NODES,
    RUNTIME_CLASSES,
    SHIMS,
    SPIN_APP_EXECUTORS,
    SPIN_APPS,
    Resource,
)
from trellis.telemetry import Metrics, setup
from trellis_dev.fakes.fake import FakeKube

Manifest = dict[str, Any]
SPACE: Final = "shop"
IMAGE: Final = "registry.test/shop/hello:1"
LABEL: Final = {"spin": "provisioned"}
CREATED: Final = "2026-11-27T10:00:00Z"
_ASSIGNED: Final = frozenset({"uid", "resourceVersion"})
SECRET: Final = "hunter2"
"""A value in an environment variable, which no page may show."""


def node(name: str = "n1", **fields: Any) -> Manifest:
    """Return a Node. ``fields``: ``labels``, ``taints``, ``handlers``, ``ready``, ``arch``, ``installed`` (Shims)."""
    installed = fields.get("installed", ("spin",))
    annotations = {
        "trellis.dev/node-uid": f"uid-{name}",
        "trellis.dev/verified": "canary",
        "trellis.dev/kwasm-digest": "d" * 16,
        "trellis.dev/shims": " ".join(f"{shim}=abcd" for shim in installed),
    }
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": "1", "labels": fields.get("labels", LABEL)}
    status = {
        "conditions": [{"type": "Ready", "status": "True" if fields.get("ready", True) else "False"}],
        "nodeInfo": {
            "architecture": fields.get("arch", "amd64"),
            "operatingSystem": "linux",
            "containerRuntimeVersion": "containerd://2.1.4",
        },
        "runtimeHandlers": [{"name": item} for item in fields.get("handlers", ("runc", "spin"))],
    }
    return {
        "metadata": metadata | {"annotations": annotations},
        "spec": {"taints": fields.get("taints", [])},
        "status": status,
    }


def runtime_class(name: str = "spin-v2", handler: str = "spin", **scheduling: Any) -> Manifest:
    """Return a RuntimeClass with the label of its Shim; ``scheduling``: further fields of it."""
    return {
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "handler": handler,
        "scheduling": {"nodeSelector": dict(LABEL)} | scheduling,
    }


def shim(name: str = "spin", handler: str = "spin", **spec: Any) -> Manifest:
    """Return a Shim."""
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": "1", "creationTimestamp": CREATED},
        "spec": {
            "fetchStrategy": {"anonHttp": {"location": "https://example.com/spin.tar.gz", "sha256": "ab" * 32}},
            "runtimeClass": {"name": "spin-v2", "handler": handler},
            "rolloutStrategy": {"type": "rolling", "rolling": {"maxUpdate": 1}},
            **spec,
        },
    }


def container(state: Mapping[str, Any] | None = None, **status: Any) -> Manifest:
    """Return the status of a container; ``status``: ``last`` (its former end), ``restarts``, ``ready``, ``name``."""
    last = {"lastState": {"terminated": status["last"]}} if "last" in status else {}
    return {
        "name": status.get("name", "app"),
        "state": dict(state) if state is not None else {"running": {"startedAt": CREATED}},
        "ready": status.get("ready", False),
        "restartCount": status.get("restarts", 0),
        **last,
    }


def waiting(reason: str, message: str = "") -> Manifest:
    """Return the state of a container that waits."""
    return {"waiting": {"reason": reason, "message": message}}


def ended(code: int, reason: str = "Error", message: str = "") -> Manifest:
    """Return how a container ended, as in ``terminated``."""
    return {"exitCode": code, "reason": reason, "message": message}


def crashing(code: int, reason: str = "Error", message: str = "", **status: Any) -> Manifest:
    """Return the status of a container that ended several times and is to be restarted."""
    back_off = waiting("CrashLoopBackOff", "back-off 40s restarting failed container")
    return container(back_off, last=ended(code, reason, message), restarts=status.pop("restarts", 4), **status)


READY: Final = container(ready=True)
CREATING: Final = container(waiting("ContainerCreating"))


def pod(name: str = "hello", *statuses: Manifest, **fields: Any) -> Manifest:
    """Return a pod on node n1 with a container ``app``; without ``statuses`` it is ready.

    ``fields``: ``node``, ``runtime_class``, ``phase``, ``reason``, ``message``, ``conditions``, ``owner`` (kind, name,
    uid), ``labels``, and fields of the spec.
    """
    statuses = statuses or (READY,)
    ready = all(item["ready"] for item in statuses)
    metadata: Manifest = {
        "name": name,
        "namespace": fields.pop("namespace", SPACE),
        "uid": f"uid-{name}",
        "creationTimestamp": CREATED,
        "labels": fields.pop("labels", {"app": "hello"}),
    }
    if "owner" in fields:
        kind, of, uid = fields.pop("owner")
        metadata["ownerReferences"] = [_controller(kind, of, uid)]
        if kind == "ReplicaSet":
            metadata["labels"] = metadata["labels"] | {"pod-template-hash": of.rpartition("-")[2]}
    if fields.pop("deleting", False):
        metadata["deletionTimestamp"] = CREATED
    started = any({"running", "terminated"} & item["state"].keys() or "lastState" in item for item in statuses)
    status: Manifest = {
        "phase": fields.pop("phase", "Running" if started else "Pending"),
        "conditions": [
            {"type": "Ready", "status": "True" if ready else "False"},
            {"type": "PodScheduled", "status": "True"},
            *fields.pop("conditions", []),
        ],
        "containerStatuses": list(statuses),
        **{key: fields.pop(key) for key in ("reason", "message") if key in fields},
    }
    spec = {
        "runtimeClassName": fields.pop("runtime_class", "spin-v2"),
        "nodeName": fields.pop("node", "n1"),
        "nodeSelector": fields.pop("selector", dict(LABEL)),
        "containers": [{"name": "app", "image": IMAGE, "env": [{"name": "PASSWORD", "value": SECRET}]}],
        **fields,
    }
    return {"metadata": metadata, "spec": {key: value for key, value in spec.items() if value}, "status": status}


_VERSIONS: Final = dict.fromkeys(("ReplicaSet", "Deployment", "StatefulSet", "DaemonSet"), "apps/v1") | {
    "Job": "batch/v1",
    "CronJob": "batch/v1",
}


def _controller(kind: str, name: str, uid: str) -> Manifest:
    version = _VERSIONS.get(kind, "v1")
    return {"kind": kind, "name": name, "uid": uid, "controller": True, "apiVersion": version}


def unscheduled(name: str = "hello", message: str = "0/1 nodes are available.", **fields: Any) -> Manifest:
    """Return a pod for which the scheduler finds no node."""
    made = pod(name, node="", phase="Pending", **fields)
    reason = fields.get("why", "Unschedulable")
    scheduled = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    made["status"] = {"phase": "Pending", "conditions": [scheduled]}
    return made


def event(reason: str, message: str, name: str = "hello", **fields: Any) -> Manifest:
    """Return a warning about a pod; ``fields``: ``api`` (its version), ``kind``, ``at``, ``uid``, ``container``."""
    about = {
        "apiVersion": fields.get("api", "v1"),
        "kind": fields.get("kind", "Pod"),
        "name": name,
        "namespace": SPACE,
        "uid": fields.get("uid", f"uid-{name}"),
    }
    if "container" in fields:
        about["fieldPath"] = f"spec.containers{{{fields['container']}}}"
    at = fields.get("at", "2026-11-27T10:05:00Z")
    return {
        "metadata": {"name": f"{name}.{abs(hash((reason, message, at))):x}", "namespace": SPACE},
        "type": "Warning",
        "reason": reason,
        "message": message,
        "involvedObject": about,
        "lastTimestamp": at,
    }


def sandbox(words: str, **fields: Any) -> Manifest:
    """Return the Event of the kubelet for a sandbox that containerd refuses."""
    return event(
        "FailedCreatePodSandBox",
        f"Failed to create pod sandbox: rpc error: code = Unknown desc = {words}",
        **fields,
    )


def workload(name: str = "hello", **fields: Any) -> Manifest:
    """Return a workload with the template of :func:`pod`; ``fields``: ``status``, ``runtime_class``, of the spec."""
    status, class_name = fields.pop("status", {}), fields.pop("runtime_class", "spin-v2")
    owner = fields.pop("owner", None)
    metadata: Manifest = {"name": name, "namespace": SPACE, "uid": f"uid-{name}", "creationTimestamp": CREATED}
    if owner is not None:
        metadata["ownerReferences"] = [_controller(*owner)]
    template: Manifest = {
        "metadata": {"labels": {"app": "hello"}},
        "spec": {"containers": [{"name": "app", "image": IMAGE}]},
    }
    if class_name:
        template["spec"]["runtimeClassName"] = class_name
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "hello"}}, "template": template, **fields}
    return {"metadata": metadata, "spec": spec, "status": status}


def spin_app(name: str = "hello", executor: str = "containerd-shim-spin") -> Manifest:
    """Return a SpinApp."""
    return {
        "metadata": {"name": name, "namespace": SPACE, "uid": f"uid-app-{name}"},
        "spec": {"executor": executor, "image": IMAGE, "replicas": 1},
    }


def executor(name: str = "containerd-shim-spin", class_name: str = "spin-v2", *, creates: bool = True) -> Manifest:
    """Return a SpinAppExecutor."""
    deployment = {"runtimeClassName": class_name} if class_name else {"spinImage": "ghcr.io/spinframework/spin:v3"}
    return {
        "metadata": {"name": name, "namespace": SPACE},
        "spec": {"createDeployment": creates, "deploymentConfig": deployment},
    }


WORLD: Final[Sequence[tuple[Resource, Manifest]]] = (
    (NODES, node()),
    (RUNTIME_CLASSES, runtime_class()),
    (SHIMS, shim()),
)
"""A cluster with a node that runs a Shim."""


def kube_of(*objects: tuple[Resource, Manifest], spinkube: bool = False, without: Resource | None = None) -> FakeKube:
    """Return an API server with these objects. References to the UIDs of earlier objects become those of the server."""
    served = tuple(res for res in ALL if res is not without)
    made = FakeKube(telemetry=setup("test", metrics=Metrics()), resources=served)
    if spinkube:
        made.define(SPIN_APPS)
        made.define(SPIN_APP_EXECUTORS)
    made.put(NAMESPACES, {"metadata": {"name": SPACE}})
    uids: dict[str, str] = {}
    for resource, manifest in objects:
        metadata = {key: value for key, value in manifest["metadata"].items() if key not in _ASSIGNED}
        put = made.put(resource, _renamed({**manifest, "metadata": metadata}, uids))
        if "uid" in manifest["metadata"]:
            uids[manifest["metadata"]["uid"]] = put["metadata"]["uid"]
    return made


def _renamed(value: Any, uids: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _renamed(item, uids) for key, item in value.items()}
    if isinstance(value, list):
        return [_renamed(item, uids) for item in value]
    return uids.get(value, value) if isinstance(value, str) else value
