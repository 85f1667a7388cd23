"""The hosts that run a provider, from host descriptions and later events.

Pure. In: events, sightings of hosts. Out: yes, no, or unknown. Called by services that route traffic to providers.
Invariant: the latest message about a host and a provider counts: by the time of the host if the message has one, as
messages may arrive in any order, otherwise by arrival. Source: ``provider_started`` and ``provider_stopped`` of
wasmCloud 1.x; heartbeats list the providers of a host every 30 s.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from trellis.lattice.domain.hosts import Sighting, is_late
from trellis.lattice.timings import LatticeTimings

_REMEMBERED: Final = 20_000


class ProviderHosts:
    """Providers on hosts, by events. ``silence``: seconds without a heartbeat after which a host counts as stopped."""

    def __init__(self, silence: float = LatticeTimings().silence) -> None:
        self._silence = silence
        self._states: dict[tuple[str, str], tuple[float, bool, str]] = {}

    def record(self, provider: str, host: str, runs: bool, at: float, published_at: str = "") -> bool:
        """Process an event (``at``: monotonic seconds, published at an ``event_time``); return whether it is new."""
        former = self._states.get((provider, host))
        if former is not None and is_late(published_at, former[2], at - former[0], self._silence):
            return False
        self._states.pop((provider, host), None)
        self._states[provider, host] = (at, runs, published_at)
        if len(self._states) > _REMEMBERED:
            del self._states[next(iter(self._states))]
        return former is None or former[1:] != (runs, published_at)

    def runs(self, providers: Collection[str], host: Sighting) -> bool:
        """Return whether a host runs one of these providers, by the newest message."""
        listed = {unit.id for unit in host.host.providers}
        for provider in providers:
            at, reported, published_at = self._states.get((provider, host.host.id), (float("-inf"), False, ""))
            if reported if self._is_newer(at, published_at, host) else provider in listed:
                return True
        return False

    def _is_newer(self, at: float, published_at: str, host: Sighting) -> bool:
        """Return whether an event is newer than the description of the host.

        The clock of the host may have been set back.
        """
        if published_at and host.published_at and abs(at - host.received_at) <= self._silence:
            return published_at >= host.published_at
        return at > host.received_at
