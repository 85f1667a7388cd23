"""Definitions of kinds on the API server of a test: ours, and those of others in the smallest form with their marks."""

from __future__ import annotations

import copy
import http
import time
from typing import Any, Final

from trellis.crds.kinds import APPLICATIONS, KINDS, make_definition
from trellis.kube.resources import (
    DEFINITIONS,
    HOST_CONFIGS,
    SECRET_GRANTS,
    SHIMS,
    WASM_CONTROLLERS,
    Resource,
)
from trellis_dev.localcluster.api import Api

Manifest = dict[str, Any]
PATIENCE: Final = 60.0
"""Seconds; a definition is accepted some time before its objects are."""
_OURS: Final = {kind.name: kind for kind in (*KINDS, APPLICATIONS)}
OURS: Final = (SHIMS, HOST_CONFIGS, SECRET_GRANTS, WASM_CONTROLLERS)


def ensure_served(api: Api, *resources: Resource) -> None:
    """Have kinds of Trellis served.

    The definition of one that is served is not sent again: the API server compiles its rules before it refuses it.
    """
    for resource in resources:
        served = f"{resource.path()}?limit=1"
        if api.ok(served):
            continue
        status, answer = api.call("POST", DEFINITIONS.path(), make_definition(_OURS[resource.definition]))
        assert status in {http.HTTPStatus.CREATED, http.HTTPStatus.CONFLICT}, answer
        deadline = time.monotonic() + PATIENCE
        while not api.ok(served):
            assert time.monotonic() < deadline, f"{resource.definition} is not served"
            time.sleep(0.05)


def foreign_applications(**names: Any) -> Manifest:
    """A definition of ``applications.core.oam.dev`` of an unknown owner; ``names`` go into ``spec.names``."""
    version = {
        "name": "v1beta1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": APPLICATIONS.name, "labels": {"made-by": "somebody"}},
        "spec": {
            "group": "core.oam.dev",
            "scope": "Namespaced",
            "names": {"plural": "applications", "singular": "application", "kind": "Application", **names},
            "versions": [version],
        },
    }


def kubevela_applications() -> Manifest:
    """Return the CRD of KubeVela with its distinctive parts: its short names, and a workflow in ``spec``."""
    made = copy.deepcopy(foreign_applications(shortNames=["app", "velaapp"], categories=["oam"]))
    made["metadata"] |= {"labels": {}, "annotations": {"controller-gen.kubebuilder.io/version": "v0.16.5"}}
    properties = {"spec": {"type": "object", "properties": {"workflow": {"type": "object"}}}}
    made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"] = properties
    return made
