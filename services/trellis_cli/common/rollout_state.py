"""Reads the state of all nodes and of the rollout from the cluster.

In: a connection. Out: rows, the ledger, Shims. Called by commands with tables of nodes; writes nothing. Invariant:
objects that cannot be read or do not exist yet give a note, never a wrong result.
"""

from __future__ import annotations

from dataclasses import dataclass

from trellis import names
from trellis.kube.resources import CONFIGMAPS, JOBS, NODES, SHIMS, Manifest
from trellis.provisioning.job_index import JobIndex
from trellis.provisioning.ledger import Ledger, read_ledger
from trellis.provisioning.nodes_and_jobs import view_job, view_node
from trellis.provisioning.shim_status import read_status
from trellis.provisioning.shims import view_shim
from trellis.provisioning.views import INSTALLER_JOBS
from trellis.read_model.reading.cluster import Reading
from trellis.read_model.tables.nodes import NodeRow, rows_of


@dataclass(frozen=True, slots=True)
class Rollout:
    """All nodes, Shims and the ledger; ``notes`` list objects that could not be read, so are missing in the rows."""

    rows: list[NodeRow]
    ledger: Ledger
    notes: tuple[str, ...] = ()
    shims: tuple[Manifest, ...] = ()


async def read_rollout(reading: Reading, installers: str) -> Rollout:
    """Return the state of every node; ``installers``: namespace of the installer Jobs.

    Jobs, Shims or a ledger that this account may not read give a note; a missing ledger counts as empty: no rollout has
    started.

    Raises:
        KubeError: the nodes cannot be read, or the server is unreachable.
    """
    nodes = await reading.kube.list(NODES)
    jobs = JobIndex()
    for manifest in await reading.list(JOBS, installers, labels=INSTALLER_JOBS):
        jobs.change(None, view_job(manifest))
    found = await reading.get(CONFIGMAPS, names.LEDGER, reading.namespace)
    ledger = Ledger({}) if found is None else read_ledger(found)
    shims = await reading.list(SHIMS)
    views = [*map(view_shim, shims)]
    statuses = {view.name: read_status(item) for view, item in zip(views, shims, strict=True)}
    known = views if reading.knows(SHIMS) else None
    read = ledger if reading.knows(CONFIGMAPS) else None
    rows = rows_of(map(view_node, nodes.items), jobs.by_uid(), read, known, statuses)
    return Rollout(rows, ledger, shims=tuple(shims))
