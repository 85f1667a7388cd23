"""The resource types that Trellis uses, and their API paths.

Pure: names in, paths out. Called by ``trellis.kube`` and by services, which refer to kinds by these constants only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from urllib.parse import quote

Manifest: TypeAlias = dict[str, Any]
"""A Kubernetes object in the JSON format of the API server."""
_PLAIN: Final = re.compile(r"[A-Za-z0-9._~-]*")
"""A path segment without characters to escape, the common case: the check is ten times as fast as escaping."""


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource type of the API server; ``group`` is "" for the core group."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool

    @property
    def api_version(self) -> str:
        """``v1`` or ``<group>/<version>``, as in manifests."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def definition(self) -> str:
        """The name of its CRD."""
        return f"{self.plural}.{self.group}"

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """Return the path of a list, an object or a subresource.

        ``namespace=None`` on a namespaced kind means all namespaces, for lists only.
        """
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if namespace and self.namespaced:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        parts += [part for part in (name, subresource) if part]
        return "/" + "/".join([part if _PLAIN.fullmatch(part) else quote(part, safe="") for part in parts])


NODES: Final = Resource("", "v1", "nodes", "Node", namespaced=False)
NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
PODS: Final = Resource("", "v1", "pods", "Pod", namespaced=True)
CONFIGMAPS: Final = Resource("", "v1", "configmaps", "ConfigMap", namespaced=True)
SECRETS: Final = Resource("", "v1", "secrets", "Secret", namespaced=True)
SERVICES: Final = Resource("", "v1", "services", "Service", namespaced=True)
SERVICE_ACCOUNTS: Final = Resource("", "v1", "serviceaccounts", "ServiceAccount", namespaced=True)
EVENTS: Final = Resource("", "v1", "events", "Event", namespaced=True)
CONTROLLER_REVISIONS: Final = Resource("apps", "v1", "controllerrevisions", "ControllerRevision", namespaced=True)
JOBS: Final = Resource("batch", "v1", "jobs", "Job", namespaced=True)
REPLICA_SETS: Final = Resource("apps", "v1", "replicasets", "ReplicaSet", namespaced=True)
DAEMON_SETS: Final = Resource("apps", "v1", "daemonsets", "DaemonSet", namespaced=True)
DEPLOYMENTS: Final = Resource("apps", "v1", "deployments", "Deployment", namespaced=True)
STATEFUL_SETS: Final = Resource("apps", "v1", "statefulsets", "StatefulSet", namespaced=True)
CRON_JOBS: Final = Resource("batch", "v1", "cronjobs", "CronJob", namespaced=True)
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases", "Lease", namespaced=True)
RUNTIME_CLASSES: Final = Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False)
ROLES: Final = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role", namespaced=True)
ROLE_BINDINGS: Final = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", namespaced=True)
BUDGETS: Final = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", namespaced=True)
CLUSTER_ROLES: Final = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False)
CLUSTER_ROLE_BINDINGS: Final = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
)
ENDPOINT_SLICES: Final = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", namespaced=True)
ENDPOINTS: Final = Resource("", "v1", "endpoints", "Endpoints", namespaced=True)
HTTP_ROUTES: Final = Resource("gateway.networking.k8s.io", "v1", "httproutes", "HTTPRoute", namespaced=True)
API_SERVICES: Final = Resource("apiregistration.k8s.io", "v1", "apiservices", "APIService", namespaced=False)
DEFINITIONS: Final = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
SELF_REVIEWS: Final = Resource(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", namespaced=False
)
"""Checks permissions of the requesting account; it cannot be read."""
SHIMS: Final = Resource("runtime.spinkube.dev", "v1alpha1", "shims", "Shim", namespaced=False)
HOST_CONFIGS: Final = Resource(
    "k8s.wasmcloud.dev", "v1alpha1", "wasmcloudhostconfigs", "WasmCloudHostConfig", namespaced=True
)
APPLICATIONS: Final = Resource("core.oam.dev", "v1beta1", "applications", "Application", namespaced=True)
SECRET_GRANTS: Final = Resource("trellis.dev", "v1alpha1", "secretgrants", "SecretGrant", namespaced=True)
WASM_CONTROLLERS: Final = Resource("trellis.dev", "v1alpha1", "wasmcontrollers", "WasmController", namespaced=True)
_WASMCLOUD: Final = "runtime.wasmcloud.dev"
WORKLOAD_DEPLOYMENTS: Final = Resource(
    _WASMCLOUD, "v1alpha1", "workloaddeployments", "WorkloadDeployment", namespaced=True
)
WORKLOAD_REPLICA_SETS: Final = Resource(
    _WASMCLOUD, "v1alpha1", "workloadreplicasets", "WorkloadReplicaSet", namespaced=True
)
WORKLOADS: Final = Resource(_WASMCLOUD, "v1alpha1", "workloads", "Workload", namespaced=True)
WASM_HOSTS: Final = Resource(_WASMCLOUD, "v1alpha1", "hosts", "Host", namespaced=True)
ARTIFACTS: Final = Resource(_WASMCLOUD, "v1alpha1", "artifacts", "Artifact", namespaced=True)
WASMCLOUD_V2: Final = (WORKLOAD_DEPLOYMENTS, WORKLOAD_REPLICA_SETS, WORKLOADS, WASM_HOSTS, ARTIFACTS)
"""Kinds of wasmCloud v2. The services read them; only `trellis migrate to-v2 --apply` writes some of them."""

_SPINKUBE: Final = "core.spinkube.dev"
SPIN_APPS: Final = Resource(_SPINKUBE, "v1alpha1", "spinapps", "SpinApp", namespaced=True)
SPIN_APP_EXECUTORS: Final = Resource(_SPINKUBE, "v1alpha1", "spinappexecutors", "SpinAppExecutor", namespaced=True)

ALL: Final[tuple[Resource, ...]] = (
    NODES,
    NAMESPACES,
    PODS,
    CONFIGMAPS,
    SECRETS,
    SERVICES,
    SERVICE_ACCOUNTS,
    EVENTS,
    CONTROLLER_REVISIONS,
    JOBS,
    REPLICA_SETS,
    DAEMON_SETS,
    DEPLOYMENTS,
    STATEFUL_SETS,
    CRON_JOBS,
    LEASES,
    RUNTIME_CLASSES,
    ROLES,
    ROLE_BINDINGS,
    BUDGETS,
    CLUSTER_ROLES,
    CLUSTER_ROLE_BINDINGS,
    ENDPOINT_SLICES,
    ENDPOINTS,
    HTTP_ROUTES,
    API_SERVICES,
    DEFINITIONS,
    SHIMS,
    HOST_CONFIGS,
    APPLICATIONS,
    SECRET_GRANTS,
    WASM_CONTROLLERS,
)


def older(version: str, than: str) -> bool:
    """Return whether a resource version is older than another of the same kind; False if they are not comparable.

    Source: KEP-5504, comparable resource versions: decimal numbers of one kind; an aggregated API may differ.
    """
    return version.isdecimal() and than.isdecimal() and int(version) < int(than)


def key_of(manifest: Manifest) -> str:
    """Return ``namespace/name``, or ``name`` for an object without a namespace."""
    metadata = manifest["metadata"]
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])
