"""Timings of application_manager; tests use shorter ones.

Pure. Called by ``app``, which passes them on. In seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from trellis.kube.watch_timings import WatchTimings
from trellis.lattice.timings import LatticeTimings


@dataclass(frozen=True, slots=True)
class Timings:
    """Of one term of leadership."""

    soon: float = 0.2
    """After a write that was decided on an outdated state, and at least before a refused one is tried again."""
    away: float = 2.0
    """Between two attempts while wadm does not answer."""
    told: float = 5.0
    """For so long wadm may be unavailable before objects and host groups say so: a reconnect costs no writes."""
    look: float = 5.0
    """After what wadm acknowledged it is looked again, should nothing be heard."""
    nowhere: float = 60.0
    """Between two attempts to show an application of wadm's that has no place in Kubernetes."""
    refused_first: float = 2.0
    """Doubled for each refusal of wadm's in a row before it is asked again."""
    refused_most: float = 300.0
    """The same at most, and at once where only another manifest helps."""
    status: float = 5.0
    """After which a host group without a status is looked at again."""
    publish: float = 5.0
    """Between two attempts to publish while the bus is unavailable."""
    awaited: float = 15.0
    """For so long a store may lag behind what wadm acknowledged."""
    settle: float = 10.0
    """Within which a version that was put may be deployed (ADR 81)."""
    unlisted: float = 5.0
    """Within which wadm may still write its list after it stored an application."""
    contest: float = 600.0
    """Within which three changes of alternating sides are a contest, and after which a side counts as quiet."""
    counted: float = 1.0
    """For which the counts of a scrape are used again: it reads one gauge after the other."""
    watch: WatchTimings = field(default_factory=WatchTimings)
    lattice: LatticeTimings = field(default_factory=LatticeTimings)
