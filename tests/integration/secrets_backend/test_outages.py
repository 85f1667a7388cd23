"""A host gets an answer within its 10 s while servers behind secrets_backend do not answer."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from support.cluster.accounts import Account
from support.secrets import secrets_client
from support.secrets.secrets_conformance.cases import Case, Expected, granted, refused
from support.secrets.secrets_conformance.judging import judge
from support.secrets.secrets_conformance.world import Ask
from support.secrets.secrets_host import value
from support.secrets.secrets_server import Place, ServedBackend, running_backend
from support.secrets.secrets_world import SecretsWorld
from support.suite.tcp_proxy import TcpProxy, kubeconfig_through
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.nats import NatsServer

SECONDS = 60.0


@dataclass(frozen=True)
class Behind:
    """A backend, the way to its API server, and its bus."""

    backend: ServedBackend
    proxy: TcpProxy
    bus: NatsServer

    async def expect(self, expected: Expected) -> None:
        """Ask once, and get the expected answer."""
        verdict = await asyncio.to_thread(judge, self.backend.world, Case("asked", Ask(), expected))
        assert verdict.good, str(verdict)

    async def expect_in_time(self, expected: Expected) -> None:
        """Ask until the expected answer comes."""
        case, deadline = Case("asked", Ask(), expected), time.monotonic() + SECONDS
        while not (verdict := await asyncio.to_thread(judge, self.backend.world, case)).good:
            assert time.monotonic() < deadline, str(verdict)


@pytest.fixture
async def behind(cluster: ClusterInfo, tmp_path: Path) -> AsyncIterator[Behind]:
    if (reason := secrets_client.missing()) is not None:
        pytest.skip(f"NOT RUN: {reason}")
    name = f"secrets-{secrets.token_hex(4)}"
    async with contextlib.AsyncExitStack() as stack:
        server = yaml.safe_load(cluster.kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
        host, _, port = server.removeprefix("https://").rpartition(":")
        proxy = await stack.enter_async_context(TcpProxy(host, int(port)))
        kubeconfig = kubeconfig_through(proxy.port, cluster.kubeconfig, tmp_path)
        lattice, bus = (stack.enter_context(NatsServer(tmp_path / item)) for item in ("lattice", "bus"))
        info = cluster.model_copy(update={"kubeconfig": kubeconfig})
        place = Place(info, bus, f"{name}-home", tmp_path)
        serving = running_backend(place, lattice, lattice_name=name, own=(f"{name}-own",))
        # Not in this thread, which the proxy needs; and in one, because a connection to the API server is a thread's.
        thread = stack.enter_context(ThreadPoolExecutor(max_workers=1))
        backend = await asyncio.get_running_loop().run_in_executor(thread, serving.__enter__)
        try:
            yield Behind(backend, proxy, bus)
        finally:
            proxy.resume()
            await asyncio.get_running_loop().run_in_executor(thread, serving.__exit__, None, None, None)


@pytest.mark.thorough
async def test_an_unresponsive_api_server_is_reported_as_upstream_error(behind: Behind) -> None:
    await behind.expect(granted())
    behind.proxy.silence()
    await behind.expect(refused("UpstreamError"))
    behind.proxy.resume()
    await behind.expect_in_time(granted())


async def test_hosts_get_the_key_while_the_api_server_is_unresponsive(behind: Behind) -> None:
    world = behind.backend.world
    behind.proxy.silence()
    for _ in range(3):
        answer = await asyncio.to_thread(world.client.request, world.subject("server_xkey"), b"", seconds=8.0)
        assert answer.data.decode() == world.server_xkey
    behind.proxy.resume()


async def test_an_api_server_that_refuses_is_an_upstream_error(behind: Behind) -> None:
    await behind.expect(granted())
    await behind.proxy.refuse()
    await behind.expect(refused("UpstreamError"))
    await behind.proxy.open()
    await behind.expect_in_time(granted())


@pytest.mark.thorough
async def test_a_revoked_token_of_trellis_is_reported_and_the_next_one_applies_at_once(
    secret_world: SecretsWorld, cluster: ClusterInfo, tmp_path: Path
) -> None:
    world = secret_world
    world.ready_to_ask()
    account = Account(cluster, world.api, world.namespace, tmp_path)
    try:
        async with world.backend(kubeconfig=account.kubeconfig), world.asking() as host:

            async def answer() -> str:
                return str(value(await host.get("db", "password", namespace=world.namespace)))

            async def until(expected_text: str) -> None:
                async with asyncio.timeout(SECONDS):
                    while expected_text not in await answer():
                        pass

            await until("hunter2")
            account.revoke()
            await until("does not accept the token of secrets_backend")  # the server remembers a good one for 10 s
            account.issue()
            assert await answer() == "hunter2"
    finally:
        account.remove()


@pytest.mark.thorough
async def test_secrets_are_served_while_events_cannot_be_published(behind: Behind) -> None:
    await behind.expect(granted())
    await asyncio.to_thread(behind.bus.kill)
    for _ in range(20):
        await behind.expect(granted())
        await behind.expect(granted())
    await asyncio.to_thread(behind.bus.start)
    await behind.expect(granted())
