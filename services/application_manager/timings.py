"""Timings of application_manager, in seconds; tests use shorter ones.

Pure. Called by ``app``, which passes them on.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from trellis.kube.watch_timings import WatchTimings
from trellis.lattice.timings import LatticeTimings


@dataclass(frozen=True, slots=True)
class Timings:
    """Timings of one leadership term."""

    soon: float = 0.2
    """Delay after a write on an outdated state, and minimum delay before a rejected write is retried."""
    unavailable: float = 2.0
    """Retry interval while wadm does not answer."""
    unreported: float = 5.0
    """Duration of an outage of wadm before objects and host groups report it: a reconnect causes no writes."""
    look: float = 5.0
    """Delay of the next reconcile after a request that wadm acknowledged, in case no event arrives."""
    nowhere: float = 60.0
    """Retry interval for an application of wadm that has no place in Kubernetes."""
    refused_first: float = 2.0
    """First retry delay after a rejection by wadm; doubled for each consecutive rejection."""
    refused_most: float = 300.0
    """Maximum of that delay; used from the start for a rejection that only another manifest resolves."""
    status: float = 5.0
    """Delay of the next check of a host group without a status."""
    publish: float = 5.0
    """Retry interval while the bus is unavailable."""
    awaited: float = 15.0
    """Maximum lag of a store behind a request that wadm acknowledged."""
    settle: float = 10.0
    """Period in which a version that was put may be deployed (ADR 81)."""
    unlisted: float = 5.0
    """Period in which wadm may still write its list after it stored an application."""
    contest: float = 600.0
    """Period in which three changes of alternating sides are a contest, and after which a side counts as quiet."""
    counted: float = 1.0
    """Cache TTL of the counts in a scrape, which reads one gauge after the other."""
    watch: WatchTimings = field(default_factory=WatchTimings)
    lattice: LatticeTimings = field(default_factory=LatticeTimings)
