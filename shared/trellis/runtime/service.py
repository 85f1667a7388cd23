"""The common parts of a service: its connections, the identity of the cluster, and its components.

In: settings and ``compose``, which wires the components of a service. Out: running components. Called by
``trellis.runtime.run``, which decides when they run: while leading, or always. Invariants: all components are stopped
when the work returns; a lost NATS connection does not stop the work.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from trellis.bus.bus import Bus
from trellis.bus.connection import cancellation
from trellis.bus.consume.queue import KeyedQueue, Run
from trellis.bus.streams.streams import limits_with
from trellis.config.settings import ServiceSettings
from trellis.config.timings import ServiceTimings
from trellis.kube.access import Access
from trellis.kube.claim import Claim
from trellis.kube.client import Kube
from trellis.kube.errors import Forbidden, KubeError
from trellis.kube.informer import Informer
from trellis.kube.leader import StillRunning
from trellis.kube.resources import NAMESPACES
from trellis.limits.backoff import Attempts
from trellis.runtime import gc
from trellis.runtime.shutdown import CLOSED, DRAINED, REPORTED, Grace, ends_within, unless
from trellis.runtime.startup_barrier import StartupBarrier
from trellis.telemetry import Telemetry, bind_service, get_logger
from trellis.telemetry.health import Health

PARTS: Final = "parts"
"""Health part that is not ready until the components report their own."""

_log = get_logger(__name__)


class Cluster(NamedTuple):
    """The name of the cluster on the bus, and the UID of kube-system, which is unique."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Base:
    """Dependencies of the components, of one leadership term; ``kube`` rejects writes once the Lease may be lost."""

    telemetry: Telemetry
    health: Health
    kube: Kube
    bus: Bus
    cluster: str
    claim: Claim | None = None
    """Claim of the installation to the Nodes, for services that manage them."""


@dataclass(frozen=True, slots=True)
class Work:
    """The components of a service; with leader election those of one term.

    ``prepare`` runs once the bus is usable (or its timeout expired) and before the first reconcile; ``list_all`` adds
    every key of the service to its queues: at the start, on a new stream, every 10 minutes; ``forget_published`` is
    called before it on a new stream, which has no events yet.
    """

    informers: Sequence[Informer[Any]]
    queues: Mapping[KeyedQueue[Any], Run[Any]]
    """Queues with their runs, in the order of their start."""
    list_all: Callable[[], None]
    forget_published: Callable[[], None]
    prepare: Callable[[], Awaitable[None]] | None = None
    background: Sequence[Callable[[], Coroutine[Any, Any, None]]] = field(default=())
    closing: Sequence[Callable[[float], Coroutine[Any, Any, None]]] = field(default=())
    """Functions that end something before the connections are closed, within the given seconds."""
    apart: bool = False
    """Start without informers that are denied access: only the runs that depend on them are blocked."""


Compose = Callable[[Base], Work]


class RunningService(Protocol):
    """A service in a process that runs until it is stopped."""

    barrier: StartupBarrier

    @property
    def name(self) -> str:
        """Name of the service, with underscores."""

    @property
    def settings(self) -> ServiceSettings:
        """Settings of the service."""

    @property
    def health(self) -> Health:
        """Health of the service."""

    async def run(self, stop: asyncio.Event) -> None:
        """Work until ``stop`` is set; returns within the grace period."""


@dataclass(eq=False)
class Service(ABC):
    """A service; its components are created when it runs."""

    name: str
    settings: ServiceSettings
    telemetry: Telemetry
    compose: Compose
    namespaces: dict[str, dict[str, str]]
    """Namespaces that must exist, with the labels for those that this service creates."""
    kube: Kube | None = None
    bus: Bus | None = None
    confined: bool = False
    """Restricted to given namespaces: its own must exist, and identifies the cluster."""
    describe_error: Callable[[KubeError], str] = str
    """Returns the message for users about an error of the API server, with the resolution."""
    timings: ServiceTimings = field(default_factory=ServiceTimings)

    def __post_init__(self) -> None:
        self.health = Health(self.name)
        self.barrier = StartupBarrier([self.name])
        self.claim: Claim | None = None
        self._decided = False  # in a former term

    async def run(self, stop: asyncio.Event) -> None:
        """Work until ``stop`` is set; returns within the grace period."""
        bind_service(self.name)
        self._grace = Grace(self.settings.shutdown_grace_period)
        kube = self.kube or await Kube.connect(
            Access(self.settings.kubeconfig, self.settings.context),
            telemetry=self.telemetry,
            health=self.health,
            identity=self.settings.identity,
            timings=self.timings.kube,
        )
        kube.describe_error = self.describe_error
        timing = asyncio.create_task(self._grace.begin_at(stop), name="grace")
        try:
            cluster = await unless(stop, self._cluster(kube))
            if cluster is None:
                return
            self.telemetry.cluster = cluster.name
            await self._work(kube, cluster, stop)
        finally:
            timing.cancel()
            if self.kube is None:
                closing = self._grace.left(REPORTED, most=self.timings.close)
                await ends_within(closing, kube.close(), "connection to Kubernetes")
            await self.telemetry.shutdown(self._grace.left(REPORTED, most=self.timings.traces))

    @abstractmethod
    async def _work(self, kube: Kube, cluster: Cluster, stop: asyncio.Event) -> None:
        """Work until ``stop``."""

    async def _cluster(self, kube: Kube) -> Cluster:
        """Return the cluster once the API server is reachable and grants access, without a timeout."""
        attempts = Attempts()
        warned = False
        while True:
            await kube.wait_available()
            try:
                return await self._arrive(kube)
            except KubeError as error:
                text = kube.describe_error(error)
                self.health.not_ready("kubernetes", text)
                if not warned:
                    _log.warning("Kubernetes permissions missing at the start, retrying", error=text)
                warned = True
                await asyncio.sleep(attempts.next())

    async def _arrive(self, kube: Kube) -> Cluster:
        """Create missing namespaces and return the cluster; a confined service is identified by its own namespace."""
        if self.confined:
            uid = str((await kube.get(NAMESPACES, self.settings.namespace))["metadata"]["uid"])
            return Cluster(self.settings.cluster or uid[:8], uid)
        for name, labels in self.namespaces.items():
            try:
                await kube.ensure_namespace(name, labels)
            except Forbidden as error:
                # An account without permission to read namespaces can work in an existing one.
                _log.info("namespace not verified, assuming that it exists", namespace=name, error=str(error))
        uid = str((await kube.get(NAMESPACES, "kube-system"))["metadata"]["uid"])
        return Cluster(self.settings.cluster or uid[:8], uid)

    async def _term(self, kube: Kube, cluster: Cluster, leading: Callable[[], bool], stopping: asyncio.Event) -> None:
        """Work while ``leading`` until ``stopping``; all components created here are stopped here."""
        bus = self.bus or Bus(
            self.settings.nats_url,
            cluster=cluster.name,
            cluster_uid=cluster.uid,
            service=self.name,
            telemetry=self.telemetry,
            health=self.health,
            credentials=self.settings.nats_credentials,
            limits=limits_with(self.settings.stream_replicas),
            timings=self.timings.bus,
        )
        base = Base(self.telemetry, self.health, kube, bus, cluster.name, self.claim)
        work = self.compose(base)
        bus.on_new_stream += [work.forget_published, work.list_all]
        consuming = asyncio.Event()
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(_consume(bus, consuming), name="bus"),
                    *(group.create_task(informer.run(), name="watch") for informer in work.informers),
                    *(group.create_task(start(), name="background") for start in work.background),
                    group.create_task(self._decide(work, consuming, leading), name="decide"),
                ]
                # After their first steps, in which each component reports its own readiness.
                asyncio.get_running_loop().call_soon(self.health.forget, PARTS)
                await stopping.wait()
                for_runs = self._grace.left(DRAINED)
                await asyncio.gather(
                    ends_within(for_runs, bus.stop(), "consuming"),
                    *(queue.drain(for_runs) for queue in work.queues),
                    *(close(for_runs) for close in work.closing),
                )
                for task in tasks:
                    task.cancel()
        finally:
            bus.on_new_stream.clear()
            if self.bus is None:
                closing = self._grace.left(CLOSED, most=self.timings.close)
                await ends_within(closing, bus.close(), "connection to the bus")
            if unended := [str(key) for queue in work.queues for key in queue.unended]:
                raise StillRunning(f"still working on {', '.join(unended)}")

    async def _decide(self, work: Work, consuming: asyncio.Event, leading: Callable[[], bool]) -> None:
        """Reconcile only with complete caches, where a missing object is deleted, and only while leading."""
        for informer in work.informers:
            await (informer.answered if work.apart else informer.synced).wait()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.timings.bus_head_start):
                await consuming.wait()
        await self.barrier.wait(self.name)
        if not (consuming.is_set() and await _prepared(work, self.timings.prepare)):
            _log.warning("starting without NATS: already published events are republished later")
        cancellation.check()  # reading the bus may have lost it, and the queues would run after the end of the term
        former, self._decided = self._decided, True
        with gc.caches_excluded(former=former):
            async with asyncio.TaskGroup() as group:
                for queue, run in work.queues.items():
                    group.create_task(queue.work(run, leading), name="queue")
                while True:
                    work.list_all()
                    await asyncio.sleep(self.timings.resync)


async def _prepared(work: Work, seconds: float) -> bool:
    """Read the published events back; return False after the timeout of ``seconds``."""
    try:
        if work.prepare is not None:
            async with asyncio.timeout(seconds):
                await work.prepare()
    except TimeoutError:
        return False
    return True


async def _consume(bus: Bus, consuming: asyncio.Event) -> None:
    """Connect the bus without a timeout; it then supervises itself."""
    await bus.connect()
    await bus.start()
    consuming.set()
