"""State of the runtime-operator and of its connection to NATS.

Pure. In: Hosts, Workloads, heartbeats. Out: a judgement. Called by ``cluster``. Invariant: the operator has no Lease by
default, so its state is concluded only from effects that always exist: it records each heartbeat within a
second, and deletes a Host two minutes after its last one. Releases after 2.7 delete none while they receive no
heartbeat of any host, and report that at each Host.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from trellis.v2.snapshot import Part, Snapshot

DEADLINE: Final = "context deadline exceeded"
"""Message of the operator for a request that NATS did not answer: the host is busy, or there is no connection."""
NO_RESPONDERS: Final = "no responders"
"""Message of the operator for a request to a host that is not connected to NATS."""


GATED: Final = "the fleet for"
"""Part of the message of a Host that an operator keeps because it receives no heartbeat of any host."""


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
    def unavailable(self) -> bool:
        """True if nothing updates conditions, or if it is not known that something does: heartbeats are missing."""
        return self.state in {State.UNAVAILABLE, State.CUT_OFF, State.HEARTBEATS_MISSING}


def judge(snapshot: Snapshot, seen: Mapping[str, float], no_heartbeats: bool) -> Judgement:
    """Return the state of the operator.

    Args:
        snapshot: all that was read.
        seen: last recorded heartbeat by the ID of the host, in Unix seconds by the clock of the API server.
        no_heartbeats: the heartbeats of all Hosts are missing.
    """
    if not snapshot.knows(Part.HOSTS):
        return Judgement(State.UNKNOWN)
    found, timed_out = _heartbeats(snapshot, seen), len(_timed_out(snapshot))
    if found.recorded:
        return Judgement(State.WORKING, found.recorded)
    if found.unrecorded:
        return Judgement(State.CUT_OFF if timed_out else State.UNAVAILABLE, found.unrecorded)
    age = max(snapshot.now - max(seen.values()), 0.0) if seen else None
    timings = snapshot.timings
    if age is not None and age <= timings.silence and not no_heartbeats:
        return Judgement(State.WORKING, age=age)
    if found.unregistered:
        return Judgement(State.UNAVAILABLE, found.unregistered)
    if age is None:
        return Judgement(State.UNKNOWN)
    if timed_out > 1:
        return Judgement(State.CUT_OFF, age=age)
    if age > timings.expired_after(timed_out) and not any(GATED in host.ready.message for host in snapshot.hosts):
        return Judgement(State.UNAVAILABLE, age=age)
    return Judgement(State.HEARTBEATS_MISSING if no_heartbeats else State.UNKNOWN, age=age)


def joint(found: Sequence[Judgement]) -> Judgement:
    """Return the state that several operators have in common, UNKNOWN if they have different ones.

    It is that of an object whose operator is not known.
    """
    if len({item.state for item in found}) != 1:
        return Judgement(State.UNKNOWN)
    ages = [item.age for item in found if item.age is not None]
    return Judgement(found[0].state, sum(item.hosts for item in found), min(ages, default=None))


@dataclass(frozen=True, slots=True)
class _Heartbeats:
    """Numbers of hosts whose received heartbeat is recorded, is not recorded, or has no Host to be recorded in."""

    recorded: int = 0
    unrecorded: int = 0
    unregistered: int = 0


def _heartbeats(snapshot: Snapshot, seen: Mapping[str, float]) -> _Heartbeats:
    timings = snapshot.timings
    recorded = unrecorded = unregistered = 0
    for host_id, last in snapshot.messages.hosts.items() if snapshot.messages is not None else ():
        due = snapshot.now - last.at > timings.settle
        known = seen.get(host_id)
        if known is None:
            unregistered += due
        elif last.at - known <= timings.slack:
            recorded += 1
        else:
            unrecorded += due or last.at - known > timings.heartbeat + timings.slack
    return _Heartbeats(recorded, unrecorded, unregistered)


def _timed_out(snapshot: Snapshot) -> set[str]:
    """Return the IDs of the hosts that did not answer the operator in time.

    A host without power or network is one of them until NATS closes its connection.
    """
    hosts = {host.id for host in snapshot.hosts if DEADLINE in host.reporting.message}
    return hosts | {item.host_id for item in snapshot.workloads if DEADLINE in item.condition("Sync").message}
