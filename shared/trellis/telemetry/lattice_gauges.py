"""Gauges of followed lattices: exported while the lattice is followed, removed afterwards.

In: lattice IDs and addresses. Out: series of ``Metrics`` that are read at each scrape. Called by followers of lattices,
which provide the callbacks. Invariant: no series remains after a lattice is no longer followed or a term ended.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import Generic, TypeVar

from trellis.telemetry.observed import Forget

Place = TypeVar("Place", bound=Hashable)


class FollowedGauges(ABC, Generic[Place]):
    """The gauges of one term; ``Place`` is the address that is followed."""

    def __init__(self) -> None:
        self._followed: dict[str, tuple[Place, Forget]] = {}

    def follow(self, lattice_id: str, place: Place | None) -> None:
        """Export the gauges of a place from now on, or end them for None."""
        former, forget = self._followed.get(lattice_id, (None, None))
        if former == place:
            return
        if forget is not None:
            del self._followed[lattice_id]
            forget()
        if place is not None:
            self._followed[lattice_id] = (place, self._show(lattice_id, place))

    async def run(self) -> None:
        """Export the gauges until cancelled."""
        try:
            await asyncio.Event().wait()
        finally:
            for lattice_id in list(self._followed):
                self.follow(lattice_id, None)

    @abstractmethod
    def _show(self, lattice_id: str, place: Place) -> Forget:
        """Start to export the gauges of a lattice ID at a place; return the function that ends them."""
