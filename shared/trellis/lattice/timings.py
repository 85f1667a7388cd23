"""How long connections to lattices, and what is read from them, wait. Services pass it on; tests pass shorter times.

Pure. Called by the constructors of this package. All values are seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class FloodTimings:
    """Of a link on which more is said than is heard (``flood``)."""

    away: float = 30.0
    """How long a link is unreachable at least from a server where too much was said; twice as long the next time."""
    away_most: float = 300.0
    forgotten: float = 900.0
    """After which a flood counts as the first one again."""


@dataclass(frozen=True, slots=True)
class OutageTimings:
    """Between two reasons of one outage that are reported (``outage``)."""

    pause: float = 60.0
    pause_most: float = 3600.0


@dataclass(frozen=True, slots=True)
class LinkTimings:
    """Of one connection (``link``)."""

    connect: int = 5
    """For a connection with all its subscriptions, and for subscribing again to what was denied."""
    goodbye: float = 1.0
    ping: float = 10.0
    """Between two pings. A server that is frozen, or behind a cut cable, is noticed after two unanswered ones."""
    look: float = 5.0
    """Between two looks for denied subscriptions; a connection that lasted longer was a good one."""
    backoff_first: float = 0.5
    backoff_most: float = 30.0
    flood: FloodTimings = field(default_factory=FloodTimings)
    outage: OutageTimings = field(default_factory=OutageTimings)


@dataclass(frozen=True, slots=True)
class HostWatchTimings:
    """Of the watch of a lattice's hosts (``host_watch``)."""

    tick: float = 5.0
    """Between two looks for silent hosts."""
    ping: float = 1.0
    """For hosts to answer that they are there: how many there are is not known."""
    answer: float = 2.0
    all: float = 10.0
    """For all hosts to describe themselves; heartbeats tell the rest within 30 s."""


@dataclass(frozen=True, slots=True)
class ModelWatchTimings:
    """Of the watch of a lattice's applications by wadm's events (``model_watch``, ``model_list``)."""

    refresh: float = 60.0
    """Between two lists when no event leaves a doubt."""
    again: float = 15.0
    """Between two lists while wadm does not answer, or may not be asked."""
    answer: float = 2.0
    quiet: float = 1.0
    """Without an event, after which what they left in doubt is asked for."""
    busy: float = 20.0
    """The same while events keep coming: a list costs wadm a read of every application."""


@dataclass(frozen=True, slots=True)
class ComparisonTimings:
    """Of the comparison of applications with wadm (``comparison``, ``applications``, ``configurations``)."""

    every: float = 180.0
    """Between two comparisons when nothing is heard."""
    deaf: float = 15.0
    """The same where wadm's answers have shown what it had not said: a tenant's account may hear nothing of it."""
    settle: float = 0.05
    """In which several events become one question."""
    rest: float = 3.0
    """Times what the last comparison took, before the next one: a list costs wadm a read of every application."""
    answer: float = 5.0
    again: float = 10.0
    """Between two comparisons while wadm does not answer."""
    doubt: float = 2.0
    """For so long an event counts more than an answer that contradicts it: wadm may read what is older."""
    busy: float = 20.0
    """Between an event and the answer that agrees with it, while events keep coming."""


@dataclass(frozen=True, slots=True)
class WadmTimings:
    """Of questions to wadm (``wadm``)."""

    answer: float = 5.0
    stored: float = 10.0
    """wadm answers after 5 s if it could not store a version."""


@dataclass(frozen=True, slots=True)
class BucketTimings:
    """Of the reader of wadm's storage (``bucket``)."""

    every: float = 600.0
    """Between two readings of all there is when nothing goes wrong."""
    fetch: float = 5.0
    look: float = 10.0
    """A reading that lasted longer was a good one, whatever ended it."""
    inactive: float = 60.0
    """After which the server deletes a consumer that nobody reads any more."""
    goodbye: float = 1.0
    join: float = 0.1
    """Between a lattice that joins and reading all again: host groups come many at a time."""
    too_many: float = 120.0
    """For which nothing is read for a lattice that has too much."""
    backoff_first: float = 0.2
    backoff_most: float = 10.0


@dataclass(frozen=True, slots=True)
class StatusTimings:
    """Of the statuses of applications (``statuses``)."""

    every: float = 300.0
    """Between two comparisons of all statuses when nothing goes wrong."""
    doubt: float = 20.0
    """After which wadm is taken to have nothing new to say of another version: it says nothing twice."""
    again: float = 10.0
    """Between two questions for what was not answered."""
    settle: float = 0.1
    """In which several changes become one comparison."""


@dataclass(frozen=True, slots=True)
class AnsweringTimings:
    """Of the question whether wadm answers (``answering``)."""

    every: float = 5.0
    again: float = 1.0
    """After a question without an answer."""


@dataclass(frozen=True, slots=True)
class ListingTimings:
    """Of the list of applications where wadm's storage may not be read (``listing``)."""

    every: float = 15.0
    """Between two lists when nothing is heard: a tenant's account may hear nothing of what wadm says."""
    settle: float = 0.1
    """In which several changes become one list."""
    afresh: float = 600.0
    """After so long every version is asked for again: one that was deleted and put again may hold something else."""


@dataclass(frozen=True, slots=True)
class ClaimTimings:
    """Of the claim by which one cluster owns a lattice's applications (``lattice_claim``)."""

    lifetime: float = 600.0
    """Of a bucket that is made: how long a claim lasts that nobody writes again, so that another cluster gets it."""
    look: float = 5.0
    """Between two looks at the claim, and at most for one."""
    duplicates: float = 120.0
    """At most for which the bucket's stream remembers ids of messages."""


@dataclass(frozen=True, slots=True)
class ForwarderTimings:
    """Of the copies of a lattice's events (``forwarder``)."""

    fetch: float = 5.0
    late: float = 30.0
    """From then on events that wait are warned of: they live 70 s."""
    ack_wait: float = 5.0
    """When an event comes again to the reader that follows one that died with it: several may die in its 70 s.

    A reader that takes longer, as NATS is unreachable, asks for no other event in the meantime, and its acknowledgement
    counts.
    """
    look: float = 10.0
    """Between two looks at what waits; a reading that lasted longer was a good one."""
    inactive: float = 3600.0
    """After which the server deletes a consumer that nobody reads any more: no host group names the lattice."""
    backoff_first: float = 0.2
    backoff_most: float = 10.0


@dataclass(frozen=True, slots=True)
class LatticeTimings:
    """Of everything that follows lattices."""

    silence: float = 70.0
    """Two heartbeats of 30 s and slack: wadm, too, takes a host for gone after that."""
    report: float = 60.0
    """Between two log lines about messages of one lattice that cannot be read."""
    link: LinkTimings = field(default_factory=LinkTimings)
    hosts: HostWatchTimings = field(default_factory=HostWatchTimings)
    models: ModelWatchTimings = field(default_factory=ModelWatchTimings)
    comparison: ComparisonTimings = field(default_factory=ComparisonTimings)
    wadm: WadmTimings = field(default_factory=WadmTimings)
    bucket: BucketTimings = field(default_factory=BucketTimings)
    statuses: StatusTimings = field(default_factory=StatusTimings)
    answering: AnsweringTimings = field(default_factory=AnsweringTimings)
    listing: ListingTimings = field(default_factory=ListingTimings)
    claim: ClaimTimings = field(default_factory=ClaimTimings)
    forwarder: ForwarderTimings = field(default_factory=ForwarderTimings)
