"""Evidence of missing heartbeats: they prove something only while the operator works, and has for long enough.

Pure. In: the former value, a cluster. Out: the next value. Called by ``decide``. Invariant: the outage of one of
several operators, each with its Hosts in its namespace, is not the silence of its hosts. Source: runtime-operator 2.7
records each heartbeat. After an outage of NATS it reconciles a Host within a minute; until then conditions describe
the outage, and hosts connect one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from trellis.v2.cluster import Cluster
from trellis.v2.hosts import HostView
from trellis.v2.operator import State
from trellis.v2.reasons import Reason
from trellis.v2.silence import continued

BY_SILENCE: Final = frozenset(
    {
        Reason.OPERATOR_UNAVAILABLE,
        Reason.NATS_UNREACHABLE,
        Reason.HEARTBEATS_STOPPED,
        Reason.NOT_OBSERVED,
        Reason.HEARTBEAT_MISSING,
        Reason.HOST_NOT_FOUND,
        Reason.HOST_NOT_READY,
        Reason.HOST_UNREACHABLE,
        Reason.HOST_BUSY,
        Reason.NO_HOST_READY,
    }
)
"""Reasons that an outage of the operator, of NATS or of a watch has, too."""
NOT_KNOWN: Final = frozenset({Reason.HOSTS_UNKNOWN, Reason.READ_INCOMPLETE})
"""Reasons that describe what Trellis could not read."""


@dataclass(frozen=True, slots=True)
class Trust:
    """``since``: by namespace of Hosts, Unix seconds since which their operator has worked without an interruption."""

    since: Mapping[str, float] = field(default_factory=dict)

    def next(self, cluster: Cluster) -> Trust:
        """Return the value for a later state of the cluster."""
        now, silent = cluster.snapshot.now, namespaces_without_heartbeats(cluster)
        working = (
            place
            for place in newest_heartbeats(cluster)
            if place not in silent and cluster.within(place).operator.state is State.WORKING
        )
        return Trust({place: self.since.get(place, now) for place in working})


def newest_heartbeats(cluster: Cluster) -> dict[str, float]:
    """Return the Unix time of the newest known heartbeat of the Hosts of each namespace.

    Hosts are in the namespace of their operator, and each operator has a NATS of its own.
    """
    newest: dict[str, float] = {}
    for host in cluster.hosts:
        last, place = cluster.last_heartbeat(host), host.meta.namespace
        if last is not None and last <= cluster.snapshot.now + cluster.snapshot.timings.slack:
            newest[place] = max(last, newest.get(place, last))
    return newest


def namespaces_without_heartbeats(cluster: Cluster) -> set[str]:
    """Return the namespaces in which the heartbeats of all Hosts are missing."""
    silence = cluster.snapshot.timings.silence
    return {place for place, last in newest_heartbeats(cluster).items() if cluster.older(last, silence)}


class Evidence:
    """The reasons that a missing heartbeat confirms in one snapshot."""

    def __init__(self, cluster: Cluster, trust: Trust) -> None:
        timings = cluster.snapshot.timings
        self._cluster = cluster
        self._newest = newest_heartbeats(cluster)
        self._reliable = {
            place
            for place, last in self._newest.items()
            if not cluster.older(last, timings.heartbeat + timings.slack)
            and cluster.older(trust.since.get(place), timings.host_look + timings.slack)
        }

    def confirms(self, reason: str, host: HostView | None) -> bool:
        """Return whether a reason is a state of the object, and not a consequence of an outage.

        ``host``: the one whose silence is the reason, None if it is not known: then it can be one of any operator.
        """
        if reason in NOT_KNOWN:
            return False
        if reason not in BY_SILENCE:
            return True
        if host is None:
            return bool(self._newest) and self._reliable == set(self._newest)
        place, cluster = host.meta.namespace, self._cluster
        if place not in self._reliable:
            return False
        last = cluster.last_heartbeat(host) if reason == Reason.HEARTBEAT_MISSING else None
        return last is None or continued(last, self._newest[place], cluster.snapshot.timings)
