"""How long what all services have in common waits; tests pass shorter times.

Pure. Called by ``trellis.runtime.service`` and ``trellis.runtime.run``, and by each ``create_app`` that has others.
Seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from trellis.bus.timings import BusTimings
from trellis.kube.timings import KubeTimings


@dataclass(frozen=True, slots=True)
class HealthTimings:
    """Seconds of the health server."""

    beat: float = 1.0
    """Between two measurements of how late the event loop is."""
    idle: float = 75.0
    """After so long without a request a connection is closed; Prometheus asks every 15 to 60 s."""
    shutdown: float = 1.0
    """How long requests in progress may take when the server ends."""


@dataclass(frozen=True, slots=True)
class EndingTimings:
    """Seconds of the end of a process."""

    echo: float = 1.0
    """A second signal sooner than this is the first one's echo: a terminal and a supervisor often send one each."""
    afterglow: float = 1.0
    """How long the interpreter may take to end once all parts did: a name that is looked up in a thread, say."""


@dataclass(frozen=True, slots=True)
class DeletionTimings:
    """Seconds. ``settle``: how long after an object's deletion others may follow that belong to it.

    ``together``: objects deleted within that time of each other are a mass deletion. ``grace``: how long the nodes keep
    a Shim that is gone though its finalizer has not run; it may be re-created.
    """

    settle: float = 2.0
    together: float = 60.0
    grace: float = 300.0


@dataclass(frozen=True, slots=True)
class ProcessTimings:
    """Seconds of one process."""

    together: float = 3.0
    """For a service that cannot read, or whose lists are that long: the others' work does not wait longer for it."""
    health: HealthTimings = field(default_factory=HealthTimings)
    ending: EndingTimings = field(default_factory=EndingTimings)


def _bus() -> BusTimings:
    return BusTimings(publish_budget=3.0)


@dataclass(frozen=True, slots=True)
class ServiceTimings:
    """Seconds of one service, whatever its concern is."""

    resync: float = 600.0
    """Between two runs of all keys."""
    bus_head_start: float = 3.0
    """How long the first decisions wait for the bus: without it they could only publish again what was published."""
    prepare: float = 15.0
    """How long reading back what was published may take, before it is published again instead."""
    close: float = 3.0
    """How long a connection may take to close: a frozen far side may keep what is still to be sent."""
    traces: float = 5.0
    """How long sending the last spans may take."""
    again: float = 1.0
    """Between the failure of a part and the restart of all parts, of a service of which every replica works."""
    kube: KubeTimings = field(default_factory=KubeTimings)
    bus: BusTimings = field(default_factory=_bus)
    """A run waits a short time for the bus when an outage begins: writes to Kubernetes come after it in that run."""
