"""Which hosts run a provider: by their own descriptions, and by events that are newer than these.

Pure. In: events, sightings of hosts. Out: yes, no, or not known. Called by whoever leads traffic to providers.
Invariant: the newest word about a host and a provider counts.
Source: ``provider_started`` and ``provider_stopped`` of wasmCloud 1.x; heartbeats list a host's providers each 30 s.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from trellis.lattice.hosts import Sighting

_REMEMBERED: Final = 20_000


class Running:
    """What events said of providers on hosts."""

    def __init__(self) -> None:
        self._said: dict[tuple[str, str], tuple[float, bool]] = {}

    def said(self, provider: str, host: str, runs: bool, at: float) -> bool:
        """Take an event (``at``: monotonic seconds); return whether it says anything new."""
        former = self._said.pop((provider, host), None)
        self._said[provider, host] = (at, runs)
        if len(self._said) > _REMEMBERED:
            del self._said[next(iter(self._said))]
        return former is None or former[1] != runs

    def runs(self, providers: Collection[str], host: Sighting) -> bool:
        """Say whether a host runs one of these providers, as far as anybody knows."""
        listed = {unit.id for unit in host.host.providers}
        for provider in providers:
            at, says = self._said.get((provider, host.host.id), (float("-inf"), False))
            if says if at > host.at else provider in listed:
                return True
        return False
