"""A replica that is asked to stop, while its API server is slow, answers all requests that it received."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

import pytest
import yaml

from support.nodes.fleet import eventually
from support.secrets.secrets_host import Host, value
from support.secrets.secrets_world import QUICK, SecretsWorld
from support.suite.tcp_proxy import TcpProxy, kubeconfig_through
from trellis.runtime.run import Service
from trellis_dev.localcluster import ClusterInfo

pytestmark = pytest.mark.cluster

AT_ONCE = 64
SOME = 8


@dataclass
class Slow:
    """A replica behind a proxy, beside one that is not; ``answer``: seconds that it may take to answer."""

    world: SecretsWorld
    host: Host
    proxy: TcpProxy
    replica: Service
    replicas: contextlib.AsyncExitStack
    answer: float

    async def get(self) -> str:
        """Ask once, and wait as much longer than the replica may take as hosts do."""
        seconds = self.answer + 2
        found = value(await self.host.get("db", "password", seconds=seconds, namespace=self.world.namespace))
        return str(*found) if isinstance(found, dict) else str(found)

    async def busy(self) -> asyncio.Future[list[str]]:
        """Ask for many at once, and return once the replica has some of them, which it cannot answer yet."""
        self.proxy.silence()
        requested = asyncio.gather(*(self.get() for _ in range(AT_ONCE)))
        await eventually(lambda: self.measure("in_progress") >= SOME, "it is asked")
        return requested

    def measure(self, name: str, **labels: str) -> float:
        """Return a gauge of the replica, which registered after the other one of this process."""
        registry = self.replica.telemetry.metrics.registry
        return registry.get_sample_value(f"trellis_secrets_{name}", {"service": "secrets_backend", **labels}) or 0.0

    def serves(self) -> bool:
        """Say whether the replica takes questions."""
        return self.measure("connections", state="serving") == 1


@pytest.fixture
def api_address(cluster: ClusterInfo) -> SplitResult:
    return urlsplit(yaml.safe_load(Path(cluster.kubeconfig).read_text())["clusters"][0]["cluster"]["server"])


@pytest.fixture
async def slow(
    secret_world: SecretsWorld,
    cluster: ClusterInfo,
    api_address: SplitResult,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> AsyncIterator[Slow]:
    """With the seconds of production, unless a test gives others."""
    timings = replace(QUICK, answer=getattr(request, "param", QUICK.answer))
    secret_world.ready_to_ask()
    async with (
        secret_world.backend(),
        secret_world.asking() as host,
        TcpProxy(str(api_address.hostname), int(api_address.port or 443)) as proxy,
        contextlib.AsyncExitStack() as replicas,
    ):
        through = kubeconfig_through(proxy.port, Path(cluster.kubeconfig), tmp_path)
        replica = await replicas.enter_async_context(secret_world.backend(timings, kubeconfig=through))
        made = Slow(secret_world, host, proxy, replica, replicas, timings.answer)
        await eventually(lambda: replica.health.readiness().ok and made.serves(), "both replicas serve")
        yield made


@pytest.mark.parametrize("slow", [60.0], indirect=True, ids=["there is time"])
async def test_a_stopping_service_answers_accepted_requests_once_its_api_server_does(slow: Slow) -> None:
    requested = await slow.busy()
    stopping = asyncio.create_task(slow.replicas.aclose())
    await eventually(lambda: not slow.serves(), "it takes no more")
    slow.proxy.resume()
    assert Counter(await requested) == {"hunter2": AT_ONCE}
    await stopping


@pytest.mark.thorough
async def test_a_stopping_service_reports_an_unresponsive_api_server(slow: Slow) -> None:
    requested = await slow.busy()
    await slow.replicas.aclose()
    found = Counter(await requested)
    assert set(found) == {"hunter2", "UpstreamError"}
    assert found["UpstreamError"] >= SOME
