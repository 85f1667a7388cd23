"""Derives ``deploy/base`` from the rendered chart: the same objects, with a Job instead of the passwords.

Pure. In: manifests of the chart. Out: manifests by file. Called by ``base.generate``.
Invariants: the result contains no Secret and nothing that differs between two renderings; the permissions of services
are those of the chart.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable
from typing import Any, Final

from trellis_cli.bus.passwords import CLIENTS, PASSWORDS, SEED, SERVER, client_secret

Manifest = dict[str, Any]

HOME: Final = "trellis-system"
KUSTOMIZATION: Final = "kustomization.yaml"
DEFINITIONS: Final = "../helm/trellis/definitions"
"""CRDs of the chart: a separate kustomization, which the base includes."""
_JOB: Final = "trellis-bus-passwords"
_CONFIG: Final = "trellis-nats-config"
_SECRET_FILES: Final = frozenset({SEED, PASSWORDS})
_PERMISSIONS: Final = "accounts.conf"
_WORD: Final = re.compile(r"[A-Za-z0-9+/_-]{40,}")
"""Pattern of a seed, a password or a key line."""
_RANDOM: Final = "checksum/users"
"""Annotation that changes with the passwords."""
_HELMS: Final = "helm.sh/"
_FILES: Final = {
    "Namespace": "namespaces.yaml",
    "ServiceAccount": "rights.yaml",
    "Role": "rights.yaml",
    "RoleBinding": "rights.yaml",
    "ClusterRole": "rights.yaml",
    "ClusterRoleBinding": "rights.yaml",
}
_BUS, _SERVICES, _PASSWORDS = "nats.yaml", "services.yaml", "passwords.yaml"
_COMPONENT: Final = "app.kubernetes.io/component"
_JOB_SECONDS: Final = 600


def files_of(rendered: Iterable[Manifest]) -> dict[str, list[Manifest]]:
    """Return the manifests of each file, in file order."""
    objects = [copy.deepcopy(one) for one in rendered]
    [server] = [one for one in objects if one["kind"] == "Secret" and one["metadata"]["name"] == SERVER]
    files: dict[str, list[Manifest]] = {name: [] for name in dict.fromkeys(_FILES.values())}
    files |= {_PASSWORDS: _job_and_rights(_service_of(objects)), _BUS: [_config(server)], _SERVICES: []}
    files["namespaces.yaml"].append({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HOME}})
    for one in objects:
        if one["kind"] == "Secret":
            continue
        _without_marks(one)
        if one["kind"] == "StatefulSet":
            _with_config(one)
        of_bus = one["metadata"].get("labels", {}).get(_COMPONENT) == "nats"
        files[_FILES.get(one["kind"], _BUS if of_bus else _SERVICES)].append(one)
    return files


def leaked(rendered: Iterable[Manifest], texts: Iterable[str]) -> str:
    """Return the Secret of the chart whose password, seed or key is in one of the texts, "" if there is none."""
    everything = "\n".join(texts)
    for one in rendered:
        for key, text in one.get("stringData", {}).items() if one["kind"] == "Secret" else ():
            words = _WORD.findall(text) if key != _PERMISSIONS else ()
            if any(word in everything for word in words):
                return f"{one['metadata']['name']}: {key}"
    return ""


def _service_of(objects: Iterable[Manifest]) -> Manifest:
    """Return the pod of a service: the Job uses its image and its limits."""
    return next(dict(one["spec"]["template"]["spec"]) for one in objects if one["kind"] == "Deployment")


def _config(server: Manifest) -> Manifest:
    """Return the public part of the server configuration."""
    data = {key: value for key, value in server["stringData"].items() if key not in _SECRET_FILES}
    metadata = {"name": _CONFIG, "namespace": HOME, "labels": server["metadata"]["labels"]}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def _with_config(stateful: Manifest) -> None:
    """Mount the public configuration from the ConfigMap, and the passwords from the Secret of the Job."""
    for volume in stateful["spec"]["template"]["spec"]["volumes"]:
        secret = volume.get("secret")
        if secret and secret["secretName"] == SERVER:
            del volume["secret"]
            volume["projected"] = {
                "defaultMode": secret["defaultMode"],
                "sources": [
                    {"configMap": {"name": _CONFIG}},
                    {"secret": {"name": SERVER, "items": [{"key": PASSWORDS, "path": PASSWORDS}]}},
                ],
            }


def _without_marks(one: Manifest) -> None:
    """Remove metadata of Helm, and annotations that change with the passwords."""
    for place in (one, one.get("spec", {}).get("template", {})):
        annotations = place.get("metadata", {}).get("annotations")
        if not annotations:
            continue
        for key in [key for key in annotations if key == _RANDOM or key.startswith(_HELMS)]:
            del annotations[key]
        if not annotations:
            del place["metadata"]["annotations"]


def _job_and_rights(pod: Manifest) -> list[Manifest]:
    """Return the Job that creates the passwords, and its permissions: create Secrets, and read and update its own."""
    metadata = {"name": _JOB, "namespace": HOME, "labels": {"app.kubernetes.io/name": "trellis", _COMPONENT: "nats"}}
    rbac = "rbac.authorization.k8s.io"
    rules = [
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]},
        {
            "apiGroups": [""],
            "resources": ["secrets"],
            "resourceNames": [SERVER, *map(client_secret, CLIENTS)],
            "verbs": ["get"],
        },
        {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [SERVER], "verbs": ["patch"]},
    ]
    subject = {"kind": "ServiceAccount", "name": _JOB, "namespace": HOME}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": metadata, "rules": rules},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": _JOB},
            "subjects": [subject],
        },
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": metadata,
            # The Job is deleted after it finishes: Jobs are immutable, and the next version has another image.
            "spec": {"backoffLimit": 6, "ttlSecondsAfterFinished": _JOB_SECONDS, "template": _template(pod)},
        },
    ]


def _template(pod: Manifest) -> Manifest:
    [service] = pod["containers"]
    kept = ("image", "imagePullPolicy", "securityContext", "resources")
    container = {
        "name": "passwords",
        "command": ["trellis", "bus", "passwords"],
        "env": [{"name": "TRELLIS_NAMESPACE", "value": HOME}],
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108 - of the container
        **{key: copy.deepcopy(service[key]) for key in kept},
    }
    return {
        # Not the labels of the server: its Service, policy and StatefulSet must not select this pod.
        "metadata": {"labels": {"app.kubernetes.io/name": "trellis", _COMPONENT: "bus-passwords"}},
        "spec": {
            "serviceAccountName": _JOB,
            "restartPolicy": "OnFailure",
            "enableServiceLinks": False,
            "securityContext": copy.deepcopy(pod["securityContext"]),
            "containers": [container],
            "volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}}],
        },
    }
