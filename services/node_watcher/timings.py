"""How long node_watcher waits for what; tests pass shorter times.

Pure. Called by ``app``, which passes it on. Values are seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from trellis.config.timings import DeletionTimings
from trellis.kube.timings import RefusalTimings


@dataclass(frozen=True, slots=True)
class Timings:
    """Of one term of leadership."""

    publish: float = 5.0
    """Between two attempts to publish while the bus is unavailable."""
    deletions: DeletionTimings = field(default_factory=DeletionTimings)
    refusals: RefusalTimings = field(default_factory=RefusalTimings)
