"""Compares the known applications of a lattice with wadm: at the start, after reconnects, after some events.

In: a connection, the address of a lattice. Out: its applications, the hosts of their providers, and notifications of
changes. Called by ``trellis.lattice.follow.lattice_watches`` for each watch. Invariants: an event takes effect in the
same turn of the event loop; wadm is queried only for what events do not prove: a deletion at once, the rest when events
are quiet; an unreadable manifest is queried with increasing delays; a failed query removes nothing (see
``applications``); invalid data changes nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, Final

import orjson

from trellis.bus.connection import cancellation
from trellis.lattice.connection.address import LatticeAddress
from trellis.lattice.connection.lattice_connection import LatticeConnection, NatsUnavailableError
from trellis.lattice.domain.applications import Applications
from trellis.lattice.domain.hosts import APPLICATION
from trellis.lattice.domain.manifests import Application, read_application
from trellis.lattice.domain.models import read_manifest, read_models
from trellis.lattice.domain.provider_hosts import ProviderHosts
from trellis.lattice.domain.reading import LatticeDataError, event_time, host_data, read_event, text, texts
from trellis.lattice.domain.subjects import (
    CONFIG_DELETED,
    CONFIG_SET,
    MANIFEST_PUBLISHED,
    MANIFEST_UNPUBLISHED,
    PROVIDER_STARTED,
    PROVIDER_STOPPED,
    event_subjects,
    model_get_subject,
    model_list_subject,
    wadm_event_of,
    wadm_events_subject,
)
from trellis.lattice.timings import LatticeTimings
from trellis.lattice.wadm.configurations import NamedConfigurations
from trellis.lattice.wakeup import Wakeup
from trellis.limits.backoff import Backoff
from trellis.telemetry import TraceContext, get_logger
from trellis.telemetry.tracing import trace_from

_CONCURRENT_REQUESTS: Final = 16

ALL: Final = ""
"""In place of a name: all applications changed."""

Changed = Callable[[Iterable[str], TraceContext | None], None]
"""Called in the event loop with the names of changed applications."""

_log = get_logger(__name__)


class Comparison:
    """``applications`` and ``running``: the current state; ``reason``: why wadm does not answer, "" if it does."""

    def __init__(
        self,
        address: LatticeAddress,
        connection: LatticeConnection,
        changed: Changed,
        timings: LatticeTimings = LatticeTimings(),
    ) -> None:
        self.applications: Final = Applications(timings=timings.comparison)
        self.running: Final = ProviderHosts(timings.silence)
        self.reason = "wadm not queried yet"
        self.last_message_at = time.monotonic()
        """Time of the last message of the lattice, monotonic seconds; initially the time of creation."""
        self._address = address
        self._timings = timings.comparison
        self._report = timings.report
        self._of = (address.lattice, address.account)
        self._configurations = NamedConfigurations(address, connection, timings.comparison)
        self._manifests: dict[str, object] = {}  # of applications that name configurations
        self._connection = connection
        self._changed = changed
        self.queried = False
        """True after the first query of wadm."""
        self._wanted = True
        self._wakeup = Wakeup()
        self._confirming = False
        """True while it waits for a query that confirms events: a further event only delays that query."""
        self._rests_until = 0.0
        self._queried_on: float | None = None
        self._events_missing = False
        self._received_something = True
        self._invalid_logged = -self._report
        self._unavailable = True
        """True if a query of the last comparison had no answer."""
        self._garbled = False
        """True if the answer about an application was invalid."""
        self._unread = 0
        """Number of consecutive comparisons with an invalid answer."""
        self._failure = ""
        """The last failure of the current comparison, "" if there is none."""
        self._backoff = Backoff(self._timings.again, self._timings.every)

    def connection_changed(self) -> None:
        """Query everything again after a reconnect."""
        if self._connection.since is not None and self._connection.since != self._queried_on:
            self._configurations.invalidate_all()
            self._want()

    def _want(self) -> None:
        """Request a query of wadm as soon as possible."""
        self._wanted = True
        self._wakeup.set()

    async def run(self) -> None:
        """Compare until cancelled."""
        lattice, account = self._of
        listeners = {
            PROVIDER_STARTED: self._on_provider,
            PROVIDER_STOPPED: self._on_provider,
            CONFIG_SET: self._on_configuration,
            CONFIG_DELETED: self._on_configuration,
        }
        subscriptions = [(wadm_events_subject(lattice), self._on_wadm)]
        for event, listener in listeners.items():
            subscriptions += [(subject, listener) for subject in event_subjects(lattice, event, account)]
        try:
            for subject, listener in subscriptions:
                await self._connection.listen(subject, listener)
            while True:
                cancellation.check()
                await self._connection.there()
                await self._compare()
                await self._rest()
        finally:
            for subject, listener in subscriptions:
                await self._connection.ignore(subject, listener)

    async def _rest(self) -> None:
        """Wait until the next query of wadm is due; several events cause one query."""
        until = time.monotonic() + self._pause()
        while not self._wanted:
            self._wakeup.clear()
            now = time.monotonic()
            confirm_in = self.applications.recheck_in(now)
            self._confirming = confirm_in is not None
            # While wadm does not answer, unconfirmed events do not shorten the wait.
            left = until - now if confirm_in is None or self._unavailable else min(until - now, confirm_in)
            if left <= 0:
                if confirm_in is None:
                    self._configurations.invalidate_all()
                break
            await self._wakeup.wait(left)
        await asyncio.sleep(max(self._timings.settle, self._rests_until - time.monotonic()))

    def _pause(self) -> float:
        """Return the seconds until the next query of wadm without events."""
        if self._unavailable:
            return self._timings.again
        usual = self._timings.events_missing if self._events_missing else self._timings.every
        return min(usual, self._backoff.bound(self._unread)) if self._unread else usual

    async def _compare(self) -> None:
        """Query the applications of wadm, and the missing manifests."""
        self._wanted, began = False, time.monotonic()
        on_another = self._queried_on != self._connection.since
        expected = self._received_something or on_another or self.applications.recheck_in(time.monotonic()) is not None
        self._received_something = False
        self._queried_on = self._connection.since
        self._unavailable = self._garbled = False
        failed_before, self._failure = bool(self._failure), ""
        events_at_query, before, trouble = self.applications.events, self._shown(), (self.queried, bool(self.reason))
        try:
            models = read_models(
                await self._connection.ask(model_list_subject(*self._of), seconds=self._timings.answer)
            )
        except (NatsUnavailableError, LatticeDataError) as error:
            self._unavailable = True
            self._failure = str(error)
            self.applications.refused(events_at_query)
        else:
            self.last_message_at = time.monotonic()
            self.applications.listed(models, events_at_query, time.monotonic())
            await self._get(events_at_query)
            await self._follow_configurations()
        self._unread = self._unread + 1 if self._garbled else 0
        self.queried, self.reason = True, self._failure
        if self._failure and not failed_before:
            _log.warning(
                "wadm does not list the applications of the lattice, keeping the known ones",
                lattice=self._address.name,
                reason=self._failure,
            )
        took = time.monotonic() - began
        self._rests_until = time.monotonic() + min(self._timings.rest * took, self._timings.unconfirmed)
        after = self._shown()
        changed_names = [name for name in before.keys() | after.keys() if before.get(name) != after.get(name)]
        if changed_names:
            self._events_missing = self._events_missing or not (expected or self._received_something)
            self._changed(changed_names, None)
        elif (self.queried, bool(self.reason)) != trouble:
            self._changed([ALL], None)

    def _shown(self) -> dict[str, object]:
        """Return the public state of each application by name; under ``ALL``, whether the list is complete."""
        state = self.applications
        shown: dict[str, object] = {name: (item.application, state.absent(name)) for name, item in state.known.items()}
        return shown | {ALL: state.complete}

    async def _get(self, events_at_query: int) -> None:
        """Query the missing manifests of deployed applications."""
        gate = asyncio.Semaphore(_CONCURRENT_REQUESTS)

        async def get_application(name: str, version: str) -> None:
            async with gate:
                try:
                    lattice, account = self._of
                    subject = model_get_subject(lattice, name, account)
                    answer = await self._connection.ask(
                        subject, orjson.dumps({"version": version}), seconds=self._timings.answer
                    )
                    application = await self._resolved(read_manifest(answer))
                except (NatsUnavailableError, LatticeDataError, ValueError) as error:
                    self._missed(error)
                    self._failure = f"application {name}: {error}"  # it stays wanted, with its former state
                else:
                    self.applications.got(application, events_at_query)

        await asyncio.gather(*(get_application(*wanted) for wanted in list(self.applications.wanted.items())))

    async def _resolved(self, manifest: object) -> Application:
        """Return the application of a manifest, with its named configurations.

        Raises:
            NatsUnavailableError, LatticeDataError: a configuration could not be read.
        """
        application = read_application(manifest, self._configurations.known)
        if not application.configurations:
            return application
        await self._configurations.read(application.configurations)
        self._manifests[application.name] = manifest
        return read_application(manifest, self._configurations.known)

    async def _follow_configurations(self) -> None:
        """Read configurations of deployed applications that may have changed; an unreadable one changes nothing."""
        deployed = self.applications.deployed()
        self._manifests = {name: item for name, item in self._manifests.items() if name in deployed}
        named = {configuration for name in self._manifests for configuration in deployed[name].configurations}
        self._configurations.keep(named)
        try:
            await self._configurations.read(named)
        except (NatsUnavailableError, LatticeDataError) as error:
            self._missed(error)
            self._failure = f"configurations: {error}"
        for manifest in self._manifests.values():
            self.applications.reread(read_application(manifest, self._configurations.known))

    def _on_wadm(self, subject: str, payload: bytes) -> None:
        self.last_message_at = time.monotonic()
        self._events_missing, self._received_something = False, True
        if self._address.account:
            self._want()  # wadm publishes the same subject for the lattice of this name of every tenant
            return
        try:
            self._take(wadm_event_of(subject), read_event(payload))
        except LatticeDataError as error:
            self._want()
            self._log_invalid(subject, error)
        if not self._confirming:
            self._wakeup.set()

    def _take(self, event: str, envelope: dict[str, Any]) -> None:
        """Process an event of wadm.

        Raises:
            LatticeDataError: the event is invalid.
        """
        published_at, data = _time_of(envelope), envelope["data"]
        if event == MANIFEST_PUBLISHED:
            application = read_application(data, self._configurations.known)
            if not self._configurations.known.keys() >= set(application.configurations):
                self._want()  # its listen address is unknown: the query also reads its configurations
                return
            if application.configurations:
                self._manifests[application.name] = data
            if self.applications.published(application, published_at, time.monotonic()):
                self._changed([application.name], _trace_of(envelope))
        elif event == MANIFEST_UNPUBLISHED and self.applications.unpublished(
            text(data, "name", required=True), published_at, time.monotonic()
        ):
            self._want()

    def _on_configuration(self, subject: str, payload: bytes) -> None:
        try:
            if self._configurations.invalidate(text(read_event(payload)["data"], "config_name", required=True)):
                self._want()
        except LatticeDataError as error:
            self._log_invalid(subject, error)

    def _on_provider(self, subject: str, payload: bytes) -> None:
        self.last_message_at = time.monotonic()
        try:
            envelope = read_event(payload)
            data, published_at = host_data(envelope), event_time(envelope)
            host, provider = text(data, "host_id", required=True), text(data, "provider_id", required=True)
            application = texts(data, "annotations").get(APPLICATION, "")
            started = subject.endswith(PROVIDER_STARTED)
            if self.running.record(provider, host, started, time.monotonic(), published_at):
                self._changed([application] if application else list(self.applications.known), _trace_of(envelope))
        except LatticeDataError as error:
            self._log_invalid(subject, error)

    def _missed(self, error: Exception) -> None:
        if isinstance(error, NatsUnavailableError):
            self._unavailable = True
        else:
            self._garbled = True

    def _log_invalid(self, subject: str, error: LatticeDataError) -> None:
        now = time.monotonic()
        if now - self._invalid_logged >= self._report:
            self._invalid_logged = now
            _log.warning(
                "skipped an invalid lattice message",
                lattice=self._address.name,
                subject=subject,
                reason=str(error),
            )


def _time_of(envelope: dict[str, Any]) -> str:
    """Return the time of an event of wadm, or the current time if it has none.

    Raises:
        LatticeDataError: the time is invalid.
    """
    found = event_time(envelope if envelope.get("time") is not None else {"time": datetime.now(UTC).isoformat()})
    if not found:
        raise LatticeDataError("`time` is not an RFC 3339 time")
    return found


def _trace_of(envelope: dict[str, Any]) -> TraceContext | None:
    trace = envelope.get("traceparent")
    return trace_from(trace) if isinstance(trace, str) else None
