"""State of the runtime-operator and of its connection to NATS.

Pure. In: Hosts, Workloads, heartbeats. Out: a judgement. Called by ``cluster``. Invariant: the operator has no Lease by
default, so its state is concluded only from effects that always exist: it records each heartbeat within a
second, and deletes a Host two minutes after its last one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from trellis.v2.hosts import HostView
from trellis.v2.objects import condition
from trellis.v2.snapshot import Part, Snapshot

DEADLINE: Final = "context deadline exceeded"
"""Message of the operator for a request that NATS did not answer: the host is busy, or there is no connection."""
NO_RESPONDERS: Final = "no responders"
"""Message of the operator for a request to a host that is not connected to NATS."""


class State(StrEnum):
    """State of the operator. UNKNOWN: no Host shows it."""

    WORKING = "Working"
    UNAVAILABLE = "Unavailable"
    CUT_OFF = "CutOff"
    """It does not reach NATS."""
    HEARTBEATS_MISSING = "HeartbeatsMissing"
    """The heartbeats of all hosts are missing: the operator or NATS is unavailable, or no host runs."""
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class Judgement:
    """State of the operator. ``hosts``: those that are the evidence; ``age``: of the last recorded heartbeat."""

    state: State
    hosts: int = 0
    age: float | None = None

    @property
    def away(self) -> bool:
        """True if nothing updates conditions, or if it is not known that something does: heartbeats are missing."""
        return self.state in {State.UNAVAILABLE, State.CUT_OFF, State.HEARTBEATS_MISSING}


def judge(snapshot: Snapshot, hosts: Mapping[str, list[HostView]], silent: bool) -> Judgement:
    """Return the state of the operator; ``hosts``: Hosts by ID; ``silent``: the heartbeats of all are missing."""
    if not snapshot.knows(Part.HOSTS):
        return Judgement(State.UNKNOWN)
    recorded, unrecorded = _heartbeats(snapshot, hosts)
    if recorded:
        return Judgement(State.WORKING, recorded)
    if unrecorded:
        return Judgement(State.CUT_OFF if _deadlines(snapshot) else State.UNAVAILABLE, unrecorded)
    ages = [max(snapshot.now - host.last_seen, 0.0) for host in snapshot.hosts if host.last_seen is not None]
    if not ages:
        return Judgement(State.UNKNOWN)
    age, timings = min(ages), snapshot.timings
    if age <= timings.silence and not silent:
        return Judgement(State.WORKING, age=age)
    if _deadlines(snapshot) and len(hosts) > 1:
        return Judgement(State.CUT_OFF, age=age)
    if age > timings.expired:
        return Judgement(State.UNAVAILABLE, age=age)
    return Judgement(State.HEARTBEATS_MISSING if silent else State.UNKNOWN, age=age)


def _heartbeats(snapshot: Snapshot, hosts: Mapping[str, list[HostView]]) -> tuple[int, int]:
    """Return the number of hosts whose received heartbeat is recorded, and of those whose one is not."""
    timings = snapshot.timings
    recorded = unrecorded = 0
    for host_id, last in snapshot.messages.hosts.items() if snapshot.messages is not None else ():
        due = snapshot.now - last.at > timings.settle
        times = [host.last_seen for host in hosts.get(host_id, ()) if host.last_seen is not None]
        if times and last.at - max(times) <= timings.slack:
            recorded += 1
        else:
            unrecorded += due or bool(times and last.at - max(times) > timings.heartbeat + timings.slack)
    return recorded, unrecorded


def _deadlines(snapshot: Snapshot) -> bool:
    """Return whether a request of the operator to a host timed out."""
    hosts = (host.reporting for host in snapshot.hosts)
    workloads = (condition(item.conditions, "Sync") for item in snapshot.workloads)
    return any(DEADLINE in found.message for found in (*hosts, *workloads))
