"""Timings of host_manager; tests use shorter ones.

Pure. Called by ``app``, which passes them on. In seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from trellis.config.timings import DeletionTimings
from trellis.kube.timings import RefusalTimings
from trellis.lattice.timings import LatticeTimings


@dataclass(frozen=True, slots=True)
class Timings:
    """Of one term of leadership."""

    unknown: float = 5.0
    """After how long it is asked again whether a namespace can be watched by now."""
    gathering: float = 10.0
    """In which changes of Secrets become one roll."""
    patience: float = 40.0
    """How long groups may take to look; then the event is tried again, and not acknowledged in the meantime."""
    rest: float = 300.0
    """Between two rolls of a group for changed Secrets: what changes in the meantime waits, and makes one."""
    undecided: float = 30.0
    """After which a group is looked at again of which it is not known whether its hosts were given a changed Secret."""
    copy_again: float = 0.5
    """Between two attempts to copy an event of a lattice while the bus is unavailable: it is patient itself."""
    publish: float = 5.0
    """Between two attempts to publish while the bus is unavailable."""
    give_way: float = 0.3
    """For which a group whose hosts can start lets those go first that are new."""
    late: float = 0.05
    """Added to each wait: a look that comes a moment early finds nothing new yet."""
    status_delay: float = 0.2
    """A status counts pods: changes that come in a burst are counted once."""
    half_made: float = 10.0
    """For which the rest of a new group may wait for others."""
    first_status: float = 2.0
    """After which a new group has a status at the latest."""
    recycle_first: float = 120.0
    """After the restart of a silent host, before another one; twice as long after each that does not help."""
    recycle_most: float = 3600.0
    role: tuple[float, ...] = (0.05, 0.1, 0.2, 0.4, 0.8)
    """Between attempts to create a RoleBinding whose Role the API server's authorizer does not know yet."""
    deletions: DeletionTimings = field(default_factory=DeletionTimings)
    refusals: RefusalTimings = field(default_factory=RefusalTimings)
    lattice: LatticeTimings = field(default_factory=LatticeTimings)
