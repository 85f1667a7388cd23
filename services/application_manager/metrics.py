"""Metrics of each lattice: its applications by phase, and the age of their state.

In: the addresses of followed lattices. Out: gauges that are read at each scrape. Called by ``app``.
Invariants: a lattice that is no longer followed, and an ended leadership term, leave no series; a scrape reads each
application once.
"""

from __future__ import annotations

import time
from collections import Counter
from functools import partial
from typing import Final, get_args

from application_manager.cache import Cache
from application_manager.timings import Timings
from trellis.crds.application_status import Phase
from trellis.events.subjects import APPLICATION_MANAGER
from trellis.installer_api.redaction import redact_url
from trellis.lattice.connection.address import LatticeAddress
from trellis.telemetry.lattice_gauges import FollowedGauges
from trellis.telemetry.metrics import KeptReads, Metrics
from trellis.telemetry.observed import Forget

UNKNOWN: Final = "Unknown"
"""Phase of an object without a status."""
PHASES: Final = (*get_args(Phase), UNKNOWN)


class ApplicationMetrics(FollowedGauges[LatticeAddress]):
    """The gauges of one leadership term."""

    def __init__(self, metrics: Metrics, cache: Cache, timings: Timings = Timings()) -> None:
        super().__init__()
        self._metrics = metrics
        self._cache = cache
        self._keep_counts = timings.counted
        self._synced: dict[str, float] = {}
        self._counted: Counter[tuple[str, str]] = Counter()
        self._counted_at = -timings.counted

    def _show(self, lattice_id: str, address: LatticeAddress) -> Forget:
        _, _, digest = lattice_id.partition("/")
        self._synced[lattice_id] = time.time()
        reads = KeptReads(
            phases={phase: partial(self._count, lattice_id, phase) for phase in PHASES},
            synced_age=partial(self._synced_age, lattice_id),
            owned=partial(self._owned, lattice_id),
            linked=partial(self._linked, lattice_id),
        )
        of = (redact_url(address.nats.url), address.lattice, digest)
        return self._metrics.kept_lattice(APPLICATION_MANAGER, of, reads)

    def _count(self, lattice_id: str, phase: str) -> float:
        now = time.monotonic()
        if now - self._counted_at >= self._keep_counts:
            views = list(self._cache.applications.values())
            self._counted = Counter((self._cache.key_of(view).lattice_id, view.phase or UNKNOWN) for view in views)
            self._counted_at = now
        return self._counted[lattice_id, phase]

    def _synced_age(self, lattice_id: str) -> float:
        """Return seconds since the state was last complete; before that, seconds since the lattice is followed."""
        store = self._cache.followers.store(lattice_id)
        if store is not None and store.synced_at is not None and not store.unavailable:
            self._synced[lattice_id] = store.synced_at
        return max(0.0, time.time() - self._synced[lattice_id])

    def _owned(self, lattice_id: str) -> float:
        return float(self._cache.followers.owns(lattice_id))

    def _linked(self, lattice_id: str) -> float:
        return float(self._cache.followers.linked(lattice_id))
