"""Timings of the Kubernetes client and its users; tests use shorter ones.

Pure. Called by ``trellis.kube`` and by all code that creates a connection. In seconds, unless stated otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from trellis.kube.watch_timings import WatchTimings


@dataclass(frozen=True, slots=True)
class PluginTimings:
    """Seconds of a kubeconfig's credential plugin."""

    run: float = 10.0
    """Timeout of a plugin: shorter than that of a call, so that the caller gets the error of the plugin."""
    death: float = 1.0
    """Timeout for the end of a killed plugin."""
    pause: float = 5.0
    """Minimum interval between two runs of a failed plugin: concurrent calls request credentials."""


@dataclass(frozen=True, slots=True)
class ConnectionTimings:
    """Seconds of connections to the API server."""

    connect: float = 5.0
    """Timeout of TCP connect."""
    open: float = 15.0
    """Timeout of opening a watch, which the server answers immediately. A lost request must be detected long before a
    watch without progress counts as stalled (``WatchTimings.deaf``): the outage may be over by then."""
    kept: float = 15.0
    """Keep-alive timeout of an idle connection. NAT and load balancers drop idle connections after a minute or more,
    without notice."""
    plugin: PluginTimings = field(default_factory=PluginTimings)


@dataclass(frozen=True, slots=True)
class DiscoveryTimings:
    """Cache TTLs of answers of the discovery API, in seconds."""

    again: float = 5.0
    """An answer that the kind is not served."""
    keep: float = 600.0
    """An answer that the kind is served: its CRD may be re-created with other names."""


@dataclass(frozen=True, slots=True)
class EventTimings:
    """Seconds of Events. Source of ``alike`` and ``refill``: the correlator of client-go's ``tools/record``."""

    repeat: float = 60.0
    """Interval in which a repetition is not written."""
    alike: float = 600.0
    """Maximum interval between Events of an object with one reason that count as similar."""
    refill: float = 300.0
    """Interval of Event writes of an object after its burst."""
    pause: float = 0.05
    """Between two Normal Events of a process: a thousand changed nodes are more urgent than their Events."""


@dataclass(frozen=True, slots=True)
class BreakerTimings:
    """Seconds of circuit breakers."""

    poll: float = 5.0
    """Poll interval while a circuit breaker is open, to detect that a user closes it."""
    least: float = 1.0
    """Shortest delay of a paused deletion."""


@dataclass(frozen=True, slots=True)
class RefusalTimings:
    """Seconds. ``retry``: maximum delay of a refused key; ``spread``: added for each refused key."""

    retry: float = 15.0
    spread: float = 0.25

    def bound(self, refused: int) -> float:
        """Return the maximum delay of a key while this number of keys is refused."""
        return self.retry + self.spread * refused


@dataclass(frozen=True, slots=True)
class LeaderTimings:
    """Seconds. A lease expires ``duration`` after its last renewal; its holder stops after ``renew_deadline``.

    ``handover``: expiry of a shared lease after one of its processes stopped; 0 for a lease that is not shared.
    ``longest``: maximum duration that is accepted from a lease of another holder. ``restart_first`` and
    ``restart_most``: bounds of the backoff after a failed leadership term.
    """

    duration: int = 10
    renew_deadline: float = 6.0
    renew: float = 3.0
    retry: float = 1.0
    call_timeout: float = 3.0
    handover: int = 0
    longest: float = 60.0
    restart_first: float = 1.0
    restart_most: float = 30.0

    def __post_init__(self) -> None:
        if not self.renew + self.retry < self.renew_deadline < self.duration:
            raise ValueError("renew + retry < renew_deadline < duration must hold")


@dataclass(frozen=True, slots=True)
class HandoverTimings:
    """Seconds. ``settle``: time after a handover of the claim in which nodes with a runtime are not changed.

    ``record``: interval between two records of a waiting installation; ``again``: delay after a conflict.
    """

    settle: float = 300.0
    record: float = 20.0
    again: float = 0.3


def claim_election() -> LeaderTimings:
    """Return the production timings of the Lease that claims the Nodes of a cluster for one installation."""
    return LeaderTimings(duration=30, renew_deadline=20.0, renew=5.0, handover=10)


@dataclass(frozen=True, slots=True)
class KubeTimings:
    """Seconds of one connection to an API server, and defaults for its users."""

    call: float = 15.0
    """Default timeout of a call, including retries and waits."""
    evict: float = 3.0
    """Timeout of an eviction: a refused one requests a delay of 10 s, which the caller should not wait for."""
    probe: float = 3.0
    """Timeout of the readiness check of the API server."""
    retry_after: float = 1.0
    """Delay after a 429 without Retry-After."""
    recent: float = 30.0
    """Maximum age of an answer that shows that the API server answers."""
    share: float = 5.0
    """Maximum wait of a request for the share of its namespace; shorter than the timeout of a call."""
    connection: ConnectionTimings = field(default_factory=ConnectionTimings)
    discovery: DiscoveryTimings = field(default_factory=DiscoveryTimings)
    events: EventTimings = field(default_factory=EventTimings)
    breaker: BreakerTimings = field(default_factory=BreakerTimings)
    watch: WatchTimings = field(default_factory=WatchTimings)
    leader: LeaderTimings = field(default_factory=LeaderTimings)
    claim: LeaderTimings = field(default_factory=claim_election)
    handover: HandoverTimings = field(default_factory=HandoverTimings)
