"""Wires controller_host: creates its clients and connects its components.

In: settings (and clients in tests). Out: a service to run. Called by ``__main__`` and
``trellis run``.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from controller_host.domain.maximum_limits import Acceptance, MaximumLimits
from controller_host.domain.residents import Residents
from controller_host.domain.views import ControllerView, view_controller
from controller_host.host_calls.calling import Calling
from controller_host.metrics import Gauges
from controller_host.module.preparing import Preparing
from controller_host.module.sources import CLIENT, Sources
from controller_host.permissions import describe_error
from controller_host.report.reporting import Reporting
from controller_host.scheduler.hosted import Hosted, Trouble
from controller_host.scheduler.hosting import Hosting
from controller_host.scheduler.memory import giving_back
from controller_host.scheduler.outcomes import Callbacks, Outcomes
from controller_host.scheduler.starting import Parts
from controller_host.scheduler.turns import Places
from controller_host.settings import Settings
from controller_host.state.disk import Disk, check_directory, open_disk
from controller_host.state.disk_space import DiskSpace
from controller_host.state.garbage_collection import (
    ExistingControllers,
    GarbageCollection,
    existing_controllers_of,
    needs_controllers,
    sweep_all,
)
from controller_host.timings import Timings
from controller_host.watches.delivery_selection import DeliverySelection
from controller_host.watches.reviews import Reviews
from controller_host.watches.shared_watches import SharedWatches, WatchContext
from trellis import names
from trellis.bus.bus import Bus
from trellis.bus.consume.queue import KeyedQueue
from trellis.events.subjects import CONTROLLER_HOST
from trellis.kube.client import Kube
from trellis.kube.discovery import Discovery
from trellis.kube.informer import Change, Informer
from trellis.kube.recorder import EventRecorder
from trellis.kube.refusals import Refusals, noted
from trellis.kube.resources import WASM_CONTROLLERS
from trellis.registries.web import Web
from trellis.runtime import gc
from trellis.runtime.run import Base, LedService, Work
from trellis.telemetry import get_logger, setup
from trellis.telemetry.health import Health

_WAITING: Final = 64
"""Additional workers that prepare controllers: preparation waits for the API server, not for a thread."""
_REPORTERS: Final = 8
TENANTS_CONNECTIONS: Final = 128
"""Connections to the API server for requests as accounts of guests: one per guest that runs at the same time."""
NAMESPACE_CONNECTIONS: Final = 16
"""Maximum number of these connections for the accounts of one namespace."""
_ENGINE: Final = "engine"

_log = get_logger(__name__)


def create_app(
    settings: Settings,
    *,
    bus: Bus | None = None,
    kube: Kube | None = None,
    timings: Timings = Timings(),  # noqa: B008 - frozen
) -> LedService:
    """Return the service; it connects when it is run.

    Raises:
        SettingsError: the data directory cannot be used.
    """
    check_directory(settings)
    gc.share_arenas()
    return LedService(
        name=CONTROLLER_HOST,
        settings=settings,
        telemetry=setup(
            CONTROLLER_HOST, otlp_endpoint=settings.otlp_endpoint, sample_ratio=settings.trace_sample_ratio
        ),
        compose=partial(compose, settings, timings=timings),
        namespaces={settings.namespace: {}},
        kube=kube,
        bus=bus,
        describe_error=describe_error,
    )


def maximum_limits_of(settings: Settings) -> MaximumLimits:
    """Return the maximum limits of controllers from the settings."""
    return MaximumLimits(
        memory_bytes=settings.controller_max_memory,
        cpu_seconds=settings.controller_max_cpu_per_call,
        wall_seconds=settings.controller_max_time_per_call,
        calls_per_second=settings.controller_max_calls_per_second,
        host_calls_per_second=settings.controller_max_host_calls_per_second,
        pinned_bytes=settings.controller_pinned_per_namespace,
    )


def compose(
    settings: Settings,
    base: Base,
    *,
    timings: Timings = Timings(),  # noqa: B008 - frozen
) -> Work:
    """Build the components for one leadership term and connect them."""
    kube, telemetry = base.kube, base.telemetry
    workers = settings.controller_threads + _WAITING
    controllers = KeyedQueue[str](workers=workers, name="controllers", telemetry=telemetry)
    reports = KeyedQueue[str](workers=_REPORTERS, name="reports", telemetry=telemetry)
    hosted: dict[str, Hosted] = {}

    def enqueue(change: Change[ControllerView]) -> None:
        controllers.forget(change.key)
        controllers.add(change.key)

    disk = open_disk(settings, engine_reporter(base.health), timings)
    tenants = kube.apart(TENANTS_CONNECTIONS, NAMESPACE_CONNECTIONS)
    parts = Parts(disk.guests, disk.progress, telemetry, DiskSpace(timings=timings.disk), timings)
    discovery, reviews = Discovery(kube), Reviews(kube, timings=timings.reviews)
    web = Web(settings.controller_source_networks, timings=timings.sources, client=CLIENT)
    sources = Sources(tenants.acting_as, web, settings.controller_modules_dir, timings.sources)
    lines = float(settings.controller_log_lines)
    calling = Calling(tenants.acting_as, Discovery(tenants), telemetry, reviews.forget, lines, timings.calls)
    informer = Informer(
        kube,
        WASM_CONTROLLERS,
        view_controller,
        enqueue,
        optional=True,
        states=True,
        needed=partial(needs_controllers, disk.progress, disk.guests),
        timings=timings.watch,
    )
    watches = SharedWatches(
        WatchContext(kube, discovery, reviews),
        settings.controller_resources,
        on_state=controllers.add,
        timings=timings.caches,
    )
    recorder = EventRecorder(kube, component=names.FIELD_MANAGER_CONTROLLER_HOST)
    reporting = Reporting(
        kube,
        base.bus,
        recorder,
        hosted,
        informer,
        partial(not_watched, watches),
        add=reports.add,
        add_after=reports.add_after,
        timings=timings.reports,
    )
    hosting = Hosting(
        parts=parts,
        calling=calling,
        preparing=Preparing(
            tenants.acting_as, sources, disk.guests, disk.progress, disk.compiling, settings.sources_interval / 2
        ),
        selection=DeliverySelection(watches, timings.turns),
        outcomes=Outcomes(
            Callbacks(reporting.changed, reporting.faulted, reporting.removed),
            refusals=timings.refusals,
            timings=timings.turns,
        ),
        pool=disk.pool,
        residents=Residents(settings.controller_memory_budget),
        views=informer.objects,
        sources_interval=settings.sources_interval,
        wake=controllers.add,
        acceptance=Acceptance(maximum_limits_of(settings)),
        places=Places(settings.controller_threads),
        hosted=hosted,
    )
    refusals = Refusals(reports, noted(base.health), timings.refusals)

    def list_all() -> None:
        for key in {*informer.objects, *hosted}:
            controllers.add(key)

    async def sweep() -> None:
        if not informer.known:
            return  # GarbageCollection does this later
        await asyncio.get_running_loop().run_in_executor(
            None, sweep_all, disk.progress, disk.guests, {*_uids(informer)}
        )

    def existing_controllers() -> ExistingControllers | None:
        return existing_controllers_of(_uids(informer), hosted.values()) if informer.known else None

    async def close(seconds: float) -> None:
        await hosting.close(seconds * 0.9)

    return Work(
        [informer],
        {controllers: hosting.run, reports: refusals.heeding(reporting.run)},
        list_all,
        lambda: None,
        prepare=sweep,
        background=[
            watches.run,
            refusals.run,
            Gauges(
                telemetry.metrics,
                CONTROLLER_HOST,
                hosted.values,
                lambda: parts.disk_space.refuses,
                fresh=timings.fresh,
            ).run,
            partial(parts.disk_space.run, disk.guests.try_disk, hosting.memory.recovered),
            hosting.fetching.run,
            hold_resources(disk, partial(ending, hosting, base.health), sources.close, tenants.close),
            partial(giving_back, timings.give_back),
            GarbageCollection(disk.guests, disk.progress, existing_controllers, timings.disk).run,
        ],
        closing=[close],
    )


def engine_reporter(health: Health) -> Callable[[str], None]:
    """Return a thread-safe function that reports the state of the engine to ``health``: "" or the error."""
    loop = asyncio.get_running_loop()

    def report(reason: str) -> None:
        if reason:
            health.not_ready(_ENGINE, reason)
        else:
            health.ready(_ENGINE)

    def report_threadsafe(reason: str) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the process ends
            loop.call_soon_threadsafe(report, reason)

    return report_threadsafe


def ending(hosting: Hosting, health: Health) -> None:
    """End the guests and remove the engine from the health checks."""
    hosting.end()
    health.forget(_ENGINE)


def hold_resources(
    disk: Disk, end: Callable[[], None], *close: Callable[[], Coroutine[Any, Any, None]]
) -> Callable[[], Coroutine[Any, Any, None]]:
    """Return a task that closes the disk and the connections when it is cancelled; first, ``end`` ends the guests."""

    async def hold() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            end()
            disk.close()
            await asyncio.gather(*(item() for item in close))

    return hold


def not_watched(watches: SharedWatches, hosted: Hosted) -> Trouble | None:
    """Return the reason why a watch of a controller is refused, None if all watches work."""
    for refusal in watches.refused(hosted.key, hosted.account.user).values():
        return Trouble(refusal.reason, refusal.message)
    return None


def _uids(informer: Informer[ControllerView]) -> set[str]:
    return {view.uid for view in informer.objects.values()}
