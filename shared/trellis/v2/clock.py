"""Difference between the clocks of the runtime-operator and the API server.

Pure. In: Hosts and Workloads. Out: seconds. Called by ``cluster``. Invariant: nothing is
concluded from a difference that other times contradict. Source: the API server writes the creation of an object; the
runtime-operator writes all times in its status, sets the first conditions of an object within a second of its creation,
and deletes Hosts without heartbeats.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trellis.v2.hosts import HostView
from trellis.v2.timings import V2Timings
from trellis.v2.workloads import WorkloadView


def operator_lead(
    hosts: Sequence[HostView], workloads: Iterable[WorkloadView], now: float, timings: V2Timings
) -> float:
    """Return how far the clock of the operator is ahead in seconds, negative if it is behind, 0 without evidence.

    ``now``: Unix seconds by the clock of the API server.
    """
    times = [host.last_seen for host in hosts if host.last_seen is not None]
    if not times:
        return 0.0
    newest = max(times)
    if newest - now > timings.slack:
        # One clock wrote them all, and no Host is so much older than another one.
        return newest - now if newest - min(times) <= timings.expired else 0.0
    if now - newest <= timings.slack:
        return 0.0  # it records heartbeats in time
    behind = -(first_delay(hosts, workloads, timings) or 0.0)
    # No heartbeat is recorded in the future: an object that was restored from a backup has older conditions, too.
    return -behind if timings.slack < behind <= now - newest + timings.slack else 0.0


def first_delay(hosts: Iterable[HostView], workloads: Iterable[WorkloadView], timings: V2Timings) -> float | None:
    """Return the seconds from a creation, by the API server, to the first condition, by the operator; None: not known.

    Negative if the clock of the operator is behind. Of several objects, the newest one is current evidence. All
    conditions of an object can have changed since: then it is none.
    """
    found: tuple[float, float] | None = None
    objects: Iterable[HostView | WorkloadView] = (*hosts, *workloads)
    for item in objects:
        created, times = item.meta.created, [each.since for each in item.conditions.values() if each.since is not None]
        if created is None or not times or min(times) - created > timings.settle:
            continue
        if found is None or created > found[0]:
            found = created, min(times) - created
    return None if found is None else found[1]
