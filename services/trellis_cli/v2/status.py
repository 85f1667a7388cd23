"""Reads the row of ``trellis status`` for wasmCloud v2.

In: a connection. Out: a row, None if the cluster has no wasmCloud v2. Called by ``status``. Writes nothing. Invariant:
only the answer of the API server that it has no such group shows that there is none.
"""

from __future__ import annotations

from trellis.kube.client import Kube
from trellis.kube.discovery import served_versions
from trellis.kube.errors import Forbidden
from trellis.kube.resources import WORKLOAD_DEPLOYMENTS
from trellis.read_model.reading.cluster import Reading
from trellis.read_model.reading.v2_snapshot import read_snapshot
from trellis_cli.status.row import Part
from trellis_cli.v2.row import PART, UNKNOWN, v2_part


async def read_v2(kube: Kube, namespace: str) -> Part | None:
    """Return the row; ``namespace``: of the installation.

    Raises:
        KubeError: an object could not be read.
    """
    group, version = WORKLOAD_DEPLOYMENTS.group, WORKLOAD_DEPLOYMENTS.version
    try:
        versions = await served_versions(kube, group)
    except Forbidden as error:
        return Part(PART, "unknown", data=dict(UNKNOWN), unread=f"{group}: {error}")
    if not versions:
        return None
    if version not in versions:
        problem = f"{group} is served as {', '.join(versions)}; this version of Trellis reads {version}"
        return Part(PART, "unknown", data=dict(UNKNOWN), unread=problem)
    return v2_part(await read_snapshot(Reading(kube, namespace), None))
