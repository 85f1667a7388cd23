"""Objects as the API server returns them, of each kind that the console shows, plain and valid."""

from __future__ import annotations

from typing import Any

from trellis import names

Manifest = dict[str, Any]


def node(name: str = "n1", *, ready: bool = True, **annotations: str) -> Manifest:
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/os": "linux"}, "annotations": annotations},
        "status": {
            "nodeInfo": {"architecture": "amd64", "operatingSystem": "linux"},
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }


def opted_in(name: str = "n1") -> Manifest:
    return node(name, **{names.ANNOTATION_OPT_IN: "true"})


def shim(name: str = "spin") -> Manifest:
    return {
        "metadata": {"name": name, "generation": 1},
        "spec": {
            "nodeSelector": {"kubernetes.io/os": "linux"},
            "fetchStrategy": {
                "type": "anonymousHttp",
                "anonHttp": {"location": "https://example.com/spin.tar.gz", "sha256": "ab" * 32},
            },
            "runtimeClass": {"name": name, "handler": name},
            "rolloutStrategy": {"type": "rolling"},
        },
    }


def group(name: str = "hosts", namespace: str = "team", *, pods: tuple[str, ...] = ()) -> Manifest:
    hosts = [{"pod": pod, "ready": True, "reported": "Yes", "id": f"N{pod}", "version": "1.9.0"} for pod in pods]
    lattice_hosts = [{"id": f"N{pod}", "applications": ["shop"], "components": [{"id": "c"}]} for pod in pods]
    return {
        "metadata": {"name": name, "namespace": namespace, "generation": 1},
        "spec": {"lattice": "prod", "version": "1.9.0", "hostReplicas": 1},
        "status": {
            "observedGeneration": 1,
            "desiredReplicas": len(pods),
            "readyReplicas": len(pods),
            "updatedReplicas": len(pods),
            "workload": "Deployment",
            "apps": [{"name": "shop", "version": "v1"}],
            "app_count": 1,
            "hosts": hosts,
            "latticeHosts": lattice_hosts,
            "conditions": [{"type": "Available", "status": "True", "reason": "HostsReady", "message": "all"}],
        },
    }


def host_pod(name: str = "hosts-1", namespace: str = "team", *, ready: bool = True, on: str = "n1") -> Manifest:
    labels = {names.LABEL_MANAGED_BY: names.WADM_OPERATOR, names.LABEL_INSTANCE: "hosts"}
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"nodeName": on, "containers": [{"name": "host", "env": [{"name": "PASSWORD", "value": "hunter2"}]}]},
        "status": {
            "phase": "Running",
            "podIPs": [{"ip": "10.1.0.7"}],
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }


def application(name: str = "shop", namespace: str = "team", *, phase: str = "Deployed") -> Manifest:
    return {
        "metadata": {"name": name, "namespace": namespace, "generation": 1},
        "spec": {"components": []},
        "status": {
            "phase": phase,
            "lattice": "prod",
            "deployedVersion": "v1",
            "observedGeneration": 1,
            "conditions": [{"type": "Synced", "status": "True", "reason": "Synced", "message": "both are equal"}],
        },
    }


def service(name: str = "shop", namespace: str = "team") -> Manifest:
    annotations = {names.ANNOTATION_APPLICATION: "shop", names.ANNOTATION_LATTICE: "prod/217cd4b31f"}
    return {
        "metadata": {"name": name, "namespace": namespace, "annotations": annotations},
        "spec": {"type": "ClusterIP", "clusterIP": "10.96.0.9", "ports": [{"port": 80, "protocol": "TCP"}]},
    }


def slice_of(service_name: str = "shop", namespace: str = "team", *, pod: str = "hosts-1") -> Manifest:
    labels = {names.LABEL_SLICE_MANAGED_BY: names.SLICE_MANAGED_BY, names.LABEL_SERVICE_NAME: service_name}
    target = {"kind": "Pod", "name": pod, "namespace": namespace}
    return {
        "metadata": {"name": f"{service_name}-0", "namespace": namespace, "labels": labels},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.1.0.7"], "conditions": {"ready": True}, "targetRef": target}],
        "ports": [{"port": 8080}],
    }


def controller(name: str = "ring", namespace: str = "team") -> Manifest:
    return {
        "metadata": {"name": name, "namespace": namespace, "generation": 1},
        "spec": {},
        "status": {
            "state": "Suspended",
            "observedGeneration": 1,
            "wakes": 3,
            "snapshotBytes": 4096,
            "conditions": [{"type": "Ready", "status": "True", "reason": "Suspended", "message": "it waits"}],
        },
    }
