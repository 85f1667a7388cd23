"""The hosts of one lattice, from their heartbeats.

Pure: messages and times in, hosts and their state out. Called by ``trellis.lattice.follow.host_watch``. Invariants: a
heartbeat counts as missing only if this connection was able to receive it; a later message of a host wins over an
earlier one, in any order of arrival; invalid data changes nothing. Source: ``com.wasmcloud.lattice.host_heartbeat`` of
wasmCloud 1.x; the answer of ``host.get`` has the same shape.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from trellis.lattice.domain.reading import LatticeDataError, number, text, texts
from trellis.lattice.timings import LatticeTimings

MAX_HOSTS: Final = 5_000
"""Limit per lattice: any client with permission to publish on its NATS can invent hosts. Further ones are dropped."""

MAX_CHARACTERS: Final = 32 * 2**20
"""Limit on the descriptions of all hosts of a lattice, in characters; further hosts are dropped."""

UNITS_KEPT: Final = 200
"""Limit on the components, and on the providers, of one host; a heartbeat may have 1 MiB of them."""
LABELS_KEPT: Final = 64
TEXT_KEPT: Final = 512
_ID_MAX: Final = 256

_UPTIME_MAX: Final = 2**31 - 1
"""Maximum uptime in seconds, 68 years: a valid start time can be computed from it."""

APPLICATION: Final = "wasmcloud.dev/appspec"
"""Annotation with the name of the application, which wadm sets on the components that it starts."""


class Presence(StrEnum):
    """Presence of a host. HEARTBEAT_MISSING: after the timeout; UNKNOWN: it could not be received."""

    PRESENT = "Present"
    HEARTBEAT_MISSING = "HeartbeatMissing"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class Unit:
    """A component or a provider on a host. ``instances``: maximum number of instances of a component."""

    id: str
    image: str = ""
    application: str = ""
    instances: int | None = None


@dataclass(frozen=True, slots=True)
class Host:
    """The description of a host by itself."""

    id: str
    name: str = ""
    version: str = ""
    uptime_seconds: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    components: tuple[Unit, ...] = ()
    providers: tuple[Unit, ...] = ()

    @property
    def applications(self) -> tuple[str, ...]:
        """Names of the applications of the components and providers on this host."""
        return tuple(sorted({unit.application for unit in (*self.components, *self.providers)} - {""}))

    @property
    def characters(self) -> int:
        """Size of the description in characters."""
        labels = sum(len(name) + len(value) for name, value in self.labels.items())
        units = (*self.components, *self.providers)
        received_at = sum(len(unit.id) + len(unit.image) + len(unit.application) for unit in units)
        return len(self.id) + len(self.name) + len(self.version) + labels + received_at


@dataclass(frozen=True, slots=True)
class Sighting:
    """A host and the arrival of its last message, in seconds of the monotonic clock.

    ``published_at``: time of the description by the clock of the host, "" if it has none; ``behind``: seconds between
    the description and the last message; messages in between were older than the description.
    """

    host: Host
    at: float
    published_at: str = ""
    behind: float = 0.0

    @property
    def received_at(self) -> float:
        """Arrival of the description, in seconds of the monotonic clock."""
        return self.at - self.behind

    def seen_again(self, now: float) -> Sighting:
        """Return the same description with a message received now."""
        return replace(self, at=now, behind=now - self.received_at)


class Hosts:
    """The hosts of one lattice; the caller passes the time.

    ``silence``: seconds without a heartbeat after which a host counts as stopped.
    """

    def __init__(self, silence: float = LatticeTimings().silence) -> None:
        self._silence = silence
        self._seen: dict[str, Sighting] = {}
        self._characters = 0
        self.refused = False
        """True if a host was dropped because of the limits since the last one was removed."""

    def __len__(self) -> int:
        return len(self._seen)

    def process(self, host: Host, now: float, published_at: str = "") -> bool:
        """Process a description of a host, published at an ``event_time``; return whether more than uptime differs."""
        before = self._seen.get(host.id)
        if before is not None and is_late(published_at, before.published_at, now - before.received_at, self._silence):
            self._seen[host.id] = before.seen_again(now)
            return False
        characters = self._characters + host.characters - (before.host.characters if before is not None else 0)
        if characters > MAX_CHARACTERS or (before is None and len(self._seen) >= MAX_HOSTS):
            self.refused = True
            if before is not None:
                self._seen[host.id] = before.seen_again(now)
            return False
        self._characters = characters
        self._seen[host.id] = Sighting(host, now, published_at)
        return before is None or _without_uptime(before.host) != _without_uptime(host)

    def left(self, host_id: str, now: float = 0.0, published_at: str = "") -> bool:
        """Remove a host after its stop event; return whether it existed and sent no later message."""
        before = self._seen.get(host_id)
        if before is not None and is_late(published_at, before.published_at, now - before.received_at, self._silence):
            return False
        deleted = self._seen.pop(host_id, None)
        if deleted is not None:
            self._characters -= deleted.host.characters
            self.refused = False
        return deleted is not None

    def sightings(self) -> tuple[Sighting, ...]:
        """Return all hosts, ordered by their IDs."""
        return tuple(self._seen[key] for key in sorted(self._seen))

    def presence(self, host_id: str, now: float, connected_since: float | None) -> Presence:
        """Return the presence of a host.

        Args:
            host_id: ID of a host, which may be unknown.
            now: seconds of the monotonic clock.
            connected_since: start of the uninterrupted lattice connection, None if it is unreachable.
        """
        seen = self._seen.get(host_id)
        return presence_of(None if seen is None else seen.at, now, connected_since, self._silence)

    def stale_in(self, now: float) -> float:
        """Return the seconds until a heartbeat can be missing: of a known host, or of one whose first one comes now."""
        return min((seen.at for seen in self._seen.values()), default=now) + self._silence - now

    def remove_stale(self, now: float, connected_since: float | None) -> tuple[Host, ...]:
        """Remove and return the hosts whose heartbeat is missing: they count as stopped."""
        deleted = [
            host_id
            for host_id in self._seen
            if self.presence(host_id, now, connected_since) is Presence.HEARTBEAT_MISSING
        ]
        hosts = tuple(self._seen[host_id].host for host_id in sorted(deleted))
        for host in hosts:
            self.left(host.id)
        return hosts


def is_late(published_at: str, newest: str, since: float, silence: float) -> bool:
    """Return whether a message of a host is older than its newest one, which arrived ``since`` seconds ago.

    False if ``since`` exceeds ``silence``, because the clock of the host may have been set back.
    """
    return "" < published_at < newest and since <= silence


def presence_of(last_message_at: float | None, now: float, connected_since: float | None, silence: float) -> Presence:
    """Return the presence of a host by the time of its last message, None if there was none.

    The time counts from the start of the lattice connection: heartbeats missed during an outage prove nothing.
    """
    if connected_since is None:
        return Presence.UNKNOWN
    if last_message_at is not None and now - last_message_at <= silence:
        return Presence.PRESENT
    return Presence.HEARTBEAT_MISSING if now - connected_since > silence else Presence.UNKNOWN


def read_host(data: object) -> Host:
    """Return the host described by the data of a heartbeat, or by the answer of ``host.get``.

    Long texts and lists are cut; components and providers are sorted, because their order has no meaning.

    Raises:
        LatticeDataError: the data is not the description of a host.
    """
    if not isinstance(data, dict):
        raise LatticeDataError("a host's description is not an object")
    host_id = text(data, "host_id", required=True)
    if len(host_id) > _ID_MAX:
        raise LatticeDataError(f"`host_id` has more than {_ID_MAX} characters")
    labels = sorted(texts(data, "labels").items())[:LABELS_KEPT]
    return Host(
        id=host_id,
        name=text(data, "friendly_name")[:TEXT_KEPT],
        version=text(data, "version")[:TEXT_KEPT],
        uptime_seconds=min(number(data, "uptime_seconds") or 0, _UPTIME_MAX),
        labels={name[:TEXT_KEPT]: value[:TEXT_KEPT] for name, value in labels},
        components=_units(data, "components"),
        providers=_units(data, "providers"),
    )


def _units(data: Mapping[str, Any], key: str) -> tuple[Unit, ...]:
    listed = data.get(key) or []
    if not isinstance(listed, list) or not all(isinstance(item, dict) for item in listed):
        raise LatticeDataError(f"`{key}` is not a list of objects")
    units = (
        Unit(
            id=text(item, "id")[:TEXT_KEPT],
            image=text(item, "image_ref")[:TEXT_KEPT],
            application=texts(item, "annotations").get(APPLICATION, "")[:TEXT_KEPT],
            instances=number(item, "max_instances"),
        )
        for item in listed
    )
    return tuple(sorted(units, key=lambda unit: (unit.id, unit.image, unit.application))[:UNITS_KEPT])


def _without_uptime(host: Host) -> tuple[object, ...]:
    return host.id, host.name, host.version, host.labels, host.components, host.providers
