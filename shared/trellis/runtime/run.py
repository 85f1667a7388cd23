"""Runs services: connect, campaign for leadership if needed, work, hand over, stop.

In: settings and ``compose``, which wires the components of a service. Out: a process that survives outages and stops
within its grace period. Called by each ``app`` and by ``trellis run``. Invariants: all components of a term are stopped
before the Lease is released; a component that ends unexpectedly ends the term, never the process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from trellis import names
from trellis.config.settings import ServiceSettings, SettingsError, exit_on_settings_error, load
from trellis.config.timings import ProcessTimings
from trellis.kube.claim import Claim
from trellis.kube.client import Kube
from trellis.kube.errors import NotLeading
from trellis.kube.leader import Leader, readiness_of
from trellis.runtime import gc
from trellis.runtime.service import PARTS, Base, Cluster, Compose, RunningService, Service, Work
from trellis.runtime.shutdown import RELEASED, Ending
from trellis.runtime.startup_barrier import StartupBarrier
from trellis.telemetry import get_logger, process_metrics, setup_logging
from trellis.telemetry.health import HealthServer

__all__ = [
    "INSTALLER_NAMESPACE_LABELS",
    "Base",
    "Compose",
    "EqualService",
    "LedService",
    "RunningService",
    "Service",
    "Work",
    "run_alone",
    "run_services",
]

INSTALLER_NAMESPACE_LABELS: Final = {"pod-security.kubernetes.io/enforce": "privileged"}
"""Labels for Pod Security admission: installer Jobs mount the root of the node, which requires privileged pods."""

_log = get_logger(__name__)
S = TypeVar("S", bound=ServiceSettings)


@dataclass(eq=False)
class LedService(Service):
    """A service with leader election: one replica works at a time.

    ``claims``: namespace of the Lease that limits a cluster to one installation, None if several may work.
    """

    claims: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._lease = names.LEASE_PREFIX + self.name.replace("_", "-")
        # A replica is ready if it leads and works, or if another one leads.
        self.health.expect("kubernetes", readiness_of(self._lease))

    async def _work(self, kube: Kube, cluster: Cluster, stop: asyncio.Event) -> None:
        """Lead whenever the Lease is available, until ``stop``; a term that does not end then is abandoned."""
        leader = Leader(
            kube,
            lease=self._lease,
            namespace=self.settings.namespace,
            identity=self.settings.identity,
            follows=lambda: self.barrier.has_read(self.name),
        )

        async def term(stopping: asyncio.Event) -> None:
            over, claim = False, self.claim

            def check() -> None:
                if over:  # a run that did not end must not write with the Lease of a later term
                    raise NotLeading("the leadership term of this work is over")
                leader.check()
                if claim is not None:
                    claim.check()

            def leading() -> bool:
                return not over and leader.leading and (claim is None or claim.leading)

            try:
                await self._term(kube.guarded(check), cluster, leading, stopping)
            finally:
                over = True

        async def lead(stopping: asyncio.Event) -> None:
            if self.claims is None:
                await term(stopping)
                return
            self.claim = Claim(
                kube.guarded(leader.check),
                self.claims,
                self.settings.namespace,
                waits=lambda: self.barrier.has_read(self.name),
            )
            await self.claim.run(term, stopping)

        leading = asyncio.create_task(leader.run(lead, stop), name="campaign")
        stopped = asyncio.create_task(stop.wait(), name="stop")
        try:
            await asyncio.wait({leading, stopped}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({leading}, timeout=self._grace.left(RELEASED))
            if leading.done():
                leading.result()
            else:
                _log.error("leadership term did not stop in time, the lease expires by itself", lease=self._lease)
        finally:
            stopped.cancel()
            leading.cancel()
            await asyncio.wait({leading}, timeout=self._grace.left(RELEASED))


@dataclass(eq=False)
class EqualService(Service):
    """A service whose replicas all work: two of them must never write different values."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.health.expect("kubernetes", PARTS)

    async def _work(self, kube: Kube, cluster: Cluster, stop: asyncio.Event) -> None:
        """Work until ``stop``; restarts all components after the failure of one."""
        while not stop.is_set():
            try:
                await self._term(kube, cluster, lambda: not stop.is_set(), stop)
            except* Exception as errors:  # noqa: BLE001 - ends the term, never the process
                for error in errors.exceptions:
                    _log.error("component failed, restarting the leadership term", error=repr(error), exc_info=error)
            if not stop.is_set():
                self.health.expect(PARTS)
                await asyncio.sleep(self.timings.again)


@exit_on_settings_error()
def run_alone(settings_of: type[S], create_app: Callable[[S], RunningService]) -> None:
    """Run one service as ``main``: read the settings, set up logging, run until SIGTERM."""
    settings = load(settings_of)
    setup_logging(log_format=settings.log_format, level=settings.log_level)
    service = create_app(settings)
    gc.freeze()
    asyncio.run(run_services([service], health_port=settings.health_port))


async def run_services(
    services: Sequence[RunningService], *, health_port: int, timings: ProcessTimings = ProcessTimings()
) -> None:
    """Run services in this process until SIGTERM or SIGINT, independent of each other. A second signal ends it at once.

    Raises:
        SettingsError: the health port is unavailable, or the kubeconfig is invalid.
    """
    stop = asyncio.Event()
    barrier = StartupBarrier((service.name for service in services), timings.barrier)
    for service in services:
        service.barrier = barrier
    with Ending(stop, max(service.settings.shutdown_grace_period for service in services), timings.ending):
        server = HealthServer(process_metrics(), [service.health for service in services], timings.health)
        port = await server.start(health_port)
        _log.info("serving /readyz and /metrics", port=port, services=[service.name for service in services])
        try:
            async with asyncio.TaskGroup() as group:
                for service in services:
                    group.create_task(service.run(stop), name=service.name)
        except* SettingsError as errors:
            # All services report the same error; one line is sufficient.
            raise errors.exceptions[0] from None
        finally:
            await server.stop()
