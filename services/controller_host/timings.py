"""Timeouts, intervals and TTLs of controller_host in seconds; tests pass shorter ones. Called by ``app``."""

from __future__ import annotations

from dataclasses import dataclass, field

from trellis.kube.timings import RefusalTimings
from trellis.kube.watch_timings import WatchTimings
from trellis.registries.timings import FetchTimings


@dataclass(frozen=True, slots=True)
class CallTimings:
    """Seconds of requests of guests to Kubernetes."""

    request: float = 15.0
    """Timeout of one request, including the waits that the API server requested."""
    call: float = 120.0
    """Timeout of all requests in one call of the guest: a waiting guest occupies a thread."""
    late: float = 1.0
    """Additional time for the answer of a request to arrive from the event loop."""


@dataclass(frozen=True, slots=True)
class ReportTimings:
    """Seconds of status updates and events of controllers."""

    counters: float = 60.0
    """Interval between two writes of the counters of one controller."""
    events: float = 600.0
    """Interval between two events of one type about waking and suspending a controller."""
    traps: float = 60.0
    """Interval between two events about faults of a controller."""
    bus_retry: float = 5.0
    """Delay before an event that the bus rejected is published again."""
    conflict: float = 0.5
    """Delay before a status write is retried after a conflict with another writer."""


@dataclass(frozen=True, slots=True)
class ReviewTimings:
    """Seconds of SubjectAccessReviews."""

    keep: float = 60.0
    """Cache TTL of an answer."""
    forget: float = 1.0
    """Minimum interval between two invalidations of the answers for a user: any call of a guest can be refused."""
    ask: float = 5.0
    """Timeout of a review."""
    retry_first: float = 0.5
    retry_most: float = 10.0
    """First and longest delay of the backoff while the API server is unreachable."""


@dataclass(frozen=True, slots=True)
class SourceTimings(FetchTimings):
    """Seconds of module fetches."""

    file: float = 60.0
    """Timeout of reading a file: a volume can stall."""
    end: float = 1.0
    """Timeout for the preparation of controllers to stop at the end of the leadership term."""


@dataclass(frozen=True, slots=True)
class DiskTimings:
    """Seconds of the disk."""

    first: float = 1.0
    most: float = 30.0
    """First and longest delay between two attempts while the disk refuses writes; doubled after each failure."""
    least: float = 0.1
    """Shortest delay of a guest that could not be suspended."""
    look: float = 1.0
    """Interval of the checks whether the disk refuses writes."""
    sweep: float = 60.0
    """Interval between two removals of unused data."""
    busy: float = 5.0
    """Timeout for the lock of the database of processed versions."""
    young: float = 60.0
    """Minimum age of a requested module before it is removed."""


@dataclass(frozen=True, slots=True)
class CacheTimings:
    """Seconds of the shared caches."""

    linger: float = 60.0
    """Duration for which an unused cache is kept."""
    look: float = 1.0
    """Interval between two checks of an informer."""
    absent: float = 10.0
    """Interval between two lookups of a kind that does not exist."""
    watch: WatchTimings = field(default_factory=WatchTimings)


@dataclass(frozen=True, slots=True)
class TurnTimings:
    """Seconds of the turns of controllers."""

    slice: float = 0.05
    """Duration of the calls of a controller after which it yields its thread."""
    fetching: float = 2.0
    """Delay before the status reports that the module is still being fetched."""
    unknown: float = 1.0
    """Retry interval of an access review without an answer."""
    denied: float = 60.0
    """Retry interval of a denied access review: the TTL of a review."""
    unwritten: float = 5.0
    """Retry interval of a key that could not be recorded on the disk."""
    poll: float = 0.02
    """Interval of the checks whether all turns have ended, during shutdown."""
    engine: float = 30.0
    """Retry interval of loading the engine: each attempt reads megabytes, and a thousand controllers may request
    it."""


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
    """Watch of WasmControllers."""
    give_back: float = 30.0
    """Interval at which memory that calls freed is returned to the operating system."""
    fresh: float = 0.5
    """Cache TTL of the values of the gauges."""
