"""Timings of host_manager, in seconds where nothing else is stated; tests use shorter ones.

Pure. Called by ``app``, which passes them on.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from trellis.config.timings import DeletionTimings
from trellis.kube.timings import RefusalTimings
from trellis.lattice.follow.heartbeats import HeartbeatTimings
from trellis.lattice.timings import LatticeTimings
from trellis.v2.timings import V2Timings


@dataclass(frozen=True, slots=True)
class Timings:
    """Timings of one leadership term."""

    unknown: float = 5.0
    """Interval of the checks whether a namespace is listed by now."""
    gathering: float = 10.0
    """Period in which changes of Secrets are collected into one roll."""
    patience: float = 40.0
    """Timeout for the reconciles of host groups; then the event is retried, and it is not acknowledged before."""
    full_read: int = 5
    """Full reads of an unchanged host group: at least one in so many intervals of the checks of its Secrets."""
    rest: float = 300.0
    """Minimum interval of rolls of a group for changed Secrets; changes in between are collected into one roll."""
    undecided: float = 30.0
    """Interval of the checks whether the hosts of a group received a changed Secret, while that is unknown."""
    copy_again: float = 0.5
    """Retry interval of a forwarded lattice event while the bus is unavailable, in addition to the bus client's."""
    publish: float = 5.0
    """Retry interval of published events while the bus is unavailable."""
    give_way: float = 0.3
    """Delay with which a group whose hosts can start yields to new groups."""
    late: float = 0.05
    """Added to each delay, as a reconcile a moment too early finds nothing new."""
    status_delay: float = 0.2
    """Period in which changes of pods are collected into one status."""
    half_created: float = 10.0
    """Maximum delay of the second half of a new group's children."""
    first_status: float = 2.0
    """Maximum delay of a new group's first status."""
    recycle_first: float = 120.0
    """Pause after the restart of a host without heartbeat; doubled for each restart that does not help."""
    recycle_most: float = 3600.0
    role: tuple[float, ...] = (0.05, 0.1, 0.2, 0.4, 0.8)
    """Retry delays of a RoleBinding whose Role is not visible to the API server's authorizer yet."""
    v2: V2Timings = field(default_factory=V2Timings)
    """Intervals of the runtime-operator of wasmCloud v2, by which its objects are evaluated."""
    v2_settle: float = 0.3
    """Period in which changes of wasmCloud v2 are collected into one run: conditions of one change arrive in turn."""
    v2_look: float = 15.0
    """Interval of the runs for wasmCloud v2 without a change, which detect missing heartbeats."""
    v2_served: float = 60.0
    """Interval of the checks whether the API server serves wasmCloud v2."""
    v2_heartbeats: HeartbeatTimings = field(default_factory=HeartbeatTimings)
    deletions: DeletionTimings = field(default_factory=DeletionTimings)
    refusals: RefusalTimings = field(default_factory=RefusalTimings)
    lattice: LatticeTimings = field(default_factory=LatticeTimings)
