"""The objects of a world: nodes, host groups and their pods, applications, controllers.

Pure. In: names and numbers. Out: paths and manifests. Called by ``world`` and ``changes``.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any, Final

from load import sizes
from trellis import names
from trellis.kube.resources import APPLICATIONS, CONFIGMAPS, HOST_CONFIGS, LEASES, NAMESPACES, PODS, WASM_CONTROLLERS
from trellis_dev.localcluster.nodes import node_manifest

Manifest = dict[str, Any]
Made = tuple[str, Manifest]
"""The path of a collection, and what is created in it."""

_MODULE: Final = Path(__file__).parents[2] / "deploy" / "examples" / "controllers" / "ring.wasm"
_RBAC: Final = "/apis/rbac.authorization.k8s.io/v1/namespaces"
STEADY: Final = "steady"
STARTED: Final = "started"
"""The pods of a lattice whose host always runs, and whose host starts and ends as a change."""


def node(name: str, *, opted_in: bool) -> Made:
    """Return a simulated node."""
    manifest = node_manifest(name)
    if opted_in:
        manifest["metadata"]["annotations"][names.ANNOTATION_OPT_IN] = "true"
    return "/api/v1/nodes", manifest


def namespace(name: str) -> Made:
    """Return a namespace."""
    return NAMESPACES.path(), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def group(lattice: str, port: int) -> Made:
    """Return a group of one host in its lattice, whose NATS listens on a port."""
    spec = {"lattice": lattice, "version": "1.9.2", "hostReplicas": 1}
    spec |= {"natsAddress": "nats://127.0.0.1", "natsClientPort": port}
    kind = {"apiVersion": HOST_CONFIGS.api_version, "kind": HOST_CONFIGS.kind}
    return HOST_CONFIGS.path(lattice), kind | {"metadata": {"name": lattice}, "spec": spec}


def pod(lattice: str, name: str) -> Made:
    """Return a pod of the group without a kubelet: its status is written explicitly. Pods of kwok have no address."""
    labels = {names.LABEL_NAME: "wasmcloud", names.LABEL_MANAGED_BY: names.WADM_OPERATOR, names.LABEL_INSTANCE: lattice}
    spec = {"schedulerName": "nobody", "containers": [{"name": "host", "image": "example.com/host:1"}]}
    metadata = {"name": name, "labels": labels}
    return PODS.path(lattice), {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def address(lattice: int, pod: str) -> str:
    """Return the address of a lattice's pod."""
    return f"10.{80 if pod == STEADY else 81}.{lattice // 250}.{lattice % 250 + 1}"


def pod_status(lattice: int, pod: str, *, ready: bool) -> Manifest:
    """Return the status that a kubelet would write for that pod."""
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    where = address(lattice, pod)
    return {"status": {"phase": "Running", "conditions": conditions, "podIP": where, "podIPs": [{"ip": where}]}}


def application_spec(revision: str) -> Manifest:
    """Return what most people write: a component, and an http-server that listens for it."""
    link = {
        "namespace": "wasi",
        "package": "http",
        "interfaces": ["incoming-handler"],
        "source": {"config": [{"name": "http", "properties": {"address": "0.0.0.0:8080"}}]},
        "target": {"name": "component"},
    }
    everywhere = {"type": "daemonscaler", "properties": {"instances": 1}}
    component = {
        "name": "component",
        "type": "component",
        "properties": {"image": f"example.com/hello:{revision}"},
        "traits": [{"type": "spreadscaler", "properties": {"instances": 1}}],
    }
    server = {
        "name": "httpserver",
        "type": "capability",
        "properties": {"image": "ghcr.io/wasmcloud/http-server:0.27.0"},
        "traits": [{"type": "link", "properties": link}, everywhere],
    }
    return {"components": [component, server]}


def application(name: str, lattice: str) -> Made:
    """Return an application as ``kubectl apply`` sends it."""
    kind = {"apiVersion": APPLICATIONS.api_version, "kind": APPLICATIONS.kind}
    manifest = kind | {"metadata": {"name": name}, "spec": application_spec("1")}
    return f"{APPLICATIONS.path(lattice)}?fieldManager=kubectl", manifest


def model(name: str) -> Manifest:
    """Return an application as ``wash app put`` sends it."""
    metadata = {"name": name, "annotations": {"version": "v1"}}
    kind = {"apiVersion": "core.oam.dev/v1beta1", "kind": "Application"}
    return kind | {"metadata": metadata, "spec": application_spec("1")}


def request() -> Made:
    """Return the Lease that only the benchmark uses."""
    return LEASES.path(sizes.REQUESTS_NAMESPACE), {"metadata": {"name": sizes.REQUEST}, "spec": {}}


def controllers_rbac() -> list[Made]:
    """Return the namespace of all controllers, their account, and their module."""
    inside = sizes.CONTROLLERS_NAMESPACE
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch", "create", "patch"]}]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "load"}
    subjects = [{"kind": "ServiceAccount", "name": "load", "namespace": inside}]
    binary = {"ring.wasm": base64.b64encode(_MODULE.read_bytes()).decode()}
    metadata = {"metadata": {"name": "load"}}
    return [
        namespace(inside),
        (f"/api/v1/namespaces/{inside}/serviceaccounts", metadata),
        (f"{_RBAC}/{inside}/roles", metadata | {"rules": rules}),
        (f"{_RBAC}/{inside}/rolebindings", metadata | {"roleRef": role, "subjects": subjects}),
        (CONFIGMAPS.path(inside), {"metadata": {"name": "module"}, "binaryData": binary}),
    ]


def controller(number: int) -> list[Made]:
    """Return a controller, suspended after each call, and its two ConfigMaps."""
    inside = sizes.CONTROLLERS_NAMESPACE
    labels = {"ring": str(number)}
    watch = {"apiVersion": "v1", "kind": "ConfigMap", "labelSelector": {"matchLabels": labels}}
    spec = {
        "module": {"configMap": {"name": "module", "key": "ring.wasm"}},
        "serviceAccountName": "load",
        "watches": [watch],
        "config": {"next": sizes.copied(number)},
        "idle": {"suspendAfter": "0s"},
    }
    kind = {"apiVersion": WASM_CONTROLLERS.api_version, "kind": WASM_CONTROLLERS.kind}
    return [
        (CONFIGMAPS.path(inside), {"metadata": {"name": sizes.copied(number)}}),
        (CONFIGMAPS.path(inside), {"metadata": {"name": sizes.watched(number), "labels": labels}}),
        (WASM_CONTROLLERS.path(inside), kind | {"metadata": {"name": f"load-{number:04d}"}, "spec": spec}),
    ]
