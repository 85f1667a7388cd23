"""The examples of docs/migration/wasmcloud-v2.md, for the tests that convert and run them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

import yaml

PAGE: Final = (Path(__file__).parents[3] / "docs/migration/wasmcloud-v2.md").read_text()


def manifests(name: str) -> list[dict[str, Any]]:
    """Return the manifests of the block with a name after its language."""
    [found] = re.findall(rf"^```yaml {name}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    return list(yaml.safe_load_all(found))


def role() -> dict[str, Any]:
    """Return the Role of a user of the command."""
    [found] = manifests("rbac")
    return found


def nats_permissions() -> dict[str, list[str]]:
    """Return the permissions of a NATS user for ``--from-wadm``, in the lattice ``default``."""
    [found] = re.findall(r"^```json nats\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    return dict(json.loads(found))
