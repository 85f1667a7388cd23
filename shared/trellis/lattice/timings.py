"""Timings of lattice connections and of the readers of lattices. Services pass them on; tests use shorter ones.

Pure. Called by the constructors of this package. All values are seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class FloodTimings:
    """Timings of a lattice connection whose message rate exceeds the limit (``flood``)."""

    unavailable: float = 30.0
    """First delay of the next connection after a flood; each further flood doubles it."""
    unavailable_most: float = 300.0
    forgotten: float = 900.0
    """Time without a flood after which the delay starts from its first value."""


@dataclass(frozen=True, slots=True)
class OutageTimings:
    """Delays between two reported reasons of one outage (``outage``)."""

    pause: float = 60.0
    pause_most: float = 3600.0


@dataclass(frozen=True, slots=True)
class ConnectionTimings:
    """Timings of one lattice connection."""

    connect: int = 5
    """Timeout of a connect with all its subscriptions, and of retrying denied subscriptions."""
    goodbye: float = 1.0
    ping: float = 10.0
    """Ping interval. A frozen or unreachable server is detected after two unanswered pings."""
    look: float = 5.0
    """Interval of retries of denied subscriptions; a connection that lasted longer counts as successful."""
    backoff_first: float = 0.5
    backoff_most: float = 30.0
    flood: FloodTimings = field(default_factory=FloodTimings)
    outage: OutageTimings = field(default_factory=OutageTimings)


@dataclass(frozen=True, slots=True)
class ListenTimings:
    """Timings of a command that receives messages for a bounded time (``listen``)."""

    listen: float = 20.0
    """Duration; a host of wasmCloud v2 sends a heartbeat every 15 s."""
    look: float = 0.2
    """Interval of checks for an early end."""
    connect: int = 5
    goodbye: float = 1.0


@dataclass(frozen=True, slots=True)
class HostWatchTimings:
    """Timings of the watch of the hosts of a lattice (``host_watch``)."""

    tick: float = 5.0
    """Minimum interval of checks for missing heartbeats."""
    ping: float = 1.0
    """Time for answers to a host ping: the number of hosts is unknown."""
    answer: float = 2.0
    all: float = 10.0
    """Timeout for the descriptions of all hosts; heartbeats provide the rest within 30 s."""


@dataclass(frozen=True, slots=True)
class ModelWatchTimings:
    """Timings of the watch of the applications of a lattice by events of wadm (``model_watch``, ``model_list``)."""

    refresh: float = 60.0
    """Maximum time between two lists: for one, wadm reads every application."""
    again: float = 15.0
    """Between two lists while wadm does not answer, or denies the request."""
    answer: float = 10.0
    """Timeout of a list: a busy wadm needs seconds, and a repeated request would delay it further."""
    quiet: float = 1.0
    """Without an event, after which unconfirmed changes are queried."""


@dataclass(frozen=True, slots=True)
class ComparisonTimings:
    """Timings of the comparison of applications with wadm (``comparison``, ``applications``, ``configurations``)."""

    every: float = 180.0
    """Between two comparisons without events."""
    events_missing: float = 15.0
    """The same if answers of wadm contained unpublished changes: the account of a tenant may receive no events."""
    settle: float = 0.05
    """Time in which several events become one query."""
    rest: float = 3.0
    """Delay of the next comparison, as a multiple of the duration of the last one: wadm reads every application."""
    answer: float = 10.0
    again: float = 10.0
    """Between two comparisons while wadm does not answer."""
    unconfirmed: float = 2.0
    """Time for which an event wins over an answer that contradicts it: wadm may read an older state."""
    busy: float = 60.0
    """Maximum time between an event and the query that confirms it, while events arrive."""


@dataclass(frozen=True, slots=True)
class WadmTimings:
    """Timeouts of requests to wadm (``wadm``)."""

    answer: float = 5.0
    stored: float = 10.0
    """Timeout of a put: wadm answers after 5 s if it cannot store a version."""


@dataclass(frozen=True, slots=True)
class BucketTimings:
    """Timings of the reader of the wadm storage (``bucket``)."""

    every: float = 600.0
    """Between two complete reads without errors."""
    fetch: float = 5.0
    look: float = 10.0
    """A read that lasted longer counts as successful, also if it ended with an error."""
    inactive: float = 60.0
    """After which the server deletes an unused consumer."""
    goodbye: float = 1.0
    join: float = 0.1
    """Delay of a complete read after a lattice was added: host groups are often created in groups."""
    too_many: float = 120.0
    """Pause of reading for a lattice that exceeds the limits."""
    backoff_first: float = 0.2
    backoff_most: float = 10.0


@dataclass(frozen=True, slots=True)
class StatusTimings:
    """Timings of the statuses of applications (``statuses``)."""

    every: float = 300.0
    """Between two comparisons of all statuses without errors."""
    unconfirmed: float = 20.0
    """Time to wait for the status of another version before a query: wadm does not publish an unchanged status."""
    again: float = 10.0
    """Between two queries of a status without an answer."""
    settle: float = 0.1
    """Time in which several changes become one comparison."""


@dataclass(frozen=True, slots=True)
class ProbeTimings:
    """Timings of the check that wadm answers (``probe``), of all lattices of a wadm together."""

    every: float = 5.0
    again: float = 1.0
    """Delay after a query without an answer."""


@dataclass(frozen=True, slots=True)
class ListingTimings:
    """Timings of the list of applications without permission to read the wadm storage (``listing``)."""

    every: float = 15.0
    """Between two lists without events: the account of a tenant may receive no events of wadm."""
    settle: float = 0.1
    """Time in which several changes become one list."""
    afresh: float = 600.0
    """Between two complete reads of all versions: a version that was deleted and re-created may have other content."""


@dataclass(frozen=True, slots=True)
class ClaimTimings:
    """Timings of the claim of a cluster on the applications of a lattice (``lattice_claim``)."""

    lifetime: float = 600.0
    """Lifetime of a claim that is not refreshed, for a created bucket; then another cluster can claim the lattice."""
    look: float = 15.0
    """Interval of reads of the claim, except after a reconnect."""
    answer: float = 5.0
    """Timeout of reads and writes of the claim."""
    duplicates: float = 120.0
    """Maximum duplicate window of the stream of the bucket."""


@dataclass(frozen=True, slots=True)
class ForwarderTimings:
    """Timings of forwarding lattice events (``forwarder``)."""

    fetch: float = 30.0
    """Time after which a fetch without events is repeated. The end of the connection ends it, too."""
    late: float = 30.0
    """Age of the oldest waiting event from which a warning is logged: events expire after 70 s."""
    ack_wait: float = 5.0
    """Delay of the redelivery of an event whose reader failed: several readers may fail within its 70 s.

    A slower reader, while NATS is unreachable, fetches no other event in the meantime, and its acknowledgement is
    valid.
    """
    look: float = 10.0
    """Interval of checks for waiting events; a read that lasted longer counts as successful."""
    inactive: float = 3600.0
    """After which the server deletes an unused consumer: no host group names the lattice."""
    backoff_first: float = 0.2
    backoff_most: float = 10.0


@dataclass(frozen=True, slots=True)
class LatticeTimings:
    """Timings of all components that follow lattices."""

    silence: float = 70.0
    """Time without a heartbeat after which a host counts as stopped, as in wadm: two intervals of 30 s and slack."""
    report: float = 60.0
    """Between two log lines about invalid messages of one lattice."""
    connection: ConnectionTimings = field(default_factory=ConnectionTimings)
    hosts: HostWatchTimings = field(default_factory=HostWatchTimings)
    models: ModelWatchTimings = field(default_factory=ModelWatchTimings)
    comparison: ComparisonTimings = field(default_factory=ComparisonTimings)
    wadm: WadmTimings = field(default_factory=WadmTimings)
    bucket: BucketTimings = field(default_factory=BucketTimings)
    statuses: StatusTimings = field(default_factory=StatusTimings)
    probe: ProbeTimings = field(default_factory=ProbeTimings)
    listing: ListingTimings = field(default_factory=ListingTimings)
    claim: ClaimTimings = field(default_factory=ClaimTimings)
    forwarder: ForwarderTimings = field(default_factory=ForwarderTimings)
