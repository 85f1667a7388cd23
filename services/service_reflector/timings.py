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
    """Of one term of leadership."""

    group_grace: float = 300.0
    """For how long Services stay once no host group names their lattice: GitOps makes a deleted group again within it.

    It is measured by the monotonic clock of the process that leads: a new leader starts it again, and a clock that is
    set forward does not shorten it.
    """
    hosts: float = 1.0
    """For which the hosts of a lattice are used again that were gathered for one application."""
    publish: float = 5.0
    """Between two attempts to publish while the bus is unavailable."""
    refusals: RefusalTimings = field(default_factory=RefusalTimings)
    watch: WatchTimings = field(default_factory=WatchTimings)
    lattice: LatticeTimings = field(default_factory=LatticeTimings)
