"""Wires the console: creates its clients and connects its components.

In: settings (and clients in tests). Out: a service to run. Called by ``__main__`` and ``trellis run``. Invariant: it
accesses Kubernetes only as a viewer: with the viewer's token, or by impersonation behind a proxy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from console.access.authentication import Authentication
from console.access.identity import SECRET_LEAST, Proxy, Viewer
from console.access.sessions import Sessions
from console.domain.limits import CONNECTIONS_EACH, REQUEST_BYTES
from console.http.answers import answering, put_headers
from console.http.assets import Assets
from console.http.listener import Listener
from console.http.routes import Routes
from console.live.bus_connection import BusConnection
from console.live.feed import Feed
from console.live.viewer_registry import ViewerRegistry
from console.settings import Auth, Settings
from console.timings import Timings
from trellis.config.settings import SettingsError
from trellis.events.subjects import CONSOLE
from trellis.kube.access import Access
from trellis.kube.client import Kube
from trellis.kube.errors import KubeError
from trellis.lattice.connection.host_nats import host_nats
from trellis.lattice.follow.heartbeats import heartbeats_of
from trellis.read_model.live.live_model import all_parts
from trellis.read_model.live.watching import Place
from trellis.runtime.shutdown import CLOSED, REPORTED, Grace, ends_within
from trellis.runtime.startup_barrier import StartupBarrier
from trellis.telemetry import Telemetry, bind_service, get_logger, setup
from trellis.telemetry.health import Health

PORT: Final = "console"
KUBERNETES: Final = "kubernetes"

_log = get_logger(__name__)


def create_app(
    settings: Settings,
    *,
    kube: Kube | None = None,
    timings: Timings = Timings(),  # noqa: B008 - frozen
) -> Console:
    """Return the service; it connects to Kubernetes and NATS when it is run.

    Raises:
        SettingsError: the secret of the proxy is invalid, or a file of the NATS of wasmCloud v2 cannot be used.
    """
    telemetry = setup(CONSOLE, otlp_endpoint=settings.otlp_endpoint, sample_ratio=settings.trace_sample_ratio)
    return Console(settings, telemetry, _proxy(settings), kube, timings)


class Console:
    """The console. Unlike other services it has no permissions of its own, and does not read the cluster's name."""

    name: Final = CONSOLE

    def __init__(
        self, settings: Settings, telemetry: Telemetry, proxy: Proxy | None, kube: Kube | None, timings: Timings
    ) -> None:
        self.settings: Final = settings
        self.health: Final = Health(CONSOLE)
        self.barrier = StartupBarrier([CONSOLE])
        self.port = 0
        """The listening port, 0 before that."""
        self._telemetry: Final = telemetry
        self._proxy: Final = proxy
        self._kube: Final = kube
        self._timings: Final = timings
        host_nats(settings)  # a file that cannot be used is an error of the start
        self._heartbeats: Final = heartbeats_of(settings, "trellis-console")
        self.health.expect(KUBERNETES, PORT)

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until ``stop`` is set."""
        bind_service(self.name)
        self.barrier.has_read(self.name)  # it reads on request, so no other service waits
        grace = Grace(self.settings.shutdown_grace_period)
        kube = self._kube or await Kube.connect(
            Access(self.settings.kubeconfig, self.settings.context, without_identity=self._proxy is None),
            telemetry=self._telemetry,
            health=Health("viewers"),
            identity=self.settings.identity,
        )
        try:
            await self._serve(kube, stop, grace)
        finally:
            if self._kube is None:
                await kube.close()
            await self._telemetry.shutdown(grace.left(REPORTED, most=self._timings.traces))

    async def _serve(self, kube: Kube, stop: asyncio.Event, grace: Grace) -> None:
        settings, timings, feed, cluster = self.settings, self._timings, Feed(), self._cluster_name()
        parts = all_parts(Place(settings.namespace, settings.installer_namespace))
        heartbeats = self._heartbeats
        connect, most = _connector(kube, self._proxy), settings.console_viewers
        sessions = Sessions(settings.console_session_ttl, timings=timings)
        registry = ViewerRegistry(
            *(connect, parts, most, cluster, self._telemetry),
            lost=sessions.end_all_of,
            heartbeats=heartbeats,
            timings=timings,
        )
        bus = BusConnection(settings.nats_url, settings.nats_credentials, cluster, feed, self.health, timings=timings)
        authentication = Authentication(
            sessions, lambda: kube, self._proxy, settings.console_url, secure=settings.secure, timings=timings
        )
        routes = Routes(settings, authentication, registry, feed, bus, self._telemetry, timings, heartbeats)
        listener = Listener(make_application(routes, self._telemetry), settings, timings=timings)
        self.port = await listener.start()
        self.health.ready(PORT)
        _log.info("serving the console", port=self.port, auth=authentication.mode, tls=settings.tls)
        try:
            async with asyncio.TaskGroup() as group:
                running: list[tuple[str, Callable[[], Coroutine[Any, Any, None]]]]
                running = [("viewers", registry.run), ("bus", bus.run), ("probe", partial(self._probe, kube))]
                running += [("heartbeats", heartbeats.run)] if heartbeats is not None else []
                tasks = [group.create_task(_kept(part, timings.restart), name=name) for name, part in running]
                await stop.wait()
                grace.begin()
                registry.stopping.set()
                await ends_within(grace.left(CLOSED), listener.stop(), "closing the console port")
                for task in tasks:
                    task.cancel()
        finally:
            await listener.stop()

    def _cluster_name(self) -> asyncio.Future[str]:
        """Return the cluster's name on the bus: the setting, else as read for the first permitted viewer."""
        name: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        if self.settings.cluster:
            name.set_result(self.settings.cluster)
        return name

    async def _probe(self, kube: Kube) -> None:
        """Report whether the API server responds; a rejected anonymous request counts as a response."""
        while True:
            try:
                await kube.probe()
            except KubeError as error:
                if error.status:
                    self.health.ready(KUBERNETES)
                else:
                    self.health.not_ready(KUBERNETES, str(error))
            else:
                self.health.ready(KUBERNETES)
            await asyncio.sleep(self._timings.probe)


async def _kept(part: Callable[[], Coroutine[Any, Any, None]], restart: float) -> None:
    """Run a component forever; restart it if it fails, without effect on the other components."""
    while True:
        try:
            await part()
        except Exception as error:  # noqa: BLE001 - restarted
            _log.error("component failed, restarting", error=repr(error), exc_info=error)
        await asyncio.sleep(restart)


def make_application(routes: Routes, telemetry: Telemetry, assets: Assets | None = None) -> web.Application:
    """Return the web application."""
    application = web.Application(middlewares=[answering(telemetry)], client_max_size=REQUEST_BYTES)
    application.on_response_prepare.append(put_headers)
    routes.add_to(application.router)
    application.router.add_get("/{path:.*}", (assets or Assets()).serve)
    return application


def _connector(kube: Kube, proxy: Proxy | None) -> Callable[[Viewer], Kube]:
    """Return the factory of Kubernetes clients for viewers."""

    def connect(viewer: Viewer) -> Kube:
        own = kube.for_viewer(CONNECTIONS_EACH, Health("viewer"))
        return own.with_token(viewer.token) if proxy is None else own.acting_as(viewer.user, viewer.groups)

    return connect


def _proxy(settings: Settings) -> Proxy | None:
    if settings.console_auth is not Auth.PROXY:
        return None
    secret = b"" if settings.console_proxy_secret_file is None else _secret(settings.console_proxy_secret_file)
    return Proxy(
        settings.console_user_header,
        settings.console_groups_header,
        secret,
        frozenset(settings.console_proxy_names) if settings.console_proxy_ca_file is not None else frozenset(),
        settings.console_system_identities,
    )


def _secret(path: Path) -> bytes:
    try:
        found = path.read_bytes().strip()
    except OSError as error:
        raise SettingsError(f"TRELLIS_CONSOLE_PROXY_SECRET_FILE: {path}: {error.strerror}") from None
    if len(found) < SECRET_LEAST:
        raise SettingsError(
            f"TRELLIS_CONSOLE_PROXY_SECRET_FILE: {path} needs at least {SECRET_LEAST} characters; "
            "`openssl rand -hex 32` prints some"
        )
    return found
