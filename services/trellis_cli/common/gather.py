"""Reads the data of the tables from the cluster.

In: a connection and settings. Out: rows, leaders, the version of the server. Called by the commands; writes nothing.
Invariant: objects that cannot be read or do not exist yet give a note, never a wrong result.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

from trellis import names
from trellis.kube.client import Kube
from trellis.kube.resources import CONFIGMAPS, JOBS, NODES, SHIMS, Manifest, Resource
from trellis.provisioning.job_index import JobIndex
from trellis.provisioning.ledger import Ledger, read_ledger
from trellis.provisioning.nodes_and_jobs import view_job, view_node
from trellis.provisioning.shim_status import read_status
from trellis.provisioning.shims import view_shim
from trellis.provisioning.views import INSTALLER_JOBS
from trellis.read_model.reading.cluster import Reading
from trellis.read_model.tables.nodes import NodeRow, rows_of
from trellis.telemetry import setup, setup_logging
from trellis.telemetry.health import Health
from trellis_cli.common.settings import ClientSettings

COMMAND_LINE = "command_line"
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Rollout:
    """All nodes, Shims and the ledger; ``notes`` list objects that could not be read, so are missing in the rows."""

    rows: list[NodeRow]
    ledger: Ledger
    notes: tuple[str, ...] = ()
    shims: tuple[Manifest, ...] = ()


class _Version(Resource):
    """The ``/version`` of the server, as a resource."""

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        del namespace, name, subresource
        return "/version"


_VERSION = _Version("", "", "version", "version", namespaced=False)


@asynccontextmanager
async def connected(settings: ClientSettings) -> AsyncIterator[Kube]:
    """Yield a connection for one command; libraries do not log, the command reports errors.

    Raises:
        AccessError: the kubeconfig cannot be used.
    """
    setup_logging(log_format="text", level="error")
    telemetry = setup(COMMAND_LINE)
    kube = await Kube.connect(settings.access, telemetry=telemetry, health=Health(COMMAND_LINE))
    before = asyncio.all_tasks()
    try:
        yield kube
    except BaseException:
        # gather() keeps the other tasks running when one fails; at the end asyncio would log their errors too.
        left = asyncio.all_tasks() - before
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        raise
    finally:
        await kube.close()
        await telemetry.shutdown()


async def read_cluster(settings: ClientSettings, read: Callable[[Kube], Awaitable[Found]]) -> Found:
    """Return the result of one read, with a connection for it; raises as ``read`` and :func:`connected`."""
    async with connected(settings) as kube:
        return await read(kube)


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
    rows = rows_of(map(view_node, nodes.items), jobs.by_uid(), ledger, views, statuses)
    return Rollout(rows, ledger, shims=tuple(shims))


async def read_version(kube: Kube) -> str:
    """Return the version of the API server: ``v1.36.3``. Raise KubeError if it does not respond."""
    return str((await kube.get(_VERSION, "")).get("gitVersion") or "unknown")
