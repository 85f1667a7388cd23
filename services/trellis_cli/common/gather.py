"""Reads from the cluster what the tables show.

In: a connection and settings. Out: rows, leaders, the server's version. Called by the commands; writes nothing.
Invariant: what may not be read, or is not there yet, leaves a note and not a hole that looks like an answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from trellis import names
from trellis.kube.client import Kube
from trellis.kube.errors import Forbidden, NotFound
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
from trellis_cli.common.errors import describe_error
from trellis_cli.common.settings import ClientSettings

COMMAND_LINE = "command_line"


@dataclass(frozen=True, slots=True)
class Rollout:
    """All nodes, Shims and the ledger; ``notes`` say what could not be read and so is missing in the rows."""

    rows: list[NodeRow]
    ledger: Ledger
    notes: tuple[str, ...] = ()
    shims: tuple[Manifest, ...] = ()


class _Version(Resource):
    """The server's ``/version``, read as if it were an object."""

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        del namespace, name, subresource
        return "/version"


_VERSION = _Version("", "", "version", "version", namespaced=False)


@asynccontextmanager
async def connected(settings: ClientSettings) -> AsyncIterator[Kube]:
    """Return a connection for one command; libraries stay silent, errors are the command's to tell.

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
        # gather() leaves the others running when one fails; at the loop's end asyncio would log their errors, too.
        left = asyncio.all_tasks() - before
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        raise
    finally:
        await kube.close()
        await telemetry.shutdown()


async def read_rollout(kube: Kube, settings: ClientSettings) -> Rollout:
    """Return where every node stands.

    Jobs, Shims or a ledger that this account may not read leave a note; a ledger that is not there yet is an empty one.

    Raises:
        KubeError: the nodes cannot be read, or the server is unreachable.
    """
    nodes = await kube.list(NODES)
    notes = []
    jobs = JobIndex()
    try:
        found = await kube.list(JOBS, settings.installer_namespace, label_selector=INSTALLER_JOBS)
        for manifest in found.items:
            jobs.change(None, view_job(manifest))
    except Forbidden as error:
        notes.append(f"nodes in progress may be shown as waiting: {describe_error(error)}")
    ledger = Ledger({})
    try:
        ledger = read_ledger(await kube.get(CONFIGMAPS, names.LEDGER, settings.namespace))
    except NotFound:
        pass  # no rollout has begun
    except Forbidden as error:
        notes.append(f"halts of the rollout unknown: {describe_error(error)}")
    reading = Reading(kube, settings.namespace)
    shims = await reading.list(SHIMS)
    notes += [line.text for line in reading.notes]
    views = [*map(view_shim, shims)]
    statuses = {view.name: read_status(one) for view, one in zip(views, shims, strict=True)}
    rows = rows_of(map(view_node, nodes.items), jobs.by_uid(), ledger, views, statuses)
    return Rollout(rows, ledger, tuple(notes), tuple(shims))


async def read_version(kube: Kube) -> str:
    """Return the API server's version: ``v1.36.3``; raises KubeError if it does not answer."""
    return str((await kube.get(_VERSION, "")).get("gitVersion") or "unknown")
