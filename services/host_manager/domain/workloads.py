"""What runs the pods of groups, as its watch keeps it.

Pure: raw objects in, small views out. Called by the informers that ``watches`` makes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from host_manager.domain.children import fingerprint
from trellis import names

_COUNTS: Final = frozenset(
    {
        "observedGeneration",
        "replicas",
        "readyReplicas",
        "updatedReplicas",
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "conditions",
    }
)


@dataclass(frozen=True, slots=True)
class WorkloadView:
    """A Deployment or DaemonSet of a group. ``content``: of what somebody wrote; ``counts``: of its status.

    ``seen``: its controller has seen the newest of what was written.
    """

    content: str
    counts: str
    seen: bool


def view_workload(manifest: Mapping[str, Any]) -> WorkloadView:
    """Project what runs pods; its name is its group's."""
    status = {name: value for name, value in (manifest.get("status") or {}).items() if name in _COUNTS}
    seen = int(status.get("observedGeneration") or 0) >= int(manifest["metadata"].get("generation") or 0)
    return WorkloadView(fingerprint(manifest), names.short_hash(orjson.dumps(status).decode()), seen)
