"""Connects a command to the API server.

In: settings. Out: a connection, the result of a read, the version of the server. Called by the commands; writes
nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from trellis.kube.client import Kube
from trellis.kube.resources import Resource
from trellis.telemetry import setup, setup_logging
from trellis.telemetry.health import Health
from trellis_cli.common.settings import ClientSettings

COMMAND_LINE = "command_line"
Found = TypeVar("Found")


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


async def read_version(kube: Kube) -> str:
    """Return the version of the API server: ``v1.36.3``. Raise KubeError if it does not respond."""
    return str((await kube.get(_VERSION, "")).get("gitVersion") or "unknown")
