"""Readiness and liveness of a service: pure state, and the HTTP server for it.

In: the state of bus, kube and components. Out: ``/readyz``, ``/livez``, ``/healthz`` (JSON, 200 or 503) and
``/metrics``. Called by the kubelet, Prometheus and users. Invariant: an outage of a dependency makes a service not
ready, never not alive; only a liveness probe does that. A blocked event loop needs no probe: the server shares the
loop, so ``/livez`` does not answer and the kubelet restarts the pod. The number of open connections is limited; a new
one replaces the oldest.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

import orjson
from aiohttp import web
from prometheus_client.exposition import choose_encoder

from trellis.config.errors import SettingsError
from trellis.config.timings import HealthTimings
from trellis.installer_api.redaction import redact_url
from trellis.telemetry.metrics import Metrics

_NOT_YET: Final = "has not been ready yet"
MOST_CONNECTIONS: Final = 128
"""Maximum number of open connections. Connections to the API server and NATS share the limit of open files."""

Probe = Callable[[], str | None]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of a check, with the reasons of a failure: ``kubernetes: connection refused at https://…``."""

    ok: bool
    reasons: tuple[str, ...] = ()


class Health:
    """The state of one service; no IO."""

    def __init__(self, service: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.service: Final = service
        self._clock = clock
        self._bind_advice: dict[str, str] = {}
        self._known: set[str] = set()
        self._probes: dict[str, Probe] = {}
        self._not_ready_since: float | None = None
        self._notes: dict[str, str] = {}

    def expect(self, *whats: str) -> None:
        """Report not ready until each component was ready once; a component that is already ready stays ready."""
        for what in whats:
            if what not in self._known:
                self.not_ready(what, _NOT_YET)

    def ready(self, what: str) -> None:
        """Report that a component is ready: ``kubernetes``, ``bus``, ``watch nodes``."""
        self._known.add(what)
        self._bind_advice.pop(what, None)
        if not self._bind_advice:
            self._not_ready_since = None

    def not_ready(self, what: str, reason: str) -> None:
        """Report that a component is not ready, with the reason for users; passwords of URLs are hidden."""
        self._known.add(what)
        self._bind_advice[what] = redact_url(reason)
        if self._not_ready_since is None:
            self._not_ready_since = self._clock()

    def forget(self, what: str) -> None:
        """Remove a component that no longer exists, such as the watch of a former leader, and its note."""
        self.ready(what)
        self._known.discard(what)
        self._probes.pop(what, None)
        self._notes.pop(what, None)

    def note(self, what: str, text: str) -> None:
        """Set a note of a component that does not affect readiness, such as a failure of one tenant; "" removes it."""
        if text:
            self._notes[what] = redact_url(text)
        else:
            self._notes.pop(what, None)

    def notes(self) -> tuple[str, ...]:
        """Return the notes of all components."""
        return tuple(f"{what}: {text}" for what, text in sorted(self._notes.items()))

    def add_liveness(self, what: str, probe: Probe) -> None:
        """Call the probe at each liveness check: None is alive, text is the reason for a restart of the process."""
        self._probes[what] = probe

    def readiness(self) -> Verdict:
        """Return whether all components are ready."""
        reasons = tuple(f"{what}: {reason}" for what, reason in sorted(self._bind_advice.items()))
        return Verdict(not reasons, reasons)

    def parts(self) -> dict[str, bool]:
        """Return for each component whether it is ready."""
        return {what: what not in self._bind_advice for what in sorted(self._known)}

    def liveness(self) -> Verdict:
        """Return whether no probe requires a restart."""
        answers = ((what, probe()) for what, probe in sorted(self._probes.items()))
        reasons = tuple(f"{what}: {redact_url(reason)}" for what, reason in answers if reason is not None)
        return Verdict(not reasons, reasons)

    def not_ready_seconds(self) -> float:
        """Return the seconds since the service became not ready, 0 if it is ready."""
        return 0.0 if self._not_ready_since is None else self._clock() - self._not_ready_since


class LoopLag:
    """Measures the delay of the event loop, with a timer every ``beat`` seconds."""

    def __init__(self, beat: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._beat = beat
        self._clock = clock
        self._worst = 0.0
        self._due = clock() + self._beat

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            self._due = self._clock() + self._beat
            await asyncio.sleep(self._beat)
            self._worst = self._current()

    def take(self) -> float:
        """Return the longest delay since the last call, in seconds, and reset it."""
        worst, self._worst = self._current(), 0.0
        # An ongoing delay is measured from now, so that two scrapes do not count the same delay.
        self._due = max(self._due, self._clock())
        return worst

    def _current(self) -> float:
        return max(self._worst, self._clock() - self._due, 0.0)


class HealthServer:
    """HTTP server of a process; it is ready when all its services are ready."""

    def __init__(
        self, metrics: Metrics, healths: Iterable[Health] = (), timings: HealthTimings = HealthTimings()
    ) -> None:
        self._timings = timings
        self._metrics = metrics
        self._healths = {health.service: health for health in healths}
        self._runner: web.AppRunner | None = None
        self._door: asyncio.Server | None = None
        self._beat: asyncio.Task[None] | None = None

    def add(self, health: Health) -> None:
        """Add a service."""
        self._healths[health.service] = health

    async def start(self, port: int, host: str | None = None) -> int:
        """Listen and return the port; 0 is any free port, host None is every address, IPv4 and IPv6.

        Raises:
            SettingsError: the port cannot be opened.
        """
        listener = _listen(port, host)
        lag = LoopLag(self._timings.beat)
        self._metrics.event_loop_lag_seconds.set_function(lag.take)
        self._beat = asyncio.create_task(lag.run(), name="event-loop-lag")
        self._runner = web.AppRunner(
            self._application(),
            access_log=None,
            shutdown_timeout=self._timings.shutdown,
            keepalive_timeout=self._timings.idle,
        )
        await self._runner.setup()
        server = self._runner.server
        assert server is not None  # there is one after setup
        self._door = await asyncio.get_running_loop().create_server(partial(_admit, server), sock=listener)
        bound: int = listener.getsockname()[1]
        return bound

    async def stop(self) -> None:
        """Stop listening; idempotent, also without a start."""
        beat, self._beat = self._beat, None
        runner, self._runner = self._runner, None
        door, self._door = self._door, None
        if door is not None:
            door.close()
        if beat is not None:
            beat.cancel()
            await asyncio.gather(beat, return_exceptions=True)
        if runner is not None:
            await runner.cleanup()

    def _application(self) -> web.Application:
        application = web.Application()
        application.router.add_get("/readyz", self._readyz)
        application.router.add_get("/livez", self._livez)
        application.router.add_get("/healthz", self._healthz)
        application.router.add_get("/metrics", self._metrics_text)
        return application

    async def _readyz(self, _: web.Request) -> web.Response:
        verdicts = {name: health.readiness() for name, health in self._healths.items()}
        # Without a service the process is still starting, so it is not ready.
        services = self._bodies(verdicts)
        return _answer(ok=bool(verdicts) and all(verdict.ok for verdict in verdicts.values()), services=services)

    async def _livez(self, _: web.Request) -> web.Response:
        verdicts = {name: health.liveness() for name, health in self._healths.items()}
        return _answer(ok=all(verdict.ok for verdict in verdicts.values()), services=self._bodies(verdicts))

    async def _healthz(self, _: web.Request) -> web.Response:
        """Answer like /livez, with the details of readiness."""
        verdicts = {name: health.liveness() for name, health in self._healths.items()}
        services = self._bodies(verdicts)
        for name, health in self._healths.items():
            ready = health.readiness()
            services[name] |= {
                "ready": ready.ok,
                "not_ready": list(ready.reasons),
                "not_ready_seconds": round(health.not_ready_seconds(), 1),
            }
        return _answer(ok=all(verdict.ok for verdict in verdicts.values()), services=services)

    def _bodies(self, verdicts: dict[str, Verdict]) -> dict[str, dict[str, object]]:
        bodies: dict[str, dict[str, object]] = {}
        for name, verdict in verdicts.items():
            bodies[name] = {"ok": verdict.ok, "reasons": list(verdict.reasons)}
            if notes := self._healths[name].notes():
                bodies[name]["notes"] = list(notes)
        return bodies

    async def _metrics_text(self, request: web.Request) -> web.Response:
        # Terms and watches add and remove components; a removed component leaves no series.
        self._metrics.part_ready.clear()
        for name, health in self._healths.items():
            for part, ready in health.parts().items():
                self._metrics.part_ready.labels(name, part).set(ready)
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(self._metrics.registry), headers={"Content-Type": content_type})


def _admit(server: web.Server) -> web.RequestHandler:
    """Return the handler of a new connection; closes the oldest connections if there are too many."""
    connections = server.connections
    for oldest in connections[: len(connections) + 1 - MOST_CONNECTIONS]:
        oldest.force_close()
    return server()


def _answer(*, ok: bool, services: dict[str, dict[str, object]]) -> web.Response:
    body = orjson.dumps({"ok": ok, "services": services}, option=orjson.OPT_APPEND_NEWLINE)
    return web.Response(body=body, status=200 if ok else 503, content_type="application/json")


def _listen(port: int, host: str | None) -> socket.socket:
    try:
        if host is not None:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            return socket.create_server((host, port), family=family)
        try:
            # One socket for both families, so that port 0 is the same port in both.
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
        except OSError as error:
            if error.errno in {errno.EADDRINUSE, errno.EACCES}:
                raise
            return socket.create_server(("", port))
    except OSError as error:
        raise SettingsError(f"TRELLIS_HEALTH_PORT: has {port}, {_bind_advice(error)}") from error


def _bind_advice(error: OSError) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return "needs a port that no other process uses, or 0 for any free one"
        case errno.EACCES:
            return "needs a port this user may open, e.g. 8080"
        case _:
            return f"cannot be opened: {error.strerror or error}"
