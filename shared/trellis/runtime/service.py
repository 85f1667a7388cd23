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
from trellis.runtime.shutdown import CLOSED, DRAINED, TOLD, Grace, ends_within, unless
from trellis.runtime.startup_barrier import Together
from trellis.telemetry import Telemetry, bind_service, get_logger
from trellis.telemetry.health import Health

PARTS: Final = "parts"
"""What is not ready before the parts are there to say it themselves."""

_log = get_logger(__name__)


class Cluster(NamedTuple):
    """Its name on the bus, and the uid of kube-system, which no other cluster has."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Base:
    """What a service's parts stand on: of a led one for a term, and ``kube`` refuses writes once that is in doubt."""

    telemetry: Telemetry
    health: Health
    kube: Kube
    bus: Bus
    cluster: str
    claim: Claim | None = None
    """Of the installation on the Nodes, for the services that work on them."""


@dataclass(frozen=True, slots=True)
class Work:
    """A service's parts; of a led one for one term.

    ``prepare`` runs once the bus is there (or has had its time) and before the first decision; ``list_all`` puts every
    key of the service's concern into its queues: at the start, on a new stream, every 10 minutes; ``forget_said``
    comes before it on a new stream, which has heard nothing yet.
    """

    informers: Sequence[Informer[Any]]
    queues: Mapping[KeyedQueue[Any], Run[Any]]
    """With the run of each, in the order in which they begin."""
    list_all: Callable[[], None]
    forget_said: Callable[[], None]
    prepare: Callable[[], Awaitable[None]] | None = None
    background: Sequence[Callable[[], Coroutine[Any, Any, None]]] = field(default=())
    closing: Sequence[Callable[[float], Coroutine[Any, Any, None]]] = field(default=())
    """Each ends something while everything is still there, within the seconds it is told."""
    apart: bool = False
    """What an informer is refused stops only what depends on it, and runs see to that: nobody waits for it."""


Compose = Callable[[Base], Work]


class Living(Protocol):
    """Whatever lives in a process beside others, until it is told to stop."""

    together: Together

    @property
    def name(self) -> str:
        """Of the service, with underscores."""

    @property
    def settings(self) -> ServiceSettings:
        """What it was told."""

    @property
    def health(self) -> Health:
        """How it is."""

    async def run(self, stop: asyncio.Event) -> None:
        """Work until ``stop`` is set; returns within the grace period."""


@dataclass(eq=False)
class Service(ABC):
    """A service; what it is made of is built when it runs."""

    name: str
    settings: ServiceSettings
    telemetry: Telemetry
    compose: Compose
    namespaces: dict[str, dict[str, str]]
    """Namespaces that must exist, with the labels they get if this service has to make them."""
    kube: Kube | None = None
    bus: Bus | None = None
    confined: bool = False
    """It may look at nothing but namespaces that it was given: its own has to exist, and tells which cluster it is."""
    describe_error: Callable[[KubeError], str] = str
    """Says for users what an error of the API server means, and what is to be done about it."""
    timings: ServiceTimings = field(default_factory=ServiceTimings)

    def __post_init__(self) -> None:
        self.health = Health(self.name)
        self.together = Together([self.name])
        self.claim: Claim | None = None

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
                closing = self._grace.left(TOLD, most=self.timings.close)
                await ends_within(closing, kube.close(), "connection to Kubernetes")
            await self.telemetry.shutdown(self._grace.left(TOLD, most=self.timings.traces))

    @abstractmethod
    async def _work(self, kube: Kube, cluster: Cluster, stop: asyncio.Event) -> None:
        """Work until ``stop``."""

    async def _cluster(self, kube: Kube) -> Cluster:
        """Return which cluster this is once the API server is there and lets us in, however long that takes."""
        attempts = Attempts()
        warned = False
        while True:
            await kube.wait_available()
            try:
                return await self._arrive(kube)
            except KubeError as error:
                words = kube.describe_error(error)
                self.health.not_ready("kubernetes", words)
                if not warned:
                    _log.warning("Kubernetes permissions missing at the start, retrying", error=words)
                warned = True
                await asyncio.sleep(attempts.next())

    async def _arrive(self, kube: Kube) -> Cluster:
        """See to the namespaces and return which cluster this is: to a confined service its own namespace is that."""
        if self.confined:
            uid = str((await kube.get(NAMESPACES, self.settings.namespace))["metadata"]["uid"])
            return Cluster(self.settings.cluster or uid[:8], uid)
        for name, labels in self.namespaces.items():
            try:
                await kube.ensure_namespace(name, labels)
            except Forbidden as error:
                # An account that may not look at namespaces can work in one that is there.
                _log.info("namespace not verified, assuming that it exists", namespace=name, error=str(error))
        uid = str((await kube.get(NAMESPACES, "kube-system"))["metadata"]["uid"])
        return Cluster(self.settings.cluster or uid[:8], uid)

    async def _term(self, kube: Kube, cluster: Cluster, leading: Callable[[], bool], stopping: asyncio.Event) -> None:
        """Work while ``leading`` until ``stopping``; everything built here ends here."""
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
        bus.on_new_stream += [work.forget_said, work.list_all]
        consuming = asyncio.Event()
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(_consume(bus, consuming), name="bus"),
                    *(group.create_task(informer.run(), name="watch") for informer in work.informers),
                    *(group.create_task(start(), name="background") for start in work.background),
                    group.create_task(self._decide(work, consuming, leading), name="decide"),
                ]
                # After their first steps, in which each says what it waits for.
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
        """Decide only on complete caches, and only while leading: what one does not show yet must not look deleted."""
        for informer in work.informers:
            await (informer.answered if work.apart else informer.synced).wait()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.timings.bus_head_start):
                await consuming.wait()
        await self.together.wait(self.name)
        if not (consuming.is_set() and await _prepared(work, self.timings.prepare)):
            _log.warning("starting without NATS: events that it has already are published again later")
        cancellation.check()  # what reads the bus may have lost it, and the queues would work on in a term that is over
        async with asyncio.TaskGroup() as group:
            for queue, run in work.queues.items():
                group.create_task(queue.work(run, leading), name="queue")
            while True:
                work.list_all()
                await asyncio.sleep(self.timings.resync)


async def _prepared(work: Work, seconds: float) -> bool:
    """Have what was said read back; returns whether that could be done within so many seconds."""
    try:
        if work.prepare is not None:
            async with asyncio.timeout(seconds):
                await work.prepare()
    except TimeoutError:
        return False
    return True


async def _consume(bus: Bus, consuming: asyncio.Event) -> None:
    """Bring the bus up however long it takes; then it looks after itself."""
    await bus.connect()
    await bus.start()
    consuming.set()
