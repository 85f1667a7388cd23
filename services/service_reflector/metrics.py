"""Metrics of each lattice: time since its last message, its applications, their Services.

In: followed lattices. Out: gauges that are read at each scrape. Called by ``lattices`` and ``app``. Invariant: no
series remains after a lattice is no longer followed or a term ended.
"""

from __future__ import annotations

import time
from functools import partial

from service_reflector.gather import Cache
from trellis.events.subjects import SERVICE_REFLECTOR
from trellis.installer_api.redaction import redact_url
from trellis.lattice.connection.address import LatticeAddress
from trellis.telemetry.lattice_gauges import FollowedGauges
from trellis.telemetry.metrics import Metrics
from trellis.telemetry.observed import Forget


class ServiceMetrics(FollowedGauges[LatticeAddress]):
    """Gauges of one leadership term."""

    def __init__(self, metrics: Metrics, cache: Cache) -> None:
        super().__init__()
        self._metrics = metrics
        self._cache = cache

    def _show(self, lattice_id: str, address: LatticeAddress) -> Forget:
        _, _, digest = lattice_id.partition("/")
        reads = (
            partial(self._since_last_message, lattice_id, time.monotonic()),
            partial(self._applications, lattice_id),
            partial(self._services, lattice_id),
        )
        of = (redact_url(address.nats.url), address.lattice, digest)
        return self._metrics.lattice(SERVICE_REFLECTOR, of, *reads)

    def _since_last_message(self, lattice_id: str, since: float) -> float:
        last_message = self._cache.followers.last_message_at(lattice_id)
        return time.monotonic() - (since if last_message is None else last_message)

    def _applications(self, lattice_id: str) -> float:
        return len(self._cache.deployed(lattice_id))

    def _services(self, lattice_id: str) -> float:
        return sum(len(keys) for (of, _), keys in list(self._cache.reflected.items()) if of == lattice_id)
