"""deploy/examples: its folders, and what is in them, read as kustomize reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

EXAMPLES = Path(__file__).parents[2] / "deploy" / "examples"
Manifest = dict[str, Any]


def folders() -> list[str]:
    """Return the names of the examples."""
    return sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir())


def kustomization(name: str) -> Manifest:
    """Return what an example is made of; one without a kustomization is all of its files."""
    path = EXAMPLES / name / "kustomization.yaml"
    if path.exists():
        found: Manifest = yaml.safe_load(path.read_text())
        return found
    return {"resources": sorted(file.name for file in path.parent.glob("*.yaml"))}


def manifests(name: str) -> list[Manifest]:
    """Return the objects of an example that stand in its files."""
    return [
        document
        for file in kustomization(name)["resources"]
        for document in yaml.safe_load_all((EXAMPLES / name / file).read_text())
    ]


def manifest(name: str, kind: str) -> Manifest:
    """Return the one object of a kind in an example."""
    [found] = [one for one in manifests(name) if one["kind"] == kind]
    return found
