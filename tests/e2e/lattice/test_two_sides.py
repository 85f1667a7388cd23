"""Both sides end equal and as requested after changes with kubectl and wash during which servers are killed."""

from __future__ import annotations

import asyncio
import random
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self

import nats
import pytest

from support.lattices.host_behaviour import own_lattice
from support.lattices.host_world import HostWorld
from support.lattices.real_lattice import RealLattice, Wadm
from support.suite.service_process import running
from support.wadm.application_world import application_world
from support.wadm.two_real_sides import One, TwoRealSides
from support.wadm.wadm_stand_in import BUCKET
from trellis_dev import localcluster

pytestmark = pytest.mark.cluster
COUNT = 50


class Servers:
    """The servers that are killed: each returns when it runs again."""

    def __init__(self, hosts: HostWorld, lattice: RealLattice, log: Path) -> None:
        self._hosts = hosts
        self._lattice = lattice
        self._log = log
        self._stack = AsyncExitStack()
        self._manager: Process | None = None

    async def __aenter__(self) -> Self:
        """Start application_manager."""
        await self._start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _start(self) -> None:
        environment = self._hosts.fleet.environment()
        self._manager = await self._stack.enter_async_context(running(self._log, "application-manager", **environment))

    async def manager(self) -> None:
        """Kill application_manager."""
        assert self._manager is not None
        assert self._manager.returncode is None, self._log.read_text()[-4000:]
        self._manager.kill()
        await self._manager.wait()
        await self._start()

    async def wadm(self) -> None:
        """Kill wadm."""
        await asyncio.to_thread(self._lattice.kill_wadm)
        await asyncio.to_thread(self._lattice.start_wadm)

    async def nats(self) -> None:
        """Kill the lattice's NATS."""
        await asyncio.to_thread(self._lattice.nats.kill)
        await asyncio.to_thread(self._lattice.nats.start)

    async def api_server(self) -> None:
        """Restart the API server."""
        await asyncio.to_thread(localcluster.restart, self._hosts.fleet.info.name, "kube-apiserver")
        self._hosts.fleet.api.close()

    async def bucket(self) -> None:
        """Lose wadm's storage; a wadm that is started again makes another."""
        client = await nats.connect(self._lattice.url)
        await client.jetstream().delete_key_value(BUCKET)
        await client.close()
        await self.wadm()


Fault = Callable[[], Awaitable[None]]


@pytest.fixture
async def servers(hosts: HostWorld, real_lattice: RealLattice, tmp_path: Path) -> AsyncIterator[Servers]:
    async with Servers(hosts, real_lattice, tmp_path / "application-manager.log") as made:
        yield made


def planned(rng: random.Random, faults: list[Fault], tasks: asyncio.TaskGroup) -> Callable[[int, int], Awaitable[None]]:
    """Return what lets each fault happen at some moment while people act, one after the other."""
    left = rng.sample(faults, len(faults))
    at = sorted(rng.random() for _ in left)
    one_at_a_time = asyncio.Lock()

    async def happen(fault: Fault) -> None:
        async with one_at_a_time:
            await fault()

    async def done(count: int, of: int) -> None:
        while left and count / of >= at[0]:
            at.pop(0)
            tasks.create_task(happen(left.pop(0)))

    return done


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_both_sides_end_equal_and_as_people_asked(
    seed: int, hosts: HostWorld, real_lattice: RealLattice, servers: Servers
) -> None:
    rng, mixed = random.Random(seed), set[str]()

    def anybody(one: One) -> str:
        side = rng.choice(["", "kubectl", "wash", "both"])
        if side == "both":
            mixed.add(one.name)
        return side

    def last(one: One) -> str:
        # Changes by turns are a contest: then wadm's wait for ten minutes.
        return rng.choice(["", "kubectl"] if one.name in mixed else ["", "kubectl", "wash"])

    times: list[tuple[Callable[[One], str], list[Fault]]] = [
        (lambda _: rng.choice(["kubectl", "wash", "wash", "both"]), [servers.manager, servers.wadm]),
        (anybody, [servers.nats, servers.api_server, servers.manager]),
        (last, [servers.bucket, servers.manager]),
    ]
    with application_world(hosts, real_lattice.nats.port, own_lattice()) as apps:
        apps.group()
        apps.permit_deletions()
        async with Wadm.of(real_lattice.url, apps.lattice) as wadm:
            world = TwoRealSides(apps, wadm, rng, COUNT)
            for number, (sides, faults) in enumerate(times):
                world.plan(number, sides)
                world.loses_storage = lost = servers.bucket in faults
                async with asyncio.TaskGroup() as tasks:
                    await world.act(planned(rng, faults, tasks))
                found = await world.settled(f"time {number}")
                wrong = [
                    f"{item}: {found[item.name]}" for item in world.all if not item.allowed(found[item.name], lost=lost)
                ]
                assert not wrong, "\n".join(wrong)
                for item in world.all:
                    item.state = found[item.name]
