"""The stub of a wasmCloud host: it does what the real one does, and what only a stub can."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from support.lattices import stub_host as program
from support.lattices.host_behaviour import SECONDS, HostBehaviour, Lattice, NewHost, Running, own_lattice
from support.lattices.stub_host import Options, StubHost, human, new_id, stub_host
from trellis_dev.localcluster.nats import NatsServer

pytestmark = pytest.mark.nats


@pytest.fixture
def url(nats_server: NatsServer) -> str:
    return nats_server.url


@pytest.fixture
def lattice() -> str:
    return own_lattice()


class TestStubHost(HostBehaviour):
    @pytest.fixture
    async def new_host(self, url: str, lattice: str) -> AsyncIterator[NewHost]:
        async with AsyncExitStack() as stack:

            async def start(labels: Mapping[str, str], heartbeat: float) -> Running:
                options = Options(lattice=lattice, labels=labels, heartbeat=heartbeat, url=url)
                host = await stack.enter_async_context(stub_host(options))

                async def ended() -> None:
                    async with asyncio.timeout(SECONDS):
                        await host.stopped.wait()

                async def kill() -> None:
                    await host.vanish()

                return Running(host.id, host.__aexit__, kill, ended)

            yield start


@pytest.mark.thorough
class TestStubHostAsAProgram(HostBehaviour):
    """Started as a pod's container is: by environment variables."""

    @pytest.fixture
    async def new_host(self, nats_server: NatsServer, lattice: str) -> AsyncIterator[NewHost]:
        processes: list[asyncio.subprocess.Process] = []

        async def start(labels: Mapping[str, str], heartbeat: float) -> Running:
            variables = {f"WASMCLOUD_LABEL_{key}": value for key, value in labels.items()}
            variables |= {"WASMCLOUD_LATTICE": lattice, "WASMCLOUD_NATS_HOST": "127.0.0.1"}
            variables["WASMCLOUD_NATS_PORT"] = str(nats_server.port)
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, str(Path(program.__file__)), "--log-level", "INFO", f"--heartbeat={heartbeat}"),
                env={"PATH": os.environ["PATH"], **variables},
                stdout=asyncio.subprocess.PIPE,
            )
            processes.append(process)
            assert process.stdout is not None
            printed = (await asyncio.wait_for(process.stdout.readline(), SECONDS)).decode().split()

            async def send(number: int) -> None:
                process.send_signal(number)

            async def ended() -> None:
                assert await asyncio.wait_for(process.wait(), SECONDS) in {0, -signal.SIGKILL}

            return Running(printed[2], lambda: send(signal.SIGTERM), lambda: send(signal.SIGKILL), ended)

        yield start
        for process in processes:
            if process.returncode is None:
                process.kill()
                await process.wait()


async def test_many_hosts_share_a_connection_and_one_can_stop_its_heartbeat(url: str, lattice: str) -> None:
    async with Lattice.of(url, lattice) as watched, AsyncExitStack() as stack:
        first = await stack.enter_async_context(stub_host(Options(lattice=lattice, url=url)))
        others = [await stack.enter_async_context(StubHost(first._client, Options(lattice=lattice))) for _ in range(20)]
        assert len({reply["response"]["id"] for reply in await watched.pings(21)}) == 21
        others[0].components.append({"id": "app-http", "image_ref": "example.invalid/http:1"})
        await others[0].silence()
        inventory = (await watched.request(f"host.get.{others[0].id}"))["response"]
        assert inventory["components"] == [{"id": "app-http", "image_ref": "example.invalid/http:1"}]
        await others[0].beat()
        assert (await watched.event("host_heartbeat", others[0].id))["data"]["components"] == inventory["components"]


def test_uptimes_read_as_those_of_hosts() -> None:
    texts = [human(seconds) for seconds in (0, 59, 91, 3600, 86_400, 2 * 86_400 + 3 * 3600 + 61)]
    assert texts == ["0s", "59s", "1m 31s", "1h", "1day", "2days 3h 1m 1s"]


def test_ids_are_of_servers_and_differ() -> None:
    ids = {new_id() for _ in range(100)}
    assert len(ids) == 100
    assert {(len(each), each[0]) for each in ids} == {(56, "N")}
