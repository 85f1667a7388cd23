"""The five flows as traces, for the tests that find them in Jaeger and for docs/tracing.md.

``<node>``, ``<group>`` and the like stand for the names of objects. What came by a watch or a plan is in the same trace
if the service remembers what it is part of.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from support.suite.traces import Edge

WATCHER, PROVISIONER, INSTALLER = "node-watcher", "provisioner", "node-installer"
HOSTS, REFLECTOR, APPLICATIONS = "host-manager", "service-reflector", "application-manager"
SECRETS, CONTROLLERS = "secrets-backend", "controller-host"

_NODE = "reconcile node <node>"
_JOBS = "reconcile jobs <node>"
_CREATE = "create installer job"
NODE: Final = (
    Edge(WATCHER, _NODE, ""),
    Edge(WATCHER, "publish node.opted_in", _NODE),
    Edge(PROVISIONER, "receive node.opted_in", "publish node.opted_in"),
    Edge(PROVISIONER, _JOBS, _NODE),
    Edge(PROVISIONER, _CREATE, _JOBS),
    Edge(PROVISIONER, "kubernetes CREATE jobs", _CREATE),
    Edge(PROVISIONER, "installer job", _CREATE),
    Edge(INSTALLER, "installer install", _CREATE),
    Edge(PROVISIONER, _JOBS, _CREATE),
    Edge(PROVISIONER, "publish provision.started", _JOBS),
    Edge(PROVISIONER, "publish provision.succeeded", _JOBS),
    Edge(WATCHER, "receive provision.succeeded", "publish provision.succeeded"),
    Edge(WATCHER, _NODE, _CREATE),
    Edge(WATCHER, "kubernetes PATCH nodes", _NODE),
    Edge(WATCHER, "kubernetes CREATE events", _NODE, may=True),
    Edge(WATCHER, "publish node.ready", _NODE),
    Edge(PROVISIONER, "kubernetes DELETE jobs", _JOBS, may=True),
)

_REFLECT = "reflect <application>"
SERVICE: Final = (
    Edge(REFLECTOR, _REFLECT, ""),
    Edge(REFLECTOR, "kubernetes CREATE services", _REFLECT),
    Edge(REFLECTOR, "publish service.reflected", _REFLECT),
    Edge(REFLECTOR, "kubernetes CREATE events", _REFLECT, may=True),
    Edge(REFLECTOR, _REFLECT, _REFLECT),
    Edge(REFLECTOR, "kubernetes CREATE endpointslices", _REFLECT),
    Edge(REFLECTOR, "kubernetes PATCH endpointslices", _REFLECT),
    Edge(REFLECTOR, "kubernetes PATCH services", _REFLECT, may=True),
)

_HOSTS = "reconcile hosts <group>"
GROUP: Final = (
    Edge(HOSTS, _HOSTS, ""),
    *(
        Edge(HOSTS, f"kubernetes PATCH {kind}", _HOSTS)
        for kind in (
            "configmaps",
            "deployments",
            "poddisruptionbudgets",
            "rolebindings",
            "roles",
            "serviceaccounts",
            "services",
            "wasmcloudhostconfigs",
        )
    ),
    Edge(HOSTS, _HOSTS, _HOSTS),
    Edge(HOSTS, "publish hosts.ready", _HOSTS),
    Edge(HOSTS, "publish host_pod.ready", _HOSTS, may=True),
    Edge(HOSTS, "kubernetes CREATE events", _HOSTS, may=True),
)

_KEEP = "reconcile application <application>"
_REPORT = "update status <application>"
APPLICATION: Final = (
    Edge(APPLICATIONS, _KEEP, ""),
    Edge(APPLICATIONS, "kubernetes PATCH applications", _KEEP),
    Edge(APPLICATIONS, "wadm put", _KEEP),
    Edge(APPLICATIONS, "kubernetes GET applications", "wadm put", may=True),
    Edge(APPLICATIONS, "wadm deploy", _KEEP),
    Edge(APPLICATIONS, _REPORT, _KEEP),
    Edge(APPLICATIONS, "kubernetes PATCH applications", _REPORT),
    Edge(APPLICATIONS, "publish application.synced", _KEEP),
)
FROM_WADM: Final = (
    Edge(APPLICATIONS, _KEEP, ""),
    Edge(APPLICATIONS, "kubernetes CREATE applications", _KEEP),
    Edge(APPLICATIONS, _KEEP, _KEEP, may=True),
    Edge(APPLICATIONS, "kubernetes PATCH applications", _KEEP, may=True),
    Edge(APPLICATIONS, _REPORT, _KEEP),
    Edge(APPLICATIONS, "kubernetes PATCH applications", _REPORT),
    Edge(APPLICATIONS, "publish application.synced", _KEEP),
)

SECRET: Final = (
    Edge(SECRETS, "answer secret", ""),
    Edge(SECRETS, "kubernetes GET secrets", "answer secret"),
    Edge(SECRETS, "audit", "answer secret"),
    Edge(SECRETS, "publish secret.granted", "audit"),
)
CHANGED: Final = (
    Edge(SECRETS, "secret changed", ""),
    Edge(SECRETS, "publish secret.changed", "secret changed"),
    Edge(HOSTS, "receive secret.changed", "publish secret.changed"),
    Edge(HOSTS, _HOSTS, "receive secret.changed"),
    Edge(HOSTS, "kubernetes PATCH deployments", _HOSTS),
    Edge(HOSTS, "kubernetes PATCH wasmcloudhostconfigs", _HOSTS, may=True),
    Edge(HOSTS, _HOSTS, _HOSTS, may=True),
    Edge(HOSTS, "publish hosts.ready", _HOSTS, may=True),
    Edge(HOSTS, "publish host_pod.ready", _HOSTS, may=True),
    Edge(HOSTS, "publish host_pod.gone", _HOSTS, may=True),
)

_CALL = "reconcile ConfigMap"
CONTROLLER: Final = (
    Edge(CONTROLLERS, _CALL, ""),
    Edge(CONTROLLERS, "wake", _CALL),
    Edge(CONTROLLERS, "guest", _CALL),
    Edge(CONTROLLERS, "call get ConfigMap", "guest"),
    Edge(CONTROLLERS, "kubernetes GET configmaps", "call get ConfigMap"),
    Edge(CONTROLLERS, "kubernetes GET apiresources", "call get ConfigMap", may=True),
    Edge(CONTROLLERS, "call update ConfigMap", "guest"),
    Edge(CONTROLLERS, "kubernetes PUT configmaps", "call update ConfigMap"),
)
REPORTED: Final = (
    Edge(CONTROLLERS, "update status <controller>", ""),
    Edge(CONTROLLERS, "kubernetes PATCH wasmcontrollers", "update status <controller>"),
)

FLOWS: Final[Mapping[str, tuple[Edge, ...]]] = {
    "A node": NODE,
    "A host group": GROUP,
    "An application's Service": SERVICE,
    "An application applied with kubectl": APPLICATION,
    "An application put with wash": FROM_WADM,
    "A secret": SECRET,
    "A changed Secret": CHANGED,
    "A controller": CONTROLLER,
    "A controller's status": REPORTED,
}
"""By the headings of docs/tracing.md."""
