"""How long application_manager waits for what; tests pass shorter times. Called by ``app``."""

from __future__ import annotations

from dataclasses import dataclass, field

from trellis.lattice.timings import LatticeTimings


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds."""

    lattice: LatticeTimings = field(default_factory=LatticeTimings)
