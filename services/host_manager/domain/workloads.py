"""Views of the workloads of host groups in their informers.

Pure: raw objects in, small views out. Called by the informers of ``watches``.
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
    """A Deployment or DaemonSet of a host group. ``content``: digest of the manifest; ``counts``: of its status.

    ``seen``: its controller has observed the newest manifest.
    """

    content: str
    counts: str
    seen: bool


def view_workload(manifest: Mapping[str, Any]) -> WorkloadView:
    """Return the view of a workload; its name is that of its host group."""
    status = {name: value for name, value in (manifest.get("status") or {}).items() if name in _COUNTS}
    seen = int(status.get("observedGeneration") or 0) >= int(manifest["metadata"].get("generation") or 0)
    return WorkloadView(fingerprint(manifest), names.short_hash(orjson.dumps(status).decode()), seen)
