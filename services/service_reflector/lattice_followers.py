"""Follows the lattices of host groups: their applications and heartbeats.

In: the addresses of lattices. Out: a comparison and the reporting hosts of each, and notifications of changes. Called
by ``gather`` and ``app``. Invariants: no caller waits for a lattice; the state of an unreachable lattice stays.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from service_reflector.timings import Timings
from trellis.lattice.connection.address import LatticeAddress
from trellis.lattice.connection.groups import POD_LABEL
from trellis.lattice.connection.lattice_connection import LatticeConnection
from trellis.lattice.domain.hosts import Sighting
from trellis.lattice.follow.comparison import Comparison
from trellis.lattice.follow.lattice_watches import LatticeWatches, Part
from trellis.telemetry import TraceContext

CONNECTION: Final = "trellis-service-reflector"

Wake = Callable[[str, Iterable[str] | None, TraceContext | None], None]
"""Called with a lattice ID and the changed applications, None for all."""


class LatticeFollowers:
    """Followed lattices; ``wake`` is called in the event loop."""

    def __init__(self, wake: Wake, timings: Timings = Timings()) -> None:
        self._timings = timings
        self._wake = wake
        self._lattices: Final[LatticeWatches[str]] = LatticeWatches(
            CONNECTION, self._on_view, self._compare, parts=(Part.HOSTS,), timings=timings.lattice
        )
        self._needs: dict[str, LatticeAddress] = {}
        self._comparisons: dict[LatticeAddress, Comparison] = {}
        self._hosts: dict[str, tuple[float, Mapping[str, Sighting]]] = {}
        self._shown: dict[str, object] = {}

    @property
    def lattice_ids(self) -> list[str]:
        """IDs of the followed lattices."""
        return list(self._needs)

    async def run(self) -> None:
        """Follow until cancelled."""
        await self._lattices.run()

    async def follow(self, lattice_id: str, address: LatticeAddress | None) -> None:
        """Follow a lattice at an address from now on; None stops following it."""
        if address is None:
            self._needs.pop(lattice_id, None)
            self._hosts.pop(lattice_id, None)
            self._shown.pop(lattice_id, None)
        else:
            self._needs[lattice_id] = address
        await self._lattices.need(lattice_id, address)

    def comparison(self, lattice_id: str) -> Comparison | None:
        """Return the state of a lattice's applications, None if it is not followed (yet)."""
        address = self._needs.get(lattice_id)
        return None if address is None else self._comparisons.get(address)

    def hosts(self, lattice_id: str) -> Mapping[str, Sighting]:
        """Return the reporting hosts by the names of their pods."""
        found = self._hosts.get(lattice_id)
        now = time.monotonic()
        if found is not None and now - found[0] < self._timings.hosts:
            return found[1]
        view = self._lattices.view(lattice_id)
        hosts = {name: seen for seen in view.hosts if (name := seen.host.labels.get(POD_LABEL))} if view else {}
        self._hosts[lattice_id] = (now, hosts)
        return hosts

    def trouble(self, lattice_id: str) -> str:
        """Return why a lattice does not report its applications, "" if it does or was not queried yet."""
        view, comparison = self._lattices.view(lattice_id), self.comparison(lattice_id)
        if view is None or not view.settled:
            return ""
        return view.reason or (comparison.reason if comparison is not None and comparison.queried else "")

    def last_message_at(self, lattice_id: str) -> float | None:
        """Return the monotonic time of the last message of a lattice; None if it is not followed (yet)."""
        comparison, view = self.comparison(lattice_id), self._lattices.view(lattice_id)
        heartbeats = [seen.at for seen in view.hosts] if view is not None else []
        return max([*heartbeats, *([comparison.last_message_at] if comparison is not None else [])], default=None)

    async def _compare(self, address: LatticeAddress, connection: LatticeConnection) -> None:
        def changed(names: Iterable[str], trace: TraceContext | None) -> None:
            for lattice_id in [lattice_id for lattice_id, need in self._needs.items() if need == address]:
                self._wake(lattice_id, names, trace)

        comparison = self._comparisons[address] = Comparison(address, connection, changed, self._timings.lattice)
        try:
            await comparison.run()
        finally:
            if self._comparisons.get(address) is comparison:
                del self._comparisons[address]

    def _on_view(self, lattice_id: str) -> None:
        """Handle a change of a lattice's view: of its connection, or of its hosts, for which keys are enqueued."""
        comparison = self.comparison(lattice_id)
        if comparison is not None:
            comparison.connection_changed()
        self._hosts.pop(lattice_id, None)
        shown = {
            name: (seen.host.id, dict(seen.host.labels), {unit.id for unit in seen.host.providers})
            for name, seen in self.hosts(lattice_id).items()
        }
        state = (shown, self.trouble(lattice_id))
        if self._shown.get(lattice_id, ({}, "")) != state:
            self._shown[lattice_id] = state
            self._wake(lattice_id, None, None)
