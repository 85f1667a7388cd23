"""SpinKube without its operator: its kinds on a real API server, its samples, and the Deployment of a SpinApp.

In: tests/data/spinkube. Out: manifests. Called by tests of Shims beside spin-operator. Source: spin-operator at the
commit that the README of the data names, ``internal/controller/spinapp_controller.go``.
"""

from __future__ import annotations

import http
import json
import time
from pathlib import Path
from typing import Any, Final

import yaml

from trellis.kube.resources import DEFINITIONS
from trellis_dev.localcluster.api import Api

Manifest = dict[str, Any]
_DATA: Final = Path(__file__).parents[2] / "data" / "spinkube"
SAMPLES: Final[dict[str, Manifest]] = yaml.safe_load((_DATA / "shims.yaml").read_text(encoding="utf-8"))
"""Sample Shims of runtime-class-manager, by the names of their files."""
_DEFINITIONS: Final[list[Manifest]] = json.loads((_DATA / "definitions.json").read_text(encoding="utf-8"))
_PATIENCE: Final = 60.0
GROUP: Final = "/apis/core.spinkube.dev/v1alpha1"


def ensure_spinkube_served(api: Api) -> None:
    """Have SpinApps and SpinAppExecutors served."""
    for definition in _DEFINITIONS:
        path = f"{GROUP}/{definition['spec']['names']['plural']}?limit=1"
        if api.ok(path):
            continue
        status, answer = api.call("POST", DEFINITIONS.path(), definition)
        assert status in {http.HTTPStatus.CREATED, http.HTTPStatus.CONFLICT}, answer
        deadline = time.monotonic() + _PATIENCE
        while not api.ok(path):
            assert time.monotonic() < deadline, f"{definition['metadata']['name']} is not served"
            time.sleep(0.05)


def deployment_of(app: Manifest, executor: Manifest) -> Manifest:
    """Return the Deployment that spin-operator makes of a stored SpinApp; the SpinApp owns it."""
    name, spec, config = app["metadata"]["name"], app["spec"], executor["spec"]["deploymentConfig"]
    labels = {"core.spinkube.dev/app-name": name}
    ready = labels | {f"core.spinkube.dev/app.{name}.status": "ready"}
    owner = {
        "apiVersion": app["apiVersion"],
        "kind": app["kind"],
        "name": name,
        "uid": app["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    container = {
        "name": name,
        "image": spec["image"],
        "command": ["/"],
        "ports": [{"name": "http-app", "containerPort": 80}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": labels, "ownerReferences": [owner]},
        "spec": {
            "replicas": spec.get("replicas", 0),
            "selector": {"matchLabels": ready},
            "template": {
                "metadata": {"labels": {**(spec.get("podLabels") or {}), **ready}},
                "spec": {
                    "runtimeClassName": config["runtimeClassName"],
                    "serviceAccountName": "default",
                    "containers": [container],
                },
            },
        },
    }


def operator_deployment() -> Manifest:
    """Return the Deployment of spin-operator itself, by its chart, without what a pod of it needs."""
    labels = {"app.kubernetes.io/name": "spin-operator", "control-plane": "controller-manager"}
    container = {"name": "manager", "image": "ghcr.io/spinframework/spin-operator:latest"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": "spin-operator-controller-manager",
            "labels": labels | {"app.kubernetes.io/part-of": "spin-operator"},
        },
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }
