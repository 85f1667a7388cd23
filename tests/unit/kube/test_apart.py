"""Requests of tenants use no connection of the service's own, and each namespace has its share."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from trellis.kube.access import CONNECTIONS, Access
from trellis.kube.client import Kube
from trellis.kube.errors import NotFound, Unavailable
from trellis.kube.resources import CONFIGMAPS, LEASES, NAMESPACES
from trellis.kube.timings import KubeTimings
from trellis.telemetry import setup
from trellis.telemetry.health import Health
from trellis.telemetry.metrics import Metrics
from trellis_dev.fakes.fake import FakeKube

PRODUCTION = KubeTimings()
PRODUCTION = KubeTimings()
KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: c
contexts: [{{name: c, context: {{cluster: k, user: u}}}}]
clusters: [{{name: k, cluster: {{server: "{server}"}}}}]
users: [{{name: u, user: {{token: s3cret}}}}]
"""


class Server:
    """An API server that answers requests for ``slow`` when it is released."""

    def __init__(self) -> None:
        self.hanging: Counter[str] = Counter()
        self.let = asyncio.Event()

    async def answer(self, request: web.Request) -> web.Response:
        user = request.headers.get("Impersonate-User", "")
        if request.path.endswith("/slow"):
            self.hanging[user] += 1
            await self.let.wait()
        return web.json_response({"metadata": {"name": "x"}})

    async def until_hanging(self, count: int) -> None:
        async with asyncio.timeout(10):
            while self.hanging.total() < count:  # noqa: ASYNC110 - of another side
                await asyncio.sleep(0.005)


@asynccontextmanager
async def connected(tmp_path: Path, timings: KubeTimings = PRODUCTION) -> AsyncIterator[tuple[Server, Kube]]:
    server, application = Server(), web.Application()
    application.router.add_get("/{path:.*}", server.answer)
    async with TestServer(application) as running:
        path = tmp_path / "kubeconfig"
        path.write_text(KUBECONFIG.format(server=str(running.make_url("")).rstrip("/")))
        telemetry = setup("test", metrics=Metrics())
        kube = await Kube.connect(Access(path), telemetry=telemetry, health=Health("test"), timings=timings)
        try:
            yield server, kube
        finally:
            server.let.set()
            await kube.close()


def account(namespace: str) -> str:
    return f"system:serviceaccount:{namespace}:a"


async def test_slow_requests_of_tenants_leave_the_lease_its_connections(tmp_path: Path) -> None:
    async with connected(tmp_path) as (server, kube):
        tenants = kube.apart(CONNECTIONS, CONNECTIONS)
        slow = [
            asyncio.create_task(tenants.acting_as(account("team")).get(CONFIGMAPS, "slow", "team"))
            for _ in range(CONNECTIONS + 10)
        ]
        await server.until_hanging(CONNECTIONS)
        assert (await kube.get(LEASES, "lead", "trellis", timeout=3.0))["metadata"]["name"] == "x"
        server.let.set()
        await asyncio.gather(*slow)
        await tenants.close()


async def test_one_namespace_has_its_share_and_the_next_is_answered(tmp_path: Path) -> None:
    async with connected(tmp_path, KubeTimings(share=0.1)) as (server, kube):
        tenants = kube.apart(8, 2)
        slow = [asyncio.create_task(tenants.acting_as(account("a")).get(CONFIGMAPS, "slow", "a")) for _ in range(2)]
        await server.until_hanging(2)
        with pytest.raises(Unavailable, match=r"namespace a\b.*\b2\b"):
            await tenants.acting_as("system:serviceaccount:a:other").get(CONFIGMAPS, "quick", "a", timeout=3.0)
        assert server.hanging.total() == 2
        assert await tenants.acting_as(account("b")).get(CONFIGMAPS, "quick", "b", timeout=3.0)
        server.let.set()
        await asyncio.gather(*slow)
        await tenants.close()


async def test_unanswered_tenants_do_not_indicate_an_unavailable_api_server(tmp_path: Path) -> None:
    async with connected(tmp_path) as (server, kube):
        await kube.get(LEASES, "lead", "trellis")
        await asyncio.sleep(0.01)
        await kube.get(LEASES, "lead", "trellis")
        answering, tenants = kube.answering_for(), kube.apart(4, 4)
        assert answering > 0
        with pytest.raises(Unavailable):
            await tenants.acting_as(account("a")).get(CONFIGMAPS, "slow", "a", timeout=0.05)
        assert kube.answering_for() >= answering
        assert tenants.answering_for() == 0
        server.let.set()
        await tenants.close()


async def test_the_limit_stays_and_so_does_the_impersonated_user() -> None:
    kube = FakeKube()
    kube.put(NAMESPACES, {"metadata": {"name": "team"}})
    tenants = kube.apart(4, 2).acting_as(account("team"))
    with pytest.raises(NotFound):
        await tenants.get(CONFIGMAPS, "x", "team")
    assert kube.api.requests[-1].headers["Impersonate-User"] == account("team")
