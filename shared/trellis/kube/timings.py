"""Timings of the Kubernetes client and its users; tests use shorter ones.

Pure. Called by ``trellis.kube`` and by everything that creates a connection. In seconds, unless a field says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from trellis.kube.watch_timings import WatchTimings


@dataclass(frozen=True, slots=True)
class PluginTimings:
    """Seconds of a kubeconfig's credential plugin."""

    run: float = 10.0
    """A plugin ends within it: less than a call has, so that the caller learns of the plugin and not of silence."""
    death: float = 1.0
    """How long a killed plugin is waited for."""
    pause: float = 5.0
    """Between two runs of a plugin that failed: many calls ask for credentials at a time."""


@dataclass(frozen=True, slots=True)
class ConnectionTimings:
    """Seconds of connections to the API server."""

    connect: float = 5.0
    """TCP connect."""
    open: float = 15.0
    """A watch is answered at once, whatever happens later. A request that got lost must be noticed long before a
    watch without progress counts as deaf (``WatchTimings.deaf``): the outage may be over by then."""
    kept: float = 15.0
    """How long an idle connection is kept. NAT and load balancers forget connections after a minute or more, and report
    nothing."""
    plugin: PluginTimings = field(default_factory=PluginTimings)


@dataclass(frozen=True, slots=True)
class DiscoveryTimings:
    """Seconds for which answers of the discovery API are used."""

    again: float = 5.0
    """An answer that the kind is not served."""
    keep: float = 600.0
    """An answer that the kind is served: its CRD may be re-created with other names."""


@dataclass(frozen=True, slots=True)
class EventTimings:
    """Seconds of Events. Source of ``alike`` and ``refill``: the correlator of client-go's ``tools/record``."""

    repeat: float = 60.0
    """A repeat within this time is not written."""
    alike: float = 600.0
    """Events of an object with one reason are counted as similar within this time of each other."""
    refill: float = 300.0
    """Once the burst of an object is used up, one Event is written in this time."""


@dataclass(frozen=True, slots=True)
class BreakerTimings:
    """Seconds of circuit breakers."""

    poll: float = 5.0
    """How soon a closing by command is noticed; nothing is read while no breaker is open."""
    least: float = 1.0
    """The shortest wait of a destruction that is held."""


@dataclass(frozen=True, slots=True)
class RefusalTimings:
    """Seconds. ``retry``: at most between two attempts of a refused key; ``spread``: added for each other one."""

    retry: float = 15.0
    spread: float = 0.25

    def bound(self, refused: int) -> float:
        """Return the longest wait of a key while so many are refused."""
        return self.retry + self.spread * refused


@dataclass(frozen=True, slots=True)
class LeaderTimings:
    """Seconds. A lease nobody renewed for ``duration`` may be taken; its holder gives up after ``renew_deadline``.

    ``handover``: within which a lease expires once a process that shares it has stopped; 0 for one that is not shared.
    ``longest``: a lease that asks for a longer duration, a stranger's, expires after this. ``restart_first`` and
    ``restart_most``: ceilings of the wait after work that failed while leading.
    """

    duration: int = 10
    renew_deadline: float = 6.0
    renew: float = 2.0
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
    """Seconds. ``settle``: for how long nodes that have a runtime are left as they are after the claim changed hands.

    ``record``: between two records of an installation that waits; ``again``: after a conflict.
    """

    settle: float = 300.0
    record: float = 20.0
    again: float = 0.3


def claim_election() -> LeaderTimings:
    """Return the production timings of the Lease by which one installation works on the Nodes of a cluster."""
    return LeaderTimings(duration=30, renew_deadline=20.0, renew=5.0, handover=10)


@dataclass(frozen=True, slots=True)
class KubeTimings:
    """Seconds of one connection to an API server, and of the parts that work by it unless they are given others."""

    call: float = 15.0
    """A call in all, retries and waits included, unless its caller says otherwise."""
    evict: float = 3.0
    """An eviction: a refused one asks for a wait of 10 s, which is better spent elsewhere."""
    probe: float = 3.0
    """The question whether the API server is ready."""
    retry_after: float = 1.0
    """The wait after a 429 that names none."""
    recent: float = 30.0
    """An answer that is older does not show that the API server answers."""
    share: float = 5.0
    """How long a request waits for others of its namespace; its caller has more time than that."""
    connection: ConnectionTimings = field(default_factory=ConnectionTimings)
    discovery: DiscoveryTimings = field(default_factory=DiscoveryTimings)
    events: EventTimings = field(default_factory=EventTimings)
    breaker: BreakerTimings = field(default_factory=BreakerTimings)
    watch: WatchTimings = field(default_factory=WatchTimings)
    leader: LeaderTimings = field(default_factory=LeaderTimings)
    claim: LeaderTimings = field(default_factory=claim_election)
    handover: HandoverTimings = field(default_factory=HandoverTimings)
