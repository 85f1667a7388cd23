"""Timings of the parts that all services share; tests use shorter ones.

Pure. Called by ``trellis.runtime.service`` and ``trellis.runtime.run``, and by each ``create_app`` that overrides them.
In seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from trellis.bus.timings import BusTimings
from trellis.kube.timings import KubeTimings


@dataclass(frozen=True, slots=True)
class HealthTimings:
    """Timings of the health server, in seconds."""

    beat: float = 1.0
    """Interval of measurements of the event loop lag."""
    idle: float = 75.0
    """Time without a request after which a connection is closed; Prometheus scrapes every 15 to 60 s."""
    shutdown: float = 1.0
    """Timeout for requests in progress when the server stops."""


@dataclass(frozen=True, slots=True)
class EndingTimings:
    """Timings of the shutdown of a process, in seconds."""

    echo: float = 1.0
    """Time in which a second signal is ignored as a duplicate: a terminal and a supervisor often send one each."""
    afterglow: float = 1.0
    """Timeout for the interpreter to exit after all parts ended; a DNS lookup in a thread may delay it."""


@dataclass(frozen=True, slots=True)
class DeletionTimings:
    """Timings of deletions, in seconds.

    ``settle``: time after a deletion in which related deletions may follow. ``together``: objects deleted within this
    time are a mass deletion. ``grace``: time for which nodes keep a Shim that was deleted without a run of its
    finalizer; it may be re-created.
    """

    settle: float = 2.0
    together: float = 60.0
    grace: float = 300.0


@dataclass(frozen=True, slots=True)
class ProcessTimings:
    """Timings of one process, in seconds."""

    barrier: float = 3.0
    """Maximum time for which services wait at the start for one that cannot read, or that reads long lists."""
    health: HealthTimings = field(default_factory=HealthTimings)
    ending: EndingTimings = field(default_factory=EndingTimings)


def _bus() -> BusTimings:
    return BusTimings(publish_budget=3.0)


@dataclass(frozen=True, slots=True)
class ServiceTimings:
    """Timings of any service, in seconds."""

    resync: float = 600.0
    """Interval of runs of all keys."""
    bus_head_start: float = 3.0
    """Time for which the first reconciles wait for the bus; without its history they republish events."""
    prepare: float = 15.0
    """Timeout for reading published events back; after it they are republished."""
    close: float = 3.0
    """Timeout for closing a connection: a frozen peer may block pending data."""
    traces: float = 5.0
    """Timeout for exporting the last spans."""
    again: float = 1.0
    """Delay between the failure of a part and the restart of all parts, in a service whose replicas all work."""
    kube: KubeTimings = field(default_factory=KubeTimings)
    bus: BusTimings = field(default_factory=_bus)
    """A reconcile waits only a short time for the bus in an outage, because it writes to Kubernetes afterwards."""
