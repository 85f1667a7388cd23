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
from trellis.lattice.connection.lattices import Lattices, Part
from trellis.lattice.connection.link import Link
from trellis.lattice.domain.hosts import Sighting
from trellis.lattice.follow.comparison import Comparison
from trellis.telemetry import TraceContext

CONNECTION: Final = "trellis-service-reflector"

Wake = Callable[[str, Iterable[str] | None, TraceContext | None], None]
"""Called with a lattice ID and the changed applications, None for all."""


class Following:
    """Followed lattices; ``wake`` is called in the event loop."""

    def __init__(self, wake: Wake, timings: Timings = Timings()) -> None:
        self._timings = timings
        self._wake = wake
        self._lattices: Final[Lattices[str]] = Lattices(
            CONNECTION, self._on_view, self._compare, parts=(Part.HOSTS,), timings=timings.lattice
        )
        self._needs: dict[str, LatticeAddress] = {}
        self._comparisons: dict[LatticeAddress, Comparison] = {}
        self._hosts: dict[str, tuple[float, Mapping[str, Sighting]]] = {}
        self._shown: dict[str, object] = {}

    @property
    def marks(self) -> list[str]:
        """IDs of the followed lattices."""
        return list(self._needs)

    async def run(self) -> None:
        """Follow until cancelled."""
        await self._lattices.run()

    async def follow(self, mark: str, address: LatticeAddress | None) -> None:
        """Follow a lattice at an address from now on; None stops following it."""
        if address is None:
            self._needs.pop(mark, None)
            self._hosts.pop(mark, None)
            self._shown.pop(mark, None)
        else:
            self._needs[mark] = address
        await self._lattices.need(mark, address)

    def comparison(self, mark: str) -> Comparison | None:
        """Return the state of a lattice's applications, None if it is not followed (yet)."""
        address = self._needs.get(mark)
        return None if address is None else self._comparisons.get(address)

    def hosts(self, mark: str) -> Mapping[str, Sighting]:
        """Return the reporting hosts by the names of their pods."""
        found = self._hosts.get(mark)
        now = time.monotonic()
        if found is not None and now - found[0] < self._timings.hosts:
            return found[1]
        view = self._lattices.view(mark)
        hosts = {name: seen for seen in view.hosts if (name := seen.host.labels.get(POD_LABEL))} if view else {}
        self._hosts[mark] = (now, hosts)
        return hosts

    def trouble(self, mark: str) -> str:
        """Return why a lattice does not report its applications, "" if it does or was not queried yet."""
        view, comparison = self._lattices.view(mark), self.comparison(mark)
        if view is None or not view.settled:
            return ""
        return view.reason or (comparison.reason if comparison is not None and comparison.asked else "")

    def heard(self, mark: str) -> float | None:
        """Return the monotonic time of the last message of a lattice; None if it is not followed (yet)."""
        comparison, view = self.comparison(mark), self._lattices.view(mark)
        told = [seen.at for seen in view.hosts] if view is not None else []
        return max([*told, *([comparison.heard] if comparison is not None else [])], default=None)

    async def _compare(self, address: LatticeAddress, link: Link) -> None:
        def changed(names: Iterable[str], trace: TraceContext | None) -> None:
            for mark in [mark for mark, need in self._needs.items() if need == address]:
                self._wake(mark, names, trace)

        comparison = self._comparisons[address] = Comparison(address, link, changed, self._timings.lattice)
        try:
            await comparison.run()
        finally:
            if self._comparisons.get(address) is comparison:
                del self._comparisons[address]

    def _on_view(self, mark: str) -> None:
        """Handle a change of a lattice's view: of its connection, or of its hosts, for which keys are enqueued."""
        comparison = self.comparison(mark)
        if comparison is not None:
            comparison.connection_changed()
        self._hosts.pop(mark, None)
        shown = {
            name: (seen.host.id, dict(seen.host.labels), {unit.id for unit in seen.host.providers})
            for name, seen in self.hosts(mark).items()
        }
        news = (shown, self.trouble(mark))
        if self._shown.get(mark, ({}, "")) != news:
            self._shown[mark] = news
            self._wake(mark, None, None)
