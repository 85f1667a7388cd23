"""Silence of hosts: of one host, or of all hosts at about the same moment.

Pure. In: times of heartbeats. Out: the side that the silence is attributed to. Called by ``cluster`` for pages, and by
host_manager for events. Invariant: if the heartbeats of all known hosts end at once, NATS or the runtime-operator is
the cause, and no host is. Source: hosts of wasmCloud 2.7 send a heartbeat each 15 s, each in its own rhythm.
"""

from __future__ import annotations

from enum import StrEnum

from trellis.v2.timings import V2Timings


class Silence(StrEnum):
    """Attribution of a missing heartbeat."""

    NONE = "None"
    """No heartbeat is missing, or the next heartbeats of the other hosts have to show whose silence it is."""
    OWN = "Own"
    """Other hosts sent heartbeats after the last one of the host."""
    COMMON = "Common"
    """The heartbeats of all hosts ended at about the same moment."""


def continued(last: float, newest: float, timings: V2Timings) -> bool:
    """Return whether the newest heartbeat of all hosts is evidence that they continue after the ``last`` of one.

    Of hosts that stop at once, the times of the last heartbeats differ by less than two intervals.
    """
    return newest - last >= 2 * timings.heartbeat


def attribute(last: float | None, newest: float | None, now: float, *, common: bool, timings: V2Timings) -> Silence:
    """Return the attribution of the missing heartbeat of a host.

    Args:
        last: last heartbeat of the host in Unix seconds, None if none is known.
        newest: newest heartbeat of all hosts, None if none is known.
        now: Unix seconds.
        common: the heartbeats of all hosts are missing.
        timings: intervals of wasmCloud v2.
    """
    if last is not None and newest is not None and continued(last, newest, timings):
        return Silence.OWN
    if common:
        return Silence.COMMON
    overdue = newest is None or now - newest > timings.heartbeat + timings.slack
    return Silence.NONE if overdue else Silence.OWN
