"""Connections to the real cluster of tests/support/cluster/servers.py, direct and through a network that can fail."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import pytest

from support.suite.tcp_proxy import TcpProxy, kubeconfig_through
from trellis.kube.access import Access
from trellis.kube.client import Kube
from trellis.kube.errors import NotFound
from trellis.kube.resources import NAMESPACES
from trellis.kube.timings import KubeTimings
from trellis.telemetry import setup
from trellis.telemetry.health import Health
from trellis_dev.localcluster import ClusterInfo

PRODUCTION = KubeTimings()


class Connect(Protocol):
    """Makes a connection by a kubeconfig, with a health of its own; it is closed after the test."""

    def __call__(self, kubeconfig: Path, timings: KubeTimings = PRODUCTION) -> Awaitable[Kube]: ...


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Makes connections by kubeconfig, each with a health of its own; closed after the test."""
    async with AsyncExitStack() as stack:

        async def open_one(kubeconfig: Path, timings: KubeTimings = PRODUCTION) -> Kube:
            name = f"test_{secrets.token_hex(4)}"
            kube = await Kube.connect(Access(kubeconfig), telemetry=setup(name), health=Health(name), timings=timings)
            stack.push_async_callback(kube.close)
            return kube

        yield open_one


@pytest.fixture
async def kube(cluster: ClusterInfo, connect: Connect) -> Kube:
    """A direct connection."""
    connection = await connect(Path(cluster.kubeconfig))
    await connection.wait_available()
    return connection


@pytest.fixture
async def namespace(kube: Kube) -> AsyncIterator[str]:
    """A namespace for one test."""
    name = f"test-{secrets.token_hex(4)}"
    made = await kube.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield name
    await kube.delete(NAMESPACES, name, uid=made["metadata"]["uid"])


@pytest.fixture
async def later_namespace(kube: Kube, namespace: str) -> AsyncIterator[str]:
    """The name of a second namespace, that the test makes."""
    name = f"{namespace}-later"
    yield name
    with suppress(NotFound):
        await kube.delete(NAMESPACES, name, uid=(await kube.get(NAMESPACES, name))["metadata"]["uid"])


@pytest.fixture
async def proxy(kube: Kube) -> AsyncIterator[TcpProxy]:
    """A TCP connection to the API server that can be cut or silenced."""
    server = urlsplit(kube.server)
    async with TcpProxy(str(server.hostname), int(server.port or 443)) as running:
        yield running


@pytest.fixture
def proxied_kubeconfig(cluster: ClusterInfo, proxy: TcpProxy, tmp_path: Path) -> Path:
    """The cluster's kubeconfig with the proxy's address."""
    return kubeconfig_through(proxy.port, Path(cluster.kubeconfig), tmp_path)


@pytest.fixture
async def proxied(proxied_kubeconfig: Path, connect: Connect, timings: KubeTimings) -> Kube:
    """A connection through the proxy."""
    return await connect(proxied_kubeconfig, timings)


@pytest.fixture
def timings() -> KubeTimings:
    """Of the connection through the proxy: those of production, unless a file has others."""
    return PRODUCTION
