"""Timings of service_reflector; tests use shorter ones. Called by ``app``, which passes it on.

Values are seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from trellis.kube.timings import RefusalTimings
from trellis.kube.watch_timings import WatchTimings
from trellis.lattice.timings import LatticeTimings


@dataclass(frozen=True, slots=True)
class Timings:
    """Timings of one leadership term."""

    group_grace: float = 300.0
    """Grace period of Services whose lattice no host group names: GitOps re-creates a deleted group within it.

    It is measured by the monotonic clock of the leader: a new leader restarts it, and a clock that is set forward does
    not shorten it.
    """
    hosts: float = 1.0
    """Cache TTL of the hosts of a lattice, which several applications share."""
    publish: float = 5.0
    """Interval of attempts to publish while the bus is unavailable."""
    refusals: RefusalTimings = field(default_factory=RefusalTimings)
    watch: WatchTimings = field(default_factory=WatchTimings)
    lattice: LatticeTimings = field(default_factory=LatticeTimings)
