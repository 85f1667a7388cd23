"""The examples of docs/migration/wasmcloud-v2.md, for the tests that convert and run them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import yaml

PAGE: Final = (Path(__file__).parents[3] / "docs/migration/wasmcloud-v2.md").read_text()


def manifests(name: str) -> list[dict[str, Any]]:
    """Return the manifests of the block with a name after its language."""
    [found] = re.findall(rf"^```yaml {name}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    return list(yaml.safe_load_all(found))
