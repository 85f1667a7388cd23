"""The objects of CoreDNS for a cluster with real nodes.

In: the image. Out: manifests, with their POST paths. Pure. Called when the first real node joins. Invariant: only
names of the cluster are resolved: there is no upstream server.
"""

from __future__ import annotations

from typing import Any, Final

DNS_ADDRESS: Final = "10.96.0.10"
NAMESPACE: Final = "kube-system"
_LABELS: Final = {"k8s-app": "kube-dns"}
_NAME: Final = "coredns"

COREFILE: Final = """\
.:53 {
    errors
    health
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        pods insecure
        ttl 5
    }
    cache 5
}
"""


def coredns_objects(image: str) -> list[tuple[str, dict[str, Any]]]:
    """Return (collection path, object) pairs in creation order."""
    core, rbac = f"/api/v1/namespaces/{NAMESPACE}", "/apis/rbac.authorization.k8s.io/v1"
    return [
        (f"{core}/serviceaccounts", _object("v1", "ServiceAccount", {})),
        (f"{rbac}/clusterroles", _object("rbac.authorization.k8s.io/v1", "ClusterRole", {"rules": _rules()})),
        (f"{rbac}/clusterrolebindings",
         _object("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", _binding())),
        (f"{core}/configmaps", _object("v1", "ConfigMap", {"data": {"Corefile": COREFILE}})),
        (f"{core}/services", _service()),
        (f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments",
         _object("apps/v1", "Deployment", {"spec": _deployment(image)})),
    ]  # fmt: skip


def _object(version: str, kind: str, rest: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": _NAME, "labels": _LABELS} | ({} if kind.startswith("Cluster") else {"namespace": NAMESPACE})
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **rest}


def _rules() -> list[dict[str, Any]]:
    return [
        {"apiGroups": [""], "resources": ["services", "pods", "namespaces"], "verbs": ["list", "watch"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
    ]


def _binding() -> dict[str, Any]:
    return {
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": _NAME},
        "subjects": [{"kind": "ServiceAccount", "name": _NAME, "namespace": NAMESPACE}],
    }


def _service() -> dict[str, Any]:
    ports = [{"name": f"dns-{protocol.lower()}", "port": 53, "protocol": protocol} for protocol in ("UDP", "TCP")]
    spec = {"clusterIP": DNS_ADDRESS, "selector": _LABELS, "ports": ports}
    service = _object("v1", "Service", {"spec": spec})
    service["metadata"]["name"] = "kube-dns"
    return service


def _deployment(image: str) -> dict[str, Any]:
    container = {
        "name": _NAME,
        "image": image,
        "imagePullPolicy": "Never",
        "args": ["-conf", "/etc/coredns/Corefile"],
        "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns", "readOnly": True}],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}, "periodSeconds": 1},
        "resources": {"requests": {"cpu": "50m", "memory": "32Mi"}, "limits": {"memory": "128Mi"}},
    }
    pod = {
        "serviceAccountName": _NAME,
        "dnsPolicy": "Default",
        "priorityClassName": "system-cluster-critical",
        # Only on real nodes: simulated nodes do not run containers.
        "nodeSelector": {"trellis.local/real-node": "true"},
        "containers": [container],
        "volumes": [{"name": "config", "configMap": {"name": _NAME}}],
    }
    template = {"metadata": {"labels": _LABELS}, "spec": pod}
    return {"replicas": 1, "selector": {"matchLabels": _LABELS}, "template": template}
