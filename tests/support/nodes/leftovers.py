"""Objects as KWasm and runtime-class-manager leave them; the names in capitals are put in by the test."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

Manifest = dict[str, Any]

_DATA = Path(__file__).parents[2] / "data" / "migrate"


def leftover(peer: str, what: str, **names: str) -> Manifest:
    """Return one object of ``kwasm`` or ``rcm``: ``leftover("rcm", "shim", shim="spin")``."""
    text = json.dumps(json.loads((_DATA / f"{peer}.json").read_text(encoding="utf-8"))[what])
    for name, value in sorted(names.items(), key=lambda item: -len(item[0])):
        text = re.sub(rf"\b{name.upper().replace('_', '-')}\b", value, text)
    manifest: Manifest = json.loads(text)
    return manifest


def as_new(manifest: Manifest) -> Manifest:
    """Return the object without what only the API server writes, to be created."""
    metadata = {
        key: value
        for key, value in manifest["metadata"].items()
        if key not in {"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"}
    }
    return {**{key: value for key, value in manifest.items() if key != "status"}, "metadata": metadata}
