"""How long service_reflector waits for what; tests pass shorter times. Called by ``app``."""

from __future__ import annotations

from dataclasses import dataclass, field

from trellis.kube.refusals import RefusalTimings
from trellis.lattice.timings import LatticeTimings


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds. ``group_grace``: for how long Services stay once no host group names their lattice.

    Within it GitOps makes a group again that it deleted. It is measured by the monotonic clock of the process that
    leads: a new leader starts it again, and a clock that is set forward does not shorten it.
    """

    group_grace: float = 300.0
    refusals: RefusalTimings = field(default_factory=RefusalTimings)
    lattice: LatticeTimings = field(default_factory=LatticeTimings)
