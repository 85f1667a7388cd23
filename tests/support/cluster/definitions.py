"""Definitions of kinds as others make them, in the smallest form that has their marks; used by tests of ``crds``."""

from __future__ import annotations

import copy
from typing import Any

from trellis.crds.kinds import APPLICATIONS

Manifest = dict[str, Any]


def foreign_applications(**names: Any) -> Manifest:
    """A definition of ``applications.core.oam.dev`` by nobody known; ``names`` go into ``spec.names``."""
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
    """What tells KubeVela's: its short names, and a workflow in ``spec``."""
    made = copy.deepcopy(foreign_applications(shortNames=["app", "velaapp"], categories=["oam"]))
    made["metadata"] |= {"labels": {}, "annotations": {"controller-gen.kubebuilder.io/version": "v0.16.5"}}
    properties = {"spec": {"type": "object", "properties": {"workflow": {"type": "object"}}}}
    made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"] = properties
    return made
