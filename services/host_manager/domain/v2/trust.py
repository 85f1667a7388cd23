"""Evidence of missing heartbeats: they prove something only while the operator works, and has for long enough.

Pure. In: the former value, a cluster. Out: the next value. Called by ``decide``. Source: runtime-operator 2.7 records
each heartbeat. After an outage of NATS it reconciles a Host within a minute; until then conditions describe the
outage, and hosts connect one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass
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
        Reason.HOST_NOT_READY,
        Reason.HOST_BUSY,
        Reason.NO_HOST_READY,
    }
)
"""Reasons that an outage of the operator, of NATS or of a watch has, too."""
NOT_KNOWN: Final = frozenset({Reason.HOSTS_UNKNOWN, Reason.READ_INCOMPLETE})
"""Reasons that describe what Trellis could not read."""


@dataclass(frozen=True, slots=True)
class Trust:
    """``since``: Unix seconds since which the operator has worked without an interruption, None if it does not."""

    since: float | None = None

    def next(self, cluster: Cluster) -> Trust:
        """Return the value for a later state of the cluster."""
        if cluster.operator.state is not State.WORKING:
            return Trust()
        return self if self.since is not None else Trust(cluster.snapshot.now)


class Evidence:
    """The reasons that a missing heartbeat proves in one snapshot."""

    def __init__(self, cluster: Cluster, trust: Trust) -> None:
        timings = cluster.snapshot.timings
        self._newest = cluster.newest_heartbeat
        age = cluster.age(self._newest)
        recording = age is not None and age <= timings.heartbeat + timings.slack
        self._reliable = recording and cluster.older(trust.since, timings.host_look + timings.slack)
        self._cluster = cluster

    def proves(self, reason: str, host: HostView | None) -> bool:
        """Return whether a reason is a state of the object, and not a consequence of an outage.

        ``host``: the one whose silence is the reason, None if it is not known.
        """
        if reason in NOT_KNOWN:
            return False
        if reason not in BY_SILENCE:
            return True
        if not self._reliable or self._newest is None:
            return False
        cluster = self._cluster
        last = cluster.last_heartbeat(host) if host is not None and reason == Reason.HEARTBEAT_MISSING else None
        return last is None or continued(last, self._newest, cluster.snapshot.timings)
