"""Everything of one run: the bus, two replicas behind proxies, nodes with kubelets, users, and faults.

In: a control plane, a schedule, a directory. Out: the run itself, step by step; messages about errors. Called by
``run``. Invariant: when a run ends, however it does, nothing of it is left in the control plane.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from chaos import controller_work, fault_plan, lattice_work, node_work, secret_work
from chaos.bus_faults import BusFaults
from chaos.bus_servers import BusServers
from chaos.controller_side import ControllerSide
from chaos.fault_injection import Faults
from chaos.fault_plan import REPLICAS, Fault
from chaos.kubelets import Kubelets
from chaos.lattice_side import LatticeSide
from chaos.model import Expected
from chaos.node_side import NodeSide
from chaos.replicas import Replica
from chaos.retrying_requests import RetryingRequests
from chaos.secret_side import SecretSide
from chaos.sides import Side
from chaos.steps import Schedule, Step
from chaos.waiting import Patience, done_within
from support.nodes.fleet import Fleet
from support.suite import planted
from support.suite.forkserver import Forkserver
from support.suite.tcp_proxy import TcpProxy
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.api import Api

_LATE_SECONDS: Final = 150.0
"""How long after its time a step may be: people wait for servers and for what they deleted."""
_READY_SECONDS: Final = 300.0
"""Both start at once, and a machine may have other work."""
_SETTINGS: Final = {"max_unavailable": "3", "sources_interval": "2", "log_level": "info"}


@dataclass
class World:
    """``log``: writes a line of the progress."""

    schedule: Schedule
    fleet: Fleet
    requests: RetryingRequests
    bus: BusServers
    replicas: dict[str, Replica]
    sides: dict[str, Side]
    kubelets: Kubelets
    faults: Faults
    log: Callable[[str], None]
    directory: Path
    offset: int
    """Where the API server's history of this run begins."""
    began: float = field(default_factory=time.monotonic)

    async def carry_out(self) -> None:
        """Carry out the schedule; return when all steps are done and all faults are over."""
        self.began = time.monotonic()
        chains: dict[tuple[str, str], asyncio.Task[None]] = {}
        tasks = []
        for step in self.schedule.steps:
            await asyncio.sleep(max(0.0, self.began + step.at - time.monotonic()))
            key = (step.part, step.on) if step.part != fault_plan.PART else (str(id(step)), "")
            chains[key] = asyncio.create_task(self._after(chains.get(key), step, self._act(step)))
            tasks.append(chains[key])
        patience = Patience(self.processes)
        await done_within(self.schedule.seconds + _LATE_SECONDS, patience, _all(tasks), "what is to be done")

    async def _after(self, former: asyncio.Task[None] | None, step: Step, act: Awaitable[None]) -> None:
        if former is not None:
            await former
        self.log(f"{time.monotonic() - self.began:6.2f} s  {step}")
        try:
            await act
        except (AssertionError, TimeoutError) as error:
            error.add_note(f"in {step}")
            raise

    def _act(self, step: Step) -> Awaitable[None]:
        return self.faults.inject(step) if step.part == fault_plan.PART else self.sides[step.part].act(step)

    async def wrong(self, wanted: Expected) -> list[str]:
        """Return the differences from the expected state."""
        found = [item for side in self.sides.values() async for item in side.wrong(wanted)]
        for ready, text in [await replica.ready() for replica in self.replicas.values()]:
            if not ready:
                found.append(f"not ready: {text}")
        return found

    def processes(self) -> list[int]:
        """Return the numbers of the replicas' processes."""
        return [replica.process.pid for replica in self.replicas.values() if replica.process is not None]

    async def end(self) -> None:
        """End the replicas side by side: each has a grace period."""
        await asyncio.gather(*(replica.end() for replica in self.replicas.values()))

    def errors(self) -> list[str]:
        """Return errors during the run."""
        own = [item for replica in self.replicas.values() for item in replica.wrong]
        own += [f"an installer would have refused: {item}" for item in self.kubelets.refused]
        for path in planted.outputs(self.directory, 0):
            own += [f"{path.name} has {item}" for item in planted.found_in(path.read_bytes())]
        return own


@contextlib.asynccontextmanager
async def world(
    cluster: ClusterInfo, forkserver: Forkserver, schedule: Schedule, directory: Path, log: Callable[[str], None]
) -> AsyncIterator[World]:
    """Have a world for one run."""
    api = Api.of_kubeconfig(Path(cluster.kubeconfig))
    fleet, requests = Fleet(cluster, api), RetryingRequests(api)
    offset = fleet.audit_offset()
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(api.close)
        small = {int(step.value) for step in schedule.steps if step.act == Fault.NATS_FULL}
        bus = await stack.enter_async_context(BusServers(directory / "bus", schedule.servers, small).running())
        lattice = await stack.enter_async_context(TcpProxy("127.0.0.1", int(cluster.nats_url.rpartition(":")[2])))
        stack.push_async_callback(asyncio.to_thread, fleet.clean_up)
        kubelets = Kubelets(requests, fleet.installers)
        parts: dict[str, Side] = {
            node_work.PART: NodeSide(requests, kubelets, fleet.id, fleet.installers),
            lattice_work.PART: LatticeSide(requests, cluster.nats_url, lattice, fleet.id),
            controller_work.PART: ControllerSide(requests, api, fleet.id),
            secret_work.PART: SecretSide(requests, cluster.nats_url, lattice, fleet.id),
        }
        sides = {part: side for part, side in parts.items() if any(schedule.of(part))}
        for side in sides.values():
            stack.push_async_callback(side.clean_up)
            await side.begin()
        environment = fleet.environment(stream_replicas=schedule.servers, **_SETTINGS)
        servers = [item.url for item in bus.all]
        replicas = {name: Replica(name, directory / name, Path(cluster.kubeconfig), servers) for name in REPLICAS}
        for replica in replicas.values():
            await stack.enter_async_context(replica.running(forkserver, environment))
        faults = Faults(requests, BusFaults(bus, fleet.id), replicas, lattice, cluster.name, fleet.system)
        stack.push_async_callback(_end, asyncio.create_task(kubelets.run()))
        made = World(schedule, fleet, requests, bus, replicas, sides, kubelets, faults, log, directory, offset)
        stack.push_async_callback(made.end)
        await _both_ready(made)
        yield made


async def _both_ready(world: World) -> None:
    """Wait until both replicas are ready: a run breaks what works."""

    async def ready() -> None:
        while not all([(await replica.ready())[0] for replica in world.replicas.values()]):  # noqa: ASYNC110 (as processes say)
            await asyncio.sleep(0.2)

    await done_within(_READY_SECONDS, Patience(world.processes), ready(), "both replicas ready")


async def _all(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Wait for all, or for the first that fails."""
    await asyncio.gather(*tasks)


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
