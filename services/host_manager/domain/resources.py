"""The children of a host group: its workload, and the objects that belong to it.

Pure and total, except for the user's additions to the pods: arguments in, manifests for server-side apply out. Called
by ``decide``. Invariants: the group owns each child, so that the garbage collector deletes it with the group; names and
labels are those of wasmcloud-operator, so that its children are adopted.
"""

from __future__ import annotations

import base64
import re
from typing import Final

import orjson

from host_manager.domain.environment import REGISTRY_KEYS
from host_manager.domain.group import API_VERSION, KIND, LATEST, Group, HostGroupSpec, Manifest
from host_manager.domain.improvements import TLS_DIRECTORY, tls_secret
from host_manager.domain.template import (
    CONFIG_KEY,
    CREDENTIALS_KEY,
    LEAF_PORT,
    common_labels,
    make_pod_template,
    selector_of,
)
from trellis import names

_WORD: Final = re.compile("(?!(?i:true|false|on|off|yes|no)$)[A-Za-z_][A-Za-z0-9_-]*")
"""Text that NATS parses as a string without quotes; the excluded words are booleans."""
_TLS_FILES: Final = {"ca.crt": "ca_file", "tls.crt": "cert_file", "tls.key": "key_file"}
"""Keys of the Secret, and the names of the files in the leaf's configuration."""
_TENTH: Final = 10
_VERBS: Final = ("get", "list", "create", "update", "patch", "delete")


def make_config_map(desired: HostGroupSpec) -> Manifest:
    """Return the ConfigMap with the configuration of the NATS leaf."""
    return _child(desired.group, "v1", "ConfigMap") | {"data": {CONFIG_KEY: make_nats_conf(desired)}}


def make_nats_conf(desired: HostGroupSpec) -> str:
    """Return the leaf's configuration: its JetStream domain and its remote."""
    spec = desired.group.spec
    domain = spec.leaf_node_domain
    if not _WORD.fullmatch(domain):
        domain = _quoted(domain)
    remote = [f"      url: {_quoted(f'{spec.nats_address}:{spec.nats_leafnode_port}')}"]
    if desired.inputs.credentials:
        remote.append(f'      credentials: "/nats/{CREDENTIALS_KEY}"')
    keys = desired.inputs.tls_keys
    if tls_secret(desired):
        files = [f'        {name}: "{TLS_DIRECTORY}/{key}"' for key, name in _TLS_FILES.items() if key in keys]
        remote += ["      tls {", *files, "      }"]
    body = "\n".join(remote)
    return f"\njetstream {{\n  domain: {domain}\n}}\nleafnodes {{\n  remotes: [\n    {{\n{body}\n    }}\n  ]\n}}\n"


def _quoted(text: str) -> str:
    return orjson.dumps(text).decode()


def make_service_account(group: Group) -> Manifest:
    """Return the ServiceAccount of the pods."""
    return _child(group, "v1", "ServiceAccount")


def make_role(group: Group) -> Manifest:
    """Return the Role of the pods' ServiceAccount."""
    rule = {"apiGroups": [""], "resources": ["services"], "verbs": list(_VERBS)}
    return _child(group, "rbac.authorization.k8s.io/v1", "Role") | {"rules": [rule]}


def make_role_binding(group: Group) -> Manifest:
    """Return the binding of the Role to the pods' ServiceAccount."""
    return _child(group, "rbac.authorization.k8s.io/v1", "RoleBinding") | {
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": group.name},
        "subjects": [{"kind": "ServiceAccount", "name": group.name, "namespace": group.namespace}],
    }


def make_service(group: Group) -> Manifest:
    """Return the Service in front of the leaves."""
    selector = selector_of(group)
    child = _child(group, "v1", "Service", labels=selector | {"wasmcloud.dev/route-to": "true"})
    return child | {"spec": {"selector": selector, "ports": [{"port": LEAF_PORT}]}}


def make_registry_secret(desired: HostGroupSpec) -> Manifest:
    """Return the Secret from which hosts get the registry's credentials; the group has at least one registry."""
    registry = desired.inputs.registries[0]
    values = zip(REGISTRY_KEYS, (registry.user, registry.password), strict=True)
    data = {key: base64.b64encode(value.encode()).decode() for key, value in values}
    child = _child(desired.group, "v1", "Secret", name=names.registry_secret(desired.group.name))
    return child | {"type": "Opaque", "data": data}


def at_a_time(group: Group) -> int:
    """Return how many hosts of a group may be unavailable during a drain or a roll: one, or a tenth of many."""
    return max(1, group.spec.host_replicas // _TENTH)


def make_budget(group: Group) -> Manifest:
    """Return the disruption budget, which limits drains, for a Deployment; for a DaemonSet it would block all drains.

    Kubernetes reads the expected number of pods from the scale of the workload, and a DaemonSet has none.
    """
    child = _child(group, "policy/v1", "PodDisruptionBudget")
    return child | {"spec": {"maxUnavailable": at_a_time(group), "selector": {"matchLabels": selector_of(group)}}}


def _strategy(group: Group) -> Manifest:
    """Return the limits of a roll, which ignores budgets (ADR 35): a single host remains until the next is ready."""
    count = at_a_time(group)
    unavailable = 0 if group.spec.host_replicas == 1 else count
    return {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": unavailable, "maxSurge": count}}


def make_workload(desired: HostGroupSpec) -> Manifest:
    """Return the Deployment or DaemonSet of the host group.

    Raises:
        TemplateError: an addition of the user to the pods has an invalid type.
    """
    group = desired.group
    template = make_pod_template(desired)
    restart_annotations = {
        names.ANNOTATION_RESTARTED_FOR: desired.restarted_for,
        names.ANNOTATION_RESTARTED_AT: desired.restarted_at,
    }
    if desired.restarted_for:
        annotations = template["metadata"].get("annotations", {}) | {
            name: text for name, text in restart_annotations.items() if text
        }
        template = template | {"metadata": template["metadata"] | {"annotations": annotations}}
    spec: Manifest = {"selector": {"matchLabels": selector_of(group)}, "template": template}
    daemonset = group.runs_as_daemonset(desired.revision)
    if not daemonset:
        spec = {"replicas": group.spec.host_replicas, **spec}
        if desired.revision >= LATEST:
            spec["strategy"] = _strategy(group)
    child = _child(group, "apps/v1", "DaemonSet" if daemonset else "Deployment", labels=common_labels())
    return child | {"spec": spec}


def _child(
    group: Group, api_version: str, kind: str, *, name: str | None = None, labels: dict[str, str] | None = None
) -> Manifest:
    """Return a child with its metadata, without a spec; the group is its owner."""
    owner = {"apiVersion": API_VERSION, "kind": KIND, "name": group.name, "uid": group.uid, "controller": True}
    metadata: Manifest = {
        "name": name or group.name,
        "namespace": group.namespace,
        "ownerReferences": [owner],
    }
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata | ({"labels": labels} if labels else {})}
