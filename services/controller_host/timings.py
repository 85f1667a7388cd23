"""How long controller_host waits for what, and keeps what; tests pass shorter times. Called by ``app``."""

from __future__ import annotations

from dataclasses import dataclass, field

from trellis.kube.timings import RefusalTimings
from trellis.kube.watch_timings import WatchTimings


@dataclass(frozen=True, slots=True)
class CallTimings:
    """Seconds of what guests ask of Kubernetes."""

    request: float = 15.0
    """Of one request, waits that the API server asked for included."""
    call: float = 120.0
    """Of all requests in one call of the guest: a guest that waits holds a thread."""
    late: float = 1.0
    """Beyond a request's time, for its answer to come from the event loop."""


@dataclass(frozen=True, slots=True)
class ReportTimings:
    """Seconds of what is reported of controllers."""

    figures: float = 60.0
    """Between two writes of figures of one controller."""
    facts: float = 600.0
    """Between two events of a kind about a controller that is woken and suspended."""
    traps: float = 60.0
    """Between two events about the faults of a controller."""
    bus_retry: float = 5.0
    """Before an event is published again that the bus did not take."""
    conflict: float = 0.5
    """Before a status is written again that another writer has changed in the meantime."""


@dataclass(frozen=True, slots=True)
class ReviewTimings:
    """Seconds of SubjectAccessReviews."""

    keep: float = 60.0
    """For so long an answer is believed."""
    forget: float = 1.0
    """Between two times that all answers about a user are forgotten: each call of a guest may be refused something."""
    ask: float = 5.0
    """For an answer to come."""
    retry_first: float = 0.5
    retry_most: float = 10.0
    """The first and the longest wait of the backoff while the API server cannot be asked."""


@dataclass(frozen=True, slots=True)
class SourceTimings:
    """Seconds of fetching modules."""

    connect: float = 10.0
    """For a TCP connection."""
    patience: float = 20.0
    """Which any fetch has, and a second more for each ``transfers.LEAST_SPEED`` bytes that it has got."""
    most: float = 120.0
    """Which no fetch has more than; waiting for memory apart."""
    file: float = 60.0
    """For a file: a volume that hangs is no reason to wait forever."""
    end: float = 1.0
    """For what is being prepared to end with the term of leadership."""


@dataclass(frozen=True, slots=True)
class DiskTimings:
    """Seconds of the disk."""

    first: float = 1.0
    most: float = 30.0
    """Between two tries while it takes nothing; doubled each time that it refuses again."""
    least: float = 0.1
    """The shortest wait of a guest that could not be put there."""
    look: float = 1.0
    """Between two looks whether it takes nothing."""
    sweep: float = 60.0
    """Between two removals of what no controller needs any more."""
    busy: float = 5.0
    """For a lock of the file that says what controllers have worked through."""
    young: float = 60.0
    """A module that was asked for is not removed before."""


@dataclass(frozen=True, slots=True)
class CacheTimings:
    """Seconds of the shared caches."""

    linger: float = 60.0
    """A cache that nobody wants is kept for so long."""
    look: float = 1.0
    """Between two looks at an informer."""
    absent: float = 10.0
    """Between two looks for a kind that does not exist."""
    watch: WatchTimings = field(default_factory=WatchTimings)


@dataclass(frozen=True, slots=True)
class TurnTimings:
    """Seconds of the turns of controllers."""

    slice: float = 0.05
    """A controller that has called for so long lets others have the thread."""
    fetching: float = 2.0
    """After which people are told that its module is still being fetched."""
    unknown: float = 1.0
    """After which is asked again where nobody knows yet whether objects may be told."""
    denied: float = 60.0
    """After which is asked again where they may not: as long as a review counts."""
    unwritten: float = 5.0
    """After which a key is tried again that the disk did not take note of."""
    poll: float = 0.02
    """Between two looks whether all turns have ended, when the service is to end."""
    engine: float = 30.0
    """After which the engine is loaded again that could not be: each try reads megabytes, and a thousand controllers
    may ask."""


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds of controller_host."""

    calls: CallTimings = field(default_factory=CallTimings)
    reports: ReportTimings = field(default_factory=ReportTimings)
    reviews: ReviewTimings = field(default_factory=ReviewTimings)
    sources: SourceTimings = field(default_factory=SourceTimings)
    disk: DiskTimings = field(default_factory=DiskTimings)
    caches: CacheTimings = field(default_factory=CacheTimings)
    turns: TurnTimings = field(default_factory=TurnTimings)
    refusals: RefusalTimings = field(default_factory=RefusalTimings)
    watch: WatchTimings = field(default_factory=WatchTimings)
    """Of the watch of WasmControllers."""
    give_back: float = 30.0
    """Between two times that memory which calls needed is given back to the system."""
    fresh: float = 0.5
    """For so long a look at all controllers counts for the gauges of one scrape."""
