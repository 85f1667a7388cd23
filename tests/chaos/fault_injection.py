"""Carries out what goes wrong in a run, and takes it back when its time is over.

In: steps of the part ``faults``. Out: signals, faults of proxies, servers that end and start, writes of another holder.
Called by ``world``. Invariant: when ``inject`` returns the fault is over, also when it was cancelled.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from chaos import history, orders
from chaos.bus_faults import BusFaults, refuse, silence
from chaos.fault_plan import Fault
from chaos.replicas import Replica
from chaos.retrying_requests import RetryingRequests
from chaos.steps import Step
from support.cluster.api_proxy import Trouble
from support.suite.tcp_proxy import TcpProxy
from trellis import names
from trellis_dev import localcluster

_OTHER_HOLDER: Final = "other-holder"
_TROUBLES: Final = {
    Fault.KUBE_BUSY: Trouble.BUSY,
    Fault.KUBE_BROKEN: Trouble.BROKEN,
    Fault.KUBE_EXPIRED: Trouble.EXPIRED,
    Fault.KUBE_GONE: Trouble.GONE,
    Fault.KUBE_ANSWERS_LOST: Trouble.ANSWERS_LOST,
}
_TERMINATION_SECONDS: Final = 30.0


@dataclass
class Faults:
    """``cluster``: the name of the local cluster; ``lattice``: the way to the lattice's NATS."""

    requests: RetryingRequests
    bus: BusFaults
    replicas: dict[str, Replica]
    lattice: TcpProxy
    cluster: str
    namespace: str
    _of_wadm: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def inject(self, step: Step) -> None:
        """Let one fault be, for as long as it lasts."""
        fault = Fault(step.act)
        if step.on in self.replicas:
            replica = self.replicas[step.on]
            if fault in {Fault.KILL, Fault.STOP, Fault.TERMINATE}:
                await self._signal(fault, replica, step.seconds)
            elif fault is Fault.KUBE_CUT:
                replica.kube.cut()
                replica.api.cut_watches()
            elif fault is Fault.BUS_CUT:
                for bus in replica.bus:
                    bus.cut()
            elif fault in {Fault.KUBE_REFUSED, Fault.BUS_REFUSED}:
                await refuse([replica.kube] if fault is Fault.KUBE_REFUSED else replica.bus, step.seconds)
            else:
                with _trouble(fault, replica, step.value):
                    await asyncio.sleep(step.seconds)
        elif step.on == "nats":
            await self.bus.inject(step)
        elif step.on == history.API:
            await self._api(fault, step.seconds)
        elif step.on == "lattice":
            await self._lattice(fault, step)
        else:
            await self._lease(fault, step.on)

    @staticmethod
    async def _signal(fault: Fault, replica: Replica, seconds: float) -> None:
        match fault:
            case Fault.KILL:
                replica.send(signal.SIGKILL)
            case Fault.STOP:
                replica.send(signal.SIGSTOP)
                try:
                    await asyncio.sleep(seconds)
                finally:
                    replica.send(signal.SIGCONT)
            case _:
                process = replica.process
                replica.send(signal.SIGTERM)
                if process is not None:
                    try:
                        await asyncio.wait_for(process.wait(), _TERMINATION_SECONDS)
                    except TimeoutError:
                        replica.wrong.append(f"{replica.name} does not end in {_TERMINATION_SECONDS:g} s when asked")
                        replica.send(signal.SIGKILL)

    async def _api(self, fault: Fault, seconds: float) -> None:
        if fault is Fault.API_RESTART:
            await asyncio.to_thread(localcluster.restart, self.cluster, history.API)
            return
        if fault is Fault.HISTORY_COMPACTED:
            await history.compact(self.cluster)
            return
        await asyncio.to_thread(localcluster.kill, self.cluster, history.API, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            localcluster.kill(self.cluster, history.API, signal.SIGCONT)

    async def _lattice(self, fault: Fault, step: Step) -> None:
        match fault:
            case Fault.LATTICE_CUT:
                self.lattice.cut()
            case Fault.LATTICE_REFUSED:
                await refuse([self.lattice], step.seconds)
            case Fault.LATTICE_RESTART:
                await asyncio.to_thread(localcluster.restart, self.cluster, "nats-server")
            case Fault.WADM_RESTART:
                async with self._of_wadm:  # a second one begins when the first is over, however slow the machine is
                    await asyncio.to_thread(localcluster.kill, self.cluster, "wadm")
                    await asyncio.to_thread(localcluster.restart, self.cluster, "wadm")
            case Fault.LATTICE_SILENT:
                await silence([self.lattice], step.seconds)
            case _:
                self.lattice.late = float(step.value)
                try:
                    await asyncio.sleep(step.seconds)
                finally:
                    self.lattice.late = 0.0

    async def _lease(self, fault: Fault, service: str) -> None:
        path = f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases/{names.LEASE_PREFIX}{service}"
        if fault is Fault.LEASE_DELETED:
            await self.requests.deleted(path)
            return
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": _OTHER_HOLDER, "acquireTime": now, "renewTime": now}
        await self.requests.call("PATCH", path, {"spec": spec})


@contextlib.contextmanager
def _trouble(fault: Fault, replica: Replica, value: str) -> Iterator[None]:
    """Have a fault for the time of a block that is one thing to set and one to take back."""
    begin, end = _switches(fault, replica, value)
    begin()
    try:
        yield
    finally:
        end()


def _switches(fault: Fault, replica: Replica, value: str) -> tuple[Callable[[], object], Callable[[], object]]:
    api = replica.api
    match fault:
        case Fault.KILL_BEFORE_WRITE | Fault.KILL_AFTER_WRITE:
            order_kind = orders.BEFORE if fault is Fault.KILL_BEFORE_WRITE else orders.AFTER
            return lambda: replica.order.write_text(order_kind), lambda: replica.order.unlink(missing_ok=True)
        case Fault.CLOCK:
            return lambda: replica.clock.write_text(value), lambda: replica.clock.write_text("0")
        case Fault.KUBE_SILENT:
            return replica.kube.silence, replica.kube.resume
        case Fault.KUBE_LATE:
            return lambda: setattr(api, "late", float(value)), lambda: setattr(api, "late", 0.0)
        case Fault.BUS_SILENT:
            return lambda: [bus.silence() for bus in replica.bus], lambda: [bus.resume() for bus in replica.bus]
        case Fault.BUS_LATE:
            late = float(value)
            return (
                lambda: [setattr(bus, "late", late) for bus in replica.bus],
                lambda: [setattr(bus, "late", 0.0) for bus in replica.bus],
            )
        case _:
            trouble = _TROUBLES[fault]
            return lambda: setattr(api, "trouble", trouble), lambda: setattr(api, "trouble", None)
