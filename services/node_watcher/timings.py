"""Timings of node_watcher; tests use shorter ones.

Pure. Called by ``app``, which passes them on. In seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from trellis.config.timings import DeletionTimings
from trellis.kube.timings import RefusalTimings


@dataclass(frozen=True, slots=True)
class Timings:
    """Timings of one leadership term."""

    publish: float = 5.0
    """Interval of attempts to publish while the bus is unavailable."""
    deletions: DeletionTimings = field(default_factory=DeletionTimings)
    refusals: RefusalTimings = field(default_factory=RefusalTimings)
