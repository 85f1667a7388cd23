"""Pods of host groups as the chart of wasmCloud 2.7, the operator, the kubelet and the scheduler write them.

The recordings have hosts without pods. The chart names the container ``host``, sets both labels, and passes the address
of the pod as ``--host-name``; the operator adds a finalizer.

In: a name, an address, a state. Out: manifests. Called by tests.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

SON: Final = "10.77.77.11"
COUNTRY: Final = "10.77.77.12"
"""Addresses of the two hosts of most recordings."""
OTHER: Final = "10.77.77.13"
_WAITING: Final = {
    "CrashLoopBackOff": "back-off 5m0s restarting failed container=host",
    "ImagePullBackOff": 'Back-off pulling image "registry.test/wash:none"',
    "CreateContainerConfigError": 'configmap "settings" not found',
    "ContainerCreating": "",
}


def host_pod(name: str, address: str = "", state: str = "Ready", **fields: Any) -> dict[str, Any]:
    """Return a pod. ``state``: Ready, NotReady, Unschedulable, Evicted, or the reason of a waiting container.

    ``fields``: ``group``, ``namespace``, ``node``, ``since`` (Unix seconds), ``restarts``, ``deleting``.
    """
    since = datetime.fromtimestamp(fields.get("since", 1_000_000_000.0), UTC).isoformat()
    restarts = fields.get("restarts", 5 if state == "CrashLoopBackOff" else 0)
    container: dict[str, Any] = {"name": "host", "restartCount": restarts, "state": {"running": {}}}
    if state in _WAITING:
        container["state"] = {"waiting": {"reason": state, "message": _WAITING[state]}}
    if state == "CrashLoopBackOff":
        container["lastState"] = {"terminated": {"exitCode": 1, "reason": "Error"}}
    status: dict[str, Any] = {
        "phase": {"Unschedulable": "Pending", "Evicted": "Failed", "ContainerCreating": "Pending"}.get(
            state, "Pending" if state == "ImagePullBackOff" else "Running"
        ),
        "podIP": address,
        "podIPs": [{"ip": address}] if address else [],
        "conditions": [
            {"type": "Ready", "status": "True" if state == "Ready" else "False", "lastTransitionTime": since}
        ],
        "containerStatuses": [container],
    }
    if state == "Unschedulable":
        text = "0/3 nodes are available: 3 Insufficient memory."
        status["conditions"].append(
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": text}
        )
        del status["containerStatuses"]
    if state == "Evicted":
        status |= {"reason": "Evicted", "message": "The node was low on resource: memory."}
    metadata = {
        "name": name,
        "namespace": fields.get("namespace", "wasmcloud-system"),
        "uid": f"uid-{name}",
        "labels": {
            "wasmcloud.com/hostgroup": fields.get("group", "default"),
            "wasmcloud.com/name": "hostgroup",
            "app.kubernetes.io/instance": "wasmcloud",
            "pod-template-hash": "5c9f8d7b6f",
        },
        "finalizers": ["runtime.wasmcloud.dev/pod-host-finalizer"],
    }
    if fields.get("deleting"):
        metadata["deletionTimestamp"] = since
    environment = [
        {"name": "WASMCLOUD_HOST_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "NATS_PASSWORD", "value": "hunter2"},
    ]
    arguments = ["host", "--host-name=$(WASMCLOUD_HOST_IP)", f"--host-group={fields.get('group', 'default')}"]
    host = {"name": "host", "env": environment, "args": arguments}
    spec = {"nodeName": fields.get("node", "node-1"), "containers": [host]}
    return {"kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def both(**fields: Any) -> list[dict[str, Any]]:
    """Return a ready pod for each of the two hosts of most recordings."""
    return [host_pod("default-a", SON, **fields), host_pod("default-b", COUNTRY, node="node-2", **fields)]
