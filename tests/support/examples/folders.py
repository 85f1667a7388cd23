"""deploy/examples: its folders, and what is in them, read as kustomize reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

EXAMPLES = Path(__file__).parents[3] / "deploy" / "examples"
Manifest = dict[str, Any]


def folders() -> list[str]:
    """Return the names of the examples."""
    return sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir())


def kustomization(name: str) -> Manifest:
    """Return what an example is made of."""
    found: Manifest = yaml.safe_load((EXAMPLES / name / "kustomization.yaml").read_text())
    return found


def files(name: str) -> list[str]:
    """Return the files of an example; it may stand on another example, whose files they are not."""
    return [resource for resource in kustomization(name)["resources"] if resource.endswith(".yaml")]


def manifests(name: str) -> list[Manifest]:
    """Return the objects of an example that stand in its files."""
    return [document for file in files(name) for document in yaml.safe_load_all((EXAMPLES / name / file).read_text())]


def manifest(name: str, kind: str) -> Manifest:
    """Return the one object of a kind in an example."""
    [found] = [item for item in manifests(name) if item["kind"] == kind]
    return found
