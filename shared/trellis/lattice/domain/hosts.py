"""The hosts of one lattice, from their heartbeats.

Pure: messages and times in, hosts and their state out. Called by ``trellis.lattice.follow.host_watch``. Invariants: a
host is silent only if this connection was able to receive its heartbeats; a later message of a host wins over an
earlier one, in any order of arrival; invalid data changes nothing. Source: ``com.wasmcloud.lattice.host_heartbeat`` of
wasmCloud 1.x, the answer of ``host.get`` has the same shape.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from trellis.lattice.domain.reading import LatticeDataError, number, text, texts
from trellis.lattice.timings import LatticeTimings

MAX_HOSTS: Final = 5_000
"""Of one lattice. Whoever may publish on its NATS can invent hosts; more than this are not kept."""

MAX_CHARACTERS: Final = 32 * 2**20
"""Of what all hosts of one lattice say of themselves; hosts beyond are not kept."""

UNITS_KEPT: Final = 200
"""Components, and providers, of one host; a heartbeat may have 1 MiB of them."""
LABELS_KEPT: Final = 64
TEXT_KEPT: Final = 512
_ID_MAX: Final = 256

_UPTIME_MAX: Final = 2**31 - 1
"""Seconds that a host may report, 68 years: a time in the past can be reckoned from it."""

APPLICATION: Final = "wasmcloud.dev/appspec"
"""Annotation that wadm gives what it starts: the application's name."""


class Presence(StrEnum):
    """What is known of a host."""

    PRESENT = "Present"
    SILENT = "Silent"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class Unit:
    """A component or a provider that runs on a host. ``instances`` is the most a component may have."""

    id: str
    image: str = ""
    application: str = ""
    instances: int | None = None


@dataclass(frozen=True, slots=True)
class Host:
    """A host, as it describes itself."""

    id: str
    name: str = ""
    version: str = ""
    uptime_seconds: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    components: tuple[Unit, ...] = ()
    providers: tuple[Unit, ...] = ()

    @property
    def applications(self) -> tuple[str, ...]:
        """Names of the applications that something on this host belongs to."""
        return tuple(sorted({unit.application for unit in (*self.components, *self.providers)} - {""}))

    @property
    def characters(self) -> int:
        """How much it says."""
        labels = sum(len(name) + len(value) for name, value in self.labels.items())
        units = (*self.components, *self.providers)
        told = sum(len(unit.id) + len(unit.image) + len(unit.application) for unit in units)
        return len(self.id) + len(self.name) + len(self.version) + labels + told


@dataclass(frozen=True, slots=True)
class Sighting:
    """A host and when it was last heard, in seconds of the monotonic clock.

    ``said``: its own time of what it says here, "" if it named none; ``behind``: for how long no news of it came, as
    what was heard since had been said before that.
    """

    host: Host
    at: float
    said: str = ""
    behind: float = 0.0

    @property
    def told(self) -> float:
        """When it said this, in seconds of the monotonic clock."""
        return self.at - self.behind

    def heard_again(self, now: float) -> Sighting:
        """Return it as heard now, with what it said before."""
        return replace(self, at=now, behind=now - self.told)


class Hosts:
    """What is known of one lattice's hosts; the caller says what time it is.

    ``silence``: seconds without a heartbeat after which a host is silent.
    """

    def __init__(self, silence: float = LatticeTimings().silence) -> None:
        self._silence = silence
        self._seen: dict[str, Sighting] = {}
        self._characters = 0
        self.refused = False
        """Whether there was no room for a host since the last one went."""

    def __len__(self) -> int:
        return len(self._seen)

    def heard(self, host: Host, now: float, said: str = "") -> bool:
        """A host described itself, at a time as of ``said_at``; return whether anything but its uptime is new."""
        before = self._seen.get(host.id)
        if before is not None and is_late(said, before.said, now - before.told, self._silence):
            self._seen[host.id] = before.heard_again(now)
            return False
        characters = self._characters + host.characters - (before.host.characters if before is not None else 0)
        if characters > MAX_CHARACTERS or (before is None and len(self._seen) >= MAX_HOSTS):
            self.refused = True
            if before is not None:
                self._seen[host.id] = before.heard_again(now)
            return False
        self._characters = characters
        self._seen[host.id] = Sighting(host, now, said)
        return before is None or _without_uptime(before.host) != _without_uptime(host)

    def left(self, host_id: str, now: float = 0.0, said: str = "") -> bool:
        """A host said that it stops; return whether it was known, and has not said anything else since."""
        before = self._seen.get(host_id)
        if before is not None and is_late(said, before.said, now - before.told, self._silence):
            return False
        gone = self._seen.pop(host_id, None)
        if gone is not None:
            self._characters -= gone.host.characters
            self.refused = False
        return gone is not None

    def sightings(self) -> tuple[Sighting, ...]:
        """Every host that is known, in the order of their ids."""
        return tuple(self._seen[key] for key in sorted(self._seen))

    def presence(self, host_id: str, now: float, linked_since: float | None) -> Presence:
        """Return what is known of a host.

        Args:
            host_id: of a host, known or not.
            now: seconds of the monotonic clock.
            linked_since: since when our link has been there without a break, None if it is not.
        """
        seen = self._seen.get(host_id)
        return presence_of(None if seen is None else seen.at, now, linked_since, self._silence)

    def forget_silent(self, now: float, linked_since: float | None) -> tuple[Host, ...]:
        """Forget every host that is silent, and return them: they are gone."""
        gone = [host_id for host_id in self._seen if self.presence(host_id, now, linked_since) is Presence.SILENT]
        hosts = tuple(self._seen[host_id].host for host_id in sorted(gone))
        for host in hosts:
            self.left(host.id)
        return hosts


def is_late(said: str, newest: str, since: float, silence: float) -> bool:
    """Return whether a host's word comes after a later one of it, ``since`` seconds ago.

    Not for longer than ``silence``, until it is silent: clocks are set back.
    """
    return "" < said < newest and since <= silence


def presence_of(heard: float | None, now: float, linked_since: float | None, silence: float) -> Presence:
    """Return what a time without a heartbeat means; ``heard`` is None for a host that was never heard.

    It counts from when our link was there to hear one: what was missed while it was unreachable proves nothing.
    """
    if linked_since is None:
        return Presence.UNKNOWN
    if heard is not None and now - heard <= silence:
        return Presence.PRESENT
    return Presence.SILENT if now - linked_since > silence else Presence.UNKNOWN


def read_host(data: object) -> Host:
    """Return the host that a heartbeat's data, or the answer of ``host.get``, describes.

    What is longer or more than anybody needs to see of a host is cut; the order of what runs there tells nothing.

    Raises:
        LatticeDataError: it is no description of a host.
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
