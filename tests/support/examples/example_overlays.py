"""An example with another address or hour, by a kustomization over it: what is changed is said, and nothing else is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import yaml

from support.examples.folders import EXAMPLES

Manifest = dict[str, Any]


def overlay(folder: Path, example: str, *patches: Manifest) -> Path:
    """Return a kustomization over an example; ``folder`` is not there yet."""
    folder.mkdir(parents=True)
    over = {"resources": [os.path.relpath(EXAMPLES / example, folder.resolve())], "patches": list(patches)}
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(over))
    return folder


def replaced(kind: str, **values: object) -> Manifest:
    """Return a patch of a kind: path, with _ for each slash, → value."""
    changes = [{"op": "replace", "path": path.replace("_", "/"), "value": value} for path, value in values.items()]
    return {"target": {"kind": kind}, "patch": yaml.safe_dump(changes)}
