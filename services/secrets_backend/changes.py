"""Detects changes of granted Secrets.

In: grants. Out: ``secret.changed`` events. Called by ``answering``; runs in the background. Invariants: only metadata
is read, as the same user; an error, a denial and a deleted Secret do not count as changes; memory is bounded; an event
that NATS did not accept is published again.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from secrets_backend.timings import Timings
from trellis.bus.bus import Bus, BusUnavailable, EventRefused
from trellis.events.secrets import SecretChanged, SecretGranted, SecretUsers
from trellis.kube.client import Kube
from trellis.kube.errors import KubeError
from trellis.kube.resources import SECRETS
from trellis.telemetry import Telemetry, TraceContext, current_trace, get_logger, joined, linked

MOST_SECRETS: Final = 4096
MOST_HOLDERS: Final = 256
"""Hosts, groups and applications of one version of a Secret; the newest are kept."""
MOST_VERSIONS: Final = 4
"""Versions of a Secret whose holders are stored separately until a change is published; older ones are merged."""
_AT_ONCE: Final = 4

_log = get_logger(__name__)
T = TypeVar("T")
Version = tuple[str, str]
"""Uid and resourceVersion of a Secret."""


@dataclass(slots=True)
class Holders:
    """Holders of one version of a Secret; dicts are used as ordered sets."""

    hosts: dict[str, None] = field(default_factory=dict)
    groups: dict[tuple[str, str], None] = field(default_factory=dict)
    applications: dict[str, None] = field(default_factory=dict)

    def add(self, event: SecretGranted, groups: Iterable[tuple[str, str]]) -> None:
        """Record a holder."""
        _note(self.hosts, event.host)
        for group in groups:
            _note(self.groups, group)
        if event.application:
            _note(self.applications, event.application)

    def add_older(self, older: Holders) -> None:
        """Merge the holders of an older version; the newest are kept."""
        self.hosts = _newest(older.hosts, self.hosts)
        self.groups = _newest(older.groups, self.groups)
        self.applications = _newest(older.applications, self.applications)


@dataclass(slots=True)
class Given:
    """Granted versions of one Secret. ``user``: its last reader; ``trace``: of the last answers."""

    user: str = ""
    trace: TraceContext | None = None
    versions: dict[Version, Holders] = field(default_factory=dict)

    @property
    def answers(self) -> tuple[TraceContext, ...]:
        """The last answers, each in its own trace."""
        return () if self.trace is None else (self.trace, *self.trace.beside)


class Changes:
    """Checks granted Secrets for changes at an interval."""

    def __init__(self, kube: Kube, bus: Bus, telemetry: Telemetry, timings: Timings) -> None:
        self._kube = kube
        self._bus = bus
        self._telemetry = telemetry
        self._timings: Final = timings
        self._given: OrderedDict[tuple[str, str], Given] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of stored Secrets."""
        return len(self._given)

    def remember(self, event: SecretGranted, groups: Iterable[tuple[str, str]]) -> None:
        """Record a granted Secret, and the host groups (namespace, lattice) of the connection."""
        key = (event.namespace, event.name)
        given = self._given.setdefault(key, Given())
        self._given.move_to_end(key)
        given.user, given.trace = event.user, joined(given.trace, current_trace())
        given.versions.setdefault((event.uid, event.resource_version), Holders()).add(event, groups)
        if len(given.versions) > MOST_VERSIONS:
            oldest, second, *_ = given.versions
            given.versions[second].add_older(given.versions.pop(oldest))
        if len(self._given) > MOST_SECRETS:
            self._given.popitem(last=False)

    async def run(self) -> None:
        """Check for changes until cancelled."""
        while True:
            await asyncio.sleep(self._timings.changes)
            todo = list(self._given.items())
            async with asyncio.TaskGroup() as tasks:
                for start in range(_AT_ONCE):
                    tasks.create_task(self._look_at(todo[start::_AT_ONCE]), name="changes")

    async def _look_at(self, todo: list[tuple[tuple[str, str], Given]]) -> None:
        for place, given in todo:
            await self._look(place, given)

    async def _look(self, place: tuple[str, str], given: Given) -> None:
        try:
            kube = self._kube.acting_as(given.user)
            seconds = self._timings.change_read
            found = await kube.get(SECRETS, place[1], place[0], metadata=True, timeout=seconds)
        except KubeError:
            return
        now = (str(found["metadata"]["uid"]), str(found["metadata"]["resourceVersion"]))
        former = {version: holders for version, holders in given.versions.items() if version != now}
        if not former:
            return
        event = changed(place, now, former.values())
        attributes = {"k8s.namespace.name": place[0], "k8s.object.name": place[1]}
        try:
            with linked(self._telemetry, "secret changed", given.answers, attributes):
                await self._bus.publish(event, dedup=f"{event.uid}.{event.resource_version}.changed.{_digest(event)}")
        except BusUnavailable:
            return
        except EventRefused as error:
            _log.error(
                "event of a changed Secret not published", namespace=event.namespace, name=event.name, error=str(error)
            )
        else:
            _log.info("granted Secret changed", namespace=event.namespace, name=event.name)
        for version in former:
            given.versions.pop(version, None)


def changed(place: tuple[str, str], now: Version, former: Iterable[Holders]) -> SecretChanged:
    """Return the event for the holders of former versions of a Secret."""
    holders = list(former)
    return SecretChanged(
        namespace=place[0],
        name=place[1],
        uid=now[0],
        resource_version=now[1],
        hosts=sorted({host for holder in holders for host in holder.hosts}),
        groups=[
            SecretUsers(namespace=namespace, lattice=lattice)
            for namespace, lattice in sorted({group for holder in holders for group in holder.groups})
        ],
        applications=sorted({name for holder in holders for name in holder.applications}),
    )


def _digest(event: SecretChanged) -> str:
    """Return a digest of the event, as the event of each replica has other holders."""
    return hashlib.sha256(event.model_dump_json().encode()).hexdigest()[:16]


def _note(found: dict[T, None], what: T) -> None:
    found.pop(what, None)
    found[what] = None
    if len(found) > MOST_HOLDERS:
        del found[next(iter(found))]


def _newest(older: dict[T, None], newer: dict[T, None]) -> dict[T, None]:
    both = [item for item in older if item not in newer] + [*newer]
    return dict.fromkeys(both[-MOST_HOLDERS:])
