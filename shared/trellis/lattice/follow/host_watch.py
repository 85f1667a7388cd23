"""The hosts of one lattice, from their heartbeats and answers.

In: a connection and the name of a lattice. Out: the current hosts, and notifications of changes. Called by
``trellis.lattice.follow.lattice_watches``. Invariants: hosts are known within a second of a connect, because they are
queried; a lost connection removes nothing; invalid messages are counted, logged once a minute, and change nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from trellis.bus.connection import cancellation
from trellis.lattice.connection.address import LatticeAddress
from trellis.lattice.connection.lattice_connection import LatticeConnection, NatsUnavailableError
from trellis.lattice.domain.hosts import MAX_HOSTS, Host, Hosts, Sighting, read_host
from trellis.lattice.domain.reading import LatticeDataError, decoded, event_time, host_data, read_event, text
from trellis.lattice.domain.subjects import (
    HOST_EVENTS,
    HOST_STOPPED,
    event_of,
    event_subjects,
    host_get_subject,
    host_ping_subject,
)
from trellis.lattice.timings import LatticeTimings
from trellis.lattice.wakeup import Wakeup
from trellis.telemetry import get_logger

_STOPPED_NAMED: Final = 3
_CONCURRENT_REQUESTS: Final = 16

_log = get_logger(__name__)


class HostWatch:
    """``changed`` is called in the event loop when the hosts change, except for their uptime.

    ``settled``: the first query of the hosts is complete, or failed; until then an empty list has no meaning.
    """

    def __init__(
        self,
        address: LatticeAddress,
        connection: LatticeConnection,
        changed: Callable[[], None],
        timings: LatticeTimings = LatticeTimings(),
    ) -> None:
        self._timings = timings.hosts
        self._report = timings.report
        self._address = address
        self._connection = connection
        self._changed = changed
        self._hosts = Hosts(timings.silence)
        self._queried_on: float | None = None
        self._queried = False
        self._ask = Wakeup()
        self._invalid_logged = -self._report

    @property
    def settled(self) -> bool:
        """True after the first query of the hosts, successful or not."""
        return self._queried or (self._connection.tried and self._connection.since is None)

    @property
    def refused(self) -> bool:
        """True if hosts were dropped because of the limits."""
        return self._hosts.refused

    def hosts(self) -> tuple[Sighting, ...]:
        """Return the current hosts."""
        return self._hosts.sightings()

    def connection_changed(self) -> None:
        """Query the hosts again after a reconnect."""
        self._ask.set()

    async def run(self) -> None:
        """Watch until cancelled."""
        lattice, account = self._address.lattice, self._address.account
        subjects = [subject for event in HOST_EVENTS for subject in event_subjects(lattice, event, account)]
        try:
            for subject in subjects:
                await self._connection.listen(subject, self._on_host)
            self._ask.set()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._forget())
                tasks.create_task(self._ask_on_each_connection())
        finally:
            for subject in subjects:
                await self._connection.ignore(subject, self._on_host)

    def _on_host(self, subject: str, payload: bytes) -> None:
        try:
            event = read_event(payload)
            data, published_at = host_data(event), event_time(event)
            if event_of(subject) == HOST_STOPPED:
                is_changed = self._hosts.left(text(data, "host_id", required=True), time.monotonic(), published_at)
            elif "version" in data:
                is_changed = self._process(read_host(data), published_at)
            else:  # host_started of old hosts contains little more than a name
                return
        except LatticeDataError as error:
            self._log_invalid(subject, error)
            return
        if is_changed:
            self._changed()

    def _process(self, host: Host, published_at: str = "") -> bool:
        full = self._hosts.refused
        is_changed = self._hosts.process(host, time.monotonic(), published_at)
        if self._hosts.refused and not full:
            _log.warning(
                "lattice exceeds the limits for hosts and their data, ignoring the rest",
                lattice=self._address.lattice,
                hosts=len(self._hosts),
            )
        return is_changed

    async def _forget(self) -> None:
        while True:
            await asyncio.sleep(max(self._timings.tick, self._hosts.stale_in(time.monotonic())))
            deleted = self._hosts.remove_stale(time.monotonic(), self._connection.since)
            if deleted:
                named = [host.id for host in deleted[:_STOPPED_NAMED]]
                _log.info(
                    "hosts missed their heartbeats, treating them as stopped",
                    lattice=self._address.lattice,
                    count=len(deleted),
                    examples=named,
                )
                self._changed()

    async def _ask_on_each_connection(self) -> None:
        while True:
            cancellation.check()
            await self._ask.wait()
            self._ask.clear()
            if self._connection.since is None or self._connection.since == self._queried_on:
                continue
            self._queried_on = self._connection.since
            await self._ask_hosts()
            if not self._queried:
                self._queried = True
                self._changed()

    async def _ask_hosts(self) -> None:
        """Query the descriptions of all hosts within a time limit; heartbeats provide them within 30 s."""
        lattice, prefix = self._address.lattice, self._address.control_prefix
        try:
            ping = host_ping_subject(lattice, prefix)
            answers = await self._connection.ask_all(ping, seconds=self._timings.ping, most=MAX_HOSTS)
        except NatsUnavailableError:
            return
        gate = asyncio.Semaphore(_CONCURRENT_REQUESTS)

        async def ask_host(host_id: str) -> bool:
            async with gate:
                try:
                    subject = host_get_subject(lattice, host_id, prefix)
                    answer = decoded(await self._connection.ask(subject, seconds=self._timings.answer))
                    return self._process(read_host(_response(answer)))
                except LatticeDataError as error:
                    self._log_invalid("host.get", error)
                except (NatsUnavailableError, ValueError):
                    pass  # its heartbeat follows
                return False

        known = len(self._hosts)
        try:
            async with asyncio.timeout(self._timings.all):
                is_changed = any(await asyncio.gather(*(ask_host(host_id) for host_id in self._host_ids(answers))))
        except TimeoutError:
            _log.info("not every host answered in time, waiting for heartbeats", lattice=lattice)
            is_changed = len(self._hosts) != known
        if is_changed:
            self._changed()

    def _host_ids(self, answers: list[bytes]) -> list[str]:
        ids: set[str] = set()
        for answer in answers:
            try:
                response = _response(decoded(answer))
                if isinstance(response, dict):
                    ids.add(text(response, "id") or text(response, "host_id", required=True))
            except LatticeDataError as error:
                self._log_invalid("host.ping", error)
        return sorted(ids)

    def _log_invalid(self, subject: str, error: LatticeDataError) -> None:
        now = time.monotonic()
        if now - self._invalid_logged >= self._report:
            self._invalid_logged = now
            _log.warning(
                "skipped an invalid lattice message",
                lattice=self._address.lattice,
                subject=subject,
                reason=str(error),
            )


def _response(answer: object) -> object:
    """Return the response in an answer of the control interface.

    Raises:
        LatticeDataError: the answer is invalid, or an error.
    """
    if not isinstance(answer, dict):
        raise LatticeDataError("an answer of the control interface is not an object")
    if answer.get("success") is False:
        raise LatticeDataError(f"the host reports: {text(answer, 'message') or 'an error without a message'}")
    return answer.get("response")
